//! The metrics, labels and units that dashboards and alerts use are those of the catalogue.

use std::collections::BTreeSet;

use signet::telemetry::{CATALOGUE, MetricKind};

use super::rules::rules;
use super::{Board, boards};
use crate::metrics::{closed_set, metric_of};

/// Labels that Prometheus adds to every series.
const OF_THE_SCRAPE: [&str; 2] = ["job", "instance"];
/// Keywords of PromQL that are not series.
const WORDS: [&str; 12] =
    ["and", "or", "unless", "bool", "offset", "by", "on", "without", "ignoring", "group_left", "group_right", "inf"];

/// A selector: the name of its series, and label, operator and value of each matcher.
#[derive(Debug, PartialEq)]
struct Selector {
    name: String,
    matchers: Vec<[String; 3]>,
}

#[derive(Debug, Default, PartialEq)]
struct Parts {
    selectors: Vec<Selector>,
    grouped: Vec<String>,
    made: Vec<String>,
}

/// Parses an expression; promtool checks its syntax.
fn parts(expression: &str) -> Parts {
    let mut found = Parts::default();
    let mut rest = expression;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            rest = rest[1..].split_once('"').unwrap().1;
        } else if first == '[' {
            rest = rest.split_once(']').unwrap().1;
        } else if is_word(first) {
            let (word, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            rest = after;
            let next = after.trim_start();
            if ["by", "on"].contains(&word) {
                let (labels, after) = next[1..].split_once(')').unwrap();
                found.grouped.extend(labels.split(", ").map(str::to_owned));
                rest = after;
            } else if word == "label_replace" {
                found.made.push("what".to_owned());
            } else if word.starts_with(|c: char| c.is_ascii_alphabetic())
                && !WORDS.contains(&word)
                && !next.starts_with('(')
                && !next.starts_with("by (")
            {
                let mut matchers = Vec::new();
                if let Some(inside) = after.strip_prefix('{') {
                    let (inside, after) = inside.split_once('}').unwrap();
                    matchers = inside.split(", ").map(matcher).collect();
                    rest = after;
                }
                found.selectors.push(Selector { name: word.to_owned(), matchers });
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

fn matcher(text: &str) -> [String; 3] {
    let (label, rest) = text.split_at(text.find(['=', '!']).unwrap());
    let (operator, value) = rest.split_at(rest.find('"').unwrap());
    [label, operator, value.trim_matches('"')].map(str::to_owned)
}

/// Every expression of dashboards (their variables included) and alerts, with its location.
fn expressions() -> Vec<(String, String)> {
    let of_boards = boards().into_iter().flat_map(|board| {
        let of_all = of_the_variables(&board);
        board.asked().into_iter().map(|asked| (asked.place, asked.expression)).chain(of_all)
    });
    let of_rules = rules().into_iter().map(|rule| (rule["alert"].to_owned(), rule["expr"].to_owned()));
    let all: Vec<_> = of_boards.chain(of_rules).collect();
    assert!(all.len() > 200, "{}", all.len());
    all
}

/// The queries of a dashboard's variables and annotations.
fn of_the_variables(board: &Board) -> Vec<(String, String)> {
    let place = |what: &str| format!("{}: {what}", board.name);
    let variables = board.body["templating"]["list"].as_array().unwrap().iter();
    let asked = variables.filter(|variable| variable["type"] == "query").map(|variable| {
        let query = variable["query"]["query"].as_str().unwrap();
        let (series, label) =
            query.strip_prefix("label_values(").unwrap().trim_end_matches(')').rsplit_once(", ").unwrap();
        (place(label), format!("count by ({label}) ({series})"))
    });
    let marks = board.body["annotations"]["list"].as_array().unwrap().iter();
    asked.chain(marks.map(|mark| (place("marks"), mark["expr"].as_str().unwrap().to_owned()))).collect()
}

fn labels_of(series: &str) -> Option<BTreeSet<&'static str>> {
    let own: &[&str] = match series {
        "up" => &[],
        "ALERTS" => &["alertname", "alertstate", "severity"],
        _ => metric_of(series)?.labels,
    };
    let bucket = series.ends_with("_bucket").then_some("le");
    Some(own.iter().copied().chain(OF_THE_SCRAPE).chain(bucket).collect())
}

/// The values that a matcher lists literally.
fn values(operator: &str, value: &str) -> Vec<String> {
    let plain = |text: &str| !text.contains(['.', '(', '*', '+', '$']);
    match operator {
        "=" | "!=" => vec![value.to_owned()],
        _ if plain(value) => value.split('|').map(str::to_owned).collect(),
        // A status class such as `5..`.
        _ if value.len() == 3 && value.ends_with("..") => vec![value.replace("..", "00")],
        _ => Vec::new(),
    }
}

#[test]
fn dashboards_and_alerts_use_exactly_the_metric_catalogue() {
    let mut used = BTreeSet::new();
    for (place, expression) in expressions() {
        let Parts { selectors, grouped, made } = parts(&expression);
        assert!(!selectors.is_empty(), "{place}: {expression}");
        let mut there: BTreeSet<&str> = made.iter().map(String::as_str).collect();
        for Selector { name, matchers } in &selectors {
            let labels = labels_of(name).unwrap_or_else(|| panic!("{place}: {name}: not in the catalogue so"));
            for [label, operator, value] in matchers {
                assert!(labels.contains(label.as_str()), "{place}: {name} has no label {label}");
                if metric_of(name).is_some() && !OF_THE_SCRAPE.contains(&label.as_str()) {
                    for value in values(operator, value) {
                        assert!(closed_set(label).contains(&value), "{place}: {name}: {label} is never {value}");
                    }
                }
            }
            there.extend(labels);
            used.extend(metric_of(name).map(|metric| metric.name));
        }
        for label in &grouped {
            assert!(there.contains(label.as_str()), "{place}: nothing has the label {label}");
        }
    }
    for metric in CATALOGUE {
        assert!(used.contains(metric.name), "{}: on no panel and in no alert", metric.name);
    }
}

#[test]
fn panel_queries_filter_by_the_selected_servers() {
    for board in boards() {
        for asked in board.asked() {
            for Selector { name, matchers } in parts(&asked.expression).selectors {
                // An alert about all servers has no instance; alerts without a job match too.
                let end = if name == "ALERTS" { "|" } else { "" };
                for label in OF_THE_SCRAPE {
                    let chosen = [label, "=~", &format!("${label}{end}")].map(str::to_owned);
                    assert!(matchers.contains(&chosen), "{}: {name} of whichever {label}", asked.place);
                }
            }
        }
    }
}

#[test]
fn dashboard_queries_filter_by_the_selected_mounts() {
    for board in boards() {
        let variables = board.body["templating"]["list"].as_array().unwrap();
        let offers = variables.iter().any(|variable| variable["name"] == "mount" && variable["hide"] == 0);
        let mut uses = false;
        for asked in board.asked() {
            for Selector { name, matchers } in parts(&asked.expression).selectors {
                if offers && metric_of(&name).is_some_and(|metric| metric.labels.contains(&"mount")) {
                    let chosen = ["mount", "=~", "$mount"].map(str::to_owned);
                    assert!(matchers.contains(&chosen), "{}: {name} of whichever mount", asked.place);
                    uses = true;
                }
                let names_mount = matchers.iter().any(|[label, ..]| label == "mount");
                assert!(offers || !names_mount, "{}: {name}: the choice of mounts is hidden", asked.place);
            }
        }
        assert_eq!(uses, offers, "{}", board.name);
    }
}

#[test]
fn legends_use_labels_of_their_query() {
    for board in boards() {
        for asked in board.asked() {
            let Parts { selectors, grouped, .. } = parts(&asked.expression);
            let names = asked.legend.split("{{").skip(1).map(|part| part.split_once("}}").unwrap().0);
            for name in names {
                let given = if grouped.is_empty() {
                    selectors.iter().any(|selector| labels_of(&selector.name).unwrap().contains(name))
                } else {
                    grouped.iter().any(|label| label == name)
                };
                assert!(given, "{}: {{{{{name}}}}} of {}", asked.place, asked.expression);
            }
        }
    }
}

#[test]
fn panel_units_match_their_queries() {
    for board in boards() {
        for asked in board.asked().into_iter().filter(|asked| !asked.unit.is_empty()) {
            let expression = asked.expression.as_str();
            let unit = asked.unit.as_str();
            let selectors = parts(expression).selectors;
            let ends = |end: &str| selectors.iter().any(|selector| selector.name.ends_with(end));
            let is_share = expression.contains(" / (") && !ends("_sum") && !ends("_seconds_count");
            let fits = if expression.contains("time() ") || expression.contains("- time()") {
                unit == "s"
            } else if expression.contains("histogram_quantile(") {
                (unit == "s") == ends("_seconds_bucket")
            } else if ends("_bytes") {
                unit == "bytes"
            } else if is_share {
                ["percentunit", "s"].contains(&unit)
            } else if expression.contains("increase(") || expression.contains("changes(") {
                unit == "short"
            } else if ends("_total") && !ends("_cpu_seconds_total") && expression.contains("rate(") {
                ["reqps", "ops", "cps"].contains(&unit)
            } else {
                ["none", "short", "s", "ops", "percentunit"].contains(&unit)
            };
            assert!(fits, "{}: {unit}: {expression}", asked.place);
        }
    }
}

#[test]
fn quantiles_use_histograms_and_rates_use_counters() {
    for (place, expression) in expressions() {
        for (at, function) in ["rate(", "increase("].iter().flat_map(|f| expression.match_indices(f)) {
            let name: String = expression[at + function.len()..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            let metric = metric_of(&name).unwrap_or_else(|| panic!("{place}: {function}{name}"));
            assert_ne!(metric.kind, MetricKind::Gauge, "{place}: {function}{name}");
        }
        let quantiles = expression.matches("histogram_quantile(").count();
        assert_eq!(
            quantiles,
            expression.matches("_bucket").count() - usize::from(expression.starts_with("sum by (le) (increase(")),
            "{place}"
        );
    }
}

#[test]
fn expression_parser_finds_selectors_and_labels() {
    let found = parts(
        "topk(10, sum by (route, le) (rate(a_total{x=~\"b|c\", y!=\"d\"}[5m])) / on (job) (b > 2 * 1e3)) or vector(0)",
    );
    let matchers = vec![["x", "=~", "b|c"].map(str::to_owned), ["y", "!=", "d"].map(str::to_owned)];
    let selectors = vec![
        Selector { name: "a_total".to_owned(), matchers },
        Selector { name: "b".to_owned(), matchers: Vec::new() },
    ];
    let grouped = ["route", "le", "job"].map(str::to_owned).to_vec();
    assert_eq!(found, Parts { selectors, grouped, made: Vec::new() });
}
