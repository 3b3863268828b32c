//! Parameter rules of a path: the fields that a request must, may and must not contain.
//!
//! Engines decode fields leniently (`"true"`, `1` and `true` are one boolean; a text may be a list), and policies do
//! not know the type of a field. So a *denied* name matches in any letter case, and a denied value matches if an engine
//! could read the field as that value (`values`). An *allowed* value must match the whole field and, if the field may
//! be a list, every item: otherwise `evil.test,a.example.com` would match `*.example.com`. *Required* and *allowed*
//! consider only names that the endpoint reads. A null counts as absent, except in a PATCH, where it removes a value.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::Operation;
use super::spelling::lower;
use super::values::{FieldReadings, MatchBudget, matches_glob};
use crate::fields::{Fields, ListLimit};

/// The parameters of a request, and the way in which its endpoint reads them.
#[derive(Clone, Copy)]
pub struct RequestParameters<'a> {
    /// The fields in the body or query of the request.
    pub fields: &'a Fields,
    /// Name of a field that the request contains but that was not decoded. It matches any denied value and no specific
    /// allowed value.
    pub undecoded: Option<&'a str>,
    /// Names of the fields that the endpoint reads, in lower case; `None` if the endpoint passes on all fields.
    pub read_fields: Option<&'a [&'a str]>,
    /// Names of parameters whose values are part of the path.
    pub path_fields: &'a [&'a str],
    /// Pairs of field names that the endpoint treats as one field; a rule for one name applies to both.
    pub synonyms: &'a [(&'a str, &'a str)],
    /// TTL with which the client requests wrapping of the response; `None` without wrapping.
    pub wrap_ttl: Option<Duration>,
}

impl<'a> RequestParameters<'a> {
    /// Creates the parameters of a request to an endpoint that passes on all fields.
    pub fn verbatim(fields: &'a Fields) -> Self {
        Self { fields, undecoded: None, read_fields: None, path_fields: &[], synonyms: &[], wrap_ttl: None }
    }

    fn endpoint_reads(&self, name: &str) -> bool {
        self.read_fields.is_none_or(|names| names.contains(&name)) || self.path_fields.contains(&name)
    }

    /// Returns the names whose rules apply to the field with the lower-case name `lowered`: the name itself and its
    /// synonyms.
    fn names(&self, lowered: &'a str) -> impl Iterator<Item = &'a str> {
        let other = move |pair: &(&'a str, &'a str)| match *pair {
            (one, other) if one == lowered => Some(other),
            (other, one) if one == lowered => Some(other),
            _ => None,
        };
        std::iter::once(lowered).chain(self.synonyms.iter().filter_map(other))
    }
}

struct SentField<'a> {
    name: &'a str,
    lowered: Cow<'a, str>,
    /// The value of the field; `None` if it was not decoded.
    value: Option<&'a Value>,
}

/// Values that a rule lists for parameters, by lower-cased parameter name. An empty list means any value.
pub(crate) type ParameterLists = BTreeMap<String, Vec<Value>>;

/// The parameter rules of one path, merged from all policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterRules {
    /// Parameters that a request may contain, with their accepted values; an empty map allows any parameter.
    pub(super) allowed: ParameterLists,
    /// Parameters that a request must not contain, each with its denied values; an empty list denies every value.
    pub(super) denied: ParameterLists,
    /// Names of parameters that a request must contain, in lower case.
    pub(super) required: BTreeSet<String>,
}

const ANY_PARAMETER: &str = "*";

impl ParameterRules {
    /// Adds the rules of `other`. If either list of values for a parameter is empty (any value), the merged list is
    /// empty.
    pub(super) fn merge(&mut self, other: &Self) {
        merge_lists(&mut self.allowed, &other.allowed);
        merge_lists(&mut self.denied, &other.denied);
        self.required.extend(other.required.iter().cloned());
    }

    /// Renders the non-empty rules under the names that they have in policy texts.
    pub(super) fn render_rules(&self) -> impl Iterator<Item = (String, Value)> {
        let lists = [("allowed_parameters", &self.allowed), ("denied_parameters", &self.denied)];
        let lists = lists.into_iter().filter(|(_, lists)| !lists.is_empty()).map(|(name, lists)| (name, json!(lists)));
        let required = (!self.required.is_empty()).then(|| ("required_parameters", json!(self.required)));
        lists.chain(required).map(|(name, terms)| (name.to_owned(), terms))
    }

