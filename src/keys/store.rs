//! What the registry of managed keys needs of storage. Implemented by `storage`.

use futures_util::future::BoxFuture;

use crate::documents::{Document, DocumentWrite};
use crate::error::Result;

/// The store of one server, as the registry sees it. All errors are `Unavailable`, `Busy`, or `Conflict` (a
/// document's version moved on).
pub trait KeyStore: Send + Sync {
    /// Makes one unit of writes durable, all or none.
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>>;

    /// All system documents of one kind.
    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;
}
