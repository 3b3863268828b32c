//! The command line. Its commands, outputs and exit statuses are a stable interface that other programs rely on.
//!
//! `dev` needs no configuration and `setup` writes one. The server commands read a configuration file (see
//! `signet.example.toml`); the client commands call a running server. Help texts are in [`help`], output formats in
//! [`output`], exit statuses in [`failure`].

mod backup;
mod bootstrap;
mod certify;
mod check;
mod client;
mod completions;
mod copies;
mod copy_store;
mod dev;
mod explain;
mod failure;
mod files;
mod handover;
mod health;
mod help;
mod import;
mod installation;
mod issue;
mod man;
mod migrate;
mod names;
mod operator;
pub(crate) mod output;
mod owner;
mod path;
mod place;
mod progress;
mod renew;
mod root_token;
mod seal;
mod serve;
mod setup;
mod status;
mod terminal;
mod token;
mod user_token;
mod verify_backup;
mod who;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use signet::error::Result;

pub(crate) use failure::Failure;
use installation::logs_from_environment;

/// Signet: an actor-based signing server.
#[derive(Parser)]
#[command(name = "signet", version = env!("BUILD_VERSION"))]
pub(crate) struct Command {
    #[command(subcommand)]
    word: Word,
    /// Print results to standard output, and warnings and errors to standard error, as JSON objects, one on a line.
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
}

#[derive(Subcommand)]
enum Word {
    /// Set up an installation with a certificate authority.
    ///
    /// Creates what is missing: seal key, configuration, store, root, intermediate, role, administrator
    /// and TLS certificate.
    Setup(setup::Arguments),
    /// Start a development server with a ready authority.
    ///
    /// Unsafe outside your machine: no TLS, and a root token on the screen.
    Dev(dev::Arguments),
    /// Run the server of a configuration file until SIGTERM.
    ///
    /// SIGHUP reloads the TLS certificate.
    Serve(serve::Arguments),
    /// Update the schema of the store.
    ///
    /// Prints the migrations. The server must not run.
    Migrate(migrate::Arguments),
    /// Manage tokens, seal and backups of an installation.
    #[command(subcommand)]
    Operator(operator::Word),
    /// Create the first user of the projects API.
    ///
    /// Prints the token of that user, once.
    Bootstrap(bootstrap::Arguments),
    /// Check whether a server would start with a configuration.
    ///
    /// Checks the file and everything that it names. Exit status 3 if something is wrong, 1 if the file cannot be read.
    Check(check::Arguments),
    /// Check whether a server is ready or alive.
    ///
    /// Exit status 0 if it is, 3 if it responds that it is not, 1 if it cannot be reached.
    Health(health::Arguments),
    /// Request a certificate and write it to files.
    ///
    /// The private key is generated locally.
    Issue(issue::Arguments),
    /// Import an authority from a folder of PEM files.
    ///
    /// Imports its keys, certificates and CRLs.
    Import(import::Arguments),
    /// Replace certificates that end soon, once or as a service.
    Renew(renew::Arguments),
    /// Show what is set up, what ends next, and what is wrong.
    ///
    /// Exit status 3 if something is wrong, 1 if the server cannot be reached.
    Status(status::Arguments),
    /// Show who requested a certificate, when, and with which role.
    Who(who::Arguments),
    /// Explain whether a token may do something, and why.
    ///
    /// Shows the policy rule that decides.
    Explain(explain::Arguments),
    /// Print shell completions of this command line.
    Completions(completions::Arguments),
    /// Write the manual pages of this command line to a folder.
    Man(man::Arguments),
}

impl Command {
    /// Parses the command line of this process. Empty environment variables count as unset.
    pub(crate) fn read() -> Self {
        let matches = without_empty(Self::definition()).try_get_matches().unwrap_or_else(|error| refuse(&error));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error))
    }

    pub(crate) fn definition() -> clap::Command {
        help::described(Self::command())
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.json {
            output::use_json();
        }
        match self.word {
            Word::Dev(arguments) => {
                logs_from_environment()?;
                signet::server::forbid_core_dumps()?;
                actix_rt::System::new().block_on(dev::run(arguments))?;
            }
            Word::Health(arguments) => client(health::run(arguments))?,
            Word::Issue(arguments) => client(issue::run(arguments))?,
            Word::Import(arguments) => client(import::run(arguments))?,
            Word::Renew(arguments) => client(renew::run(arguments))?,
            Word::Status(arguments) => client(status::run(arguments))?,
            Word::Who(arguments) => client(who::run(arguments))?,
            Word::Explain(arguments) => client(explain::run(arguments))?,
            Word::Check(arguments) => check::run(&arguments, &Self::definition())?,
            Word::Operator(word) => operator::run(&word)?,
            Word::Setup(arguments) => setup::run(arguments)?,
            Word::Serve(arguments) => serve::run(&arguments)?,
            Word::Migrate(arguments) => migrate::run(&arguments)?,
            Word::Bootstrap(arguments) => bootstrap::run(&arguments)?,
            Word::Completions(arguments) => completions::run(&arguments, &mut Self::definition())?,
            Word::Man(arguments) => man::run(&arguments, Self::definition())?,
        }
        Ok(())
    }
}

fn client<E: Into<Failure>>(work: impl Future<Output = Result<(), E>>) -> Result<(), Failure> {
    logs_from_environment()?;
    actix_rt::System::new().block_on(work).map_err(Into::into)
}

/// Exits because of the command line: with help or version, or with a usage error.
fn refuse(error: &clap::Error) -> ! {
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    if !is_json || matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    output::use_json();
    let text = error.render().to_string();
    output::error(text.trim().trim_start_matches("error: "), failure::USAGE);
    std::process::exit(failure::USAGE.into());
}

/// Removes the empty environment variables from the definition, so that clap ignores them.
fn without_empty(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let heard = |arg: Arg| if is_empty(&arg) { arg.env(None) } else { arg };
    command.mut_args(heard).mut_subcommands(without_empty)
}
