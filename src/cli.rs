//! The command line. Other programs rely on its words and outputs.
//!
//! `dev` needs nothing, `setup` makes an installation; `serve`, `migrate`, the words of `operator`, `bootstrap` and `check`
//! read a configuration file (see `signet.example.toml`); `issue`, `renew`, `import`, `status`, `who`, `explain` and
//! `health` are clients; `completions` is for shells, `man` for packages.

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
mod files;
mod handover;
mod health;
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

use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
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
    /// Look whether a server would start with a configuration: the file, and everything that it names.
    Check(check::Arguments),
    /// Say whether a server is ready, or lives: status 0 when it is.
    Health(health::Arguments),
    /// Get a certificate from a server and write it to files; the key is made here.
    Issue(issue::Arguments),
    /// Bring an authority from elsewhere: its keys, certificates and CRLs, from a folder of PEM files.
    Import(import::Arguments),
    /// Replace certificates that are about to end, once or as a service.
    Renew(renew::Arguments),
    /// Say what is set up on a server, what ends next, and what is wrong.
    Status(status::Arguments),
    /// Say who asked for a certificate, when, and by which role.
    Who(who::Arguments),
    /// Say whether a token may do something, which rule of which policy decides, and why.
    Explain(explain::Arguments),
    /// Print the completions of this command line for a shell.
    Completions(completions::Arguments),
    /// Write the manual pages of this command line to a folder.
    Man(man::Arguments),
}

impl Command {
    /// What the command line says. A variable that is empty counts as none.
    pub(crate) fn read() -> Self {
        let matches = without_empty(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Result<()> {
        match self.word {
            Word::Dev(arguments) => {
                logs_from_environment()?;
                signet::server::forbid_core_dumps()?;
                actix_rt::System::new().block_on(dev::run(arguments))
            }
            Word::Health(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(health::run(arguments))
            }
            Word::Issue(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(issue::run(arguments))
            }
            Word::Import(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(import::run(arguments))
            }
            Word::Renew(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(renew::run(arguments))
            }
            Word::Status(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(status::run(arguments))
            }
            Word::Who(arguments) => {
                logs_from_environment()?;
                actix_rt::System::new().block_on(who::run(arguments))
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
            Word::Check(arguments) => check::run(&arguments, &Self::command()),
            Word::Completions(arguments) => completions::run(&arguments, &mut Self::command()),
            Word::Man(arguments) => man::run(&arguments, Self::command()),
        }
    }
}

/// The same command line, which reads no variable that is empty.
fn without_empty(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let heard = |arg: Arg| if is_empty(&arg) { arg.env(None) } else { arg };
    command.mut_args(heard).mut_subcommands(without_empty)
}
