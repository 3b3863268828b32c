//! The server: opens the store and the domains, binds the listeners, serves requests and shuts down.
//!
//! [`Server::open`] returns a server that does not listen yet, so that commands can prepare it; [`Server::start`] binds
//! the listeners and serves; [`RunningServer::stop`] completes running requests and closes the store. `listener`,
//! `connections`, [`tls`] and `http2` implement the network protocols, [`operator`] the operator commands. In addition
//! to the main listener, there may be one for metrics and one for relying parties ([`public`](crate::http::public)).
//! Each listener has its own connections and workers.

mod audit;
mod capacity;
mod connection;
mod connections;
mod expect;
mod heartbeat;
mod http2;
mod key_pair_files;
mod listener;
mod mismatch;
mod notify;
pub mod operator;
pub mod renewal;
mod signals;
mod store_health;
mod stream;
pub mod tls;
mod upkeep;
pub mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::App;
use actix_web::dev;
use actix_web::http::header::STRICT_TRANSPORT_SECURITY;
use actix_web::middleware::{Condition, DefaultHeaders};
use actix_web::web::ServiceConfig;
use futures_util::FutureExt as _;
use futures_util::future::join;
use ipnet::IpNet;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::audit::{Audit, AuditDevice, AuditDeviceSettings, register_worker};
use crate::auth::store::{AuthStore, AuthWrite};
use crate::auth::{Auth, LoginSettings};
use crate::clock::Clock;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::{Error, Kind, Result};
use crate::http;
use crate::http::long_lists::LongLists;
use crate::http::rate::ProjectsRateLimits;
use crate::http::sender::SenderBudget;
use crate::http::settings::HttpSettings;
use crate::http::state::{InstallationIdentity, ServerState, ShutdownFlag, WorkerState};
use crate::http::store_probe::StoreProbe;
use crate::http::wrap_quota::WrapQuota;
use crate::keyring::Keyring;
use crate::keys::signing::Signers;
use crate::keys::{CloudServices, CloudSettings, Devices, Libraries, ManagedKeys, StockSizes};
use crate::mounts::{MountGrants, Mounts};
use crate::nodes::{ChangeLogBaseline, Nodes};
use crate::pki::Engine;
use crate::projects::Projects;
use crate::storage::{self, Database, Storage, StorageOptions, Stores};
use crate::telemetry;
use capacity::ConnectionCaps;
use connections::{Connections, loopback_networks};
use heartbeat::Heartbeats;
use listener::{BoundListener, ListenerSetup, RunningListener};
use notify::Supervisor;
pub use signals::{SignalAction, Signals};
use tls::ServerCertificate;

/// Value of the metrics label `listener` for the main listener.
const MAIN_LISTENER: &str = "main";
const METRICS_CAPS: ConnectionCaps = ConnectionCaps { total: 32, per_address: 16 };
/// Time limit for closing the store after the last request. The whole shutdown takes less than ten seconds.
const STORE_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for stopping the signers of managed keys, and again for closing their PKCS #11 modules.
const SIGNER_STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two probes of the store while the store responds.
pub const STORE_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Value of `Strict-Transport-Security` (RFC 6797): for a year, clients connect to this host only over TLS.
const HSTS_POLICY: &str = "max-age=31536000";

