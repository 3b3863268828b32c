//! The installation on which an operator command works: that of a configuration file, or the data folder of `signet
//! dev`.

use std::path::PathBuf;

use crate::clock::Clock;
use crate::config::{self, SealKeySource, StoreLocation};
use crate::error::{Error, Result};
use crate::server::forbid_core_dumps;
use crate::storage::seal::SealKey;
use crate::storage::{self, Database, IfMissing};

use super::files::require_file;
use super::installation::{install_logs_from_environment, load_and_initialize, storage_options};

/// Maximum number of pending writes to the store. It is small, because only this command uses the store.
const MAX_PENDING_WRITES: usize = 1024;

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct TargetInstallation {
    /// Configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder of a development server, with its seal key.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl TargetInstallation {
    /// Returns the location of the store, without opening the store.
    pub(super) fn store(&self) -> Result<StoreLocation> {
        match &self.config {
            Some(file) => Ok(load_and_initialize(file)?.store),
            None => self.initialize_data_dir().map(StoreLocation::Embedded),
        }
    }

    /// Returns the path of the seal key file; `None` if the seal key is not in a file.
    pub(super) fn seal_key_file(&self) -> Result<Option<PathBuf>> {
        let Some(file) = &self.config else { return Ok(self.data_dir.as_ref().map(|folder| folder.join("seal.key"))) };
        Ok(match config::load(file)?.seal_key {
            SealKeySource::File(key) => Some(key),
            _ => None,
        })
    }

    /// Returns the options for opening the existing store, which include its seal key.
    pub(super) fn options(&self, clock: Clock) -> Result<storage::StorageOptions> {
        if let Some(file) = &self.config {
            return storage_options(&load_and_initialize(file)?, clock, IfMissing::Fail);
        }
        let folder = self.initialize_data_dir()?;
        let key = folder.join("seal.key");
        require_file("--data-dir", &key)?;
        Ok(storage::StorageOptions {
            database: Database::Embedded(folder),
            seal_key: SealKey::from_file(&key)?,
            clock,
            commit_queue: MAX_PENDING_WRITES,
            if_missing: IfMissing::Fail,
        })
    }

    /// Installs logging, forbids core dumps, and returns the data folder of `--data-dir`.
    fn initialize_data_dir(&self) -> Result<PathBuf> {
        install_logs_from_environment()?;
        forbid_core_dumps()?;
        let folder = self.data_dir.clone().unwrap_or_default();
        match folder.is_dir() {
            true => Ok(folder),
            false => Err(Error::invalid(format!("--data-dir: folder does not exist: {}", folder.display()))),
        }
    }
}

/// Returns the error of a command that works only on the embedded store. `instead` is advice for an installation on
/// PostgreSQL.
pub(super) fn embedded_only_error(instead: &str) -> Error {
    Error::invalid(format!("the store is a PostgreSQL database: {instead} (docs/backup-postgresql.md)"))
}
