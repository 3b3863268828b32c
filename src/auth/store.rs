//! What tokens, policies and the mount table need of storage. Implemented by `storage`.

mod secret_id;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::clock::Time;
use crate::documents::{Document, DocumentWrite, MountId, SYSTEM};
use crate::error::{Error, Result};

pub use self::secret_id::{SecretIdHash, SecretIdKey, SecretIdRow, SecretIdWrite};

/// What a token or accessor is stored under, and the only form in which storage can look one up: SHA-256 of it, behind
/// the time at which it was made where its text has one.
pub type TokenHash = [u8; 32];

/// A token as stored. The body is sealed by the storage layer.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Of the token.
    pub hash: TokenHash,
    /// Of the accessor.
    pub accessor_hash: TokenHash,
    /// The token that made it; `None` for an orphan.
    pub parent: Option<TokenHash>,
    /// When it ends; `None` never.
    pub expires_at: Option<Time>,
    /// Uses left; `None` without a limit.
    pub uses: Option<u32>,
    /// The authentication method whose login it, or the token that it descends from, began with: it ends with
    /// that mount.
    pub mount: Option<MountId>,
    /// The entity that it is of.
    pub entity: Option<String>,
    /// Everything else (accessor, policies, metadata …), JSON; holds the accessor in clear, so this type has no `Debug`.
    pub body: Vec<u8>,
}

/// Something that a token keeps for itself, and that goes with it. The body is sealed by the storage layer.
#[derive(Clone, PartialEq, Eq)]
pub struct CubbyholeRow {
    /// The token.
    pub token: TokenHash,
    /// Where the token keeps it; `""` for the wrapped answer that it was made for.
    pub path: String,
    /// What is kept; a secret, so this type has no `Debug`.
    pub body: Vec<u8>,
}

impl CubbyholeRow {
    /// The most that one token keeps, and the most octets of all of it, sealed.
    pub const MOST: (i64, i64) = (128, 2 << 20);

    /// Whether it is too much beside `others`: how many a token keeps elsewhere, and how many octets.
    pub fn is_too_much(&self, others: (i64, i64)) -> bool {
        let octets = i64::try_from(self.body.len()).unwrap_or(i64::MAX);
        others.0 >= Self::MOST.0 || others.1.saturating_add(octets) > Self::MOST.1
    }
}

/// An entity as stored. The body is sealed by the storage layer, to the other columns but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRow {
    /// UUID.
    pub id: String,
    /// Its name; there is one entity of a name.
    pub name: String,
    /// 1 for a new one, and one more with every change.
    pub version: u64,
    /// Metadata, policies and what else there is, JSON.
    pub body: Vec<u8>,
    /// When it goes unless a token is its; `None` stays.
    pub kept_until: Option<Time>,
}

/// What an entity is called at one mount, as stored. The body is sealed by the storage layer, to the other columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasRow {
    /// UUID.
    pub id: String,
    /// The accessor of the mount. An entity has one alias at a mount.
    pub accessor: String,
    /// The name there; a mount has one alias of a name.
    pub name: String,
    /// The entity.
    pub entity: String,
    /// 1 for a new one, and one more with every change.
    pub version: u64,
    /// Metadata and what else there is, JSON.
    pub body: Vec<u8>,
}

/// By what an entity is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityBy {
    /// Its id.
    Id(String),
    /// Its name.
    Name(String),
    /// The id of one of its aliases.
    AliasId(String),
    /// The name of one of its aliases at a mount.
    Alias {
        /// The accessor of the mount.
        accessor: String,
        /// The name.
        name: String,
    },
}

/// An entity with all of its aliases, in the order of their accessors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRows {
    /// The entity.
    pub entity: EntityRow,
    /// Its aliases.
    pub aliases: Vec<AliasRow>,
}

/// A page of a list: what comes after `after`, in byte order, at most `limit`.
#[derive(Clone, Debug)]
pub struct EntityPage {
    /// By name; else by id.
    pub by_name: bool,
    /// Where the page begins, exclusive.
    pub after: String,
    /// Most entities.
    pub limit: u32,
}

