//! The open mounts of a server ([`Engine`]). Each mount ([`Authority`]) has its published state, its control actor and
//! node-local caches. Modules above this one add their own methods to these types.

pub mod ocsp_cache;
pub(crate) mod tidy_controller;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, mpsc};

use self::ocsp_cache::OcspCache;
use self::tidy_controller::TidyController;
use super::actor::{ControlLink, ControlThread, PendingRevocation, PlannedChange, ReplicaLink};
use super::compromised::CompromisedKeys;
use super::crl::{self, CrlBuildRequest, CrlBuilder, GroupCrls, MountCrlMetrics, MountCrls};
use super::engine_deps::EngineDeps;
use super::mount::signer::IssuerSigner;
use super::mount::view::MountView;
use super::serials::SerialSource;
use super::store::{PkiStore, RemovableRevocations, StoredRevocation};
use crate::clock::{Clock, Time};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::keys::pool::{KeyPool, StockSizes};
use crate::keys::signer::KeyIdentity;
use crate::keys::signing::{ManagedKey, Signers};
use crate::outbound::EgressPolicy;
use crate::x509::public_key::PublicKey;

/// Maximum number of recorded responses (to requests with idempotency keys) that are removed in one commit.
const SWEPT_RESPONSES_PER_COMMIT: u32 = 500;

/// The expiry time of an issuer.
pub struct IssuerExpiry {
    /// Mount that contains the issuer.
    pub mount: MountId,
    /// Id of the issuer; not its name, which could be arbitrary text.
    pub issuer: String,
    /// notAfter, epoch seconds.
    pub not_after: i64,
}

/// All PKI mounts of this server.
pub struct Engine {
    deps: EngineDeps,
    ocsp_cache: Arc<OcspCache>,
    control: ControlThread,
    authorities: ArcSwap<HashMap<MountId, Arc<Authority>>>,
    /// Held while a mount is opened, so that no mount gets two control actors.
    opening: Mutex<()>,
    leases: Notify,
    /// Runtime of background work, which may outlive the HTTP worker that started it.
    background: Handle,
}

impl Engine {
    /// Creates an engine without mounts and starts the control thread; requires a running actix system.
    /// `egress_policy` limits the addresses that callers may configure.
    pub fn new(
        store: Arc<dyn PkiStore>,
        serials: SerialSource,
        signers: Arc<dyn Signers>,
        clock: Clock,
        egress_policy: EgressPolicy,
    ) -> Arc<Self> {
        let control = ControlThread::start(clock.clone());
        let compromised = Arc::new(CompromisedKeys::new(Arc::clone(&store), clock.clone()));
        let deps = EngineDeps { store, pool: KeyPool::start(), clock, serials, signers, egress_policy, compromised };
        Arc::new(Self {
            deps,
            ocsp_cache: Arc::default(),
            control,
            authorities: ArcSwap::default(),
            opening: Mutex::default(),
            leases: Notify::new(),
            background: Handle::current(),
        })
    }

    /// Returns the list of compromised keys.
    pub fn compromised(&self) -> &CompromisedKeys {
        &self.deps.compromised
    }

    /// Sets how many RSA keys of each size the key pool generates in advance; initially none.
    pub fn set_rsa_key_stock(&self, sizes: StockSizes) {
        self.deps.pool.resize_stock(sizes);
    }

    /// Loads a mount and starts its control actor, unless it is open. Its CRLs are built in the background.
    ///
    /// # Errors
    /// `Unavailable` from storage; `Internal` when a stored document cannot be read.
    pub async fn open(&self, mount: MountId) -> Result<()> {
        let _one_at_a_time = self.opening.lock().await;
        if self.authority(mount).is_ok() {
            return Ok(());
        }
        let documents = self.deps.store.documents(mount).await?;
        self.start(MountView::load(mount, documents)?);
        Ok(())
    }

    /// Opens a mount that was just created. Nothing is stored for it, so nothing is read and opening cannot fail.
    pub async fn open_new(&self, mount: MountId) {
        let _one_at_a_time = self.opening.lock().await;
        if self.authority(mount).is_err() {
            self.start(MountView::empty(mount));
        }
    }

