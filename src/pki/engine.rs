//! The open mounts of a server ([`Engine`]), and each of them ([`Authority`]): its published state, its
//! control actor, and what this node keeps of it beside that.
//!
//! What is done with a mount stands above: making authorities, revoking, tidying. Those add their own
//! methods where they stand.

pub mod answers;
pub(crate) mod tidying;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, mpsc};

use self::answers::Answers;
use self::tidying::Tidying;
use super::actor::{Coming, ControlLink, ControlThread, Planned, ReplicaLink};
use super::compromised::CompromisedKeys;
use super::crl::{self, Builder, Crls, Lists, Summary, WantedCrls};
use super::mount::signer::Signer;
use super::mount::view::View;
use super::serials::Serials;
use super::store::{Listed, PkiStore, StoredRevocation};
use super::tools::Tools;
use crate::clock::{Clock, Time};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::keys::pool::{KeyPool, StockSizes};
use crate::keys::signer::Known;
use crate::keys::signing::{ManagedKey, Signers};
use crate::outbound::Reach;
use crate::x509::public_key::PublicKey;

/// Answered requests that are removed in one commit.
const SWEEP: u32 = 500;

/// When an issuer ends.
pub struct Expiry {
    /// Its mount.
    pub mount: MountId,
    /// Its id: a name may be anything that somebody typed.
    pub issuer: String,
    /// Epoch seconds.
    pub not_after: i64,
}

/// All mounts of the engine on this server.
pub struct Engine {
    tools: Tools,
    answers: Arc<Answers>,
    control: ControlThread,
    authorities: ArcSwap<HashMap<MountId, Arc<Authority>>>,
    /// Held while a mount is opened, so that it never gets two control actors.
    opening: Mutex<()>,
    /// Told when there are leases to end.
    leases: Notify,
    /// Where work in the background runs: it outlives the worker that took the request for it.
    background: Handle,
}

impl Engine {
    /// An engine without mounts, whose certificates get serial numbers of `serials` and whose managed keys are
    /// those of `signers`; `reach` says which addresses that callers configure may be called. Starts the thread that the control actors share, so an actix system must run.
    pub fn new(
        store: Arc<dyn PkiStore>,
        serials: Serials,
        signers: Arc<dyn Signers>,
        clock: Clock,
        reach: Reach,
    ) -> Arc<Self> {
        let control = ControlThread::start(clock.clone());
        let compromised = Arc::new(CompromisedKeys::new(Arc::clone(&store), clock.clone()));
        let tools = Tools { store, pool: KeyPool::start(), clock, serials, signers, reach, compromised };
        Arc::new(Self {
            tools,
            answers: Arc::default(),
            control,
            authorities: ArcSwap::default(),
            opening: Mutex::default(),
            leases: Notify::new(),
            background: Handle::current(),
        })
    }

    /// Keys that nothing certifies.
    pub fn compromised(&self) -> &CompromisedKeys {
        &self.tools.compromised
    }

    /// Keeps so many RSA keys ready from now on; an engine begins without.
    pub fn stock_keys(&self, sizes: StockSizes) {
        self.tools.pool.stock(sizes);
    }

    /// Loads a mount's state and starts its control actor, unless it is open; its CRLs follow in the
    /// background.
    ///
    /// # Errors
    /// `Unavailable` from storage, `Internal` when a stored document cannot be read.
    pub async fn open(&self, mount: MountId) -> Result<()> {
        let _one_at_a_time = self.opening.lock().await;
        if self.authority(mount).is_ok() {
            return Ok(());
        }
        let documents = self.tools.store.documents(mount).await?;
        self.start(View::load(mount, documents)?);
        Ok(())
    }

    /// As [`Engine::open`], for a mount that was made this moment: nothing is stored for it, so nothing
    /// is read and nothing can fail.
    pub async fn open_new(&self, mount: MountId) {
        let _one_at_a_time = self.opening.lock().await;
        if self.authority(mount).is_err() {
            self.start(View::empty(mount));
        }
    }

