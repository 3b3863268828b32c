//! `signet-load`: puts a bounded load on a Signet server and reports rates, percentiles, errors and the
//! CPU time per request, PostgreSQL's included, beside what the machine can do at best in the same run.
//! `load/README.md` has the command lines.
//!
//! It creates what it needs (a mount, roles, a policy of ten rules, a token that is not root), so it measures what a
//! real client meets, and removes it afterwards. Point it at a running server, or let it start one with `--server`, on
//! a PostgreSQL cluster of its own with `--postgres`.

mod anchors;
mod attack;
mod chart;
mod client;
mod cluster;
mod command_line;
mod compare;
mod crl;
mod crowd;
#[cfg(test)]
mod double;
mod drive;
mod environment;
mod find_rate;
mod floor;
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
mod preload;
mod proc;
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

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use ocsp::OcspReport;
use order::Order;
use pace::Pace;
use preload::Stock;
use report::{Outputs, Report};
use run_context::{INTERRUPTED, Notes};
use server::Launch;
use target::{Open, Target};

/// What to ask for, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Nothing: only fill the store as `--preload` and `--revoked` say.
    Preload,
    /// `pki/issue`: the server makes key and certificate.
    Issue,
    /// `pki/sign`: the server certifies keys made here (CSRs).
    Sign,
    /// `sign` by an issuer whose key is in a device, beside the same by one whose key is the server's: SoftHSM's keys
    /// of RSA-2048 and P-256 (needs `--server`), or `--managed-key` of a running server.
    SignManaged,
    /// `pki/revoke`, of `--requests` certificates that are not revoked yet and are issued before where they are
    /// missing; `--preload` and `--revoked` say how many there are to begin with.
    Revoke,
    /// What revoking costs with a long CRL beside a short one, and what a start with the long one takes, held
    /// against what it may. Needs `--server`; the mount has 1,000,000 revoked certificates unless `--revoked`
    /// says another number, and `--requests` are 10,000 unless they are given.
    Crl,
    /// `pki/issue`, with `--rsa-clients` that ask for RSA-2048 beside the others.
    Mixed,
    /// `pki/ocsp`, in four parts of `--requests` each: GET and POST, without and with a nonce, about the
    /// certificates that there are.
    Ocsp,
    /// `pki/issue` alone and beside clients that send 4 MB of whatever can be long: its p99 is held to three times
    /// what it is alone, and they are to be refused. Needs `--server`.
    Oversize,
    /// `auth/token/lookup-self` of one token alone and beside 50 connections (`--clients`) of another that repeat long
    /// requests, kind by kind, `--seconds` each: its p99 is held to 50 ms. Needs `--server`.
    Crowd,
    /// `pki/issue` of one token alone and beside 64, 256 and 900 connections (or `--clients`) of another that repeat one
    /// expensive request, kind by kind, `--seconds` each: its p99 is held to three times what it is alone or 20 ms, and
    /// the server's memory to 300 MiB. Needs `--server`.
    Attack,
    /// The complete CRL, over and over.
    CrlGet,
    /// `pki/ocsp` by GET without a nonce: answers may be used again.
    OcspGet,
    /// `pki/ocsp` by GET with a nonce: every answer is signed.
    OcspNonce,
    /// `sys/health`, without a token: what HTTP alone costs.
    Health,
    /// `auth/jwt/login` with a token that is signed with RS256: CPU per login, held against what verifying the
    /// signature alone costs and 45 µs; `--requests` are 400,000 unless they are given.
    Login,
    /// `pki/issue` on one node and on two nodes of one PostgreSQL in turn: CPU per certificate, the database's included,
    /// of two that are as busy held to 1.1 times that of one. Needs `--server` and `--postgres`.
    Nodes,
    /// The projects API at a million projects and workspaces (`--preload` says another number): lists, show and
    /// moves, each held against 20 ms, by 16 clients unless `--clients` says another number. Needs `--server`
    /// and `--postgres`.
    Projects,
}

impl Scenario {
    /// Its name on the command line and in plans.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its requests go to a mount that must exist before.
    pub(crate) fn needs_mount(self) -> bool {
        !matches!(self, Self::Health | Self::Login | Self::SignManaged)
    }

