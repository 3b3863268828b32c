//! What the store knows of itself: which versions ran on it (`sys/version-history`), and the key that it seals with
//! (`sys/key-status`).

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Body};
use super::super::route::Call;
use crate::clock::rfc3339;
use crate::error::Result;

/// `LIST sys/version-history`: the product's own versions, the oldest first.
pub(super) async fn history(call: Call) -> Result<Answer> {
    let versions = call.state.auth.versions().await?;
    let mut previous = Value::Null;
    let mut about = Map::new();
    for known in &versions {
        let entry = json!({
            "previous_version": previous,
            "timestamp_installed": rfc3339(known.since),
            "build_date": "",
            "commit_date": "",
        });
        about.insert(known.version.clone(), entry);
        previous = known.version.clone().into();
    }
    Answer::keys(versions.into_iter().map(|known| known.version).collect(), Some(Value::Object(about)))
}

/// `GET sys/key-status`: `encryptions` are those of this process.
pub(super) async fn key_status(call: Call) -> Result<Answer> {
    let key = call.state.auth.data_key().await?;
    let made_at = rfc3339(key.made_at);
    Ok(Body::DataAndTop(json!({ "term": key.term, "install_time": made_at, "encryptions": key.sealed })).into())
}
