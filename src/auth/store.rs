//! The storage interface of authentication: tokens, entities, policies and the mount table. Implemented by `storage`.

mod secret_id;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Time;
use crate::documents::{Document, DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT};
use crate::error::{Error, Result};

pub use self::secret_id::{SecretIdHash, SecretIdKey, SecretIdRow, SecretIdWrite};

/// Storage key of a token or accessor, derived from its SHA-256. If the text contains its creation time, the key is six
/// bytes of that time followed by the start of the hash.
pub type TokenHash = [u8; 32];

/// The row of a stored token. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Hash of the token.
    pub hash: TokenHash,
    /// Hash of the accessor.
    pub accessor_hash: TokenHash,
    /// Hash of the token with which this token was created; `None` for an orphan.
    pub parent: Option<TokenHash>,
    /// Time at which the token expires; `None` for never.
    pub expires_at: Option<Time>,
    /// Number of uses that the token has left; `None` without a limit.
    pub uses: Option<u32>,
    /// The authentication mount of the login that created the token or one of its ancestors. Deleting that mount
    /// deletes the token.
    pub mount: Option<MountId>,
    /// Id of the entity (user or machine) of the token.
    pub entity: Option<String>,
    /// The token's record (accessor, policies, metadata …) as JSON. It contains the accessor, so this type has no
    /// `Debug`.
    pub body: Vec<u8>,
}

/// An entry in a token's cubbyhole, deleted together with the token. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct CubbyholeRow {
    /// Hash of the token that owns the cubbyhole.
    pub token: TokenHash,
    /// Path of the cubbyhole entry; `""` for the wrapped response of a wrapping token.
    pub path: String,
    /// The content of the entry; a secret, so this type has no `Debug`.
    pub body: Vec<u8>,
}

impl CubbyholeRow {
    /// Limits for the cubbyhole of one token: the number of entries, and the total bytes of their encrypted bodies.
    pub const LIMITS: (i64, i64) = (128, 2 << 20);

    /// `true` if this entry and the token's other entries together exceed a limit. `others` is the number and bytes of
    /// the other entries.
    pub fn exceeds_limit(&self, others: (i64, i64)) -> bool {
        let bytes = i64::try_from(self.body.len()).unwrap_or(i64::MAX);
        others.0 >= Self::LIMITS.0 || others.1.saturating_add(bytes) > Self::LIMITS.1
    }
}

/// The row of an entity. The storage layer encrypts the body and authenticates all columns with it, except
/// `kept_until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRow {
    /// Id of the entity, a UUID.
    pub id: String,
    /// Name of the entity, unique.
    pub name: String,
    /// Version of the entity: 1 for a new one, incremented by every change.
    pub version: u64,
    /// Metadata, policies and other settings of the entity as JSON.
    pub body: Vec<u8>,
    /// Time from which a sweep deletes the entity if no token uses it; `None` for never.
    pub kept_until: Option<Time>,
}

/// The row of an alias: the name of an entity at one mount. The storage layer encrypts the body and authenticates all
/// columns with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasRow {
    /// Id of the alias, a UUID.
    pub id: String,
    /// Accessor of the mount at which the entity has this name. An entity has at most one alias per mount.
    pub accessor: String,
    /// Name of the entity at the mount, unique within the mount.
    pub name: String,
    /// Id of the entity to which the alias belongs.
    pub entity: String,
    /// Version of the alias: 1 for a new one, incremented by every change.
    pub version: u64,
    /// Metadata and other settings of the alias as JSON.
    pub body: Vec<u8>,
}

/// The property by which an entity is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityBy {
    /// Id of the entity.
    Id(String),
    /// Name of the entity.
    Name(String),
    /// Id of one of the entity's aliases.
    AliasId(String),
    /// Mount and name of one of the entity's aliases.
    Alias {
        /// Accessor of the alias's mount.
        accessor: String,
        /// Name of the alias.
        name: String,
    },
}

