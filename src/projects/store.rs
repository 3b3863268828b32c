//! What the projects API needs of storage: sessions that speak SQL ([`crate::sql`]). Implemented by `storage`.

use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::error::Result;
use crate::sql::{Failure, Work};
/// Whose a session is. A store that can do only so much at once gives each its turn.
pub use crate::turns::Asker;

/// The server itself.
pub const ITSELF: Asker = 0;

/// The store of the projects API.
pub trait ProjectStore: Send + Sync {
    /// Runs work that only reads. `name` is what the metrics call it.
    fn read(
        &self,
        name: &'static str,
        asker: Asker,
        work: Work,
    ) -> LocalBoxFuture<'static, std::result::Result<(), Failure>>;

    /// Runs work in one transaction; answered when that is durable.
    fn write(
        &self,
        name: &'static str,
        asker: Asker,
        work: Work,
    ) -> LocalBoxFuture<'static, std::result::Result<(), Failure>>;
}

/// The columns of a token that its seal binds: what it is recognised by, whose it is, and its end.
#[derive(Clone, Copy, Debug)]
pub struct BoundToken<'t> {
    /// The public part.
    pub lookup: &'t str,
    /// SHA-256 of the secret part.
    pub secret_sha256: &'t [u8],
    /// Row of the user that it is of.
    pub user: Option<i64>,
    /// Row of the team.
    pub team: Option<i64>,
    /// Row of the organization.
    pub org: Option<i64>,
    /// `standard` or `audit-trails`.
    pub kind: &'t str,
    /// When it ends.
    pub expired_at: Option<Time>,
}

/// The seal of tokens: a token counts only if a node of this installation stored it as it is.
pub trait TokenSeal: Send + Sync {
    /// What is stored beside a token.
    ///
    /// # Errors
    /// `Internal` when there is no key.
    fn seal(&self, token: &BoundToken<'_>) -> Result<Vec<u8>>;

    /// Whether this was stored beside the token.
    ///
    /// # Errors
    /// Those of the store, where a key is looked for that another node has made.
    fn is_sealed<'s>(&'s self, token: BoundToken<'s>, body: &'s [u8]) -> LocalBoxFuture<'s, Result<bool>>;

    /// Seals what nodes of the version before have stored, for a while after the upgrade.
    ///
    /// # Errors
    /// Those of the store.
    fn keep(&self) -> LocalBoxFuture<'_, Result<()>>;
}
