//! Check of a store that is not in use: a copy, or a database that was restored elsewhere. Checks that the file is
//! intact, every sealed value opens, and rows are consistent. The caller (`server/verify.rs`) checks the content of
//! rows through the same read-only store. Nothing is written or upgraded: another schema version is a finding.

mod findings;
mod read_only;
mod records;
mod seals;

use std::path::{Path, PathBuf};

use super::store::Store;
use super::{Options, PostgresUrl, Storage, embedded, postgres, scan};
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::storage::seal::SealKey;
pub use findings::Findings;
use read_only::ReadOnly;
pub use records::{Named, Recorded};

/// The store to check.
#[derive(Clone)]
pub enum Subject {
    /// A copy of an embedded store.
    File(PathBuf),
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
}

/// Checks the file of a copy, if there is one. Returns `true` if the store can be opened.
///
/// # Errors
/// `Unavailable` when the file cannot be read for a reason outside of it.
pub async fn file(subject: &Subject, findings: &mut Findings) -> Result<bool> {
    let Subject::File(file) = subject else { return Ok(true) };
    look(file, embedded::whole::look, findings).await
}

/// As [`file`], for a copy to be restored, which may have an older schema version.
///
/// # Errors
/// As [`file`].
pub async fn known_file(copy: &Path, findings: &mut Findings) -> Result<bool> {
    look(copy, embedded::whole::look_known, findings).await
}

async fn look(file: &Path, look: fn(&Path) -> Result<Vec<String>>, findings: &mut Findings) -> Result<bool> {
    let path = file.to_owned();
    let found = tokio::task::spawn_blocking(move || look(&path)).await.map_err(Error::internal)??;
    let sound = found.is_empty();
    found.into_iter().for_each(|text| findings.add(text));
    Ok(sound)
}

/// Checks that a server may upgrade the schema, now or with a later version.
///
/// # Errors
/// `Invalid` when the database user lacks the permission; `Unavailable` when the database cannot be reached.
pub async fn right(subject: &Subject) -> Result<()> {
    match subject {
        Subject::File(_) => Ok(()),
        Subject::Postgres(url) => postgres::require_right(url).await,
    }
}

/// Opens the store read-only.
///
/// # Errors
/// `Invalid` for the wrong seal key, damaged data keys or another schema version; `Unavailable` when it cannot be read.
pub async fn open(subject: Subject, seal_key: SealKey, clock: Clock) -> Result<Storage> {
    match subject {
        Subject::File(file) => {
            let opened = tokio::task::spawn_blocking(move || embedded::whole::open(&file)).await;
            let reader = opened.map_err(Error::internal)??;
            let store = Store::open(ReadOnly, reader, 1, &seal_key, clock, false).await?;
            Ok(Storage::new(std::sync::Arc::new(store), None))
        }
        Subject::Postgres(url) => {
            let reader = postgres::open_to_read(url).await?;
            let store = Store::open(ReadOnly, reader, 1, &seal_key, clock, false).await?;
            Ok(Storage::new(std::sync::Arc::new(store), None))
        }
    }
}

impl Subject {
    /// The database of this store, if it is a PostgreSQL database; `None` for an embedded store.
    pub fn of(options: &Options) -> Option<Self> {
        match &options.database {
            super::Database::Embedded(_) => None,
            super::Database::Postgres(url) => Some(Self::Postgres(url.clone())),
        }
    }
}

/// Checks the consistency of rows and opens every sealed value. Returns the mounts with their issuers.
///
/// # Errors
/// `Unavailable` when the store cannot be read.
pub async fn rows(storage: &Storage, findings: &mut Findings) -> Result<Vec<Named>> {
    let store = &*storage.stores.projects;
    seals::open_all(store, &storage.keys, findings).await?;
    records::agree(store, findings).await
}

/// Checks that the store can still be read.
///
/// # Errors
/// `Unavailable` when it cannot.
pub async fn reach(storage: &Storage) -> Result<()> {
    scan::rows(&*storage.stores.projects, "SELECT 1 FROM meta LIMIT 1", Vec::new()).await.map(drop)
}

/// Reads at most `limit` certificates of a mount with serials above `after`, and the issuers that their rows name.
///
/// # Errors
/// `Unavailable` when they cannot be read.
pub async fn certificates(storage: &Storage, mount: MountId, after: &[u8], limit: usize) -> Result<Vec<Recorded>> {
    records::of_mount(&*storage.stores.projects, mount, after, limit).await
}
