//! The composition root: opens the store, starts the domains, binds, drains.
//!
//! [`Server::open`] puts a server together without listening, so that a command can prepare it;
//! [`Server::start`] binds and serves; [`Running::stop`] drains. Called by the commands and by tests.
//! A listener is in `listener`, which connections it holds in `connections`, its certificate in [`tls`], HTTP/2
//! in `http2`, what the operating system allows and asks for in `capacity` and `signals`, what a service manager is told
//! in `notify`, operators' commands in [`operator`]. Beside the main listener there may be one that serves nothing but
//! the metrics, and one for relying parties ([`public`](crate::http::public)), each with connections and workers of its own.

mod audit;
mod capacity;
mod connection;
mod connections;
mod expect;
mod http2;
mod listener;
mod mismatch;
mod notify;
pub mod operator;
mod pulse;
pub mod renewal;
mod replacing;
mod signals;
mod stream;
pub mod tls;
mod upkeep;
pub mod verify;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::App;
use actix_web::dev;
use actix_web::http::header::STRICT_TRANSPORT_SECURITY;
use actix_web::middleware::{Condition, DefaultHeaders};
use futures_util::FutureExt as _;
use futures_util::future::join;
use ipnet::IpNet;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::audit::{Audit, Device, DeviceSettings, begin_worker};
use crate::auth::store::{AuthStore, AuthWrite};
use crate::auth::{Auth, LoginSettings};
use crate::clock::Clock;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM};
use crate::error::{Error, Kind, Result};
use crate::http;
use crate::http::budget::Budget;
use crate::http::lists::Lists;
use crate::http::put_away::PutAway;
use crate::http::rate::Limits;
use crate::http::reach::Reach;
use crate::http::settings::Settings;
use crate::http::state::{Identity, Shared, State, Stopping};
use crate::keyring::Keyring;
use crate::keys::signing::Signers;
use crate::keys::{CloudServices, CloudSettings, Devices, Libraries, ManagedKeys, StockSizes};
use crate::mounts::{MountGrants, Mounts};
use crate::nodes::{Baseline, Nodes};
use crate::pki::Engine;
use crate::projects::Projects;
use crate::storage::{self, Database, Storage, Stores};
use crate::telemetry;
use capacity::Caps;
use connections::{Connections, loopback};
use listener::{Bound, Serving, Setup};
use notify::Supervisor;
use pulse::Pulse;
pub use signals::{Signals, Wish};
use tls::Certificate;

/// What the metrics call the listener of the wires.
const MAIN: &str = "main";
/// How many connections the listener of the metrics holds.
const METRICS_CAPS: Caps = Caps { total: 32, per_address: 16 };
/// How long the store may take to close once requests have drained. With the drain, a stop takes less than
/// ten seconds.
const CLOSE: Duration = Duration::from_secs(2);
/// How long the signers of managed keys may take to end, and then their modules.
const SIGNERS_END: Duration = Duration::from_secs(1);
/// Between two looks at whether the store answers while nothing fails.
pub const STORE_WATCH: Duration = Duration::from_secs(5);
/// RFC 6797: clients that were here over TLS do not come back without it for a year.
const HSTS: &str = "max-age=31536000";

/// What a server is made of.
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The certificate to show; `None` for plain HTTP.
    pub tls: Option<Certificate>,
    /// Where `/metrics` is open to everyone, if anywhere; plain HTTP.
    pub metrics_listen: Option<SocketAddr>,
    /// Where CRLs, OCSP and the certificates of authorities are open to everyone, if anywhere; plain HTTP.
    pub public_listen: Option<SocketAddr>,
    /// Threads that serve requests; 0 is one per core.
    pub workers: usize,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// The time.
    pub clock: Clock,
    /// The store.
    pub storage: storage::Options,
    /// The PKCS #11 libraries that managed keys may name.
    pub pkcs11_libraries: Libraries,
    /// What is configured of the cloud services of managed keys.
    pub cloud: CloudSettings,
    /// Who signs for mounts in place of the managed keys that are registered; usually nobody.
    pub signers: Option<Arc<dyn Signers>>,
    /// How many RSA keys are kept ready while the server runs.
    pub rsa_key_stock: StockSizes,
    /// Settings of authentication methods.
    pub logins: LoginSettings,
    /// Settings of the wires.
    pub settings: Settings,
    /// The devices that are told of every request and answer. Without one nobody is; with some, whatever none of them
    /// takes is not done.
    pub audit: Vec<DeviceSettings>,
    /// Who is told beside them; usually nobody.
    pub listeners: Vec<Arc<dyn Device>>,
    /// Largest difference between this machine's clock and that of a shared database; usually
    /// [`nodes::SKEW_LIMIT`](crate::nodes::SKEW_LIMIT).
    pub skew_limit: Duration,
    /// Between two looks at whether the store answers while nothing fails; usually [`STORE_WATCH`].
    pub store_watch: Duration,
}

