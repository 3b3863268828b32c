//! `signet check`: whether a configuration file would be taken.

use std::path::PathBuf;

use signet::config;
use signet::error::Result;

use super::installation;

/// The arguments of `signet check`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Says that the file is good, or everything that is wrong with it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    installation::database(&config::load(&arguments.config)?)?;
    println!("{}: ok", arguments.config.display());
    Ok(())
}
