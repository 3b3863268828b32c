//! The command line. Other programs rely on its words and outputs.
//!
//! `dev` needs nothing, `setup` makes an installation; `serve`, `migrate`, the words of `operator`, `bootstrap` and `check` read a configuration file (see
//! `signet.example.toml`); `issue` and `explain` are clients; `completions` is for shells.

mod backup;
mod bootstrap;
mod check;
mod client;
mod completions;
mod copy_store;
mod dev;
mod explain;
mod installation;
mod issue;
mod migrate;
mod operator;
mod place;
mod root_token;
mod seal;
mod serve;
mod setup;
mod verify_backup;

use clap::{CommandFactory as _, Parser, Subcommand};
use signet::error::Result;

use installation::logs_from_environment;

/// Signet: an actor-based signing server.
#[derive(Parser)]
#[command(name = "signet", version = env!("BUILD_VERSION"))]
pub(crate) struct Command {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Set up an installation: seal key, configuration, store, root, intermediate, role, administrator, TLS.
    Setup(setup::Arguments),
    /// Start a development server with a ready certificate authority. Unsafe outside your machine.
    Dev(dev::Arguments),
    /// Serve as a configuration file says, until SIGTERM; SIGHUP reads the TLS certificate again.
    Serve(serve::Arguments),
    /// Bring the schema of the store up to date and say what was done. The server must not run.
    Migrate(migrate::Arguments),
    /// What an operator does with an installation: its first token, its seal.
    #[command(subcommand)]
    Operator(operator::Word),
    /// Make the first user of the projects API and print a token of theirs, once.
    Bootstrap(bootstrap::Arguments),
    /// Check a configuration file and tell every problem in it.
    Check(check::Arguments),
    /// Get a certificate from a server and write it to files.
    Issue(issue::Arguments),
    /// Say whether a token may do something, which rule of which policy decides, and why.
    Explain(explain::Arguments),
    /// Print the completions of this command line for a shell.
    Completions(completions::Arguments),
}

impl Command {
    /// Runs it to its end.
    pub(crate) fn run(self) -> Result<()> {
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
            Word::Explain(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(explain::run(arguments))
            }
            Word::Setup(arguments) => setup::run(arguments),
            Word::Serve(arguments) => serve::run(&arguments),
            Word::Migrate(arguments) => migrate::run(&arguments),
            Word::Operator(word) => operator::run(&word),
            Word::Bootstrap(arguments) => bootstrap::run(&arguments),
            Word::Check(arguments) => check::run(&arguments),
            Word::Completions(arguments) => completions::run(&arguments, &mut Self::command()),
        }
    }
}
