//! CORS settings: the origins of pages that may use the API (`sys/config/cors`).

use serde_json::json;

use super::super::answer::{Answer, Body};
use super::super::cors::shown_headers;
use super::super::route::Call;
use super::to_the_end;
use crate::error::Result;
use crate::fields::{Cap, MAX_NAME};

pub(super) const FIELDS: &[&str] = &["allowed_origins", "allowed_headers"];

/// Limit on each list. Each response to a browser contains the headers, and each request is compared with the origins.
const MOST: Cap = Cap::new(64, MAX_NAME);

/// `GET sys/config/cors`: `enabled`, and if it is `true`, `allowed_origins` and all `allowed_headers`.
pub(super) async fn read(call: Call) -> Result<Answer> {
    let cors = call.state.auth.cors();
    let shown = match cors.allowed() {
        Some(allowed) => json!({
            "enabled": true,
            "allowed_origins": allowed.origins,
            "allowed_headers": shown_headers(allowed).collect::<Vec<_>>(),
        }),
        None => json!({ "enabled": false }),
    };
    Ok(Body::DataAndTop(shown).into())
}

pub(super) async fn write(call: Call) -> Result<Answer> {
    let origins = call.fields.list_within("allowed_origins", MOST)?.unwrap_or_default();
    let headers = call.fields.list_within("allowed_headers", MOST)?;
    to_the_end(async move { call.state.auth.cors_write(origins, headers).await.map(|()| Answer::empty()) }).await
}

/// `DELETE sys/config/cors`; succeeds if CORS is off.
pub(super) async fn delete(call: Call) -> Result<Answer> {
    to_the_end(async move { call.state.auth.cors_delete().await.map(|()| Answer::empty()) }).await
}
