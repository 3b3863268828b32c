//! The types of backends, and what a key of each is configured with.
//!
//! A type is a variant of [`BackendType`] with its row in `WORDS`, a variant of [`BackendConfig`] with its arms
//! below, and on the wire a file of `http/secrets/sys/managed_keys/` with its arms there. The configuration itself,
//! with its rules, is with the backend: that of a PKCS #11 key in [`pkcs11`](crate::keys::pkcs11).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::terms::Terms;
use crate::error::{Error, Result};
use crate::keys::actor::{AsyncBackend, Backend};
use crate::keys::cloud::CloudServices;
use crate::keys::cloudakms::{self, CloudAkmsConfig};
use crate::keys::cloudbkeyvault::{self, CloudBkeyvaultConfig};
use crate::keys::cloudckms::{self, CloudCkmsConfig};
use crate::keys::pkcs11::{Libraries, Pkcs11Key, Pkcs11Settings};
use crate::keys::store::PendingKeys;

/// Where a managed key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BackendType {
    Pkcs11,
    CloudAkms,
    CloudBKeyVault,
    CloudCkms,
}

const WORDS: [(BackendType, &str); 4] = [
    (BackendType::Pkcs11, "pkcs11"),
    (BackendType::CloudAkms, "cloudakms"),
    (BackendType::CloudBKeyVault, "cloudbkeyvault"),
    (BackendType::CloudCkms, "cloudckms"),
];

/// Characters of a wrong word that an error repeats.
const LONGEST: usize = 64;

impl BackendType {
    /// Reads the word of a path or of a request.
    ///
    /// # Errors
    /// `Invalid`, naming the word.
    pub fn parse(word: &str) -> Result<Self> {
        let found = WORDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind);
        found.ok_or_else(|| {
            let word: String = word.chars().take(LONGEST).collect();
            Error::invalid(format!("unknown managed key type {word:?}"))
        })
    }

    /// The word of requests and answers.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// The configuration of a key's backend. It is stored as it is, secrets in clear, in a sealed document.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendConfig {
    /// A key on a token of a PKCS #11 module.
    Pkcs11(Pkcs11Settings),
    /// A key at the key management service of AWS.
    CloudAkms(CloudAkmsConfig),
    /// A key in a key store of Azure.
    CloudBKeyVault(CloudBkeyvaultConfig),
    /// A key at the key management service of Google.
    CloudCkms(CloudCkmsConfig),
}

/// Calls at a time to a key at a cloud service.
const CLOUD_PARALLEL: usize = 16;

/// What this server has for backends.
#[derive(Clone)]
pub struct Devices {
    /// PKCS #11 libraries by name.
    pub libraries: Libraries,
    /// The way to cloud services.
    pub cloud: Arc<CloudServices>,
    /// Keys that were generated at cloud services and have not appeared; the registry's.
    pub(super) pending: Option<Arc<dyn PendingKeys>>,
}

impl Devices {
    /// The backends of a server.
    pub fn new(libraries: Libraries, cloud: Arc<CloudServices>) -> Self {
        Self { libraries, cloud, pending: None }
    }

    /// A backend at a cloud service that shares what it generates with other nodes.
    fn cloud_backend(&self, backend: Arc<dyn AsyncBackend>, place: String) -> Opened {
        if let Some(pending) = &self.pending {
            backend.share_pending(Arc::clone(pending), place);
        }
        Opened { backend: Backend::Async(backend), max_parallel: CLOUD_PARALLEL }
    }
}

/// A backend in one version of its configuration, and how many calls it takes at a time.
pub(super) struct Opened {
    pub(super) backend: Backend,
    pub(super) max_parallel: usize,
}

impl BackendConfig {
    /// Its type.
    pub fn kind(&self) -> BackendType {
        match self {
            Self::Pkcs11(_) => BackendType::Pkcs11,
            Self::CloudAkms(_) => BackendType::CloudAkms,
            Self::CloudBKeyVault(_) => BackendType::CloudBKeyVault,
            Self::CloudCkms(_) => BackendType::CloudCkms,
        }
    }

    /// Where a key like this is made: the same for all that would make the same one. Two places may have one name, such
    /// as a label on two tokens: those wait for each other without need.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Pkcs11(settings) => format!("pkcs11/{}", settings.key_label),
            Self::CloudAkms(config) => format!("cloudakms/{}", config.kms_key),
            Self::CloudBKeyVault(config) => {
                let (vault, key) = (config.vault_name.to_lowercase(), config.key_name.to_lowercase());
                format!("cloudbkeyvault/{vault}/{key}")
            }
            Self::CloudCkms(config) => format!("cloudckms/{}/{}", config.key_ring, config.crypto_key),
        }
    }

    /// Whether what it names is something else now than it was before.
    pub(super) fn is_moved(&self, before: &Devices, now: &Devices) -> bool {
        match self {
            Self::Pkcs11(settings) => !before.libraries.is_same(&now.libraries, &settings.library),
            Self::CloudAkms(_) | Self::CloudBKeyVault(_) | Self::CloudCkms(_) => false,
        }
    }

    /// The backend of the key `name`; made anew whenever the record is written. `terms` are what it shares with all
    /// types. Asks no device.
    ///
    /// # Errors
    /// `Invalid` for a configuration against the rules of its type, and when this server lacks what it names.
    pub(super) fn open(&self, name: &str, terms: &Terms, devices: &Devices) -> Result<Opened> {
        let shared = |backend| devices.cloud_backend(backend, self.place());
        match self {
            Self::Pkcs11(settings) => {
                let config = settings.config(name, terms.allow_generate_key)?;
                let key: Arc<Pkcs11Key> = Pkcs11Key::new(&devices.libraries, config)?;
                Ok(Opened { backend: Backend::Blocking(key), max_parallel: settings.max_parallel as usize })
            }
            Self::CloudAkms(config) => {
                let reach = devices.cloud.settings.reach;
                cloudakms::backend(config.clone(), reach, terms.allow_generate_key).map(shared)
            }
            Self::CloudBKeyVault(config) => {
                cloudbkeyvault::backend(&devices.cloud, config.clone(), terms.allow_generate_key).map(shared)
            }
            Self::CloudCkms(config) => {
                cloudckms::backend(&devices.cloud, config.clone(), terms.allow_generate_key).map(shared)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_words_and_no_other() {
        for (kind, word) in WORDS {
            assert_eq!((BackendType::parse(word).unwrap(), kind.word()), (kind, word));
        }
        for word in ["PKCS11", "", "awskms", "pkcs11 "] {
            assert_eq!(BackendType::parse(word).unwrap_err().text(), format!("unknown managed key type {word:?}"));
        }
    }
}
