//! Pausing of checkpoints of the embedded database while its file is copied. Commits still append to the log.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::disk_space;
use crate::error::{Error, Kind, Result};

/// Free disk space in bytes that a pause of checkpoints needs, because the log only grows during the pause.
const MIN_FREE_BYTES_FOR_COPY: u64 = 512 << 20;

/// The lock that excludes checkpoints while the database file is copied.
#[derive(Clone)]
pub(crate) struct CheckpointLock {
    /// Number of copies in progress. A checkpoint holds the mutex while it runs.
    pauses: Arc<Mutex<u32>>,
    folder: PathBuf,
}

/// A guard that pauses checkpoints until it is dropped.
pub(crate) struct CheckpointPause(CheckpointLock);

impl CheckpointLock {
    /// Creates the lock for the database in this folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { pauses: Arc::default(), folder }
    }

    /// Pauses checkpoints. Blocks while one runs.
    ///
    /// # Errors
    /// `Unavailable` when the disk lacks space for a log that only grows.
    pub(crate) fn pause(&self) -> Result<CheckpointPause> {
        *self.pauses.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let pause = CheckpointPause(self.clone());
        pause.require_disk_space()?;
        Ok(pause)
    }

    /// Runs `change`, which changes the database file (a checkpoint), and returns its result. While a copy is in
    /// progress, does not run `change` and returns `None`.
    pub(crate) fn run_if_not_paused<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        (*pauses == 0).then(change)
    }
}

impl CheckpointPause {
    /// Checks that the disk has enough free space for a log that only grows.
    ///
    /// # Errors
    /// `Unavailable` when the space does not suffice, or is unknown.
    pub(crate) fn require_disk_space(&self) -> Result<()> {
        let free = disk_space::free_bytes(&self.0.folder)
            .map_err(|e| Error::unavailable("backup: cannot determine the free space of the data folder", e))?;
        if free >= MIN_FREE_BYTES_FOR_COPY {
            return Ok(());
        }
        let text = "backup: less than 512 MiB are free on the disk of the data folder; free some space and retry";
        Err(Error::new(Kind::Unavailable, text))
    }
}

impl Drop for CheckpointPause {
    fn drop(&mut self) {
        *self.0.pauses.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}
