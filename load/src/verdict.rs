//! The scenario `crl`: cost of revocations with a long CRL compared with a short one, and limits for both.
//!
//! Two servers run one after the other on the same kind of store. Both revoke while the timer builds the CRLs. Before
//! that, the server with the long CRL is restarted on its data. At the end, that server revokes with a CRL build before
//! each response: every serial number must be listed, and concurrent revocations must share builds.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::figures::Figures;
use crate::order::RunArgs;
use crate::plan::{MountContents, Plan};
use crate::report::{Report, print_interrupted};
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::server::{Launch, MOUNT, Server, StartupTimes};
use crate::{crl, preload, proc, workload};

/// Numbers of revoked certificates that are compared.
const FEW_REVOKED: u64 = 1_000;
const MANY_REVOKED: u64 = 1_000_000;
/// Default number of revocations of a run.
const DEFAULT_REVOCATIONS: u64 = 10_000;
/// Maximum cost with many revoked certificates, relative to few.
const MAX_COST_RATIO: f64 = 1.5;
/// Maximum seconds from the start to the first CRL: a base without entries, and an addition for [`MANY_REVOKED`]
/// entries.
const MAX_START_SECONDS: (f64, f64) = (0.5, 1.5);
/// Maximum MB of server memory: a base without entries, and an addition for [`MANY_REVOKED`] entries.
const MAX_MEMORY_MB: (f64, f64) = (130.0, 120.0);
/// Below this length, a CRL is built faster than the next revocations are committed.
const MIN_LONG_CRL_ENTRIES: u64 = 100_000;
/// Maximum number of CRL builds for the revocations of all clients with a CRL below that length. More than one is
/// needed, because the revocations arrive in several commits.
const SHORT_CRL_BUILDS_PER_BATCH: u64 = 4;

#[derive(Clone, Copy, Debug)]
struct RevocationCost {
    p50_ms: f64,
    /// CPU microseconds per revocation, including PostgreSQL.
    cpu_us: f64,
}

struct LongCrlFigures {
    store: String,
    stock: MountContents,
    start: StartupTimes,
    cost: RevocationCost,
    builds: u64,
    missing: usize,
    resident_mb: f64,
}

struct CrlLimit {
    what: &'static str,
    measured: f64,
    max: f64,
    /// The figures that `measured` was computed from.
    note: String,
}

impl CrlLimit {
    fn new(what: &'static str, measured: f64, max: f64) -> Self {
        Self { what, measured, max, note: String::new() }
    }

    fn holds(&self) -> bool {
        self.measured <= self.max
    }

    fn json(&self) -> Value {
        json!({ "what": self.what, "measured": self.measured, "at_most": self.max, "holds": self.holds(),
            "note": self.note })
    }
}

/// Runs the scenario and prints the verdict. Fails if a limit is exceeded.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let plan = args.plan();
    let requests = plan.requests.unwrap_or(DEFAULT_REVOCATIONS);
    let short = short(args, &plan, requests).await?;
    let long = match long(args, &plan, requests).await {
        Err(cause) if is_interrupted() => {
            let RevocationCost { p50_ms, cpu_us } = short;
            println!(
                "revoke, CRL built by the timer, {FEW_REVOKED} revoked before: p50 {p50_ms:.2} ms, CPU {cpu_us:.2} µs"
            );
            return Err(cause);
        }
        long => long?,
    };
    let limits = limits(short, &long, requests, plan.clients.into());
    let missed = limits.iter().filter(|limit| !limit.holds()).count();
    let json = json!({ "scenario": "crl", "store": long.store, "revoked_before": long.stock.revoked,
        "lines": limits.iter().map(CrlLimit::json).collect::<Vec<_>>() });
    let columns = [("", "/what"), ("measured", "/measured"), ("at most", "/at_most"), ("", "/holds"), ("", "/note")];
    let report = Report::new("crl", json).fact("store", long.store).fact("certificates", long.stock);
    report.table("limits", "/lines", &columns).publish(&args.outputs)?;
    if missed == 0 { Ok(()) } else { Err(format!("{missed} of {} limits exceeded", limits.len())) }
}

/// Measures the cost of revocations with few revoked certificates, in a temporary store.
async fn short(args: &RunArgs, plan: &Plan, requests: u64) -> Result<RevocationCost, String> {
    let folder = args.target.launch.data_dir.join(format!("short-{}", std::process::id()));
    let server = Server::launch(&Launch { data_dir: folder.clone(), ..args.target.launch.clone() }).await?;
    // One of the certificates is the root, which is not revoked.
    let stock = MountContents { certificates: FEW_REVOKED + requests + 1, revoked: FEW_REVOKED };
    preload::fill(&server.access(), stock, None, plan.quiet).await?;
    server.settle()?;
    let cost = measure_timer_builds(plan, &server, requests).await;
    drop(server);
    // The folder stays after a failure, because it contains the log.
    if cost.is_ok() || is_interrupted() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    cost
}

/// Measures the cost of revocations with many revoked certificates, in the store of the data folder.
async fn long(args: &RunArgs, plan: &Plan, requests: u64) -> Result<LongCrlFigures, String> {
    let launch = &args.target.launch;
    let server = Server::launch(launch).await?;
    // An earlier run may have revoked more certificates than requested. The two runs below need unrevoked ones in
    // addition.
    let already_revoked = preload::count(&mut server.access().connect().await?, MOUNT, "certs/revoked").await?;
    let revoked = if args.wanted.revoked == 0 { MANY_REVOKED } else { args.wanted.revoked }.max(already_revoked);
    let certificates = args.wanted.certificates.max(revoked + 2 * requests + 1);
    let stock = preload::fill(&server.access(), MountContents { certificates, revoked }, None, plan.quiet).await?;
    server.settle()?;
    drop(server);
    let server = Server::launch(launch).await?;
    let start = server.start().await?.ok_or("internal error: the server has no startup times")?;
    let cost = measure_timer_builds(plan, &server, requests).await?;
    let (builds, missing) = check_immediate_builds(plan, &server, requests).await?;
    let resident_mb =
        server.watched.server.and_then(proc::resident_mib).ok_or("the server's memory is not known")? * 1.048_576;
    let store = server.store()?.unwrap_or_default();
    Ok(LongCrlFigures { store, stock, start, cost, builds, missing, resident_mb })
}

