//! Dependencies that every operation of the engine needs.

use std::sync::Arc;

use super::compromised::CompromisedKeys;
use super::serials::SerialSource;
use super::store::PkiStore;
use crate::clock::Clock;
use crate::keys::pool::KeyPool;
use crate::keys::signing::Signers;
use crate::outbound::EgressPolicy;

/// Dependencies of issuing other than the mount's view, shared by all mounts of a server.
#[derive(Clone)]
pub struct EngineDeps {
    /// Store for the records of issued certificates.
    pub store: Arc<dyn PkiStore>,
    /// Generator and stock of RSA keys.
    pub pool: KeyPool,
    /// Clock for validity and revocation times.
    pub clock: Clock,
    /// Source of serial numbers.
    pub serials: SerialSource,
    /// Signers for managed keys.
    pub signers: Arc<dyn Signers>,
    /// Addresses that callers may configure as targets of outbound requests.
    pub egress_policy: EgressPolicy,
    /// Keys that are never certified.
    pub compromised: Arc<CompromisedKeys>,
}
