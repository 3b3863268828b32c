//! Functions for the commands that read a configuration file: loading it, and opening the store and the seal key that
//! it names.

use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::config::{self, Config, SealKeySource, StoreLocation};
use crate::error::{Error, Result};
use crate::keys::{Libraries, cloudakms, pkcs11};
use crate::nodes::SKEW_LIMIT;
use crate::server::tls::ServerCertificate;
use crate::server::{ConnectionLimits, STORE_PROBE_INTERVAL, ServerOptions, forbid_core_dumps};
use crate::storage;
use crate::storage::seal::SealKey;
use crate::storage::{Database, IfMissing, PostgresUrl, Storage};
use crate::telemetry;

use super::output::print_warnings;
use super::owner;

/// Display name of the temporary root token of `signet setup`, which revokes the token when it ends.
pub(super) const SETUP_TOKEN_NAME: &str = "setup";

/// The configuration file of a command.
#[derive(clap::Args)]
pub(crate) struct ConfigFileArgument {
    /// The configuration file, TOML.
    #[arg(long = "config", value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// Loads the configuration, installs the logging that it configures, and forbids core dumps.
pub(super) fn load_and_initialize(file: &Path) -> Result<Config> {
    let config = config::load(file)?;
    telemetry::install_logs(&config.log)?;
    forbid_core_dumps()?;
    Ok(config)
}

/// As [`load_and_initialize`], but fails if root runs the command and the store belongs to another user.
pub(super) fn load_as_owner(file: &Path) -> Result<Config> {
    let config = load_and_initialize(file)?;
    owner::require_owner(&config)?;
    Ok(config)
}

/// Returns the location of the store that the configuration names, without opening the store or reading its files.
pub(super) fn database(config: &Config) -> Result<Database> {
    Ok(match &config.store {
        StoreLocation::Embedded(folder) => Database::Embedded(folder.clone()),
        StoreLocation::Database(url) => {
            let url = PostgresUrl::parse(&String::from_utf8_lossy(url.expose()))?;
            Database::Postgres(url.with_projects_connections(config.projects_connections))
        }
    })
}

pub(super) fn storage_options(config: &Config, clock: Clock, if_missing: IfMissing) -> Result<storage::StorageOptions> {
    let database = database(config)?;
    Ok(storage::StorageOptions {
        database,
        seal_key: seal_key(config)?,
        clock,
        commit_queue: config.commit_queue,
        if_missing,
    })
}

/// Returns the seal key that the configuration names. For a key in a device (PKCS #11 or cloud), the device is not
/// accessed yet.
pub(super) fn seal_key(config: &Config) -> Result<SealKey> {
    match &config.seal_key {
        SealKeySource::File(file) if !file.exists() => Err(Error::invalid(format!(
            "seal_key_file: file does not exist: {}: restore the seal key, or create one for a new store with signet \
             operator init",
            file.display()
        ))),
        SealKeySource::File(file) => SealKey::from_file(file),
        SealKeySource::Text(text) => SealKey::from_text(&String::from_utf8_lossy(text.expose())),
        SealKeySource::Pkcs11(settings) => {
            let libraries = Libraries::new_allowing_missing(config.pkcs11_libraries.clone())?;
            pkcs11::seal_device(settings, &libraries).map(SealKey::in_device)
        }
        SealKeySource::CloudAkms(settings) => cloudakms::seal_device(settings).map(SealKey::in_device),
    }
}

/// Closes the store and returns `done`, the result of the work on it. An error while closing is only printed as a
/// warning, because acknowledged writes are durable.
pub(super) async fn close_store<T>(storage: &Storage, done: Result<T>) -> Result<T> {
    if let Err(error) = storage.shutdown().await {
        print_warnings(&[format!("the store was not closed cleanly: {error}")]);
    }
    done
}

pub(super) fn server_options(config: &Config, tls: Option<ServerCertificate>) -> Result<ServerOptions> {
    let clock = Clock::system();
    Ok(ServerOptions {
        listen: config.listen,
        tls,
        metrics_listen: config.metrics_listen,
        public_listen: config.public_listen,
        skew_limit: SKEW_LIMIT,
        store_probe_interval: STORE_PROBE_INTERVAL,
        workers: config.workers,
        connections: ConnectionLimits {
            max: config.max_connections,
            max_per_address: config.max_connections_per_address,
            max_public: config.public_max_connections,
        },
        storage: storage_options(config, clock.clone(), IfMissing::Create)?,
        clock,
        pkcs11_libraries: Libraries::new_allowing_missing(config.pkcs11_libraries.clone())?,
        cloud: config.cloud.clone().with_environment(),
        signers: None,
        rsa_key_stock: config.rsa_key_stock,
        logins: config.logins.clone().with_environment(),
        settings: config.http.clone(),
        audit: config.audit.clone(),
        in_process_audit_devices: Vec::new(),
    })
}

/// Installs logging as the environment variables configure it, for commands without a configuration file.
pub(super) fn install_logs_from_environment() -> Result<()> {
    telemetry::install_logs(&config::log_settings_from_environment(|name| std::env::var(name).ok())?)
}
