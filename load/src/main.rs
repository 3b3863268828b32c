//! `signet-load`: a load generator for Signet servers. It reports rates, latency percentiles, errors and CPU time per
//! request (PostgreSQL included), next to reference measurements of the machine from the same run. `load/README.md` has
//! the command lines.
//!
//! A run creates the objects that it needs: a mount, roles, a policy of ten rules, and a token that is not root. It
//! therefore measures what real clients get. It removes the objects afterwards. It uses a running server, or starts one
//! with `--server`.

mod anchors;
mod attack;
mod background;
mod chart;
mod client;
mod cluster;
mod command_line;
mod compare;
mod crl;
mod crowd;
mod der;
#[cfg(test)]
#[path = "../tests/double/mod.rs"]
mod double;
mod drive;
mod environment;
mod figures;
mod find_rate;
mod floor;
mod format;
mod histogram;
mod jwt_login;
mod limits;
mod log_file;
mod login;
mod managed;
mod module;
mod mount;
mod nodes;
mod ocsp;
mod ocsp_requests;
mod order;
mod oversize;
mod pace;
mod plan;
mod preload;
mod proc;
mod process;
mod projects;
mod provision;
mod report;
mod run_context;
mod scenario;
mod server;
#[cfg(test)]
mod server_tests;
mod single_run;
mod table;
mod target;
mod timeline;
mod verdict;
mod workload;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use order::{Order, RunArgs};
use run_context::{CommandNotes, INTERRUPTED};
use scenario::Scenario;

/// Load generator for Signet and other servers with the Vault API.
#[derive(Parser, Debug)]
#[command(version, about, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    args: RunArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs a scenario alternately on this server and on another one, and prints the ratios.
    Compare(Box<compare::CompareArgs>),
    /// Runs a plan file (TOML, or JSON with the extension `.json`).
    Run(order::PlanArgs),
    /// Measures every figure that has a limit, and fails if a limit is exceeded.
    Limits(limits::LimitsArgs),
}

fn main() {
    // Reads the load average before the run changes it.
    environment::environment();
    let Cli { command, args } = Cli::parse();
    if let Err(text) = managed::set_softhsm_environment(&args) {
        run_context::print_to_stderr(&text);
        std::process::exit(1);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|e| e.to_string());
    if let Err(text) = result.and_then(|runtime| runtime.block_on(run_until_signal(command_of(command, args)))) {
        run_context::print_to_stderr(&text);
        std::process::exit(1);
    }
}

/// Runs a command until it ends or the second signal arrives. Fails if it was interrupted or could not clean up.
async fn run_until_signal(command: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let (stop, stopped) = watch::channel(false);
    let guarded = async {
        // Polled in this order: signals are handled before the first process starts.
        tokio::select! {
            biased;
            result = stop_on_signals(&stop) => result,
            result = command => result,
        }
    };
    let (result, notes) = run_context::scope(stopped, guarded).await;
    conclude(result, *stop.borrow(), &notes)
}

/// Reports log files and remaining objects, and returns the result of the command.
fn conclude(result: Result<(), String>, is_interrupted: bool, notes: &CommandNotes) -> Result<(), String> {
    notes.logs().iter().for_each(|path| run_context::print_to_stderr(&format!("server log: {}", path.display())));
    notes.kept.iter().for_each(|what| run_context::print_to_stderr(&format!("kept on the server: {what}")));
    notes.left.iter().for_each(|what| run_context::print_to_stderr(&format!("not removed from the server: {what}")));
    match result {
        Err(cause) if is_interrupted && cause != INTERRUPTED => Err(format!("{INTERRUPTED}: {cause}")),
        _ if is_interrupted => Err(INTERRUPTED.to_owned()),
        Ok(()) if !notes.left.is_empty() => Err("some objects were not removed from the server".to_owned()),
        result => result,
    }
}

/// Requests a stop at the first signal, so that the command reports and cleans up. Returns at the second one.
async fn stop_on_signals(stop: &watch::Sender<bool>) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    for _ in 0..2 {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if !stop.send_replace(true) {
            run_context::print_to_stderr("stopping; a second signal skips the report");
        }
    }
    Err(INTERRUPTED.to_owned())
}

async fn command_of(command: Option<Command>, args: RunArgs) -> Result<(), String> {
    match command {
        Some(Command::Compare(args)) => compare::command(&args).await,
        Some(Command::Run(args)) => run_order(&order::read_plan(&args)?, &args.outputs).await,
        Some(Command::Limits(args)) => limits::command(&args).await,
        None => run(args).await,
    }
}

/// Runs the order: a comparison if it has a second server.
async fn run_order(order: &Order, outputs: &report::Outputs) -> Result<(), String> {
    match &order.other {
        Some(other) => compare::run(order, other, outputs).await,
        None => single_run::run(order, outputs).await,
    }
}

