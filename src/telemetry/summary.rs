//! The metrics as JSON: counters, gauges and samples by name and labels. Converted from the text page, so that both
//! formats have the same source.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

#[derive(Default)]
struct MetricSample {
    count: f64,
    sum: f64,
}

/// Converts a metrics page in the Prometheus text format to the lists `Gauges`, `Counters` and `Samples`.
pub(super) fn summarize(text: &str) -> Map<String, Value> {
    let mut kinds = BTreeMap::new();
    let mut gauges = Vec::new();
    let mut counters = Vec::new();
    let mut samples: BTreeMap<(&str, SampleLabels), MetricSample> = BTreeMap::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            kinds.extend(kind.split_once(' '));
            continue;
        }
        let Some((name, labels, value)) = parse_line(line) else { continue };
        match kinds.get(name) {
            Some(&"counter") => counters.push(json!({ "Name": name, "Count": json_number(value), "Labels": labels })),
            Some(&"gauge") => gauges.push(json!({ "Name": name, "Value": json_number(value), "Labels": labels })),
            _ => {
                if let Some(name) = name.strip_suffix("_count") {
                    samples.entry((name, labels)).or_default().count = value;
                } else if let Some(name) = name.strip_suffix("_sum") {
                    samples.entry((name, labels)).or_default().sum = value;
                }
            }
        }
    }
    let sample = |((name, labels), MetricSample { count, sum }): ((&str, SampleLabels), MetricSample)| {
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        json!({ "Name": name, "Count": json_number(count), "Sum": json_number(sum), "Mean": json_number(mean), "Labels": labels })
    };
    let samples: Vec<Value> = samples.into_iter().map(sample).collect();
    let parts = [("Gauges", gauges), ("Counters", counters), ("Samples", samples), ("Points", Vec::new())];
    parts.into_iter().map(|(name, list)| (name.to_owned(), Value::Array(list))).collect()
}

type SampleLabels = BTreeMap<String, String>;

/// Parses name, labels and value of a line; `None` for comments and blank lines.
fn parse_line(line: &str) -> Option<(&str, SampleLabels, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    match head.split_once('{') {
        None => Some((head, SampleLabels::new(), value)),
        Some((name, labels)) => Some((name, parse_labels(labels.strip_suffix('}')?), value)),
    }
}

/// Parses `name="value",…`; in values `\`, `"` and line feeds are escaped.
fn parse_labels(text: &str) -> SampleLabels {
    let mut labels = SampleLabels::new();
    let mut rest = text;
    while let Some((name, after_name)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after_name.char_indices();
        let end = loop {
            match chars.next() {
                None => return labels,
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => return labels,
                },
                Some((_, other)) => value.push(other),
            }
        };
        labels.insert(name.to_owned(), value);
        rest = after_name[end + 1..].trim_start_matches(',');
    }
    labels
}

/// Renders whole numbers as integers, and values that JSON cannot express as null.
fn json_number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9.0e15 { json!(value as i64) } else { json!(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_text_is_parsed_into_counters_gauges_and_samples() {
        let text = "# HELP a_total help\n# TYPE a_total counter\na_total{route=\"x\\\"y\\\\\",status=\"200\"} 3\n\
            # TYPE b gauge\nb 1.5\n\n# TYPE c_seconds histogram\nc_seconds_bucket{p=\"1\",le=\"+Inf\"} 4\n\
            c_seconds_sum{p=\"1\"} 2\nc_seconds_count{p=\"1\"} 4\nno value\n";
        let expected = json!({
            "Counters": [{ "Name": "a_total", "Count": 3, "Labels": { "route": "x\"y\\", "status": "200" } }],
            "Gauges": [{ "Name": "b", "Value": 1.5, "Labels": {} }],
            "Samples": [{ "Name": "c_seconds", "Count": 4, "Sum": 2, "Mean": 0.5, "Labels": { "p": "1" } }],
            "Points": [],
        });
        assert_eq!(Value::Object(summarize(text)), expected);
    }

    #[test]
    fn summary_skips_malformed_lines() {
        for text in ["a{b=\"c 1", "a{b=\"c\\", "{", "a{b=\"c\"} x", "# TYPE", "=\"\"", "a} 1"] {
            assert_eq!(summarize(text)["Counters"], json!([]), "{text}");
        }
    }
}