    /// It can use a mount as it is, without creating anything.
    pub(crate) fn takes_prepared(self) -> bool {
        matches!(self, Self::Ocsp | Self::OcspGet | Self::OcspNonce | Self::CrlGet | Self::Health) || self.needs_role()
    }

    /// It issues by a role.
    pub(crate) fn needs_role(self) -> bool {
        matches!(self, Self::Issue | Self::Sign | Self::Mixed | Self::Revoke | Self::Preload)
    }
}

/// Load generator for Signet, and for other servers that speak as Vault does.
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
    /// Runs a scenario on this server and on another one in turn, and prints the ratios.
    Compare(Box<compare::Args>),
    /// Runs a plan (TOML, or JSON in a file that ends so).
    Run(order::Args),
    /// Measures everything that has a limit, and holds it to that.
    Limits(limits::Args),
}

/// A run of one scenario.
#[derive(clap::Args, Debug)]
struct Args {
    /// What to ask for.
    #[arg(required = true)]
    scenario: Option<Scenario>,
    /// Address of a running server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    addr: String,
    /// A token that may write policies and roles there.
    #[arg(long, env = "SIGNET_TOKEN", default_value = "", hide_env_values = true)]
    token: String,
    /// The header that carries it (X-Vault-Token; X-Service-Token for a server that is started here).
    #[arg(long, value_name = "NAME")]
    token_header: Option<String>,
    /// The authority of an https address, PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    ca_file: Option<PathBuf>,
    /// The mount. Without it the run creates its own and removes it; with `--server` it is that of the data folder. A
    /// mount that exists at `--addr` is refused unless `--prepared` is given.
    #[arg(long, value_name = "NAME")]
    mount: Option<String>,
    /// The role, which the run creates and removes. A role that exists is refused unless `--prepared` is given.
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Mount, root and role exist, the token may use them, and they are used as they are: nothing is created.
    #[arg(long)]
    prepared: bool,
    /// Leave mount, role and policy on the server.
    #[arg(long, conflicts_with = "prepared")]
    keep: bool,
    /// Start this `signet` binary for the run instead, and stop it afterwards.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Give that server a PostgreSQL cluster in the data folder; names the folder of PostgreSQL's
    /// programs, or `auto` for the newest of Debian's.
    #[arg(long, value_name = "BINDIR", requires = "server")]
    postgres: Option<PathBuf>,
    /// RSA-2048 keys that the server makes while nobody asks; without them each is made by the request that wants it.
    #[arg(long, value_name = "N", requires = "server", default_value_t = 0)]
    rsa_stock: u32,
    /// The started server logs every request, to the log file in the data folder.
    #[arg(long, requires = "server")]
    access_log: bool,
    /// What a running server stores in, for the report.
    #[arg(long, value_name = "TEXT", conflicts_with = "server")]
    store: Option<String>,
    /// Data folder for `--server`; put it on the disk that is to be measured. What is there is used again.
    #[arg(long, default_value = "load-data")]
    data_dir: PathBuf,
    /// Process id of a running server, for its CPU time; found for one that listens on the loopback.
    #[arg(long)]
    pid: Option<u32>,
    /// First issue what is missing for the store to hold so many certificates.
    #[arg(long, value_name = "N", visible_alias = "certificates", default_value_t = 0)]
    preload: u64,
    /// First revoke what is missing for so many of them to be revoked.
    #[arg(long, value_name = "N", default_value_t = 0)]
    revoked: u64,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = CLIENTS, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Connections of `mixed` that ask for RSA-2048.
    #[arg(long, default_value_t = 8)]
    rsa_clients: u16,
    /// Requests in all (100,000 unless given or `--rate`); of `mixed` those that are not for RSA.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests a second, whatever the server does; latency then counts from when a request was due.
    #[arg(long, value_name = "N", value_parser = order::rate)]
    rate: Option<f64>,
    /// Seconds in which the rate grows from nothing, or the connections begin.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ramp: u64,
    /// Search the highest rate that keeps `--p99`: a closed loop, then at most 11 steps at a rate, `--seconds` together.
    #[arg(long, requires = "p99", conflicts_with_all = ["rate", "ramp", "requests"])]
    find_rate: bool,
    /// With `--find-rate`: the p99 to keep, such as 20ms.
    #[arg(long, value_name = "LATENCY", requires = "find_rate", value_parser = find_rate::latency)]
    p99: Option<Duration>,
    /// Longest time of the run, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=order::SECONDS))]
    seconds: u64,
    /// Of `sign-managed`: a managed key of the running server, of whatever type (pkcs11, cloudakms, cloudbkeyvault or
    /// cloudckms).
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    managed_key: Option<String>,
    /// Of `sign-managed`: sessions of each key in SoftHSM.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    max_parallel: u16,
    /// Of `sign-managed`: SoftHSM's library.
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/softhsm/libsofthsm2.so")]
    softhsm: PathBuf,
    /// Key type of the certificates.
    #[arg(long, default_value = "ec")]
    key_type: String,
    /// Key size of the certificates; 0 is the default of the type.
    #[arg(long, default_value_t = 256)]
    key_bits: u32,
    /// With `revoke`: CRLs are built by the timer.
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

/// Connections of a run that does not say how many.
pub(crate) const CLIENTS: u16 = 64;
/// Requests of a run that does not say how many.
const REQUESTS: u64 = 100_000;

impl Args {
    /// What is asked for; the command line has one where no command of its own is given.
    fn scenario(&self) -> Scenario {
        self.scenario.unwrap_or(Scenario::Health)
    }

