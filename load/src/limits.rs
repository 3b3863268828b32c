//! The command `limits`: measures every figure that has a limit, and fails if a limit is exceeded.
//!
//! It starts a server with a store of a given size. Each part is bounded in time and corresponds to a scenario, which
//! can be run alone to analyze a missed limit. Reference measurements of the machine are reported next to the figures.

mod bench;
mod row;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;

use crate::anchors::{self, Anchors};
use crate::environment::environment;
use crate::floor::{self, EmptyGet};
use crate::format::number;
use crate::html::{Page, Run, Table};
use crate::plan::Stock;
use crate::preload;
use crate::report::{self, Outputs};
use crate::run_context::{self, is_interrupted};
use crate::server::{Launch, Started};
use crate::target::DATA_DIR;

use bench::Bench;
use row::Row;

/// Default number of revoked certificates: as many as are stored, but at most this.
const REVOKED: u64 = 1_000_000;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The start with the filled store, and the first CRL.
    Start,
    /// `issue` with P-256, stored and not stored.
    Issue,
    /// `sign` with P-256, stored and not stored.
    Sign,
    /// `issue` with P-256 while other clients request RSA-2048 keys.
    Mixed,
    /// OCSP, signed responses and cached ones.
    Ocsp,
    /// GET of a short CRL.
    CrlGet,
    /// Token look-up and authorization.
    Token,
    /// `revoke` at full rate.
    Revoke,
    /// Single revocations with a long CRL.
    Crl,
    /// Memory after a longer run.
    Memory,
    /// The projects API.
    Projects,
}

/// Arguments of `limits`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The `signet` binary.
    #[arg(long)]
    server: PathBuf,
    /// Use PostgreSQL for all parts: the folder of its programs, or `auto`. By default only the projects API uses
    /// PostgreSQL, if it is installed.
    #[arg(long, value_name = "BINDIR")]
    postgres: Option<PathBuf>,
    /// Data folder. Existing data is reused.
    #[arg(long, default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// Number of stored certificates.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    stored: u64,
    /// Number of revoked certificates (default: as many as stored, at most 1,000,000).
    #[arg(long, value_name = "N")]
    revoked: Option<u64>,
    /// Number of projects (default: as many as certificates are stored, at most 1,000,000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    projects: Option<u64>,
    /// RSA-2048 keys that the server generates while it is idle; with 0, each request generates its own key.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rsa_stock: u32,
    /// Log every request to the log file in the data folder.
    #[arg(long)]
    access_log: bool,
    /// Connections.
    #[arg(long, default_value_t = crate::CLIENTS, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Duration of each part in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Measure only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    #[command(flatten)]
    outputs: Outputs,
    /// No progress bar and no progress messages.
    #[arg(long)]
    quiet: bool,
}

impl Args {
    fn launch(&self) -> Launch<'_> {
        Launch {
            postgres: self.postgres.as_deref(),
            rsa_stock: self.rsa_stock,
            access_log: self.access_log,
            ..Launch::new(&self.server, &self.data_dir)
        }
    }
}

/// Measures and prints everything. Fails if a limit is exceeded.
pub(crate) async fn command(args: &Args) -> Result<(), String> {
    let stock = fill(args).await?;
    run_context::begun(args.quiet, "what the machine does at best");
    let anchors = anchors::measure(&args.data_dir, false)?;
    let empty = floor::empty_get(args.clients.into(), Duration::from_secs(args.seconds.min(5))).await?;
    let mut bench = Bench::start(args, stock).await?;
    for part in Part::value_variants().iter().filter(|part| args.only.is_empty() || args.only.contains(part)) {
        if is_interrupted() {
            break;
        }
        let already = bench.rows.len();
        let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        run_context::begun(args.quiet, &format!("part {name}"));
        if let Err(cause) = Box::pin(bench.measure(*part)).await {
            bench.rows.push(Row::not_measured(name, cause));
        }
        bench.rows[already..].iter().for_each(row::print);
    }
    let floors = floors(&anchors, empty, bench.live().await.ok());
    finish(&bench, &anchors, &floors)
}

