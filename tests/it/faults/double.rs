//! A store that fails on demand: a script in front of the real store.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use signet::auth::store::{
    AliasEntry, AuthOutcome, AuthStore, AuthWrite, CubbyholeRow, EntityBy, EntityEntry, EntityPage, IdentityRows,
    RevokedTokens, SecretIdKey, SecretIdRow, StoreCondition, TokenHash, TokenRow,
};
use signet::clock::Time;
use signet::documents::{Document, DocumentWrite, MountId};
use signet::error::{Error, Kind, Result};
use signet::keys::store::KeyStore;
use signet::pki::store::{
    CrlRow, KnownSerial, LeaseRange, LeaseRow, MetadataRow, PkiOutcome, PkiStore, PkiWrite, RecordedResponseRow,
    RemovableRevocations, SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
};
use signet::storage::Stores;
use signet::x509::serial::Serial;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Before,
    /// The write is stored, but the call fails.
    After,
    /// Like `After`, and every later call does nothing.
    Outage,
}

#[derive(Debug)]
pub struct Met {
    pub call: &'static str,
    /// Commits of the same request that succeeded before it.
    pub commits: usize,
}

#[derive(Default)]
struct Script {
    /// The number of the failing call, counted from 1, and its fault; `None` lets all calls pass.
    plan: Option<(usize, Fault)>,
    /// Only these calls are counted; `None` counts all. The server's background work makes others.
    only: Option<BTreeSet<&'static str>>,
    calls: usize,
    commits: usize,
    met: Option<Met>,
    held: Option<(&'static str, Arc<Notify>)>,
    holds: bool,
}

enum Verdict {
    Pass,
    Refuse,
    Forget,
}

#[derive(Default)]
pub struct Faults {
    script: Mutex<Script>,
    real: OnceLock<Stores>,
    calls: Mutex<HashMap<&'static str, usize>>,
    under_way: Arc<AtomicUsize>,
}

struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Faults {
    /// Wraps a server's stores.
    pub fn between(self: &Arc<Self>, stores: Stores) -> Stores {
        let between = Arc::new(Double(Arc::clone(self)));
        let changes = stores.changes.clone();
        let projects = Arc::clone(&stores.projects);
        let keyring = Arc::clone(&stores.keyring);
        let token_seal = Arc::clone(&stores.token_seal);
        assert!(self.real.set(stores).is_ok(), "one server for each script");
        Stores {
            pki: between.clone(),
            auth: between.clone(),
            changes,
            projects,
            managed_keys: between,
            keyring,
            token_seal,
        }
    }

    pub fn real(&self) -> &Stores {
        self.real.get().unwrap()
    }

    pub fn arm(&self, n: usize, fault: Fault) {
        *self.script.lock().unwrap() = Script { plan: Some((n, fault)), ..Script::default() };
    }

    /// Like [`Faults::arm`], counting calls of these names only.
    pub fn arm_among(&self, names: &BTreeSet<&'static str>, n: usize, fault: Fault) {
        *self.script.lock().unwrap() =
            Script { plan: Some((n, fault)), only: Some(names.clone()), ..Script::default() };
    }

    /// The next call of this name fails; background work of the server does not count.
    pub fn arm_next(&self, call: &'static str, fault: Fault) {
        self.arm_among(&BTreeSet::from([call]), 1, fault);
    }

    pub fn counts(&self) -> HashMap<&'static str, usize> {
        self.calls.lock().unwrap().clone()
    }

