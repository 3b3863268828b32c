//! What is known of the signatures between the issuers of a mount.
//!
//! A signature is checked once: what came of it stands in the record of an issuer, so that neither a start nor another
//! node's change checks it again. It stays true: the certificate behind an id never changes, and no id is used twice. A
//! record that lacks some, because a version wrote it that knows nothing of them, costs their checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::x509::certificate::Certificate;

/// What is known of the signatures of an issuer, by the ids of those whose names fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Signatures {
    /// Whether that issuer's key made this one's; under its own id whether this one's own did.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by: BTreeMap<String, bool>,
    /// Whether this one's key made that issuer's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub of: BTreeMap<String, bool>,
}

impl Signatures {
    /// Whether nothing is known.
    pub fn are_unknown(&self) -> bool {
        self.by.is_empty() && self.of.is_empty()
    }
}

/// Whether the key of an issuer of this name made the signature of a certificate.
pub fn certifies(parent: &Certificate, child: &Certificate) -> bool {
    child.issuer() == parent.subject() && child.is_signed_by(parent.key())
}