/// An entity in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEntry {
    /// UUID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its aliases, in the order of their ids.
    pub aliases: Vec<AliasEntry>,
}

/// An alias in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasEntry {
    /// UUID.
    pub id: String,
    /// The accessor of its mount.
    pub accessor: String,
    /// Its name there.
    pub name: String,
    /// Its entity.
    pub entity: String,
}

/// One change. The writes of one unit happen together or not at all.
pub enum AuthWrite {
    /// A configuration document (mount, policy).
    Document(DocumentWrite),
    /// A new mount: reserves its id and its revocation sequence.
    MountCreate(MountId),
    /// Removes every row and document of a mount, and ends its tokens.
    MountDrop(MountId),
    /// A new token; `Conflict` when its parent or its mount is gone.
    TokenInsert(TokenRow),
    /// New expiry and body of a live token (a renewal).
    TokenUpdate {
        /// The token.
        hash: TokenHash,
        /// Its new end.
        expires_at: Option<Time>,
        /// Its new body.
        body: Vec<u8>,
    },
    /// Takes one use of a token that has a limit.
    TokenSpend(TokenHash),
    /// Ends tokens and all their descendants, however many and however deep, the last one first: as far as [`AT_ONCE`]
    /// reaches. To be gone on with what is left, in its order.
    TokenRevoke(Vec<TokenHash>),
    /// Removes a token that has a use left; `Conflict` when there is none. Of several at the same moment one succeeds.
    TokenTake(TokenHash),
    /// Something new that a token keeps, or in the place of what it kept there; `Conflict` when the token is gone,
    /// or keeps more than [`CubbyholeRow::MOST`] then.
    CubbyholePut(CubbyholeRow),
    /// Removes what a token keeps at a path.
    CubbyholeDelete {
        /// The token.
        token: TokenHash,
        /// The path.
        path: String,
    },
    /// Removes a token; those that it made have no parent from then on. Of one that made [`AT_ONCE`] or more it is so
    /// many that have none, and the token stands: it is what is left, to be asked for again.
    TokenRevokeAlone(TokenHash),
    /// Ends at most `limit` tokens that ended at or before `now`, and as many that are used up, with their descendants as
    /// a revocation does.
    TokenSweep {
        /// The time.
        now: Time,
        /// Most tokens that have ended and go.
        limit: u32,
    },
    /// An entity: a new one of version 1, else in place of the version before; `Conflict` when that is not
    /// what is there, and when another has its name.
    EntityPut(EntityRow),
    /// An alias, in the same way; `Conflict` also when its entity is gone, and when another alias has its name,
    /// or its place in the entity.
    AliasPut(AliasRow),
    /// Keeps an entity that would go until then at least.
    EntityKeep {
        /// The entity.
        id: String,
        /// The time.
        until: Time,
    },
    /// Removes an entity with its aliases.
    EntityDrop(String),
    /// Removes an alias.
    AliasDrop(String),
    /// Looks at no more than `limit` entities that were kept until `now` at the latest: those that no token is of
    /// go with their aliases, the others are kept until their last token ends, and until `again` at least.
    EntitySweep {
        /// The time.
        now: Time,
        /// The next time that an entity with a token is looked at, at the earliest.
        again: Time,
        /// Most entities that are looked at.
        limit: u32,
    },
    /// Of a secret id.
    SecretId(SecretIdWrite),
}

/// Tokens that one revocation removes or marks, about: everybody's commits wait for it.
pub const AT_ONCE: usize = 500;

/// Tokens that have ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Those that are gone.
    pub gone: Vec<TokenHash>,
    /// Those that are still there, because their descendants have not all ended: to be revoked again. They have no use
    /// left, so that they are refused, make no children, and are swept when nobody goes on; but for those that were to
    /// be ended and were not reached.
    pub left: Vec<TokenHash>,
    /// Whether a descendant had ended before: somebody else may know of others below it.
    pub met: bool,
}