    pub fn calls(&self, call: &str) -> usize {
        self.calls.lock().unwrap().get(call).copied().unwrap_or_default()
    }

    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    fn enter(&self, call: &'static str) -> UnderWay {
        *self.calls.lock().unwrap().entry(call).or_default() += 1;
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(&self.under_way))
    }

    pub fn has_met(&self) -> bool {
        self.script.lock().unwrap().met.is_some()
    }

    /// Holds calls of this name from now on, until the returned object is notified.
    pub fn hold(&self, call: &'static str) -> Arc<Notify> {
        let go = Arc::new(Notify::new());
        self.script.lock().unwrap().held = Some((call, Arc::clone(&go)));
        go
    }

    pub fn holds(&self) -> bool {
        self.script.lock().unwrap().holds
    }

    fn held(&self, call: &'static str) -> Option<Arc<Notify>> {
        let mut script = self.script.lock().unwrap();
        let go = script.held.as_ref().filter(|(name, _)| *name == call).map(|(_, go)| Arc::clone(go));
        script.holds |= go.is_some();
        go
    }

    /// Ends the faults, and returns the call that failed.
    pub fn disarm(&self) -> Option<Met> {
        std::mem::take(&mut *self.script.lock().unwrap()).met
    }

    fn verdict(&self, call: &'static str) -> Verdict {
        let mut script = self.script.lock().unwrap();
        let Some((n, fault)) = script.plan else { return Verdict::Pass };
        if script.met.is_none() && script.only.as_ref().is_some_and(|only| !only.contains(call)) {
            return Verdict::Pass;
        }
        script.calls += 1;
        let commit = call.starts_with("commit");
        if script.calls < n || (script.calls > n && fault != Fault::Outage) {
            script.commits += usize::from(commit);
            return Verdict::Pass;
        }
        if script.calls > n {
            return Verdict::Refuse;
        }
        let commits = script.commits;
        script.met = Some(Met { call, commits });
        if commit && fault != Fault::Before { Verdict::Forget } else { Verdict::Refuse }
    }
}

struct Double(Arc<Faults>);

fn failed() -> Error {
    Error::new(Kind::Unavailable, "storage: switched off")
}

impl Double {
    fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        real: impl FnOnce(&Stores) -> BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'static, Result<T>> {
        let entered = self.0.enter(name);
        let ended = move |outcome| {
            drop(entered);
            outcome
        };
        let work = match self.0.verdict(name) {
            Verdict::Pass => match self.0.held(name) {
                None => real(self.0.real()),
                Some(go) => {
                    let work = real(self.0.real());
                    async move {
                        go.notified().await;
                        work.await
                    }
                    .boxed()
                }
            },
            Verdict::Refuse => ready(Err(failed())).boxed(),
            Verdict::Forget => real(self.0.real()).map(|_| Err(failed())).boxed(),
        };
        work.map(ended).boxed()
    }
}

impl AuthStore for Double {
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>> {
        self.call("commit (auth)", |s| s.auth.commit(unit))
    }

    /// Uses no storage.
    fn writes_fail(&self) -> bool {
        self.0.real().auth.writes_fail()
    }

    /// A background job, which never fails.
    fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        self.0.real().auth.try_writing()
    }

    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.call("documents (auth)", |s| s.auth.documents_of(mount, kind))
    }

    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.call("token", |s| s.auth.token(hash))
    }

    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.call("token by accessor", |s| s.auth.token_by_accessor(accessor))
    }

    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>> {
        self.call("cubbyhole", |s| s.auth.cubbyhole(token, path))
    }

    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>> {
        self.call("cubbyhole paths", |s| s.auth.cubbyhole_paths(token))
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>> {
        self.call("tokens", |s| s.auth.tokens(after, limit))
    }

    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>> {
        self.call("condition", |s| s.auth.condition())
    }

    /// Uses no storage.
    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.0.real().auth.seal(what, plain)
    }

    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        self.call("unseal", |s| s.auth.unseal(what, sealed))
    }

    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>> {
        self.call("identity", |s| s.auth.identity(by))
    }

    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>> {
        self.call("entities", |s| s.auth.entities(page))
    }

    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>> {
        self.call("aliases", |s| s.auth.aliases(after, limit))
    }

    fn secret_id(
        &self,
        mount: MountId,
        role: i64,
        key: SecretIdKey,
    ) -> BoxFuture<'static, Result<Option<SecretIdRow>>> {
        self.call("secret id", |s| s.auth.secret_id(mount, role, key))
    }

    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.call("secret ids", |s| s.auth.secret_id_accessors(mount, role, after, now, limit))
    }

    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.call("secret id role", |s| s.auth.secret_id_role_exists(mount, role))
    }

    /// A background job, which never fails.
    fn sweep_secret_ids(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.0.real().auth.sweep_secret_ids(now, limit)
    }

    /// A background job, which never fails.
    fn sweep_tokens(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<RevokedTokens>> {
        self.0.real().auth.sweep_tokens(now, limit)
    }
}

