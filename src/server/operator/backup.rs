//! The server's part of a backup: it holds its database file still while somebody copies it.
//!
//! The caller asks `{"command": "backup"}`; when that is answered, the database file does not change until the caller
//! says `{"release": true}` or leaves: what is committed meanwhile stays in the log, which may be copied too, at any
//! moment. The answer to the second line says that the file was held all the time; without it the copy is worth
//! nothing. The server itself reads and writes nothing for it.
//!
//! A log that is not moved grows. So nobody holds the file for longer than an hour, nor when the disk gets full.

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use super::context::Context;
use super::wire::Conversation;
use crate::error::{Error, Result};

/// Longest time for which the file is held.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);
/// Between two signs of life, and two looks at the disk.
const BEAT: Duration = Duration::from_secs(5);

/// Holds the database file until the caller has copied it.
pub(super) fn run<'a>(
    context: &'a Context,
    _: &'a Value,
    conversation: &'a mut Conversation,
) -> LocalBoxFuture<'a, Result<Value>> {
    async move {
        let held = context.storage.hold_file().await?;
        let started = Instant::now();
        let Conversation { ears, mouth } = conversation;
        mouth.say(&json!({ "result": { "held": true } })).await?;
        let mut next = std::pin::pin!(ears.hear());
        let line = loop {
            tokio::select! {
                line = &mut next => break line?,
                () = tokio::time::sleep(BEAT) => {
                    held.require_room()?;
                    mouth.say(&json!({ "working": true })).await?;
                }
            }
        };
        if line["release"] != true {
            return Err(Error::malformed("release: is what comes after a copy"));
        }
        drop(held);
        tracing::info!(seconds = started.elapsed().as_secs(), "the database file was held for a backup");
        Ok(json!({ "held": true }))
    }
    .boxed_local()
}