/// The settings and resources with which a server is opened.
pub struct ServerOptions {
    /// Address of the main listener; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The TLS certificate; `None` for plain HTTP.
    pub tls: Option<ServerCertificate>,
    /// Address of the listener that serves `/metrics` over plain HTTP without authentication.
    pub metrics_listen: Option<SocketAddr>,
    /// Address of the listener that serves CRLs, OCSP and CA certificates over plain HTTP without authentication.
    pub public_listen: Option<SocketAddr>,
    /// HTTP worker threads; 0 means one per CPU core.
    pub workers: usize,
    /// Limits on the number of connections.
    pub connections: ConnectionLimits,
    /// The source of the current time.
    pub clock: Clock,
    /// The location of the store, its seal key and other options for opening it.
    pub storage: StorageOptions,
    /// The PKCS #11 libraries that managed keys may use.
    pub pkcs11_libraries: Libraries,
    /// The settings of the cloud key services for managed keys.
    pub cloud: CloudSettings,
    /// Signers to use instead of the managed keys that the store registers, for tests; usually `None`.
    pub signers: Option<Arc<dyn Signers>>,
    /// Number of RSA keys of each size to generate in advance.
    pub rsa_key_stock: StockSizes,
    /// Settings of authentication methods.
    pub logins: LoginSettings,
    /// The settings of the HTTP APIs.
    pub settings: HttpSettings,
    /// The audit devices. If there is at least one, the server carries out a request only if a device has recorded it.
    pub audit: Vec<AuditDeviceSettings>,
    /// Additional audit devices that are implemented in this process; usually none.
    pub in_process_audit_devices: Vec<Arc<dyn AuditDevice>>,
    /// Maximum accepted difference between the clocks of this machine and of a shared database; usually
    /// [`nodes::SKEW_LIMIT`](crate::nodes::SKEW_LIMIT).
    pub skew_limit: Duration,
    /// Interval between two probes of the store while the store responds; usually [`STORE_PROBE_INTERVAL`].
    pub store_probe_interval: Duration,
}

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of connections of the main listener; 0 means as many as the limit of open files allows, up to
    /// 10,000.
    pub max: usize,
    /// Maximum number of connections of the main listener from one address; 0 means half of `max`. Loopback addresses
    /// and trusted proxies are exempt.
    pub max_per_address: usize,
    /// Maximum number of connections of the public listener; 0 means a quarter of all connections, up to 1000. A single
    /// address may have half of them.
    pub max_public: usize,
}

/// A server whose store is open, but which does not listen yet.
pub struct Server {
    shared: Arc<ServerState>,
    storage: Storage,
    /// The data folder of the embedded store; `None` with PostgreSQL.
    folder: Option<PathBuf>,
    listen: SocketAddr,
    tls: Option<ServerCertificate>,
    metrics_listen: Option<SocketAddr>,
    public: Option<(SocketAddr, ConnectionCaps)>,
    workers: usize,
    caps: ConnectionCaps,
    rsa_key_stock: StockSizes,
    store_probe_interval: Duration,
}

impl Server {
    /// Opens the store, the domains and all mounts in the store.
    ///
    /// # Errors
    /// The errors of the store and of opening a mount.
    pub async fn open(options: ServerOptions) -> Result<Self> {
        Self::open_with_stores(options, |stores| stores).await
    }

