//! Members of a managed key of type `cloudbkeyvault`.

use serde_json::Value;

use super::write_body::ManagedKeyWriteBody;
use crate::error::Result;
use crate::keys::{CloudBkeyvaultChange, CloudBkeyvaultConfig};

pub(super) const FIELDS: &[&str] = &[
    "client_secret",
    "tenant_id",
    "client_id",
    "environment",
    "vault_name",
    "key_name",
    "resource",
    "key_bits",
    "key_type",
];

pub(super) const SECRET_FIELDS: &[&str] = &["client_secret"];

/// Maximum length of a text in bytes.
const MAX_FIELD_BYTES: usize = 2048;

/// Merges a write into the stored configuration.
pub(super) fn read(sent: &ManagedKeyWriteBody, stored: Option<&CloudBkeyvaultConfig>) -> Result<CloudBkeyvaultConfig> {
    let text = |name| sent.fields().text_within(name, MAX_FIELD_BYTES);
    let change = CloudBkeyvaultChange {
        client_secret: sent.given_secret("client_secret"),
        tenant_id: text("tenant_id")?,
        client_id: text("client_id")?,
        environment: text("environment")?,
        vault_name: text("vault_name")?,
        key_name: text("key_name")?,
        resource: text("resource")?,
        key_bits: text("key_bits")?,
        key_type: text("key_type")?,
    };
    CloudBkeyvaultConfig::changed(stored, change)
}

pub(super) fn to_json(config: &CloudBkeyvaultConfig) -> Vec<(&'static str, Value)> {
    config.shown().into_iter().map(|(name, text)| (name, Value::String(text))).collect()
}
