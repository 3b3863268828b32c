//! Who is calling and what they may do: tokens, policies, the mount table.
//!
//! [`Auth`] is asked twice on every request, before its body is read and when it is there: who the
//! [`Caller`] behind the token is ([`Auth::recognise`], [`Auth::admit`]), and whether the caller's policies
//! grant an operation on a path ([`Auth::decide`]). There is no actor behind it. Policies and mounts are
//! published views, replaced whole when they change; tokens are indexed rows with a bounded cache in front
//! (`cache`). A token is stored under SHA-256 only: it is 256 random bits, so a plain hash is enough and a
//! copy of the database holds nothing that works.
//!
//! The parts: `policy` (texts, rules, decisions), `policies` (keeping them), `token` (making, showing,
//! renewing and ending tokens), `identity` (who is behind them), `mounts` (the table), `login` (the authentication
//! methods), `wrapping` (answers put away behind a token), `cubbyhole` (what tokens keep), `quotas` (how often somebody
//! may ask), `cors` (which pages in browsers may), `explain` (why somebody may or may not). What is not offered is refused by
//! name: namespaces.

mod cache;
pub mod cors;
mod cubbyhole;
pub mod explain;
pub mod identity;
mod instant;
pub(crate) mod login;
pub mod mounts;
mod names;
mod policies;
pub mod policy;
pub mod quotas;
pub mod requester;
pub mod store;
pub mod token;
mod versions;
pub mod wrapping;

#[cfg(test)]
mod memory;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::clock::{Clock, Time};
use crate::derived::Derived;
use crate::documents::TOO_MANY_CHANGES;
use crate::error::{Error, Kind, Result};
use crate::templates::Identity;
use crate::turns::{Caller as Queued, Entrance, Place as Permit, cpu};
use cache::TokenCache;
use cors::Cors;
use identity::{Entities, EntityRef};
pub use login::LoginSettings;
use login::Logins;
pub use login::cloudb::{CloudbSettings, CloudbUrls, Fallback as CloudbFallback};
use mounts::MountTable;
use policies::Policies;
use policy::{Acl, Decision, Operation, Parameters, Place};
use quotas::Quotas;
use store::{AuthOutcome, AuthStore, AuthWrite, TokenHash, TokenRow};
use token::{Batch, LoggedIn, Network, Record, RoleTable, hash_of, is_batch};

/// The policy that grants everything; no text stands behind it.
pub const ROOT: &str = "root";

/// After so long what was read of a token is looked at again before it counts.
const A_WHILE: Duration = Duration::from_millis(20);

/// Compiles long unions of policies one at a time, so that callers who share a union wait for one compilation of it.
#[derive(Default)]
struct Large(Arc<tokio::sync::Mutex<()>>);

impl Large {
    /// Does long work in its turn, and other work at once.
    async fn work<T: Send + 'static>(&self, is_long: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        if !is_long {
            return Ok(work());
        }
        let turn = Arc::clone(&self.0).lock_owned().await;
        let in_turn = move || {
            let done = work();
            drop(turn);
            done
        };
        cpu::run_as(Queued::server("policies"), in_turn).await
    }
}

/// Who is calling: a live token and what its policies grant.
#[derive(Clone)]
pub struct Caller {
    /// Public handle of the token; `""` for a batch token. Whoever has it may end the token: it goes into no log and no row.
    pub accessor: String,
    /// What requests that may be repeated are told apart by: SHA-256 of the accessor, hex, as stored beside
    /// the token; of a batch token, which has none, that of its text.
    pub recorded_as: String,
    /// How records of what was done name the caller: [`requester`].
    pub requester: String,
    /// What the token was named when it was made.
    pub display_name: String,
    /// The entity behind it; `""` for none.
    pub entity_id: String,
    /// The same, as it was when the token was looked at last.
    pub entity: Option<EntityRef>,
    /// Names of its own policies, sorted.
    pub policies: Vec<String>,
    /// What its maker attached to it.
    pub metadata: BTreeMap<String, String>,
    /// When the token was made.
    pub created_at: Time,
    /// When it ends; `None` never.
    pub expires_at: Option<Time>,
    /// The login that the token began with.
    pub login: Option<LoggedIn>,
    /// Where the token may be used; anywhere when empty.
    pub bound_cidrs: Vec<Network>,
    counts_as: String,
    hash: TokenHash,
    /// Uses left after this one; `None` without a limit.
    uses_left: Option<u32>,
    /// What the token says, when it is stored nowhere.
    batch: Option<Arc<Batch>>,
    acl: Arc<Acl>,
    generation: u64,
    /// What is made of all this where it is written down.
    pub derived: Derived,
}

