//! Stored results of signature checks between the issuers of a mount.
//!
//! Each signature is checked once. The result is stored in the issuer's record, so that neither a restart nor a change
//! by another node repeats the check. The certificate of an issuer id never changes and ids are never reused, so a
//! result stays valid as long as [`SIGNATURE_CHECKS_VERSION`] stays the same. Results that are missing or from another
//! version are computed again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::x509::certificate::Certificate;

/// Known results of signature checks of an issuer, by the ids of the other issuers whose names match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredSignatures", into = "StoredSignatures")]
pub struct IssuerSignatures {
    /// By id of the other issuer: `true` if that issuer's key signed this issuer's certificate. The entry with the
    /// issuer's own id is `true` for a self-signed certificate.
    pub signed_by: BTreeMap<String, bool>,
    /// By id of the other issuer: `true` if this issuer's key signed that issuer's certificate.
    pub signed: BTreeMap<String, bool>,
}

/// Version of the signature checks. Increase it when the accepted algorithms or keys change: older results are then
/// ignored.
const SIGNATURE_CHECKS_VERSION: u32 = 1;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredSignatures {
    checks: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    of: BTreeMap<String, bool>,
}

impl From<StoredSignatures> for IssuerSignatures {
    fn from(stored: StoredSignatures) -> Self {
        match stored {
            StoredSignatures { checks: SIGNATURE_CHECKS_VERSION, by, of } => Self { signed_by: by, signed: of },
            _ => Self::default(),
        }
    }
}

impl From<IssuerSignatures> for StoredSignatures {
    fn from(IssuerSignatures { signed_by, signed }: IssuerSignatures) -> Self {
        Self { checks: SIGNATURE_CHECKS_VERSION, by: signed_by, of: signed }
    }
}

impl IssuerSignatures {
    /// Returns `true` if no result is known.
    pub fn are_unknown(&self) -> bool {
        self.signed_by.is_empty() && self.signed.is_empty()
    }
}

/// Returns `true` if the key of `parent` signed `child` and the names match.
pub fn certifies(parent: &Certificate, child: &Certificate) -> bool {
    child.issuer().matches(parent.subject()) && child.is_signed_by(parent.key())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_of_another_check_version_are_unknown() {
        let known = IssuerSignatures { signed_by: [("a".to_owned(), false)].into(), signed: BTreeMap::new() };
        let stored = serde_json::to_value(&known).unwrap();
        assert_eq!(stored, json!({ "checks": 1, "by": { "a": false } }));
        assert_eq!(serde_json::from_value::<IssuerSignatures>(stored).unwrap(), known);
        for other in [json!({ "by": { "a": false } }), json!({ "checks": 2, "by": { "a": true } }), json!({})] {
            assert!(serde_json::from_value::<IssuerSignatures>(other).unwrap().are_unknown());
        }
    }
}
