//! PLACEHOLDER of the storage branch: documents in memory, nothing else. Replaced at merge.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;

use crate::auth::store::{AuthOutcome, AuthStore, AuthWrite, TokenHash, TokenRow};
use crate::clock::{Clock, Time};
use crate::documents::{Document, DocumentKey, MountId, SYSTEM};
use crate::error::Result;
use crate::pki::store::{CertificateRow, CrlRow, PkiOutcome, PkiStore, PkiWrite, StoredCertificate, StoredRevocation};
use crate::x509::serial::Serial;

/// PLACEHOLDER.
pub mod seal {
    use crate::error::{Error, Result};
    use std::path::Path;

    /// PLACEHOLDER.
    pub struct SealKey;

    impl SealKey {
        /// PLACEHOLDER.
        pub fn from_file(_path: &Path) -> Result<Self> {
            Ok(Self)
        }

        /// PLACEHOLDER.
        pub fn create_file(path: &Path) -> Result<Self> {
            std::fs::write(path, b"").map_err(Error::internal)?;
            Ok(Self)
        }
    }
}
use seal::SealKey;

/// PLACEHOLDER.
pub struct Options {
    /// Folder.
    pub data_dir: PathBuf,
    /// Key.
    pub seal_key: SealKey,
    /// Clock.
    pub clock: Clock,
    /// Queue.
    pub queue: usize,
}

/// PLACEHOLDER.
#[derive(Clone)]
pub struct Storage(Arc<Memory>);

#[derive(Default)]
struct Memory(Mutex<HashMap<DocumentKey, Document>>);

/// PLACEHOLDER.
pub async fn open(_options: Options) -> Result<Storage> {
    Ok(Storage(Arc::default()))
}

impl Storage {
    /// PLACEHOLDER.
    pub fn pki(&self) -> Arc<dyn PkiStore> {
        self.0.clone()
    }

    /// PLACEHOLDER.
    pub fn auth(&self) -> Arc<dyn AuthStore> {
        self.0.clone()
    }

    /// PLACEHOLDER.
    pub async fn shutdown(&self) -> Result<()> {
        Ok(())
    }
}

impl AuthStore for Memory {
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>> {
        let mut documents = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let mut outcomes = Vec::new();
        for write in unit {
            match write {
                AuthWrite::Document(w) => {
                    let body = w.body.unwrap_or_default();
                    documents.insert(w.key.clone(), Document { key: w.key, version: w.expected + 1, body });
                    outcomes.push(AuthOutcome::Done);
                }
                _ => outcomes.push(AuthOutcome::Revoked(Vec::new())),
            }
        }
        Box::pin(async move { Ok(outcomes) })
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        let documents = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let found = documents.values().filter(|d| d.key.mount == SYSTEM && d.key.kind == kind).cloned().collect();
        Box::pin(async move { Ok(found) })
    }

    fn token(&self, _hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        Box::pin(async { Ok(None) })
    }

    fn token_by_accessor(&self, _accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        Box::pin(async { Ok(None) })
    }

    fn sweep_tokens(&self, _now: Time, _limit: u32) -> BoxFuture<'static, Result<u32>> {
        Box::pin(async { Ok(0) })
    }
}

impl PkiStore for Memory {
    fn commit(&self, _unit: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn documents(&self, _mount: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn certificate(&self, _: MountId, _: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
        Box::pin(async { Ok(None) })
    }

    fn serials(&self, _: MountId, _: Option<Serial>, _: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn revoked_serials(&self, _: MountId, _: Option<Serial>, _: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn revocations(&self, _: MountId, _: u64, _: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn crls(&self, _: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn counts(&self, _: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
        let _: Option<CertificateRow> = None;
        Box::pin(async { Ok((0, 0)) })
    }
}