    pub(super) fn approximate_bytes(&self) -> usize {
        let texts = |values: &Vec<Value>| values.iter().map(estimate_bytes).sum::<usize>();
        let lists = self.allowed.iter().chain(&self.denied).map(|(name, values)| 64 + name.len() + texts(values));
        lists.chain(self.required.iter().map(|name| 48 + name.len())).sum()
    }

    /// `true` if there are no rules on parameters.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty() && self.required.is_empty()
    }

    pub(super) fn allow(&self, operation: Operation, parameters: &RequestParameters<'_>) -> bool {
        self.violation(operation, parameters).is_none()
    }

    /// Returns the first rule that a request violates, as text for the client. A list request violates no rule. In a
    /// delete request, fields that its endpoint does not read are ignored, and no parameter is required.
    pub fn violation(&self, operation: Operation, parameters: &RequestParameters<'_>) -> Option<String> {
        if self.is_empty() || operation == Operation::List {
            return None;
        }
        let deletes = operation == Operation::Delete;
        let given = parameters.fields.iter().filter(|(_, value)| operation == Operation::Patch || !value.is_null());
        let given = given.filter(|(name, _)| !deletes || parameters.endpoint_reads(name));
        let given = given.map(|(name, value)| (name, Some(value))).chain(parameters.undecoded.map(|name| (name, None)));
        let sent: Vec<SentField<'_>> =
            given.map(|(name, value)| SentField { name, lowered: lower(name), value }).collect();
        if let Some(name) = self.required.iter().find(|name| !deletes && !endpoint_receives(name, parameters, &sent)) {
            return Some(format!("required_parameters: {name} is missing"));
        }
        sent.iter().find_map(|field| {
            if self.denies(parameters, field) {
                Some(format!("denied_parameters: {} or its value is denied", field.name))
            } else if self.allows(parameters, field) {
                None
            } else {
                Some(format!("allowed_parameters: {} or its value is not allowed", field.name))
            }
        })
    }

    fn denies(&self, parameters: &RequestParameters<'_>, sent: &SentField<'_>) -> bool {
        let mut readings = None;
        self.denied.contains_key(ANY_PARAMETER)
            || parameters.names(&sent.lowered).filter_map(|name| self.denied.get(name)).any(|values| {
                let Some(value) = sent.value.filter(|_| !values.is_empty()) else { return true };
                let read = || FieldReadings::of(parameters.fields, sent.name, value);
                readings.get_or_insert_with(read).match_any_rule(values)
            })
    }

    fn allows(&self, parameters: &RequestParameters<'_>, sent: &SentField<'_>) -> bool {
        let names = parameters.names(&sent.lowered).filter(|name| *name != ANY_PARAMETER);
        let mut lists = names.filter_map(|name| self.allowed.get(name)).peekable();
        let listed = lists.peek().is_some() && parameters.endpoint_reads(sent.name);
        (listed || self.allowed.is_empty() || self.allowed.contains_key(ANY_PARAMETER))
            && lists.all(|values| values.is_empty() || sent.value.is_some_and(|value| is_allowed_value(value, values)))
    }
}

/// `true` if the endpoint receives a value for the parameter `name`, from a field, its synonym or the path.
fn endpoint_receives(name: &str, parameters: &RequestParameters<'_>, sent: &[SentField<'_>]) -> bool {
    let meets = |field: &SentField<'_>| {
        parameters.endpoint_reads(field.name) && parameters.names(&field.lowered).any(|known| known == name)
    };
    parameters.path_fields.contains(&name) || sent.iter().any(meets)
}

fn estimate_bytes(value: &Value) -> usize {
    /// Estimated bytes of a JSON value in memory, without its content.
    const VALUE_OVERHEAD_BYTES: usize = 48;
    VALUE_OVERHEAD_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(estimate_bytes).sum(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| VALUE_OVERHEAD_BYTES + name.len() + estimate_bytes(value)).sum()
            }
            _ => 0,
        }
}

fn merge_lists(into: &mut ParameterLists, from: &ParameterLists) {
    for (name, values) in from {
        match into.get_mut(name) {
            None => drop(into.insert(name.clone(), values.clone())),
            Some(known) if known.is_empty() || values.is_empty() => known.clear(),
            Some(known) => {
                let mut there: HashSet<String> = known.iter().map(Value::to_string).collect();
                known.extend(values.iter().filter(|value| there.insert(value.to_string())).cloned());
            }
        }
    }
}

