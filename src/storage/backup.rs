//! Backups of an embedded store and their restore, for the `signet operator` commands. A backup is a copy of the files
//! of a stopped server, or of a running server that pauses checkpoints
//! ([`Storage::pause_checkpoints`](super::Storage)).
//!
//! PostgreSQL databases are copied with PostgreSQL's own tools; [`record_restore`] must run after their restore.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::backend::StoreReader as _;
use super::embedded::copy;
pub use super::embedded::copy::{CopyPace, PARTIAL_SUFFIX};
use super::embedded::copy_access;
use super::seal::SealKey;
use super::{Database, ProgressCounters, StorageOptions, inspection, keys, open, postgres, restore_facts};
use crate::clock::Time;
use crate::error::{Error, Result};

/// A complete copy of a store, before it is renamed to its final name. Dropping this value removes the copy.
pub struct PendingBackup(copy::PartialCopy);

/// A lock on a data folder: no server runs on the folder or can start while the lock exists.
pub struct DataFolderLock(#[expect(dead_code, reason = "it is what holds the lock")] File);

/// Returns the path of the database file in a data folder.
pub fn database_path(folder: &Path) -> PathBuf {
    folder.join(copy::DATABASE_FILE)
}

/// Locks the data folder of a stopped server.
///
/// # Errors
/// `NotFound` when there is no store; `Conflict` when a process uses it.
pub fn lock(folder: &Path) -> Result<DataFolderLock> {
    copy::lock(folder).map(DataFolderLock)
}

/// Copies the store of a data folder to a temporary file next to `to`. Until this returns, checkpoints must be paused
/// or the folder must be [locked](lock). Ends soon after `stop` is set. Blocks.
///
/// # Errors
/// `NotFound` when there is no store; `Conflict` when `to` exists; `Unavailable` from the disks, and when stopped.
pub fn copy(
    folder: &Path,
    to: &Path,
    pace: CopyPace,
    stop: &AtomicBool,
    progress: &ProgressCounters,
) -> Result<PendingBackup> {
    copy::PartialCopy::of_folder(folder, to, pace, stop, progress).map(PendingBackup)
}

impl PendingBackup {
    /// Merges the log into the database file of the copy, records `now` in the file as the time of the copy, syncs the
    /// file and renames it to its final name. Returns its size in bytes. Blocks.
    ///
    /// # Errors
    /// `Invalid` when the schema version of the store is unknown; `Conflict` when the name is taken; `Unavailable` from
    /// the disk.
    pub fn finish(self, now: Time) -> Result<u64> {
        self.0.finish(now)
    }
}

/// Restores a copy into a data folder without a store and returns its size in bytes. The first server that opens the
/// store completes the restore: the server's CRL numbers are above all CRL numbers that may have been published since
/// the copy. Blocks.
///
/// # Errors
/// `Conflict` when the folder has a store or is in use; `Invalid` when the schema version of the file is unknown;
/// `Unavailable`.
pub fn restore(copy: &Path, folder: &Path, progress: &ProgressCounters) -> Result<u64> {
    copy::restore(copy, folder, progress)
}

/// Checks that a seal key opens a copy, which may have an older schema version. Returns the time of the copy, or `None`
/// if the file does not record it. Writes nothing.
///
/// # Errors
/// `Invalid` when the key does not open it, or the file is not a store of a known version; `Unavailable` when it cannot
/// be read; the errors of the device that holds the key.
pub async fn require_seal_key_opens(copy: &Path, seal_key: &SealKey) -> Result<Option<Time>> {
    let path = copy.to_owned();
    let opened = tokio::task::spawn_blocking(move || copy_access::open_any_version(&path)).await;
    let facts = opened.map_err(Error::internal)??.facts().await?;
    keys::describe_seal(seal_key, &facts).await?;
    Ok(restore_facts::copy_time(&facts))
}

/// Records that a store was restored by other means than `signet operator restore`: by PostgreSQL's tools, or from a
/// disk or machine image. All nodes must be stopped. Never creates a store. If [`record_move`] has marked the store as
/// copied to PostgreSQL, removes the mark.
///
/// # Errors
/// `NotFound` when there is no store; `Conflict` when a node runs; `Invalid` when this machine's clock is behind the
/// store; `Unavailable`; the errors of [`open`].
pub async fn record_restore(options: StorageOptions) -> Result<()> {
    let clock = options.clock.clone();
    inspection::require_existing(&options.database).await?;
    let unmarked_folder = match &options.database {
        Database::Postgres(url) => {
            postgres::require_no_other_node(url).await?;
            None
        }
        Database::Embedded(folder) => {
            let _locked = lock(folder)?;
            remove_move_record(folder)?.then(|| folder.clone())
        }
    };
    let recorded = async {
        let storage = open(options).await?;
        let recorded = storage.record_restore(clock.now()).await;
        storage.shutdown().await.and(recorded)
    };
    let recorded = recorded.await;
    if let (Some(folder), true) = (unmarked_folder, recorded.is_err())
        && let Ok(_locked) = lock(&folder)
    {
        record_move(&folder, clock.now())?;
    }
    recorded
}

/// Records in an embedded store that it was copied into a PostgreSQL database: no server starts on it until
/// [`record_restore`] runs. The folder must be [locked](lock). Blocks.
///
/// # Errors
/// `Unavailable` from the disk.
pub fn record_move(folder: &Path, now: Time) -> Result<()> {
    copy::record_move(folder, now)
}

/// Returns `true` if [`record_move`] has marked the store as copied to PostgreSQL. The folder must be [locked](lock).
/// Blocks.
///
/// # Errors
/// `Unavailable` from the disk.
pub fn is_moved(folder: &Path) -> Result<bool> {
    copy::is_moved(folder)
}

/// Removes the mark of [`record_move`]; returns `true` if there was one. The folder must be [locked](lock). Blocks.
///
/// # Errors
/// `Unavailable` from the disk.
pub fn remove_move_record(folder: &Path) -> Result<bool> {
    copy::remove_move_record(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::error::Kind;
    use crate::storage::IfMissing;
    use crate::storage::inspection::inspect;

    #[tokio::test]
    async fn store_marked_as_moved_opens_again_after_a_recorded_restore() {
        let folder = tempfile::tempdir().unwrap();
        let key = SealKey::random();
        let data = folder.path().join("data");
        let options = |seal_key: &SealKey| {
            let database = Database::Embedded(data.clone());
            let seal_key = seal_key.clone();
            StorageOptions {
                database,
                seal_key,
                clock: Clock::system(),
                commit_queue: 10,
                if_missing: IfMissing::Create,
            }
        };
        open(options(&key)).await.unwrap().shutdown().await.unwrap();
        {
            let _locked = lock(&data).unwrap();
            record_move(&data, Clock::system().now()).unwrap();
        }
        let refused = async || open(options(&key)).await.err().map(|error| error.kind());
        assert_eq!(refused().await, Some(Kind::Conflict));
        assert_eq!(inspect(Database::Embedded(data.clone()), &key).await.err().unwrap().kind(), Kind::Conflict);
        // A failed `record_restore` leaves the store marked as moved.
        assert!(record_restore(options(&SealKey::random())).await.is_err());
        assert_eq!(refused().await, Some(Kind::Conflict));
        record_restore(options(&key)).await.unwrap();
        assert_eq!(refused().await, None);
    }
}
