//! `policy_identifiers`: certificate policies with optional qualifiers, as texts.
//!
//! Written as dotted OIDs, or as JSON text of `{"oid", "cps", "notice"}` objects; kept as one text per
//! policy: the bare OID, or the JSON text of one object. What is read back can be written again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::fields::{self, Cap, Fields};
use crate::pki::oid::is_dotted_oid;

const FIELD: &str = "policy_identifiers";
/// Longest explicitText (RFC 5280 4.2.1.4).
const MAX_NOTICE: usize = 200;
/// The most policies, and the longest text of one as it is kept.
const CAP: Cap = Cap::new(64, 2_048);
/// The most values in the JSON text of that many.
const OBJECTS: usize = 4 * CAP.entries + 1;

/// One certificate policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyInformation {
    /// The policy's dotted OID.
    pub oid: String,
    /// CPS pointer: an ASCII URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cps: Option<String>,
    /// explicitText of a user notice, at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// Reads the member into canonical entries: `None` when it is absent.
pub(super) fn read(fields: &Fields) -> Result<Option<Vec<String>>> {
    let Some(value) = fields.value(FIELD) else { return Ok(None) };
    let mut policies: Vec<PolicyInformation> = Vec::new();
    for policy in from_value(fields, value)? {
        match policies.iter().find(|known| known.oid == policy.oid) {
            None => policies.push(policy),
            Some(known) if *known == policy => {}
            // RFC 5280 4.2.1.4: a policy OID must not appear more than once.
            Some(_) => return Err(wrong("one OID is given twice with different qualifiers")),
        }
    }
    let entries = policies.iter().map(canonical).collect::<Result<Vec<_>>>()?;
    if entries.iter().any(|entry| entry.len() > CAP.bytes) {
        return Err(wrong(&format!("an entry is longer than {} bytes", CAP.bytes)));
    }
    Ok(Some(entries))
}

/// Reads one canonical entry.
pub(super) fn parse_entry(entry: &str) -> Result<PolicyInformation> {
    match from_item(entry)?.as_slice() {
        [policy] => Ok(policy.clone()),
        _ => Err(wrong("an entry must hold one policy")),
    }
}

fn from_value(fields: &Fields, value: &Value) -> Result<Vec<PolicyInformation>> {
    let policies = match value {
        Value::String(text) if is_json(text) => from_item(text)?,
        Value::String(_) => {
            let items = fields.list_within(FIELD, CAP)?.unwrap_or_default();
            items.iter().map(|item| plain(item)).collect::<Result<_>>()?
        }
        Value::Array(items) if items.len() <= CAP.entries => {
            let mut policies = Vec::new();
            for item in items {
                let Value::String(text) = item else {
                    return Err(wrong("list entries must be strings: OIDs, or JSON text of objects"));
                };
                policies.extend(from_item(text)?);
            }
            policies
        }
        Value::Array(_) => return Err(too_many()),
        _ => return Err(wrong("must be a list of strings, or JSON text")),
    };
    if policies.len() > CAP.entries { Err(too_many()) } else { Ok(policies) }
}

fn too_many() -> Error {
    wrong(&format!("at most {} entries are taken", CAP.entries))
}

/// One list item: an OID, or JSON text of one object or of a list of objects and OIDs.
fn from_item(text: &str) -> Result<Vec<PolicyInformation>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    if !is_json(text) {
        return Ok(vec![plain(text)?]);
    }
    let objects = match fields::json_in(text, OBJECTS) {
        Some(Value::Array(items)) => items,
        Some(object @ Value::Object(_)) => vec![object],
        _ => return Err(wrong("not valid JSON, or too much of it")),
    };
    objects.into_iter().map(from_json).collect()
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['[', '{'])
}

fn from_json(item: Value) -> Result<PolicyInformation> {
    if let Value::String(oid) = &item {
        return plain(oid);
    }
    let policy: PolicyInformation =
        serde_json::from_value(item).map_err(|_| wrong("objects have the texts oid, cps and notice, and no others"))?;
    let given = |text: Option<String>| text.filter(|t| !t.is_empty());
    let policy = PolicyInformation { cps: given(policy.cps), notice: given(policy.notice), ..plain(&policy.oid)? };
    let texts = || policy.cps.iter().chain(&policy.notice);
    if texts().any(|text| text.chars().any(char::is_control)) {
        return Err(wrong("cps and notice must not hold control characters"));
    }
    if policy.cps.as_ref().is_some_and(|cps| !cps.is_ascii()) {
        return Err(wrong("cps must be ASCII"));
    }
    if policy.notice.as_ref().is_some_and(|notice| notice.chars().count() > MAX_NOTICE) {
        return Err(wrong("notice is longer than 200 characters"));
    }
    Ok(policy)
}