/// How many connections the listeners hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all; 0 is what the limit of open files leaves, at most 10,000.
    pub max: usize,
    /// From one address; 0 is half of them all. The machine itself and trusted proxies have no such limit.
    pub max_per_address: usize,
    /// Those of the public listener; 0 is a quarter of all, at most 1000. From one address there may be half of them.
    pub public: usize,
}

/// A server that is open but does not listen yet.
pub struct Server {
    shared: Arc<Shared>,
    storage: Storage,
    /// Of the embedded store.
    folder: Option<PathBuf>,
    listen: SocketAddr,
    tls: Option<Certificate>,
    metrics_listen: Option<SocketAddr>,
    /// Where the public listener is to be, and how many connections it holds.
    public: Option<(SocketAddr, Caps)>,
    workers: usize,
    caps: Caps,
    rsa_key_stock: StockSizes,
    store_watch: Duration,
}

impl Server {
    /// Opens the store, the domains and every stored mount.
    ///
    /// # Errors
    /// Those of the store, and whatever a stored mount cannot be opened for.
    pub async fn open(options: Options) -> Result<Self> {
        Self::open_through(options, |stores| stores).await
    }

    /// As [`Server::open`]; what `between` makes of the stores stands between them and the domains.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub async fn open_through(options: Options, between: impl FnOnce(Stores) -> Stores) -> Result<Self> {
        telemetry::install_metrics()?;
        let workers = match options.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        let files = capacity::raise_file_limit();
        let public_caps = |address| (address, capacity::public_caps(options.connections.public, files, workers));
        let public = options.public_listen.map(public_caps);
        let taken = public.map_or(0, |(_, caps)| caps.total + caps.spare());
        let caps = capacity::caps(options.connections, files.saturating_sub(taken), workers);
        let kinds = StoreKinds { storage: options.storage.database.engine(), seal: options.storage.seal_key.kind() };
        let database = &options.storage.database;
        let folder = if let Database::Embedded(folder) = database { Some(folder.clone()) } else { None };
        let storage = storage::open(options.storage).await?;
        let stores = between(storage.stores());
        let Options { listen, tls, metrics_listen, rsa_key_stock, store_watch, .. } = options;
        let keys = Keys { libraries: options.pkcs11_libraries, cloud: options.cloud, signers: options.signers };
        let Options { clock, logins, settings, skew_limit, audit, listeners, .. } = options;
        let given = Given { clock, logins, settings, skew_limit, audit, listeners };
        match domains(stores, keys, given, kinds).await {
            Ok(shared) => {
                let shared = Arc::new(shared);
                Ok(Self {
                    shared,
                    storage,
                    folder,
                    listen,
                    tls,
                    metrics_listen,
                    public,
                    workers,
                    caps,
                    rsa_key_stock,
                    store_watch,
                })
            }
            Err(error) => {
                // Lets go of the data, so that the next attempt finds it free.
                if let Err(second) = storage.shutdown().await {
                    tracing::warn!("the store did not close: {second}");
                }
                Err(error)
            }
        }
    }

    /// The domains and settings.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Binds and serves. Must run on an actix system.
    ///
    /// # Errors
    /// `Unavailable` when an address cannot be bound; the store is closed then.
    pub async fn start(self) -> Result<Running> {
        let pulse = Pulse::new(self.workers);
        let all = || {
            let main = self.bind(&pulse)?;
            let metrics = self.metrics_listen.map(|at| self.bind_metrics(at)).transpose()?;
            Ok((main, metrics, self.bind_public()?))
        };
        let (main, metrics, public) = match all() {
            Ok(bound) => bound,
            Err(error) => {
                self.close().await?;
                return Err(error);
            }
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let _ = self.shared.address.set(format!("{scheme}://{}", main.address));
        if let Some(address) = public.as_ref().map(|bound| bound.address).filter(|bound| !bound.ip().is_unspecified()) {
            let _ = self.shared.public_address.set(format!("http://{address}"));
        }
        let own = [
            upkeep::sweep(self.shared.clone()).boxed_local(),
            upkeep::end_organizations(self.shared.clone()).boxed_local(),
            upkeep::follow(self.shared.clone()).boxed_local(),
            upkeep::metrics().boxed_local(),
            upkeep::rotate(self.shared.clone()).boxed_local(),
            upkeep::keep_keys(self.shared.clone()).boxed_local(),
            watch::store(self.shared.clone(), self.store_watch).boxed_local(),
            renewal::run(self.shared.clone(), self.tls.clone()).boxed_local(),
        ];
        let tasks = self.shared.mounts.tasks().into_iter().chain(own).map(actix_rt::spawn).collect();
        let operator = self.operator();
        measure(self.tls.as_ref());
        let (metrics, public) = (metrics.map(Bound::serve), public.map(Bound::serve));
        // Now that the start is over, which this would have slowed.
        self.shared.engine.stock_keys(self.rsa_key_stock);
        Ok(Running { main: main.serve(), metrics, public, operator, tasks, pulse, server: self })
    }

    /// The operator's socket, where there is a data folder. A server without it is worth more than none.
    fn operator(&self) -> Option<operator::Socket> {
        let listening = operator::Socket::listen(self.folder.as_ref()?, self.storage.clone(), self.shared.clone());
        listening.inspect_err(|error| tracing::error!("no operator commands while this server runs: {error}")).ok()
    }

    /// The listener of the wires.
    fn bind(&self, pulse: &Pulse) -> Result<Bound<impl FnOnce() -> dev::Server + use<>>> {
        let (shared, pulse, workers) = (self.shared.clone(), pulse.clone(), self.workers);
        let over_tls = self.tls.is_some();
        let app = move || {
            pulse.begin();
            begin_worker(workers);
            let state = State::new(shared.clone());
            let hsts = DefaultHeaders::new().add((STRICT_TRANSPORT_SECURITY, HSTS));
            let app = App::new().configure(|app| http::configure(app, state));
            app.wrap(Condition::new(over_tls, hsts)).wrap_fn(listener::exchange)
        };
        let tls = self.tls.as_ref().map(Certificate::server_config).transpose()?;
        let connections = Connections::new(MAIN, self.caps, self.exempt());
        let setting = "listen (signet dev: --listen)";
        listener::bind(Setup { address: self.listen, setting, tls, workers: self.workers, connections }, app)
    }

    /// The listener for relying parties, when there is one. Its workers are its own: who keeps them busy keeps nobody
    /// waiting on the main listener.
    fn bind_public(&self) -> Result<Option<Bound<impl FnOnce() -> dev::Server + use<>>>> {
        let Some((address, caps)) = self.public else { return Ok(None) };
        let shared = self.shared.clone();
        let app = move || {
            let state = State::new(shared.clone());
            App::new().configure(|app| http::public::configure(app, state)).wrap_fn(listener::exchange)
        };
        let connections = Connections::new("public", caps, self.exempt());
        let workers = self.workers.div_ceil(2);
        let setting = "public_listen or --public-listen";
        listener::bind(Setup { address, setting, tls: None, workers, connections }, app).map(Some)
    }

    /// Who is counted in all and not by address.
    fn exempt(&self) -> Vec<IpNet> {
        loopback().into_iter().chain(self.shared.settings.trusted_proxies.iter().copied()).collect()
    }

    /// The listener of the metrics alone.
    fn bind_metrics(&self, address: SocketAddr) -> Result<Bound<impl FnOnce() -> dev::Server + use<>>> {
        let (shared, connections) =
            (self.shared.clone(), Connections::new("metrics", METRICS_CAPS, loopback().to_vec()));
        let app = move || {
            let state = State::new(shared.clone());
            App::new().configure(|app| http::configure_metrics(app, state)).wrap_fn(listener::exchange)
        };
        listener::bind(Setup { address, setting: "metrics_listen", tls: None, workers: 1, connections }, app)
    }

    /// Closes the store of a server that does not serve.
    ///
    /// # Errors
    /// `Unavailable` when the last steps fail or take too long; what was answered as written is
    /// stored all the same.
    pub async fn close(&self) -> Result<()> {
        tokio::time::timeout(CLOSE, self.storage.shutdown())
            .await
            .unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "storage: took too long to close")))
    }
}

