//! Authentication and authorization: tokens, policies, the mount table.
//!
//! Every request passes [`Auth`] in three steps: [`Auth::recognise`] before the body is read, [`Auth::admit`] after the
//! body has arrived, and [`Auth::decide`] for the requested path. Policies and mounts are immutable snapshots
//! ("views"), replaced as a whole after a change. Tokens are indexed rows of the store behind a bounded cache
//! (`cache`).
//!
//! Tokens are stored under their SHA-256, so the database contains no usable token. A token has 220 random bits, so its
//! hash needs no salt.

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
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::clock::{Clock, Time};
use crate::derived_values::DerivedValues;
use crate::documents::TOO_MANY_CHANGES;
use crate::error::{Error, Kind, Result};
use crate::rationing::{FairSemaphore, Permit, QueueCaller, cpu};
use crate::templates::TemplateValues;
use cache::TokenCache;
use cors::Cors;
use identity::{EntityCache, EntityRef};
pub use login::LoginSettings;
use login::Logins;
pub use login::cloudb::{CloudbFallback, CloudbSettings, CloudbUrls};
use mounts::MountTable;
use policies::Policies;
use policy::{Acl, Decision, Operation, RequestParameters, RequestPath};
use quotas::Quotas;
use store::{AuthOutcome, AuthStore, AuthWrite, TokenHash, TokenRow};
use token::{BatchToken, Network, TokenLogin, TokenRecord, TokenRoleTable, hash_of, is_batch};

/// The name of the policy that grants everything. It is built in and has no policy text.
pub const ROOT_POLICY: &str = "root";

/// If compiling a caller's policies takes at least this long, the caller's token is read from the store again before
/// the request continues.
const MIN_RECHECKED_COMPILE_TIME: Duration = Duration::from_millis(20);

/// Compiles large unions (combinations of policies) one at a time, so that callers with the same policies share one
/// compilation.
#[derive(Default)]
struct UnionCompiler(Arc<tokio::sync::Mutex<()>>);

impl UnionCompiler {
    /// Runs `work` in the queue for CPU-bound work, one job at a time, if `is_long`; otherwise runs it immediately.
    async fn run<T: Send + 'static>(&self, is_long: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        if !is_long {
            return Ok(work());
        }
        let compilation_lock = Arc::clone(&self.0).lock_owned().await;
        let locked_work = move || {
            let done = work();
            drop(compilation_lock);
            done
        };
        cpu::run_as(QueueCaller::server("policies"), locked_work).await
    }
}

/// The caller of a request: a live token and the rights that its policies grant.
#[derive(Clone)]
pub struct Caller {
    /// The token's accessor, a handle with which operators look up or revoke the token; `""` for a batch token. Never
    /// logged or stored, because the accessor is enough to revoke the token.
    pub accessor: String,
    /// Identity of the caller for idempotency keys: the hex hash of the accessor, or of the token itself for a batch
    /// token.
    pub recorded_as: String,
    /// The caller's requester record (accessor hash, entity id, display name), as stored with certificates and other
    /// records; see [`requester`].
    pub requester: String,
    /// Display name of the token, set when the token was created.
    pub display_name: String,
    /// Id of the token's entity; `""` for none.
    pub entity_id: String,
    /// The token's entity as of the last read of the token; `None` for none.
    pub entity: Option<EntityRef>,
    /// Names of the policies attached to the token itself, without those of its entity; sorted.
    pub policies: Vec<String>,
    /// Metadata attached to the token when it was created.
    pub metadata: BTreeMap<String, String>,
    /// Time at which the token was created.
    pub created_at: Time,
    /// Time at which the token expires; `None` for never.
    pub expires_at: Option<Time>,
    /// The login that created the token; `None` if no login created it.
    pub login: Option<TokenLogin>,
    /// Networks from which the token may be used; empty for any.
    pub bound_cidrs: Vec<Network>,
    /// The [limit key](Caller::limit_key) of the token's creator; empty if the token has limits of its own.
    counts_as: String,
    hash: TokenHash,
    uses_left: Option<u32>,
    batch: Option<Arc<BatchToken>>,
    acl: Arc<Acl>,
    generation: u64,
    /// Cache of values derived from this caller, such as its representation in audit entries.
    pub derived: DerivedValues,
}

