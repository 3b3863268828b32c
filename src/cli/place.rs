//! The installation that an operator command is for: that of a configuration file, or the data folder of `signet dev`.

use std::path::{Path, PathBuf};

use signet::clock::Clock;
use signet::config::Store;
use signet::error::{Error, Result};
use signet::server::forbid_core_dumps;
use signet::storage::seal::SealKey;
use signet::storage::{self, Absent, Database};

use super::files::require_file;
use super::installation::{logs_from_environment, prepared, storage_options};

/// Maximum number of pending writes; no other process uses the store.
const QUEUE: usize = 1024;

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Place {
    /// Configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder of a development server, with its seal key.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Place {
    /// The location of the data, without opening it.
    pub(super) fn store(&self) -> Result<Store> {
        match (&self.config, &self.data_dir) {
            (Some(file), _) => Ok(prepared(file)?.store),
            (None, folder) => {
                logs_from_environment()?;
                forbid_core_dumps()?;
                Ok(Store::Embedded(existing(folder.as_deref())?))
            }
        }
    }

    /// The options to open the existing store, with its seal key.
    pub(super) fn options(&self, clock: Clock) -> Result<storage::Options> {
        match (&self.config, &self.data_dir) {
            (Some(file), _) => storage_options(&prepared(file)?, clock, Absent::Missed),
            (None, folder) => {
                logs_from_environment()?;
                forbid_core_dumps()?;
                let folder = existing(folder.as_deref())?;
                let key = folder.join("seal.key");
                require_file("--data-dir", &key)?;
                let seal_key = SealKey::from_file(&key)?;
                let database = Database::Embedded(folder);
                Ok(storage::Options { database, seal_key, clock, queue: QUEUE, absent: Absent::Missed })
            }
        }
    }
}

fn existing(folder: Option<&Path>) -> Result<PathBuf> {
    let folder = folder.unwrap_or(Path::new(""));
    match folder.is_dir() {
        true => Ok(folder.to_owned()),
        false => Err(Error::invalid(format!("--data-dir: folder does not exist: {}", folder.display()))),
    }
}

/// The error of a command for the embedded store, with an alternative.
pub(super) fn of_database(instead: &str) -> Error {
    Error::invalid(format!("the store is a PostgreSQL database: {instead} (docs/backup-postgresql.md)"))
}