/// Revokes while the timer builds the CRLs.
async fn measure_timer_builds(plan: &Plan, server: &Server, requests: u64) -> Result<RevocationCost, String> {
    let mut client = server.access().connect().await?;
    preload::auto_rebuild(&server.access(), true).await?;
    let bodies = preload::revocable(&mut client, MOUNT, requests).await?;
    let figures = revoke(plan, server, bodies).await?;
    let class = figures.only()?;
    let cpu = figures.cpu.sum().ok_or("the server's CPU time is not known")?;
    Ok(RevocationCost { p50_ms: class.latencies.percentile_ms(50.0), cpu_us: cpu * 1e6 / requests as f64 })
}

/// Revokes with a CRL build before each response. Returns the number of builds, and of revoked certificates missing on
/// the CRL.
async fn check_immediate_builds(plan: &Plan, server: &Server, requests: u64) -> Result<(u64, usize), String> {
    let mut client = server.access().connect().await?;
    preload::auto_rebuild(&server.access(), false).await?;
    let bodies = preload::revocable(&mut client, MOUNT, requests).await?;
    let before = crl::builds(&mut client).await?;
    revoke(plan, server, bodies.clone()).await?;
    let builds = crl::builds(&mut client).await? - before;
    let listed = crl::serials(&client.get(&server.access().path("crl")).await?)?;
    let on_it = |body: &&Bytes| {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        body["serial_number"].as_str().is_some_and(|serial| listed.contains(serial))
    };
    Ok((builds, bodies.len() - bodies.iter().filter(on_it).count()))
}

/// Sends each body once; all requests must succeed.
async fn revoke(plan: &Plan, server: &Server, bodies: Vec<Bytes>) -> Result<Figures, String> {
    let requests = bodies.len() as u64;
    let plan = Plan { requests: Some(requests), serials: bodies, ..plan.clone() };
    let figures = workload::run(&plan, &server.access(), server.watched).await?;
    let done = figures.count();
    match done == requests {
        true => Ok(figures),
        false if figures.interrupted => {
            print_interrupted(&figures);
            Err(INTERRUPTED.to_owned())
        }
        false => {
            let errors = figures.errors();
            Err(format!("{done} of {requests} revocations succeeded within --seconds; errors: {errors:?}"))
        }
    }
}

fn limits(short: RevocationCost, long: &LongCrlFigures, requests: u64, clients: u64) -> Vec<CrlLimit> {
    let ratio = |what, short: f64, long: f64, unit: &str| {
        let note = format!("{long:.2} {unit}, {short:.2} with {FEW_REVOKED} revoked");
        CrlLimit { what, measured: long / short, max: MAX_COST_RATIO, note }
    };
    let revoked = long.stock.revoked;
    let of_size = |(none, many): (f64, f64)| none + many * revoked as f64 / MANY_REVOKED as f64;
    let builds =
        requests.div_ceil(clients) * if revoked < MIN_LONG_CRL_ENTRIES { SHORT_CRL_BUILDS_PER_BATCH } else { 1 } + 1;
    vec![
        ratio("revoke, CRL built by the timer, p50 ratio", short.p50_ms, long.cost.p50_ms, "ms"),
        ratio("revoke, CRL built by the timer, CPU ratio", short.cpu_us, long.cost.cpu_us, "µs"),
        CrlLimit::new("revoke, CRL built at once, number of builds", long.builds as f64, builds as f64),
        CrlLimit::new("revoke, CRL built at once, certificates missing on it", long.missing as f64, 0.0),
        CrlLimit {
            note: long.start.to_string(),
            ..CrlLimit::new("first CRL after a start, s", long.start.crl.as_secs_f64(), of_size(MAX_START_SECONDS))
        },
        CrlLimit::new("server memory, MB", long.resident_mb, of_size(MAX_MEMORY_MB)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn holds(revoked: u64, cost: (f64, f64), builds: u64, missing: usize, resident_mb: f64, first: u64) -> Vec<bool> {
        let start = StartupTimes { listening: Duration::from_millis(90), crl: Duration::from_millis(first) };
        let of = |(p50_ms, cpu_us)| RevocationCost { p50_ms, cpu_us };
        let stock = MountContents { certificates: revoked + 1, revoked };
        let long = LongCrlFigures { store: String::new(), stock, start, cost: of(cost), builds, missing, resident_mb };
        limits(of((2.0, 100.0)), &long, 10_000, 64).iter().map(CrlLimit::holds).collect()
    }

    #[test]
    fn long_crl_has_the_limits_of_its_length() {
        assert_eq!(holds(MANY_REVOKED, (3.0, 150.0), 158, 0, 250.0, 1900), [true; 6]);
        assert_eq!(holds(MANY_REVOKED, (3.1, 151.0), 159, 1, 251.0, 1900), [false, false, false, false, true, false]);
    }

    #[test]
    fn short_crl_has_the_limits_of_its_length() {
        assert_eq!(holds(1_000, (3.0, 150.0), 629, 0, 130.0, 500), [true; 6]);
        assert_eq!(holds(1_000, (3.0, 150.0), 630, 0, 131.0, 600), [true, true, false, true, false, false]);
    }
}