    /// The run; `serials` are the bodies of one that revokes.
    fn plan(&self, serials: Vec<bytes::Bytes>) -> scenario::Plan {
        // The certificates to revoke are there before the run.
        let most = if self.rate.is_some() && self.scenario() != Scenario::Revoke { u64::MAX } else { REQUESTS };
        scenario::Plan {
            scenario: self.scenario(),
            clients: self.clients.into(),
            rsa_clients: self.rsa_clients.into(),
            requests: self.requests.unwrap_or(most),
            seconds: self.seconds,
            pace: Pace { rate: self.rate, ramp: Duration::from_secs(self.ramp) },
            key_type: self.key_type.clone(),
            key_bits: self.key_bits,
            no_store: self.no_store,
            auto_rebuild: self.auto_rebuild,
            role: self.role.clone(),
            prepared: self.prepared,
            quiet: self.quiet,
            serials,
        }
    }

    /// The server.
    fn target(&self) -> Target {
        Target {
            name: "signet".to_owned(),
            server: self.server.clone(),
            postgres: self.postgres.clone(),
            data_dir: self.data_dir.clone(),
            rsa_stock: self.rsa_stock,
            access_log: self.access_log,
            store: self.store.clone(),
            command: None,
            addr: self.addr.clone(),
            token: self.token.clone(),
            token_header: self.token_header.clone(),
            ca_file: self.ca_file.clone(),
            pid: self.pid,
            mount: self.mount.clone(),
            role: self.role.clone(),
            prepared: self.prepared,
            keep: self.keep,
        }
    }

    /// How the server of a scenario that needs one of its own is started.
    fn launch(&self) -> Result<Launch<'_>, String> {
        let name = self.scenario().name();
        let binary = self.server.as_deref().ok_or_else(|| format!("{name}: --server must name the signet binary"))?;
        let (postgres, rsa_stock) = (self.postgres.as_deref(), self.rsa_stock);
        Ok(Launch { postgres, rsa_stock, access_log: self.access_log, ..Launch::new(binary, &self.data_dir) })
    }

    fn wanted(&self) -> Stock {
        Stock { certificates: self.preload, revoked: self.revoked }
    }

    /// The run as it is ordered, once nothing is wrong with it that can be known before anything is started.
    fn order(&self) -> Result<Order, String> {
        order::ramp_within(self.ramp, self.seconds, ["--ramp", "--seconds"])?;
        if self.revoked > self.preload {
            return Err("--revoked: must not be more than --preload, the certificates there are".to_owned());
        }
        let plan = self.plan(Vec::new());
        plan.check()?;
        let (name, target, wanted) = (self.scenario().name(), self.target(), self.wanted());
        target.check(self.scenario(), wanted, "--")?;
        if self.find_rate && !find_rate::takes(self.scenario()) {
            return Err(format!("--find-rate: cannot be used with {name}"));
        }
        Ok(Order { name, plan, target, other: None, rounds: 1, at_once: false, wanted })
    }
}