    fn start(&self, view: MountView) {
        let mount = view.mount;
        let authority = Arc::new(Authority::start(view, self));
        self.authorities.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(mount, Arc::clone(&authority));
            all
        });
    }

    /// Closes a mount. Its published state becomes empty immediately, so that running requests cannot issue from it;
    /// its actors stop when the last handle is dropped.
    pub fn close(&self, mount: MountId) {
        if let Ok(authority) = self.authority(mount) {
            authority.view.store(Arc::new(MountView::empty(mount)));
        }
        self.authorities.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.remove(&mount);
            all
        });
    }

    /// Closes every mount for which `is_mounted` returns `false`.
    pub fn close_others(&self, is_mounted: impl Fn(MountId) -> bool) {
        let open: Vec<MountId> = self.authorities.load().keys().copied().collect();
        open.into_iter().filter(|mount| !is_mounted(*mount)).for_each(|mount| self.close(mount));
    }

    /// Returns the time of the server's clock.
    pub fn now(&self) -> Time {
        self.deps.clock.now()
    }

    /// Returns the dependencies that all mounts share.
    pub(crate) fn deps(&self) -> &EngineDeps {
        &self.deps
    }

    /// Returns the cache of signed OCSP responses.
    pub(crate) fn ocsp_cache(&self) -> &OcspCache {
        &self.ocsp_cache
    }

    /// Returns the expiry times of the unrevoked issuers of all mounts.
    pub fn issuer_expiries(&self) -> Vec<IssuerExpiry> {
        let mut expiries = Vec::new();
        for authority in self.authorities() {
            let view = authority.view();
            let ending = view.signers().filter(|signer| signer.issuer.record.revoked_at.is_none());
            expiries.extend(ending.map(|signer| IssuerExpiry {
                mount: authority.mount(),
                issuer: signer.issuer.record.id.clone(),
                not_after: signer.issuer.certificate.not_after(),
            }));
        }
        expiries
    }

    /// Returns metrics of the published CRLs of every mount.
    pub fn crl_metrics(&self) -> Vec<(MountId, MountCrlMetrics)> {
        self.control.crl_metrics()
    }

    /// Returns the issuer keys of all mounts that use the managed key with this UUID.
    pub(crate) fn keys_using_managed_key(&self, uuid: &str) -> Vec<KeyIdentity> {
        let mut keys = Vec::new();
        for authority in self.authorities() {
            let view = authority.view();
            let managed = view.signers().filter_map(|signer| signer.key.as_ref()?.signing.managed());
            keys.extend(managed.filter(|key| key.uuid == uuid).map(ManagedKey::identity));
        }
        keys
    }

    /// Returns the public keys of the issuers in all mounts for which `of` returns `true`.
    pub(crate) fn issuer_public_keys(&self, of: impl Fn(MountId) -> bool) -> Vec<PublicKey> {
        let mut keys = Vec::new();
        for authority in self.authorities().filter(|authority| of(authority.mount())) {
            keys.extend(authority.view().issuers().map(|issuer| issuer.certificate.key().clone()));
        }
        keys
    }

    /// Returns the open mounts.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = Arc<Authority>> + use<> {
        self.authorities.load().values().cloned().collect::<Vec<_>>().into_iter()
    }

    /// Removes recorded responses to requests whose idempotency keys have expired.
    ///
    /// # Errors
    /// `Unavailable` from storage; the next call retries.
    pub async fn sweep_recorded_responses(&self) -> Result<()> {
        let now = self.deps.clock.synchronized_now()?.unix_timestamp();
        while self.deps.store.sweep_recorded_responses(now, SWEPT_RESPONSES_PER_COMMIT).await?
            == SWEPT_RESPONSES_PER_COMMIT
        {}
        Ok(())
    }

    /// Wakes the sweep that revokes the certificates of ended leases. Called after tokens ended or leases were marked
    /// as ending.
    pub fn wake_lease_sweep(&self) {
        self.leases.notify_one();
    }

    /// Waits for the next call that reports leases to revoke.
    pub async fn wait_for_leases_to_revoke(&self) {
        self.leases.notified().await;
    }

    /// Returns an open mount.
    ///
    /// # Errors
    /// `NotFound` when the mount is not open.
    pub fn authority(&self, mount: MountId) -> Result<Arc<Authority>> {
        self.authorities.load().get(&mount).cloned().ok_or_else(Error::not_found)
    }
}

/// One PKI mount: its published view and its control actor.
pub struct Authority {
    mount: MountId,
    view: Arc<ArcSwap<MountView>>,
    crls: Arc<ArcSwapOption<MountCrls>>,
    control: ControlLink,
    deps: EngineDeps,
    ocsp_cache: Arc<OcspCache>,
    tidy_controller: TidyController,
    /// Held while an external CRL is imported.
    crl_import: Arc<Mutex<()>>,
    /// Held while issuers are imported.
    issuer_import: Arc<Mutex<()>>,
}