    /// As [`Server::open`], but uses the stores that `wrap_stores` makes of the opened ones, for example to inject
    /// errors.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub async fn open_with_stores(options: ServerOptions, wrap_stores: impl FnOnce(Stores) -> Stores) -> Result<Self> {
        telemetry::install_metrics()?;
        let workers = match options.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        let files = capacity::raise_file_limit();
        let public_caps =
            |address| (address, capacity::compute_public_caps(options.connections.max_public, files, workers));
        let public = options.public_listen.map(public_caps);
        let public_files = public.map_or(0, |(_, caps)| caps.total + caps.overshoot());
        let caps = capacity::compute_main_caps(options.connections, files.saturating_sub(public_files), workers);
        let database = &options.storage.database;
        let folder = if let Database::Embedded(folder) = database { Some(folder.clone()) } else { None };
        let storage = storage::open(options.storage.clone()).await?;
        let stores = wrap_stores(storage.stores());
        let ServerOptions { listen, metrics_listen, rsa_key_stock, store_probe_interval, .. } = options;
        let tls = options.tls.clone();
        match open_domains(stores, options).await {
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
                    store_probe_interval,
                })
            }
            Err(error) => {
                // Closing the store releases its lock, so that it can be opened again.
                if let Err(second) = storage.shutdown().await {
                    tracing::warn!("the store was not closed cleanly: {second}");
                }
                Err(error)
            }
        }
    }

    /// Returns the state that all workers share: the domains and settings.
    pub fn shared(&self) -> &Arc<ServerState> {
        &self.shared
    }

    /// Binds the listeners, starts the background tasks and serves. Must run on an actix system.
    ///
    /// # Errors
    /// `Unavailable` when an address cannot be bound; the store is closed then.
    pub async fn start(self) -> Result<RunningServer> {
        let heartbeats = Heartbeats::new(self.workers);
        let bind_all = || {
            let main = self.bind(&heartbeats)?;
            let metrics = self.metrics_listen.map(|address| self.bind_metrics(address)).transpose()?;
            Ok((main, metrics, self.bind_public()?))
        };
        let (main, metrics, public) = match bind_all() {
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
        let background_tasks = [
            upkeep::sweep_tokens(self.shared.clone()).boxed_local(),
            upkeep::sweep_organizations(self.shared.clone()).boxed_local(),
            upkeep::follow_changes(self.shared.clone()).boxed_local(),
            upkeep::run_metrics_upkeep().boxed_local(),
            upkeep::rotate_secrets(self.shared.clone()).boxed_local(),
            upkeep::run_keyring(self.shared.clone()).boxed_local(),
            store_health::watch_store(self.shared.clone(), self.store_probe_interval).boxed_local(),
            renewal::run(self.shared.clone(), self.tls.clone()).boxed_local(),
        ];
        let tasks = self.shared.mounts.tasks().into_iter().chain(background_tasks).map(actix_rt::spawn).collect();
        let operator = self.open_operator_socket();
        publish_certificate_validity(self.tls.as_ref());
        let metrics = metrics.map(BoundListener::serve);
        let public = public.map(BoundListener::serve);
        // Starts the generation of RSA keys in advance. Earlier, it would slow down the startup.
        self.shared.engine.set_rsa_key_stock(self.rsa_key_stock);
        Ok(RunningServer { main: main.serve(), metrics, public, operator, tasks, heartbeats, server: self })
    }

    /// Opens the operator socket in the data folder of an embedded store. An error is logged; the server runs without
    /// the socket then.
    fn open_operator_socket(&self) -> Option<operator::OperatorSocket> {
        let listening =
            operator::OperatorSocket::listen(self.folder.as_ref()?, self.storage.clone(), self.shared.clone());
        listening
            .inspect_err(|error| {
                tracing::error!("the server runs without operator commands (signet operator): {error}")
            })
            .ok()
    }

    fn bind(&self, heartbeats: &Heartbeats) -> Result<BoundListener<impl FnOnce() -> dev::Server + use<>>> {
        let shared = self.shared.clone();
        let heartbeats = heartbeats.clone();
        let workers = self.workers;
        let over_tls = self.tls.is_some();
        let app = move || {
            heartbeats.begin();
            register_worker(workers);
            let state = WorkerState::new(shared.clone());
            let hsts = DefaultHeaders::new().add((STRICT_TRANSPORT_SECURITY, HSTS_POLICY));
            let app = App::new().configure(|app| http::configure(app, state));
            app.wrap(Condition::new(over_tls, hsts)).wrap_fn(listener::track_request)
        };
        let tls = self.tls.as_ref().map(ServerCertificate::server_config).transpose()?;
        let connections = Connections::new(MAIN_LISTENER, self.caps, self.exempt_networks());
        let setting = "listen (signet dev: --listen)";
        listener::bind(ListenerSetup { address: self.listen, setting, tls, workers: self.workers, connections }, app)
    }

    /// Binds the public listener, if it is configured. It has its own workers, so that its requests do not delay those
    /// of the main listener.
    fn bind_public(&self) -> Result<Option<BoundListener<impl FnOnce() -> dev::Server + use<>>>> {
        let Some((address, caps)) = self.public else { return Ok(None) };
        let connections = Connections::new("public", caps, self.exempt_networks());
        let workers = self.workers.div_ceil(2);
        let setting = "public_listen or --public-listen";
        let setup = ListenerSetup { address, setting, tls: None, workers, connections };
        self.bind_tokenless(setup, http::public::configure).map(Some)
    }

    /// Returns the networks whose connections are exempt from the limit per address.
    fn exempt_networks(&self) -> Vec<IpNet> {
        loopback_networks().into_iter().chain(self.shared.settings.trusted_proxies.iter().copied()).collect()
    }

    fn bind_metrics(&self, address: SocketAddr) -> Result<BoundListener<impl FnOnce() -> dev::Server + use<>>> {
        let connections = Connections::new("metrics", METRICS_CAPS, loopback_networks().to_vec());
        let setup = ListenerSetup { address, setting: "metrics_listen", tls: None, workers: 1, connections };
        self.bind_tokenless(setup, http::configure_metrics)
    }

    /// Binds the metrics or public listener, whose routes need no token.
    fn bind_tokenless(
        &self,
        setup: ListenerSetup,
        configure: fn(&mut ServiceConfig, WorkerState),
    ) -> Result<BoundListener<impl FnOnce() -> dev::Server + use<>>> {
        let shared = self.shared.clone();
        let app = move || {
            let state = WorkerState::new(shared.clone());
            App::new().configure(|app| configure(app, state)).wrap_fn(listener::track_request)
        };
        listener::bind(setup, app)
    }

    /// Closes the store of a server that does not listen, or no longer listens.
    ///
    /// # Errors
    /// `Unavailable` when closing fails or takes too long. Acknowledged writes are durable even then.
    pub async fn close(&self) -> Result<()> {
        tokio::time::timeout(STORE_CLOSE_TIMEOUT, self.storage.shutdown()).await.unwrap_or_else(|_| {
            Err(Error::new(
                Kind::Unavailable,
                "storage: closing the store took too long; acknowledged writes are durable",
            ))
        })
    }
}

