//! The alerting rules: what each says to whoever it wakes, and that each has cases for promtool.

use std::collections::{BTreeMap, BTreeSet};

use super::boards;

const RULES: &str = include_str!("../../../grafana/alerts.yml");
/// The cases for promtool.
const CASES: [&str; 2] =
    [include_str!("../../../grafana/alerts_test.yml"), include_str!("../../../grafana/alerts_days_test.yml")];

/// One alert: its fields, labels and annotations by name.
type Rule = BTreeMap<&'static str, &'static str>;

/// All alerts. The file has one field a line.
pub(super) fn rules() -> Vec<Rule> {
    let parts = RULES.split("      - alert: ").skip(1);
    let rules: Vec<Rule> = parts
        .map(|part| {
            let (name, fields) = part.split_once('\n').unwrap();
            let fields = fields.lines().filter_map(|line| line.trim().split_once(": "));
            fields.map(|(field, text)| (field, text.trim_matches('"'))).chain([("alert", name)]).collect()
        })
        .collect();
    assert_eq!(rules.len(), RULES.matches("- alert: ").count());
    rules
}

#[test]
fn every_alert_says_what_it_is_what_it_means_what_to_do_in_one_sentence_and_where_to_look() {
    let boards: BTreeSet<String> = boards().into_iter().map(|board| format!("/d/{}", board.name)).collect();
    for rule in rules() {
        let name = rule["alert"];
        assert!(["critical", "warning"].contains(&rule["severity"]), "{name}");
        let [summary, description, action] = ["summary", "description", "action"]
            .map(|field| *rule.get(field).unwrap_or_else(|| panic!("{name}: {field}")));
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{name}: {summary}");
        assert!(description.ends_with('.'), "{name}: {description}");
        assert!(action.ends_with('.') && !action.contains(". "), "{name}: {action}");
        assert!(boards.contains(rule["dashboard"]), "{name}: {}", rule["dashboard"]);
    }
}

#[test]
fn every_alert_has_a_test_where_it_is_raised_and_one_where_it_is_not() {
    // What is expected to be raised names the alert on a line of its own, what is not in braces.
    let lines = || CASES.iter().flat_map(|cases| cases.lines());
    let raised: BTreeSet<&str> = lines().filter_map(|line| line.trim().strip_prefix("alertname: ")).collect();
    for rule in rules() {
        let name = rule["alert"];
        assert!(raised.contains(name), "{name}: no promtool test raises it");
        let not = format!("alertname: {name} }}");
        assert!(CASES.iter().any(|cases| cases.contains(&not)), "{name}: no promtool test is without it");
    }
}
