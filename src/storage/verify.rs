//! Looking through a store that nobody works on: a copy, or a database that was restored elsewhere. Whether its file is
//! whole, every sealed value opens, and rows agree with each other. What the rows mean is looked at by whoever called
//! (`server/verify.rs`), through the same read-only store.
//!
//! Nothing is written, mended or brought up to date: a schema of another version than this program's is a finding.

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

/// What is looked through.
#[derive(Clone)]
pub enum Subject {
    /// A copy of the embedded store.
    File(PathBuf),
    /// A database.
    Postgres(PostgresUrl),
}

/// Looks at the file of a copy, as far as there is one; whether it can be opened at all.
///
/// # Errors
/// `Unavailable` when the file cannot be read for a reason that is not in it.
pub async fn file(subject: &Subject, findings: &mut Findings) -> Result<bool> {
    let Subject::File(file) = subject else { return Ok(true) };
    look(file, embedded::whole::look, findings).await
}

/// The same of a copy that is to be put back, which may be of an older version than this program.
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

/// That a server can bring its schema up to date, of this version or of the next.
///
/// # Errors
/// `Invalid` when the user of a database may not; `Unavailable` when it cannot be reached.
pub async fn right(subject: &Subject) -> Result<()> {
    match subject {
        Subject::File(_) => Ok(()),
        Subject::Postgres(url) => postgres::require_right(url).await,
    }
}

/// Opens it for reading only.
///
/// # Errors
/// `Invalid` for the wrong seal key, damaged data keys or a schema of another version; `Unavailable` when it cannot be
/// reached or read.
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
    /// What a copy of this store's database is.
    pub fn of(options: &Options) -> Option<Self> {
        match &options.database {
            super::Database::Embedded(_) => None,
            super::Database::Postgres(url) => Some(Self::Postgres(url.clone())),
        }
    }
}

/// Holds the rows of a store against each other and opens every sealed value; the mounts that there are, and whom their
/// certificates name as issuers.
///
/// # Errors
/// `Unavailable` when it cannot be read.
pub async fn rows(storage: &Storage, findings: &mut Findings) -> Result<Vec<Named>> {
    let store = &*storage.stores.projects;
    seals::open_all(store, &storage.keys, findings).await?;
    records::agree(store, findings).await
}

/// Reads something that every store has.
///
/// # Errors
/// `Unavailable` when it cannot be read.
pub async fn reach(storage: &Storage) -> Result<()> {
    scan::rows(&*storage.stores.projects, "SELECT 1 FROM meta LIMIT 1", Vec::new()).await.map(drop)
}

/// At most `limit` certificates of a mount, with the issuers that their rows name, whose serials are after these octets.
///
/// # Errors
/// `Unavailable` when they cannot be read.
pub async fn certificates(storage: &Storage, mount: MountId, after: &[u8], limit: usize) -> Result<Vec<Recorded>> {
    records::of_mount(&*storage.stores.projects, mount, after, limit).await
}
