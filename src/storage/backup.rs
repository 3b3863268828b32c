//! Copies of an embedded store, for the commands: taken beside a server that holds its file still
//! ([`Storage::hold_file`](super::Storage)) or of one that does not run, and put back.
//!
//! Of a PostgreSQL database its own tools make copies; [`note_restore`] is what a restored one is told.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::backend::Reader as _;
use super::embedded::copy;
pub use super::embedded::copy::Pace;
use super::embedded::whole;
use super::seal::SealKey;
use super::{Database, Options, keys, open, postgres};
use crate::clock::Time;
use crate::error::{Error, Result};

/// A copy that has all that was stored when it was begun, and no name yet. Dropping it removes it.
pub struct Partial(copy::Partial);

/// A data folder whose server does not run, nor starts while this lives.
pub struct Locked(#[expect(dead_code, reason = "it is what holds the lock")] File);

/// The database of a data folder.
pub fn database(folder: &Path) -> PathBuf {
    folder.join(copy::NAME)
}

/// Takes the data folder of a server that does not run.
///
/// # Errors
/// `NotFound` when there is no store; `Conflict` when a process uses it.
pub fn lock(folder: &Path) -> Result<Locked> {
    copy::lock(folder).map(Locked)
}

/// Copies the store of a data folder to `to`, or what will become `to`. Its file must be held until this has ended, or
/// the folder be [locked](lock). Ends soon after `stop` is set. Blocks.
///
/// # Errors
/// `NotFound` when there is no store; `Conflict` when `to` exists; `Unavailable` from the disks, and when it was
/// stopped.
pub fn copy(folder: &Path, to: &Path, pace: Pace, stop: &AtomicBool) -> Result<Partial> {
    copy::Partial::of_folder(folder, to, pace, stop).map(Partial)
}

impl Partial {
    /// Makes one file of it that is known as a copy, waits until the disk has it, and gives it its name; how many octets
    /// it has. Blocks.
    ///
    /// # Errors
    /// `Invalid` when it is no store that this program knows; `Conflict` when the name was taken meanwhile;
    /// `Unavailable` from the disk.
    pub fn finish(self, now: Time) -> Result<u64> {
        self.0.finish(now)
    }
}

/// Puts a copy into a data folder that has no store. The first server that opens it makes a store of it: its CRL numbers
/// are above all that may have been published since the copy was taken. Blocks.
///
/// # Errors
/// `Conflict` when the folder has a store or is in use; `Invalid` when the file is no store that this program knows;
/// `Unavailable` from the disks.
pub fn restore(copy: &Path, folder: &Path, now: Time) -> Result<u64> {
    copy::restore(copy, folder, now)
}

/// That a seal key opens a copy, of this program's version or of an older one. Nothing is written.
///
/// # Errors
/// `Invalid` when it does not, or the file is no store that this program knows; `Unavailable` when it cannot be read;
/// those of a device that holds the key.
pub async fn require_opened(copy: &Path, seal_key: &SealKey) -> Result<()> {
    let path = copy.to_owned();
    let opened = tokio::task::spawn_blocking(move || whole::open_known(&path)).await;
    let facts = opened.map_err(Error::internal)??.meta().await?;
    keys::about(seal_key, &facts).await.map(drop)
}

/// Tells a store that it was restored from a copy that does not know it: one of PostgreSQL's tools, of the disk, of the
/// machine. No node may run.
///
/// # Errors
/// `Conflict` when a node runs; those of opening the store, `Invalid` when this machine's clock is behind what the store has seen, and `Unavailable`.
pub async fn note_restore(options: Options) -> Result<()> {
    if let Database::Postgres(url) = &options.database {
        postgres::require_alone(url).await?;
    }
    let clock = options.clock.clone();
    let storage = open(options).await?;
    let noted = storage.note_restore(clock.now()).await;
    storage.shutdown().await.and(noted)
}
