//! Keeping the embedded store's database file as it is while somebody copies it: no checkpoint moves the log
//! meanwhile. Commits go on into the log; whoever writes there is not touched by this.
//!
//! Asked by the storage front door; the checkpointer works through it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::room;
use crate::error::{Error, Kind, Result};

/// The least room that must be left on the disk while the log only grows.
const ROOM: u64 = 512 << 20;

/// Who moves the log, and who keeps it from being moved.
#[derive(Clone)]
pub(crate) struct FileHold {
    /// How many hold the file; locked while the log is moved.
    holders: Arc<Mutex<u32>>,
    folder: PathBuf,
}

/// The file stays as it is until this is dropped.
pub(crate) struct Held(FileHold);

impl FileHold {
    /// Of the database in this folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { holders: Arc::default(), folder }
    }

    /// Holds the file. Blocks while the log is being moved.
    ///
    /// # Errors
    /// `Unavailable` when the disk has no room for a log that only grows.
    pub(crate) fn hold(&self) -> Result<Held> {
        *self.holders.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let held = Held(self.clone());
        held.require_room()?;
        Ok(held)
    }

    /// Runs what changes the file, unless somebody holds it.
    pub(crate) fn unless_held<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        (*holders == 0).then(change)
    }
}

impl Held {
    /// That the disk has room left for the log.
    ///
    /// # Errors
    /// `Unavailable` when it has not, or does not tell.
    pub(crate) fn require_room(&self) -> Result<()> {
        let free = room::free(&self.0.folder).map_err(|e| Error::unavailable("the disk does not tell", e))?;
        if free >= ROOM {
            return Ok(());
        }
        Err(Error::new(Kind::Unavailable, "backup: less than 512 MiB are left on the disk of the data folder"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.0.holders.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}
