//! The audit devices of a server, and the keys that they hash texts under: one per name, random, stored as a sealed
//! document and never replaced, so that a text has the same hash on every node and after every start.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::{server_document, server_document_write};
use crate::audit::{DeviceSettings, Writer};
use crate::auth::store::AuthStore;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};

/// The document of the keys.
const DOCUMENT: &str = "audit";
const KEY_LEN: usize = 32;

/// Opens devices.
///
/// # Errors
/// `Invalid` when one of them does not open; those of the store.
pub(super) async fn open(
    store: &dyn AuthStore,
    declared: Vec<DeviceSettings>,
    clock: &Clock,
) -> Result<Vec<Arc<Writer>>> {
    if declared.is_empty() {
        return Ok(Vec::new());
    }
    let keys = match keys(store, &declared).await {
        // Another node made some at the same time: those count.
        Err(error) if error.kind() == Kind::Conflict => keys(store, &declared).await?,
        result => result?,
    };
    let open = |settings: DeviceSettings| {
        let sink = settings.open()?;
        let key = BASE64_STANDARD.decode(&keys[&settings.name]).map_err(Error::internal)?;
        Writer::start(settings, &key, sink, clock.clone())
    };
    declared.into_iter().map(open).collect()
}

async fn keys(store: &dyn AuthStore, declared: &[DeviceSettings]) -> Result<BTreeMap<String, String>> {
    let stored = server_document(store, DOCUMENT).await?;
    let mut keys: BTreeMap<String, String> = match &stored {
        Some(document) => document.parse()?,
        None => BTreeMap::new(),
    };
    let before = keys.len();
    for device in declared {
        let new = || BASE64_STANDARD.encode(crate::random::bytes::<KEY_LEN>());
        keys.entry(device.name.clone()).or_insert_with(new);
    }
    if keys.len() > before {
        server_document_write(store, DOCUMENT, stored.as_ref(), &json!(keys)).await?;
    }
    Ok(keys)
}
