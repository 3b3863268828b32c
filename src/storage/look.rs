//! Inspection of a store before a server starts on it: reachability, schema version, and whether the seal key opens it.
//! Writes nothing, and does not upgrade the schema.

use super::backend::Reader;
use super::database::Database;
use super::seal::{About, SealKey};
use super::{documents, embedded, keys, postgres};
use crate::documents::{Document, SYSTEM};
use crate::error::{Error, Kind, Result};
use crate::keys::store::MANAGED_KEYS;
use crate::storage::restored::require_unmoved;

/// The state of a store.
#[derive(Clone, PartialEq, Eq)]
pub enum Found {
    /// No store exists; `serve` creates it.
    Nothing,
    /// A process uses the store exclusively.
    InUse,
    /// The seal key opens the store.
    Opened {
        /// Its seal.
        seal: About,
        /// The version of its schema.
        schema: usize,
        /// The schema version to which this program upgrades it.
        newest: usize,
        /// The managed keys; empty if the schema must be upgraded first.
        managed_keys: Vec<Document>,
    },
}

/// `true` if a store exists. It may be damaged, or sealed with another key.
///
/// # Errors
/// `Unavailable` when it cannot be reached; `Invalid` for a database of a newer version, or an unsuitable one.
pub async fn is_there(database: &Database) -> Result<bool> {
    match database {
        Database::Embedded(folder) => embedded::look::is_there(folder),
        Database::Postgres(url) => postgres::is_there(url).await,
    }
}

/// Checks that a store exists.
///
/// # Errors
/// `NotFound` when there is none; the errors of [`is_there`].
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

/// Inspects the store and opens its data keys with the seal key.
///
/// # Errors
/// `Conflict` for a store that was moved to a database; `Invalid` for the wrong seal key, damaged data keys, a newer
/// schema or an unsuitable database; `Unavailable`; the errors of a device that has the seal key.
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
