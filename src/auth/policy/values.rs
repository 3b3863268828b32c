//! Values of a denied parameter: all ways in which an engine could read a field ("readings").
//!
//! Texts are compared as a whole and item by item, including texts in objects and in embedded JSON, in their canonical
//! forms (`canonical_forms`). Numbers are compared by value, times as points in time, revocation reasons as words,
//! policies after base64 decoding, members of maps also as `key=value`. A reading that the engine does not use does no
//! harm: it denies only values that are invalid or equivalent.
//!
//! Comparing patterns with items takes time proportional to the product of their numbers; [`MatchBudget`] limits it.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::Policy;
use super::forms::canonical_forms;
use crate::clock::{Time, parse_duration, parse_rfc3339};
use crate::fields::{Fields, ListLimit, MAX_VALUES, parse_bool_word};

/// The remaining number of comparisons with patterns for one field. It is enough for some milliseconds, far more than
/// real policies and requests need. A request that exceeds it is denied.
pub(super) struct MatchBudget(Cell<usize>);

impl MatchBudget {
    pub(super) fn new() -> Self {
        Self(Cell::new(1 << 20))
    }

    /// Subtracts the cost of comparing this text with one pattern; `false` if the budget is exhausted.
    pub(super) fn spend(&self, text: &str) -> bool {
        self.spend_comparisons(1 + text.len() / 64)
    }

    pub(super) fn spend_comparisons(&self, comparisons: usize) -> bool {
        let left = self.0.get().checked_sub(comparisons);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// All ways in which an engine could read a field.
pub(super) struct FieldReadings<'a> {
    value: &'a Value,
    texts: HashSet<String>,
    budget: MatchBudget,
    flag: Option<bool>,
    number: Option<f64>,
    duration: Option<Duration>,
    time: Option<Time>,
    list: Option<Vec<String>>,
    map: Option<BTreeMap<String, String>>,
    /// `true` if the field contains more texts than any engine accepts.
    is_too_long: bool,
}

impl<'a> FieldReadings<'a> {
    pub(super) fn of(fields: &Fields, name: &str, value: &'a Value) -> Self {
        let whole = fields.text(name).ok().flatten();
        let list = fields.list_within(name, ListLimit::BODY_MAXIMUM).ok().flatten();
        let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        let reason = whole.as_ref().filter(|_| is(&["reason"])).and_then(|text| canonical_reason(text));
        let policy = whole.as_ref().filter(|_| is(&["policy", "rules"])).map(|text| Policy::text_of(text));
        let mut inside = NestedTexts::default();
        let is_too_long = !inside.add(value, true);
        // Each distinct text is converted to its canonical forms only once.
        let texts = whole.iter().chain(list.iter().flatten()).cloned().chain(policy).chain(inside.texts);
        let texts: HashSet<String> = texts.collect();
        let texts = texts.iter().flat_map(|text| canonical_forms(text));
        Self {
            value,
            texts: texts.chain(reason.map(str::to_owned)).collect(),
            budget: MatchBudget::new(),
            time: whole.as_ref().and_then(|text| parse_time(text)),
            flag: fields.bool(name).ok().flatten(),
            number: whole.as_deref().and_then(parse_number),
            duration: fields.duration(name).ok().flatten(),
            list,
            map: fields.map_within(name, ListLimit::BODY_MAXIMUM).ok().flatten(),
            is_too_long,
        }
    }

    /// `true` if any reading of the field equals one of the denied values, or matches a denied value that is a pattern.
    pub(super) fn match_any_rule(&self, values: &[Value]) -> bool {
        self.is_too_long || values.iter().any(|value| self.matches_rule(value))
    }

    fn matches_rule(&self, rule: &Value) -> bool {
        if self.value == rule {
            return true;
        }
        match rule {
            Value::Bool(wanted) => self.flag == Some(*wanted),
            Value::Number(number) => self.matches_text_rule(&number.to_string()),
            Value::String(text) => self.matches_text_rule(text),
            Value::Array(_) => {
                self.list.is_some()
                    && self.list
                        == single_field(rule).list_within(SINGLE_FIELD_NAME, ListLimit::BODY_MAXIMUM).ok().flatten()
            }
            Value::Object(_) => {
                self.map.is_some()
                    && self.map
                        == single_field(rule).map_within(SINGLE_FIELD_NAME, ListLimit::BODY_MAXIMUM).ok().flatten()
            }
            Value::Null => false,
        }
    }

