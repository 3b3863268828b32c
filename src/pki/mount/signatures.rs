//! What is known of the signatures between the issuers of a mount.
//!
//! A signature is checked once: what came of it stands in the record of an issuer, so that neither a start nor another
//! node's change checks it again. It stays true for as long as the checks are the same ([`CHECKS`]): the certificate behind
//! an id never changes, and no id is used twice. A record that lacks some, because a version wrote it that knows nothing of
//! them or checks otherwise, costs their checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::x509::certificate::Certificate;

/// What is known of the signatures of an issuer, by the ids of those whose names fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Signatures {
    /// Whether that issuer's key made this one's; under its own id whether this one's own did.
    pub by: BTreeMap<String, bool>,
    /// Whether this one's key made that issuer's.
    pub of: BTreeMap<String, bool>,
}

/// The algorithms and keys that the checks know. Whoever changes that counts on: what was found by others is unknown.
const CHECKS: u32 = 1;

/// As it is stored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    checks: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    of: BTreeMap<String, bool>,
}

impl From<Stored> for Signatures {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored { checks: CHECKS, by, of } => Self { by, of },
            _ => Self::default(),
        }
    }
}

impl From<Signatures> for Stored {
    fn from(Signatures { by, of }: Signatures) -> Self {
        Self { checks: CHECKS, by, of }
    }
}

impl Signatures {
    /// Whether nothing is known.
    pub fn are_unknown(&self) -> bool {
        self.by.is_empty() && self.of.is_empty()
    }
}

/// Whether the key of an issuer of this name made the signature of a certificate.
pub fn certifies(parent: &Certificate, child: &Certificate) -> bool {
    child.issuer().matches(parent.subject()) && child.is_signed_by(parent.key())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_other_checks_found_is_unknown() {
        let known = Signatures { by: [("a".to_owned(), false)].into(), of: BTreeMap::new() };
        let stored = serde_json::to_value(&known).unwrap();
        assert_eq!(stored, json!({ "checks": 1, "by": { "a": false } }));
        assert_eq!(serde_json::from_value::<Signatures>(stored).unwrap(), known);
        for other in [json!({ "by": { "a": false } }), json!({ "checks": 2, "by": { "a": true } }), json!({})] {
            assert!(serde_json::from_value::<Signatures>(other).unwrap().are_unknown());
        }
    }
}
