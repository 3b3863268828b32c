//! The configuration of a key, and the state that its sessions share: library, PIN, and reachability of the token.

use std::sync::{Arc, Mutex, PoisonError};

use super::backoff::KeyBackoff;
use super::library::{Libraries, Library};
use super::pin::Pin;
use super::token::TokenAddress;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::x509::algorithm::KeyKind;
use crate::x509::public_key::PublicKey;

/// The validated configuration of one managed key behind a PKCS #11 module.
#[derive(Clone)]
pub struct Pkcs11Config {
    /// The name of the key in logs.
    pub name: String,
    /// Name of a configured library.
    pub library: String,
    /// Address of the token.
    pub token: TokenAddress,
    /// `CKA_LABEL` of the key, if it is found by label; also the label of a generated key.
    pub key_label: Option<String>,
    /// `CKA_ID` of the key, if it is found by identifier. The label, the identifier or both are set; if both are set,
    /// both must match.
    pub key_id: Option<Vec<u8>>,
    /// The number of the mechanism, a `CKM_` constant.
    pub mechanism: u64,
    /// The PIN of the token's user.
    pub pin: Secret,
    /// `true` to open read-write sessions even if read-only ones suffice.
    pub force_rw_session: bool,
    /// The type of key to generate if the key is missing; `None` if generation is not allowed.
    pub generate: Option<KeyKind>,
    /// The public key, if the token does not return it.
    pub public: Option<PublicKey>,
}

/// Maximum number of candidates for a public key that the token does not return.
const MAX_CANDIDATES: usize = 256;

/// A managed key behind a PKCS #11 module, in one version of its configuration.
pub struct Pkcs11Key {
    pub(super) library: Arc<Library>,
    pub(super) config: Pkcs11Config,
    pub(super) pin: Pin,
    pub(super) backoff: KeyBackoff,
    candidates: Mutex<Vec<PublicKey>>,
}

impl Pkcs11Key {
    /// Creates the backend of a key; called after every write of its configuration. Does not call the module.
    ///
    /// # Errors
    /// `Invalid` when the library is not configured, or neither label nor identifier is set.
    pub fn new(libraries: &Libraries, config: Pkcs11Config) -> Result<Arc<Self>> {
        if config.key_label.is_none() && config.key_id.is_none() {
            return Err(Error::invalid("either key_label or key_id is required"));
        }
        let library = libraries.get(&config.library)?;
        let pin = Pin::new(config.pin.clone());
        Ok(Arc::new(Self { library, config, pin, backoff: KeyBackoff::default(), candidates: Mutex::default() }))
    }

    pub(super) fn offer_candidates(&self, candidates: &[PublicKey]) {
        let kept = candidates.iter().take(MAX_CANDIDATES).cloned().collect();
        *self.candidates.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }

    /// Returns the candidates for a public key that the token does not return: the configured public key, or those of
    /// certificates.
    pub(super) fn candidates(&self) -> Vec<PublicKey> {
        match &self.config.public {
            Some(public) => vec![public.clone()],
            None => self.candidates.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
