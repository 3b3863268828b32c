//! The scenario `nodes`: cost of a second node on the same PostgreSQL.
//!
//! Alternates between one node, two nodes with as many clients each, and two nodes with half of them each. CPU time
//! includes the database, and therefore the work that nodes cause for each other. The limit applies to two nodes with
//! all clients. Two nodes that share the clients are only reported: their commits are smaller, so each certificate
//! costs more.

use serde_json::{Value, json};

use crate::drive::{Figures, Place};
use crate::html::Run;
use crate::plan::Plan;
use crate::proc::Watched;
use crate::report::median;
use crate::run_context::is_interrupted;
use crate::scenario;
use crate::server::Started;
use crate::{Args, Scenario, report};

/// Runs of each kind, and the minimum duration of a run in seconds.
const RUNS_PER_KIND: u64 = 3;
const MIN_RUN_SECONDS: u64 = 3;
/// Maximum cost of a certificate on two nodes, relative to one node.
const MAX_COST_RATIO: f64 = 1.1;

struct Node {
    started: Started,
    token: String,
}

struct Turn {
    figures: Vec<Figures>,
    cost_us: f64,
}

/// Runs the scenario and prints the verdict. Fails if two nodes exceed the limit.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let launch = args.launch()?;
    launch.postgres.ok_or("nodes: --postgres must name PostgreSQL's programs, or auto")?;
    let seconds = (args.seconds / (3 * RUNS_PER_KIND)).max(MIN_RUN_SECONDS);
    let plan = Plan { scenario: Scenario::Issue, seconds, requests: u64::MAX, ..args.plan(Vec::new()) };
    // Dropped in reverse order: the first node owns the database and must be dropped last.
    let first = node(Started::launch(&launch).await?, &plan).await?;
    let second = node(first.started.another(&launch).await?, &plan).await?;
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
    println!("issue on {}, {RUNS_PER_KIND} turns of {seconds} s each, medians", first.started.store()?);
    let kinds = [
        ("one node", &one, plan.clients),
        ("two nodes, as many clients at each", &two, 2 * plan.clients),
        ("two nodes, half of them at each", &shared, 2 * halves.clients),
    ];
    for (name, turns, clients) in kinds {
        let rate = median(turns.iter().map(Turn::rate).collect()).unwrap_or(f64::NAN);
        let cost = cost(turns);
        println!("  {name:<35} {clients:4} clients, {rate:7.0} per second, {cost:6.1} µs of CPU with the database's");
    }
    let verdict = if holds { "held" } else { "missed" };
    println!("  two nodes at full load, relative to one: {by_one:.3} (limit {MAX_COST_RATIO}): {verdict}");
    let json = json!({
        "at_most": MAX_COST_RATIO, "by_one": by_one, "held": holds, "one_node": told(&one), "two_nodes": told(&two),
        "two_nodes_sharing": told(&shared),
    });
    let figures = two.iter().flat_map(|turn| &turn.figures);
    let runs = figures.map(|figures| Run { title: "one of two nodes".to_owned(), figures }).collect();
    args.outputs.write(&json, || report::page("nodes", &plan, runs, 2))?;
    if holds { Ok(()) } else { Err("the CPU time of a certificate on two nodes exceeds the limit".to_owned()) }
}

async fn node(started: Started, plan: &Plan) -> Result<Node, String> {
    scenario::ensure_root(&started.place()).await?;
    let token = scenario::prepare(plan, &started.place()).await?;
    Ok(Node { started, token })
}

/// Runs the plan on the first node, which owns the database, and concurrently on the second.
async fn turn(plan: &Plan, first: &Node, second: Option<&Node>) -> Result<Turn, String> {
    first.started.settle()?;
    let postgres = Watched { server: None, ..first.started.watched() };
    let before = postgres.read();
    let run = async |node: &Node| {
        let place = Place { token: &node.token, ..node.started.place() };
        let role = Some(plan.role(&place).to_owned());
        let plan = Plan { role, prepared: true, quiet: true, ..plan.clone() };
        let watched = Watched { server: Some(node.started.pid()), postgres: None };
        let figures = scenario::run(&plan, &place, watched).await?;
        if figures.interrupted { Ok(figures) } else { figures.outcome().map(|()| figures) }
    };
    let figures = match second {
        None => vec![run(first).await?],
        Some(second) => <[Figures; 2]>::from(tokio::try_join!(run(first), run(second))?).into(),
    };
    let of_database = postgres.read().since(before).postgres.ok_or("the database's CPU time is not known")?;
    let cpu: Option<f64> = figures.iter().map(|figures| figures.cpu.server).sum();
    let cpu = cpu.ok_or("the CPU time of a node is not known")? + of_database;
    let answered: u64 = figures.iter().flat_map(|figures| &figures.classes).map(|class| class.count()).sum();
    Ok(Turn { figures, cost_us: cpu * 1e6 / answered as f64 })
}

/// Returns the median CPU microseconds per certificate.
fn cost(turns: &[Turn]) -> f64 {
    median(turns.iter().map(|turn| turn.cost_us).collect()).unwrap_or(f64::NAN)
}

fn told(turns: &[Turn]) -> Vec<Value> {
    turns.iter().map(Turn::json).collect()
}

impl Turn {
    /// Returns the certificates per second.
    fn rate(&self) -> f64 {
        let rate = |figures: &Figures| {
            figures.classes.iter().map(|class| class.count()).sum::<u64>() as f64 / figures.elapsed.as_secs_f64()
        };
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