async fn open_domains(stores: Stores, options: ServerOptions) -> Result<ServerState> {
    let ServerOptions { clock, logins, settings, cloud, .. } = options;
    // The change number is read before all other data of the store, so that later changes by other nodes are detected.
    let baseline = match stores.changes {
        Some(log) => Some(ChangeLogBaseline::read(log, clock.clone(), options.skew_limit).await?),
        None => None,
    };
    let identity = load_or_create_identity(&*stores.auth, &options.storage).await?;
    let writers = audit::open_writers(&*stores.auth, options.audit, &clock).await?;
    let audit = Audit::new(writers, options.in_process_audit_devices, clock.clone());
    let auth = Auth::open_with(Arc::clone(&stores.auth), clock.clone(), logins).await?;
    let store_probe = StoreProbe::new(stores.auth, auth.clone(), auth.is_initialized().await?);
    auth.record_version(env!("CARGO_PKG_VERSION")).await?;
    let grants = Arc::new(MountGrants::new(auth.clone()));
    let outbound = cloud.egress_policy;
    let devices = Devices::new(options.pkcs11_libraries, CloudServices::new(cloud, clock.clone())?);
    let keyring = Keyring::new(stores.keyring, clock.clone());
    let managed_keys = ManagedKeys::open(stores.managed_keys, devices, grants, clock.clone()).await?;
    let signers = options.signers.unwrap_or_else(|| managed_keys.clone());
    let engine = Engine::new(stores.pki, settings.serial_numbers.source(&clock), signers, clock.clone(), outbound);
    let mounts = Mounts::open(auth.clone(), managed_keys.clone(), engine.clone()).await?;
    let stopping = ShutdownFlag::default();
    let nodes = Nodes::new(baseline, mounts.clone());
    let projects = Projects::start(stores.projects, stores.token_seal, clock.clone());
    let address = OnceLock::new();
    let public_address = OnceLock::new();
    Ok(ServerState {
        auth,
        engine,
        mounts,
        managed_keys,
        keyring,
        projects,
        projects_rate_limits: ProjectsRateLimits::new(settings.projects_rate_limit),
        sender_cache: http::sender::SenderCache::default(),
        address,
        public_address,
        nodes,
        clock,
        body_budget: SenderBudget::new(settings.max_bodies_in_flight),
        response_budget: http::response_budget::ResponseBudget::new(settings.max_bodies_in_flight),
        settings,
        wrap_quota: WrapQuota::default(),
        long_lists: LongLists::default(),
        identity,
        audit,
        store_probe,
        stopping,
    })
}