fn plain(oid: &str) -> Result<PolicyInformation> {
    let oid = oid.trim();
    if !is_dotted_oid(oid) {
        return Err(wrong("every entry must be a dotted OID, or JSON text of objects with one"));
    }
    Ok(PolicyInformation { oid: oid.to_owned(), ..PolicyInformation::default() })
}

fn canonical(policy: &PolicyInformation) -> Result<String> {
    if policy.cps.is_none() && policy.notice.is_none() {
        return Ok(policy.oid.clone());
    }
    serde_json::to_string(policy).map_err(Error::internal)
}

fn wrong(problem: &str) -> Error {
    Error::invalid(format!("{FIELD}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn write(value: Value) -> Result<Vec<String>> {
        let mut fields = Fields::default();
        fields.set(FIELD, value);
        read(&fields).map(Option::unwrap)
    }

    const QUALIFIED: &str = r#"{"oid":"1.3.6.1.4.1.7.9","cps":"https://x/cps","notice":"héllo"}"#;

    #[test]
    fn oids_json_text_of_objects_and_lists_of_such_texts_are_taken() {
        let plain = ["1.3.6.1.4.1.7.8"];
        let mixed = ["1.3.6.1.4.1.7.8", QUALIFIED];
        let mixed_text = format!("[\"1.3.6.1.4.1.7.8\",{QUALIFIED}]");
        for (value, stored) in [
            (json!("1.3.6.1.4.1.7.8"), &plain[..]),
            (json!(["1.3.6.1.4.1.7.8"]), &plain),
            (json!("[\"1.3.6.1.4.1.7.8\"]"), &plain),
            (json!(r#"[{"oid":"1.3.6.1.4.1.7.8","cps":""}]"#), &plain),
            (json!("1.3.6.1.4.1.7.8, 1.3.6.1.4.1.7.8"), &plain),
            (json!(format!("[{QUALIFIED}]")), &mixed[1..]),
            (json!([format!("[{QUALIFIED}]")]), &mixed[1..]),
            (json!(mixed_text), &mixed),
            (json!(mixed), &mixed),
            (json!(""), &[]),
            (json!([]), &[]),
        ] {
            assert_eq!(write(value.clone()).unwrap(), stored, "{value}");
        }
    }

    #[test]
    fn qualifiers_are_read_back_as_written() {
        let policy = parse_entry(QUALIFIED).unwrap();
        assert_eq!(policy.cps.as_deref(), Some("https://x/cps"));
        assert_eq!(policy.notice.as_deref(), Some("héllo"));
        assert_eq!(parse_entry("1.2.3").unwrap(), PolicyInformation { oid: "1.2.3".into(), ..Default::default() });
    }

    #[test]
    fn other_forms_are_refused() {
        for value in [
            json!("not-oid"),
            json!([{"oid": "1.2.3"}]),
            json!({"oid": "1.2.3"}),
            json!(5),
            json!("[{]"),
            json!("[5]"),
            json!(r#"[{"cps":"x"}]"#),
            json!(r#"[{"oid":"1.2.3","cpss":"x"}]"#),
            json!(r#"[{"oid":"1.2.3","cps":"ü"}]"#),
            json!(r#"[{"oid":"1.2.3","notice":"a\u0000"}]"#),
            json!(format!("[\"1.3.6.1.4.1.7.9\",{QUALIFIED}]")),
        ] {
            let error = write(value.clone()).unwrap_err();
            assert!(error.text().starts_with("policy_identifiers: "), "{value}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_stored_writes_back_to_itself(
            oids in proptest::collection::vec((0u8..3, 0u8..40, any::<u32>()), 0..4),
            cps in proptest::option::of("[!-~]{1,10}"),
        ) {
            let items: Vec<Value> = oids
                .iter()
                .map(|(a, b, c)| json!(json!({"oid": format!("{a}.{b}.{c}"), "cps": cps}).to_string()))
                .collect();
            let stored = write(json!(items)).unwrap();
            prop_assert_eq!(write(json!(stored.clone())).unwrap(), stored);
        }

        #[test]
        fn never_panics(text in "[\\[{]?\\PC{0,40}") {
            let _ = (write(json!(text.clone())), parse_entry(&text));
        }
    }
}