    fn start(&self, view: View) {
        let mount = view.mount;
        let authority = Arc::new(Authority::start(view, self));
        self.authorities.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(mount, Arc::clone(&authority));
            all
        });
    }

    /// Forgets a mount: its published state becomes empty at once, so that no request that is still
    /// under way issues from it, and its actors stop when they are let go.
    pub fn close(&self, mount: MountId) {
        if let Ok(authority) = self.authority(mount) {
            authority.view.store(Arc::new(View::empty(mount)));
        }
        self.authorities.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.remove(&mount);
            all
        });
    }

    /// Forgets every mount that is not `there` any more, as [`Engine::close`] does.
    pub fn close_others(&self, there: impl Fn(MountId) -> bool) {
        let open: Vec<MountId> = self.authorities.load().keys().copied().collect();
        open.into_iter().filter(|mount| !there(*mount)).for_each(|mount| self.close(mount));
    }

    /// The time by the server's clock.
    pub fn now(&self) -> Time {
        self.tools.clock.now()
    }

    /// What all mounts share.
    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// OCSP answers that were signed a moment ago.
    pub(crate) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// When each issuer ends, of every mount; those that are revoked are left out.
    pub fn expiries(&self) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        for authority in self.authorities() {
            let view = authority.view();
            let ending = view.signers().filter(|signer| signer.issuer.record.revoked_at.is_none());
            expiries.extend(ending.map(|signer| Expiry {
                mount: authority.mount(),
                issuer: signer.issuer.record.id.clone(),
                not_after: signer.issuer.certificate.not_after(),
            }));
        }
        expiries
    }

    /// The published CRLs of every mount, in figures.
    pub fn crl_summaries(&self) -> Vec<(MountId, Summary)> {
        self.control.summaries()
    }

    /// The keys of issuers that sign by the managed key of this UUID, as the mounts took them into use.
    pub(crate) fn keys_of(&self, uuid: &str) -> Vec<Known> {
        let mut keys = Vec::new();
        for authority in self.authorities() {
            let view = authority.view();
            let managed = view.signers().filter_map(|signer| signer.key.as_ref()?.signing.managed());
            keys.extend(managed.filter(|key| key.uuid == uuid).map(ManagedKey::known));
        }
        keys
    }

    /// The keys of the issuers' certificates in some of the mounts.
    pub(crate) fn certificate_keys(&self, of: impl Fn(MountId) -> bool) -> Vec<PublicKey> {
        let mut keys = Vec::new();
        for authority in self.authorities().filter(|authority| of(authority.mount())) {
            keys.extend(authority.view().issuers().map(|issuer| issuer.certificate.key().clone()));
        }
        keys
    }

    /// The open mounts.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = Arc<Authority>> + use<> {
        self.authorities.load().values().cloned().collect::<Vec<_>>().into_iter()
    }

    /// Removes what is remembered of requests that nobody may send again any more.
    ///
    /// # Errors
    /// `Unavailable` from storage; the next call tries again.
    pub async fn sweep_answered(&self) -> Result<()> {
        let now = self.tools.clock.agreed_now()?.unix_timestamp();
        while self.tools.store.sweep_answered(now, SWEEP).await? == SWEEP {}
        Ok(())
    }

    /// Says that a token ended, or leases were marked: the sweep need not wait for its time.
    pub fn wake_leases(&self) {
        self.leases.notify_one();
    }

    /// Resolves when there is something to sweep.
    pub async fn leases_woken(&self) {
        self.leases.notified().await;
    }

    /// A mount's authority.
    ///
    /// # Errors
    /// `NotFound` when the mount is not open (it was just disabled).
    pub fn authority(&self, mount: MountId) -> Result<Arc<Authority>> {
        self.authorities.load().get(&mount).cloned().ok_or_else(Error::not_found)
    }
}

/// One mount: its published state and its control actor.
pub struct Authority {
    mount: MountId,
    view: Arc<ArcSwap<View>>,
    crls: Arc<ArcSwapOption<Crls>>,
    control: ControlLink,
    tools: Tools,
    answers: Arc<Answers>,
    tidying: Tidying,
    /// Held while a CRL from elsewhere is imported.
    importing: Arc<Mutex<()>>,
    /// Held while the signatures of issuers that are imported are checked.
    certifying: Arc<Mutex<()>>,
}

