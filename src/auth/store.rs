//! Storage interface for tokens, policies and the mount table. Implemented by `storage`.

mod secret_id;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Time;
use crate::documents::{Document, DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT};
use crate::error::{Error, Result};

pub use self::secret_id::{SecretIdHash, SecretIdKey, SecretIdRow, SecretIdWrite};

/// Storage key of a token or accessor: its SHA-256. If the text contains its creation time, six bytes of that time,
/// then the start of the hash.
pub type TokenHash = [u8; 32];

/// A stored token. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Hash of the token.
    pub hash: TokenHash,
    /// Hash of the accessor.
    pub accessor_hash: TokenHash,
    /// The token that created it; `None` for an orphan.
    pub parent: Option<TokenHash>,
    /// Time of expiry; `None` for never.
    pub expires_at: Option<Time>,
    /// Uses left; `None` without a limit.
    pub uses: Option<u32>,
    /// The authentication mount of the login that created the token or one of its ancestors. The token ends when that
    /// mount is deleted.
    pub mount: Option<MountId>,
    /// Id of the entity (user or machine) of the token.
    pub entity: Option<String>,
    /// Record (accessor, policies, metadata …) as JSON. Contains the accessor, so this type has no `Debug`.
    pub body: Vec<u8>,
}

/// An entry in a token's cubbyhole, which ends with the token. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct CubbyholeRow {
    /// Hash of the token.
    pub token: TokenHash,
    /// Path of the entry; `""` for the wrapped response of a wrapping token.
    pub path: String,
    /// The entry; a secret, so this type has no `Debug`.
    pub body: Vec<u8>,
}

impl CubbyholeRow {
    /// Limits for one token: number of entries, and total bytes of their encrypted bodies.
    pub const LIMITS: (i64, i64) = (128, 2 << 20);

    /// `true` if the entry exceeds a limit together with `others`: number and bytes of the token's other entries.
    pub fn exceeds_limit(&self, others: (i64, i64)) -> bool {
        let bytes = i64::try_from(self.body.len()).unwrap_or(i64::MAX);
        others.0 >= Self::LIMITS.0 || others.1.saturating_add(bytes) > Self::LIMITS.1
    }
}

/// A stored entity. The storage layer encrypts the body and authenticates all columns with it, except `kept_until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRow {
    /// UUID.
    pub id: String,
    /// Unique name.
    pub name: String,
    /// 1 for a new entity, incremented by every change.
    pub version: u64,
    /// Metadata, policies and other settings as JSON.
    pub body: Vec<u8>,
    /// Time from which a sweep removes the entity if it has no token; `None` for never.
    pub kept_until: Option<Time>,
}

/// A stored alias: the name of an entity at one mount. The storage layer encrypts the body and authenticates all
/// columns with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasRow {
    /// UUID.
    pub id: String,
    /// Accessor of the mount. An entity has one alias per mount.
    pub accessor: String,
    /// Name, unique within the mount.
    pub name: String,
    /// Id of the entity.
    pub entity: String,
    /// 1 for a new alias, incremented by every change.
    pub version: u64,
    /// Metadata and other settings as JSON.
    pub body: Vec<u8>,
}

/// Key for looking up an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityBy {
    /// Id of the entity.
    Id(String),
    /// Name of the entity.
    Name(String),
    /// Id of one of its aliases.
    AliasId(String),
    /// One of its aliases.
    Alias {
        /// Accessor of the mount.
        accessor: String,
        /// Name of the alias.
        name: String,
    },
}

/// An entity with all its aliases, sorted by accessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRows {
    /// The entity.
    pub entity: EntityRow,
    /// Its aliases.
    pub aliases: Vec<AliasRow>,
}

/// A request for one page of a list of entities.
#[derive(Clone, Debug)]
pub struct EntityPage {
    /// Sorted by name instead of by id.
    pub by_name: bool,
    /// The page begins after this name or id.
    pub after: String,
    /// Maximum number of entities.
    pub limit: u32,
}

/// An entity in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEntry {
    /// UUID.
    pub id: String,
    /// Name.
    pub name: String,
    /// Aliases, sorted by id.
    pub aliases: Vec<AliasEntry>,
}

/// An alias in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasEntry {
    /// UUID.
    pub id: String,
    /// Accessor of the mount.
    pub accessor: String,
    /// Name.
    pub name: String,
    /// Id of the entity.
    pub entity: String,
}

/// Facts about a store for its operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCondition {
    /// The last restore; `None` if there was none, or if an older version of Signet did not record it.
    pub restore: Option<StoreRestore>,
    /// Number of live tokens that never expire, counted up to 1,000. Only root tokens can be such tokens.
    pub endless_tokens: u64,
}