/// Returns a document with settings of the server itself (not of a mount); `None` if it does not exist.
///
/// # Errors
/// `Unavailable` from the store.
pub async fn read_server_document(store: &dyn AuthStore, name: &str) -> Result<Option<Document>> {
    Ok(store.documents("config").await?.into_iter().find(|document| document.key.name == name))
}

/// Writes a document with settings of the server itself. `previous` is the version that was read, `None` for a new
/// document.
///
/// # Errors
/// `Conflict` when the document has changed since it was read; `Unavailable` from the store.
pub async fn write_server_document(
    store: &dyn AuthStore,
    name: &str,
    previous: Option<&Document>,
    body: &serde_json::Value,
) -> Result<()> {
    let write = DocumentWrite {
        key: DocumentKey { mount: SYSTEM_MOUNT, kind: "config", name: name.to_owned() },
        expected: previous.map_or(0, |document| document.version),
        body: Some(body.to_string().into_bytes()),
    };
    store.commit(vec![AuthWrite::Document(write)]).await.map(drop)
}

/// Returns the identity of the installation (cluster id and name, store and seal type). Creates the cluster id on the
/// first start.
async fn load_or_create_identity(store: &dyn AuthStore, options: &StorageOptions) -> Result<InstallationIdentity> {
    let cluster_id = match load_or_create_cluster_id(store).await {
        // Another node created the cluster id at the same time; use its id.
        Err(error) if error.kind() == Kind::Conflict => load_or_create_cluster_id(store).await?,
        result => result?,
    };
    let cluster_name = format!("signet-cluster-{}", cluster_id.get(..8).unwrap_or_default());
    let storage_type = options.database.engine();
    Ok(InstallationIdentity { cluster_id, cluster_name, storage_type, seal_type: options.seal_key.kind() })
}

async fn load_or_create_cluster_id(store: &dyn AuthStore) -> Result<String> {
    let stored = read_server_document(store, "server").await?;
    let id = stored.as_ref().and_then(|document| {
        let body: serde_json::Value = serde_json::from_slice(&document.body).ok()?;
        body["cluster_id"].as_str().map(str::to_owned)
    });
    if let Some(id) = id {
        return Ok(id);
    }
    let id = crate::random::uuid();
    write_server_document(store, "server", stored.as_ref(), &json!({ "cluster_id": id })).await?;
    Ok(id)
}

/// Reads a part of the configuration again, on a reload. Blocks on files.
pub type ConfigReloader<T> = Arc<dyn Fn() -> Result<T> + Send + Sync>;

/// Reads the files of a certificate again and counts the result in the metrics. Blocks on files.
fn reload_certificate(certificate: &ServerCertificate) -> Result<()> {
    let done = certificate.reload();
    let result = if done.is_ok() { "done" } else { "failed" };
    metrics::counter!(telemetry::TLS_RELOADS, "result" => result).increment(1);
    publish_certificate_validity(Some(certificate));
    done
}

/// Publishes the validity of the main listener's certificate in the metrics.
fn publish_certificate_validity(certificate: Option<&ServerCertificate>) {
    let (from, until) = certificate.map_or((0, 0), ServerCertificate::validity);
    metrics::gauge!(telemetry::TLS_NOT_BEFORE, "listener" => MAIN_LISTENER).set(from as f64);
    metrics::gauge!(telemetry::TLS_NOT_AFTER, "listener" => MAIN_LISTENER).set(until as f64);
}

/// A server that listens and serves requests.
pub struct RunningServer {
    main: RunningListener,
    metrics: Option<RunningListener>,
    public: Option<RunningListener>,
    operator: Option<operator::OperatorSocket>,
    tasks: Vec<JoinHandle<()>>,
    heartbeats: Heartbeats,
    server: Server,
}

