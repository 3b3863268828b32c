//! The data keys that the store seals with: which one (`sys/key-status`), the next one (`sys/rotate`), and when it is
//! made by itself (`sys/rotate/config`).

use serde_json::json;

use super::super::answer::{Answer, Body};
use super::super::route::Call;
use super::to_the_end;
use crate::clock::rfc3339;
use crate::error::Result;
use crate::keyring::RotationChange;

pub(super) const FIELDS: &[&str] = &["enabled", "max_operations", "interval"];

/// `GET sys/key-status`. `encryptions` are those of all nodes, as far as they have told; `older_values` are the stored
/// values that are sealed with earlier keys, null before they were counted.
pub(super) async fn key_status(call: Call) -> Result<Answer> {
    let key = call.state.keyring.status().await?;
    Ok(Body::DataAndTop(json!({
        "term": key.term,
        "install_time": rfc3339(key.made_at),
        "encryptions": key.sealed,
        "older_values": key.older,
    }))
    .into())
}

/// `POST sys/rotate`.
pub(super) async fn rotate(call: Call) -> Result<Answer> {
    to_the_end(async move { call.state.keyring.rotate().await.map(|_| Answer::empty()) }).await
}

/// `GET sys/rotate/config`: `interval` in seconds, 0 is never.
pub(super) async fn settings(call: Call) -> Result<Answer> {
    let rotation = call.state.keyring.rotation().await?;
    Ok(Answer::data(json!({
        "enabled": rotation.enabled,
        "max_operations": rotation.max_operations,
        "interval": rotation.interval.as_secs(),
    })))
}

/// `POST sys/rotate/config`.
pub(super) async fn configure(call: Call) -> Result<Answer> {
    let fields = &call.fields;
    let change = RotationChange {
        enabled: fields.bool("enabled")?,
        max_operations: fields.int("max_operations")?,
        interval: fields.duration("interval")?,
    };
    to_the_end(async move { call.state.keyring.rotation_write(change).await.map(|()| Answer::empty()) }).await
}