impl Authority {
    fn start(view: View, engine: &Engine) -> Self {
        let (mount, tools) = (view.mount, engine.tools.clone());
        let view = Arc::new(ArcSwap::from_pointee(view));
        let crls = Arc::new(ArcSwapOption::<Crls>::empty());
        let builder = Builder::new(mount, Arc::clone(&tools.store), Arc::clone(&tools.signers), tools.clock.clone());
        let (store, thread) = (Arc::clone(&tools.store), &engine.control);
        let control = ControlLink::start(thread, Arc::clone(&view), Arc::clone(&crls), store, builder);
        let tidying = Tidying::new(engine.background.clone(), tools.clock.now());
        Self {
            mount,
            view,
            crls,
            control,
            tools,
            answers: Arc::clone(&engine.answers),
            tidying,
            importing: Arc::default(),
            certifying: Arc::default(),
        }
    }

    /// The issuers, by name or else by id, with a managed key that the mount may not sign with now.
    pub fn refused_issuers(&self) -> BTreeSet<String> {
        let view = self.view.load();
        let is_refused = |signer: &&Arc<Signer>| {
            let key = signer.key.as_ref().and_then(|key| key.signing.managed());
            key.is_some_and(|key| self.tools.signers.signer(key).is_err_and(|error| error.kind() == Kind::Invalid))
        };
        let called = |signer: &Arc<Signer>| {
            let record = &signer.issuer.record;
            if record.name.is_empty() { record.id.clone() } else { record.name.clone() }
        };
        view.signers().filter(is_refused).map(called).collect()
    }

    /// The mount.
    pub fn mount(&self) -> MountId {
        self.mount
    }

    /// The published state.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// What issuing needs besides the view.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// OCSP answers that were signed a moment ago, of all mounts of the server.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// What this node knows of the mount's tidying.
    pub(crate) fn tidying(&self) -> &Tidying {
        &self.tidying
    }

    /// The turn of whoever imports a CRL from elsewhere.
    pub(crate) fn importing(&self) -> &Arc<Mutex<()>> {
        &self.importing
    }

    /// The turn of whoever imports issuers.
    pub(crate) fn certifying(&self) -> &Arc<Mutex<()>> {
        &self.certifying
    }

    /// The published CRLs of an issuer, by its id. Just after a start it waits for the first build, so
    /// that nobody takes "not built yet" for "no CRL".
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when the first build fails.
    pub async fn crls(&self, issuer_id: &str) -> Result<Option<Lists>> {
        if self.crls.load().is_none() {
            self.build_crls(WantedCrls::DUE).await?;
        }
        Ok(self.crls.load().as_ref().and_then(|crls| crls.by_issuer.get(issuer_id).cloned()))
    }

    /// To be called when a revocation begins, before it is stored.
    pub fn announce_revocation(&self) -> Coming {
        self.control.announce()
    }

