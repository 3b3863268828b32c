//! The server versions that have used the store (`sys/version-history`), and the condition of the store
//! (`sys/internal/status`).

use serde_json::{Map, Value, json};

use super::super::handler_response::HandlerResponse;
use super::super::route::Call;
use crate::clock::format_rfc3339;
use crate::error::Result;

/// `LIST sys/version-history`: the versions of this server that have used the store, oldest first.
pub(super) async fn history(call: Call) -> Result<HandlerResponse> {
    let versions = call.state.auth.versions().await?;
    let mut previous = Value::Null;
    let mut entries = Map::new();
    for known in &versions {
        let entry = json!({
            "previous_version": previous,
            "timestamp_installed": format_rfc3339(known.since),
            "build_date": "",
            "commit_date": "",
        });
        entries.insert(known.version.clone(), entry);
        previous = known.version.clone().into();
    }
    HandlerResponse::keys(versions.into_iter().map(|known| known.version).collect(), Some(Value::Object(entries)))
}

/// `GET sys/internal/status`: the last restore of the store from a backup, and the number of root tokens that never
/// expire. `copied_at` is null if the time of the backup is unknown.
pub(super) async fn store_condition(call: Call) -> Result<HandlerResponse> {
    let condition = call.state.auth.store_condition().await?;
    let restore = condition.restore.map(|restore| {
        json!({
            "restored_at": format_rfc3339(restore.restored_at),
            "copied_at": restore.copied_at.map(format_rfc3339),
        })
    });
    Ok(HandlerResponse::data(json!({ "restore": restore, "endless_root_tokens": condition.endless_tokens })))
}