impl Caller {
    /// `true` if the caller's token has the `root` policy.
    pub fn is_root(&self) -> bool {
        // A token with `root` has no other policy.
        self.policies.first().is_some_and(|name| name == ROOT_POLICY)
    }

    /// The key under which per-caller limits count this caller's requests. A token created without `sudo` counts as its
    /// creator. Any other token counts as its entity or, if it has no entity, as itself. So creating tokens does not
    /// raise a caller's limits.
    pub fn limit_key(&self) -> &str {
        let all = [&self.counts_as, &self.entity_id, &self.recorded_as];
        all.into_iter().find(|one| !one.is_empty()).map_or("", |one| one)
    }

    /// `true` if the caller's compiled policies are so large that the token cache must not keep the caller.
    pub fn is_too_large_to_cache(&self) -> bool {
        self.acl.is_too_large_to_cache()
    }

    /// Names of the policies of the caller's entity, sorted.
    pub fn identity_policies(&self) -> &[String] {
        self.entity.as_ref().map_or(&[], |entity| &entity.policies)
    }

    fn all_policies(&self) -> Vec<String> {
        identity::merge_policy_names(&self.policies, self.identity_policies())
    }

    /// The entity whose values fill the templates in the caller's policies; `None` without an entity.
    fn identity(&self) -> Option<&dyn TemplateValues> {
        self.entity.as_ref().map(|entity| &**entity as &dyn TemplateValues)
    }

    /// SHA-256 of the token, the key of the token's row in the store.
    pub fn token_hash(&self) -> TokenHash {
        self.hash
    }

    /// `true` if the caller's token is a batch token, which is not stored and owns no leases or child tokens.
    pub fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Hash of the stored token that owns the caller's leases: the caller's own token or, for a batch token, its
    /// parent. The leases are revoked together with that token. `None` for a batch token without a parent.
    pub fn lease_owner(&self) -> Option<TokenHash> {
        self.batch.as_ref().map_or(Some(self.hash), |batch| batch.parent())
    }

    /// Number of uses that the token has left after this request; `None` if uses are not limited.
    pub fn uses_left(&self) -> Option<u32> {
        self.uses_left
    }

    /// `true` if the token may be used from this client address. A root token that never expires may be used from any
    /// address.
    pub fn allows_address(&self, address: Option<IpAddr>) -> bool {
        (self.is_root() && self.expires_at.is_none()) || Network::list_allows_address(&self.bound_cidrs, address)
    }

    fn require_address(self: Arc<Self>, address: Option<IpAddr>) -> Result<Arc<Self>> {
        if self.allows_address(address) { Ok(self) } else { Err(Error::forbidden()) }
    }

    fn is_current(&self, policies: &Policies, now: Time) -> bool {
        self.generation == policies.generation()
            && self.entity.as_ref().is_none_or(|entity| !entity.is_changed())
            && self.expires_at.is_none_or(|end| now < end)
            && self.acl.valid_until().is_none_or(|end| now < end)
    }
}

/// The properties of a token that its [`TokenRecord`] does not contain: hashes, expiry, remaining uses and, for a batch
/// token, its decrypted content.
struct TokenState {
    hash: TokenHash,
    recorded_as: TokenHash,
    expires_at: Option<Time>,
    uses: Option<u32>,
    batch: Option<Arc<BatchToken>>,
}

