//! `signet-load`: a load generator for Signet servers. It reports rates, latency percentiles, errors and CPU time per
//! request (PostgreSQL included), next to reference measurements of the machine from the same run. `load/README.md` has
//! the command lines.
//!
//! A run creates the objects that it needs: a mount, roles, a policy of ten rules, and a token that is not root. It
//! therefore measures what real clients get. It removes the objects afterwards. It uses a running server, or starts one
//! with `--server`.

mod anchors;
mod attack;
mod chart;
mod client;
mod cluster;
mod command_line;
mod compare;
mod crl;
mod crowd;
mod der;
#[cfg(test)]
mod double;
mod drive;
mod environment;
mod find_rate;
mod floor;
mod format;
mod histogram;
mod html;
mod limits;
mod log_file;
mod login;
mod managed;
mod module;
mod nodes;
mod ocsp;
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
mod target;
mod timeline;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use ocsp::OcspReport;
use order::Order;
use pace::Pace;
use plan::Stock;
use report::{Outputs, Report, Subject};
use run_context::{INTERRUPTED, Notes};
use server::Launch;
use target::{Open, Target};

/// The request that a run repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// No requests: only fills the store as `--preload` and `--revoked` say.
    Preload,
    /// `pki/issue`: the server generates key and certificate.
    Issue,
    /// `pki/sign`: the server certifies keys generated here (CSRs).
    Sign,
    /// `sign` by an issuer with a managed key, compared with an issuer with a software key: RSA-2048 and P-256 keys in
    /// SoftHSM (needs `--server`), or `--managed-key` of a running server.
    SignManaged,
    /// `pki/revoke` for `--requests` certificates that are not revoked yet; missing certificates are issued first.
    /// `--preload` and `--revoked` set the initial numbers.
    Revoke,
    /// Cost of a revocation with a long CRL compared with a short one, and the start time with the long one; both have
    /// limits. Needs `--server`. Defaults: 1,000,000 revoked certificates (`--revoked`), 10,000 requests
    /// (`--requests`).
    Crl,
    /// `pki/issue`, with additional clients (`--rsa-clients`) that request RSA-2048 keys.
    Mixed,
    /// `pki/ocsp` in four parts of `--requests` each: GET and POST, with and without a nonce, for the certificates of
    /// the mount.
    Ocsp,
    /// `pki/issue` alone, and while other clients send oversized requests of 4 MB: its p99 may be at most three times
    /// its value alone, and the oversized requests must be rejected. Needs `--server`.
    Oversize,
    /// `auth/token/lookup-self` with one token, alone and while 50 connections (`--clients`) of another token repeat
    /// long requests. Each kind runs for `--seconds`; the p99 limit is 50 ms. Needs `--server`.
    Crowd,
    /// `pki/issue` with one token, alone and while 64, 256 and 900 connections (or `--clients`) of another token repeat
    /// one expensive request. Each kind runs for `--seconds`; the p99 may be three times its value alone or 20 ms, and
    /// server memory 300 MiB. Needs `--server`.
    Attack,
    /// GET of the complete CRL.
    CrlGet,
    /// `pki/ocsp` by GET without a nonce: responses can be cached.
    OcspGet,
    /// `pki/ocsp` by GET with a nonce: every response is signed.
    OcspNonce,
    /// `sys/health` without a token: the cost of HTTP alone.
    #[default]
    Health,
    /// `auth/jwt/login` with an RS256 token: the CPU per login may exceed that of the signature verification by at most
    /// 45 µs. Default: 400,000 requests.
    Login,
    /// `pki/issue` on one node and on two nodes with one PostgreSQL, alternating. With as many clients on each node,
    /// the CPU per certificate (database included) may be 1.1 times that of one node. Needs `--server` and
    /// `--postgres`.
    Nodes,
    /// The projects API with a million projects and workspaces (`--preload`): lists, show and moves, each with a p99
    /// limit of 20 ms. Default: 16 clients. Needs `--server` and `--postgres`.
    Projects,
}

impl Scenario {
    /// Returns the name used on the command line and in plans.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// `true` if the requests need a mount.
    pub(crate) fn needs_mount(self) -> bool {
        !matches!(self, Self::Health | Self::Login | Self::SignManaged)
    }

    /// `true` if the scenario can use an existing mount without creating anything.
    pub(crate) fn takes_prepared(self) -> bool {
        matches!(self, Self::Ocsp | Self::OcspGet | Self::OcspNonce | Self::CrlGet | Self::Health) || self.needs_role()
    }