/// `true` if the value of a field matches one of the allowed values `rules`.
fn is_allowed_value(value: &Value, rules: &[Value]) -> bool {
    let mut one = Fields::default();
    one.set("v", value.clone());
    let whole = rules.iter().any(|rule| match rule {
        Value::Bool(wanted) => one.bool("v").is_ok_and(|sent| sent == Some(*wanted)),
        Value::Number(number) => {
            number.as_i64().is_some_and(|n| one.int("v").is_ok_and(|sent| sent == Some(n))) || rule == value
        }
        other => other == value,
    });
    let budget = MatchBudget::new();
    whole
        || match value {
            Value::Array(items) => !items.is_empty() && items.iter().all(|item| is_allowed_text(item, rules, &budget)),
            scalar => is_allowed_text(scalar, rules, &budget),
        }
}

/// `true` if a scalar equals an allowed value. Also `true` if its whole text matches an allowed pattern and, when the
/// text is read as a list, every item matches one too. `false` if the comparison budget is exhausted.
fn is_allowed_text(value: &Value, rules: &[Value], budget: &MatchBudget) -> bool {
    let mut one = Fields::default();
    one.set("v", value.clone());
    let (Ok(Some(whole)), Ok(Some(items))) = (one.text("v"), one.list_within("v", ListLimit::BODY_MAXIMUM)) else {
        return false;
    };
    let texts = || rules.iter().filter_map(Value::as_str);
    let matched = |text: &str| texts().any(|rule| budget.spend(text) && matches_glob(rule, text));
    // Most of these comparisons fail at the first character, so eight of them are counted as one.
    (budget.spend_comparisons(rules.len() / 8) && texts().any(|rule| rule == whole))
        || (matched(&whole) && items.iter().all(|item| matched(item)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(policy: &str) -> ParameterRules {
        let text = format!("path \"p\" {{ {policy} }}");
        super::super::Policy::parse(&text).unwrap().rules[0].terms.parameters.clone()
    }

    fn permits(rules: &ParameterRules, body: Value) -> bool {
        rules.allow(
            Operation::Update,
            &RequestParameters::verbatim(&Fields::parse(body.to_string().as_bytes()).unwrap()),
        )
    }

    #[test]
    fn required_and_allowed_parameters_are_enforced() {
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
    fn denied_value_is_denied_in_every_spelling() {
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
    fn allowed_glob_must_match_every_item() {
        let allowed = rules("allowed_parameters = { \"alt_names\" = [\"*.example.com\"] }");
        for body in [json!("a.example.com"), json!("a.example.com,b.example.com"), json!(["a.example.com"])] {
            assert!(permits(&allowed, json!({"alt_names": body})));
        }
        for body in [json!("evil.test,b.example.com"), json!(["evil.test,b.example.com"]), json!([]), json!("")] {
            assert!(!permits(&allowed, json!({"alt_names": body})));
        }
    }

    #[test]
    fn allowed_value_matches_only_its_json_type() {
        let allowed = rules("allowed_parameters = { \"b\" = [true], \"n\" = [2048], \"s\" = [\"true\"] }");
        for body in [json!({"b": "true"}), json!({"b": 1}), json!({"n": "2048"}), json!({"n": 2048.0})] {
            assert!(permits(&allowed, body));
        }
        assert!(permits(&allowed, json!({"s": true})));
        assert!(!permits(&allowed, json!({"s": 1})));
    }

    #[test]
    fn denied_parameter_name_matches_in_any_case() {
        let denied = rules("denied_parameters = { \"common_name\" = [] }");
        assert!(!permits(&denied, json!({"Common_Name": "a"})));
        assert!(!permits(&rules("denied_parameters = { \"COMMON_NAME\" = [] }"), json!({"common_name": "a"})));
    }

    #[test]
    fn denied_star_ignores_null_parameters_except_in_a_patch() {
        let none = rules("denied_parameters = { \"*\" = [] }");
        assert!(permits(&none, json!({})));
        assert!(permits(&none, json!({"a": null})));
        assert!(!permits(&none, json!({"a": 1})));
        let body = Fields::parse(b"{\"a\":null}").unwrap();
        assert!(!none.allow(Operation::Patch, &RequestParameters::verbatim(&body)));
    }

    #[test]
    fn parameters_that_the_endpoint_ignores_match_no_rule() {
        let permits = |rules: &ParameterRules, body: Value| {
            let fields = Fields::parse(body.to_string().as_bytes()).unwrap();
            let read = Some(&["ttl", "lease", "name"][..]);
            let synonyms = &[("lease", "ttl")][..];
            rules.allow(
                Operation::Update,
                &RequestParameters {
                    read_fields: read,
                    path_fields: &["name", ""],
                    synonyms,
                    ..RequestParameters::verbatim(&fields)
                },
            )
        };
        let required = rules("required_parameters = [\"TTL\"]");
        for (body, met) in [
            (json!({"ttl": 1}), true),
            (json!({"lease": 1}), true),
            (json!({"TTL": 1}), false),
            (json!({"Lease": 1}), false),
            (json!({}), false),
        ] {
            assert_eq!(permits(&required, body.clone()), met, "{body}");
        }
        assert!(permits(&rules("required_parameters = [\"name\"]"), json!({})));
        assert!(!permits(&rules("required_parameters = [\"bogus\"]"), json!({"bogus": 1})));
        let allowed = rules("allowed_parameters = { \"ttl\" = [1], \"name\" = [], \"bogus\" = [] }");
        for (body, met) in [
            (json!({"lease": 1, "name": "x"}), true),
            (json!({"lease": 2}), false),
            (json!({"TTL": 1}), false),
            (json!({"bogus": 1}), false),
        ] {
            assert_eq!(permits(&allowed, body.clone()), met, "{body}");
        }
        let denied = rules("denied_parameters = { \"lease\" = [1] }");
        for (body, met) in [(json!({"Ttl": 1}), false), (json!({"ttl": 1}), false), (json!({"ttl": 2}), true)] {
            assert_eq!(permits(&denied, body.clone()), met, "{body}");
        }
    }

    #[test]
    fn undecoded_field_counts_as_present_with_any_value() {
        let fields = Fields::default();
        let parameters = RequestParameters {
            undecoded: Some("crl"),
            read_fields: Some(&["crl"]),
            ..RequestParameters::verbatim(&fields)
        };
        for (policy, permits) in [
            ("required_parameters = [\"crl\"]", true),
            ("required_parameters = [\"other\"]", false),
            ("denied_parameters = { \"*\" = [] }", false),
            ("denied_parameters = { \"CRL\" = [] }", false),
            ("denied_parameters = { \"crl\" = [\"x\"] }", false),
            ("denied_parameters = { \"other\" = [] }", true),
            ("allowed_parameters = { \"crl\" = [] }", true),
            ("allowed_parameters = { \"*\" = [] }", true),
            ("allowed_parameters = { \"crl\" = [\"x\"] }", false),
            ("allowed_parameters = { \"other\" = [] }", false),
        ] {
            assert_eq!(rules(policy).allow(Operation::Update, &parameters), permits, "{policy}");
        }
    }

    #[test]
    fn delete_checks_the_parameters_it_reads_and_requires_none() {
        let fields = Fields::parse(b"{\"id\":\"a\",\"bogus\":1}").unwrap();
        for (policy, permits) in [
            ("denied_parameters = { \"id\" = [] }", false),
            ("denied_parameters = { \"id\" = [\"A\"] }", false),
            ("denied_parameters = { \"id\" = [\"b\"], \"bogus\" = [] }", true),
            ("allowed_parameters = { \"id\" = [\"b\"] }", false),
            ("allowed_parameters = { \"id\" = [\"a\"] }", true),
            ("required_parameters = [\"other\"]", true),
        ] {
            let parameters = RequestParameters { read_fields: Some(&["id"]), ..RequestParameters::verbatim(&fields) };
            assert_eq!(rules(policy).allow(Operation::Delete, &parameters), permits, "{policy}");
        }
    }

    #[test]
    fn denied_value_is_found_in_a_list_of_maximum_length() {
        let denied = rules("denied_parameters = { \"f\" = [\"evil.test\"] }");
        let long = |text: &str| format!("{}{text}", "a,".repeat(crate::fields::MAX_VALUES - 1));
        assert!(!permits(&denied, json!({ "f": long("evil.test") })));
        assert!(permits(&denied, json!({ "f": long("good.test") })));
    }
}
