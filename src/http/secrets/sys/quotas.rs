//! Rate-limit quotas (`sys/quotas/rate-limit`) and their common settings (`sys/quotas/config`).

use serde_json::Value;

use super::super::handler_response::HandlerResponse;
use super::super::page::PageParams;
use super::super::route::Call;
use super::super::with_canonical_path;
use super::run_detached;
use crate::auth::quotas::{QuotaConfig, RateLimitChange};
use crate::error::{Error, Result};
use crate::fields::{Fields, ListFieldSlot, MAX_NAME_LEN, Resource as _};
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

pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    let mut change = change(&call.fields)?;
    change.path = change.path.map(|path| canonical_path(call.state.shared(), path));
    run_detached(async move { call.state.auth.rate_limit_write(call.param("name"), change).await }).await
}

/// `DELETE sys/quotas/rate-limit/:name`; succeeds if the quota does not exist.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.rate_limit_delete(call.param("name")).await }).await
}

pub(super) async fn config(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(Value::Object(call.state.auth.quota_config().to_members())))
}

pub(super) async fn configure(call: Call) -> Result<HandlerResponse> {
    let lists = QuotaConfig::LISTS.iter().map(|list| exempt_paths(&call, list)).collect::<Result<Vec<_>>>()?;
    let flags = QuotaConfig::FLAGS.iter().map(|slot| call.fields.bool(slot.name)).collect::<Result<Vec<_>>>()?;
    run_detached(async move {
        let change = |config: &mut QuotaConfig| {
            for (list, given) in QuotaConfig::LISTS.iter().zip(&lists) {
                list.slot.set_if_given(config, given.clone());
            }
            for (slot, given) in QuotaConfig::FLAGS.iter().zip(&flags) {
                slot.set_if_given(config, *given);
            }
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

/// Returns the canonical spelling of a path or prefix, by which requests are counted.
fn canonical_path(shared: &ServerState, path: String) -> String {
    let bare = path.trim_start_matches('/');
    let (begin, star) = bare.strip_suffix('*').map_or((bare, ""), |begin| (begin, "*"));
    with_canonical_path(shared, begin, |canonical| {
        if canonical.path == begin { None } else { Some(format!("{}{star}", canonical.path)) }
    })
    .unwrap_or(path)
}

fn change(fields: &Fields) -> Result<RateLimitChange> {
    Ok(RateLimitChange {
        path: fields.text_within("path", MAX_PATH_BYTES)?,
        role: fields.text_within("role", MAX_NAME_LEN)?,
        rate: fields.value("rate").map(rate).transpose()?,
        interval: fields.duration("interval")?,
        block_interval: fields.duration("block_interval").map_err(|_| Error::invalid("'block' is invalid"))?,
        inheritable: fields.bool("inheritable")?,
    })
}

/// Reads a number, or text with a number.
fn rate(value: &Value) -> Result<f64> {
    let read = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    read.ok_or_else(|| Error::invalid("'rate' is invalid"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quota_change_is_lenient_and_names_invalid_numbers() {
        let read = |body: Value| change(&Fields::parse(body.to_string().as_bytes()).unwrap());
        let whole = read(json!({ "rate": "2.5", "interval": "1m", "block_interval": 90, "inheritable": "T" })).unwrap();
        assert_eq!((whole.rate, whole.interval.unwrap().as_secs()), (Some(2.5), 60));
        assert_eq!((whole.block_interval.unwrap().as_secs(), whole.inheritable), (90, Some(true)));
        assert_eq!(read(json!({ "rate": null })).unwrap(), RateLimitChange::default());
        for (body, text) in [
            (json!({ "rate": "often" }), "'rate' is invalid"),
            (json!({ "rate": [1] }), "'rate' is invalid"),
            (json!({ "block_interval": -1 }), "'block' is invalid"),
            (json!({ "role": "r".repeat(129) }), "role: longer than 128 bytes"),
        ] {
            assert_eq!(read(body).unwrap_err().text(), text);
        }
    }
}
