//! `signet-load`: puts a bounded load on a Signet server and reports rates, percentiles, errors and the
//! CPU time per request, PostgreSQL's included, beside what the machine can do at best in the same run.
//! `load/README.md` has the command lines.
//!
//! It sets up what it needs (roles, a policy of ten rules, a token that is not root), so it measures
//! what a real client meets. Point it at a running server, or let it start one with `--server`, on a
//! PostgreSQL cluster of its own with `--postgres`.

mod anchors;
mod client;
mod cluster;
mod crl;
mod drive;
mod login;
mod managed;
mod module;
mod ocsp;
mod oversize;
mod preload;
mod proc;
mod projects;
mod report;
mod scenario;
mod server;
mod verdict;

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use drive::{Place, Watched};
use ocsp::OcspReport;
use preload::Stock;
use report::Report;
use server::Started;

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
    /// `pki/revoke`, of `--requests` certificates that are not revoked yet; `--preload` and `--revoked` say
    /// how many there are to begin with.
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
    /// `auth/jwt/login` with a token that is signed with RS256: CPU per login, held against what verifying the
    /// signature alone costs and 45 µs. Needs `--server`.
    Login,
    /// The projects API at a million projects and workspaces (`--preload` says another number): lists, show and
    /// moves, each held against 20 ms, by 16 clients unless `--clients` says another number. Needs `--server`
    /// and `--postgres`.
    Projects,
}

/// Load generator for Signet.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Args {
    /// What to ask for.
    scenario: Scenario,
    /// Address of a running server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    addr: String,
    /// A token that may write policies and roles there.
    #[arg(long, env = "SIGNET_TOKEN", default_value = "", hide_env_values = true)]
    token: String,
    /// Start this `signet` binary for the run instead, and stop it afterwards.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Give that server a PostgreSQL cluster in the data folder; names the folder of PostgreSQL's
    /// programs, or `auto` for the newest of Debian's.
    #[arg(long, value_name = "BINDIR", requires = "server")]
    postgres: Option<PathBuf>,
    /// Data folder for `--server`; put it on the disk that is to be measured. What is there is used again.
    #[arg(long, default_value = "load-data")]
    data_dir: PathBuf,
    /// Process id of a running server, for its CPU time.
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
    /// Requests in all (100,000 unless given); of `mixed` those that are not for RSA.
    #[arg(long)]
    requests: Option<u64>,
    /// Longest time of the run, in seconds.
    #[arg(long, default_value_t = 60)]
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
    /// Write the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// No progress bar.
    #[arg(long)]
    quiet: bool,
}

/// Connections of a run that does not say how many.
pub(crate) const CLIENTS: u16 = 64;
/// Requests of a run that does not say how many.
const REQUESTS: u64 = 100_000;

impl Args {
    /// The run; `serials` are the bodies of one that revokes.
    fn plan(&self, serials: Vec<bytes::Bytes>) -> scenario::Plan {
        scenario::Plan {
            scenario: self.scenario,
            mount: "pki".to_owned(),
            clients: self.clients.into(),
            rsa_clients: self.rsa_clients.into(),
            requests: self.requests.unwrap_or(REQUESTS),
            seconds: self.seconds,
            key_type: self.key_type.clone(),
            key_bits: self.key_bits,
            no_store: self.no_store,
            quiet: self.quiet,
            serials,
        }
    }
}

fn main() {
    let args = Args::parse();
    if let Err(text) = managed::in_its_environment(&args) {
        report::complain(&text);
        std::process::exit(1);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|e| e.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                result = run(args) => result,
                stopped = interrupted() => stopped,
            }
        })
    });
    if let Err(text) = result {
        report::complain(&text);
        std::process::exit(1);
    }
}

/// Ends with the first signal to stop, so that what was started here is stopped too.
async fn interrupted() -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Err("interrupted".to_owned())
}

async fn run(args: Args) -> Result<(), String> {
    if args.scenario == Scenario::Crl {
        return verdict::run(&args).await;
    }
    if args.scenario == Scenario::SignManaged {
        return managed::run(&args).await;
    }
    if args.scenario == Scenario::Oversize {
        return oversize::run(&args).await;
    }
    if args.scenario == Scenario::Login {
        return login::run(&args).await;
    }
    if args.scenario == Scenario::Projects {
        return projects::run(&args).await;
    }
    let start = |binary: &PathBuf| Started::new(binary, &args.data_dir, args.postgres.as_deref());
    let started = args.server.as_ref().map(start).transpose()?;
    let admin = match &started {
        Some(server) => server.place(),
        None => Place { addr: &args.addr, token: &args.token },
    };
    let start = match &started {
        Some(server) => Some(server.start().await?),
        None => None,
    };
    let stock = filled(&args, &admin, started.as_ref()).await?;
    if args.scenario == Scenario::Preload {
        return stock.map(report::print_stock).ok_or_else(|| "preload: --preload must say how many".to_owned());
    }
    let serials = serials(&args, &admin).await?;
    let plan = args.plan(serials);
    let folder = started.as_ref().map_or(Path::new("."), |_| &args.data_dir);
    let anchors = anchors::measure(folder, plan.makes_rsa())?;
    let watched = started.as_ref().map_or(Watched { server: args.pid, postgres: None }, Started::watched);
    let store = started.as_ref().map(Started::store).transpose()?;
    if plan.scenario == Scenario::Ocsp {
        let parts = ocsp::run(&plan, &admin, watched).await?;
        let report = OcspReport { plan: &plan, store, stock, parts: &parts, anchors: &anchors };
        report.print();
        args.json.as_deref().map_or(Ok(()), |path| report.write_json(path))?;
        return if report.failed() { Err("some requests failed".to_owned()) } else { Ok(()) };
    }
    let figures = scenario::run(&plan, &admin, watched).await?;
    let report = Report { plan: &plan, store, start, stock, figures: &figures, anchors: &anchors };
    report.print();
    if let Some(path) = &args.json {
        report.write_json(path)?;
    }
    let failed = figures.classes.iter().any(|class| !class.errors.is_empty());
    if failed { Err("some requests failed".to_owned()) } else { Ok(()) }
}

/// What a `revoke` run sends, after the mount was told when to build its CRLs.
async fn serials(args: &Args, admin: &Place<'_>) -> Result<Vec<bytes::Bytes>, String> {
    if args.scenario != Scenario::Revoke {
        return Ok(Vec::new());
    }
    let mut client = client::Client::connect(admin.addr, admin.token).await?;
    preload::auto_rebuild(&mut client, args.auto_rebuild).await?;
    preload::revocable(&mut client, args.requests.unwrap_or(REQUESTS)).await
}

/// Fills the store, if that was asked for, and waits until the disk is done with it.
async fn filled(args: &Args, admin: &Place<'_>, started: Option<&Started>) -> Result<Option<Stock>, String> {
    let wanted = Stock { certificates: args.preload, revoked: args.revoked };
    if wanted.is_empty() {
        return Ok(None);
    }
    let stock = preload::fill(admin, wanted, args.quiet).await?;
    started.map_or(Ok(()), Started::settle)?;
    Ok(Some(stock))
}