    /// `true` if the requests issue certificates by a role.
    pub(crate) fn needs_role(self) -> bool {
        matches!(self, Self::Issue | Self::Sign | Self::Mixed | Self::Revoke | Self::Preload)
    }
}

/// Load generator for Signet and other servers with the Vault API.
#[derive(Parser, Debug)]
#[command(version, about, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    args: Args,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs a scenario alternately on this server and on another one, and prints the ratios.
    Compare(Box<compare::Args>),
    /// Runs a plan file (TOML, or JSON with the extension `.json`).
    Run(order::Args),
    /// Measures every figure that has a limit, and fails if a limit is exceeded.
    Limits(limits::Args),
}

/// Arguments of a run of one scenario.
#[derive(clap::Args, Debug)]
struct Args {
    /// The scenario.
    #[arg(required = true)]
    scenario: Option<Scenario>,
    #[command(flatten)]
    target: Target,
    /// Before the run, issue certificates until the store holds this many.
    #[arg(long, value_name = "N", visible_alias = "certificates", default_value_t = 0)]
    preload: u64,
    /// Before the run, revoke certificates until this many are revoked.
    #[arg(long, value_name = "N", default_value_t = 0)]
    revoked: u64,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = CLIENTS, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Connections of `mixed` that request RSA-2048 keys.
    #[arg(long, default_value_t = 8)]
    rsa_clients: u16,
    /// Number of requests (default: 100,000, or unlimited with `--rate`). `mixed` does not count the RSA requests.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests per second, independent of the responses; latency counts from the time at which a request is due.
    #[arg(long, value_name = "N", value_parser = order::rate)]
    rate: Option<f64>,
    /// Seconds during which the rate grows from 0, or the connections start.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ramp: u64,
    /// Search the highest rate that meets `--p99`: a closed loop, then at most 11 steps at a rate, `--seconds` in
    /// total.
    #[arg(long, requires = "p99", conflicts_with_all = ["rate", "ramp", "requests"])]
    find_rate: bool,
    /// With `--find-rate`: the p99 limit, such as 20ms.
    #[arg(long, value_name = "LATENCY", requires = "find_rate", value_parser = find_rate::latency)]
    p99: Option<Duration>,
    /// Maximum duration of the run in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=order::SECONDS))]
    seconds: u64,
    /// For `sign-managed`: a managed key of the running server, of any type (pkcs11, cloudakms, cloudbkeyvault or
    /// cloudckms).
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    managed_key: Option<String>,
    /// For `sign-managed`: sessions of each key in SoftHSM.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    max_parallel: u16,
    /// For `sign-managed`: path of SoftHSM's library.
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/softhsm/libsofthsm2.so")]
    softhsm: PathBuf,
    /// Key type of the certificates.
    #[arg(long, default_value = "ec")]
    key_type: String,
    /// Key size of the certificates; 0 selects the default of the type.
    #[arg(long, default_value_t = 256)]
    key_bits: u32,
    /// For `revoke`: CRLs are built by the timer, not by each revocation.
    #[arg(long)]
    auto_rebuild: bool,
    /// Do not store the certificates.
    #[arg(long)]
    no_store: bool,
    #[command(flatten)]
    outputs: Outputs,
    /// No progress bar.
    #[arg(long)]
    quiet: bool,
}

/// Default number of connections.
pub(crate) const CLIENTS: u16 = 64;
/// Default number of requests.
const REQUESTS: u64 = 100_000;

impl Args {
    /// Returns the scenario. clap requires one unless a subcommand is given.
    fn scenario(&self) -> Scenario {
        self.scenario.unwrap_or_default()
    }

    /// Returns the plan. `serials` are the request bodies of a run that revokes.
    fn plan(&self, serials: Vec<bytes::Bytes>) -> plan::Plan {
        // `revoke` needs a finite number: its certificates exist before the run.
        let max = if self.rate.is_some() && self.scenario() != Scenario::Revoke { u64::MAX } else { REQUESTS };
        plan::Plan {
            scenario: self.scenario(),
            clients: self.clients.into(),
            rsa_clients: self.rsa_clients.into(),
            requests: self.requests.unwrap_or(max),
            seconds: self.seconds,
            pace: Pace { rate: self.rate, ramp: Duration::from_secs(self.ramp) },
            key_type: self.key_type.clone(),
            key_bits: self.key_bits,
            no_store: self.no_store,
            auto_rebuild: self.auto_rebuild,
            role: self.target.role.clone(),
            prepared: self.target.prepared,
            quiet: self.quiet,
            serials,
        }
    }