    fn matches_text_rule(&self, rule: &str) -> bool {
        if canonical_forms(rule).iter().any(|wanted| self.contains_match(wanted)) {
            return true;
        }
        let as_flag = self.flag.is_some() && self.flag == parse_bool_word(rule);
        let as_number = self.number.is_some() && self.number == parse_number(rule);
        // An empty text reads as a duration of zero, but the denied value `""` does not mean zero.
        let as_duration =
            || self.duration.is_some() && !rule.trim().is_empty() && self.duration == parse_duration(rule);
        let as_time = || self.time.is_some() && self.time == parse_time(rule);
        as_flag || as_number || as_duration() || as_time()
    }

    /// `true` if a text of the field equals `wanted` or, if `wanted` is a pattern, matches it.
    fn contains_match(&self, wanted: &str) -> bool {
        if !is_pattern(wanted) {
            return self.texts.contains(wanted);
        }
        self.texts.iter().any(|text| !self.budget.spend(text) || matches_glob(wanted, text))
    }
}

/// Collects the texts and numbers in a value at any depth, and members of objects as `key=value`. Checks the limits
/// before it adds a text, because the name of a member is copied for each item of its list.
#[derive(Default)]
struct NestedTexts {
    texts: Vec<String>,
    bytes: usize,
}

impl NestedTexts {
    /// Maximum number of collected texts. Each value in a request body may be collected twice, by itself and as a
    /// member; the whole field adds one more text.
    const MAX_TEXTS: usize = 2 * MAX_VALUES + 1;
    /// Maximum total size of the collected texts in bytes: twice the maximum size of a request body.
    const MAX_BYTES: usize = 8 << 20;

    /// Adds all texts in `value`. If `is_sent` is `true`, texts that contain JSON are parsed too, but not JSON within
    /// that JSON. Returns `false` if a limit is exceeded.
    fn add(&mut self, value: &Value, is_sent: bool) -> bool {
        let has_capacity = match value {
            Value::Object(members) => members.iter().all(|(name, member)| {
                let values = member.as_array().map_or(std::slice::from_ref(member), Vec::as_slice);
                values.iter().all(|value| self.push(&[name, "="], value)) && self.add(member, is_sent)
            }),
            Value::Array(items) => items.iter().all(|item| self.add(item, is_sent)),
            Value::String(text) if is_sent => self.add_json(text),
            _ => true,
        };
        has_capacity && self.push(&[], value)
    }

    /// Adds the texts in embedded JSON. Returns `false`, without parsing, if the text has more values than a request
    /// body may have.
    fn add_json(&mut self, text: &str) -> bool {
        let text = text.trim();
        if !text.starts_with(['{', '[']) {
            return true;
        }
        if text.bytes().filter(|octet| *octet == b',').count() > MAX_VALUES {
            return false;
        }
        serde_json::from_str(text).ok().is_none_or(|value: Value| self.add(&value, false))
    }

    /// Adds a scalar as text, after the prefix `begin`. Returns `false` if a limit is exceeded.
    fn push(&mut self, begin: &[&str], value: &Value) -> bool {
        let Some(text) = scalar_text(value) else { return true };
        self.bytes += begin.iter().map(|part| part.len()).sum::<usize>() + text.len();
        let has_capacity = self.texts.len() < Self::MAX_TEXTS && self.bytes <= Self::MAX_BYTES;
        if has_capacity {
            self.texts.push(begin.concat() + &text);
        }
        has_capacity
    }
}

fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses a finite number, so that numbers are compared by value.
fn parse_number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

const SINGLE_FIELD_NAME: &str = "v";

fn single_field(value: &Value) -> Fields {
    let mut fields = Fields::default();
    fields.set(SINGLE_FIELD_NAME, value.clone());
    fields
}

/// Parses an RFC 3339 time, in any time zone and letter case.
fn parse_time(text: &str) -> Option<Time> {
    parse_rfc3339("", &text.trim().to_ascii_uppercase()).ok()
}

/// Revocation reasons, each with its number (RFC 5280, 5.3.1).
const REVOCATION_REASONS: [(&str, &str); 7] = [
    ("unspecified", "0"),
    ("keycompromise", "1"),
    ("cacompromise", "2"),
    ("affiliationchanged", "3"),
    ("superseded", "4"),
    ("cessationofoperation", "5"),
    ("privilegewithdrawn", "9"),
];

/// Returns the canonical word for a revocation reason that is given as a number, in any letter case, or with `_`.
fn canonical_reason(text: &str) -> Option<&'static str> {
    let word = text.trim().replace('_', "");
    let known = REVOCATION_REASONS.iter().find(|(name, number)| *number == word || name.eq_ignore_ascii_case(&word));
    known.map(|(name, _)| *name)
}