/// The rows of an entity and of all its aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRows {
    /// The row of the entity.
    pub entity: EntityRow,
    /// The rows of all aliases of the entity, sorted by the accessor of the mount.
    pub aliases: Vec<AliasRow>,
}

/// A request for one page of the list of all entities.
#[derive(Clone, Debug)]
pub struct EntityPage {
    /// `true` to sort the entities by name, `false` to sort them by id.
    pub by_name: bool,
    /// The name or id after which the page begins; `""` for the first page.
    pub after: String,
    /// Maximum number of entities in the page.
    pub limit: u32,
}

/// An entity as listed in a page of entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEntry {
    /// Id of the entity, a UUID.
    pub id: String,
    /// Name of the entity.
    pub name: String,
    /// Aliases of the entity, sorted by id.
    pub aliases: Vec<AliasEntry>,
}

/// An alias as listed in a page of aliases or entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasEntry {
    /// Id of the alias, a UUID.
    pub id: String,
    /// Accessor of the mount at which the entity has this name.
    pub accessor: String,
    /// Name of the entity at the mount.
    pub name: String,
    /// Id of the entity to which the alias belongs.
    pub entity: String,
}

/// Facts about a store that its operator should check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCondition {
    /// The last restore of the store from a backup; `None` if there was none, or if an older version of Signet did not
    /// record it.
    pub restore: Option<StoreRestore>,
    /// Number of tokens that never expire and are still valid, counted up to 1,000. Only root tokens can be such
    /// tokens.
    pub endless_tokens: u64,
}

/// A restore of the store from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRestore {
    /// Time of the first start on the restored store, or of `signet operator after-restore`.
    pub restored_at: Time,
    /// Time at which the backup was made; `None` if unknown.
    pub copied_at: Option<Time>,
}

/// One write of a unit. A unit is a list of writes that are committed together or not at all.
pub enum AuthWrite {
    /// Writes or deletes a document, such as that of a mount or a policy.
    Document(DocumentWrite),
    /// Creates a mount: reserves its id and creates its sequence of revocation numbers.
    MountCreate(MountId),
    /// Deletes every row and document of a mount, and the tokens that logins at the mount created.
    MountDelete(MountId),
    /// Creates a token; `Conflict` when the token exists already, or its parent or mount no longer exists.
    TokenInsert(TokenRow),
    /// Sets the expiry and body of a live token, as for a renewal.
    TokenUpdate {
        /// Hash of the token.
        hash: TokenHash,
        /// New expiry of the token; `None` for never.
        expires_at: Option<Time>,
        /// New record of the token as JSON.
        body: Vec<u8>,
    },
    /// Takes one use of a token whose uses are limited.
    TokenSpend(TokenHash),
    /// Deletes tokens and all their descendants, beginning with the last token of the list, until about
    /// [`MAX_TOKENS_PER_REVOCATION`] tokens are deleted. The caller must repeat the write with [`RevokedTokens::left`],
    /// in that order, until nothing is left.
    TokenRevoke(Vec<TokenHash>),
    /// Deletes a token that has a use left; `Conflict` if there is none. Of several concurrent writes for one token
    /// only one succeeds.
    TokenTake(TokenHash),
    /// Creates or replaces a cubbyhole entry; `Conflict` when the token no longer exists, or the entry exceeds
    /// [`CubbyholeRow::LIMITS`].
    CubbyholePut(CubbyholeRow),
    /// Deletes an entry of a token's cubbyhole.
    CubbyholeDelete {
        /// Hash of the token that owns the cubbyhole.
        token: TokenHash,
        /// Path of the cubbyhole entry.
        path: String,
    },
    /// Deletes a token, and makes its children orphans instead of deleting them. If the token has
    /// [`MAX_TOKENS_PER_REVOCATION`] or more children, only that many become orphans and the token stays;
    /// [`RevokedTokens::left`] then contains the token, and the caller must repeat the write.
    TokenRevokeAlone(TokenHash),
    /// Deletes up to `limit` tokens that expired by `now`, and up to `limit` tokens without uses left, with their
    /// descendants.
    TokenSweep {
        /// Current time.
        now: Time,
        /// Maximum number of expired tokens to delete, and separately of tokens without uses left. Descendants are not
        /// counted.
        limit: u32,
    },
    /// Creates (version 1) or replaces an entity; `Conflict` if the new version does not directly follow the stored
    /// version, or if another entity has the same name.
    EntityPut(EntityRow),
    /// Creates or replaces an alias, like [`AuthWrite::EntityPut`]. `Conflict` also when the alias's entity no longer
    /// exists, or already has another alias at the mount.
    AliasPut(AliasRow),
    /// Postpones the removal of an entity whose `kept_until` is set.
    EntityPostpone {
        /// Id of the entity.
        id: String,
        /// New earliest time at which a sweep may delete the entity.
        until: Time,
    },
    /// Deletes the entity with this id, and its aliases.
    EntityDelete(String),
    /// Deletes the alias with this id.
    AliasDelete(String),
    /// Checks up to `limit` entities whose `kept_until` is before `now`. Deletes those that no token uses. Postpones
    /// the removal of the others until their last token expires, at least until `again`.
    EntitySweep {
        /// Time with which `kept_until` is compared.
        now: Time,
        /// Earliest time at which an entity that has tokens is checked again.
        again: Time,
        /// Maximum number of entities that this write checks.
        limit: u32,
    },
    /// Creates, uses or deletes secret ids of the method `approle`.
    SecretId(SecretIdWrite),
}