/// A restore of a store from a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRestore {
    /// Time of the first start on the restored store, or of `signet operator after-restore`.
    pub restored_at: Time,
    /// Time of the copy; `None` if it is unknown.
    pub copied_at: Option<Time>,
}

/// One write. A unit is a list of writes, which are committed together or not at all.
pub enum AuthWrite {
    /// Writes or deletes a document (such as a mount or a policy).
    Document(DocumentWrite),
    /// Creates a mount: reserves its id and its revocation sequence.
    MountCreate(MountId),
    /// Deletes every row and document of a mount, and ends its tokens.
    MountDelete(MountId),
    /// Creates a token; `Conflict` when it exists already, or its parent or mount no longer exists.
    TokenInsert(TokenRow),
    /// Sets expiry and body of a live token (renewal).
    TokenUpdate {
        /// The token.
        hash: TokenHash,
        /// New expiry.
        expires_at: Option<Time>,
        /// New body.
        body: Vec<u8>,
    },
    /// Decrements the uses left of a token that has a limit.
    TokenSpend(TokenHash),
    /// Deletes tokens and all their descendants, starting with the last token of the list, until about
    /// [`MAX_TOKENS_PER_REVOCATION`] are done. The caller must repeat the write with [`RevokedTokens::left`], in that
    /// order.
    TokenRevoke(Vec<TokenHash>),
    /// Deletes a token that has a use left, else `Conflict`. Only one of several concurrent requests succeeds.
    TokenTake(TokenHash),
    /// Creates or replaces a cubbyhole entry; `Conflict` when the token is gone or above [`CubbyholeRow::LIMITS`].
    CubbyholePut(CubbyholeRow),
    /// Deletes a cubbyhole entry.
    CubbyholeDelete {
        /// The token.
        token: TokenHash,
        /// Path of the entry.
        path: String,
    },
    /// Deletes a token and keeps its children, which become orphans. If it has [`MAX_TOKENS_PER_REVOCATION`] or more
    /// children, only that many become orphans, the token stays in [`RevokedTokens::left`], and the write must be
    /// repeated.
    TokenRevokeAlone(TokenHash),
    /// Ends up to `limit` tokens that expired by `now`, and up to `limit` used-up ones, with their descendants.
    TokenSweep {
        /// Current time.
        now: Time,
        /// Maximum number of tokens of either kind, not counting descendants.
        limit: u32,
    },
    /// Creates (version 1) or replaces an entity; `Conflict` if the stored version is not the previous one, or if
    /// another entity has the name.
    EntityPut(EntityRow),
    /// Creates or replaces an alias, as [`AuthWrite::EntityPut`]. `Conflict` also when the entity no longer exists, or
    /// already has an alias at the mount.
    AliasPut(AliasRow),
    /// Postpones the removal of an entity that has a time of removal.
    EntityPostpone {
        /// Id of the entity.
        id: String,
        /// Earliest time of removal.
        until: Time,
    },
    /// Deletes an entity with its aliases.
    EntityDelete(String),
    /// Deletes an alias.
    AliasDelete(String),
    /// Checks up to `limit` entities whose removal was due at `now`: deletes those without tokens, and postpones the
    /// removal of the others until their last token ends, but at least until `again`.
    EntitySweep {
        /// Current time.
        now: Time,
        /// Earliest time at which an entity with tokens is checked again.
        again: Time,
        /// Maximum number of entities that are checked.
        limit: u32,
    },
    /// A change of secret ids.
    SecretId(SecretIdWrite),
}

/// Approximate maximum number of tokens that one revocation deletes or marks as used up. It is small, because all other
/// commits wait for the revocation.
pub const MAX_TOKENS_PER_REVOCATION: usize = 500;

/// Result of a revocation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RevokedTokens {
    /// Deleted tokens.
    pub gone: Vec<TokenHash>,
    /// Tokens that are not deleted yet and must be revoked again. Those that the revocation has reached are marked as
    /// used up: requests with them are rejected, they create no children, and a sweep removes them if the revocation is
    /// not repeated. The others are unchanged.
    pub left: Vec<TokenHash>,
    /// `true` if a descendant was already marked as used up, so another revocation may be deleting its descendants.
    pub met: bool,
}

/// Result of one write.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// Done.
    Done,
    /// The token, secret id, entity or alias does not exist, or has no use left.
    Absent,
    /// Uses left after taking one.
    UsesLeft(u32),
    /// Result of a revocation; empty when the token does not exist.
    Revoked(RevokedTokens),
    /// Number of rows that a sweep removed, or of entities that it checked.
    Swept(u32),
}

/// The store as seen by authentication. Errors are `Unavailable`, `Busy` or `Conflict`, unless a method says otherwise.
pub trait AuthStore: Send + Sync {
    /// Commits a unit of writes, all or none, and returns one outcome per write in order. An empty unit passes through
    /// the same queue and changes nothing.
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>>;

