//! What issuing needs besides a mount's state.

use std::sync::Arc;

use super::compromised::CompromisedKeys;
use super::serials::Serials;
use super::store::PkiStore;
use crate::clock::Clock;
use crate::keys::pool::KeyPool;
use crate::keys::signing::Signers;
use crate::outbound::Reach;

/// What issuing needs besides the view: shared by all mounts of a server.
#[derive(Clone)]
pub struct Tools {
    /// Where records go.
    pub store: Arc<dyn PkiStore>,
    /// Where RSA keys are generated, and kept ready.
    pub pool: KeyPool,
    /// The time.
    pub clock: Clock,
    /// The source of serials.
    pub serials: Serials,
    /// Who signs with managed keys.
    pub signers: Arc<dyn Signers>,
    /// Which addresses that callers configure may be called.
    pub reach: Reach,
    /// Keys that nothing certifies.
    pub compromised: Arc<CompromisedKeys>,
}