impl TokenState {
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
    union_compiler: UnionCompiler,
    mounts: ArcSwap<MountTable>,
    token_roles: ArcSwap<TokenRoleTable>,
    quotas: ArcSwap<Quotas>,
    cors: ArcSwap<Cors>,
    tokens: TokenCache,
    /// A revocation that needs several commits holds this lock shared. A sweep holds it exclusively, because a sweep
    /// could remove tokens that such a revocation still has to read.
    revocation_lock: tokio::sync::RwLock<()>,
    /// Held while a token tidy that an operator requested (`auth/token/tidy`) runs.
    tidy_lock: Arc<tokio::sync::Mutex<()>>,
    entities: EntityCache,
    logins: Logins,
    /// Serializes changes of policies, mounts, roles and quotas: a fair queue with one slot.
    write_lock: FairSemaphore,
    /// `true` if a write failed, the store may nevertheless have committed it, and the state was not reloaded
    /// afterwards. Changes only while `write_lock` is held.
    write_outcome_unknown: AtomicBool,
}

impl Auth {
    /// Loads policies, mounts, token roles and quotas from the store, and writes the `default` policy if it is missing.
    /// Uses the default login settings.
    ///
    /// # Errors
    /// Store errors.
    pub async fn open(store: Arc<dyn AuthStore>, clock: Clock) -> Result<Arc<Self>> {
        Self::open_with(store, clock, LoginSettings::default()).await
    }

    /// Loads the stored state like [`Auth::open`], but with the settings `logins` for authentication methods.
    ///
    /// # Errors
    /// Store errors; `Invalid`, naming the setting, for unusable settings.
    pub async fn open_with(store: Arc<dyn AuthStore>, clock: Clock, logins: LoginSettings) -> Result<Arc<Self>> {
        policies::ensure_default_policy(&*store, &clock).await?;
        let policies = policies::load(&*store, None).await?;
        let mounts = mounts::load(&*store).await?;
        mounts::register_names(&mounts);
        let token_roles = TokenRoleTable::load(&*store).await?;
        let quotas = quotas::load(&*store, None).await?;
        let cors = cors::load(&*store).await?;
        Ok(Arc::new(Self {
            logins: Logins::new(Arc::clone(&store), logins, clock.clone())?,
            store,
            clock,
            policies: ArcSwap::from_pointee(policies),
            union_compiler: UnionCompiler::default(),
            mounts: ArcSwap::from_pointee(mounts),
            token_roles: ArcSwap::from_pointee(token_roles),
            revocation_lock: tokio::sync::RwLock::new(()),
            tidy_lock: Arc::default(),
            quotas: ArcSwap::from_pointee(quotas),
            cors: ArcSwap::from_pointee(cors),
            tokens: TokenCache::default(),
            entities: EntityCache::default(),
            write_lock: FairSemaphore::new(1),
            write_outcome_unknown: AtomicBool::new(false),
        }))
    }

    /// Returns the registry of the authentication mounts that are open on this node.
    pub(crate) fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Reloads policies, mounts, roles and quotas after a change by another node.
    ///
    /// # Errors
    /// Store errors; the views stay unchanged.
    pub async fn reload(&self) -> Result<()> {
        let _one_writer = self.write_lock.acquire(QueueCaller::SERVER.caller_id()).await;
        self.reload_locked().await
    }

    /// Reloads policies, mounts, token roles and quotas if an earlier write failed with an unknown outcome. Returns
    /// `true` if it reloaded them. Called periodically.
    ///
    /// # Errors
    /// Store errors; the views stay unchanged.
    pub async fn reload_after_unknown_write(&self) -> Result<bool> {
        let behind = self.write_outcome_unknown.load(Ordering::Relaxed);
        if behind {
            self.reload().await?;
        }
        Ok(behind)
    }

    /// Waits in the queue of the current caller for the permit to write policies, mounts, roles or quotas.
    ///
    /// # Errors
    /// `Busy` when too many writes of the caller are waiting already.
    async fn acquire_write_permit(&self) -> Result<Permit> {
        self.write_lock.acquire_bounded(TOO_MANY_CHANGES).await
    }