    /// As [`Authority::publish_revocations`], for one: that a list cannot be made which is not to have it is a warning.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn publish_revocation(&self, stored: &StoredRevocation, coming: Coming) -> Result<Warnings> {
        let is_listed = || self.crls.load().as_ref().is_some_and(|crls| crls.have(stored));
        if is_listed() {
            return Ok(Warnings::default());
        }
        match self.publish_revocations(stored.sequence, coming).await {
            Err(error) if is_listed() => {
                let text = format!("the CRL of another issuer of this mount could not be built: {}", error.text());
                Ok(crl::numbered(vec![text].into()))
            }
            Err(error) => Err(error.although("it is revoked, and its CRL could not be built yet")),
            published => published,
        }
    }

    /// To be called when revocations up to `sequence` are stored, before that is answered: without
    /// `auto_rebuild` it resolves when CRLs that hold them are published, with it at once. Gives warnings
    /// about issuers that cannot have one, when lists were built.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn publish_revocations(&self, sequence: u64, coming: Coming) -> Result<Warnings> {
        if self.crls_cover(sequence) {
            return Ok(Warnings::default());
        }
        self.control.build_crls(WantedCrls::DUE, Some(coming)).await
    }

    /// Whether the published CRLs hold every revocation up to `sequence`, as far as the mount's settings want
    /// them to: with `auto_rebuild` they follow by the timer.
    pub fn crls_cover(&self, sequence: u64) -> bool {
        let view = self.view.load();
        let config = &view.crl_config.value;
        let by_timer = config.auto_rebuild || config.disable;
        by_timer || self.crls.load().as_ref().is_some_and(|crls| crls.covers >= sequence)
    }

    /// The revocations that the published complete CRLs have held since their certificates ended (RFC 5280 3.3).
    pub fn listed(&self) -> Listed {
        self.crls.load().as_ref().map_or(Listed::NONE, |crls| crls.listed)
    }

    /// Publishes complete CRLs of everything that is revoked.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn list_revocations(&self) -> Result<()> {
        self.build_crls(WantedCrls { complete: true, ..WantedCrls::DUE }).await.map(drop)
    }

    /// To be called when revocations were removed from storage, because their certificates have ended:
    /// reads what is left and publishes complete CRLs of it. A CRL that would lose an entry whose
    /// certificate has not ended is refused, unless some were `moved` to other issuers on purpose.
    ///
    /// # Errors
    /// As [`Authority::build_crls`].
    pub async fn reload_revocations(&self, moved: bool) -> Result<Warnings> {
        self.build_crls(WantedCrls { reload: true, moved, ..WantedCrls::DUE }).await
    }

    /// Reads what is stored again and publishes it, in turn with the changes: for what another node changed.
    ///
    /// # Errors
    /// `Unavailable` from storage, `Internal` when a document cannot be read; what was published stays.
    pub async fn reload(&self) -> Result<()> {
        self.control.reload().await
    }

    /// Brings the CRLs up to date with what other nodes revoked and published, in the background.
    pub fn follow_crls(&self) {
        self.control.follow_crls();
    }

    /// Forgets which revocations and lists are stored, since the database has lost some, and reads them again as after a
    /// start, in the background. Numbers of lists that were published here are not given out below.
    pub fn begin_crls_again(&self) {
        self.control.begin_crls_again();
    }

    /// A replica on the current worker's arbiter.
    pub fn replica(&self) -> ReplicaLink {
        ReplicaLink::start(Arc::clone(&self.view), self.tools.clone())
    }

    /// Runs one change of the mount's state: `plan` works it out on the current view (off every
    /// worker) and returns what to answer; the answer comes when it is stored and published. When another
    /// node changes the same at that moment, it is worked out again on what that node left.
    ///
    /// # Errors
    /// What `plan` refuses; `Unavailable` or `Conflict` from storage.
    pub async fn change<T: Send + 'static>(
        &self,
        plan: impl Fn(&View) -> Result<(Planned, T)> + Send + 'static,
    ) -> Result<T> {
        self.change_and_crls(plan).await.map(|(answer, _)| answer)
    }

    /// As [`Authority::change`], for changes after which CRLs are built: also gives warnings about those
    /// that could not be.
    ///
    /// # Errors
    /// As [`Authority::change`].
    pub async fn change_and_crls<T: Send + 'static>(
        &self,
        plan: impl Fn(&View) -> Result<(Planned, T)> + Send + 'static,
    ) -> Result<(T, Warnings)> {
        let (told, mut answer) = mpsc::unbounded_channel();
        let plan = Box::new(move |view: &View| {
            let (planned, result) = plan(view)?;
            let _ = told.send(result);
            Ok(planned)
        });
        let warnings = self.control.change(plan).await?;
        // One for each time that it was worked out: the last one was stored.
        let last = std::iter::from_fn(|| answer.try_recv().ok()).last();
        Ok((last.ok_or_else(|| Error::internal("a change without an answer"))?, warnings))
    }

    /// Brings the CRLs up to date with everything stored before the call, as far as they are due by the
    /// mount's settings, and makes what is wanted beside that. Gives warnings about issuers that cannot have
    /// one.
    ///
    /// # Errors
    /// `Unavailable` or `Internal` when the build fails; what was published stays.
    pub async fn build_crls(&self, wanted: WantedCrls) -> Result<Warnings> {
        self.control.build_crls(wanted, None).await
    }
}
