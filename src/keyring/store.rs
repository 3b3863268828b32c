//! Storage interface of the keyring. Implemented by `storage`.

use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::Result;

/// Maximum number of values that one data key seals: nine tenths of 2^32, the limit for random nonces.
pub const MAX_KEY_OPERATIONS: u64 = 3_865_470_566;

/// The current data key, and the number of values that still use older keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKey {
    /// Number of the key; the first is 1.
    pub term: u32,
    /// Time at which the key was created. Early versions did not record this time. For their keys, the value is the
    /// time at which a later version first used the key.
    pub created_at: Time,
    /// Number of values that the key has sealed: the stored count of all nodes, plus the values that this process has
    /// sealed since it last updated the count.
    pub sealed: u64,
    /// Number of stored values sealed with older keys; `None` before the first count.
    pub older: Option<u64>,
}

/// Result of one step of re-sealing, which determines whether and when the next step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResealOutcome {
    /// Old values may be left; the next step can follow immediately.
    More,
    /// Nothing can be re-sealed at present, because another node re-seals or may not know the newest key yet. Retry
    /// later.
    Later,
    /// No old value is left, or the remaining old values cannot be decrypted.
    Done,
}

/// Key of the document with the rotation settings.
pub fn rotation_settings_key() -> DocumentKey {
    DocumentKey { mount: SYSTEM_MOUNT, kind: "config", name: "rotation".to_owned() }
}

/// Storage operations of the keyring. Errors are `Unavailable` or `Busy`, unless a method says otherwise.
pub trait KeyringStore: Send + Sync {
    /// Returns the current data key.
    fn status(&self) -> LocalBoxFuture<'_, Result<DataKey>>;

    /// Creates a data key, with which all nodes seal new values from now on. Does not create one if a data key with a
    /// higher term than `from` exists already. Returns the current term.
    ///
    /// # Errors
    /// `Busy` when other nodes keep changing the keys; no key was created then.
    fn rotate(&self, from: u32) -> LocalBoxFuture<'_, Result<u32>>;

    /// Increases the stored usage count of the current data key by the number of values that this process has sealed
    /// since the last call.
    fn record_use(&self) -> LocalBoxFuture<'_, Result<()>>;

    /// Returns the document with the rotation settings.
    fn settings(&self) -> LocalBoxFuture<'_, Result<Option<Document>>>;

    /// Writes the rotation settings.
    ///
    /// # Errors
    /// `Conflict` when they were changed concurrently.
    fn write_settings(&self, write: DocumentWrite) -> LocalBoxFuture<'_, Result<()>>;

    /// Runs one step of re-sealing: re-seals some of the values that are sealed with older keys, or counts them.
    fn re_seal(&self) -> LocalBoxFuture<'_, Result<ResealOutcome>>;
}
