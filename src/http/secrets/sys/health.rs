//! Health, seal status and leader. The routes need no token, and their responses have no envelope.
//!
//! There is no sealed and no standby state: each node that responds is active.

use serde_json::json;

use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::route::Call;
use crate::error::{Error, Result};

/// The version that this program reports in `version`, for clients of the compatible server: they select features by
/// it. `product_version` is the version of this program.
const COMPAT_VERSION: &str = "1.15.0";
/// Name and version of this program.
const PRODUCT_NAME_AND_VERSION: (&str, &str) = ("signet", env!("CARGO_PKG_VERSION"));

/// `GET sys/health`:
/// - 503 while the server stops, the store is unavailable, no audit device works, the clock differs too much from that
///   of a shared store, or the node cannot follow the changes of other nodes;
/// - 501 (or `uninitcode`) until the first root token is created, because the store may be the wrong one, such as an
///   empty directory instead of a volume;
/// - 200 (or `activecode`) otherwise.
///
/// A store that accepts no writes (`writes_fail`), such as one on a full disk, does not change the status. If the node
/// were taken out of service, CRLs, OCSP and reads would fail too, and other nodes use the same store.
pub(super) async fn health(call: Call) -> Result<HandlerResponse> {
    for flag in ["standbyok", "perfstandbyok"] {
        call.fields.bool(flag)?;
    }
    let mut active_status = 200;
    let mut uninitialized_status = 501;
    for name in super::HEALTH_FIELDS.iter().filter(|name| name.ends_with("code")) {
        match (*name, status_code(&call, name)?) {
            ("activecode", Some(code)) => active_status = code,
            ("uninitcode", Some(code)) => uninitialized_status = code,
            _ => {}
        }
    }
    let is_initialized = call.state.store_probe.is_initialized().await;
    let is_store_available = call.state.store_probe.is_available().await;
    let identity = &call.state.identity;
    let body = json!({
        "initialized": is_initialized,
        "sealed": false,
        "standby": false,
        "performance_standby": false,
        "replication_performance_mode": "disabled",
        "replication_dr_mode": "disabled",
        "server_time_utc": call.state.clock.now().unix_timestamp(),
        "version": COMPAT_VERSION,
        "product": PRODUCT_NAME_AND_VERSION.0,
        "product_version": PRODUCT_NAME_AND_VERSION.1,
        "writes_fail": call.state.store_probe.writes_fail(),
        "cluster_name": identity.cluster_name,
        "cluster_id": identity.cluster_id,
    });
    let answer = HandlerResponse::from(ResponseBody::Plain(body));
    let state = &call.state;
    let serves = !state.stopping.has_started() && state.clock.is_synchronized() && !state.audit.is_down();
    if !serves || !is_store_available || !state.nodes.is_fresh().await {
        return Ok(HandlerResponse { headers: vec![("retry-after", "1".to_owned())], ..answer.with_status(503) });
    }
    Ok(match if is_initialized { active_status } else { uninitialized_status } {
        // Clients retry after these statuses, so the response has `Retry-After`.
        code @ (429 | 503) => {
            HandlerResponse { headers: vec![("retry-after", "1".to_owned())], ..answer.with_status(code) }
        }
        code => answer.with_status(code),
    })
}

/// `GET sys/live`: 200 while this worker's event loop runs, even while the store is unavailable or the server stops. If
/// the request fails, a supervisor can restart the server without loss. `sys/health` reports whether the server can
/// handle requests.
pub(super) async fn live(call: Call) -> Result<HandlerResponse> {
    Ok(ResponseBody::Plain(json!({
        "live": true,
        "stopping": call.state.stopping.has_started(),
        "server_time_utc": call.state.clock.now().unix_timestamp(),
        "product": PRODUCT_NAME_AND_VERSION.0,
        "product_version": PRODUCT_NAME_AND_VERSION.1,
    }))
    .into())
}

fn status_code(call: &Call, name: &str) -> Result<Option<u16>> {
    let Some(code) = call.fields.int(name)? else { return Ok(None) };
    match u16::try_from(code) {
        Ok(code @ 200..=599) => Ok(Some(code)),
        _ => Err(Error::invalid(format!("{name}: must be a status code between 200 and 599"))),
    }
}

pub(super) async fn seal_status(call: Call) -> Result<HandlerResponse> {
    let identity = &call.state.identity;
    let is_initialized = call.state.store_probe.is_initialized().await;
    Ok(ResponseBody::Plain(json!({
        // Known clients use the word `static` for a seal with a key file.
        "type": if identity.seal_type == "file" { "static" } else { identity.seal_type },
        "initialized": is_initialized,
        "sealed": false,
        "t": 1,
        "n": 1,
        "progress": 0,
        "nonce": "",
        "version": COMPAT_VERSION,
        "product": PRODUCT_NAME_AND_VERSION.0,
        "product_version": PRODUCT_NAME_AND_VERSION.1,
        "build_date": "",
        "commit_date": "",
        "migration": false,
        "recovery_seal": true,
        "storage_type": identity.storage_type,
        "cluster_name": identity.cluster_name,
        "cluster_id": identity.cluster_id,
    }))
    .into())
}

pub(super) async fn init(call: Call) -> Result<HandlerResponse> {
    Ok(ResponseBody::Plain(json!({ "initialized": call.state.store_probe.is_initialized().await })).into())
}

/// `GET sys/leader`: always reports that there is no leader. Internal addresses are not revealed.
pub(super) async fn leader(_: Call) -> Result<HandlerResponse> {
    Ok(ResponseBody::Plain(json!({
        "ha_enabled": false,
        "is_self": false,
        "active_time": "0001-01-01T00:00:00Z",
        "leader_address": "",
        "leader_cluster_address": "",
        "performance_standby": false,
        "performance_standby_last_remote_wal": 0,
    }))
    .into())
}
