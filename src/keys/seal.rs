//! Seal keys in a device or a service: they wrap the root key of a store, and never leave.
//!
//! How one is configured is all in the server's configuration, nothing of it in the store: what opens the store cannot
//! be in it. PKCS #11 tokens ([`pkcs11`](super::pkcs11)) wrap with AES-GCM or RSA-OAEP ([`SealMechanism`]), the key
//! service of AWS ([`cloudakms`](super::cloudakms)) with a symmetric key. Asked by `storage` when a store is opened or
//! its seal is changed, and by a node that was away while it was changed; otherwise a server that runs needs no seal.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::secret::{PRIVATE_FILE, Secret, is_private};

/// Longest time for one call, with everything that is tried for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// A file of a secret is shorter, bytes.
const MAX_SECRET: u64 = 1024;

/// How a PKCS #11 token wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealMechanism {
    /// `CKM_AES_GCM` with a secret key. What is wrapped is bound to its store.
    AesGcm,
    /// `CKM_RSA_PKCS_OAEP` with SHA-256. Whoever has the public key can wrap: what is in the store is secret, but a
    /// store as a whole could be replaced by another one.
    RsaOaepSha256,
    /// The same with SHA-1, for tokens that know no other.
    RsaOaepSha1,
}

impl SealMechanism {
    const ALL: [(Self, &'static str); 3] =
        [(Self::AesGcm, "AES-GCM"), (Self::RsaOaepSha256, "RSA-OAEP"), (Self::RsaOaepSha1, "RSA-OAEP-SHA1")];

    /// Its word in the configuration.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(mechanism, _)| *mechanism == self).map_or("", |(_, word)| word)
    }

    /// The one with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(mechanism, _)| *mechanism)
    }
}

/// Where a secret of the configuration is.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In the environment.
    Given(Secret),
    /// In a file of mode 0600. A line end behind it is not of it.
    File(PathBuf),
}

impl SecretSource {
    /// The secret. `name` is the setting of the file.
    pub(super) fn read(&self, name: &str) -> Result<Secret> {
        let path = match self {
            Self::Given(secret) => return Ok(secret.clone()),
            Self::File(path) => path,
        };
        let failed = |e| Error::of_file(name, path, "read", e).as_kind(Kind::Unavailable);
        let file = File::open(path).map_err(failed)?;
        if !is_private(&file.metadata().map_err(failed)?) {
            return Err(Error::invalid(format!("{name}: {} {PRIVATE_FILE}", path.display())));
        }
        let mut bytes = Vec::with_capacity(MAX_SECRET as usize);
        file.take(MAX_SECRET).read_to_end(&mut bytes).map_err(failed)?;
        let whole = Secret::new(bytes);
        let trimmed = whole.expose().trim_ascii_end();
        if trimmed.is_empty() || whole.expose().len() as u64 == MAX_SECRET {
            return Err(Error::invalid(format!("{name}: {} holds no secret, or too much", path.display())));
        }
        Ok(Secret::new(trimmed))
    }
}

/// `work` within [`PATIENCE`]; `what` is who did not answer.
pub(super) fn in_time<T: Send + 'static>(
    what: &'static str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    let late = move || Error::new(Kind::Unavailable, format!("{what}: did not answer in time"));
    async move { tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(late())) }.boxed()
}
