//! Renders the metrics page in OpenMetrics 1.0, from the page in the Prometheus text format.
//!
//! The exporter supports only the latter. The differences: counter families have no `_total`, units are declared,
//! bounds are canonical floats, there are no blank lines, buckets have exemplars, and `# EOF` ends the page.

use super::catalogue::{CATALOGUE, HTTP_SECONDS, Metric, MetricKind};
use super::exemplars::ExemplarSnapshot;

/// OpenMetrics units that metric names of this server end in.
const OPENMETRICS_UNITS: [&str; 2] = ["seconds", "bytes"];

pub(super) fn render(text: &str, exemplars: &ExemplarSnapshot) -> String {
    let mut page = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ").and_then(parse_descriptor) {
            Some((keyword, name, rest)) => write_descriptor(&mut page, keyword, name, rest),
            None => write_sample(&mut page, line, exemplars),
        }
        page.push('\n');
    }
    page.push_str("# EOF\n");
    page
}

/// Splits `HELP name text` or `TYPE name kind`, a descriptor line without its `# `, into keyword, name and rest.
fn parse_descriptor(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    Some((keyword, name, rest))
}

fn find_metric(name: &str) -> Option<&'static Metric> {
    CATALOGUE.iter().find(|metric| metric.name == name)
}

fn metric_family(name: &str) -> &str {
    let is_counter = find_metric(name).is_some_and(|metric| metric.kind == MetricKind::Counter);
    name.strip_suffix("_total").filter(|_| is_counter).unwrap_or(name)
}

fn write_descriptor(page: &mut String, keyword: &str, name: &str, rest: &str) {
    let family = metric_family(name);
    page.extend(["# ", keyword, " ", family, " "]);
    match keyword {
        "HELP" => page.push_str(&rest.replace('"', "\\\"")),
        _ => {
            page.push_str(rest);
            let unit = OPENMETRICS_UNITS
                .iter()
                .find(|unit| family.strip_suffix(**unit).is_some_and(|name| name.ends_with('_')));
            unit.into_iter().for_each(|unit| page.extend(["\n# UNIT ", family, " ", unit]));
        }
    }
}

/// Copies the line of a sample. A histogram bucket gets a canonical bound and its exemplar.
fn write_sample(page: &mut String, line: &str, exemplars: &ExemplarSnapshot) {
    let bucket = line.split_once("le=\"").and_then(|(head, rest)| Some((head, rest.split_once('"')?)));
    let Some((head, (bound, value))) = bucket else { return page.push_str(line) };
    let bound = bound.parse::<f64>().unwrap_or(f64::INFINITY);
    let written = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
    page.extend([head, "le=\"", &written, "\"", value]);
    let series = head.strip_prefix(HTTP_SECONDS).and_then(|rest| rest.strip_prefix("_bucket{"));
    if let Some(series) = series {
        exemplars.append(series.trim_end_matches(','), bound, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_has_families_units_canonical_bounds_and_an_end() {
        let text = "# HELP process_cpu_seconds_total Processor \"time\".\n# TYPE process_cpu_seconds_total counter\n\
            process_cpu_seconds_total 1.5\n\n# HELP signet_store_up Up.\n# TYPE signet_store_up gauge\n\
            signet_store_up 1\n\n# HELP signet_commit_seconds Time.\n# TYPE signet_commit_seconds histogram\n\
            signet_commit_seconds_bucket{le=\"0.0001\"} 1\nsignet_commit_seconds_bucket{le=\"1\"} 2\n\
            signet_commit_seconds_bucket{le=\"+Inf\"} 2\nsignet_commit_seconds_sum 0.5\n\
            signet_commit_seconds_count 2\n\n";
        let expected = "# HELP process_cpu_seconds Processor \\\"time\\\".\n# TYPE process_cpu_seconds counter\n\
            # UNIT process_cpu_seconds seconds\nprocess_cpu_seconds_total 1.5\n# HELP signet_store_up Up.\n\
            # TYPE signet_store_up gauge\nsignet_store_up 1\n# HELP signet_commit_seconds Time.\n\
            # TYPE signet_commit_seconds histogram\n# UNIT signet_commit_seconds seconds\n\
            signet_commit_seconds_bucket{le=\"0.0001\"} 1\nsignet_commit_seconds_bucket{le=\"1.0\"} 2\n\
            signet_commit_seconds_bucket{le=\"+Inf\"} 2\nsignet_commit_seconds_sum 0.5\n\
            signet_commit_seconds_count 2\n# EOF\n";
        assert_eq!(render(text, &ExemplarSnapshot::take()), expected);
    }

    #[test]
    fn histogram_bounds_have_the_openmetrics_form() {
        // The canonical form of a number outside this range has an exponent.
        for metric in CATALOGUE {
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert!(bounds.iter().all(|bound| (1e-4..1e6).contains(bound)), "{}", metric.name);
            }
        }
    }
}
