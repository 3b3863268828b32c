//! Keys behind a PKCS #11 module: a hardware module, or SoftHSM.
//!
//! | part | owns |
//! |---|---|
//! | `settings` | what a key is configured with, as it was written, and the rules for it |
//! | `key` | the configuration of a key, and what all its sessions share |
//! | `library` | the libraries by configured name, one per file, and their tokens |
//! | `module` | a library's code: loaded once per process, initialised, and initialised again |
//! | `token` | the token's login and the PINs that it refused, and how many sessions it may have |
//! | `session` | one session, open and logged in |
//! | `object` | finding the key, reading its public part |
//! | `mechanism` | which call signs what, and the form of its input and output |
//! | `generate` | making a key that is not there |
//! | `lane` | one place of the key's actor: a session, the key's handle in it, what is done when they are lost |
//! | `healing` | the table of what is done for which return code |
//! | `seal` | a key that wraps the root key of a store |
//! | `pin`, `trouble` | when a PIN is tried, when a token that is gone is looked for |
//!
//! A caller names a library by the name that the server's configuration gives it, never by a file. The key is
//! found once per session and its handle kept. Whatever a module answers, what is built up again is checked:
//! the key that signs is the one whose public key the signer was made for.
//!
//! `cryptoki` is named in this folder alone; it loads the module, and no unsafe code is ours.

mod generate;
mod healing;
mod key;
mod lane;
mod library;
mod mechanism;
mod module;
mod object;
mod pin;
mod seal;
mod session;
mod settings;
mod token;
mod trouble;

use std::sync::Arc;

pub use self::key::{Pkcs11Config, Pkcs11Key};
pub use self::library::Libraries;
pub use self::mechanism::is_supported_mechanism;
pub use self::seal::{Pkcs11SealSettings, seal_device};
pub use self::settings::Pkcs11Settings;
pub(in crate::keys) use self::token::PIN_IS_KEPT;
pub use self::token::TokenAddress;
use super::actor::{BlockingBackend, Lane, Meter};
use super::signer::Wants;
use crate::error::Result;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

impl BlockingBackend for Pkcs11Key {
    fn wants(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<Wants> {
        mechanism::Plan::of(self.config.mechanism, kind, algorithm).map(|plan| plan.wants())
    }

    fn offer(&self, candidates: &[PublicKey]) {
        Pkcs11Key::offer(self, candidates);
    }

    fn lane(self: Arc<Self>, meter: Meter) -> Box<dyn Lane> {
        Box::new(lane::SessionLane::new(self, meter))
    }
}
