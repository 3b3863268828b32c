//! The server versions that have used the store (`sys/version-history`).

use serde_json::{Map, Value, json};

use super::super::handler_response::HandlerResponse;
use super::super::route::Call;
use crate::clock::format_rfc3339;
use crate::error::Result;

/// `LIST sys/version-history`: the versions of this product, oldest first.
pub(super) async fn history(call: Call) -> Result<HandlerResponse> {
    let versions = call.state.auth.versions().await?;
    let mut previous = Value::Null;
    let mut about = Map::new();
    for known in &versions {
        let entry = json!({
            "previous_version": previous,
            "timestamp_installed": format_rfc3339(known.since),
            "build_date": "",
            "commit_date": "",
        });
        about.insert(known.version.clone(), entry);
        previous = known.version.clone().into();
    }
    HandlerResponse::keys(versions.into_iter().map(|known| known.version).collect(), Some(Value::Object(about)))
}
