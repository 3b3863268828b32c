//! `signet migrate`: brings the schema of the store up to date.
//!
//! `serve` does the same for an embedded store by itself; this is for those who want to see it done
//! before they start the server. What was done is told on standard error, one line per migration.

use std::path::PathBuf;

use serde_json::json;
use signet::clock::Clock;
use signet::config;
use signet::error::{Error, Result};
use signet::server::forbid_core_dumps;
use signet::storage::{self, Absent};
use signet::telemetry::{self, LogSettings};

use super::installation::storage_options;
use super::output::line;
use super::owner;

/// The arguments of `signet migrate`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Opens the store, which applies what is missing, and closes it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let config = config::load(&arguments.config)?;
    owner::require(&config)?;
    // Whatever the filter, the migrations are told: they are what this command is for.
    let filter = format!("{},signet::storage=info", config.log.filter);
    telemetry::install_logs(&LogSettings { filter, ..config.log.clone() })?;
    forbid_core_dumps()?;
    actix_rt::System::new().block_on(async {
        storage::open(storage_options(&config, Clock::system(), Absent::Made)?).await?.shutdown().await?;
        line(&json!({ "is_up_to_date": true }), "the schema is up to date");
        Ok::<(), Error>(())
    })
}
