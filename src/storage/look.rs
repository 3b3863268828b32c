//! Looking at a store before a server starts on it: whether it can be reached, what version its schema has, and whether the
//! seal key opens it. Nothing is written, made or brought up to date.
//!
//! Called by `signet check`, and by whatever works on a store that somebody has ([`Absent`](super::Absent)).

use super::backend::Reader;
use super::database::Database;
use super::seal::{About, SealKey};
use super::{documents, embedded, keys, postgres};
use crate::documents::{Document, SYSTEM};
use crate::error::{Error, Kind, Result};
use crate::keys::store::MANAGED_KEYS;
use crate::storage::restored::require_unmoved;

/// What was found of a store.
#[derive(Clone, PartialEq, Eq)]
pub enum Found {
    /// There is none yet; `serve` makes it.
    Nothing,
    /// A process works on it, and keeps everybody else out.
    InUse,
    /// The seal key opens it.
    Opened {
        /// Its seal.
        seal: About,
        /// The version of its schema.
        schema: usize,
        /// The version that a start of this program brings it to.
        newest: usize,
        /// The managed keys. None of a schema that a start changes.
        managed_keys: Vec<Document>,
    },
}

/// Whether there is a store. It need not be whole, nor the seal key's.
///
/// # Errors
/// `Unavailable` when it cannot be reached; `Invalid` for a database that a newer program wrote, or that must not be used.
pub async fn is_there(database: &Database) -> Result<bool> {
    match database {
        Database::Embedded(folder) => embedded::look::is_there(folder),
        Database::Postgres(url) => postgres::is_there(url).await,
    }
}

/// That there is a store.
///
/// # Errors
/// `NotFound` when there is none; those of [`is_there`].
pub(super) async fn require(database: &Database) -> Result<()> {
    if is_there(database).await? {
        return Ok(());
    }
    let text = match database {
        Database::Embedded(folder) => format!("no store in {}: is its volume mounted?", folder.display()),
        Database::Postgres(_) => "no store in the database: does database_url name the right one?".to_owned(),
    };
    Err(Error::new(Kind::NotFound, format!("{text} A new one is made by signet operator init")))
}

/// Looks at the store, and opens its data keys by the seal key.
///
/// # Errors
/// `Conflict` for a store that was carried over to a database; `Invalid` for the wrong seal key, damaged data keys, a schema
/// of a newer program and a database that is not fit for a store; `Unavailable` when it cannot be reached or read; those of
/// a device that holds the seal key.
pub async fn look(database: Database, seal_key: &SealKey) -> Result<Found> {
    let (schema, newest, reader): (_, _, Box<dyn Reader>) = match database {
        Database::Embedded(folder) => match embedded::look::look(folder).await? {
            embedded::look::Found::Nothing => return Ok(Found::Nothing),
            embedded::look::Found::InUse => return Ok(Found::InUse),
            embedded::look::Found::Facts { schema, newest, reader } => {
                require_unmoved(&reader.meta().await?)?;
                (schema, newest, Box::new(reader))
            }
        },
        Database::Postgres(url) => {
            let Some((schema, newest, reader)) = postgres::look(url).await? else { return Ok(Found::Nothing) };
            (schema, newest, Box::new(reader))
        }
    };
    let Some((seal, ring)) = keys::about(seal_key, &reader.meta().await?).await? else { return Ok(Found::Nothing) };
    let stored = if schema == newest { reader.documents(SYSTEM, Some(MANAGED_KEYS)).await? } else { Vec::new() };
    let managed_keys = documents::open_with(&ring, SYSTEM, stored)?;
    Ok(Found::Opened { seal, schema, newest, managed_keys })
}
