//! Rate-limit quotas (`sys/quotas/rate-limit`) and the settings for all quotas (`sys/quotas/config`).

use serde_json::Value;

use super::super::handler_response::HandlerResponse;
use super::super::page::PageParams;
use super::super::route::Call;
use super::super::with_canonical_path;
use super::run_detached;
use crate::auth::quotas::QuotaConfig;
use crate::error::{Error, Result};
use crate::fields::{ListFieldSlot, Resource as _};
use crate::http::secrets::path::MAX_PATH_BYTES;
use crate::http::state::ServerState;

pub(super) const FIELDS: &[&str] = &["type", "path", "role", "rate", "interval", "block_interval", "inheritable"];
pub(super) const CONFIG_FIELDS: &[&str] = QuotaConfig::FIELDS;

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let names = call.state.auth.rate_limit_names();
    HandlerResponse::keys(PageParams::of(&call.fields)?.take_page(names.iter().map(String::as_str)), None)
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    call.state.auth.rate_limit_read(call.param("name")).map(HandlerResponse::data).ok_or_else(Error::not_found)
}

pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    if let Some(path) = call.fields.text_within("path", MAX_PATH_BYTES)? {
        let path = canonical_path(call.state.shared(), path);
        call.fields.set("path", path);
    }
    run_detached(async move { call.state.auth.rate_limit_write(call.param("name"), &call.fields).await }).await
}

/// `DELETE sys/quotas/rate-limit/:name`; also succeeds if the quota does not exist.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.rate_limit_delete(call.param("name")).await }).await
}

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(Value::Object(call.state.auth.quota_config().to_members())))
}

pub(super) async fn write_config(call: Call) -> Result<HandlerResponse> {
    run_detached(async move {
        let change = |config: &mut QuotaConfig| {
            for list in QuotaConfig::LISTS {
                list.slot.set_if_given(config, exempt_paths(&call, list)?);
            }
            config.merge_flags(&call.fields)
        };
        call.state.auth.quota_config_write(change).await
    })
    .await
}

fn exempt_paths(call: &Call, list: &ListFieldSlot<QuotaConfig>) -> Result<Option<Vec<String>>> {
    let given = call.fields.list_within(list.slot.name, list.limit)?;
    let counted = |path| canonical_path(call.state.shared(), path);
    Ok(given.map(|paths| paths.into_iter().map(counted).collect()))
}

/// Returns a path or prefix in canonical spelling, because it is compared with the canonical paths of requests.
fn canonical_path(shared: &ServerState, path: String) -> String {
    let bare = path.trim_start_matches('/');
    let (begin, star) = bare.strip_suffix('*').map_or((bare, ""), |begin| (begin, "*"));
    with_canonical_path(shared, begin, |canonical| {
        if canonical.path == begin { None } else { Some(format!("{}{star}", canonical.path)) }
    })
    .unwrap_or(path)
}
