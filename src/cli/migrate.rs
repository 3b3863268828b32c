//! `signet migrate`: updates the schema of the store.
//!
//! `signet serve` also updates the schema of an embedded store when it starts; this command does it beforehand. It logs
//! one line per migration to standard error.

use crate::clock::Clock;
use crate::config;
use crate::error::{Error, Result};
use crate::server::forbid_core_dumps;
use crate::storage::{self, IfMissing};
use crate::telemetry::{self, LogSettings};
use serde_json::json;

use super::installation::{ConfigFileArgument, storage_options};
use super::output::try_print;
use super::owner;

/// Opens the store, which applies the pending migrations, and closes it.
pub(crate) fn run(arguments: &ConfigFileArgument) -> Result<()> {
    let config = config::load(&arguments.file)?;
    owner::require_owner(&config)?;
    // Log the migrations whatever filter is configured: the user runs this command to see them.
    let filter = format!("{},signet::storage=info", config.log.filter);
    telemetry::install_logs(&LogSettings { filter, ..config.log.clone() })?;
    forbid_core_dumps()?;
    actix_rt::System::new().block_on(async {
        storage::open(storage_options(&config, Clock::system(), IfMissing::Create)?).await?.shutdown().await?;
        try_print(&json!({ "is_up_to_date": true }), "the schema is up to date");
        Ok::<(), Error>(())
    })
}