/// What became of one write.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// Stored.
    Done,
    /// No such token or secret id (update, spend with no use left), entity or alias.
    Absent,
    /// Uses left after a spend.
    UsesLeft(u32),
    /// What a revocation ended; nothing when there was no such token.
    Revoked(Revoked),
    /// How many a sweep removed, or at how many entities it looked.
    Swept(u32),
}

/// The store of one server, as authentication sees it. All errors are `Unavailable`, `Busy`, or
/// `Conflict` (a document's version moved on).
pub trait AuthStore: Send + Sync {
    /// Makes one unit of writes durable, all or none; one outcome per write, in order. An empty unit
    /// takes the same way and changes nothing.
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>>;

    /// Whether a write failed that the store did not take, as with a full disk, and none is known that it took since.
    fn writes_fail(&self) -> bool;

    /// Writes more than a certificate needs, and takes it away in the same commit: whether writes still fail.
    ///
    /// # Errors
    /// Those of a write.
    fn try_writing(&self) -> BoxFuture<'static, Result<()>>;

    /// All documents of a mount of one kind.
    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>>;

    /// All system documents of one kind.
    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.documents_of(SYSTEM, kind)
    }

    /// A token by its hash, expired ones too; none of a mount that is gone.
    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>>;

    /// A token by the hash of its accessor, as [`AuthStore::token`].
    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>>;

    /// What a token keeps at a path.
    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>>;

    /// The paths at which a token keeps something, in byte order; [`CubbyholeRow::MOST`] at most.
    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>>;

    /// Tokens whose accessor has a higher hash than `after`, in the order of these hashes; at most `limit` of them,
    /// ended ones too. A token whose body does not open has an empty body: one damaged row must not hide the others.
    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>>;

    /// Seals what is given away and not kept; `what` is what it is, and nothing else opens as that.
    ///
    /// # Errors
    /// `Internal` when it cannot be sealed.
    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>>;

    /// Opens what any node of the same database sealed; `None` for anything else.
    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>>;

    /// An entity with its aliases.
    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>>;

    /// A page of all entities.
    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>>;

    /// At most `limit` of all aliases, by id, after this one.
    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>>;

    /// A secret id of a role, ended ones too.
    fn secret_id(&self, mount: MountId, role: i64, key: SecretIdKey)
    -> BoxFuture<'static, Result<Option<SecretIdRow>>>;

    /// At most `limit` accessors of a role's secret ids that have not ended at `now`, in byte order, above `after`.
    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>>;

    /// Whether a mount exists and a role of its secret ids has not ended.
    fn secret_id_role_stands(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>>;

    /// Removes at most `limit` secret ids that ended at or before `now`, and as many of roles that have ended;
    /// returns how many went.
    fn sweep_secret_ids(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<u32>> {
        let committed = self.commit(vec![AuthWrite::SecretId(SecretIdWrite::Sweep { now, limit })]);
        committed.map(|outcomes| outcomes.and_then(swept)).boxed()
    }

    /// Ends at most `limit` tokens that ended at or before `now`, and as many that are used up, with their descendants:
    /// one step.
    fn sweep_tokens(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<Revoked>> {
        let committed = self.commit(vec![AuthWrite::TokenSweep { now, limit }]);
        let revoked = |outcomes: Vec<AuthOutcome>| match <[AuthOutcome; 1]>::try_from(outcomes) {
            Ok([AuthOutcome::Revoked(revoked)]) => Ok(revoked),
            _ => Err(Error::internal("the store answered another write")),
        };
        committed.map(move |outcomes| outcomes.and_then(revoked)).boxed()
    }
}

/// What a sweep alone in its unit removed.
fn swept(outcomes: Vec<AuthOutcome>) -> Result<u32> {
    match outcomes.as_slice() {
        [AuthOutcome::Swept(count)] => Ok(*count),
        _ => Err(Error::internal("the store answered another write")),
    }
}