/// Approximate maximum number of tokens that one revocation deletes or marks as used up. It is small, because all other
/// commits wait for the revocation.
pub const MAX_TOKENS_PER_REVOCATION: usize = 500;

/// Result of one write that revokes or sweeps tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RevokedTokens {
    /// Hashes of the tokens that were deleted.
    pub gone: Vec<TokenHash>,
    /// Hashes of tokens that are not deleted yet and must be revoked again. The write marked the tokens that it reached
    /// as used up: requests with these tokens are rejected, they create no children, and a sweep deletes them if the
    /// revocation is not repeated. The write did not change the other tokens in this list.
    pub left: Vec<TokenHash>,
    /// `true` if a descendant was already marked as used up. Another revocation may then be deleting the descendants of
    /// that token.
    pub met: bool,
}

/// Outcome of one write of a unit.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The write was applied.
    Done,
    /// The token, secret id, role, entity or alias does not exist, or has no use left.
    Absent,
    /// Number of uses left after the write took one use.
    UsesLeft(u32),
    /// Result of a revocation; its lists are empty when the token does not exist.
    Revoked(RevokedTokens),
    /// Number of rows that a sweep deleted, or number of entities that a sweep checked.
    Swept(u32),
}

/// The store as used by authentication. Errors are `Unavailable`, `Busy` or `Conflict`, unless a method documents
/// others.
pub trait AuthStore: Send + Sync {
    /// Commits a unit of writes, all or none, and returns one outcome per write, in the order of the writes. An empty
    /// unit waits in the same queue and changes nothing.
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>>;

    /// `true` if the store has rejected a write, for example because the disk is full, and no trial write has succeeded
    /// since then.
    fn writes_fail(&self) -> bool;

    /// Tests whether writes work again: writes and deletes, in one commit, a document that is larger than a certificate
    /// record.
    ///
    /// # Errors
    /// As for any write.
    fn try_writing(&self) -> BoxFuture<'static, Result<()>>;

