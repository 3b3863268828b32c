//! The storage interface of the projects API: SQL sessions ([`crate::sql`]), implemented by `storage`.

use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::error::Result;
/// The caller on whose behalf a session runs. A store with limited concurrency queues sessions fairly by caller.
pub use crate::rationing::CallerId;
use crate::sql::{SqlError, SqlWork};

/// The caller id of the server itself.
pub const SERVER_CALLER: CallerId = 0;

/// The access that a session needs, and the caller whose queue it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAccess {
    /// Read-only work.
    Read(CallerId),
    /// Work that may write. It is one transaction, which is durable when the session ends.
    Write(CallerId),
}

impl SessionAccess {
    /// Returns the id of the caller.
    pub fn caller_id(self) -> CallerId {
        let (Self::Read(caller_id) | Self::Write(caller_id)) = self;
        caller_id
    }
}

/// Work that runs in a session.
pub type RunningSession = LocalBoxFuture<'static, std::result::Result<(), SqlError>>;

/// The store of the projects API.
pub trait ProjectStore: Send + Sync {
    /// Runs work in one session. `name` is the metrics label.
    fn run(&self, name: &'static str, access: SessionAccess, work: SqlWork) -> RunningSession;
}

/// The columns of a token that its seal (a MAC) authenticates.
#[derive(Clone, Copy, Debug)]
pub struct BoundToken<'t> {
    /// The public part, by which the token is found.
    pub lookup: &'t str,
    /// SHA-256 of the secret part.
    pub secret_sha256: &'t [u8],
    /// Row id of the user, for a user token.
    pub user: Option<i64>,
    /// Row id of the team, for a team token.
    pub team: Option<i64>,
    /// Row id of the organization, for an organization token.
    pub org: Option<i64>,
    /// `standard` or `audit-trails`.
    pub kind: &'t str,
    /// The expiry.
    pub expired_at: Option<Time>,
}

/// Seals of tokens: MACs over a token's columns. A token is valid only with a seal by a node of this installation, so
/// that write access to the database is not enough to add a token.
pub trait ApiTokenSeal: Send + Sync {
    /// Returns the seal to store with a token.
    ///
    /// # Errors
    /// `Internal` when there is no key for sealing.
    fn seal(&self, token: &BoundToken<'_>) -> Result<Vec<u8>>;

    /// `true` if `body` is a valid seal of the token.
    ///
    /// # Errors
    /// Those of the store: to check a seal, this node may have to load a key that another node created.
    fn is_sealed<'s>(&'s self, token: BoundToken<'s>, body: &'s [u8]) -> LocalBoxFuture<'s, Result<bool>>;

    /// Seals the tokens that nodes of the previous version stored without a seal. Does nothing when a limited time has
    /// passed since the upgrade.
    ///
    /// # Errors
    /// Those of the store.
    fn seal_unsealed_tokens(&self) -> LocalBoxFuture<'_, Result<()>>;
}