    /// Waits for the permit to write policies, mounts, roles or quotas. Reloads the views first if the outcome of an
    /// earlier write is unknown.
    async fn write_permit(&self) -> Result<Permit> {
        let one_writer = self.acquire_write_permit().await?;
        if self.write_outcome_unknown.load(Ordering::Relaxed) {
            self.reload_locked().await?;
        }
        Ok(one_writer)
    }

    /// Commits `unit`, a list of writes, in one transaction. If the commit fails, reloads the views, because the store
    /// may have committed the unit nevertheless, or another node may have changed the state first. If the reload fails
    /// too, [`Auth::reload_after_unknown_write`] repeats it.
    async fn commit_or_reload(&self, unit: Vec<AuthWrite>) -> Result<()> {
        let stored = self.store.commit(unit).await;
        // `Busy` means that the store did not accept the write, so nothing has changed.
        let may_differ = stored.as_ref().is_err_and(|error| error.kind() != Kind::Busy);
        if may_differ && self.reload_locked().await.is_err() {
            self.write_outcome_unknown.store(true, Ordering::Relaxed);
        }
        stored.map(drop)
    }

    async fn reload_locked(&self) -> Result<()> {
        self.reload_policies().await?;
        self.reload_mounts().await?;
        self.reload_token_roles().await?;
        self.reload_quotas().await?;
        self.reload_cors().await?;
        self.write_outcome_unknown.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the caller that `token` identifies, before the rest of the request has arrived. `address` is the
    /// client's.
    ///
    /// # Errors
    /// `Forbidden`, always with the same text, if the token is missing, unknown, expired, used up, revoked or not
    /// allowed from this address; store errors.
    pub async fn recognise(&self, token: &str, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        let caller = match is_batch(token) {
            true => self.batch_caller(token).await?,
            false => self.caller_by_hash(hash_of(token).ok_or_else(Error::forbidden)?).await?,
        };
        caller.require_address(address)
    }

    /// Checks a caller again after the whole request has arrived. If the token has a limited number of uses, takes one
    /// use, which is not returned if the request fails later.
    ///
    /// # Errors
    /// As [`Auth::recognise`].
    pub async fn admit(&self, caller: Arc<Caller>, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        let current = self.current_caller(&caller, address).await?;
        if current.uses_left.is_none() {
            return Ok(current);
        }
        let uses_left = Some(self.spend_token_use(caller.hash).await?);
        Ok(Arc::new(Caller { uses_left, ..Arc::unwrap_or_clone(current) }))
    }

    /// Checks an admitted caller again while its response is being sent, because its token may have been revoked in the
    /// meantime. If the request took the token's last use, only the expiry can be checked.
    ///
    /// # Errors
    /// As [`Auth::recognise`].
    pub async fn recheck_caller(&self, caller: &Arc<Caller>, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        if caller.uses_left != Some(0) {
            return self.current_caller(caller, address).await;
        }
        let lives = caller.expires_at.is_none_or(|end| self.clock.now() < end);
        if lives { Ok(Arc::clone(caller)) } else { Err(Error::forbidden()) }
    }

    async fn current_caller(&self, caller: &Caller, address: Option<IpAddr>) -> Result<Arc<Caller>> {
        let current = match &caller.batch {
            Some(batch) => self.recheck_batch(caller.hash, batch).await?,
            None => self.caller_by_hash(caller.hash).await?,
        };
        current.require_address(address)
    }

    /// Returns the caller of a stored token, from the cache or the store. Callers whose token has limited uses are
    /// never cached.
    async fn caller_by_hash(&self, hash: TokenHash) -> Result<Arc<Caller>> {
        let now = self.clock.now();
        if let Some(caller) = self.tokens.get(&hash, now).filter(|caller| caller.is_current(&self.policies.load(), now))
        {
            return Ok(caller);
        }
        let epoch = self.tokens.epoch(&hash);
        let row = self.live_row(hash).await?.ok_or_else(Error::forbidden)?;
        let caller = self.caller_of_row(&row).await?;
        if row.uses.is_none() && !caller.is_too_large_to_cache() {
            // The caller is built from two reads, of the token and of the entity; the older read determines its age.
            let read_at = caller.entity.as_ref().map_or(now, |entity| entity.read_at().min(now));
            self.tokens.put(hash, Arc::clone(&caller), read_at, epoch);
        }
        Ok(caller)
    }

    /// Remembers a caller for a day, so that its token is accepted while the store is unavailable. Does nothing for a
    /// batch token or a token with limited uses.
    pub fn remember_for_outage(&self, caller: &Caller) {
        if caller.uses_left.is_none() && !caller.is_batch() {
            self.tokens.remember(caller.hash, self.clock.now());
        }
    }

    /// Returns the caller of a token that was [remembered](Auth::remember_for_outage) within the last day. Returns
    /// `None` if this node knows of a later change: the token was revoked or expired, or its entity or a policy was
    /// changed.
    pub fn remembered_caller(&self, token: &str, address: Option<IpAddr>) -> Option<Arc<Caller>> {
        let now = self.clock.now();
        let caller = self.tokens.remembered_caller(&hash_of(token)?, now)?;
        (caller.is_current(&self.policies.load(), now) && caller.allows_address(address)).then_some(caller)
    }

    async fn spend_token_use(&self, hash: TokenHash) -> Result<u32> {
        match self.store.commit(vec![AuthWrite::TokenSpend(hash)]).await?.as_slice() {
            [AuthOutcome::UsesLeft(left)] => Ok(*left),
            _ => Err(Error::forbidden()),
        }
    }

    /// Returns the row of a token that exists, has not expired and has uses left.
    async fn live_row(&self, hash: TokenHash) -> Result<Option<TokenRow>> {
        Ok(self.store.token(hash).await?.filter(|row| self.is_live(row)))
    }

    fn is_live(&self, row: &TokenRow) -> bool {
        row.expires_at.is_none_or(|end| self.clock.now() < end) && row.uses != Some(0)
    }

    /// Returns the caller of the token in `row`; `Forbidden` when the token's entity is deleted or disabled.
    async fn caller_of_row(&self, row: &TokenRow) -> Result<Arc<Caller>> {
        self.caller_of_record(TokenRecord::of(row)?, TokenState::of(row)).await
    }

    /// Returns the caller of the token with this record; `Forbidden` when the token's entity is deleted or disabled.
    async fn caller_of_record(&self, record: TokenRecord, token_state: TokenState) -> Result<Arc<Caller>> {
        let entity = self.enabled_entity(&record.entity_id).await?;
        let began = Instant::now();
        let caller = self.build_caller(record, token_state, entity).await?;
        if began.elapsed() >= MIN_RECHECKED_COMPILE_TIME {
            self.recheck_after_slow_compile(&caller).await?;
        }
        Ok(caller)
    }

    /// Checks a caller again after it has waited for a slow compilation of its policies: `Forbidden` if its token was
    /// revoked in the meantime, `Busy` if the policies of its entity changed.
    async fn recheck_after_slow_compile(&self, caller: &Caller) -> Result<()> {
        let stored = caller.batch.as_ref().map_or(Some(caller.hash), |batch| batch.parent());
        if let Some(hash) = stored
            && self.live_row(hash).await?.is_none()
        {
            return Err(Error::forbidden());
        }
        let entity = self.enabled_entity(&caller.entity_id).await?;
        if entity.map_or(Vec::new(), |entity| entity.policies.clone()) != caller.identity_policies() {
            return Err(Error::new(Kind::Busy, "the caller's rights changed while the request waited; retry"));
        }
        Ok(())
    }

    async fn build_caller(
        &self,
        record: TokenRecord,
        token_state: TokenState,
        entity: Option<EntityRef>,
    ) -> Result<Arc<Caller>> {
        let names = match &entity {
            None => record.policies.clone(),
            Some(entity) => identity::merge_policy_names(&record.policies, &entity.policies),
        };
        let filler =
            entity.as_ref().map(|entity| entity.entity() as Arc<dyn policies::VersionedTemplateValues + Send + Sync>);
        let mut policies = self.policies.load_full();
        let mut acl = policies.acl(&names, filler.clone(), &self.clock, &self.union_compiler).await?;
        // Compiling a large union of policies takes time, in which a policy may have changed.
        while !self.policies.load().have_same_policies(&policies, &names) {
            policies = self.policies.load_full();
            acl = policies.acl(&names, filler.clone(), &self.clock, &self.union_compiler).await?;
        }
        if policies.take_emptied_flag() {
            self.tokens.prune(self.clock.now());
        }
        Ok(Arc::new(Caller {
            accessor: record.accessor,
            recorded_as: token_state.recorded_as.iter().map(|b| format!("{b:02x}")).collect(),
            requester: requester::render_requester(&token_state.recorded_as, &record.entity_id, &record.display_name),
            display_name: record.display_name,
            entity_id: record.entity_id,
            entity,
            policies: record.policies,
            metadata: record.meta,
            created_at: record.created_at,
            expires_at: token_state.expires_at,
            login: record.login,
            bound_cidrs: record.bound_cidrs,
            counts_as: record.counts_as,
            hash: token_state.hash,
            uses_left: token_state.uses,
            batch: token_state.batch,
            acl,
            generation: policies.generation(),
            derived: DerivedValues::default(),
        }))
    }

    /// Decides whether the caller may perform `operation` at `request_path`. If `parameters` is `None`, checks the
    /// capabilities only.
    pub fn decide(
        &self,
        caller: &Caller,
        operation: Operation,
        request_path: RequestPath<'_>,
        parameters: Option<&RequestParameters<'_>>,
    ) -> Decision {
        if caller.is_root() {
            return Decision { allowed: true, sudo: true };
        }
        caller.acl.decide(operation, request_path, parameters)
    }

    /// Returns the names of the caller's capabilities at `request_path`: `root` alone for a root token, `deny` alone if
    /// nothing is granted.
    pub fn capabilities(&self, caller: &Caller, request_path: RequestPath<'_>) -> Vec<&'static str> {
        if caller.is_root() {
            return vec![ROOT_POLICY];
        }
        let granted = caller.acl.capabilities(request_path);
        if granted.is_empty() { vec!["deny"] } else { granted.names() }
    }

    /// `true` if the caller's policies grant anything at or below the path of `mount`.
    pub fn grants_below_mount(&self, caller: &Caller, mount: &mounts::Mount) -> bool {
        caller.is_root() || caller.acl.grants_below_mount(&mount.path)
    }

    /// Returns the caller that a token identifies, without taking a use of the token; `None` if the token is unknown,
    /// expired, used up or revoked.
    ///
    /// # Errors
    /// Store errors.
    pub async fn caller_by_token(&self, token: &str) -> Result<Option<Arc<Caller>>> {
        if is_batch(token) {
            return none_if_forbidden(self.batch_caller(token).await);
        }
        let Some(hash) = hash_of(token) else { return Ok(None) };
        match self.live_row(hash).await? {
            Some(row) => none_if_forbidden(self.caller_of_row(&row).await),
            None => Ok(None),
        }
    }

    /// Returns the caller whose token has this accessor, like [`Auth::caller_by_token`].
    ///
    /// # Errors
    /// Store errors.
    pub async fn caller_by_accessor(&self, accessor: &str) -> Result<Option<Arc<Caller>>> {
        match self.live_row_by_accessor(accessor).await? {
            Some(row) => none_if_forbidden(self.caller_of_row(&row).await),
            None => Ok(None),
        }
    }
}

/// Converts `Forbidden` to `None`: a token whose entity is deleted or disabled is treated as unknown.
fn none_if_forbidden<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::Forbidden => Ok(None),
        found => found.map(Some),
    }
}
