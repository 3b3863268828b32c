//! Storage interface of the keyring. Implemented by `storage`.

use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::Result;

/// Maximum number of values that one key seals: nine tenths of the limit for random nonces.
pub const MAX_KEY_OPERATIONS: u64 = 3_865_470_566;

/// The current data key, and the number of values that still use older keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKey {
    /// Number of the key; the first is 1.
    pub term: u32,
    /// Time of creation. For a key from a version that did not record it, the time at which a later version first used
    /// the key.
    pub created_at: Time,
    /// Recorded number of sealed values, plus those that this process has sealed since.
    pub sealed: u64,
    /// Number of stored values sealed with older keys; `None` before the first count.
    pub older: Option<u64>,
}

/// Result of one step of re-sealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResealOutcome {
    /// There is more to do.
    More,
    /// Not now: another node is re-sealing, or may not know the newest key yet.
    Later,
    /// Nothing is left to do, or the remaining values cannot be re-sealed.
    Done,
}

/// Key of the document with the rotation settings.
pub fn rotation_settings_key() -> DocumentKey {
    DocumentKey { mount: SYSTEM_MOUNT, kind: "config", name: "rotation".to_owned() }
}

/// The data keys of a store. Errors are `Unavailable` or `Busy`, unless a method says otherwise.
pub trait KeyringStore: Send + Sync {
    /// Returns the current key.
    fn status(&self) -> LocalBoxFuture<'_, Result<DataKey>>;

    /// Creates a key after the term `from`, which seals all values from now on, on every node. Returns its term, or
    /// that of a newer key that another node has created.
    ///
    /// # Errors
    /// `Busy` when other nodes keep changing the keys; no key was created then.
    fn rotate(&self, from: u32) -> LocalBoxFuture<'_, Result<u32>>;

    /// Adds the number of values sealed since the last call to the record of the key.
    fn record_use(&self) -> LocalBoxFuture<'_, Result<()>>;

    /// Returns the document with the rotation settings.
    fn settings(&self) -> LocalBoxFuture<'_, Result<Option<Document>>>;

    /// Writes the rotation settings.
    ///
    /// # Errors
    /// `Conflict` when they were changed concurrently.
    fn write_settings(&self, write: DocumentWrite) -> LocalBoxFuture<'_, Result<()>>;

    /// Re-seals a few values that are sealed with older keys.
    fn re_seal(&self) -> LocalBoxFuture<'_, Result<ResealOutcome>>;
}
