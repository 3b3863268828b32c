//! The member `policy_identifiers`: certificate policies with optional qualifiers.
//!
//! Requests contain OIDs, or JSON text of `{"oid", "cps", "notice"}` objects. Responses contain one text per policy:
//! the OID, or the JSON text of an object. A client can write back the role that it read.

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::fields::{self, Fields};
use crate::pki::mount::role::{CertificatePolicies, POLICY_LIST_LIMITS, PolicyInformation};

const POLICIES_FIELD: &str = "policy_identifiers";
/// Maximum number of JSON values in a list of policies.
const MAX_POLICY_VALUES: usize = 4 * POLICY_LIST_LIMITS.entries + 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyObject {
    oid: String,
    cps: Option<String>,
    notice: Option<String>,
}

pub(super) fn read(fields: &Fields) -> Result<Option<CertificatePolicies>> {
    let Some(value) = fields.value(POLICIES_FIELD) else { return Ok(None) };
    from_value(fields, value).and_then(CertificatePolicies::new).map(Some)
}

fn from_value(fields: &Fields, value: &Value) -> Result<Vec<PolicyInformation>> {
    match value {
        Value::String(text) if is_json(text) => from_item(text),
        Value::String(_) => {
            let items = fields.list_within(POLICIES_FIELD, POLICY_LIST_LIMITS)?.unwrap_or_default();
            items.iter().map(|item| from_oid(item)).collect()
        }
        Value::Array(items) if items.len() <= POLICY_LIST_LIMITS.entries => {
            let mut policies = Vec::new();
            for item in items {
                let Value::String(text) = item else {
                    return Err(field_error("list entries must be strings: OIDs, or JSON text of objects"));
                };
                policies.extend(from_item(text)?);
            }
            Ok(policies)
        }
        Value::Array(_) => Err(field_error(&format!("at most {} entries are allowed", POLICY_LIST_LIMITS.entries))),
        _ => Err(field_error("must be a list of strings, or JSON text")),
    }
}

/// Parses a list item: an OID, or the JSON text of an object or of a list of objects and OIDs.
fn from_item(text: &str) -> Result<Vec<PolicyInformation>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    if !is_json(text) {
        return Ok(vec![from_oid(text)?]);
    }
    let objects = match fields::parse_embedded_json(text, MAX_POLICY_VALUES) {
        Some(Value::Array(items)) => items,
        Some(object @ Value::Object(_)) => vec![object],
        _ => return Err(field_error(&format!("not valid JSON, or more than {MAX_POLICY_VALUES} values"))),
    };
    objects.into_iter().map(from_json).collect()
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['[', '{'])
}

fn from_json(item: Value) -> Result<PolicyInformation> {
    if let Value::String(oid) = &item {
        return from_oid(oid);
    }
    let object: PolicyObject = serde_json::from_value(item)
        .map_err(|_| field_error("objects may have only the text members oid, cps and notice"))?;
    PolicyInformation::new(&object.oid, object.cps, object.notice)
}

fn from_oid(oid: &str) -> Result<PolicyInformation> {
    PolicyInformation::new(oid, None, None)
}

fn field_error(problem: &str) -> Error {
    Error::invalid(format!("{POLICIES_FIELD}: {problem}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use proptest::prelude::*;

    fn write(value: Value) -> Result<Value> {
        let mut fields = Fields::default();
        fields.set(POLICIES_FIELD, value);
        read(&fields).map(|policies| json!(policies.unwrap()))
    }

    const QUALIFIED: &str = r#"{"oid":"1.3.6.1.4.1.7.9","cps":"https://x/cps","notice":"héllo"}"#;

    #[test]
    fn policy_identifiers_are_read_from_oids_json_text_and_lists() {
        let plain = ["1.3.6.1.4.1.7.8"];
        let mixed = ["1.3.6.1.4.1.7.8", QUALIFIED];
        let mixed_text = format!("[\"1.3.6.1.4.1.7.8\",{QUALIFIED}]");
        for (value, shown) in [
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
            assert_eq!(write(value.clone()).unwrap(), json!(shown), "{value}");
        }
    }

    #[test]
    fn policy_identifiers_of_other_forms_are_refused() {
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
        fn rendered_policy_identifiers_write_back_unchanged(
            oids in proptest::collection::vec((0u8..3, 0u8..40, any::<u32>()), 0..4),
            cps in proptest::option::of("urn:[a-z]{1,10}"),
        ) {
            let items: Vec<Value> = oids
                .iter()
                .map(|(a, b, c)| json!(json!({"oid": format!("{a}.{b}.{c}"), "cps": cps}).to_string()))
                .collect();
            let shown = write(json!(items)).unwrap();
            prop_assert_eq!(write(shown.clone()).unwrap(), shown);
        }

        #[test]
        fn policy_identifiers_of_any_text_do_not_panic(text in "[\\[{]?\\PC{0,40}") {
            let _ = write(json!(text));
        }
    }
}
