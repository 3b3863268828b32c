//! What the commands over a configuration file share: how its settings are read, and what they say of the store.

use std::path::Path;

use signet::clock::Clock;
use signet::config::{self, Config, SealKeySource, Store};
use signet::error::{Error, Result};
use signet::keys::{Libraries, cloudakms, pkcs11};
use signet::nodes::SKEW_LIMIT;
use signet::server::tls::Certificate;
use signet::server::{ConnectionLimits, Options, STORE_WATCH, forbid_core_dumps};
use signet::storage::seal::SealKey;
use signet::storage::{Absent, Database, PostgresUrl, Storage};
use signet::{storage, telemetry};

use super::output::warn;

/// What the root token of a setup is called, which ends with it.
pub(super) const ROOT_OF_SETUP: &str = "setup";

/// The configuration, with logs set up as it says and core dumps forbidden.
pub(super) fn prepared(file: &Path) -> Result<Config> {
    let config = config::load(file)?;
    telemetry::install_logs(&config.log)?;
    forbid_core_dumps()?;
    Ok(config)
}

/// The store that the configuration names. Nothing is opened, and no file of it read.
pub(super) fn database(config: &Config) -> Result<Database> {
    Ok(match &config.store {
        Store::Embedded(folder) => Database::Embedded(folder.clone()),
        Store::Database(url) => Database::Postgres(PostgresUrl::parse(&String::from_utf8_lossy(url.expose()))?),
    })
}

/// What opens the store that the configuration names.
pub(super) fn storage_options(config: &Config, clock: Clock, absent: Absent) -> Result<storage::Options> {
    let database = database(config)?;
    Ok(storage::Options { database, seal_key: seal_key(config)?, clock, queue: config.commit_queue, absent })
}

/// The seal key that the configuration names. One in a device is not asked for yet.
pub(super) fn seal_key(config: &Config) -> Result<SealKey> {
    match &config.seal_key {
        SealKeySource::File(file) if !file.exists() => Err(Error::invalid(format!(
            "seal_key_file: file does not exist: {}: put the seal key back, or make one for a new store (signet operator \
             init does)",
            file.display()
        ))),
        SealKeySource::File(file) => SealKey::from_file(file),
        SealKeySource::Text(text) => SealKey::from_text(&String::from_utf8_lossy(text.expose())),
        SealKeySource::Pkcs11(settings) => {
            let libraries = Libraries::at_start(config.pkcs11_libraries.clone())?;
            pkcs11::seal_device(settings, &libraries).map(SealKey::in_device)
        }
        SealKeySource::CloudAkms(settings) => cloudakms::seal_device(settings).map(SealKey::in_device),
    }
}

/// Closes a store behind some work. What came of the work is what the command says; that the store did not close is told
/// beside it, and costs nothing that was answered as written.
pub(super) async fn closed<T>(storage: &Storage, done: Result<T>) -> Result<T> {
    if let Err(error) = storage.shutdown().await {
        warn(&[format!("the store did not close: {error}")]);
    }
    done
}

/// What the server of a configuration is made of, with this certificate.
pub(super) fn server_options(config: &Config, tls: Option<Certificate>) -> Result<Options> {
    let clock = Clock::system();
    Ok(Options {
        listen: config.listen,
        tls,
        metrics_listen: config.metrics_listen,
        public_listen: config.public_listen,
        skew_limit: SKEW_LIMIT,
        store_watch: STORE_WATCH,
        workers: config.workers,
        connections: ConnectionLimits {
            max: config.max_connections,
            max_per_address: config.max_connections_per_address,
            public: config.public_max_connections,
        },
        storage: storage_options(config, clock.clone(), Absent::Made)?,
        clock,
        pkcs11_libraries: Libraries::at_start(config.pkcs11_libraries.clone())?,
        cloud: config.cloud.clone().in_environment(),
        signers: None,
        rsa_key_stock: config.rsa_key_stock,
        logins: config.logins.clone().in_environment(),
        settings: config.http.clone(),
        audit: config.audit.clone(),
        listeners: Vec::new(),
    })
}

/// Logs for commands that read no configuration file.
pub(super) fn logs_from_environment() -> Result<()> {
    telemetry::install_logs(&config::log_of_environment(|name| std::env::var(name).ok())?)
}