fn is_pattern(text: &str) -> bool {
    text.starts_with('*') || text.ends_with('*')
}

/// `true` if `text` matches a pattern that may begin or end with `*`.
pub(super) fn matches_glob(pattern: &str, text: &str) -> bool {
    let head = pattern.starts_with('*');
    let tail = pattern.ends_with('*');
    match (head, tail) {
        _ if pattern == "*" => true,
        (true, true) => text.contains(&pattern[1..pattern.len() - 1]),
        (true, false) => text.ends_with(&pattern[1..]),
        (false, true) => text.starts_with(&pattern[..pattern.len() - 1]),
        (false, false) => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::policy::lower;
    use proptest::prelude::*;
    use serde_json::json;

    fn denied(rule: &str, value: Value) -> bool {
        FieldReadings::of(&single_field(&value), SINGLE_FIELD_NAME, &value).match_any_rule(&[json!(rule)])
    }

    #[test]
    fn names_are_compared_in_the_form_of_their_kind() {
        for (rule, value) in [
            ("*.evil.com", "A.EVIL.COM."),
            ("*.Evil.Com.", "a.evil.com"),
            ("evil.*", "evil.com."),
            ("*.bücher.example", "a.xn--bcher-kva.example"),
            ("*.xn--bcher-kva.example", "x@a.BÜCHER.example"),
            ("10.0.0.1", "::ffff:10.0.0.1"),
            ("2001:DB8:0::1", "2001:db8::1"),
            ("2001:db8:*", "2001:0db8::5"),
            ("0a:0b", "00-0A-0b"),
            ("0A-0B*", "0a:0b:0c"),
            ("1.2.3;utf8:*", "1.2.3;UTF-8:x"),
            ("0.0.0.0/0", "1.2.3.4/0"),
            ("0.0.0.0/0", "0.0.0.0/00"),
            ("0.0.0.0/0", "::ffff:0.0.0.0/96"),
            ("::/0", "0::1/0"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("serverAuth", "ExtKeyUsageServerAuth"),
            ("*.evil.com", "keyusage.evil.com."),
            ("*.xn--bcher-kva.example", "extkeyusage.bücher.example"),
            ("KeyUsageCertSign", "certsign"),
            ("batch", "default-batch"),
            ("cloudb", "azure"),
            ("0a0b", "0A-0b"),
            ("http://a.test/%c3%bc*", "http://a.test/ü"),
            ("pki", "/pki/"),
        ] {
            assert!(denied(rule, json!(value)), "{rule} {value}");
            assert!(denied(rule, json!(["other", value])), "{rule} {value}");
            assert!(denied(rule, json!(format!("other, {value} ,x"))), "{rule} {value}");
        }
        for (rule, value) in [
            ("evil.com", "evil.com.x"),
            ("evil.*", "evil"),
            ("10.0.0.1", "10.0.0.10"),
            ("evil.com.*", "evil.community"),
        ] {
            assert!(!denied(rule, json!(value)), "{rule} {value}");
        }
    }

    #[test]
    fn times_are_compared_as_moments_and_reasons_as_words() {
        for value in ["2026-12-20t00:00:00z", "2026-12-20T00:00:00.0Z", "2026-12-20T01:00:00+01:00"] {
            assert!(denied("2026-12-20T00:00:00Z", json!(value)), "{value}");
        }
        assert!(!denied("2026-12-20T00:00:00Z", json!("2026-12-20T00:00:01Z")));
        for value in [json!("1"), json!(1), json!("KEY_COMPROMISE"), json!("k_eyCompromise")] {
            let mut fields = Fields::default();
            fields.set("reason", value.clone());
            let readings = FieldReadings::of(&fields, "reason", &value);
            assert!(readings.match_any_rule(&[json!("keyCompromise")]), "{value}");
            assert!(readings.match_any_rule(&[json!("key*")]), "{value}");
            assert!(!readings.match_any_rule(&[json!("superseded")]), "{value}");
            assert!(!denied("keyCompromise", json!("1")), "of a field that is no reason");
        }
    }

    #[test]
    fn numbers_compare_by_value_and_map_members_also_as_text() {
        for (rule, value) in [
            (json!(100), json!("1e2")),
            (json!("100"), json!("100.00")),
            (json!(0.5), json!("0.50")),
            (json!("a=b"), json!({"a": "b"})),
            (json!("a=*"), json!("{\"a\":\"b\"}")),
            (json!({"a": "b"}), json!("a=b")),
            (json!("a=b"), json!({"a": "b", "c": ["d"]})),
            (json!("c=d*"), json!({"a": "b", "c": ["x", "d"]})),
        ] {
            assert!(
                FieldReadings::of(&single_field(&value), SINGLE_FIELD_NAME, &value)
                    .match_any_rule(std::slice::from_ref(&rule)),
                "{rule} {value}"
            );
        }
        assert!(!denied("100", json!("1e3")) && !denied("a=b", json!({"a": "c"})));
    }

    #[test]
    fn nested_values_are_found_at_any_depth_and_in_json_text() {
        let deep = json!([{ "oid": "1.2.3", "more": [{ "cps": ["http://EVIL.test/"], "n": 7 }] }]);
        for value in [deep.clone(), json!(deep.to_string()), json!(deep[0]), json!(format!(" {} ", deep[0]))] {
            for rule in ["1.2.3", "*evil.test/", "7"] {
                assert!(denied(rule, value.clone()), "{rule} {value}");
            }
            assert!(!denied("1.2.4", value));
        }
        // Lists whose items are JSON texts, and lists that contain other values than texts.
        for value in [json!(["{\"oid\":\"1.2.3\"}"]), json!("[\"1.2.3\",{\"oid\":\"1.2.4\"}]"), json!(["a", ["1.2.3"]])]
        {
            assert!(denied("1.2.3", value.clone()), "{value}");
        }
        let long = |n| json!(json!([vec![json!({ "a": "b" }); n]]).to_string());
        assert!(denied("x", long(MAX_VALUES + 1)), "no reader takes it");
        assert!(!denied("x", long(MAX_VALUES)));
    }

    #[test]
    fn long_parameter_name_with_many_values_is_not_expanded() {
        let text = format!("{{\"{}\":[0{}]}}", "n".repeat(900 << 10), ",0".repeat(9_000));
        let value = json!(text);
        let mut inside = NestedTexts::default();
        assert!(!inside.add(&value, true));
        assert!(
            inside.texts.len() < 20 && inside.texts.iter().map(String::len).sum::<usize>() <= NestedTexts::MAX_BYTES
        );
        assert!(denied("x", value));
    }

    #[test]
    fn policy_values_are_parsed_like_endpoint_values() {
        let value = json!("cGF0aCAieCIge30=");
        for name in ["policy", "Rules"] {
            let mut fields = Fields::default();
            fields.set(name, value.clone());
            assert!(FieldReadings::of(&fields, name, &value).match_any_rule(&[json!("path \"x\"*")]));
        }
        assert!(!denied("path*", value));
    }

    #[test]
    fn values_beyond_the_comparison_limit_are_denied() {
        let names: Vec<String> = (0..9_000).map(|n| format!("n{n}.test")).collect();
        let rules: Vec<Value> = (0..1_000).map(|n| json!(format!("*.d{n}.test"))).collect();
        let value = json!(names);
        let fields = single_field(&value);
        assert!(FieldReadings::of(&fields, SINGLE_FIELD_NAME, &value).match_any_rule(&rules));
        assert!(!FieldReadings::of(&fields, SINGLE_FIELD_NAME, &value).match_any_rule(&rules[..100]));
        // Denied values without wildcards are found by a hash lookup, however many there are.
        let rules: Vec<Value> = (0..10_000).map(|n| json!(format!("d{n}.test"))).collect();
        assert!(!FieldReadings::of(&fields, SINGLE_FIELD_NAME, &value).match_any_rule(&rules));
    }

    proptest! {
        #[test]
        fn denied_text_matches_in_any_letter_case(text in "[a-zA-Z0-9:.;@*ü-]{1,20}") {
            prop_assert!(denied(&text, json!(text.to_uppercase())) || lower(&text.to_uppercase()) != lower(&text));
            prop_assert!(denied(&text.to_uppercase(), json!(text)) || lower(&text.to_uppercase()) != lower(&text));
        }
    }
}
