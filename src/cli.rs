//! The command line: `dev`, `issue`, `check`. Other programs rely on its words and outputs.

mod check;
mod dev;
mod issue;

use clap::{Parser, Subcommand};
use signet::error::Result;
use signet::telemetry::{self, LogFormat};

/// Signet: an actor-based signing server.
#[derive(Parser)]
#[command(name = "signet", version)]
pub struct Command {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Start a development server with a ready certificate authority. Unsafe outside your machine.
    Dev(dev::Arguments),
    /// Get a certificate from a server and write it to files.
    Issue(issue::Arguments),
    /// Check a configuration file.
    Check(check::Arguments),
}

impl Command {
    /// Runs it to its end.
    pub fn run(self) -> Result<()> {
        match self.word {
            Word::Dev(arguments) => {
                logs_from_environment()?;
                signet::server::forbid_core_dumps()?;
                actix_rt::System::new().block_on(dev::run(arguments))
            }
            Word::Issue(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(issue::run(arguments))
            }
            Word::Check(arguments) => check::run(&arguments),
        }
    }
}

/// Logs for commands that read no configuration file.
fn logs_from_environment() -> Result<()> {
    let filter = std::env::var("SIGNET_LOG").unwrap_or_else(|_| "info".to_owned());
    let json = std::env::var("SIGNET_LOG_FORMAT").is_ok_and(|format| format == "json");
    telemetry::install_logs(&filter, if json { LogFormat::Json } else { LogFormat::Text })
}