/// What managed keys are made of.
struct Keys {
    libraries: Libraries,
    cloud: CloudSettings,
    signers: Option<Arc<dyn Signers>>,
}

/// What the store is, and its seal, as clients know them.
struct StoreKinds {
    storage: &'static str,
    seal: &'static str,
}

/// What the domains are given.
struct Given {
    clock: Clock,
    logins: LoginSettings,
    settings: Settings,
    skew_limit: Duration,
    audit: Vec<DeviceSettings>,
    listeners: Vec<Arc<dyn Device>>,
}

async fn domains(stores: Stores, keys: Keys, given: Given, kinds: StoreKinds) -> Result<Shared> {
    let Given { clock, logins, settings, skew_limit, audit, listeners } = given;
    // Before anything is read: what changes from now on is followed.
    let baseline = match stores.changes {
        Some(log) => Some(Baseline::read(log, clock.clone(), skew_limit).await?),
        None => None,
    };
    let identity = identity(&*stores.auth, kinds).await?;
    let audit = Audit::new(audit::open(&*stores.auth, audit, &clock).await?, listeners, clock.clone());
    let auth = Auth::open_with(Arc::clone(&stores.auth), clock.clone(), logins).await?;
    let reach = Reach::new(stores.auth, auth.clone(), auth.is_initialized().await?);
    auth.note_version(env!("CARGO_PKG_VERSION")).await?;
    let grants = Arc::new(MountGrants::new(auth.clone()));
    let outbound = keys.cloud.reach;
    let devices = Devices::new(keys.libraries, CloudServices::new(keys.cloud, clock.clone())?);
    let keyring = Keyring::new(stores.keyring, clock.clone());
    let managed_keys = ManagedKeys::open(stores.managed_keys, devices, grants, clock.clone()).await?;
    let signers = keys.signers.unwrap_or_else(|| managed_keys.clone());
    let engine = Engine::new(stores.pki, settings.serial_numbers.source(&clock), signers, clock.clone(), outbound);
    let mounts = Mounts::open(auth.clone(), managed_keys.clone(), engine.clone()).await?;
    let stopping = Stopping::default();
    let nodes = Nodes::new(baseline, mounts.clone());
    let projects = Projects::start(stores.projects, stores.token_seal, clock.clone());
    let (address, public_address) = (OnceLock::new(), OnceLock::new());
    Ok(Shared {
        auth,
        engine,
        mounts,
        managed_keys,
        keyring,
        projects,
        limits: Limits::new(settings.projects_rate_limit),
        senders: http::sender::Senders::default(),
        address,
        public_address,
        nodes,
        clock,
        bodies: Budget::new(settings.max_bodies_in_flight),
        answers: http::answers::Answers::new(settings.max_bodies_in_flight),
        settings,
        put_away: PutAway::default(),
        lists: Lists::default(),
        identity,
        audit,
        reach,
        stopping,
    })
}

