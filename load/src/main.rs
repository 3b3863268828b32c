//! `signet-load`: puts a bounded load on a Signet server and reports rates, percentiles, errors and
//! the server's CPU time per request, beside what the machine can do at best in the same run.
//!
//! It sets up what it needs (a role, a policy of ten rules, a token that is not root), so it measures
//! what a real client meets. Point it at a running server, or let it start one with `--server`.

mod anchors;
mod client;
mod report;
mod scenario;
mod server;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// What to ask for, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// `pki/issue`: the server makes key and certificate.
    Issue,
    /// `pki/sign`: the server certifies keys made here (CSRs).
    Sign,
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
    #[arg(long, env = "SIGNET_TOKEN", default_value = "")]
    token: String,
    /// Start this `signet` binary for the run instead, and stop it afterwards.
    #[arg(long)]
    server: Option<PathBuf>,
    /// Data folder for `--server`; put it on the disk that is to be measured.
    #[arg(long, default_value = "load-data")]
    data_dir: PathBuf,
    /// Process id of a running server, for its CPU time.
    #[arg(long)]
    pid: Option<u32>,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Requests in all.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Longest time of the run, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Key type of the certificates.
    #[arg(long, default_value = "ec")]
    key_type: String,
    /// Key size of the certificates; 0 is the default of the type.
    #[arg(long, default_value_t = 256)]
    key_bits: u32,
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

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|e| e.to_string()).and_then(|runtime| runtime.block_on(run(args)));
    if let Err(text) = result {
        report::complain(&text);
        std::process::exit(1);
    }
}

async fn run(args: Args) -> Result<(), String> {
    let started = args.server.as_ref().map(|binary| server::Started::new(binary, &args.data_dir)).transpose()?;
    let (addr, token, pid) = match &started {
        Some(server) => (server.addr.clone(), server.token.clone(), Some(server.pid())),
        None => (args.addr.clone(), args.token.clone(), args.pid),
    };
    let anchors = anchors::measure(started.as_ref().map_or(std::path::Path::new("."), |_| &args.data_dir))?;
    let plan = scenario::Plan {
        scenario: args.scenario,
        clients: args.clients,
        requests: args.requests,
        seconds: args.seconds,
        key_type: args.key_type,
        key_bits: args.key_bits,
        no_store: args.no_store,
        quiet: args.quiet,
    };
    let figures = scenario::run(&plan, &addr, &token, pid).await?;
    report::print(&plan, &figures, &anchors);
    if let Some(path) = &args.json {
        report::write_json(path, &plan, &figures, &anchors)?;
    }
    if figures.errors.is_empty() { Ok(()) } else { Err("some requests failed".to_owned()) }
}