impl RunningServer {
    /// Returns the bound address of the main listener.
    pub fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// Returns the bound address of the metrics listener.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|listener| listener.address)
    }

    /// Returns the bound address of the public listener.
    pub fn public_address(&self) -> Option<SocketAddr> {
        self.public.as_ref().map(|listener| listener.address)
    }

    /// Returns the state that all workers share: the domains and settings.
    pub fn shared(&self) -> &Arc<ServerState> {
        &self.server.shared
    }

    /// Serves until a signal requests a stop, then stops the server. On a reload signal, reopens the audit files, reads
    /// the certificate again and, with `libraries`, the paths of the PKCS #11 libraries. A part that fails to reload is
    /// logged and stays as it is. The service manager is notified of start, reload and stop.
    ///
    /// # Errors
    /// As [`RunningServer::stop`].
    pub async fn run_until_stopped(self, mut signals: Signals, libraries: ConfigReloader<Libraries>) -> Result<()> {
        let supervisor = Rc::new(Supervisor::from_environment());
        let alive = supervisor.keep_alive(self.heartbeats.clone());
        supervisor.ready();
        while signals.next_action().await == SignalAction::Reload {
            supervisor.reloading();
            // The audit files are reopened first, because a log rotation has renamed them and is about to compress
            // them.
            self.server.shared.audit.reopen();
            self.reload_certificate().await;
            self.reload_libraries(&libraries).await;
            supervisor.ready();
        }
        // From here on the workers end one by one. The watchdog must not mistake this for blocked workers.
        if let Some(alive) = alive {
            alive.abort();
        }
        supervisor.stopping();
        tracing::info!("stopping: waiting for running requests");
        self.stop().await
    }

    async fn reload_libraries(&self, libraries: &ConfigReloader<Libraries>) {
        let libraries = Arc::clone(libraries);
        let read = tokio::task::spawn_blocking(move || libraries()).await;
        match read.unwrap_or_else(|panicked| Err(Error::internal(panicked))) {
            Ok(libraries) => self.server.shared.managed_keys.replace_libraries(libraries).await,
            Err(error) => tracing::error!("PKCS #11 libraries not reloaded, the current ones stay in use: {error}"),
        }
    }

    async fn reload_certificate(&self) {
        let Some(certificate) = self.server.tls.clone() else {
            return tracing::info!("no TLS certificate to reload: none is configured");
        };
        let done = tokio::task::spawn_blocking(move || reload_certificate(&certificate)).await;
        if let Err(error) = done.unwrap_or_else(|panicked| Err(Error::internal(panicked))) {
            tracing::error!("TLS certificate not reloaded, the current one stays in use: {error}");
        }
    }

    /// Stops accepting connections, completes running requests, stops the signers of managed keys and closes the store.
    ///
    /// # Errors
    /// As [`Server::close`]; `Internal` when the main listener had failed.
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
            telemetry::outage::warn_task_failed("the public listener ended before the server stopped", &error);
        }
        if let Some(metrics) = self.metrics
            && let Err(error) = metrics.stop(false).await
        {
            telemetry::outage::warn_task_failed("the metrics listener ended before the server stopped", &error);
        }
        // Before the store closes, because closing changes its database file: a running backup must not be confirmed.
        if let Some(operator) = self.operator {
            operator.end().await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        // Drops the RSA keys that were generated in advance and overwrites them in memory.
        self.server.shared.engine.set_rsa_key_stock(StockSizes::default());
        self.server.shared.mounts.stop().await;
        self.server.shared.managed_keys.stop(SIGNER_STOP_TIMEOUT).await;
        self.server.close().await?;
        served
    }
}

/// Disables core dumps, which would contain keys, and denies other processes of the same user access to this process's
/// memory.
///
/// # Errors
/// `Internal` when the system refuses.
pub fn forbid_core_dumps() -> Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).map_err(Error::internal)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::internal)
}
