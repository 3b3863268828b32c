//! State that the handlers of both APIs share: the domains, the clock, the settings.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::fair_scheduler::FairScheduler;
use super::long_lists::LongLists;
use super::rate::ProjectsRateLimits;
use super::response_budget::ResponseBudget;
use super::sender::{SenderBudget, SenderCache};
use super::settings::HttpSettings;
use super::store_probe::StoreProbe;
use super::wrap_quota::WrapQuota;
use crate::audit::Audit;
use crate::auth::Auth;
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::Result;
use crate::keyring::Keyring;
use crate::keys::ManagedKeys;
use crate::mounts::Mounts;
use crate::nodes::Nodes;
use crate::pki::Engine;
use crate::pki::actor::ReplicaLink;
use crate::projects::Projects;

/// The state of a server, shared by its workers.
pub struct ServerState {
    /// Authentication and authorization: tokens, policies and the mount table.
    pub auth: Arc<Auth>,
    /// The certificate authority engine. `mounts` opens and closes its mounts.
    pub engine: Arc<Engine>,
    /// Opens and closes the mounts of all kinds.
    pub mounts: Arc<Mounts>,
    /// The managed keys, which external devices and services hold.
    pub managed_keys: Arc<ManagedKeys>,
    /// The data keys that encrypt the store.
    pub keyring: Keyring,
    /// The domain of the projects API.
    pub projects: Projects,
    /// Rate limits of the projects API.
    pub projects_rate_limits: ProjectsRateLimits,
    /// Cache of the senders of projects API tokens.
    pub sender_cache: SenderCache,
    /// Scheme and authority of the main listener, for absolute links; set when the server listens.
    pub address: OnceLock<String>,
    /// Scheme and authority of the public listener; set when it listens, unless it is bound to all interfaces.
    pub public_address: OnceLock<String>,
    /// Follows the changes that the cluster's other nodes make in the store.
    pub nodes: Nodes,
    /// The clock that supplies the current time.
    pub clock: Clock,
    /// Settings of both APIs.
    pub settings: HttpSettings,
    /// Memory budget for request bodies.
    pub body_budget: SenderBudget,
    /// Memory budget for responses that are being sent.
    pub response_budget: ResponseBudget,
    /// Per-sender limit on the bytes of wrapped responses.
    pub wrap_quota: WrapQuota,
    /// Limits on lists of more than one page.
    pub long_lists: LongLists,
    /// Name and id of this installation.
    pub identity: InstallationIdentity,
    /// Records requests on the audit devices.
    pub audit: Audit,
    /// Checks if the store is available, and caches the result briefly.
    pub store_probe: StoreProbe,
    /// Set when the server begins to shut down.
    pub stopping: ShutdownFlag,
}

impl ServerState {
    /// Returns the scheme and authority of absolute links.
    pub fn origin(&self) -> &str {
        let configured = self.settings.external_url.as_deref();
        configured.or_else(|| self.address.get().map(String::as_str)).unwrap_or_default()
    }

    /// Returns the scheme and authority of the public listener, if known.
    pub fn public_origin(&self) -> Option<&str> {
        let configured = self.settings.public_url.as_deref();
        configured.or_else(|| self.public_address.get().map(String::as_str))
    }
}

/// The name and id of an installation, which survive restarts, and the types of its store and seal.
#[derive(Clone, Debug)]
pub struct InstallationIdentity {
    /// A random UUID, generated at the first start.
    pub cluster_id: String,
    /// A readable name, derived from the id.
    pub cluster_name: String,
    /// The store's database engine.
    pub storage_type: &'static str,
    /// Type of the seal, which encrypts the data keys of the store: `file`, `pkcs11` or `cloudakms`.
    pub seal_type: &'static str,
}

/// A flag that is set when the shutdown of the server starts.
#[derive(Default)]
pub struct ShutdownFlag(AtomicBool);

impl ShutdownFlag {
    /// Marks the start of the shutdown. From now on `sys/health` returns 503.
    pub fn start(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// `true` if the shutdown has started.
    pub fn has_started(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state of one worker. Clones are cheap and stay on the worker's thread.
#[derive(Clone)]
pub struct WorkerState(Rc<Worker>);

struct Worker {
    shared: Arc<ServerState>,
    /// This worker's replica actors, each of which issues certificates from the published state of one mount. They are
    /// started at first use.
    replicas: RefCell<HashMap<MountId, ReplicaLink>>,
    scheduler: FairScheduler,
}

impl WorkerState {
    /// Creates the state of a worker. It must be called on that worker's thread.
    pub fn new(shared: Arc<ServerState>) -> Self {
        Self(Rc::new(Worker { shared, replicas: RefCell::default(), scheduler: FairScheduler::default() }))
    }

    /// Returns this worker's replica actor of a mount, and starts it if necessary.
    ///
    /// # Errors
    /// `NotFound` when the mount is not open.
    pub fn replica(&self, mount: MountId) -> Result<ReplicaLink> {
        let authority = self.engine.authority(mount)?;
        let mut replicas = self.0.replicas.borrow_mut();
        if let Some(replica) = replicas.get(&mount) {
            return Ok(replica.clone());
        }
        replicas.retain(|mount, _| self.engine.authority(*mount).is_ok());
        let replica = authority.start_replica();
        replicas.insert(mount, replica.clone());
        Ok(replica)
    }

    /// Returns this worker's scheduler.
    pub fn scheduler(&self) -> &FairScheduler {
        &self.0.scheduler
    }

    /// Returns the state shared by all workers.
    pub fn shared(&self) -> &Arc<ServerState> {
        &self.0.shared
    }
}

impl Deref for WorkerState {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.0.shared
    }
}
