//! The command `limits`: measures every figure that has a limit, and fails if a limit is exceeded.
//!
//! It starts a server with a store of a given size. Each part is bounded in time and corresponds to a scenario, which
//! can be run alone to analyze a missed limit. Reference measurements of the machine are reported next to the figures.

mod bench;
mod options;
mod row;

use std::time::Duration;

use clap::ValueEnum as _;
use serde_json::{Value, json};

use crate::anchors::{self, Anchors};
use crate::floor::{self, EmptyGet};
use crate::format::number;
use crate::plan::MountContents;
use crate::preload;
use crate::report::Report;
use crate::run_context::{is_interrupted, print_progress};
use crate::server::{Launch, Server};
use crate::table::{Column, Table};

use bench::LimitsBench;
use options::LimitPart;
pub(crate) use options::LimitsArgs;
use row::LimitRow;

/// Maximum of the default number of revoked certificates, which is otherwise the number of stored ones.
const MAX_DEFAULT_REVOKED: u64 = 1_000_000;
/// Members of a row that the report shows.
const ROW_COLUMNS: [Column; 6] = [
    ("", "/name"),
    ("measured", "/measured"),
    ("limit", "/limit"),
    ("unit", "/unit"),
    ("verdict", "/verdict"),
    ("note", "/note"),
];

/// Measures and prints everything. Fails if a limit is exceeded.
pub(crate) async fn command(args: &LimitsArgs) -> Result<(), String> {
    let stock = fill(args).await?;
    print_progress(args.quiet, "measuring the best values of the machine");
    let anchors = anchors::measure(&args.launch.data_dir, false)?;
    let empty = floor::empty_get(args.clients.into(), Duration::from_secs(args.seconds.min(5))).await?;
    let mut bench = LimitsBench::start(args, stock).await?;
    for part in LimitPart::value_variants().iter().filter(|part| args.only.is_empty() || args.only.contains(part)) {
        if is_interrupted() {
            break;
        }
        let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        print_progress(args.quiet, &format!("part {name}"));
        let already = bench.rows.len();
        if let Err(cause) = Box::pin(bench.measure(*part)).await {
            bench.rows.push(LimitRow::not_measured(name, cause));
        }
        bench.rows[already..].iter().for_each(|row| print_progress(args.quiet, &row.text()));
    }
    let floors = floors(&anchors, empty, bench.live().await.ok());
    finish(&bench, &anchors, &floors)
}

async fn fill(args: &LimitsArgs) -> Result<MountContents, String> {
    let revoked = args.revoked.unwrap_or(args.stored.min(MAX_DEFAULT_REVOKED));
    let server = Server::launch(&Launch { rsa_stock: 0, ..args.launch.clone() }).await?;
    // One of the certificates is the root, which is not revoked.
    let wanted = MountContents { certificates: args.stored.max(revoked + 1), revoked };
    let stored = number(wanted.certificates as f64);
    let of_them = number(revoked as f64);
    print_progress(args.quiet, &format!("a store of {stored} certificates, {of_them} of them revoked"));
    let stock = preload::fill(&server.access(), wanted, None, args.quiet).await?;
    server.settle()?;
    Ok(stock)
}

/// Returns reference measurements of the machine, and the server's cost of an empty GET.
fn floors(anchors: &Anchors, empty: EmptyGet, live: Option<EmptyGet>) -> Vec<Value> {
    let mut floors = anchors.facts();
    floors.push(("empty GET, bare loop".to_owned(), empty.to_string()));
    floors.extend(live.map(|live| ("empty GET, sys/live".to_owned(), live.to_string())));
    floors.into_iter().map(|(name, text)| json!({ "name": name, "text": text })).collect()
}

/// Prints the reference measurements and writes the outputs. Fails unless every limit was measured and met.
fn finish(bench: &LimitsBench<'_>, anchors: &Anchors, floors: &[Value]) -> Result<(), String> {
    let json = json!({
        "limits": bench.rows.iter().map(LimitRow::json).collect::<Vec<_>>(),
        "store": bench.server.store()?,
        "certificates_before": bench.filled.certificates,
        "revoked_before": bench.filled.revoked,
        "floors": floors,
        "machine": anchors.json(),
        "runs": bench.runs.iter().map(|run| json!({ "name": run.name, "figures": run.figures.json() })).collect::<Vec<_>>(),
    });
    let mut report = Report::new(bench.server.title("Limits")?, json).fact("certificates before", bench.filled).table(
        "Measurements and limits",
        "/limits",
        &ROW_COLUMNS,
    );
    report.tables.push(Table::new("Best values of the machine", &[("", "/name"), ("", "/text")], floors));
    for run in &bench.runs {
        report = report.run(&run.name, &run.figures);
    }
    report.publish(&bench.args.outputs)?;
    match row::count_missed(&bench.rows) {
        (0, 0) => Ok(()),
        (missed, unknown) => Err(format!("{missed} limits missed, {unknown} not measured")),
    }
}
