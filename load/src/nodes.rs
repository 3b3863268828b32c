//! The scenario `nodes`: cost of a second node on the same PostgreSQL.
//!
//! Alternates between three kinds of run: one node with all clients, two nodes with as many clients each, and two nodes
//! with half of the clients each. CPU time includes the database, and therefore the work that nodes cause for each
//! other. The limit applies to the second kind. The third kind is only reported: its commits are smaller, so each
//! certificate costs more.

use serde_json::{Value, json};

use crate::drive::ServerAccess;
use crate::figures::Figures;
use crate::histogram::median;
use crate::order::RunArgs;
use crate::plan::Plan;
use crate::proc::WatchedProcesses;
use crate::report::Report;
use crate::run_context::is_interrupted;
use crate::scenario::Scenario;
use crate::server::Server;
use crate::table::Table;
use crate::{mount, workload};

/// Number of runs of each of the three kinds, and the minimum duration of a run in seconds.
const RUNS_PER_KIND: u64 = 3;
const MIN_RUN_SECONDS: u64 = 3;
/// Maximum cost of a certificate on two nodes, relative to one node.
const MAX_COST_RATIO: f64 = 1.1;

struct PreparedNode {
    server: Server,
    token: String,
}

struct NodesRun {
    figures: Vec<Figures>,
    cost_us: f64,
}

/// Runs the scenario and prints the verdict. Fails if two nodes exceed the limit.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let launch = &args.target.launch;
    launch.postgres.as_ref().ok_or("nodes: --postgres must name PostgreSQL's programs, or auto")?;
    let plan = args.plan();
    let seconds = (plan.seconds / (3 * RUNS_PER_KIND)).max(MIN_RUN_SECONDS);
    let plan = Plan { scenario: Scenario::Issue, seconds, requests: Some(u64::MAX), ..plan };
    // Dropped in reverse order: the first node owns the database and must be dropped last.
    let first = node(Server::launch(launch).await?, &plan).await?;
    let second = node(first.server.launch_second_node(launch).await?, &plan).await?;
    let halves = Plan { clients: plan.clients.div_ceil(2), ..plan.clone() };
    let mut one = Vec::new();
    let mut two = Vec::new();
    let mut shared = Vec::new();
    for _ in 0..RUNS_PER_KIND {
        for (turns, plan, second) in
            [(&mut one, &plan, None), (&mut two, &plan, Some(&second)), (&mut shared, &halves, Some(&second))]
        {
            if !is_interrupted() {
                turns.push(turn(plan, &first, second).await?);
            }
        }
    }
    let by_one = cost(&two) / cost(&one);
    let holds = by_one <= MAX_COST_RATIO;
    let json = json!({
        "at_most": MAX_COST_RATIO, "by_one": by_one, "held": holds, "one_node": turns_json(&one),
        "two_nodes": turns_json(&two), "two_nodes_sharing": turns_json(&shared),
    });
    let title = first.server.title("issue")?;
    let verdict = if holds { "held" } else { "missed" };
    let ratio = format!("{by_one:.3} (limit {MAX_COST_RATIO}): {verdict}");
    let kinds = [
        ("one node", &one, u32::from(plan.clients)),
        ("two nodes, as many clients at each", &two, 2 * u32::from(plan.clients)),
        ("two nodes, half of them at each", &shared, 2 * u32::from(halves.clients)),
    ];
    let row = |(name, turns, clients): (&str, &Vec<NodesRun>, u32)| {
        json!([name, clients, median(turns.iter().map(NodesRun::rate)), cost(turns)])
    };
    let columns = [("medians", "/0"), ("clients", "/1"), ("per second", "/2"), ("CPU µs with the database's", "/3")];
    let mut report = Report::new(title, json)
        .fact("turns", format!("{RUNS_PER_KIND} of {seconds} s for each kind"))
        .fact("two nodes relative to one", ratio)
        .facts(plan.facts());
    report.tables.push(Table::new("", &columns, &kinds.map(row)));
    for figures in two.iter().flat_map(|turn| &turn.figures) {
        report = report.run("one of two nodes", figures);
    }
    report.publish(&args.outputs)?;
    if holds { Ok(()) } else { Err("the CPU time of a certificate on two nodes exceeds the limit".to_owned()) }
}

async fn node(server: Server, plan: &Plan) -> Result<PreparedNode, String> {
    mount::ensure_root(&server.access()).await?;
    let token = workload::prepare(plan, &server.access()).await?;
    Ok(PreparedNode { server, token })
}

/// Runs the plan on the first node, which owns the database, and concurrently on the second.
async fn turn(plan: &Plan, first: &PreparedNode, second: Option<&PreparedNode>) -> Result<NodesRun, String> {
    first.server.settle()?;
    let postgres = WatchedProcesses { server: None, ..first.server.watched };
    let before = postgres.read();
    let run = async |node: &PreparedNode| {
        let access = ServerAccess { token: &node.token, ..node.server.access() };
        let role = Some(plan.role(&access).to_owned());
        let plan = Plan { role, prepared: true, quiet: true, ..plan.clone() };
        let watched = WatchedProcesses { postgres: None, ..node.server.watched };
        let figures = workload::run(&plan, &access, watched).await?;
        if figures.interrupted { Ok(figures) } else { figures.outcome().map(|()| figures) }
    };
    let figures = match second {
        None => vec![run(first).await?],
        Some(second) => <[Figures; 2]>::from(tokio::try_join!(run(first), run(second))?).into(),
    };
    let of_database = postgres.read().since(before).postgres.ok_or("the database's CPU time is not known")?;
    let cpu: Option<f64> = figures.iter().map(|figures| figures.cpu.server).sum();
    let cpu = cpu.ok_or("the CPU time of a node is not known")? + of_database;
    let answered: u64 = figures.iter().map(Figures::count).sum();
    Ok(NodesRun { figures, cost_us: cpu * 1e6 / answered as f64 })
}

/// Returns the median CPU microseconds per certificate.
fn cost(turns: &[NodesRun]) -> f64 {
    median(turns.iter().map(|turn| turn.cost_us)).unwrap_or(f64::NAN)
}

fn turns_json(turns: &[NodesRun]) -> Vec<Value> {
    turns.iter().map(NodesRun::json).collect()
}

impl NodesRun {
    /// Returns the certificates per second.
    fn rate(&self) -> f64 {
        let rate = |figures: &Figures| figures.count() as f64 / figures.elapsed.as_secs_f64();
        self.figures.iter().map(rate).sum()
    }

    fn json(&self) -> Value {
        json!({
            "cpu_us_per_certificate": self.cost_us,
            "per_second": self.rate(),
            "nodes": self.figures.iter().map(Figures::json).collect::<Vec<_>>(),
        })
    }
}
