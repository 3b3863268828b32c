//! The parameter rules of a path: which body fields must, may and must not be sent.
//!
//! Fields are decoded leniently by the engines (`"true"`, `1` and `true` are one boolean; a text may be
//! a list), and policies do not know the kind of a field. So the two directions compare differently. A
//! *denied* value matches under every reading that some engine could make of the field, and without
//! regard to case. An *allowed* value matches only when the whole field does; where the field may be
//! read as a list, every item must match too, or `evil.test,a.example.com` would pass `*.example.com`.
//! An explicit null counts as absent, except in a PATCH, where it removes something.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::Operation;
use super::rules::{ParameterLists, Rule};
use crate::clock::parse_duration;
use crate::fields::{Fields, bool_word};

/// The parameter rules of one path, over all policies that name it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterRules {
    allowed: ParameterLists,
    denied: ParameterLists,
    required: BTreeSet<String>,
}

const ANY: &str = "*";

impl ParameterRules {
    /// The lists of one rule.
    pub(super) fn of(rule: &Rule) -> Self {
        Self { allowed: rule.allowed.clone(), denied: rule.denied.clone(), required: rule.required.clone() }
    }

    /// Adds the lists of others: keys and values are united, and an empty list (any value) absorbs.
    pub(super) fn unite(&mut self, other: &Self) {
        unite(&mut self.allowed, &other.allowed);
        unite(&mut self.denied, &other.denied);
        self.required.extend(other.required.iter().cloned());
    }

    fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty() && self.required.is_empty()
    }

    /// Whether the body keeps to the rules. Lists and deletes have no parameters.
    pub(super) fn permit(&self, operation: Operation, fields: &Fields) -> bool {
        if self.is_empty() || matches!(operation, Operation::List | Operation::Delete) {
            return true;
        }
        let sent: Vec<(&str, Cow<'_, str>, &Value)> = fields
            .iter()
            .filter(|(_, value)| operation == Operation::Patch || !value.is_null())
            .map(|(name, value)| (name, lower(name), value))
            .collect();
        if !self.required.iter().all(|name| sent.iter().any(|(_, n, _)| n == name)) {
            return false;
        }
        sent.is_empty() || (self.none_denied(fields, &sent) && self.all_allowed(&sent))
    }

    fn none_denied(&self, fields: &Fields, sent: &[(&str, Cow<'_, str>, &Value)]) -> bool {
        !self.denied.contains_key(ANY)
            && sent.iter().all(|(name, lowered, value)| match self.denied.get(&**lowered) {
                None => true,
                Some(rules) => !rules.is_empty() && !rules.iter().any(|rule| could_mean(fields, name, value, rule)),
            })
    }

    fn all_allowed(&self, sent: &[(&str, Cow<'_, str>, &Value)]) -> bool {
        let others = self.allowed.is_empty() || self.allowed.contains_key(ANY);
        sent.iter().all(|(_, lowered, value)| match self.allowed.get(&**lowered).filter(|_| lowered != ANY) {
            None => others,
            Some(rules) => rules.is_empty() || is_one_of(value, rules),
        })
    }
}

fn unite(into: &mut ParameterLists, from: &ParameterLists) {
    for (name, values) in from {
        match into.get_mut(name) {
            None => drop(into.insert(name.clone(), values.clone())),
            Some(known) if known.is_empty() || values.is_empty() => known.clear(),
            Some(known) => known.extend(values.iter().filter(|v| !known.contains(v)).cloned().collect::<Vec<_>>()),
        }
    }
}

fn lower(name: &str) -> Cow<'_, str> {
    match name.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(name.to_lowercase()),
    }
}

/// Whether some reading of the field equals the rule's value.
fn could_mean(fields: &Fields, name: &str, value: &Value, rule: &Value) -> bool {
    if value == rule {
        return true;
    }
    match rule {
        Value::Bool(wanted) => fields.bool(name).is_ok_and(|sent| sent == Some(*wanted)),
        Value::Number(number) => text_could_mean(fields, name, &number.to_string()),
        Value::String(text) => text_could_mean(fields, name, text),
        Value::Array(_) => {
            let mut wanted = Fields::default();
            wanted.set(name, rule.clone());
            let list = |f: &Fields| f.list(name).ok().flatten();
            list(&wanted).is_some() && list(&wanted) == list(fields)
        }
        Value::Object(_) => {
            let mut wanted = Fields::default();
            wanted.set(name, rule.clone());
            let map = |f: &Fields| f.map(name).ok().flatten();
            map(&wanted).is_some() && map(&wanted) == map(fields)
        }
        Value::Null => false,
    }
}

fn text_could_mean(fields: &Fields, name: &str, rule: &str) -> bool {
    let wanted = rule.to_lowercase();
    let whole = fields.text(name).ok().flatten();
    let items = fields.list(name).ok().flatten().unwrap_or_default();
    if whole.iter().chain(&items).any(|text| glob(&wanted, &text.trim().to_lowercase())) {
        return true;
    }
    let as_bool = bool_word(rule).is_some_and(|b| fields.bool(name).is_ok_and(|sent| sent == Some(b)));
    let as_int = rule.trim().parse::<i64>().is_ok_and(|n| fields.int(name).is_ok_and(|sent| sent == Some(n)));
    // An empty text reads as no time at all, which is not what a rule "" is about.
    let as_time = || parse_duration(rule).is_some_and(|d| fields.duration(name).is_ok_and(|sent| sent == Some(d)));
    as_bool || as_int || (!rule.trim().is_empty() && as_time())
}

/// Whether the field is one of the allowed values.
fn is_one_of(value: &Value, rules: &[Value]) -> bool {
    let mut one = Fields::default();
    one.set("v", value.clone());
    let whole = rules.iter().any(|rule| match rule {
        Value::Bool(wanted) => one.bool("v").is_ok_and(|sent| sent == Some(*wanted)),
        Value::Number(number) => {
            number.as_i64().is_some_and(|n| one.int("v").is_ok_and(|sent| sent == Some(n))) || rule == value
        }
        other => other == value,
    });
    whole
        || match value {
            Value::Array(items) => !items.is_empty() && items.iter().all(|item| is_text_of(item, rules)),
            scalar => is_text_of(scalar, rules),
        }
}

/// Whether a scalar matches a text of the rules: as a whole, and every item when it reads as a list.
fn is_text_of(value: &Value, rules: &[Value]) -> bool {
    let mut one = Fields::default();
    one.set("v", value.clone());
    let (Ok(Some(whole)), Ok(Some(items))) = (one.text("v"), one.list("v")) else { return false };
    let texts = || rules.iter().filter_map(Value::as_str);
    texts().any(|rule| rule == whole)
        || (texts().any(|rule| glob(rule, &whole)) && items.iter().all(|item| texts().any(|rule| glob(rule, item))))
}

/// Equal, or matched by a pattern with `*` at its beginning, its end, or both.
fn glob(pattern: &str, text: &str) -> bool {
    let (head, tail) = (pattern.starts_with('*'), pattern.ends_with('*'));
    match (head, tail) {
        _ if pattern == ANY => true,
        (true, true) => text.contains(&pattern[1..pattern.len() - 1]),
        (true, false) => text.ends_with(&pattern[1..]),
        (false, true) => text.starts_with(&pattern[..pattern.len() - 1]),
        (false, false) => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(policy: &str) -> ParameterRules {
        let text = format!("path \"p\" {{ {policy} }}");
        ParameterRules::of(&super::super::Policy::parse(&text).unwrap().rules[0])
    }

    fn permits(rules: &ParameterRules, body: Value) -> bool {
        rules.permit(Operation::Update, &Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn p7_required_and_allowed_parameters() {
        let required = rules("required_parameters = [\"common_name\"]");
        assert!(!permits(&required, json!({})));
        assert!(!permits(&required, json!({"ttl": "1h", "common_name": null})));
        assert!(permits(&required, json!({"common_name": "a"})));
        let ttl = rules("allowed_parameters = { \"ttl\" = [\"1h\", \"2h\"] }");
        assert!(!permits(&ttl, json!({"ttl": "3h"})));
        assert!(permits(&ttl, json!({"ttl": "1h"})));
        assert!(!permits(&ttl, json!({"ttl": "1h", "other": 1})));
        assert!(permits(&ttl, json!({})));
        let others = rules("allowed_parameters = { \"ttl\" = [\"1h\"], \"*\" = [] }");
        assert!(permits(&others, json!({"other": 1, "ttl": "1h"})));
        assert!(!permits(&others, json!({"other": 1, "ttl": "9h"})));
    }

    #[test]
    fn p8_a_denied_value_is_denied_in_every_spelling() {
        let denied =
            rules("denied_parameters = { \"use_csr_values\" = [true], \"ttl\" = [\"1h\"], \"bits\" = [1024] }");
        for body in [json!(true), json!("true"), json!(1), json!("1"), json!("T")] {
            assert!(!permits(&denied, json!({"use_csr_values": body})));
        }
        assert!(permits(&denied, json!({"use_csr_values": false})));
        for body in [json!("1h"), json!("60m"), json!(3600), json!("3600s"), json!("1H")] {
            assert!(!permits(&denied, json!({"ttl": body})));
        }
        for body in [json!(1024), json!("1024"), json!(1024.0), json!(" 1024 ")] {
            assert!(!permits(&denied, json!({"bits": body})));
        }
    }

    #[test]
    fn a_denied_value_is_found_inside_lists() {
        let denied = rules("denied_parameters = { \"alt_names\" = [\"*.example.com\"] }");
        for body in [
            json!("a.example.com"),
            json!("b.test,A.Example.Com , c.test"),
            json!(["b.test", "a.example.com"]),
            json!("[\"a.example.com\",\"b.test\"]"),
        ] {
            assert!(!permits(&denied, json!({"alt_names": body})));
        }
        assert!(permits(&denied, json!({"alt_names": "example.com"})));
        let pair = rules("denied_parameters = { \"m\" = [{ \"k\" = \"v\" }], \"l\" = [[\"a\", \"b\"]] }");
        assert!(!permits(&pair, json!({"m": "k=v"})));
        assert!(!permits(&pair, json!({"l": "a, b"})));
        assert!(permits(&pair, json!({"m": {"k": "w"}, "l": ["a"]})));
    }

    #[test]
    fn an_allowed_glob_holds_for_every_item() {
        let allowed = rules("allowed_parameters = { \"alt_names\" = [\"*.example.com\"] }");
        for body in [json!("a.example.com"), json!("a.example.com,b.example.com"), json!(["a.example.com"])] {
            assert!(permits(&allowed, json!({"alt_names": body})));
        }
        for body in [json!("evil.test,b.example.com"), json!(["evil.test,b.example.com"]), json!([]), json!("")] {
            assert!(!permits(&allowed, json!({"alt_names": body})));
        }
    }

    #[test]
    fn an_allowed_value_keeps_its_kind() {
        let allowed = rules("allowed_parameters = { \"b\" = [true], \"n\" = [2048], \"s\" = [\"true\"] }");
        for body in [json!({"b": "true"}), json!({"b": 1}), json!({"n": "2048"}), json!({"n": 2048.0})] {
            assert!(permits(&allowed, body));
        }
        assert!(permits(&allowed, json!({"s": true})));
        assert!(!permits(&allowed, json!({"s": 1})));
    }

    #[test]
    fn p9_the_case_of_a_name_is_no_way_around() {
        let denied = rules("denied_parameters = { \"common_name\" = [] }");
        assert!(!permits(&denied, json!({"Common_Name": "a"})));
        assert!(!permits(&rules("denied_parameters = { \"COMMON_NAME\" = [] }"), json!({"common_name": "a"})));
    }

    #[test]
    fn a_star_denies_every_parameter_and_null_removes_only_in_a_patch() {
        let none = rules("denied_parameters = { \"*\" = [] }");
        assert!(permits(&none, json!({})));
        assert!(permits(&none, json!({"a": null})));
        assert!(!permits(&none, json!({"a": 1})));
        let body = Fields::parse(b"{\"a\":null}").unwrap();
        assert!(!none.permit(Operation::Patch, &body));
    }
}
