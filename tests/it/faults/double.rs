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

/// Methods that make the same call of a real store, each under this name.
macro_rules! calls {
    ($store:ident $($name:literal $method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(fn $method(&self, $($argument: $kind),*) -> BoxFuture<'static, Result<$answer>> {
            self.call($name, |stores| stores.$store.$method($($argument),*))
        })+
    };
}

impl AuthStore for Double {
    calls!(
        auth
        "commit (auth)" commit(unit: Vec<AuthWrite>) -> Vec<AuthOutcome>;
        "documents (auth)" documents_of(mount: MountId, kind: &'static str) -> Vec<Document>;
        "token" token(hash: TokenHash) -> Option<TokenRow>;
        "token by accessor" token_by_accessor(accessor: TokenHash) -> Option<TokenRow>;
        "cubbyhole" cubbyhole(token: TokenHash, path: String) -> Option<CubbyholeRow>;
        "cubbyhole paths" cubbyhole_paths(token: TokenHash) -> Vec<String>;
        "tokens" tokens(after: TokenHash, limit: u32) -> Vec<TokenRow>;
        "condition" condition() -> StoreCondition;
        "unseal" unseal(what: &'static str, sealed: Vec<u8>) -> Option<Vec<u8>>;
        "identity" identity(by: EntityBy) -> Option<IdentityRows>;
        "entities" entities(page: EntityPage) -> Vec<EntityEntry>;
        "aliases" aliases(after: String, limit: u32) -> Vec<AliasEntry>;
        "secret id" secret_id(mount: MountId, role: i64, key: SecretIdKey) -> Option<SecretIdRow>;
        "secret ids" secret_id_accessors(mount: MountId, role: i64, after: String, now: Time, max: u32) -> Vec<String>;
        "secret id role" secret_id_role_exists(mount: MountId, role: i64) -> bool;
    );

    /// Uses no storage.
    fn writes_fail(&self) -> bool {
        self.0.real().auth.writes_fail()
    }

    /// A background job, which never fails.
    fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        self.0.real().auth.try_writing()
    }

    /// Uses no storage.
    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.0.real().auth.seal(what, plain)
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
    calls!(
        managed_keys
        "commit (keys)" commit(unit: Vec<DocumentWrite>) -> ();
        "documents (keys)" documents(kind: &'static str) -> Vec<Document>;
    );
}

impl PkiStore for Double {
    calls!(
        pki
        "commit (pki)" commit(unit: Vec<PkiWrite>) -> Vec<PkiOutcome>;
        "has mount" has_mount(mount: MountId) -> bool;
        "documents (pki)" documents(mount: MountId) -> Vec<Document>;
        "documents of a kind (pki)" documents_of_kind(mount: MountId, kind: &'static str) -> Vec<Document>;
        "certificate" certificate(mount: MountId, serial: Serial) -> Option<StoredCertificate>;
        "status" serial_status(mount: MountId, serial: Serial) -> SerialStatus;
        "known" known_serials(mount: MountId, serials: Vec<Serial>) -> Vec<KnownSerial>;
        "serials" serials(mount: MountId, after: Option<Serial>, limit: u32) -> Vec<Serial>;
        "revoked serials" revoked_serials(mount: MountId, after: Option<Serial>, limit: u32) -> Vec<Serial>;
        "revocations" revocations(mount: MountId, after: u64, limit: u32) -> Vec<StoredRevocation>;
        "crls" crls(mount: MountId) -> Vec<CrlRow>;
        "crl floor" crl_floor() -> u64;
        "counts" counts(mount: MountId) -> (u64, u64);
        "lease" lease(id: String) -> Option<LeaseRow>;
        "lease ids" lease_ids(range: LeaseRange, limit: u32) -> Vec<String>;
        "certificates" certificates(mount: MountId, after: Option<Serial>, limit: u32) -> Vec<SerialAndDer>;
        "ending" certificates_by_expiry(mount: MountId, from: i64, limit: u32) -> Vec<SerialAndDer>;
        "unlisted" has_unlisted_revocations(mount: MountId, before: i64, listed: RemovableRevocations) -> bool;
        "tidy" tidy(mount: MountId) -> Option<TidyRow>;
        "answered" recorded_response(key: [u8; 32]) -> Option<RecordedResponseRow>;
        "metadata" metadata(mount: MountId, serial: Serial) -> Option<MetadataRow>;
        "metadata serials" metadata_serials(mount: MountId, after: Option<Serial>, limit: u32) -> Vec<Serial>;
    );

    fn require_capacity(&self) -> Result<()> {
        self.0.real().pki.require_capacity()
    }

    /// With an empty `after` the caller is the background sweep, which never fails.
    fn ending_leases(&self, after: String, below: String, limit: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
        if after.is_empty() {
            return self.0.real().pki.ending_leases(after, below, limit);
        }
        self.call("ending leases", |s| s.pki.ending_leases(after, below, limit))
    }

    /// A background job, which never fails.
    fn mark_leases_of_ended_tokens(&self, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.0.real().pki.mark_leases_of_ended_tokens(limit)
    }

    /// A background job, which never fails.
    fn sweep_leases(&self, now: i64, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.0.real().pki.sweep_leases(now, limit)
    }
}
