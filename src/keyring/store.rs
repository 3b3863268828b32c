//! What the keyring needs of storage. Implemented by `storage`.

use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM};
use crate::error::Result;

/// Most values that one key seals, whatever is configured: nine tenths of what its random nonces allow.
pub const MOST_OPERATIONS: u64 = 3_865_470_566;

/// The data key in use, and what is left of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKey {
    /// Its number; the first one is 1.
    pub term: u32,
    /// When it was made, or first seen by a program that takes note of that.
    pub made_at: Time,
    /// How much was sealed with it, as far as it is noted, and what this process has sealed since.
    pub sealed: u64,
    /// How many stored values are still sealed with earlier ones; `None` before they were counted.
    pub older: Option<u64>,
}

/// How a step of re-sealing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// Not now: another node is at it, or may not know of the newest key yet.
    Later,
    /// There is nothing to do, or nothing that can be done.
    Done,
}

/// Where the settings of rotation are.
pub fn settings_key() -> DocumentKey {
    DocumentKey { mount: SYSTEM, kind: "config", name: "rotation".to_owned() }
}

/// The data keys of a store. All errors are `Unavailable`, `Busy`, or what is said.
pub trait KeyringStore: Send + Sync {
    /// The key that seals at present.
    fn status(&self) -> LocalBoxFuture<'_, Result<DataKey>>;

    /// Adds a key after that of the term `from`, which seals everything from now on, on every node; returns its term, or
    /// that of a later one which others have added.
    ///
    /// # Errors
    /// `Busy` when others change the keys all the time; none was added then.
    fn rotate(&self, from: u32) -> LocalBoxFuture<'_, Result<u32>>;

    /// Adds what was sealed here since the last time to what is noted of the key.
    fn note_use(&self) -> LocalBoxFuture<'_, Result<()>>;

    /// The settings of rotation, a document of the server.
    fn settings(&self) -> LocalBoxFuture<'_, Result<Option<Document>>>;

    /// Writes them.
    ///
    /// # Errors
    /// `Conflict` when somebody else was faster.
    fn write_settings(&self, write: DocumentWrite) -> LocalBoxFuture<'_, Result<()>>;

    /// Seals a few of the stored values that are sealed with earlier keys with the newest one.
    fn re_seal(&self) -> LocalBoxFuture<'_, Result<Step>>;
}