impl Authority {
    fn start(view: MountView, engine: &Engine) -> Self {
        let mount = view.mount;
        let deps = engine.deps.clone();
        let view = Arc::new(ArcSwap::from_pointee(view));
        let crls = Arc::new(ArcSwapOption::<MountCrls>::empty());
        let builder = CrlBuilder::new(mount, Arc::clone(&deps.store), Arc::clone(&deps.signers), deps.clock.clone());
        let store = Arc::clone(&deps.store);
        let thread = &engine.control;
        let control = ControlLink::start(thread, Arc::clone(&view), Arc::clone(&crls), store, builder);
        let tidy_controller = TidyController::new(engine.background.clone(), deps.clock.now());
        Self {
            mount,
            view,
            crls,
            control,
            deps,
            ocsp_cache: Arc::clone(&engine.ocsp_cache),
            tidy_controller,
            crl_import: Arc::default(),
            issuer_import: Arc::default(),
        }
    }

    /// Returns the issuers whose managed key the mount may not use at present: their names, or ids if they have no
    /// name.
    pub fn refused_issuers(&self) -> BTreeSet<String> {
        let view = self.view.load();
        let is_refused = |signer: &&Arc<IssuerSigner>| {
            let key = signer.key.as_ref().and_then(|key| key.signing.managed());
            key.is_some_and(|key| self.deps.signers.signer(key).is_err_and(|error| error.kind() == Kind::Invalid))
        };
        let name_or_id = |signer: &Arc<IssuerSigner>| {
            let record = &signer.issuer.record;
            if record.name.is_empty() { record.id.clone() } else { record.name.clone() }
        };
        view.signers().filter(is_refused).map(name_or_id).collect()
    }

    /// Returns the id of the mount.
    pub fn mount(&self) -> MountId {
        self.mount
    }

    /// Returns the published view of the mount.
    pub fn view(&self) -> Arc<MountView> {
        self.view.load_full()
    }

    /// Returns the dependencies that all mounts share.
    pub fn deps(&self) -> &EngineDeps {
        &self.deps
    }

    /// Returns the OCSP response cache, which all mounts share.
    pub fn ocsp_cache(&self) -> &OcspCache {
        &self.ocsp_cache
    }

    /// Returns this node's state of the mount's tidy runs, which remove expired data.
    pub(crate) fn tidy_controller(&self) -> &TidyController {
        &self.tidy_controller
    }

    /// Returns the lock for imports of external CRLs.
    pub(crate) fn crl_import_lock(&self) -> &Arc<Mutex<()>> {
        &self.crl_import
    }

    /// Returns the lock for imports of issuers.
    pub(crate) fn issuer_import_lock(&self) -> &Arc<Mutex<()>> {
        &self.issuer_import
    }

    /// Returns the published CRLs of an issuer. Waits for the first build after a start, so that callers do not mistake
    /// a pending CRL for a missing one.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when the first build fails.
    pub async fn crls(&self, issuer_id: &str) -> Result<Option<GroupCrls>> {
        if self.crls.load().is_none() {
            self.build_crls(CrlBuildRequest::DUE).await?;
        }
        Ok(self.crls.load().as_ref().and_then(|crls| crls.by_issuer.get(issuer_id).cloned()))
    }

    /// Announces a revocation before it is stored.
    pub fn announce_revocation(&self) -> PendingRevocation {
        self.control.announce()
    }

