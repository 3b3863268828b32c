//! Members of a managed key of type `cloudakms`.

use serde_json::Value;

use super::sent::Sent;
use crate::error::Result;
use crate::keys::{CloudAkmsChange, CloudAkmsConfig};

pub(super) const FIELDS: &[&str] =
    &["access_key", "secret_key", "key_type", "key_bits", "curve", "kms_key", "endpoint", "region"];

pub(super) const SECRETS: &[&str] = &["access_key", "secret_key"];

/// Maximum length of a text in bytes.
const LONGEST: usize = 2048;

/// Merges a write into the stored configuration.
pub(super) fn read(sent: &Sent, stored: Option<&CloudAkmsConfig>) -> Result<CloudAkmsConfig> {
    let text = |name| sent.fields().text_within(name, LONGEST);
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

pub(super) fn shown(config: &CloudAkmsConfig) -> Vec<(&'static str, Value)> {
    config.shown().into_iter().map(|(name, text)| (name, Value::String(text))).collect()
}