    fn launch(&self) -> Result<Launch<'_>, String> {
        let name = self.scenario().name();
        self.target.launch().ok_or_else(|| format!("{name}: --server must name the signet binary"))
    }

    fn wanted(&self) -> Stock {
        Stock { certificates: self.preload, revoked: self.revoked }
    }

    /// Validates the arguments before anything starts, and returns the run.
    fn order(&self) -> Result<Order, String> {
        order::ramp_within(self.ramp, self.seconds, ["--ramp", "--seconds"])?;
        let wanted = self.wanted();
        wanted.check("--")?;
        let plan = self.plan(Vec::new());
        plan.check()?;
        let name = self.scenario().name();
        let target = self.target.clone();
        target.check(self.scenario(), wanted, "--")?;
        if self.find_rate && !find_rate::takes(self.scenario()) {
            return Err(format!("--find-rate: cannot be used with {name}"));
        }
        Ok(Order { name, plan, target, other: None, rounds: 1, at_once: false, wanted })
    }
}

fn main() {
    // Reads the load average before the run changes it.
    environment::environment();
    let Cli { command, args } = Cli::parse();
    if let Err(text) = managed::in_its_environment(&args) {
        report::complain(&text);
        std::process::exit(1);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|e| e.to_string());
    if let Err(text) = result.and_then(|runtime| runtime.block_on(supervised(command_of(command, args)))) {
        report::complain(&text);
        std::process::exit(1);
    }
}

/// Runs a command until it ends or the second signal arrives. Fails if it was interrupted or could not clean up.
async fn supervised(command: impl Future<Output = Result<(), String>>) -> Result<(), String> {
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
    concluded(result, *stop.borrow(), &notes)
}

/// Reports log files and remaining objects, and returns the result of the command.
fn concluded(result: Result<(), String>, is_interrupted: bool, notes: &Notes) -> Result<(), String> {
    notes.logs().iter().for_each(|path| report::complain(&format!("server log: {}", path.display())));
    notes.kept.iter().for_each(|what| report::complain(&format!("kept on the server: {what}")));
    notes.left.iter().for_each(|what| report::complain(&format!("not removed from the server: {what}")));
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
            report::complain("stopping; a second signal skips the report");
        }
    }
    Err(INTERRUPTED.to_owned())
}

async fn command_of(command: Option<Command>, args: Args) -> Result<(), String> {
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
        None => one(order, outputs).await,
    }
}

async fn run(args: Args) -> Result<(), String> {
    let own = [
        Scenario::Crl,
        Scenario::SignManaged,
        Scenario::Oversize,
        Scenario::Crowd,
        Scenario::Attack,
        Scenario::Projects,
        Scenario::Preload,
    ];
    if own.contains(&args.scenario()) && (args.outputs.html.is_some() || args.rate.is_some() || args.ramp > 0) {
        return Err(format!("{}: takes none of --html, --rate and --ramp", args.scenario().name()));
    }
    if args.find_rate {
        return find_rate::run(&args).await;
    }
    match args.scenario() {
        Scenario::Crl => verdict::run(&args).await,
        Scenario::SignManaged => managed::run(&args).await,
        Scenario::Oversize => oversize::run(&args).await,
        Scenario::Crowd => crowd::run(&args).await,
        Scenario::Attack => attack::run(&args).await,
        Scenario::Login => login::run(&args).await,
        Scenario::Nodes => nodes::run(&args).await,
        Scenario::Projects => projects::run(&args).await,
        Scenario::Preload => preload(&args).await,
        Scenario::Ocsp => ocsp(&args).await,
        _ => one(&args.order()?, &args.outputs).await,
    }
}

/// Runs one plan on its server.
pub(crate) async fn one(order: &Order, outputs: &Outputs) -> Result<(), String> {
    let plan = order.target.plan(&order.plan);
    let (open, start, stock) = opened(&order.target, &plan, order.wanted).await?;
    let anchors = anchors::measure(folder(&open, &order.target), plan.makes_rsa())?;
    let figures = scenario::run(&plan, &open.place(), open.watched).await?;
    let store = open.store()?;
    let process = open.process();
    let subject = Subject { plan: &plan, store, process, start, stock, anchors: &anchors };
    let report = Report { of: &subject, figures: &figures };
    report.print();
    outputs.write(&report.json(), || report.page(&order.name))?;
    figures.outcome()
}

