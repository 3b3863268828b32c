//! Inspection of a store before a server starts on it: is it reachable, which schema version does it have, and does the
//! seal key open it? Writes nothing, and does not upgrade the schema.

use super::backend::StoreReader;
use super::database::Database;
use super::seal::{SealInfo, SealKey};
use super::{documents, embedded, keys, postgres};
use crate::documents::{Document, SYSTEM_MOUNT};
use crate::error::{Error, Kind, Result};
use crate::keys::store::MANAGED_KEY_DOCUMENT_KIND;
use crate::storage::restore_facts::require_unmoved;

/// The result of inspecting a store.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreInspection {
    /// There is no store; `serve` would create one.
    Nothing,
    /// A process uses the store exclusively, so it was not inspected.
    InUse,
    /// The seal key opens the store, which was inspected.
    Opened {
        /// The seal of the store.
        seal: SealInfo,
        /// The schema version of the store.
        schema: usize,
        /// The schema version to which this program would upgrade the store.
        newest: usize,
        /// The documents of the managed keys; empty if the schema must be upgraded first.
        managed_keys: Vec<Document>,
    },
}

/// Returns `true` if a store exists. The store may be damaged, or sealed with another key.
///
/// # Errors
/// `Unavailable` when the database cannot be reached; `Invalid` when a newer version wrote it, or it is unsuitable.
pub async fn store_exists(database: &Database) -> Result<bool> {
    match database {
        Database::Embedded(folder) => embedded::inspection::store_exists(folder),
        Database::Postgres(url) => postgres::store_exists(url).await,
    }
}

/// Checks that a store exists.
///
/// # Errors
/// `NotFound` when there is none; the errors of [`store_exists`].
pub(super) async fn require_existing(database: &Database) -> Result<()> {
    if store_exists(database).await? {
        return Ok(());
    }
    let text = match database {
        Database::Embedded(folder) => format!("no store in {}: is its volume mounted?", folder.display()),
        Database::Postgres(_) => "no store in the database: does database_url name the right one?".to_owned(),
    };
    Err(Error::new(Kind::NotFound, format!("{text} signet operator init creates a new store")))
}

/// Inspects the store and opens its data keys with the seal key.
///
/// # Errors
/// `Conflict` for an embedded store that was moved to a PostgreSQL database; `Invalid` for the wrong seal key, damaged
/// data keys, a newer schema or an unsuitable database; `Unavailable`; the errors of the device that holds the seal
/// key.
pub async fn inspect(database: Database, seal_key: &SealKey) -> Result<StoreInspection> {
    let (schema, newest, reader): (_, _, Box<dyn StoreReader>) = match database {
        Database::Embedded(folder) => match embedded::inspection::inspect(folder).await? {
            embedded::inspection::FolderInspection::Nothing => return Ok(StoreInspection::Nothing),
            embedded::inspection::FolderInspection::InUse => return Ok(StoreInspection::InUse),
            embedded::inspection::FolderInspection::Unused { schema, newest, reader } => {
                require_unmoved(&reader.facts().await?)?;
                (schema, newest, Box::new(reader))
            }
        },
        Database::Postgres(url) => {
            let Some((schema, newest, reader)) = postgres::inspect(url).await? else {
                return Ok(StoreInspection::Nothing);
            };
            (schema, newest, Box::new(reader))
        }
    };
    let Some((seal, ring)) = keys::describe_seal(seal_key, &reader.facts().await?).await? else {
        return Ok(StoreInspection::Nothing);
    };
    let stored = if schema == newest {
        reader.documents(SYSTEM_MOUNT, Some(MANAGED_KEY_DOCUMENT_KIND)).await?
    } else {
        Vec::new()
    };
    let managed_keys = documents::open_with(&ring, SYSTEM_MOUNT, stored)?;
    Ok(StoreInspection::Opened { seal, schema, newest, managed_keys })
}
