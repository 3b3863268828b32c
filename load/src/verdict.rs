//! The scenario `crl`: cost of revocations with a long CRL compared with a short one, and limits for both.
//!
//! Two servers run one after the other on the same kind of store. Both revoke while the timer builds the CRLs. The
//! server with the long CRL is restarted on its data first. At the end it revokes with a CRL build before each
//! response: every serial number must be listed, and concurrent revocations must share builds.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::drive::{Answered, Figures};
use crate::plan::{Plan, Stock};
use crate::preload;
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::server::{Launch, MOUNT, Start, Started};
use crate::{Args, crl, proc, report, scenario};

/// Numbers of revoked certificates that are compared.
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// Default number of revocations of a run.
const REQUESTS: u64 = 10_000;
/// Maximum cost with many revoked certificates, relative to few.
const MAX_COST_RATIO: f64 = 1.5;
/// Maximum seconds from the start to the first CRL: without entries, and in addition for [`MANY`].
const MAX_START_SECONDS: (f64, f64) = (0.5, 1.5);
/// Maximum MB of server memory: without entries, and in addition for [`MANY`].
const MAX_MEMORY_MB: (f64, f64) = (130.0, 120.0);
/// Below this length, a CRL is built faster than the next revocations are committed.
const LONG: u64 = 100_000;
/// Builds that the revocations of all clients may need in that case, because they arrive in several commits.
const SHORT_BUILDS: u64 = 4;

#[derive(Clone, Copy, Debug)]
struct Cost {
    p50_ms: f64,
    /// Microseconds, including PostgreSQL.
    cpu_us: f64,
}

struct Long {
    store: String,
    stock: Stock,
    start: Start,
    cost: Cost,
    builds: u64,
    missing: usize,
    resident_mb: f64,
}

struct Line {
    what: &'static str,
    measured: f64,
    max: f64,
    figures: String,
}

impl Line {
    fn new(what: &'static str, measured: f64, max: f64) -> Self {
        Self { what, measured, max, figures: String::new() }
    }

    fn holds(&self) -> bool {
        self.measured <= self.max
    }

    fn json(&self) -> Value {
        json!({ "what": self.what, "measured": self.measured, "at_most": self.max, "holds": self.holds() })
    }
}

/// Runs the scenario and prints the verdict. Fails if a limit is exceeded.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let launch = args.launch()?;
    let requests = args.requests.unwrap_or(REQUESTS);
    let revoked = if args.revoked == 0 { MANY } else { args.revoked };
    let short = short(args, &launch, requests).await?;
    let long = match long(args, &launch, revoked, requests).await {
        Err(cause) if is_interrupted() => {
            let Cost { p50_ms, cpu_us } = short;
            println!("revoke by the timer with {FEW} revoked: p50 {p50_ms:.2} ms, CPU {cpu_us:.2} µs");
            return Err(cause);
        }
        long => long?,
    };
    let lines = lines(short, &long, requests, args.clients.into());
    let missed = lines.iter().filter(|line| !line.holds()).count();
    print(&long, &lines);
    args.outputs.write_json(&json!({ "scenario": "crl", "store": long.store, "revoked_before": long.stock.revoked,
        "lines": lines.iter().map(Line::json).collect::<Vec<_>>() }))?;
    if missed == 0 { Ok(()) } else { Err(format!("{missed} of {} limits exceeded", lines.len())) }
}

/// Measures few revoked certificates, in a temporary store.
async fn short(args: &Args, launch: &Launch<'_>, requests: u64) -> Result<Cost, String> {
    let folder = args.target.data_dir.join(format!("short-{}", std::process::id()));
    let server = Started::launch(&Launch { data_dir: &folder, ..*launch }).await?;
    // One of them is the root, which is not revoked.
    let stock = Stock { certificates: FEW + requests + 1, revoked: FEW };
    preload::fill(&server.place(), stock, None, args.quiet).await?;
    server.settle()?;
    let cost = by_timer(args, &server, requests).await;
    drop(server);
    // After a failure the log is needed.
    if cost.is_ok() || is_interrupted() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    cost
}

/// Measures many revoked certificates, in the store of the data folder.
async fn long(args: &Args, launch: &Launch<'_>, revoked: u64, requests: u64) -> Result<Long, String> {
    let server = Started::launch(launch).await?;
    // An earlier run may have revoked more than requested; the two runs below need further certificates.
    let there = preload::count(&mut server.place().connect().await?, MOUNT, "certs/revoked").await?;
    let revoked = revoked.max(there);
    let certificates = args.preload.max(revoked + 2 * requests + 1);
    let stock = preload::fill(&server.place(), Stock { certificates, revoked }, None, args.quiet).await?;
    server.settle()?;
    drop(server);
    let server = Started::launch(launch).await?;
    let start = server.start().await?;
    let cost = by_timer(args, &server, requests).await?;
    let (builds, missing) = at_once(args, &server, requests).await?;
    let resident_mb = proc::resident_mib(server.pid()).ok_or("the server's memory is not known")? * 1.048_576;
    Ok(Long { store: server.store()?, stock, start, cost, builds, missing, resident_mb })
}