fn main() {
    // The load of the machine is that before the run.
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

/// Runs a command to its end, or until a signal; an error when it was interrupted or could not clean up.
async fn supervised(command: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let (stop, stopped) = watch::channel(false);
    let guarded = async {
        // In this order: signals are handled before the first process is started.
        tokio::select! {
            biased;
            result = stop_on_signals(&stop) => result,
            result = command => result,
        }
    };
    let (result, notes) = run_context::scope(stopped, guarded).await;
    concluded(result, *stop.borrow(), &notes)
}

/// Names log files and objects that stay, and says how the command ended.
fn concluded(result: Result<(), String>, is_interrupted: bool, notes: &Notes) -> Result<(), String> {
    notes.logs().iter().for_each(|path| report::complain(&format!("server log: {}", path.display())));
    notes.kept().iter().for_each(|what| report::complain(&format!("kept on the server: {what}")));
    notes.left().iter().for_each(|what| report::complain(&format!("not removed from the server: {what}")));
    match result {
        Err(cause) if is_interrupted && cause != INTERRUPTED => Err(format!("{INTERRUPTED}: {cause}")),
        _ if is_interrupted => Err(INTERRUPTED.to_owned()),
        Ok(()) if !notes.left().is_empty() => Err("some objects were not removed from the server".to_owned()),
        result => result,
    }
}

/// Asks the command to stop at the first signal, so that it reports and cleans up, and gives it up at the second.
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
        Some(Command::Run(args)) => order::command(&args).await,
        Some(Command::Limits(args)) => limits::command(&args).await,
        None => run(args).await,
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

/// One run of a plan on its server.
pub(crate) async fn one(order: &Order, outputs: &Outputs) -> Result<(), String> {
    let plan = order.target.plan(&order.plan);
    let (open, start, stock) = opened(&order.target, &plan, order.wanted).await?;
    let anchors = anchors::measure(folder(&open, &order.target), plan.makes_rsa())?;
    let figures = scenario::run(&plan, &open.place(), open.watched).await?;
    let (store, process) = (open.store()?, open.process());
    let report = Report { plan: &plan, store, process, start, stock, figures: &figures, anchors: &anchors };
    report.print();
    outputs.write(&report.json(), || report.page(&order.name))?;
    figures.outcome()
}

/// The server of a run, what its start took, and what its store holds then.
pub(crate) async fn opened(
    target: &Target,
    plan: &scenario::Plan,
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

/// Where durability is measured: on the disk of a store of ours.
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
    let (certificates, revoked) = (stock.map(|stock| stock.certificates), stock.map(|stock| stock.revoked));
    let json = serde_json::json!({ "scenario": "preload", "store": open.store()?, "certificates": certificates,
        "revoked": revoked });
    args.outputs.write_json(&json)
}

async fn ocsp(args: &Args) -> Result<(), String> {
    let Order { target, plan, wanted, .. } = args.order()?;
    let (open, _, stock) = opened(&target, &plan, wanted).await?;
    let anchors = anchors::measure(folder(&open, &target), false)?;
    let parts = ocsp::run(&plan, &open.place(), open.watched).await?;
    let (store, process) = (open.store()?, open.process());
    let report = OcspReport { plan: &plan, store, process, stock, parts: &parts, anchors: &anchors };
    report.print();
    args.outputs.write(&report.json(), || report.page())?;
    report.outcome()
}

/// Fills the store, if that was asked for, and waits until the disk is done with it.
async fn filled(open: &Open, plan: &scenario::Plan, wanted: Stock) -> Result<Option<Stock>, String> {
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
    fn what_a_run_cannot_be_is_said_before_anything_is_started() {
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
        assert_eq!((args.target().rsa_stock, args.order().unwrap().target.rsa_stock), (64, 64));
        assert_eq!(parsed("signet-load issue --store memory").args.target().store.as_deref(), Some("memory"));
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
        let (target, plan) = (cli.args.target(), cli.args.plan(Vec::new()));
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
    fn what_is_wrong_on_the_command_line_is_refused() {
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
