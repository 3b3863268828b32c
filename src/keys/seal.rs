//! Seal keys in a device or service. They wrap the root key of a store and never leave the device.
//!
//! They are configured only in the server's configuration, because the store cannot contain the key that opens it.
//! PKCS #11 tokens ([`pkcs11`](super::pkcs11)) wrap with AES-GCM or RSA-OAEP ([`SealMechanism`]), AWS KMS
//! ([`cloudakms`](super::cloudakms)) with a symmetric key. The seal key is used when a store is opened, when its seal
//! changes, and by a node that was offline during such a change.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::secret::{PRIVATE_FILE_RULE, Secret};

/// Maximum duration of one call of a seal device, retries included.
const SEAL_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a secret file, exclusive, in bytes.
const SECRET_FILE_BYTES_LIMIT: u64 = 1024;

/// The wrapping mechanism of a PKCS #11 token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealMechanism {
    /// `CKM_AES_GCM` with a secret key. The wrapped key is bound to its store.
    AesGcm,
    /// `CKM_RSA_PKCS_OAEP` with SHA-256. Anyone with the public key can wrap: the contents of the store stay secret,
    /// but the whole store could be replaced by a forged one.
    RsaOaepSha256,
    /// `CKM_RSA_PKCS_OAEP` with SHA-1, for tokens without SHA-256.
    RsaOaepSha1,
}

impl SealMechanism {
    const ALL: [(Self, &'static str); 3] =
        [(Self::AesGcm, "AES-GCM"), (Self::RsaOaepSha256, "RSA-OAEP"), (Self::RsaOaepSha1, "RSA-OAEP-SHA1")];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(mechanism, _)| *mechanism == self).map_or("", |(_, word)| word)
    }

    /// Finds a mechanism by its name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(mechanism, _)| *mechanism)
    }
}

/// The source of a secret setting.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The secret itself, for example from an environment variable.
    Inline(Secret),
    /// A file that contains the secret and has mode 0600. Trailing white space is removed.
    File(PathBuf),
}

impl SecretSource {
    /// Reads the secret. `name` is the setting that names the file.
    pub(super) fn read(&self, name: &str) -> Result<Secret> {
        let path = match self {
            Self::Inline(secret) => return Ok(secret.clone()),
            Self::File(path) => path,
        };
        let failed = |e| Error::of_file(name, path, "read", e).with_kind(Kind::Unavailable);
        let Some(whole) = Secret::read_private_file(path, SECRET_FILE_BYTES_LIMIT).map_err(failed)? else {
            return Err(Error::invalid(format!("{name}: {} {PRIVATE_FILE_RULE}", path.display())));
        };
        let trimmed = whole.expose().trim_ascii_end();
        if trimmed.is_empty() || whole.expose().len() as u64 == SECRET_FILE_BYTES_LIMIT {
            return Err(Error::invalid(format!("{name}: {} must contain 1 to 1023 bytes", path.display())));
        }
        Ok(Secret::new(trimmed))
    }
}

/// Runs `work` with the time limit [`SEAL_CALL_TIMEOUT`]. `what` names the device or service in the timeout error.
pub(super) fn with_timeout<T: Send + 'static>(
    what: &'static str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    let late = move || {
        Error::new(Kind::Unavailable, format!("{what}: did not answer within {} s", SEAL_CALL_TIMEOUT.as_secs()))
    };
    async move { tokio::time::timeout(SEAL_CALL_TIMEOUT, work).await.unwrap_or_else(|_| Err(late())) }.boxed()
}
