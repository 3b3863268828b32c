//! Storage traits of the key modules, implemented by `storage`; and [`SealDevice`], which `storage` calls (see
//! [`seal`](super::seal)).

use futures_util::future::BoxFuture;

use crate::documents::{Document, DocumentWrite};
use crate::error::Result;
use crate::secret::Secret;

/// Document kind of managed keys.
pub const MANAGED_KEY_DOCUMENT_KIND: &str = "managed-key";

/// The store of the managed-key registry. All errors are `Unavailable`, `Busy`, or `Conflict` (the version of a
/// document changed).
pub trait KeyStore: Send + Sync {
    /// Commits a unit of writes durably: all of them or none.
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>>;

    /// Reads all system documents of one kind.
    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;
}

/// The record of keys that a cloud service has generated but does not list yet. All nodes and all versions of a
/// configuration share it: the service accepts several keys of one name, so a repeated request would generate a second
/// key.
pub trait PendingKeys: Send + Sync {
    /// Records that a key is being generated at `location`. Returns `false` if the service does not list a recently
    /// generated key of this location yet; then the caller must not generate another.
    ///
    /// # Errors
    /// `Unavailable` from the store.
    fn record_generation(&self, location: &str) -> BoxFuture<'static, Result<bool>>;

    /// Removes the record after the service has listed the key or its generation has failed.
    fn remove_record(&self, location: &str) -> BoxFuture<'static, ()>;
}

/// A seal key in a device or service.
pub trait SealDevice: Send + Sync {
    /// The type of the seal, by its name in the configuration.
    fn kind(&self) -> &'static str;

    /// The wrapping mechanism. A wrapped key can be unwrapped only with the mechanism that wrapped it.
    fn mechanism(&self) -> &'static str;

    /// The human-readable name of the seal key in the device.
    fn key(&self) -> String;

    /// Wraps a root key for the store identified by `context`.
    ///
    /// # Errors
    /// `Unavailable` when the device or service is unreachable, `BadGateway` when it rejects the credential, `Invalid`
    /// when the key is missing or not usable for wrapping.
    fn wrap(&self, context: &str, root: Secret) -> BoxFuture<'static, Result<Vec<u8>>>;

    /// Unwraps the root key of the store identified by `context`.
    ///
    /// # Errors
    /// As [`SealDevice::wrap`]; also `Invalid` when decryption fails.
    fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> BoxFuture<'static, Result<Secret>>;
}