/// A settings document of the server itself, if it is stored.
///
/// # Errors
/// `Unavailable` from the store.
pub async fn server_document(store: &dyn AuthStore, name: &str) -> Result<Option<Document>> {
    Ok(store.documents("config").await?.into_iter().find(|document| document.key.name == name))
}

/// Writes a settings document of the server itself over the one that was read.
///
/// # Errors
/// `Conflict` when it moved on since; `Unavailable` from the store.
pub async fn server_document_write(
    store: &dyn AuthStore,
    name: &str,
    read: Option<&Document>,
    body: &serde_json::Value,
) -> Result<()> {
    let write = DocumentWrite {
        key: DocumentKey { mount: SYSTEM, kind: "config", name: name.to_owned() },
        expected: read.map_or(0, |document| document.version),
        body: Some(body.to_string().into_bytes()),
    };
    store.commit(vec![AuthWrite::Document(write)]).await.map(drop)
}

/// The installation's identity, made at the first start.
async fn identity(store: &dyn AuthStore, kinds: StoreKinds) -> Result<Identity> {
    let cluster_id = match cluster_id(store).await {
        // Another node made it at the same time: that one counts.
        Err(error) if error.kind() == Kind::Conflict => cluster_id(store).await?,
        result => result?,
    };
    let cluster_name = format!("signet-cluster-{}", cluster_id.get(..8).unwrap_or_default());
    Ok(Identity { cluster_id, cluster_name, storage_type: kinds.storage, seal_type: kinds.seal })
}

async fn cluster_id(store: &dyn AuthStore) -> Result<String> {
    let stored = server_document(store, "server").await?;
    let id = stored.as_ref().and_then(|document| {
        let body: serde_json::Value = serde_json::from_slice(&document.body).ok()?;
        body["cluster_id"].as_str().map(str::to_owned)
    });
    if let Some(id) = id {
        return Ok(id);
    }
    let id = crate::random::uuid();
    server_document_write(store, "server", stored.as_ref(), &json!({ "cluster_id": id })).await?;
    Ok(id)
}

/// Reads a part of the configuration again, as it is by now. Blocks on files.
pub type Reread<T> = Arc<dyn Fn() -> Result<T> + Send + Sync>;

