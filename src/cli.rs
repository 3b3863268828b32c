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
mod progress;
mod renew;
mod revoke;
mod root_token;
mod seal;
mod serve;
mod setup;
mod status;
mod target_installation;
mod terminal;
mod token;
mod token_issue;
mod user_token;
mod verify_backup;
mod who;

use std::process::ExitCode;

use crate::error::Result;
use crate::storage;
use crate::telemetry;
use clap::error::ErrorKind;
use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use failure::CommandFailure;
use installation::install_logs_from_environment;

/// Signet: an actor-based signing server.
#[derive(Parser)]
#[command(name = "signet", version = env!("BUILD_VERSION"))]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    subcommand: SignetSubcommand,
    /// Print results to standard output, and warnings and errors to standard error, as JSON objects, one on a line.
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
}

#[derive(Subcommand)]
enum SignetSubcommand {
    /// Set up an installation with a certificate authority.
    ///
    /// Creates what is missing: seal key, configuration, store, root, intermediate, role, administrator
    /// and TLS certificate.
    Setup(setup::SetupArguments),
    /// Start a development server with a ready authority.
    ///
    /// Unsafe outside your machine: no TLS, and a root token on the screen.
    Dev(dev::DevArguments),
    /// Run the server of a configuration file until SIGTERM.
    ///
    /// SIGHUP reloads the TLS certificate.
    Serve(serve::ServeArguments),
    /// Update the schema of the store.
    ///
    /// Prints the migrations. The server must not run.
    Migrate(installation::ConfigFileArgument),
    /// Manage tokens, seal and backups of an installation.
    #[command(subcommand)]
    Operator(operator::OperatorSubcommand),
    /// Create the first user of the projects API.
    ///
    /// Prints the token of that user, once.
    Bootstrap(bootstrap::BootstrapArguments),
    /// Check whether a server would start with a configuration.
    ///
    /// Checks the file and everything that it names. Exit status 3 if something is wrong, 1 if the file cannot be read.
    Check(check::CheckArguments),
    /// Check whether a server is ready or alive.
    ///
    /// Exit status 0 if it is, 3 if it responds that it is not, 1 if it cannot be reached.
    Health(health::HealthArguments),
    /// Request a certificate and write it to files.
    ///
    /// The private key is generated locally.
    Issue(issue::IssueArguments),
    /// Import an authority from a folder of PEM files.
    ///
    /// Imports its keys, certificates and CRLs.
    Import(import::ImportArguments),
    /// Replace certificates that end soon, once or as a service.
    Renew(renew::RenewArguments),
    /// Revoke a certificate.
    ///
    /// Takes its file or its serial number.
    Revoke(revoke::RevokeArguments),
    /// Show what is set up, what ends next, and what is wrong.
    ///
    /// Exit status 3 if something is wrong, 1 if the server cannot be reached.
    Status(status::StatusArguments),
    /// Show who requested a certificate, when, and with which role.
    Who(who::WhoArguments),
    /// Explain whether a token may do something, and why.
    ///
    /// Shows the policy rule that decides.
    Explain(explain::ExplainArguments),
    /// Print shell completions of this command line.
    Completions(completions::CompletionsArguments),
    /// Write the manual pages of this command line to a folder.
    Man(man::ManArguments),
}

/// Runs the command that the arguments of this process name. If it fails, prints the error. Returns the exit status.
pub fn run() -> ExitCode {
    let result = CommandLine::read().run();
    telemetry::flush_logs();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let error = failure.error();
            // The text of a database error is shown to the operator only; HTTP responses never contain it.
            let cause = storage::database_message(error).map(|text| format!(" ({text})")).unwrap_or_default();
            output::print_error(&format!("{error}{cause}"), failure.exit_status());
            ExitCode::from(failure.exit_status())
        }
    }
}

impl CommandLine {
    /// Parses the command line of this process. Empty environment variables count as unset.
    pub(crate) fn read() -> Self {
        let matches = ignore_empty_variables(Self::definition())
            .try_get_matches()
            .unwrap_or_else(|error| exit_with_usage(&error));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| exit_with_usage(&error))
    }

    pub(crate) fn definition() -> clap::Command {
        help::with_help(Self::command())
    }

    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        if self.json {
            output::use_json();
        }
        match self.subcommand {
            SignetSubcommand::Dev(arguments) => {
                install_logs_from_environment()?;
                crate::server::forbid_core_dumps()?;
                actix_rt::System::new().block_on(dev::run(arguments))?;
            }
            SignetSubcommand::Health(arguments) => run_client(health::run(arguments))?,
            SignetSubcommand::Issue(arguments) => run_client(issue::run(arguments))?,
            SignetSubcommand::Import(arguments) => run_client(import::run(arguments))?,
            SignetSubcommand::Renew(arguments) => run_client(renew::run(arguments))?,
            SignetSubcommand::Revoke(arguments) => run_client(revoke::run(arguments))?,
            SignetSubcommand::Status(arguments) => run_client(status::run(arguments))?,
            SignetSubcommand::Who(arguments) => run_client(who::run(arguments))?,
            SignetSubcommand::Explain(arguments) => run_client(explain::run(arguments))?,
            SignetSubcommand::Check(arguments) => check::run(&arguments, &Self::definition())?,
            SignetSubcommand::Operator(subcommand) => operator::run(&subcommand)?,
            SignetSubcommand::Setup(arguments) => setup::run(arguments)?,
            SignetSubcommand::Serve(arguments) => serve::run(&arguments)?,
            SignetSubcommand::Migrate(arguments) => migrate::run(&arguments)?,
            SignetSubcommand::Bootstrap(arguments) => bootstrap::run(&arguments)?,
            SignetSubcommand::Completions(arguments) => completions::run(&arguments, &mut Self::definition())?,
            SignetSubcommand::Man(arguments) => man::run(&arguments, Self::definition())?,
        }
        Ok(())
    }
}

fn run_client<E: Into<CommandFailure>>(work: impl Future<Output = Result<(), E>>) -> Result<(), CommandFailure> {
    install_logs_from_environment()?;
    actix_rt::System::new().block_on(work).map_err(Into::into)
}

/// Prints the help, the version or a usage error, as clap's `error` says, and ends the process.
fn exit_with_usage(error: &clap::Error) -> ! {
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    if !is_json || matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    output::use_json();
    let text = error.render().to_string();
    output::print_error(text.trim().trim_start_matches("error: "), failure::EXIT_USAGE);
    std::process::exit(failure::EXIT_USAGE.into());
}

/// Removes environment variables that are empty from the argument definitions, so that clap treats them as unset.
fn ignore_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let with_environment = |arg: Arg| if is_empty(&arg) { arg.env(None) } else { arg };
    command.mut_args(with_environment).mut_subcommands(ignore_empty_variables)
}
