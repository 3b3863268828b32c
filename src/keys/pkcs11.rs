//! Keys on a token of a PKCS #11 module: a hardware module, or SoftHSM.
//!
//! Callers name a library by its configured name, never by a file. Each session (`worker`) finds its key once and
//! stores the handle. After a failure, `recovery` decides what is reopened; then the key is compared again with the
//! public key for which the signer was created. Logins and session limits belong to the `token` that all keys share,
//! initialization belongs to the `module`. Only this module uses the crate `cryptoki`, which loads the library and
//! contains all the unsafe code.

mod backoff;
mod generate;
mod key;
mod library;
mod mechanism;
mod module;
mod object;
mod pin;
mod recovery;
mod seal;
mod session;
mod settings;
mod token;
mod worker;

use std::sync::Arc;

pub use self::key::{Pkcs11Config, Pkcs11Key};
pub use self::library::Libraries;
pub use self::mechanism::is_supported_mechanism;
pub use self::seal::{Pkcs11SealSettings, seal_device};
pub use self::settings::Pkcs11Settings;
pub(in crate::keys) use self::token::PIN_NOT_RETRIED;
pub use self::token::TokenAddress;
use super::actor::{BackendSession, BlockingBackend, KeyMetrics};
use super::signer::SigningInputKind;
use crate::error::Result;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

impl BlockingBackend for Pkcs11Key {
    fn input_kind(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<SigningInputKind> {
        mechanism::MechanismPlan::for_signature(self.config.mechanism, kind, algorithm).map(|plan| plan.input_kind())
    }

    fn offer_candidates(&self, candidates: &[PublicKey]) {
        Pkcs11Key::offer_candidates(self, candidates);
    }

    fn new_session(self: Arc<Self>, key_metrics: KeyMetrics) -> Box<dyn BackendSession> {
        Box::new(worker::Pkcs11Worker::new(self, key_metrics))
    }
}