    /// `true` if the store rejected a write (disk full), and no trial write has succeeded since.
    fn writes_fail(&self) -> bool;

    /// Writes and deletes a document larger than a certificate record in one commit, to test if writes work again.
    ///
    /// # Errors
    /// As for any write.
    fn try_writing(&self) -> BoxFuture<'static, Result<()>>;

    /// Returns all documents of one kind of a mount.
    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// Returns all system documents of one kind.
    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.documents_of(SYSTEM_MOUNT, kind)
    }

    /// Finds a token by its hash, even if it has expired. A token of a deleted mount is not found.
    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>>;

    /// Finds a token by the hash of its accessor, as [`AuthStore::token`].
    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>>;

    /// Returns a cubbyhole entry.
    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>>;

    /// Returns the paths of a token's cubbyhole entries in byte order.
    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>>;

    /// Returns up to `limit` tokens after `after`, sorted by the hash of the accessor, including ended ones. The body
    /// is empty if it cannot be decrypted, so that one damaged row does not hide the others.
    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>>;

    /// Returns the last restore and the number of tokens that never expire.
    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>>;

    /// Encrypts a value that is given to a client instead of stored, such as a batch token. It can be decrypted only
    /// with the same `what`.
    ///
    /// # Errors
    /// `Internal` when the encryption fails.
    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>>;

    /// Decrypts a value that a node of the same database encrypted by `seal`; `None` for anything else.
    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>>;

    /// Finds an entity with its aliases.
    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>>;

    /// Returns a page of all entities.
    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>>;

    /// Returns up to `limit` aliases after the id `after`, sorted by id.
    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>>;

    /// Finds a secret id of a role, even if it has ended.
    fn secret_id(&self, mount: MountId, role: i64, key: SecretIdKey)
    -> BoxFuture<'static, Result<Option<SecretIdRow>>>;

    /// Returns the accessors of a role's secret ids that are live at `now`, in byte order: up to `limit`, after
    /// `after`.
    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>>;

    /// `true` if the mount exists and its role with the number `role` has not been deleted.
    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>>;

    /// Deletes up to `limit` secret ids that expired by `now`, and up to `limit` of deleted roles; returns how many.
    fn sweep_secret_ids(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<u32>> {
        let committed = self.commit(vec![AuthWrite::SecretId(SecretIdWrite::Sweep { now, limit })]);
        committed.map(|outcomes| outcomes.and_then(swept_count)).boxed()
    }

    /// Runs one step of a sweep of tokens, see [`AuthWrite::TokenSweep`].
    fn sweep_tokens(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<RevokedTokens>> {
        let committed = self.commit(vec![AuthWrite::TokenSweep { now, limit }]);
        let revoked = |outcomes: Vec<AuthOutcome>| match <[AuthOutcome; 1]>::try_from(outcomes) {
            Ok([AuthOutcome::Revoked(revoked)]) => Ok(revoked),
            _ => Err(Error::internal("the outcome does not belong to the committed write")),
        };
        committed.map(move |outcomes| outcomes.and_then(revoked)).boxed()
    }
}

/// Returns the number of rows that a sweep removed, from the outcome of a unit with only that sweep.
fn swept_count(outcomes: Vec<AuthOutcome>) -> Result<u32> {
    match outcomes.as_slice() {
        [AuthOutcome::Swept(count)] => Ok(*count),
        _ => Err(Error::internal("the outcome does not belong to the committed write")),
    }
}

/// Kind of the stored documents that hold system settings.
pub(super) const CONFIG_DOCUMENT_KIND: &str = "config";

/// Reads a configuration document of the system, and its version; `None` and 0 if it does not exist.
///
/// # Errors
/// Store errors; `Internal` when it cannot be parsed.
pub(super) async fn config_document<T: DeserializeOwned>(
    store: &dyn AuthStore,
    name: &str,
) -> Result<(Option<T>, u64)> {
    let documents = store.documents(CONFIG_DOCUMENT_KIND).await?;
    match documents.iter().find(|document| document.key.name == name) {
        Some(document) => Ok((Some(document.parse()?), document.version)),
        None => Ok((None, 0)),
    }
}

/// Returns the write that replaces a configuration document or, if `value` is `None`, deletes it. The write fails with
/// `Conflict` unless `expected` is the stored version.
///
/// # Errors
/// `Internal` when the value cannot be serialized.
pub(super) fn config_write<T: Serialize>(name: &str, expected: u64, value: Option<&T>) -> Result<DocumentWrite> {
    let body = value.map(serde_json::to_vec).transpose().map_err(Error::internal)?;
    let key = DocumentKey { mount: SYSTEM_MOUNT, kind: CONFIG_DOCUMENT_KIND, name: name.to_owned() };
    Ok(DocumentWrite { key, expected, body })
}