/// Revokes while the timer builds the CRLs.
async fn by_timer(args: &Args, server: &Started, requests: u64) -> Result<Cost, String> {
    let mut client = server.place().connect().await?;
    preload::auto_rebuild(&server.place(), true).await?;
    let bodies = preload::revocable(&mut client, MOUNT, requests).await?;
    let figures = revoke(args, server, bodies).await?;
    let class = figures.only()?;
    let cpu = figures.cpu.sum().ok_or("the server's CPU time is not known")?;
    Ok(Cost { p50_ms: class.percentile(50.0), cpu_us: cpu * 1e6 / requests as f64 })
}

/// Revokes with a CRL build before each response. Returns the number of builds, and of revoked certificates missing on
/// the CRL.
async fn at_once(args: &Args, server: &Started, requests: u64) -> Result<(u64, usize), String> {
    let mut client = server.place().connect().await?;
    preload::auto_rebuild(&server.place(), false).await?;
    let bodies = preload::revocable(&mut client, MOUNT, requests).await?;
    let before = crl::builds(&mut client).await?;
    revoke(args, server, bodies.clone()).await?;
    let builds = crl::builds(&mut client).await? - before;
    let listed = crl::serials(&crl::get(&mut client, MOUNT).await?)?;
    let on_it = |body: &&Bytes| {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        body["serial_number"].as_str().is_some_and(|serial| listed.contains(serial))
    };
    Ok((builds, bodies.len() - bodies.iter().filter(on_it).count()))
}

/// Sends each body once; all requests must succeed.
async fn revoke(args: &Args, server: &Started, bodies: Vec<Bytes>) -> Result<Figures, String> {
    let requests = bodies.len();
    let plan = Plan { requests: requests as u64, ..args.plan(bodies) };
    let figures = scenario::run(&plan, &server.place(), server.watched()).await?;
    let done: u64 = figures.classes.iter().map(Answered::count).sum();
    if done == requests as u64 {
        return Ok(figures);
    }
    if figures.interrupted {
        figures.print_classes();
        return Err(INTERRUPTED.to_owned());
    }
    let errors: Vec<_> = figures.classes.iter().flat_map(|class| &class.errors).collect();
    Err(format!("{done} of {requests} revocations succeeded within --seconds; errors: {errors:?}"))
}

fn lines(short: Cost, long: &Long, requests: u64, clients: u64) -> Vec<Line> {
    let ratio = |what, short: f64, long: f64, unit: &str| {
        let figures = format!("{long:.2} {unit}, {short:.2} with {FEW} revoked");
        Line { what, measured: long / short, max: MAX_COST_RATIO, figures }
    };
    let start = report::start_text(long.start);
    let revoked = long.stock.revoked;
    let of_size = |(none, many): (f64, f64)| none + many * revoked as f64 / MANY as f64;
    let builds = requests.div_ceil(clients) * if revoked < LONG { SHORT_BUILDS } else { 1 } + 1;
    vec![
        ratio("revoke by the timer, p50, x", short.p50_ms, long.cost.p50_ms, "ms"),
        ratio("revoke by the timer, CPU, x", short.cpu_us, long.cost.cpu_us, "µs"),
        Line::new("revoke at once, builds", long.builds as f64, builds as f64),
        Line::new("revoke at once, not on the CRL", long.missing as f64, 0.0),
        Line {
            figures: start,
            ..Line::new("first CRL after a start, s", long.start.crl.as_secs_f64(), of_size(MAX_START_SECONDS))
        },
        Line::new("server memory, MB", long.resident_mb, of_size(MAX_MEMORY_MB)),
    ]
}

fn print(long: &Long, lines: &[Line]) {
    println!("crl on {}", long.store);
    report::print_stock(long.stock);
    for Line { what, measured, max, figures } in lines {
        let holds = if measured <= max { "holds " } else { "MISSED" };
        println!("  {holds}  {what:<32} {measured:>8.2}  at most {max:>6.2}  {figures}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn holds(revoked: u64, cost: (f64, f64), builds: u64, missing: usize, resident_mb: f64, first: u64) -> Vec<bool> {
        let start = Start { listening: Duration::from_millis(90), crl: Duration::from_millis(first) };
        let of = |(p50_ms, cpu_us)| Cost { p50_ms, cpu_us };
        let stock = Stock { certificates: revoked + 1, revoked };
        let long = Long { store: String::new(), stock, start, cost: of(cost), builds, missing, resident_mb };
        lines(of((2.0, 100.0)), &long, 10_000, 64).iter().map(Line::holds).collect()
    }

    #[test]
    fn every_goal_is_checked_against_its_own_bound() {
        assert_eq!(holds(MANY, (3.0, 150.0), 158, 0, 250.0, 1900), [true; 6]);
        assert_eq!(holds(MANY, (3.1, 151.0), 159, 1, 251.0, 1900), [false, false, false, false, true, false]);
    }

    #[test]
    fn short_list_has_the_bounds_of_a_short_list() {
        assert_eq!(holds(1_000, (3.0, 150.0), 629, 0, 130.0, 500), [true; 6]);
        assert_eq!(holds(1_000, (3.0, 150.0), 630, 0, 131.0, 600), [true, true, false, true, false, false]);
    }
}
