//! Opens the audit devices with their HMAC keys. Each device name has a random key, which is stored as a sealed
//! document and never replaced, so that a value has the same HMAC on every node and after every restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::{read_server_document, write_server_document};
use crate::audit::{AuditDeviceSettings, AuditWriter};
use crate::auth::store::AuthStore;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};

const AUDIT_DOCUMENT: &str = "audit";
const HMAC_KEY_BYTES: usize = 32;

/// Opens the configured audit devices and starts their writers.
///
/// # Errors
/// `Invalid` when a device cannot be opened; the errors of the store.
pub(super) async fn open_writers(
    store: &dyn AuthStore,
    declared: Vec<AuditDeviceSettings>,
    clock: &Clock,
) -> Result<Vec<Arc<AuditWriter>>> {
    if declared.is_empty() {
        return Ok(Vec::new());
    }
    let keys = match load_or_create_hmac_keys(store, &declared).await {
        // Another node created HMAC keys at the same time; use those.
        Err(error) if error.kind() == Kind::Conflict => load_or_create_hmac_keys(store, &declared).await?,
        result => result?,
    };
    let start_writer = |settings: AuditDeviceSettings| {
        let sink = settings.open()?;
        let key = BASE64_STANDARD.decode(&keys[&settings.name]).map_err(Error::internal)?;
        AuditWriter::start(settings, &key, sink, clock.clone())
    };
    declared.into_iter().map(start_writer).collect()
}

async fn load_or_create_hmac_keys(
    store: &dyn AuthStore,
    declared: &[AuditDeviceSettings],
) -> Result<BTreeMap<String, String>> {
    let stored = read_server_document(store, AUDIT_DOCUMENT).await?;
    let mut keys: BTreeMap<String, String> = match &stored {
        Some(document) => document.parse()?,
        None => BTreeMap::new(),
    };
    let before = keys.len();
    for device in declared {
        let new = || BASE64_STANDARD.encode(crate::random::bytes::<HMAC_KEY_BYTES>());
        keys.entry(device.name.clone()).or_insert_with(new);
    }
    if keys.len() > before {
        write_server_document(store, AUDIT_DOCUMENT, stored.as_ref(), &json!(keys)).await?;
    }
    Ok(keys)
}