impl KeyStore for Double {
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>> {
        self.call("commit (keys)", |s| s.managed_keys.commit(unit))
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.call("documents (keys)", |s| s.managed_keys.documents(kind))
    }
}

impl PkiStore for Double {
    fn commit(&self, unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
        self.call("commit (pki)", |s| s.pki.commit(unit))
    }

    fn require_capacity(&self) -> Result<()> {
        self.0.real().pki.require_capacity()
    }

    fn has_mount(&self, mount: MountId) -> BoxFuture<'static, Result<bool>> {
        self.call("has mount", |s| s.pki.has_mount(mount))
    }

    fn documents(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.call("documents (pki)", |s| s.pki.documents(mount))
    }

    fn documents_of_kind(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.call("documents of a kind (pki)", |s| s.pki.documents_of_kind(mount, kind))
    }

    fn certificate(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        self.call("certificate", |s| s.pki.certificate(mount, serial))
    }

    fn status(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
        self.call("status", |s| s.pki.status(mount, serial))
    }

    fn known(&self, mount: MountId, serials: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>> {
        self.call("known", |s| s.pki.known(mount, serials))
    }

    fn serials(&self, mount: MountId, after: Option<Serial>, limit: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.call("serials", |s| s.pki.serials(mount, after, limit))
    }

    fn revoked_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.call("revoked serials", |s| s.pki.revoked_serials(mount, after, limit))
    }

    fn revocations(&self, mount: MountId, after: u64, limit: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        self.call("revocations", |s| s.pki.revocations(mount, after, limit))
    }

    fn crls(&self, mount: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        self.call("crls", |s| s.pki.crls(mount))
    }

    fn crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
        self.call("crl floor", |s| s.pki.crl_floor())
    }

    fn counts(&self, mount: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        self.call("counts", |s| s.pki.counts(mount))
    }

    fn lease(&self, id: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
        self.call("lease", |s| s.pki.lease(id))
    }

    fn lease_ids(&self, range: LeaseRange, limit: u32) -> BoxFuture<'static, Result<Vec<String>>> {
        self.call("lease ids", |s| s.pki.lease_ids(range, limit))
    }

    /// With an empty `after` the caller is the background sweep, which never fails.
    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        if after.is_empty() {
            return self.0.real().pki.ending_leases(after, below, limit);
        }
        self.call("ending leases", |s| s.pki.ending_leases(after, below, limit))
    }

    /// A background job, which never fails.
    fn mark_ended(&self, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.0.real().pki.mark_ended(limit)
    }

    /// A background job, which never fails.
    fn sweep_leases(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.0.real().pki.sweep_leases(now, limit)
    }

    fn certificates(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.call("certificates", |s| s.pki.certificates(mount, after, limit))
    }

    fn ending(&self, mount: MountId, from: i64, limit: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
        self.call("ending", |s| s.pki.ending(mount, from, limit))
    }

    fn unlisted(&self, mount: MountId, before: i64, listed: RemovableRevocations) -> BoxFuture<'static, Result<bool>> {
        self.call("unlisted", |s| s.pki.unlisted(mount, before, listed))
    }

    fn tidy(&self, mount: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
        self.call("tidy", |s| s.pki.tidy(mount))
    }

    fn answered(&self, key: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>> {
        self.call("answered", |s| s.pki.answered(key))
    }

    fn metadata(&self, mount: MountId, serial: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
        self.call("metadata", |s| s.pki.metadata(mount, serial))
    }

    fn metadata_serials(
        &self,
        mount: MountId,
        after: Option<Serial>,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<Serial>>> {
        self.call("metadata serials", |s| s.pki.metadata_serials(mount, after, limit))
    }
}
