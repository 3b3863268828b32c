//! The interface between the table code that both engines share and an engine: statements, reads of the most used
//! tables, and writes in a transaction.
//!
//! `tables` contains the reads and writes that need only a [`TableConnection`]. `auth` and `pki` pass the reads and
//! writes of their domain to `tables`.

use futures_util::future::BoxFuture;

use crate::auth::store::{RevokedTokens, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result as StoreResult};
use crate::pki::store::{SerialStatus, StoredCertificate, StoredRevocation};
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::backend::StoreReader;
use crate::x509::serial::Serial;

/// The reason why a read or a unit of writes failed. `E` is the error type of the engine.
pub(super) enum TableError<E> {
    /// A serial number or an idempotency key is taken.
    SerialTaken,
    /// The stored rows do not meet a condition of the unit. The text is the error message.
    Conflict(&'static str),
    /// A stored value is invalid. The text is the error message.
    Unreadable(&'static str),
    Engine(E),
}

impl<E> From<SqlError> for TableError<E> {
    /// Converts the error that [`SqlRow::get`] returns if a column is missing or has another type.
    fn from(_: SqlError) -> Self {
        Self::Unreadable("a stored column has an unexpected type")
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> TableError<E> {
    /// Converts to the error that callers receive. Its text is `failed` if the engine failed.
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

/// A connection to the database of an engine, for running statements.
pub(super) trait TableConnection: Sized {
    type EngineError: Into<Box<dyn std::error::Error + Send + Sync>> + Send;

    /// Runs a query and returns all rows.
    fn rows<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, Vec<SqlRow>>>;

    /// Runs a statement and returns the number of changed rows.
    fn execute<'c>(&'c self, sql: &'c str, values: &'c [SqlValue]) -> BoxFuture<'c, TableResult<Self, u64>>;
}

/// A connection for reads. Its methods are the reads of the most used tables; each engine decodes their rows itself.
pub(super) trait ReadConnection: TableConnection + Sync {
    /// Finds a token with the statement `sql`, by the hash of the token or of its accessor.
    fn token(&self, sql: &'static str, hash: TokenHash) -> BoxFuture<'_, TableResult<Self, Option<TokenRow>>>;

    /// Reads at most `limit` tokens whose accessor hashes follow `after`, in the order of these hashes.
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

/// The reading connections of an engine, for reads of tables.
pub(super) trait TableReader: StoreReader + Clone {
    type Connection: ReadConnection;

    /// Runs a read on a connection. May repeat the read on another connection. `name` identifies the read in the
    /// metrics.
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

    /// Waits until no transaction of another node writes to the mount any more, and excludes new ones until the end of
    /// this transaction.
    async fn lock_mount_exclusively(&self, mount: MountId) -> TableResult<Self, ()>;

    async fn insert_token(&self, row: &TokenRow) -> TableResult<Self, ()>;

    /// Stores a new expiry and body of a token. Returns `true` if the token exists and has not expired at `now`.
    async fn renew_token(
        &self,
        hash: &TokenHash,
        expires_at: Option<Time>,
        body: &[u8],
        now: Time,
    ) -> TableResult<Self, bool>;

    /// Reduces the remaining uses of a token by one. Returns the uses that are then left, or `None` if no use was left
    /// or the token has unlimited uses.
    async fn spend_token(&self, hash: &TokenHash) -> TableResult<Self, Option<u32>>;

    /// Removes a token that has uses left; `Conflict` for any other token.
    async fn delete_usable_token(&self, hash: &TokenHash) -> TableResult<Self, ()>;

    /// Revokes tokens and their descendants depth-first, a limited number per call. The uses of a token's children are
    /// set to 0 before its own row is removed. So deep or cyclic data is harmless, and an interrupted revocation loses
    /// no descendant. Children that already have 0 uses were left by an interrupted revocation.
    async fn revoke_tokens(&self, hashes: &[TokenHash]) -> TableResult<Self, RevokedTokens>;

    /// Removes a token and detaches its children. If they are too many for one step, only detaches some of them. Skips
    /// a revoked token, because its children are revoked as well.
    async fn revoke_token_alone(&self, hash: &TokenHash) -> TableResult<Self, RevokedTokens>;

    /// Revokes up to `limit` expired tokens, and up to `limit` tokens that have no uses left.
    async fn sweep_tokens(&self, now: Time, limit: u32) -> TableResult<Self, RevokedTokens>;

    /// Revokes some tokens of a dropped mount, with their descendants; returns `true` if the mount had any.
    async fn revoke_tokens_of_mount(&self, mount: MountId) -> TableResult<Self, bool>;
}

/// Number of rows that a transaction inserted into a mount, minus those that it removed.
#[derive(Clone, Copy, Default)]
pub(super) struct InsertCounts {
    pub(super) certificates: i64,
    pub(super) revocations: i64,
}

/// The result of a write in a transaction `T`.
pub(super) type WriteResult<T, R> = TableResult<<T as WriteTransaction>::Connection, R>;

/// A write transaction of an engine. Each engine inserts certificates, the rows that belong to them, and revocations
/// itself, because PostgreSQL inserts many of them with one statement.
pub(super) trait WriteTransaction {
    type Connection: WriteConnection;

    fn db(&self) -> &Self::Connection;

    /// Checks that a mount exists, and prevents its removal until the transaction ends.
    async fn require_mount(&mut self, mount: MountId) -> WriteResult<Self, ()>;

    /// Removes a mount from those known to exist, because this transaction drops it. Later writes to it check again.
    fn forget_mount(&mut self, mount: MountId);

    /// Removes a token from those known to be live, because this transaction may end it. Later writes check again.
    fn forget_token(&mut self, _: &TokenHash) {}

    /// As [`Self::forget_token`], for all tokens.
    fn forget_tokens(&mut self) {}

    /// Returns the insert counts of a mount that passed [`Self::require_mount`]. These counts are added to the stored
    /// counters at the end of the transaction.
    fn counts(&mut self, mount: MountId) -> &mut InsertCounts;

    /// Records in the change log that documents of a mount have changed.
    fn mark_documents(&mut self, _: MountId) {}

    /// Records in the change log that a mount has published a CRL.
    fn mark_crls(&mut self, _: MountId) {}
}
