//! The server side of `signet operator backup`: keeps the database file unchanged while the client copies it.
//!
//! From the response to `{"command": "backup"}` until the client sends `{"release": true}` or disconnects, the database
//! file does not change. Commits go to the write-ahead log, which may be copied at any moment. The second response
//! confirms that the file did not change; without it the copy is worthless. When the copy is complete and synced, the
//! client sends `{"command": "backup-made"}` on a new connection, which updates the metric. As the log grows meanwhile,
//! the server stops this after an hour, or when the disk is almost full.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::context::OperatorContext;
use super::wire::{OperatorConnection, OperatorWriter};
use crate::error::{Error, Result};
use crate::telemetry::BACKUP_LAST_SUCCESS;

/// Maximum time for which the database file is kept unchanged for a copy.
pub(super) const MAX_HOLD_TIME: Duration = Duration::from_secs(3600);
/// Time limit for the command `backup-made`.
pub(super) const BACKUP_MADE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two `working` messages to the client, each after a check of the free disk space.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &OperatorContext, conversation: &mut OperatorConnection) -> Result<Value> {
    let OperatorConnection { reader, writer } = conversation;
    // This first waits for a checkpoint, which takes long if the write-ahead log is long.
    let held = report_progress(writer, PROGRESS_INTERVAL, || Ok(()), context.storage.pause_checkpoints()).await?;
    let started = Instant::now();
    writer.send(&json!({ "result": { "held": true } })).await?;
    let line = report_progress(writer, PROGRESS_INTERVAL, || held.require_disk_space(), reader.receive()).await?;
    if line["release"] != true {
        return Err(Error::malformed("release: must be true after a copy"));
    }
    drop(held);
    tracing::info!(seconds = started.elapsed().as_secs(), "the database file was kept unchanged for a backup");
    Ok(json!({ "held": true }))
}

pub(super) async fn record_backup(context: &OperatorContext) -> Result<Value> {
    let now = context.shared.clock.now();
    metrics::gauge!(BACKUP_LAST_SUCCESS).set(now.unix_timestamp() as f64);
    Ok(json!({ "noted": true }))
}

/// Waits for `work` and returns its result. Meanwhile, runs `check` and sends a `working` message every `interval`.
/// Fails if `check` fails.
async fn report_progress<T>(
    writer: &mut OperatorWriter,
    interval: Duration,
    check: impl Fn() -> Result<()>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(interval) => {
                check()?;
                writer.send(&json!({ "working": true })).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;

    use super::*;

    const BEAT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn backup_reports_progress_until_a_check_fails() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let OperatorConnection { mut writer, .. } = OperatorConnection::new(ours);
        let slow = async {
            tokio::time::sleep(BEAT * 20).await;
            Ok("done")
        };
        assert_eq!(report_progress(&mut writer, BEAT, || Ok(()), slow).await.unwrap(), "done");
        let mut said = vec![0; 2 * 17];
        theirs.read_exact(&mut said).await.unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "{\"working\":true}\n".repeat(2));
        let checks = Cell::new(0);
        let check = || {
            checks.set(checks.get() + 1);
            if checks.get() < 3 { Ok(()) } else { Err(Error::malformed("no space")) }
        };
        let never = std::future::pending::<Result<()>>();
        assert_eq!(report_progress(&mut writer, BEAT, check, never).await.unwrap_err().to_string(), "no space");
    }
}