async fn run(args: RunArgs) -> Result<(), String> {
    let scenario = args.scenario();
    let has_pace = args.plan().pace != pace::Pace::default();
    if scenario.has_own_load() && (args.outputs.html.is_some() || has_pace) {
        return Err(format!("{}: takes none of --html, --rate and --ramp", scenario.name()));
    }
    if args.find_rate {
        return find_rate::run(&args).await;
    }
    match scenario {
        Scenario::Crl => verdict::run(&args).await,
        Scenario::SignManaged => managed::run(&args).await,
        Scenario::Oversize => oversize::run(&args).await,
        Scenario::Crowd => crowd::run(&args).await,
        Scenario::Attack => attack::run(&args).await,
        Scenario::Login => login::run(&args).await,
        Scenario::Nodes => nodes::run(&args).await,
        Scenario::Projects => projects::run(&args).await,
        Scenario::Preload => single_run::preload(&args).await,
        Scenario::Ocsp => ocsp::run(&args).await,
        _ => single_run::run(&args.order()?, &args.outputs).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &str) -> Cli {
        Cli::try_parse_from(line.split(' ')).unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
    }

    #[test]
    fn impossible_runs_are_rejected_before_the_start() {
        let wrong = |line: &str| parsed(line).args.order().err().unwrap_or_else(|| format!("taken: {line}"));
        for (line, says) in [
            ("signet-load issue --seconds 5 --ramp 6", "--ramp: must not be more than --seconds"),
            ("signet-load sign --key-type rsa --key-bits 2048", "sign: the key type must be"),
            ("signet-load sign --key-bits 521", "sign: the key type must be"),
            ("signet-load issue --preload 5 --revoked 6", "--revoked: must not be more than --preload"),
            ("signet-load issue --prepared", "--role: must be given with --prepared for issue"),
            ("signet-load crl-get --prepared --preload 5", "--role: must be given with --prepared for crl-get"),
            ("signet-load login --prepared", "--prepared: cannot be used with login"),
            ("signet-load preload --preload 5", "--keep: must be given"),
            ("signet-load revoke --find-rate --p99 20ms", "--find-rate: cannot be used with revoke"),
        ] {
            assert!(wrong(line).starts_with(says), "{line}: {}", wrong(line));
        }
        for line in [
            "signet-load sign --key-bits 384 --seconds 5 --ramp 5",
            "signet-load issue --key-type rsa",
            "signet-load crl-get --prepared --mount pki",
            "signet-load preload --preload 5 --keep",
            "signet-load preload --preload 5 --server ./signet",
            "signet-load issue --find-rate --p99 20ms",
        ] {
            assert!(parsed(line).args.order().is_ok(), "{line}");
        }
        let args = parsed("signet-load mixed --server ./signet --rsa-stock 64").args;
        assert_eq!((args.target.launch.rsa_stock, args.order().unwrap().target.launch.rsa_stock), (64, 64));
        assert_eq!(parsed("signet-load issue --store memory").args.target.store.as_deref(), Some("memory"));
    }

    fn refused(line: &str) -> String {
        Cli::try_parse_from(line.split(' ')).map_or_else(|refusal| refusal.to_string(), |_| format!("taken: {line}"))
    }

    #[test]
    fn command_line_has_scenarios_and_subcommands() {
        Cli::command().debug_assert();
        let cli = parsed(
            "signet-load issue --addr http://a --token-header X-Own --mount ca --role web --prepared --rate 10.5",
        );
        assert_eq!((cli.args.scenario(), cli.command.is_none()), (Scenario::Issue, true));
        let target = &cli.args.target;
        let plan = cli.args.plan();
        assert_eq!(
            (target.mount.as_deref(), target.token_header.as_deref(), target.prepared),
            (Some("ca"), Some("X-Own"), true)
        );
        assert_eq!((plan.pace.rate, plan.max_requests(), plan.role.as_deref()), (Some(10.5), u64::MAX, Some("web")));
        assert_eq!(parsed("signet-load revoke --rate 5").args.plan().max_requests(), plan::REQUESTS);
        let line = "signet-load compare sign --server ./signet --other-addr http://b --rounds 2";
        assert!(matches!(parsed(line).command, Some(Command::Compare(_))));
        assert!(matches!(parsed("signet-load run plan.toml").command, Some(Command::Run(_))));
        let line =
            "signet-load limits --server ./signet --stored 10000000 --projects 1000 --rsa-stock 5 --only issue,crl-get";
        assert!(matches!(parsed(line).command, Some(Command::Limits(_))));
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for (line, says) in [
            ("signet-load", "<SCENARIO>"),
            ("signet-load else", "possible values"),
            ("signet-load issue --rate 0", "must be from 0.001 to 1000000"),
            ("signet-load issue --find-rate", "--p99"),
            ("signet-load issue --p99 20ms", "--find-rate"),
            ("signet-load issue --find-rate --p99 20", "must end with us, ms or s"),
            ("signet-load issue --find-rate --p99 20ms --rate 5", "cannot be used with"),
            ("signet-load issue --access-log", "--server"),
            ("signet-load issue --seconds 0", "0 is not in 1"),
            ("signet-load issue --seconds 86401", "86401 is not in 1"),
            ("signet-load issue --rsa-stock 64", "--server"),
            ("signet-load compare issue", "--other-addr"),
            ("signet-load limits", "--server"),
        ] {
            assert!(refused(line).contains(says), "{}", refused(line));
        }
    }
}
