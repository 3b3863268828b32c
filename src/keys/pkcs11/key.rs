//! The configuration of a key, and what its sessions share: library, PIN, and whether the token is gone.

use std::sync::{Arc, Mutex, PoisonError};

use super::library::{Libraries, Library};
use super::pin::Pin;
use super::token::TokenAddress;
use super::trouble::Trouble;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::x509::algorithm::KeyKind;
use crate::x509::public_key::PublicKey;

/// The configuration of one managed key; its rules have been checked.
#[derive(Clone)]
pub struct Pkcs11Config {
    /// What it is called where something is told of it.
    pub name: String,
    /// Name of a configured library.
    pub library: String,
    /// The token.
    pub token: TokenAddress,
    /// `CKA_LABEL` of the key, where it is found by that; the label of a key that is made.
    pub key_label: Option<String>,
    /// `CKA_ID` of the key, where it is found by that. One of the two is there; with both, both must match.
    pub key_id: Option<Vec<u8>>,
    /// The number of the mechanism, a `CKM_` constant.
    pub mechanism: u64,
    /// The PIN of the token's user.
    pub pin: Secret,
    /// Whether sessions are read-write even where none is needed.
    pub force_rw_session: bool,
    /// The key to make when there is none; `None` where none may be made.
    pub generate: Option<KeyKind>,
    /// The public part, for a token that does not give it.
    pub public: Option<PublicKey>,
}

/// Most public keys that are tried for a key whose token does not give the public part.
const MAX_CANDIDATES: usize = 256;

/// A managed key behind a PKCS #11 module, in one version of its configuration.
pub struct Pkcs11Key {
    pub(super) library: Arc<Library>,
    pub(super) config: Pkcs11Config,
    pub(super) pin: Pin,
    pub(super) trouble: Trouble,
    /// Public keys of certificates, one of which may be the public part of the key.
    candidates: Mutex<Vec<PublicKey>>,
}

impl Pkcs11Key {
    /// The backend of a key; made anew whenever its configuration is written. Asks no module.
    ///
    /// # Errors
    /// `Invalid` when no library of that name is configured, or neither label nor identifier is there.
    pub fn new(libraries: &Libraries, config: Pkcs11Config) -> Result<Arc<Self>> {
        if config.key_label.is_none() && config.key_id.is_none() {
            return Err(Error::invalid("either key_label or key_id is required"));
        }
        let (library, pin) = (libraries.get(&config.library)?, Pin::new(config.pin.clone()));
        Ok(Arc::new(Self { library, config, pin, trouble: Trouble::default(), candidates: Mutex::default() }))
    }

    /// Keeps public keys of certificates, one of which may be the public part of the key.
    pub(super) fn offer(&self, candidates: &[PublicKey]) {
        let kept = candidates.iter().take(MAX_CANDIDATES).cloned().collect();
        *self.candidates.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }

    /// What may be the public part of the key, where the token does not give it: what the configuration says, or else
    /// the key of a certificate.
    pub(super) fn candidates(&self) -> Vec<PublicKey> {
        match &self.config.public {
            Some(public) => vec![public.clone()],
            None => self.candidates.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