async fn fill(args: &Args) -> Result<Stock, String> {
    let revoked = args.revoked.unwrap_or(args.stored.min(REVOKED));
    let server = Started::launch(&Launch { rsa_stock: 0, ..args.launch() }).await?;
    // One of them is the root, which is not revoked.
    let wanted = Stock { certificates: args.stored.max(revoked + 1), revoked };
    let stored = number(wanted.certificates as f64);
    let of_them = number(revoked as f64);
    run_context::begun(args.quiet, &format!("a store of {stored} certificates, {of_them} of them revoked"));
    let stock = preload::fill(&server.place(), wanted, None, args.quiet).await?;
    server.settle()?;
    Ok(stock)
}

/// Returns reference measurements of the machine, and the server's cost of an empty GET.
fn floors(anchors: &Anchors, empty: EmptyGet, live: Option<EmptyGet>) -> Vec<(String, String)> {
    let get = |get: EmptyGet| {
        format!(
            "{} µs of CPU, {} per second, p99 {} ms",
            number(get.cpu_us),
            number(get.per_second),
            number(get.p99_ms)
        )
    };
    let mut floors = vec![
        ("P-256 sign".to_owned(), format!("{} µs", number(anchors.p256_sign))),
        ("P-256 verify".to_owned(), format!("{} µs", number(anchors.p256_verify))),
        ("SHA-256".to_owned(), format!("{} GB/s", number(anchors.sha256_gb_per_second()))),
        (
            "fdatasync of 8 KiB".to_owned(),
            format!("p50 {} µs, p99 {} µs", number(anchors.fdatasync_p50), number(anchors.fdatasync_p99)),
        ),
        ("empty GET, bare loop".to_owned(), get(empty)),
    ];
    floors.extend(live.map(|live| ("empty GET, sys/live".to_owned(), get(live))));
    floors
}

/// Prints the reference measurements and writes the outputs. Fails unless every limit was measured and met.
fn finish(bench: &Bench<'_>, anchors: &Anchors, floors: &[(String, String)]) -> Result<(), String> {
    let args = bench.args;
    println!("the machine's floors");
    floors.iter().for_each(|(name, text)| println!("  {name:<28} {text}"));
    let store = bench.server.store()?;
    let json = json!({
        "limits": bench.rows.iter().map(Row::json).collect::<Vec<_>>(),
        "store": store,
        "certificates_before": bench.filled.certificates,
        "revoked_before": bench.filled.revoked,
        "floors": floors.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect::<Vec<_>>(),
        "machine": report::machine_json(anchors),
        "runs": bench.runs.iter().map(|run| json!({ "name": run.name, "figures": run.figures.json() })).collect::<Vec<_>>(),
    });
    args.outputs.write(&json, || page(bench, &store, floors))?;
    match row::summed(&bench.rows) {
        (0, 0) => Ok(()),
        (missed, unknown) => Err(format!("{missed} limits missed, {unknown} not measured")),
    }
}

fn page<'a>(bench: &'a Bench<'_>, store: &str, floors: &[(String, String)]) -> Page<'a> {
    let head = ["", "measured", "limit", "unit", "verdict", "note"];
    let rows = bench.rows.iter().map(Row::texts).collect();
    let floors = floors.iter().map(|(name, text)| vec![name.clone(), text.clone()]).collect();
    let stock = bench.filled;
    let mut facts = environment();
    facts.push(("store".to_owned(), store.to_owned()));
    facts.push(("certificates before".to_owned(), format!("{}, {} revoked", stock.certificates, stock.revoked)));
    Page {
        title: "Limits".to_owned(),
        facts,
        tables: vec![
            Table::new("Measured beside the limits", &head, rows),
            Table::new("The machine's floors", &[""; 2], floors),
        ],
        runs: bench.runs.iter().map(|run| Run { title: run.name.clone(), figures: &run.figures }).collect(),
        columns: 2,
    }
}