/// Reads a certificate again, and counts what became of it. Blocks on files.
fn reload(certificate: &Certificate) -> Result<()> {
    let done = certificate.reload();
    let result = if done.is_ok() { "done" } else { "failed" };
    metrics::counter!(telemetry::TLS_RELOADS, "result" => result).increment(1);
    measure(Some(certificate));
    done
}

/// Between which times the certificate of the main listener is valid.
fn measure(certificate: Option<&Certificate>) {
    let (from, until) = certificate.map_or((0, 0), Certificate::validity);
    metrics::gauge!(telemetry::TLS_NOT_BEFORE, "listener" => MAIN).set(from as f64);
    metrics::gauge!(telemetry::TLS_NOT_AFTER, "listener" => MAIN).set(until as f64);
}

/// A server that listens.
pub struct Running {
    main: Serving,
    metrics: Option<Serving>,
    public: Option<Serving>,
    operator: Option<operator::Socket>,
    tasks: Vec<JoinHandle<()>>,
    pulse: Pulse,
    server: Server,
}

impl Running {
    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// The bound address of the metrics' own listener.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|listener| listener.address)
    }

    /// The bound address of the public listener.
    pub fn public_address(&self) -> Option<SocketAddr> {
        self.public.as_ref().map(|listener| listener.address)
    }

    /// The domains and settings.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.server.shared
    }

    /// Serves until a signal asks to stop, then stops. When a signal asks for that, reads the certificate again, and
    /// the PKCS #11 libraries by `libraries`; what cannot be used is logged and changes nothing. A service manager is
    /// told of all this.
    ///
    /// # Errors
    /// As [`Running::stop`].
    pub async fn until(self, mut signals: Signals, libraries: Reread<Libraries>) -> Result<()> {
        let supervisor = Rc::new(Supervisor::from_environment());
        let alive = supervisor.keep_alive(self.pulse.clone());
        supervisor.ready();
        while signals.next().await == Wish::Reload {
            supervisor.reloading();
            // First: whoever moved the files is about to compress them.
            self.server.shared.audit.reopen();
            self.reload_certificate().await;
            self.reload_libraries(&libraries).await;
            supervisor.ready();
        }
        // Workers end one by one from here on.
        if let Some(alive) = alive {
            alive.abort();
        }
        supervisor.stopping();
        tracing::info!("stopping: requests under way are finished");
        self.stop().await
    }

    async fn reload_libraries(&self, libraries: &Reread<Libraries>) {
        let libraries = Arc::clone(libraries);
        let read = tokio::task::spawn_blocking(move || libraries()).await;
        match read.unwrap_or_else(|panicked| Err(Error::internal(panicked))) {
            Ok(libraries) => self.server.shared.managed_keys.use_libraries(libraries).await,
            Err(error) => tracing::error!("the PKCS #11 libraries in use stay: {error}"),
        }
    }

    async fn reload_certificate(&self) {
        let Some(certificate) = self.server.tls.clone() else {
            return tracing::info!("no TLS certificate to reload: none is configured");
        };
        let done = tokio::task::spawn_blocking(move || reload(&certificate)).await;
        if let Err(error) = done.unwrap_or_else(|panicked| Err(Error::internal(panicked))) {
            tracing::error!("the TLS certificate in use stays: {error}");
        }
    }

    /// Takes no new connections, lets running requests finish, ends the signers of managed keys, closes the store.
    ///
    /// # Errors
    /// Those of [`Server::close`]; `Internal` when the listener had failed.
    pub async fn stop(self) -> Result<()> {
        self.server.shared.stopping.start();
        let public = async {
            match self.public {
                Some(public) => public.stop(true).await,
                None => Ok(()),
            }
        };
        let (served, public) = join(self.main.stop(true), public).await;
        if let Err(error) = public {
            tracing::warn!("the public listener had failed: {error}");
        }
        if let Some(metrics) = self.metrics
            && let Err(error) = metrics.stop(false).await
        {
            tracing::warn!("the metrics listener had failed: {error}");
        }
        // Before the store closes: nobody is told that its file was held.
        if let Some(operator) = self.operator {
            operator.end().await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        // Overwrites them.
        self.server.shared.engine.stock_keys(StockSizes::default());
        self.server.shared.mounts.stop().await;
        self.server.shared.managed_keys.stop(SIGNERS_END).await;
        self.server.close().await?;
        served
    }
}

/// Keeps the process's memory, and so its keys, out of core dumps and away from other processes of
/// the same user.
///
/// # Errors
/// `Internal` when the system refuses.
pub fn forbid_core_dumps() -> Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).map_err(Error::internal)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::internal)
}
