//! Members of a managed key of type `cloudakms`.

use serde_json::Value;

use super::write_body::ManagedKeyWriteBody;
use crate::error::Result;
use crate::keys::{CloudAkmsChange, CloudAkmsConfig};

pub(super) const FIELDS: &[&str] =
    &["access_key", "secret_key", "key_type", "key_bits", "curve", "kms_key", "endpoint", "region"];

pub(super) const SECRET_FIELDS: &[&str] = &["access_key", "secret_key"];

/// Maximum length of a text in bytes.
const MAX_FIELD_BYTES: usize = 2048;

/// Merges a write into the stored configuration.
pub(super) fn read(sent: &ManagedKeyWriteBody, stored: Option<&CloudAkmsConfig>) -> Result<CloudAkmsConfig> {
    let text = |name| sent.fields().text_within(name, MAX_FIELD_BYTES);
    let change = CloudAkmsChange {
        access_key: sent.given_secret("access_key"),
        secret_key: sent.given_secret("secret_key"),
        key_type: text("key_type")?,
        key_bits: text("key_bits")?,
        curve: text("curve")?,
        kms_key: text("kms_key")?,
        endpoint: text("endpoint")?,
        region: text("region")?,
    };
    CloudAkmsConfig::changed(stored, change)
}

pub(super) fn to_json(config: &CloudAkmsConfig) -> Vec<(&'static str, Value)> {
    config.shown().into_iter().map(|(name, text)| (name, Value::String(text))).collect()
}
