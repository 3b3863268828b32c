//! Which installation an operator command is for: that of a configuration file, or the data folder of `signet dev`.

use std::path::{Path, PathBuf};

use signet::clock::Clock;
use signet::config::Store;
use signet::error::{Error, Result};
use signet::server::forbid_core_dumps;
use signet::storage::seal::SealKey;
use signet::storage::{self, Absent, Database};

use super::files::require_file;
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
                Ok(Store::Embedded(existing(folder.as_deref())?))
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

/// The folder of `--data-dir`.
fn existing(folder: Option<&Path>) -> Result<PathBuf> {
    let folder = folder.unwrap_or(Path::new(""));
    match folder.is_dir() {
        true => Ok(folder.to_owned()),
        false => Err(Error::invalid(format!("--data-dir: folder does not exist: {}", folder.display()))),
    }
}

/// Error of a command that is for the embedded store, with what to do instead.
pub(super) fn of_database(instead: &str) -> Error {
    Error::invalid(format!("the store is a PostgreSQL database: {instead} (docs/backup-postgresql.md)"))
}
