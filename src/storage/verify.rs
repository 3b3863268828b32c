//! Check of a store that no server uses: a copy, or a database that was restored elsewhere. The check covers the
//! integrity of the file, the decryption of every sealed value, and the consistency of rows. The caller
//! (`server/verify.rs`) checks the content of rows through the same read-only store. Nothing is written. The schema is
//! not upgraded: another schema version is a finding.

mod findings;
mod read_only;
mod records;
mod seals;

use std::path::{Path, PathBuf};

use super::store::Store;
use super::{PostgresUrl, Storage, StorageOptions, embedded, postgres, scan};
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::storage::seal::SealKey;
pub use findings::Findings;
use read_only::ReadOnlyBackend;
pub use records::{CertificateRecord, MountIssuers};

/// The store to check.
#[derive(Clone)]
pub enum VerifyTarget {
    /// The file of a copy of an embedded store.
    File(PathBuf),
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
}

/// Checks the integrity of the file of a copy. A PostgreSQL database has no file to check. Returns `true` if the store
/// can be opened.
///
/// # Errors
/// `Unavailable` when this process cannot read the file.
pub async fn check_file(subject: &VerifyTarget, findings: &mut Findings) -> Result<bool> {
    let VerifyTarget::File(file) = subject else { return Ok(true) };
    run_check(file, embedded::copy_access::check, findings).await
}

/// As [`check_file`], for a copy that is to be restored. The copy may have an older schema version.
///
/// # Errors
/// As [`check_file`].
pub async fn check_restorable_file(copy: &Path, findings: &mut Findings) -> Result<bool> {
    run_check(copy, embedded::copy_access::check_any_version, findings).await
}

async fn run_check(file: &Path, check: fn(&Path) -> Result<Vec<String>>, findings: &mut Findings) -> Result<bool> {
    let path = file.to_owned();
    let found = tokio::task::spawn_blocking(move || check(&path)).await.map_err(Error::internal)??;
    let sound = found.is_empty();
    found.into_iter().for_each(|text| findings.add(text));
    Ok(sound)
}

/// Checks that a server may upgrade the schema of the store, now or for a later version of this program.
///
/// # Errors
/// `Invalid` when the database user lacks the permission; `Unavailable` when the database cannot be reached.
pub async fn check_upgrade_permission(subject: &VerifyTarget) -> Result<()> {
    match subject {
        VerifyTarget::File(_) => Ok(()),
        VerifyTarget::Postgres(url) => postgres::require_schema_permission(url).await,
    }
}

/// Opens the store read-only.
///
/// # Errors
/// `Invalid` for the wrong seal key, damaged data keys or another schema version; `Unavailable` when the store cannot
/// be read.
pub async fn open(subject: VerifyTarget, seal_key: SealKey, clock: Clock) -> Result<Storage> {
    match subject {
        VerifyTarget::File(file) => {
            let opened = tokio::task::spawn_blocking(move || embedded::copy_access::open(&file)).await;
            let reader = opened.map_err(Error::internal)??;
            let store = Store::open(ReadOnlyBackend, reader, 1, &seal_key, clock, false).await?;
            Ok(Storage::new(std::sync::Arc::new(store), None))
        }
        VerifyTarget::Postgres(url) => {
            let reader = postgres::open_read_only(url).await?;
            let store = Store::open(ReadOnlyBackend, reader, 1, &seal_key, clock, false).await?;
            Ok(Storage::new(std::sync::Arc::new(store), None))
        }
    }
}

impl VerifyTarget {
    /// Returns the store of these options as a target, if it is a PostgreSQL database; `None` for an embedded store.
    pub fn of_postgres_store(options: &StorageOptions) -> Option<Self> {
        match &options.database {
            super::Database::Embedded(_) => None,
            super::Database::Postgres(url) => Some(Self::Postgres(url.clone())),
        }
    }
}

/// Decrypts every sealed value and checks the consistency of rows. Returns the mounts with the issuers of their
/// certificates.
///
/// # Errors
/// `Unavailable` when the store cannot be read.
pub async fn check_rows(storage: &Storage, findings: &mut Findings) -> Result<Vec<MountIssuers>> {
    let store = &*storage.stores.projects;
    seals::check_all(store, &storage.keys, findings).await?;
    records::check_consistency(store, findings).await
}

/// Checks that the store can still be read.
///
/// # Errors
/// `Unavailable` when it cannot.
pub async fn check_readable(storage: &Storage) -> Result<()> {
    scan::query_rows(&*storage.stores.projects, "SELECT 1 FROM meta LIMIT 1", Vec::new()).await.map(drop)
}

/// Reads at most `limit` certificates of a mount with serials above `after`, each with the issuer that its row names.
///
/// # Errors
/// `Unavailable` when they cannot be read.
pub async fn read_certificates(
    storage: &Storage,
    mount: MountId,
    after: &[u8],
    limit: usize,
) -> Result<Vec<CertificateRecord>> {
    records::read_certificates_of_mount(&*storage.stores.projects, mount, after, limit).await
}
