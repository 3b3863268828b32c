//! Copies of an embedded store, for the commands: taken beside a server that holds its file still
//! ([`Storage::hold_file`](super::Storage)) or of one that does not run, and put back.
//!
//! Of a PostgreSQL database its own tools make copies; [`note_restore`] is what a restored one is told.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::backend::Reader as _;
use super::embedded::copy;
pub use super::embedded::copy::{PARTIAL, Pace};
use super::embedded::whole;
use super::seal::SealKey;
use super::{Database, Options, Progress, keys, look, open, postgres};
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
pub fn copy(folder: &Path, to: &Path, pace: Pace, stop: &AtomicBool, progress: &Progress) -> Result<Partial> {
    copy::Partial::of_folder(folder, to, pace, stop, progress).map(Partial)
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
pub fn restore(copy: &Path, folder: &Path, now: Time, progress: &Progress) -> Result<u64> {
    copy::restore(copy, folder, now, progress)
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
/// machine. No node may run. None is ever made: it would be told that it goes on from nothing.
///
/// # Errors
/// `NotFound` when there is no store; `Conflict` when a node runs; those of opening the store, `Invalid` when this
/// machine's clock is behind what the store has seen, and `Unavailable`.
pub async fn note_restore(options: Options) -> Result<()> {
    let clock = options.clock.clone();
    look::require(&options.database).await?;
    let taken_back = match &options.database {
        Database::Postgres(url) => {
            postgres::require_alone(url).await?;
            None
        }
        Database::Embedded(folder) => {
            let _locked = lock(folder)?;
            take_back(folder)?.then(|| folder.clone())
        }
    };
    let noted = async {
        let storage = open(options).await?;
        let noted = storage.note_restore(clock.now()).await;
        storage.shutdown().await.and(noted)
    };
    let noted = noted.await;
    if let (Some(folder), true) = (taken_back, noted.is_err())
        && let Ok(_locked) = lock(&folder)
    {
        note_moved(&folder, clock.now())?;
    }
    noted
}

/// Notes that the store of a data folder was carried over to a database: no server starts on it from here on, until it is
/// told that it goes on ([`note_restore`]). The folder must be [locked](lock). Blocks.
///
/// # Errors
/// `Unavailable` from the disk.
pub fn note_moved(folder: &Path, now: Time) -> Result<()> {
    copy::note_moved(folder, now)
}

/// Whether there is such a note. The folder must be [locked](lock). Blocks.
///
/// # Errors
/// `Unavailable` from the disk.
pub fn is_moved(folder: &Path) -> Result<bool> {
    copy::is_moved(folder)
}

/// Takes such a note away, so that the store opens; whether there was one. The folder must be [locked](lock). Blocks.
///
/// # Errors
/// `Unavailable` from the disk.
pub fn take_back(folder: &Path) -> Result<bool> {
    copy::take_back(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::error::Kind;
    use crate::storage::Absent;
    use crate::storage::look::look;

    #[tokio::test]
    async fn a_store_that_was_carried_over_opens_again_when_it_is_told_that_it_goes_on() {
        let (folder, key) = (tempfile::tempdir().unwrap(), SealKey::random());
        let data = folder.path().join("data");
        let options = |seal_key: &SealKey| {
            let (database, seal_key) = (Database::Embedded(data.clone()), seal_key.clone());
            Options { database, seal_key, clock: Clock::system(), queue: 10, absent: Absent::Made }
        };
        open(options(&key)).await.unwrap().shutdown().await.unwrap();
        {
            let _locked = lock(&data).unwrap();
            note_moved(&data, Clock::system().now()).unwrap();
        }
        let refused = async || open(options(&key)).await.err().map(|error| error.kind());
        assert_eq!(refused().await, Some(Kind::Conflict));
        assert_eq!(look(Database::Embedded(data.clone()), &key).await.err().unwrap().kind(), Kind::Conflict);
        // Who cannot open it lets nobody else.
        assert!(note_restore(options(&SealKey::random())).await.is_err());
        assert_eq!(refused().await, Some(Kind::Conflict));
        note_restore(options(&key)).await.unwrap();
        assert_eq!(refused().await, None);
    }
}