impl Caller {
    /// Whether it holds the `root` policy.
    pub fn is_root(&self) -> bool {
        // `root` is only ever held alone.
        self.policies.first().is_some_and(|name| name == ROOT)
    }

    /// What one caller may have of something is counted under this: whoever made the token without `sudo`, else its
    /// entity, else itself. Whoever may hand out tokens has no more by them.
    pub fn counts_as(&self) -> &str {
        let all = [&self.counts_as, &self.entity_id, &self.recorded_as];
        all.into_iter().find(|one| !one.is_empty()).map_or("", |one| one)
    }

    /// Whether its rules are so many that looking them up may take a while.
    pub fn is_heavy(&self) -> bool {
        self.acl.is_heavy()
    }

    /// Names of the policies that it has by its entity, sorted.
    pub fn identity_policies(&self) -> &[String] {
        self.entity.as_ref().map_or(&[], |entity| &entity.policies)
    }

    /// Names of all of its policies: its own, and those that it has by its entity.
    fn all_policies(&self) -> Vec<String> {
        identity::together(&self.policies, self.identity_policies())
    }

    /// Who fills the templates of its policies.
    fn identity(&self) -> Option<&dyn Identity> {
        self.entity.as_ref().map(|entity| &**entity as &dyn Identity)
    }

    /// SHA-256 of its token: what a stored token is stored under.
    pub fn token_hash(&self) -> TokenHash {
        self.hash
    }

    /// Whether its token is a batch token, which is stored nowhere and owns nothing.
    pub fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// The stored token with which the leases end that the caller makes: its own, of a batch token its parent;
    /// `None` for a batch token without one.
    pub fn lease_owner(&self) -> Option<TokenHash> {
        self.batch.as_ref().map_or(Some(self.hash), |batch| batch.parent())
    }

    /// Uses left after this request; `None` without a limit.
    pub fn uses_left(&self) -> Option<u32> {
        self.uses_left
    }

    /// Whether the token may be used there. A root token without an end may be used anywhere.
    pub fn may_be_at(&self, address: Option<IpAddr>) -> bool {
        (self.is_root() && self.expires_at.is_none()) || Network::any_admits(&self.bound_cidrs, address)
    }

    /// Refuses who is not where the token may be used.
    fn at(self: Arc<Self>, address: Option<IpAddr>) -> Result<Arc<Self>> {
        if self.may_be_at(address) { Ok(self) } else { Err(Error::forbidden()) }
    }

    fn is_current(&self, policies: &Policies, now: Time) -> bool {
        self.generation == policies.generation()
            && self.entity.as_ref().is_none_or(|entity| !entity.is_changed())
            && self.expires_at.is_none_or(|end| now < end)
            && self.acl.valid_until().is_none_or(|end| now < end)
    }
}

/// What a caller's token is, beside its record.
struct Held {
    hash: TokenHash,
    recorded_as: TokenHash,
    expires_at: Option<Time>,
    uses: Option<u32>,
    batch: Option<Arc<Batch>>,
}

impl Held {
    /// Of a token that is stored.
    fn of(row: &TokenRow) -> Self {
        let TokenRow { hash, accessor_hash: recorded_as, expires_at, uses, .. } = *row;
        Self { hash, recorded_as, expires_at, uses, batch: None }
    }
}

/// Tokens, policies and the mount table of one server.
pub struct Auth {
    store: Arc<dyn AuthStore>,
    clock: Clock,
    policies: ArcSwap<Policies>,
    /// Unions of policies that are compiled: for whoever is to be admitted.
    large: Large,
    mounts: ArcSwap<MountTable>,
    token_roles: ArcSwap<RoleTable>,
    quotas: ArcSwap<Quotas>,
    cors: ArcSwap<Cors>,
    tokens: TokenCache,
    /// Shared by those who end tokens in several commits; a sweep begins alone, for it would take some of them away.
    ending: tokio::sync::RwLock<()>,
    /// Held while tokens are tidied because somebody asked for it.
    tidying: Arc<tokio::sync::Mutex<()>>,
    entities: Entities,
    logins: Logins,
    /// Held while a policy, a mount or a quota changes. Callers take turns.
    writing: Entrance,
    /// A write failed, perhaps after it was stored, and what is stored could not be read since. Changes
    /// only under `writing`.
    behind: AtomicBool,
}