    /// Like [`Authority::publish_revocations`], for one revocation. If the build fails, but a published CRL already
    /// lists this revocation, returns a warning instead of an error.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn publish_revocation(&self, stored: &StoredRevocation, pending: PendingRevocation) -> Result<Warnings> {
        let is_listed = || self.crls.load().as_ref().is_some_and(|crls| crls.includes(stored));
        if is_listed() {
            return Ok(Warnings::default());
        }
        match self.publish_revocations(stored.sequence, pending).await {
            Err(error) if is_listed() => {
                let text = format!("the CRL of another issuer of this mount could not be built: {}", error.text());
                Ok(crl::format_build_warnings(vec![text].into()))
            }
            Err(error) => Err(error.with_side_effect("the certificate is revoked, but its CRL could not be built yet")),
            published => published,
        }
    }

    /// Publishes stored revocations up to `sequence`. Returns when CRLs list them; with the setting `auto_rebuild` or
    /// `disable`, returns immediately. Returns warnings about issuers that cannot have a CRL.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn publish_revocations(&self, sequence: u64, pending: PendingRevocation) -> Result<Warnings> {
        if self.are_crls_up_to_date(sequence) {
            return Ok(Warnings::default());
        }
        self.control.build_crls(CrlBuildRequest::DUE, Some(pending)).await
    }

    /// Returns `true` if the CRLs list every revocation up to `sequence`, or if revocations do not trigger builds.
    pub fn are_crls_up_to_date(&self, sequence: u64) -> bool {
        let view = self.view.load();
        let config = &view.crl_config.value;
        let by_timer = config.auto_rebuild || config.disable;
        by_timer || self.crls.load().as_ref().is_some_and(|crls| crls.covered_sequence >= sequence)
    }

    /// Returns the limits within which revocations may be removed. Each of these revocations was on a complete CRL that
    /// was issued after the revoked certificate had expired (RFC 5280 3.3).
    pub fn removable_revocations(&self) -> RemovableRevocations {
        self.crls.load().as_ref().map_or(RemovableRevocations::NONE, |crls| crls.removable)
    }

    /// Builds and publishes complete CRLs with all revocations.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn publish_complete_crls(&self) -> Result<()> {
        self.build_crls(CrlBuildRequest { complete: true, ..CrlBuildRequest::DUE }).await.map(drop)
    }

    /// Reads the revocations from storage again after some were removed, and publishes complete CRLs. A CRL that would
    /// lose the entry of a valid certificate is rejected, unless `moved` states that revocations were assigned to other
    /// issuers.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn reload_revocations(&self, moved: bool) -> Result<Warnings> {
        self.build_crls(CrlBuildRequest { reload: true, moved, ..CrlBuildRequest::DUE }).await
    }

    /// Reads the stored documents again and publishes them, in order with other changes of the mount. Called when
    /// another node changed them.
    ///
    /// # Errors
    /// `Unavailable` from storage; `Internal` when a document cannot be read. The published state remains.
    pub async fn reload(&self) -> Result<()> {
        self.control.reload().await
    }

    /// Updates the CRLs in the background with the revocations and CRLs that other nodes stored.
    pub fn update_crls_from_other_nodes(&self) {
        self.control.update_crls_from_other_nodes();
    }

    /// Reads revocations and CRLs from storage again, in the background, after the database lost data. CRL numbers
    /// never decrease.
    pub fn rebuild_crls_from_storage(&self) {
        self.control.rebuild_crls_from_storage();
    }

    /// Starts a replica actor, which issues certificates of the mount, on the arbiter of the current HTTP worker.
    pub fn start_replica(&self) -> ReplicaLink {
        ReplicaLink::start(Arc::clone(&self.view), self.deps.clone())
    }

    /// Changes the mount's state. `plan` computes the change and a result from the current view. It does not run on an
    /// HTTP worker, and runs again if another node commits first. Returns the result when the change is stored and
    /// published.
    ///
    /// # Errors
    /// Those of `plan`; `Unavailable` or `Conflict` from storage.
    pub async fn change<T: Send + 'static>(
        &self,
        plan: impl Fn(&MountView) -> Result<(PlannedChange, T)> + Send + 'static,
    ) -> Result<T> {
        self.change_with_crl_warnings(plan).await.map(|(answer, _)| answer)
    }

    /// As [`Authority::change`]; also returns warnings about CRLs that could not be built after the change.
    ///
    /// # Errors
    /// As [`Authority::change`].
    pub async fn change_with_crl_warnings<T: Send + 'static>(
        &self,
        plan: impl Fn(&MountView) -> Result<(PlannedChange, T)> + Send + 'static,
    ) -> Result<(T, Warnings)> {
        let (sender, mut results) = mpsc::unbounded_channel();
        let plan = Box::new(move |view: &MountView| {
            let (planned, result) = plan(view)?;
            let _ = sender.send(result);
            Ok(planned)
        });
        let warnings = self.control.change(plan).await?;
        // The plan sent a result each time it ran; the last one belongs to the stored change.
        let last = std::iter::from_fn(|| results.try_recv().ok()).last();
        Ok((last.ok_or_else(|| Error::internal("the plan of a change returned no result"))?, warnings))
    }

    /// Builds the CRLs that are due by the settings and those that `wanted` asks for. The new CRLs include everything
    /// that was stored before the call. Returns warnings about issuers that cannot have a CRL.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when the build fails; the published CRLs remain.
    pub async fn build_crls(&self, wanted: CrlBuildRequest) -> Result<Warnings> {
        self.control.build_crls(wanted, None).await
    }
}