/// Opens the server of a run, reads its startup time and fills its store.
pub(crate) async fn opened(
    target: &Target,
    plan: &plan::Plan,
    wanted: Stock,
) -> Result<(Open, Option<server::Start>, Option<Stock>), String> {
    let open = target.open(plan.scenario).await?;
    let start = match &open.started {
        Some(server) if target.mount.as_deref().unwrap_or(server::MOUNT) == server::MOUNT => {
            Some(server.start().await?)
        }
        _ => None,
    };
    let stock = filled(&open, plan, wanted).await?;
    Ok((open, start, stock))
}

/// Returns the folder for disk measurements: the data folder of a started server, or the current folder.
fn folder<'a>(open: &Open, target: &'a Target) -> &'a Path {
    if open.started.is_some() { &target.data_dir } else { Path::new(".") }
}

async fn preload(args: &Args) -> Result<(), String> {
    let order = args.order()?;
    if order.wanted.is_empty() {
        return Err("preload: --preload must say how many".to_owned());
    }
    let (open, _, stock) = opened(&order.target, &order.plan, order.wanted).await?;
    stock.into_iter().for_each(report::print_stock);
    let certificates = stock.map(|stock| stock.certificates);
    let revoked = stock.map(|stock| stock.revoked);
    let json = serde_json::json!({ "scenario": "preload", "store": open.store()?, "certificates": certificates,
        "revoked": revoked });
    args.outputs.write_json(&json)
}

async fn ocsp(args: &Args) -> Result<(), String> {
    let Order { target, plan, wanted, .. } = args.order()?;
    let (open, _, stock) = opened(&target, &plan, wanted).await?;
    let anchors = anchors::measure(folder(&open, &target), false)?;
    let parts = ocsp::run(&plan, &open.place(), open.watched).await?;
    let store = open.store()?;
    let process = open.process();
    let subject = Subject { plan: &plan, store, process, start: None, stock, anchors: &anchors };
    let report = OcspReport { of: &subject, parts: &parts };
    report.print();
    args.outputs.write(&report.json(), || report.page())?;
    report.outcome()
}

/// Fills the store if requested, and waits until its data is on disk.
async fn filled(open: &Open, plan: &plan::Plan, wanted: Stock) -> Result<Option<Stock>, String> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let stock = preload::fill(&open.place(), wanted, plan.preload_role(), plan.quiet).await?;
    open.settle()?;
    Ok(Some(stock))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &str) -> Cli {
        Cli::try_parse_from(line.split(' ')).unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
    }

    #[test]
    fn impossible_runs_are_refused_before_the_start() {
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
        assert_eq!((args.target.rsa_stock, args.order().unwrap().target.rsa_stock), (64, 64));
        assert_eq!(parsed("signet-load issue --store memory").args.target.store.as_deref(), Some("memory"));
    }

    fn refused(line: &str) -> String {
        Cli::try_parse_from(line.split(' ')).map_or_else(|refusal| refusal.to_string(), |_| format!("taken: {line}"))
    }

    #[test]
    fn the_command_line_has_scenarios_and_commands_of_its_own() {
        Cli::command().debug_assert();
        let cli = parsed(
            "signet-load issue --addr http://a --token-header X-Own --mount ca --role web --prepared --rate 10.5",
        );
        assert_eq!((cli.args.scenario(), cli.command.is_none()), (Scenario::Issue, true));
        let target = &cli.args.target;
        let plan = cli.args.plan(Vec::new());
        assert_eq!(
            (target.mount.as_deref(), target.token_header.as_deref(), target.prepared),
            (Some("ca"), Some("X-Own"), true)
        );
        assert_eq!((plan.pace.rate, plan.requests, plan.role.as_deref()), (Some(10.5), u64::MAX, Some("web")));
        assert_eq!(parsed("signet-load revoke --rate 5").args.plan(Vec::new()).requests, REQUESTS);
        let line = "signet-load compare sign --server ./signet --other-addr http://b --rounds 2";
        assert!(matches!(parsed(line).command, Some(Command::Compare(_))));
        assert!(matches!(parsed("signet-load run plan.toml").command, Some(Command::Run(_))));
        let line =
            "signet-load limits --server ./signet --stored 10000000 --projects 1000 --rsa-stock 5 --only issue,crl-get";
        assert!(matches!(parsed(line).command, Some(Command::Limits(_))));
    }

    #[test]
    fn invalid_command_lines_are_refused() {
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
