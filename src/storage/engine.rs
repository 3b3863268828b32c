//! The interface between the tables and an engine: statements, reads of hot tables, and writes in a transaction.
//!
//! `tables` has the reads and writes that need only a [`TableConnection`]. `auth` and `pki` pass the reads and writes
//! of their domain to the tables.

use futures_util::future::BoxFuture;

use crate::auth::store::{RevokedTokens, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result as StoreResult};
use crate::pki::store::{SerialStatus, StoredCertificate, StoredRevocation};
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::backend::StoreReader;
use crate::x509::serial::Serial;

/// The reason why a read or a write unit failed. `E` is the error of the engine.
pub(super) enum TableError<E> {
    /// A serial number or an idempotency key is taken.
    SerialTaken,
    /// A precondition of the unit does not hold.
    Conflict(&'static str),
    /// A stored value is invalid.
    Unreadable(&'static str),
    Engine(E),
}

impl<E> From<SqlError> for TableError<E> {
    /// Converts the error of [`SqlRow::get`].
    fn from(_: SqlError) -> Self {
        Self::Unreadable("a stored column has an unexpected type")
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> TableError<E> {
    /// Converts to the error for callers, with the text `failed` if the engine failed.
    pub(super) fn into_error(self, failed: &'static str) -> Error {
        match self {
            Self::SerialTaken => Error::new(Kind::Conflict, "storage: the serial number or idempotency key is taken"),
            Self::Conflict(text) => Error::new(Kind::Conflict, text),
            Self::Unreadable(what) => Error::unavailable(failed, what),
            Self::Engine(error) => Error::unavailable(failed, error),
        }
    }
}

/// The result of a read or a write on a connection `C`.
pub(super) type TableResult<C, T> = Result<T, TableError<<C as TableConnection>::EngineError>>;

/// A connection of an engine.
pub(super) trait TableConnection: Sized {
    type EngineError: Into<Box<dyn std::error::Error + Send + Sync>> + Send;

    /// Runs a query and returns all rows.
    fn rows<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, Vec<SqlRow>>>;

    /// Runs a statement and returns the number of changed rows.
    fn execute<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, u64>>;
}

/// A connection for reads. Its methods are the reads of hot tables, which each engine decodes itself.
pub(super) trait ReadConnection: TableConnection + Sync {
    /// Finds a token by a hash, with the statement `sql`.
    fn token(&self, sql: &'static str, hash: TokenHash) -> BoxFuture<'_, TableResult<Self, Option<TokenRow>>>;

    /// Reads the tokens after this accessor hash, in order.
    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'_, TableResult<Self, Vec<TokenRow>>>;

    fn certificate(
        &self,
        mount: MountId,
        serial: Serial,
    ) -> BoxFuture<'_, TableResult<Self, Option<StoredCertificate>>>;

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'_, TableResult<Self, SerialStatus>>;

    /// Reads revocations with a sequence number above `after`, in ascending order.
    fn revocations(
        &self,
        mount: MountId,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'_, TableResult<Self, Vec<StoredRevocation>>>;
}

/// The reading connections of an engine.
pub(super) trait TableReader: StoreReader + Clone {
    type Connection: ReadConnection;

    /// Runs a read, and may repeat it on another connection. `name` identifies it in the metrics.
    fn read_tables<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'c> Fn(&'c Self::Connection) -> BoxFuture<'c, TableResult<Self::Connection, T>>
        + Send
        + Sync
        + 'static,
    ) -> BoxFuture<'static, StoreResult<T>>;
}

/// The connection of a writer. Its methods are the writes whose statements or locks differ between the engines.
pub(super) trait WriteConnection: TableConnection {
    /// Maximum number of rows of a dropped mount that one step removes.
    const REMOVED_ROWS_PER_STEP: u32;

    /// Waits for the transactions of other nodes that write to a mount, and excludes new ones.
    async fn lock_mount_exclusively(&self, mount: MountId) -> TableResult<Self, ()>;

    async fn insert_token(&self, row: &TokenRow) -> TableResult<Self, ()>;

    /// Renews a token; returns `true` if the token exists and has not expired.
    async fn renew_token(
        &self,
        hash: &TokenHash,
        expires_at: Option<Time>,
        body: &[u8],
        now: Time,
    ) -> TableResult<Self, bool>;

    /// Spends one use of a token with limited uses. Returns the number of remaining uses, or `None` if there was none
    /// to spend.
    async fn spend_token(&self, hash: &TokenHash) -> TableResult<Self, Option<u32>>;

    /// Removes a token that has uses left.
    async fn delete_usable_token(&self, hash: &TokenHash) -> TableResult<Self, ()>;

    /// Revokes tokens and their descendants depth-first, a limited number per call. The uses of a token's children are
    /// set to 0 before its own row is removed. So deep or cyclic data is harmless, and an interrupted revocation loses
    /// no descendant. Children that have no uses already were left by an interrupted revocation.
    async fn revoke_tokens(&self, hashes: &[TokenHash]) -> TableResult<Self, RevokedTokens>;

    /// Removes a token and detaches its children. If they are too many for one step, only detaches some of them. Skips
    /// a revoked token, because its children are revoked as well.
    async fn revoke_token_alone(&self, hash: &TokenHash) -> TableResult<Self, RevokedTokens>;

    /// Revokes up to `limit` expired tokens, and up to `limit` tokens that have no uses left.
    async fn sweep_tokens(&self, now: Time, limit: u32) -> TableResult<Self, RevokedTokens>;

    /// Revokes some tokens of a mount, with their descendants; returns `true` if there were any.
    async fn revoke_tokens_of_mount(&self, mount: MountId) -> TableResult<Self, bool>;
}

/// Net number of rows that a transaction inserted into a mount.
#[derive(Clone, Copy, Default)]
pub(super) struct InsertCounts {
    pub(super) certificates: i64,
    pub(super) revocations: i64,
}

/// The result of a write in a transaction `T`.
pub(super) type WriteResult<T, R> = TableResult<<T as WriteTransaction>::Connection, R>;

/// A transaction of an engine's writer. The engine inserts certificates, the rows that belong to them, and revocations
/// itself, because PostgreSQL inserts many of them with one statement.
pub(super) trait WriteTransaction {
    type Connection: WriteConnection;

    fn db(&self) -> &Self::Connection;

    /// Checks that a mount exists, and prevents its removal until the transaction ends.
    async fn require_mount(&mut self, mount: MountId) -> WriteResult<Self, ()>;

    /// Forgets that a mount exists, because this transaction drops it. Later writes check again.
    fn forget_mount(&mut self, mount: MountId);

    /// Forgets that a token is live, because it may end in this transaction. Later writes check again.
    fn forget_token(&mut self, _: &TokenHash) {}

    /// As [`Self::forget_token`], for all tokens.
    fn forget_tokens(&mut self) {}

    /// The counts of a mount that passed [`Self::require_mount`], which are written at the end of the transaction.
    fn counts(&mut self, mount: MountId) -> &mut InsertCounts;

    /// Announces changed documents of a mount to other nodes.
    fn mark_documents(&mut self, _: MountId) {}

    /// Announces a published CRL of a mount to other nodes.
    fn mark_crls(&mut self, _: MountId) {}
}
