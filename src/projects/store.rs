//! What the projects API needs of storage: sessions that speak SQL ([`crate::sql`]). Implemented by `storage`.

use futures_util::future::LocalBoxFuture;

use crate::sql::{Failure, Work};
/// Whose a session is. A store that can do only so much at once gives each its turn.
pub use crate::turns::Asker;

/// The server itself.
pub const ITSELF: Asker = 0;

/// The store of the projects API.
pub trait ProjectStore: Send + Sync {
    /// Runs work that only reads. `name` is what the metrics call it.
    fn read(&self, name: &'static str, asker: Asker, work: Work) -> LocalBoxFuture<'static, Result<(), Failure>>;

    /// Runs work in one transaction; answered when that is durable.
    fn write(&self, name: &'static str, asker: Asker, work: Work) -> LocalBoxFuture<'static, Result<(), Failure>>;
}
