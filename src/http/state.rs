//! What handlers of both wires share: the domains, the clock, the settings.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::answers::Answers;
use super::budget::Budget;
use super::lists::Lists;
use super::passes::Passes;
use super::put_away::PutAway;
use super::rate::Limits;
use super::reach::Reach;
use super::sender::Senders;
use super::settings::Settings;
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

/// One server's state, shared by its workers.
pub struct Shared {
    /// Tokens, policies, mounts.
    pub auth: Arc<Auth>,
    /// The certificate authority engine; its mounts are opened and closed by `mounts`.
    pub engine: Arc<Engine>,
    /// The life of mounts.
    pub mounts: Arc<Mounts>,
    /// The managed keys.
    pub managed_keys: Arc<ManagedKeys>,
    /// The data keys of the store.
    pub keyring: Keyring,
    /// The projects API.
    pub projects: Projects,
    /// How often callers of the projects API may ask.
    pub limits: Limits,
    /// Whose tokens of the projects API are.
    pub senders: Senders,
    /// Scheme and authority of absolute links; set when the server listens.
    pub address: OnceLock<String>,
    /// Scheme and authority of the public listener; set when it listens, unless its address is that of all interfaces.
    pub public_address: OnceLock<String>,
    /// The other nodes of the database.
    pub nodes: Nodes,
    /// The time.
    pub clock: Clock,
    /// Settings of the wire.
    pub settings: Settings,
    /// Room for the bodies of requests.
    pub bodies: Budget,
    /// Room for answers that their clients have not taken.
    pub answers: Answers,
    /// What senders have had wrapped.
    pub put_away: PutAway,
    /// Long lists under way.
    pub lists: Lists,
    /// Who this server is.
    pub identity: Identity,
    /// Where requests are recorded.
    pub audit: Audit,
    /// Whether the store can be reached.
    pub reach: Reach,
    /// Set once the server drains.
    pub stopping: Stopping,
}

impl Shared {
    /// Scheme and authority of absolute links.
    pub fn origin(&self) -> &str {
        let configured = self.settings.external_url.as_deref();
        configured.or_else(|| self.address.get().map(String::as_str)).unwrap_or_default()
    }

    /// Scheme and authority by which relying parties reach the public listener, as far as that is known.
    pub fn public_origin(&self) -> Option<&str> {
        let configured = self.settings.public_url.as_deref();
        configured.or_else(|| self.public_address.get().map(String::as_str))
    }
}

/// The installation's name and id, the same after every start.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A random UUID, made at the first start.
    pub cluster_id: String,
    /// A readable name made of it.
    pub cluster_name: String,
    /// The store's engine.
    pub storage_type: &'static str,
    /// The type of its seal: `file`, `pkcs11` or `cloudakms`.
    pub seal_type: &'static str,
}

/// Whether the server is stopping.
#[derive(Default)]
pub struct Stopping(AtomicBool);

impl Stopping {
    /// From now on `sys/health` answers 503.
    pub fn start(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state as one worker holds it. Cloning is cheap and stays on the worker.
#[derive(Clone)]
pub struct State(Rc<Worker>);

struct Worker {
    shared: Arc<Shared>,
    /// This worker's replicas of the mounts' actors, started at their first use.
    replicas: RefCell<HashMap<MountId, ReplicaLink>>,
    passes: Passes,
}

impl State {
    /// The state of one more worker; called on that worker's thread.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self(Rc::new(Worker { shared, replicas: RefCell::default(), passes: Passes::default() }))
    }

    /// This worker's replica of a mount's actor.
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
        let replica = authority.replica();
        replicas.insert(mount, replica.clone());
        Ok(replica)
    }

    /// What this worker spends on senders.
    pub fn passes(&self) -> &Passes {
        &self.0.passes
    }

    /// The part that all workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

impl Deref for State {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0.shared
    }
}
