//! What the registry of managed keys needs of storage, which implements it; and what a store needs of a device or
//! service that keeps its seal key, which [`seal`](super::seal) is about.

use futures_util::future::BoxFuture;

use crate::documents::{Document, DocumentWrite};
use crate::error::Result;
use crate::secret::Secret;

/// The kind of the documents that are managed keys.
pub const MANAGED_KEYS: &str = "managed-key";

/// The store of one server, as the registry sees it. All errors are `Unavailable`, `Busy`, or `Conflict` (a
/// document's version moved on).
pub trait KeyStore: Send + Sync {
    /// Makes one unit of writes durable, all or none.
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>>;

    /// All system documents of one kind.
    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;
}

/// Keys that were generated at cloud services and that the services do not show yet. Shared by all nodes, and by all
/// versions of a configuration: where names are no identity, a repeated request would generate another key.
pub trait PendingKeys: Send + Sync {
    /// Records that a key is generated at `place` now. `false` when one was generated there shortly before, and has not
    /// appeared: nothing may be generated then.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    fn begin(&self, place: &str) -> BoxFuture<'static, Result<bool>>;

    /// Removes the record: the key has appeared, or was not generated.
    fn end(&self, place: &str) -> BoxFuture<'static, ()>;
}

/// A seal key that is elsewhere.
pub trait SealDevice: Send + Sync {
    /// Its type, as the configuration names it.
    fn kind(&self) -> &'static str;

    /// How it wraps. What was wrapped in one way is unwrapped in that way alone.
    fn mechanism(&self) -> &'static str;

    /// What the key is called there, for people.
    fn key(&self) -> String;

    /// Wraps a root key for the store that `context` names.
    ///
    /// # Errors
    /// `Unavailable` when the device or service is out of reach, `BadGateway` when it refuses the credential,
    /// `Invalid` when the key is not there or not for this use.
    fn wrap(&self, context: &str, root: Secret) -> BoxFuture<'static, Result<Vec<u8>>>;

    /// The root key that was wrapped for the store that `context` names.
    ///
    /// # Errors
    /// As [`SealDevice::wrap`]; also `Invalid` when it does not open.
    fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> BoxFuture<'static, Result<Secret>>;
}
