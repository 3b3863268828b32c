//! The data keys that encrypt the store: status (`sys/key-status`), rotation (`sys/rotate`) and automatic rotation
//! (`sys/rotate/config`).

use serde_json::json;

use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::route::Call;
use super::run_detached;
use crate::clock::format_rfc3339;
use crate::error::Result;
use crate::keyring::RotationChange;

pub(super) const FIELDS: &[&str] = &["enabled", "max_operations", "interval"];

/// `GET sys/key-status`. `encryptions` is the total that all nodes have reported. `older_values` is the number of
/// stored values that earlier keys encrypt; it is null until they have been counted.
pub(super) async fn key_status(call: Call) -> Result<HandlerResponse> {
    let key = call.state.keyring.status().await?;
    Ok(ResponseBody::DataAndTop(json!({
        "term": key.term,
        "install_time": format_rfc3339(key.created_at),
        "encryptions": key.sealed,
        "older_values": key.older,
    }))
    .into())
}

pub(super) async fn rotate(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.keyring.rotate().await.map(drop) }).await
}

/// `GET sys/rotate/config`: `interval` is in seconds; 0 disables rotation by time.
pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    let rotation = call.state.keyring.rotation_settings().await?;
    Ok(HandlerResponse::data(json!({
        "enabled": rotation.enabled,
        "max_operations": rotation.max_operations,
        "interval": rotation.interval.as_secs(),
    })))
}

pub(super) async fn write_config(call: Call) -> Result<HandlerResponse> {
    let fields = &call.fields;
    let change = RotationChange {
        enabled: fields.bool("enabled")?,
        max_operations: fields.int("max_operations")?,
        interval: fields.duration("interval")?,
    };
    run_detached(async move { call.state.keyring.write_rotation_settings(change).await }).await
}
