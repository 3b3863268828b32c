//! Certificate policies of a role, with optional qualifiers (RFC 5280 4.2.1.4).
//!
//! Each policy is stored as a text: the dotted OID, or a JSON object with `oid`, `cps` and `notice`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fields::ListLimit;
use crate::pki::values::oid::is_dotted_oid;
use crate::x509::profile;
use crate::x509::reader::DerError;

/// Maximum number of policies of a role, and maximum length of one policy in stored form.
pub const POLICY_LIST_LIMITS: ListLimit = ListLimit::new(64, 2_048);
/// Maximum length of explicitText (RFC 5280 4.2.1.4), characters.
const MAX_NOTICE_CHARS: usize = 200;

/// One certificate policy with its optional qualifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyInformation {
    oid: String,
    cps: Option<String>,
    notice: Option<String>,
}

impl PolicyInformation {
    /// Creates a policy from its dotted OID; empty qualifiers are dropped.
    ///
    /// # Errors
    /// `Invalid` naming `policy_identifiers` and the rule.
    pub fn new(oid: &str, cps: Option<String>, notice: Option<String>) -> Result<Self> {
        let oid = oid.trim();
        if !is_dotted_oid(oid) {
            return Err(policy_error("every entry must be a dotted OID, or the JSON text of objects with an oid"));
        }
        let non_empty = |text: Option<String>| text.filter(|t| !t.is_empty());
        let policy = Self { oid: oid.to_owned(), cps: non_empty(cps), notice: non_empty(notice) };
        if policy.cps.iter().chain(&policy.notice).any(|text| text.chars().any(char::is_control)) {
            return Err(policy_error("cps and notice must not contain control characters"));
        }
        if policy.cps.as_ref().is_some_and(|cps| !cps.is_ascii()) {
            return Err(policy_error("cps must be ASCII"));
        }
        if policy.notice.as_ref().is_some_and(|notice| notice.chars().count() > MAX_NOTICE_CHARS) {
            return Err(policy_error("notice is longer than 200 characters"));
        }
        Ok(policy)
    }

    /// Returns the policy's dotted OID.
    pub fn oid(&self) -> &str {
        &self.oid
    }

    /// Returns the CPS pointer: an ASCII URI.
    pub fn cps(&self) -> Option<&str> {
        self.cps.as_deref()
    }

    /// Returns the explicitText of the user notice, at most 200 characters.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPolicyInformation {
    oid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cps: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl TryFrom<String> for PolicyInformation {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        if !text.starts_with('{') {
            return Self::new(&text, None, None);
        }
        let stored: StoredPolicyInformation = serde_json::from_str(&text)
            .map_err(|_| policy_error("a stored entry is not a JSON object with oid, cps and notice"))?;
        Self::new(&stored.oid, stored.cps, stored.notice)
    }
}

impl From<PolicyInformation> for String {
    fn from(policy: PolicyInformation) -> Self {
        let PolicyInformation { oid, cps, notice } = policy;
        if cps.is_none() && notice.is_none() {
            return oid;
        }
        serde_json::to_string(&StoredPolicyInformation { oid, cps, notice })
            .expect("a struct of texts always serialises")
    }
}

/// The certificate policies of a role; each OID occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CertificatePolicies(Vec<PolicyInformation>);

impl CertificatePolicies {
    /// Validates policies, keeps their order and drops duplicates. Policies read from storage skip this check.
    ///
    /// # Errors
    /// `Invalid` naming `policy_identifiers`: for an OID that occurs with different qualifiers, a `cps` that is not a
    /// URI, or more or longer policies than [`POLICY_LIST_LIMITS`].
    pub fn new(policies: Vec<PolicyInformation>) -> Result<Self> {
        let mut distinct: Vec<PolicyInformation> = Vec::new();
        if policies.len() > POLICY_LIST_LIMITS.entries {
            return Err(policy_error(&format!("at most {} entries are allowed", POLICY_LIST_LIMITS.entries)));
        }
        for policy in policies {
            if let Some(Err(DerError(rule))) = policy.cps().map(|cps| profile::validate_location_uri(cps.as_bytes())) {
                return Err(policy_error(&format!("cps of {}: {rule}", policy.oid)));
            }
            match distinct.iter().find(|known| known.oid == policy.oid) {
                None => distinct.push(policy),
                Some(known) if *known == policy => {}
                // RFC 5280 4.2.1.4: a policy OID must not appear more than once.
                Some(_) => {
                    let oid = &policy.oid;
                    return Err(policy_error(&format!(
                        "{oid} is given twice with different qualifiers; list each OID once"
                    )));
                }
            }
        }
        let stored: Vec<String> = distinct.iter().cloned().map(String::from).collect();
        POLICY_LIST_LIMITS.check(POLICY_IDENTIFIERS_FIELD, &stored)?;
        Ok(Self(distinct))
    }

    /// Iterates over the policies in their stored order.
    pub fn iter(&self) -> impl Iterator<Item = &PolicyInformation> {
        self.0.iter()
    }
}

const POLICY_IDENTIFIERS_FIELD: &str = "policy_identifiers";

fn policy_error(problem: &str) -> Error {
    Error::invalid(format!("{POLICY_IDENTIFIERS_FIELD}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const QUALIFIED: &str = r#"{"oid":"1.3.6.1.4.1.7.9","cps":"https://x/cps","notice":"héllo"}"#;

    #[test]
    fn policies_are_stored_as_texts() {
        let stored = json!(["1.2.3", QUALIFIED]);
        let policies: CertificatePolicies = serde_json::from_value(stored.clone()).unwrap();
        let [plain, qualified] = policies.iter().collect::<Vec<_>>()[..] else { panic!("two") };
        assert_eq!((plain.oid(), plain.cps(), plain.notice()), ("1.2.3", None, None));
        assert_eq!((qualified.cps(), qualified.notice()), (Some("https://x/cps"), Some("héllo")));
        assert_eq!(serde_json::to_value(policies).unwrap(), stored);
        for bad in [json!(["not-oid"]), json!(["{}"]), json!(["{"]), json!([""])] {
            assert!(serde_json::from_value::<CertificatePolicies>(bad).is_err());
        }
    }

    #[test]
    fn policy_oids_are_unique_and_their_number_is_limited() {
        let policy = |n: usize, cps: &str| PolicyInformation::new(&format!("1.2.{n}"), Some(cps.into()), None).unwrap();
        let distinct = CertificatePolicies::new(vec![policy(1, "urn:a"), policy(2, ""), policy(1, "urn:a")]).unwrap();
        assert_eq!(distinct.iter().map(PolicyInformation::oid).collect::<Vec<_>>(), ["1.2.1", "1.2.2"]);
        let refusal = |policies: Vec<_>| CertificatePolicies::new(policies).unwrap_err().text().to_owned();
        assert!(refusal(vec![policy(1, "urn:a"), policy(1, "urn:b")]).contains("given twice"));
        assert!(refusal(vec![policy(1, "a")]).contains("cps of 1.2.1: a URI is not absolute"));
        // Policies stored by an older version still load.
        serde_json::from_value::<CertificatePolicies>(json!([r#"{"oid":"1.2.3","cps":"a"}"#])).unwrap();
        assert!(refusal((0..65).map(|n| policy(n, "")).collect()).contains("at most 64 entries"));
        assert!(
            refusal(vec![policy(1, &format!("urn:{}", "x".repeat(2_048)))])
                .contains("an entry is longer than 2048 bytes")
        );
    }
}
