//! Members of a managed key of type `cloudckms`.

use serde_json::Value;

use super::write_body::ManagedKeyWriteBody;
use crate::error::Result;
use crate::keys::{CloudCkmsChange, CloudCkmsConfig};

pub(super) const FIELDS: &[&str] =
    &["credentials", "crypto_key", "crypto_key_version", "key_ring", "project", "region", "algorithm"];

pub(super) const SECRET_FIELDS: &[&str] = &[];

/// Maximum length of a text in bytes.
const MAX_FIELD_BYTES: usize = 2048;

/// Merges a write into the stored configuration.
pub(super) fn read(sent: &ManagedKeyWriteBody, stored: Option<&CloudCkmsConfig>) -> Result<CloudCkmsConfig> {
    let text = |name| sent.fields().text_within(name, MAX_FIELD_BYTES);
    let change = CloudCkmsChange {
        credentials: text("credentials")?,
        crypto_key: text("crypto_key")?,
        crypto_key_version: text("crypto_key_version")?,
        key_ring: text("key_ring")?,
        project: text("project")?,
        region: text("region")?,
        algorithm: text("algorithm")?,
    };
    CloudCkmsConfig::changed(stored, change)
}

pub(super) fn to_json(config: &CloudCkmsConfig) -> Vec<(&'static str, Value)> {
    config.shown().into_iter().map(|(name, text)| (name, Value::String(text))).collect()
}
