//! CORS settings: the origins of pages that may use the API (`sys/config/cors`).

use serde_json::json;

use super::super::cors::allowed_headers;
use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::route::Call;
use super::run_detached;
use crate::error::Result;
use crate::fields::{ListLimit, MAX_NAME_LEN};

pub(super) const FIELDS: &[&str] = &["allowed_origins", "allowed_headers"];

/// Limits on each list. Each response to a browser contains the allowed headers, and each request is compared with the
/// origins.
const CORS_LIST_LIMIT: ListLimit = ListLimit::new(64, MAX_NAME_LEN);

/// `GET sys/config/cors`: `enabled`; while it is `true`, also `allowed_origins` and all `allowed_headers`.
pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let cors = call.state.auth.cors();
    let shown = match cors.settings() {
        Some(allowed) => json!({
            "enabled": true,
            "allowed_origins": allowed.origins,
            "allowed_headers": allowed_headers(allowed).collect::<Vec<_>>(),
        }),
        None => json!({ "enabled": false }),
    };
    Ok(ResponseBody::DataAndTop(shown).into())
}

pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    let origins = call.fields.list_within("allowed_origins", CORS_LIST_LIMIT)?.unwrap_or_default();
    let headers = call.fields.list_within("allowed_headers", CORS_LIST_LIMIT)?;
    run_detached(async move { call.state.auth.cors_write(origins, headers).await }).await
}

/// `DELETE sys/config/cors`; also succeeds if CORS is off.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.cors_delete().await }).await
}