    /// Returns all documents of the given kind that belong to a mount.
    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// Returns all documents of the given kind that belong to the system instead of a mount.
    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.documents_of(SYSTEM_MOUNT, kind)
    }

    /// Finds the row of a token by its hash, even if the token has expired. Does not find a token of a deleted mount.
    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>>;

    /// Finds the row of a token by the hash of its accessor, like [`AuthStore::token`].
    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>>;

    /// Returns the entry at `path` in the cubbyhole of a token.
    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>>;

    /// Returns the paths of a token's cubbyhole entries in byte order.
    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>>;

    /// Returns up to `limit` token rows whose accessor hash is greater than `after`, sorted by accessor hash. Rows of
    /// expired and used-up tokens are included. If a body cannot be decrypted, the row has an empty body, so that one
    /// damaged row does not hide the others.
    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>>;

    /// Returns the last restore of the store, and the number of tokens that never expire.
    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>>;

    /// Encrypts a value that is given to a client instead of being stored, such as a batch token. `what` is the purpose
    /// of the value; decryption needs the same purpose.
    ///
    /// # Errors
    /// `Internal` when the encryption fails.
    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>>;

    /// Decrypts a value that a node of the same database encrypted with `seal`; `None` for any other value.
    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>>;

    /// Finds an entity and all its aliases.
    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>>;

    /// Returns one page of the list of all entities.
    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>>;

    /// Returns up to `limit` aliases whose ids sort after `after`, sorted by id.
    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>>;

    /// Finds a secret id of a role, even if the secret id has expired.
    fn secret_id(&self, mount: MountId, role: i64, key: SecretIdKey)
    -> BoxFuture<'static, Result<Option<SecretIdRow>>>;

    /// Returns the accessors of a role's secret ids that are live at `now`, in byte order: the first `limit` accessors
    /// that sort after `after`.
    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>>;

    /// `true` if the mount exists and its role with the number `role` is not deleted.
    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>>;

    /// Deletes up to `limit` secret ids that expired by `now`, and up to `limit` secret ids of deleted roles. Returns
    /// the number of deleted secret ids.
    fn sweep_secret_ids(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<u32>> {
        let committed = self.commit(vec![AuthWrite::SecretId(SecretIdWrite::Sweep { now, limit })]);
        committed.map(|outcomes| outcomes.and_then(swept_count)).boxed()
    }

    /// Commits one [`AuthWrite::TokenSweep`] and returns its result.
    fn sweep_tokens(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<RevokedTokens>> {
        let committed = self.commit(vec![AuthWrite::TokenSweep { now, limit }]);
        let revoked = |outcomes: Vec<AuthOutcome>| match <[AuthOutcome; 1]>::try_from(outcomes) {
            Ok([AuthOutcome::Revoked(revoked)]) => Ok(revoked),
            _ => Err(Error::internal("the outcome does not belong to the committed write")),
        };
        committed.map(move |outcomes| outcomes.and_then(revoked)).boxed()
    }
}

/// Returns the number of rows that a sweep deleted, from the outcome of a unit that contains only that sweep.
fn swept_count(outcomes: Vec<AuthOutcome>) -> Result<u32> {
    match outcomes.as_slice() {
        [AuthOutcome::Swept(count)] => Ok(*count),
        _ => Err(Error::internal("the outcome does not belong to the committed write")),
    }
}

/// Kind of the stored documents that contain system settings.
pub(super) const CONFIG_DOCUMENT_KIND: &str = "config";

/// Reads the system settings document `name` and its version; `None` and 0 if the document does not exist.
///
/// # Errors
/// Store errors; `Internal` when the document cannot be parsed.
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

/// Returns the write that replaces the system settings document `name` or, if `value` is `None`, deletes it. The write
/// fails with `Conflict` unless `expected` is the version of the stored document.
///
/// # Errors
/// `Internal` when the value cannot be serialized.
pub(super) fn config_write<T: Serialize>(name: &str, expected: u64, value: Option<&T>) -> Result<DocumentWrite> {
    let body = value.map(serde_json::to_vec).transpose().map_err(Error::internal)?;
    let key = DocumentKey { mount: SYSTEM_MOUNT, kind: CONFIG_DOCUMENT_KIND, name: name.to_owned() };
    Ok(DocumentWrite { key, expected, body })
}