impl Auth {
    /// Loads policies, mounts, token roles and quotas; writes the `default` policy when there is none. Authentication
    /// methods have their usual settings.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open(store: Arc<dyn AuthStore>, clock: Clock) -> Result<Arc<Self>> {
        Self::open_with(store, clock, LoginSettings::default()).await
    }

    /// As [`Auth::open`], with other settings of authentication methods.
    ///
    /// # Errors
    /// Those of the store; `Invalid` for settings that cannot be used, naming them.
    pub async fn open_with(store: Arc<dyn AuthStore>, clock: Clock, logins: LoginSettings) -> Result<Arc<Self>> {
        policies::ensure_default(&*store, &clock).await?;
        let policies = policies::load(&*store, None).await?;
        let mounts = mounts::load(&*store).await?;
        mounts::name_all(&mounts);
        let token_roles = RoleTable::load(&*store).await?;
        let quotas = quotas::load(&*store, None).await?;
        let cors = cors::load(&*store).await?;
        Ok(Arc::new(Self {
            logins: Logins::new(Arc::clone(&store), logins, clock.clone())?,
            store,
            clock,
            policies: ArcSwap::from_pointee(policies),
            large: Large::default(),
            mounts: ArcSwap::from_pointee(mounts),
            token_roles: ArcSwap::from_pointee(token_roles),
            ending: tokio::sync::RwLock::new(()),
            tidying: Arc::default(),
            quotas: ArcSwap::from_pointee(quotas),
            cors: ArcSwap::from_pointee(cors),
            tokens: TokenCache::default(),
            entities: Entities::default(),
            writing: Entrance::new(1),
            behind: AtomicBool::new(false),
        }))
    }

    /// The authentication methods that are open.
    pub(crate) fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Reads policies, mounts and quotas again: for the follower of other nodes' changes.
    ///
    /// # Errors
    /// Those of the store; the views then stay as they were.
    pub async fn reload(&self) -> Result<()> {
        let _one_writer = self.writing.enter(Queued::SERVER.asker()).await;
        self.reload_held().await
    }

    /// Reads policies, mounts and quotas again when a write failed and may be stored all the same; whether it
    /// did. To be called again and again.
    ///
    /// # Errors
    /// Those of the store; the views then stay as they were.
    pub async fn catch_up(&self) -> Result<bool> {
        let behind = self.behind.load(Ordering::Relaxed);
        if behind {
            self.reload().await?;
        }
        Ok(behind)
    }

    /// The permit of the one writer, in the turn of the current caller.
    ///
    /// # Errors
    /// `Busy` when too many writes of the caller wait.
    async fn turn_to_write(&self) -> Result<Permit> {
        self.writing.enter_bounded(TOO_MANY_CHANGES).await
    }

    /// The permit of the one writer, with views that show what is stored.
    async fn writer(&self) -> Result<Permit> {
        let one_writer = self.turn_to_write().await?;
        if self.behind.load(Ordering::Relaxed) {
            self.reload_held().await?;
        }
        Ok(one_writer)
    }

    /// After a write that failed with `error`: it may be stored all the same, or another node's is. What
    /// is stored decides, now or as soon as it can be read.
    async fn recheck(&self, error: &Error) {
        // What was not admitted is not stored.
        if error.kind() != Kind::Busy && self.reload_held().await.is_err() {
            self.behind.store(true, Ordering::Relaxed);
        }
    }

    async fn reload_held(&self) -> Result<()> {
        self.reload_policies().await?;
        self.reload_mounts().await?;
        self.reload_token_roles().await?;
        self.reload_quotas().await?;
        self.reload_cors().await?;
        self.behind.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The caller behind a token, of whom it is not known yet whether there will be a request. `address` is where
    /// they are.
    ///
    /// # Errors
    /// `Forbidden` with one text, whether the token is absent, unknown, expired, used up, revoked or bound to
    /// other addresses; otherwise those of the store.
    pub async fn recognise(&self, token: &str, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        let caller = match is_batch(token) {
            true => self.batch_caller(token).await?,
            false => self.current(hash_of(token).ok_or_else(Error::forbidden)?).await?,
        };
        caller.at(address)
    }

    /// The same caller now that there is a request, which may be a while later. Takes one use of a token
    /// that has a limit, whatever comes after.
    ///
    /// # Errors
    /// As [`Auth::recognise`].
    pub async fn admit(&self, caller: Arc<Caller>, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        let current = self.as_it_stands(&caller, address).await?;
        if current.uses_left.is_none() {
            return Ok(current);
        }
        let uses_left = Some(self.spend(caller.hash).await?);
        Ok(Arc::new(Caller { uses_left, ..Arc::unwrap_or_clone(current) }))
    }

    /// An admitted caller while its answer is on the way: what was granted may have been taken away since. Of a token that
    /// ended with the use that the request took nothing is known but when it expires.
    ///
    /// # Errors
    /// As [`Auth::recognise`].
    pub async fn again(&self, caller: &Arc<Caller>, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        if caller.uses_left != Some(0) {
            return self.as_it_stands(caller, address).await;
        }
        let lives = caller.expires_at.is_none_or(|end| self.clock.now() < end);
        if lives { Ok(Arc::clone(caller)) } else { Err(Error::forbidden()) }
    }

    async fn as_it_stands(&self, caller: &Caller, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        let current = match &caller.batch {
            Some(batch) => self.batch_again(caller.hash, batch).await?,
            None => self.current(caller.hash).await?,
        };
        current.at(address)
    }

    /// The caller as it stands. One whose token has a limit is never kept.
    async fn current(&self, hash: TokenHash) -> Result<Arc<Caller>> {
        let now = self.clock.now();
        if let Some(caller) = self.tokens.get(&hash, now).filter(|caller| caller.is_current(&self.policies.load(), now))
        {
            return Ok(caller);
        }
        let epoch = self.tokens.epoch(&hash);
        let row = self.live_row(hash).await?.ok_or_else(Error::forbidden)?;
        let caller = self.caller(&row).await?;
        if row.uses.is_none() && !caller.is_heavy() {
            // As old as the older of what it was made of.
            let read_at = caller.entity.as_ref().map_or(now, |entity| entity.read_at().min(now));
            self.tokens.put(hash, Arc::clone(&caller), read_at, epoch);
        }
        Ok(caller)
    }

    /// Keeps a caller whose token has no limit of uses, so that it is known while the store cannot be asked.
    pub fn keep(&self, caller: &Caller) {
        if caller.uses_left.is_none() && !caller.is_batch() {
            self.tokens.keep(caller.hash, self.clock.now());
        }
    }

    /// The caller behind a token that was [kept](Auth::keep) within the last day, where nothing has changed since that
    /// this node knows of: the token has not ended here, and neither it nor its entity nor any policy has changed.
    pub fn kept(&self, token: &str, address: Option<IpAddr>) -> Option<Arc<Caller>> {
        let now = self.clock.now();
        let caller = self.tokens.kept(&hash_of(token)?, now)?;
        (caller.is_current(&self.policies.load(), now) && caller.may_be_at(address)).then_some(caller)
    }

    async fn spend(&self, hash: TokenHash) -> Result<u32> {
        match self.store.commit(vec![AuthWrite::TokenSpend(hash)]).await?.as_slice() {
            [AuthOutcome::UsesLeft(left)] => Ok(*left),
            _ => Err(Error::forbidden()),
        }
    }

    /// The row of a token that is there, has not expired and is not used up.
    async fn live_row(&self, hash: TokenHash) -> Result<Option<TokenRow>> {
        Ok(self.store.token(hash).await?.filter(|row| self.is_live(row)))
    }

    fn is_live(&self, row: &TokenRow) -> bool {
        row.expires_at.is_none_or(|end| self.clock.now() < end) && row.uses != Some(0)
    }

    /// Who is behind a row; `Forbidden` when its entity is gone or disabled.
    async fn caller(&self, row: &TokenRow) -> Result<Arc<Caller>> {
        self.caller_of(Record::of(row)?, Held::of(row)).await
    }

    /// Who holds a token, by what is known of it; `Forbidden` when its entity is gone or disabled.
    async fn caller_of(&self, record: Record, held: Held) -> Result<Arc<Caller>> {
        let entity = self.entity_behind(&record.entity_id).await?;
        let began = Instant::now();
        let caller = self.caller_with(record, held, entity).await?;
        if began.elapsed() >= A_WHILE {
            self.check_again(&caller).await?;
        }
        Ok(caller)
    }

    /// After a caller has waited for a large union: whoever has been revoked meanwhile is nobody, and whose entity has
    /// changed asks again.
    async fn check_again(&self, caller: &Caller) -> Result<()> {
        let stored = caller.batch.as_ref().map_or(Some(caller.hash), |batch| batch.parent());
        if let Some(hash) = stored
            && self.live_row(hash).await?.is_none()
        {
            return Err(Error::forbidden());
        }
        let entity = self.entity_behind(&caller.entity_id).await?;
        if entity.map_or(Vec::new(), |entity| entity.policies.clone()) != caller.identity_policies() {
            return Err(Error::new(Kind::Busy, "what the caller may do has changed meanwhile, try again"));
        }
        Ok(())
    }

    /// Who holds a token, with this entity behind it.
    async fn caller_with(&self, record: Record, held: Held, entity: Option<EntityRef>) -> Result<Arc<Caller>> {
        let names = match &entity {
            None => record.policies.clone(),
            Some(entity) => identity::together(&record.policies, &entity.policies),
        };
        let filler = entity.as_ref().map(|entity| entity.entity() as Arc<dyn policies::Filler + Send + Sync>);
        let mut policies = self.policies.load_full();
        let mut acl = policies.acl(&names, filler.clone(), &self.clock, &self.large).await?;
        // A large union takes a while: what counts is what the policies say now.
        while !self.policies.load().agree(&policies, &names) {
            policies = self.policies.load_full();
            acl = policies.acl(&names, filler.clone(), &self.clock, &self.large).await?;
        }
        if policies.began_anew() {
            self.tokens.prune(self.clock.now());
        }
        Ok(Arc::new(Caller {
            accessor: record.accessor,
            recorded_as: held.recorded_as.iter().map(|b| format!("{b:02x}")).collect(),
            requester: requester::recorded(&held.recorded_as, &record.entity_id, &record.display_name),
            display_name: record.display_name,
            entity_id: record.entity_id,
            entity,
            policies: record.policies,
            metadata: record.meta,
            created_at: record.created_at,
            expires_at: held.expires_at,
            login: record.login,
            bound_cidrs: record.bound_cidrs,
            counts_as: record.counts_as,
            hash: held.hash,
            uses_left: held.uses,
            batch: held.batch,
            acl,
            generation: policies.generation(),
            derived: Derived::default(),
        }))
    }

    /// Whether the caller may do `operation` there; without parameters, whether it may with any.
    pub fn decide(
        &self,
        caller: &Caller,
        operation: Operation,
        place: Place<'_>,
        parameters: Option<&Parameters<'_>>,
    ) -> Decision {
        if caller.is_root() {
            return Decision { allowed: true, sudo: true };
        }
        caller.acl.decide(operation, place, parameters)
    }

    /// The words of what the caller may do there: `root` for everything, `deny` for nothing.
    pub fn capabilities(&self, caller: &Caller, place: Place<'_>) -> Vec<&'static str> {
        if caller.is_root() {
            return vec![ROOT];
        }
        let granted = caller.acl.capabilities(place);
        if granted.is_empty() { vec!["deny"] } else { granted.words() }
    }

    /// Whether the caller may do anything at the path of a mount, or below it.
    pub fn reaches(&self, caller: &Caller, mount: &mounts::Mount) -> bool {
        caller.is_root() || caller.acl.reaches(&mount.path)
    }

    /// The caller that a token would be, without taking a use of it; `None` when it is not live.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn caller_by_token(&self, token: &str) -> Result<Option<Arc<Caller>>> {
        if is_batch(token) {
            return live(self.batch_caller(token).await);
        }
        let Some(hash) = hash_of(token) else { return Ok(None) };
        match self.live_row(hash).await? {
            Some(row) => live(self.caller(&row).await),
            None => Ok(None),
        }
    }

    /// As [`Auth::caller_by_token`], by accessor.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn caller_by_accessor(&self, accessor: &str) -> Result<Option<Arc<Caller>>> {
        match self.row_by_accessor(accessor).await? {
            Some(row) => live(self.caller(&row).await),
            None => Ok(None),
        }
    }
}

/// A token whose entity is gone or disabled is not live.
fn live<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::Forbidden => Ok(None),
        found => found.map(Some),
    }
}
