//! Backend types and their configurations.
//!
//! A new type needs a variant of [`BackendType`] with its row in `BACKEND_TYPE_NAMES`, a variant of [`BackendConfig`],
//! and a file in `http/secrets/sys/managed_keys/`. Validation of a configuration is in the module of its backend, such
//! as [`pkcs11`](crate::keys::pkcs11).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::key_permissions::KeyPermissions;
use crate::error::{Error, Result};
use crate::keys::actor::{AsyncBackend, KeyBackend};
use crate::keys::cloud::CloudServices;
use crate::keys::cloudakms::{self, CloudAkmsConfig};
use crate::keys::cloudbkeyvault::{self, CloudBkeyvaultConfig};
use crate::keys::cloudckms::{self, CloudCkmsConfig};
use crate::keys::pkcs11::{Libraries, Pkcs11Key, Pkcs11Settings};
use crate::keys::store::PendingKeys;

/// The type of a managed key's backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BackendType {
    Pkcs11,
    CloudAkms,
    CloudBKeyVault,
    CloudCkms,
}

const BACKEND_TYPE_NAMES: [(BackendType, &str); 4] = [
    (BackendType::Pkcs11, "pkcs11"),
    (BackendType::CloudAkms, "cloudakms"),
    (BackendType::CloudBKeyVault, "cloudbkeyvault"),
    (BackendType::CloudCkms, "cloudckms"),
];

/// Maximum characters of an unknown name that an error quotes.
const MAX_QUOTED_CHARACTERS: usize = 64;

impl BackendType {
    /// Parses the type name in a path or request.
    ///
    /// # Errors
    /// `Invalid`, with the unknown name.
    pub fn parse(word: &str) -> Result<Self> {
        let found = BACKEND_TYPE_NAMES.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind);
        found.ok_or_else(|| {
            let word: String = word.chars().take(MAX_QUOTED_CHARACTERS).collect();
            Error::invalid(format!("unknown managed key type {word:?}"))
        })
    }

    /// The type name in requests and responses.
    pub fn name(self) -> &'static str {
        BACKEND_TYPE_NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// The configuration of a key's backend. It is stored with secrets in plain text, in a sealed document.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendConfig {
    /// A key on a token of a PKCS #11 module.
    Pkcs11(Pkcs11Settings),
    /// A key in AWS KMS.
    CloudAkms(CloudAkmsConfig),
    /// A key in Azure Key Vault.
    CloudBKeyVault(CloudBkeyvaultConfig),
    /// A key in Google Cloud KMS.
    CloudCkms(CloudCkmsConfig),
}

/// Maximum concurrent calls to one key of a cloud service.
const MAX_CLOUD_CALLS_PER_KEY: usize = 16;

/// The PKCS #11 libraries and cloud clients of this server, which all backends share.
#[derive(Clone)]
pub struct Devices {
    /// PKCS #11 libraries by name.
    pub libraries: Libraries,
    /// The clients of cloud services.
    pub cloud: Arc<CloudServices>,
    /// The record of keys that cloud services have generated but do not list yet. `None` until the registry sets it.
    pub(super) pending: Option<Arc<dyn PendingKeys>>,
}

impl Devices {
    /// Creates the devices without the record of pending keys.
    pub fn new(libraries: Libraries, cloud: Arc<CloudServices>) -> Self {
        Self { libraries, cloud, pending: None }
    }

    /// Returns a cloud backend that shares its pending keys with other nodes.
    fn cloud_backend(&self, backend: Arc<dyn AsyncBackend>, location: String) -> OpenedKeyBackend {
        if let Some(pending) = &self.pending {
            backend.share_pending(Arc::clone(pending), location);
        }
        OpenedKeyBackend { backend: KeyBackend::Async(backend), max_parallel: MAX_CLOUD_CALLS_PER_KEY }
    }
}

/// A backend opened with one version of its configuration, and its maximum number of concurrent calls.
pub(super) struct OpenedKeyBackend {
    pub(super) backend: KeyBackend,
    pub(super) max_parallel: usize,
}

impl BackendConfig {
    /// The backend type.
    pub fn kind(&self) -> BackendType {
        match self {
            Self::Pkcs11(_) => BackendType::Pkcs11,
            Self::CloudAkms(_) => BackendType::CloudAkms,
            Self::CloudBKeyVault(_) => BackendType::CloudBKeyVault,
            Self::CloudCkms(_) => BackendType::CloudCkms,
        }
    }

    /// The location at which a key is generated. All configurations that would generate the same key have the same
    /// location. Different keys may share a location, for example if two tokens have keys with the same label. Then
    /// their generations wait for each other needlessly.
    pub(super) fn location(&self) -> String {
        match self {
            Self::Pkcs11(settings) => format!("pkcs11/{}", settings.key_label),
            Self::CloudAkms(config) => format!("cloudakms/{}", config.kms_key),
            Self::CloudBKeyVault(config) => {
                let vault = config.vault_name.to_lowercase();
                let key = config.key_name.to_lowercase();
                format!("cloudbkeyvault/{vault}/{key}")
            }
            Self::CloudCkms(config) => format!("cloudckms/{}/{}", config.key_ring, config.crypto_key),
        }
    }

    /// `true` if the library name in this configuration refers to another file in `now` than in `before`.
    pub(super) fn uses_changed_library(&self, before: &Devices, now: &Devices) -> bool {
        match self {
            Self::Pkcs11(settings) => !before.libraries.has_same_library(&now.libraries, &settings.library),
            Self::CloudAkms(_) | Self::CloudBKeyVault(_) | Self::CloudCkms(_) => false,
        }
    }

    /// Opens the backend of the key `name`; called after every write of its record. `terms` are the permissions of the
    /// key. Does not call the device.
    ///
    /// # Errors
    /// `Invalid` for a configuration that breaks the rules of its type, or that names a library that is not configured
    /// on this server.
    pub(super) fn open(&self, name: &str, terms: &KeyPermissions, devices: &Devices) -> Result<OpenedKeyBackend> {
        let shared = |backend| devices.cloud_backend(backend, self.location());
        match self {
            Self::Pkcs11(settings) => {
                let config = settings.config(name, terms.allow_generate_key)?;
                let key: Arc<Pkcs11Key> = Pkcs11Key::new(&devices.libraries, config)?;
                Ok(OpenedKeyBackend {
                    backend: KeyBackend::Blocking(key),
                    max_parallel: settings.max_parallel as usize,
                })
            }
            Self::CloudAkms(config) => {
                let egress_policy = devices.cloud.settings.egress_policy;
                cloudakms::backend(config.clone(), egress_policy, terms.allow_generate_key).map(shared)
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
    fn backend_type_parses_only_its_exact_names() {
        for (kind, word) in BACKEND_TYPE_NAMES {
            assert_eq!((BackendType::parse(word).unwrap(), kind.name()), (kind, word));
        }
        for word in ["PKCS11", "", "awskms", "pkcs11 "] {
            assert_eq!(BackendType::parse(word).unwrap_err().text(), format!("unknown managed key type {word:?}"));
        }
    }
}
