//! Which installation an operator command is for: that of a configuration file, or the data folder of `signet dev`.

use std::path::PathBuf;

use signet::clock::Clock;
use signet::config::Store;
use signet::error::{Error, Result};
use signet::server::forbid_core_dumps;
use signet::storage::seal::SealKey;
use signet::storage::{self, Absent, Database};

use super::installation::{logs_from_environment, prepared, storage_options};

/// Writes that may wait at a time; the command is alone with the store.
const QUEUE: usize = 1024;

/// The two ways of naming an installation.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Place {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder of a development server, with its seal key.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Place {
    /// Where the data is; nothing is opened.
    pub(super) fn store(&self) -> Result<Store> {
        match (&self.config, &self.data_dir) {
            (Some(file), _) => Ok(prepared(file)?.store),
            (None, folder) => {
                logs_from_environment()?;
                forbid_core_dumps()?;
                Ok(Store::Embedded(folder.clone().unwrap_or_default()))
            }
        }
    }

    /// What opens the store that is there, with its seal key.
    pub(super) fn options(&self, clock: Clock) -> Result<storage::Options> {
        match (&self.config, &self.data_dir) {
            (Some(file), _) => storage_options(&prepared(file)?, clock, Absent::Missed),
            (None, folder) => {
                logs_from_environment()?;
                forbid_core_dumps()?;
                let folder = folder.clone().unwrap_or_default();
                let seal_key = SealKey::from_file(&folder.join("seal.key"))?;
                let database = Database::Embedded(folder);
                Ok(storage::Options { database, seal_key, clock, queue: QUEUE, absent: Absent::Missed })
            }
        }
    }
}

/// Error of a command that is for the embedded store, with what to do instead.
pub(super) fn of_database(instead: &str) -> Error {
    Error::invalid(format!("the store is a PostgreSQL database: {instead} (docs/backup-postgresql.md)"))
}
