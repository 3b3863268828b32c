//! Comparison of two servers in one run: same scenario, clients and bounds, in the order A B A B …, with the ratios per
//! round. Alternation exposes both servers to the same disturbances, and the report shows how far the rounds differ.
//! With `--at-once` both run concurrently, so that a disturbance affects both at the same moment.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::anchors;
use crate::figures::Figures;
use crate::histogram::median;
use crate::order::{self, Order, RunArgs};
use crate::plan::MountContents;
use crate::report::{Outputs, Report};
use crate::run_context::{is_interrupted, print_progress};
use crate::server::{Launch, Server};
use crate::single_run;
use crate::table::Column;
use crate::target::Target;
use crate::workload;

/// Arguments of `compare SCENARIO …`; the first server has the options of a single run.
#[derive(clap::Args, Debug)]
#[group(id = "comparison")]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    first: RunArgs,
    /// Number of runs on each server.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Run both servers concurrently instead of alternately: disturbances of the machine affect both at the same
    /// moment, and rates and latencies are those of two servers that share the machine.
    #[arg(long)]
    at_once: bool,
    /// Name of the other server in the report.
    #[arg(long, value_name = "NAME", default_value = "other")]
    other_name: String,
    /// Address of the other server.
    #[arg(long, value_name = "ADDR")]
    other_addr: String,
    /// Shell command line that starts the other server, which is stopped after the run.
    #[arg(long, value_name = "COMMAND")]
    other_command: Option<String>,
    /// Token for the other server, which may write policies and roles.
    #[arg(long, value_name = "TOKEN", env = "SIGNET_OTHER_TOKEN", default_value = "", hide_env_values = true)]
    other_token: String,
    /// Header that carries the token of the other server (default: X-Vault-Token).
    #[arg(long, value_name = "NAME")]
    other_token_header: Option<String>,
    /// CA certificate for the https address of the other server, PEM.
    #[arg(long, value_name = "FILE")]
    other_ca_file: Option<PathBuf>,
    /// Process id of the other server, for its CPU time; detected if the server listens on the loopback.
    #[arg(long, value_name = "PID")]
    other_pid: Option<u32>,
    /// Description of the other server's store, for the report.
    #[arg(long, value_name = "TEXT")]
    other_store: Option<String>,
    /// Mount on the other server. By default the run creates and removes one.
    #[arg(long, value_name = "MOUNT")]
    other_mount: Option<String>,
    /// Role on the other server, which the run creates; by default a new name.
    #[arg(long, value_name = "NAME")]
    other_role: Option<String>,
    /// Use the existing mount, root and role of the other server as they are.
    #[arg(long)]
    other_prepared: bool,
}

impl CompareArgs {
    fn other(&self) -> Target {
        Target {
            name: self.other_name.clone(),
            launch: Launch { data_dir: self.first.target.launch.data_dir.clone(), ..Launch::default() },
            command: self.other_command.clone(),
            store: self.other_store.clone(),
            addr: self.other_addr.clone(),
            token: self.other_token.clone(),
            token_header: self.other_token_header.clone(),
            ca_file: self.other_ca_file.clone(),
            pid: self.other_pid,
            mount: self.other_mount.clone(),
            role: self.other_role.clone(),
            prepared: self.other_prepared,
            ..Target::default()
        }
    }
}

/// Runs the comparison of the command line.
pub(crate) async fn command(args: &CompareArgs) -> Result<(), String> {
    let first = &args.first;
    order::can_be_planned(first.scenario())?;
    if first.find_rate {
        return Err("--find-rate: cannot be used with compare".to_owned());
    }
    let other = args.other();
    other.check(first.scenario(), first.wanted).map_err(|cause| format!("other: {cause}"))?;
    let order = Order { other: Some(other.clone()), rounds: args.rounds, at_once: args.at_once, ..first.order()? };
    run(&order, &other, &first.outputs).await
}

struct ComparedServer<'a> {
    target: &'a Target,
    server: Server,
    stock: Option<MountContents>,
}

impl<'a> ComparedServer<'a> {
    async fn open(target: &'a Target, order: &Order) -> Result<Self, String> {
        let server = target.open(order.plan.scenario).await?;
        Ok(Self { target, server, stock: None })
    }

    async fn run(&self, order: &Order, round: u64) -> Result<ComparedRun, String> {
        let name = &self.target.name;
        let figures = workload::run(&self.target.plan(&order.plan), &self.server.access(), self.server.watched).await;
        let figures = figures.map_err(|cause| format!("{name}, round {round}: {cause}"))?;
        let turn = ComparedRun { round, server: name.clone(), figures };
        print_progress(order.plan.quiet, &turn.text());
        Ok(turn)
    }

    fn json(&self) -> Result<Value, String> {
        Ok(json!({ "name": self.target.name, "store": self.server.store()?, "process": self.server.process(),
            "certificates_before": self.stock.map(|stock| stock.certificates) }))
    }
}

/// Describes a server from its JSON, with its store: a durable store and one in memory are not comparable.
fn side_text(json: &Value) -> String {
    let store = json["store"].as_str().unwrap_or("store not specified");
    let process = json["process"].as_str().unwrap_or("process unknown");
    let stock = json["certificates_before"].as_u64();
    let stock = stock.map_or_else(String::new, |certificates| format!(", {certificates} certificates before"));
    format!("{store}, {process}{stock}")
}

struct ComparedRun {
    round: u64,
    server: String,
    figures: Figures,
}

impl ComparedRun {
    fn json(&self) -> Value {
        json!({ "server": self.server, "round": self.round, "figures": self.figures.json() })
    }

    fn title(&self) -> String {
        format!("{}, round {}", self.server, self.round)
    }

    fn text(&self) -> String {
        let [Some(rate), Some(p50), Some(p99), Some(p999), _] = measures(&self.figures) else {
            return format!("{}: no request succeeded", self.title());
        };
        format!("{}: {rate:.0} per second  p50 {p50:.2}  p99 {p99:.2}  p99.9 {p999:.2} ms", self.title())
    }
}

/// Runs both servers and prints the ratios. Fails if a run failed.
pub(crate) async fn run(order: &Order, other: &Target, outputs: &Outputs) -> Result<(), String> {
    if order.target.name == other.name {
        return Err(format!("name: the servers must not both be called {}", other.name));
    }
    let mut sides = [ComparedServer::open(&order.target, order).await?, ComparedServer::open(other, order).await?];
    for side in &mut sides {
        side.stock = single_run::fill(&side.server, &side.target.plan(&order.plan), order.wanted).await?;
    }
    let [first, second] = &sides;
    let folder = if second.server.is_launched() { second.server.folder() } else { first.server.folder() };
    let anchors = anchors::measure(folder, order.plan.makes_rsa())?;
    let mut turns = Vec::new();
    for round in 1..=order.rounds {
        if order.at_once {
            turns.extend(<[_; 2]>::from(tokio::try_join!(first.run(order, round), second.run(order, round))?));
        } else {
            turns.push(first.run(order, round).await?);
            if is_interrupted() {
                break;
            }
            turns.push(second.run(order, round).await?);
        }
        if is_interrupted() {
            break;
        }
    }
    let measures: Vec<Measures> = turns.iter().map(|turn| measures(&turn.figures)).collect();
    let pairs: Vec<(Measures, Measures)> = measures.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let sides: Vec<Value> = sides.iter().map(ComparedServer::json).collect::<Result<_, _>>()?;
    let json = json!({
        "compare": order.name,
        "servers": sides,
        "rounds": order.rounds,
        "at_once": order.at_once,
        "ratios": ratios(&pairs).iter().map(Ratio::json).collect::<Vec<_>>(),
        "runs": turns.iter().map(ComparedRun::json).collect::<Vec<_>>(),
        "machine": anchors.json(),
    });
    let how = if order.at_once { "concurrent" } else { "alternating" };
    let title = format!("{}: {} compared with {}", order.name, order.target.name, other.name);
    let mut report = Report::new(title, json).facts(order.plan.facts()).facts(anchors.facts());
    for side in &sides {
        report = report.fact(side["name"].as_str().unwrap_or_default(), side_text(side));
    }
    report = report.table(&format!("medians of {} {how} rounds", order.rounds), "/ratios", &RATIO_COLUMNS);
    report = report.table("rounds", "/runs", &TURN_COLUMNS);
    for turn in &turns {
        report = report.run(turn.title(), &turn.figures);
    }
    report.publish(outputs)?;
    let wrong = |turn: &ComparedRun| Some(format!("{}: {}", turn.title(), turn.figures.outcome().err()?));
    let wrong: Vec<String> = turns.iter().filter_map(wrong).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Medians and ratios of the rounds.
const RATIO_COLUMNS: [Column; 7] = [
    ("", "/what"),
    ("unit", "/unit"),
    ("first", "/first"),
    ("other", "/other"),
    ("ratio", "/ratio"),
    ("least", "/least"),
    ("most", "/most"),
];
/// Results of each run.
const TURN_COLUMNS: [Column; 9] = [
    ("server", "/server"),
    ("round", "/round"),
    ("answered", "/figures/classes/0/requests"),
    ("per second", "/figures/classes/0/requests_per_second"),
    ("p50 ms", "/figures/classes/0/latency_ms/p50"),
    ("p99", "/figures/classes/0/latency_ms/p99"),
    ("CPU µs", "/figures/cpu_us_per_request/sum"),
    ("NOT SENT", "/figures/due_and_not_sent"),
    ("errors", "/figures/classes/0/errors"),
];

/// Name and unit of each compared figure.
const COMPARED_FIGURES: [(&str, &str); 5] =
    [("rate", "per second"), ("p50", "ms"), ("p99", "ms"), ("p99.9", "ms"), ("CPU per request", "µs")];

/// The compared figures of the first class of a run. `None` if no request succeeded or the process is unknown.
type Measures = [Option<f64>; COMPARED_FIGURES.len()];

fn measures(figures: &Figures) -> Measures {
    let first = figures.classes.first().filter(|class| class.count() > 0);
    let rate = first.map(|class| figures.rate(class));
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| first.and_then(|class| class.percentile_ms(percent)));
    [rate, p50, p99, p999, figures.per_request(figures.cpu.sum())]
}

#[derive(Debug, PartialEq)]
struct Ratio {
    what: &'static str,
    unit: &'static str,
    /// Medians of this figure over all rounds, of the first server and of the other one.
    first: f64,
    other: f64,
    /// Median and range of the ratios of all rounds. A ratio is the figure of the first server divided by that of the
    /// other.
    median: f64,
    min: f64,
    max: f64,
}

impl Ratio {
    /// Returns `None` if the figure is missing in any round.
    fn of(what: &'static str, unit: &'static str, pairs: &[(Option<f64>, Option<f64>)]) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = pairs.iter().map(|(first, other)| first.zip(*other)).collect::<Option<_>>()?;
        let mut ratios: Vec<f64> = pairs.iter().map(|(first, other)| first / other).collect();
        ratios.sort_by(f64::total_cmp);
        let min = *ratios.first()?;
        let max = *ratios.last()?;
        let first = median(pairs.iter().map(|(first, _)| *first))?;
        let other = median(pairs.iter().map(|(_, other)| *other))?;
        Some(Self { what, unit, first, other, median: median(ratios)?, min, max })
    }

    fn json(&self) -> Value {
        json!({ "what": self.what, "unit": self.unit, "first": self.first, "other": self.other,
            "ratio": self.median, "least": self.min, "most": self.max })
    }
}

fn ratios(pairs: &[(Measures, Measures)]) -> Vec<Ratio> {
    let ratio = |(number, (what, unit)): (usize, (&'static str, &'static str))| {
        let pairs: Vec<_> = pairs.iter().map(|(first, other)| (first[number], other[number])).collect();
        Ratio::of(what, unit, &pairs)
    };
    COMPARED_FIGURES.into_iter().enumerate().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(rate: f64, [p50, p99, p999]: [f64; 3], cpu: Option<f64>) -> Measures {
        [Some(rate), Some(p50), Some(p99), Some(p999), cpu]
    }

    fn turn(server: &str, count: u64) -> ComparedRun {
        ComparedRun { round: 1, server: server.to_owned(), figures: Figures::of_counts(&[count]) }
    }

    #[test]
    fn server_without_successes_has_no_figures_or_ratios() {
        let nothing = turn("signet", 0);
        let some = turn("bao", 1000);
        assert_eq!(nothing.text(), "signet, round 1: no request succeeded");
        assert!(some.text().contains("100 per second  p50 1.00"), "{}", some.text());
        let pair = (measures(&nothing.figures), measures(&some.figures));
        assert_eq!(pair.0, [None; 5]);
        assert!(ratios(&[pair]).is_empty());
    }

    #[test]
    fn side_names_its_store_and_its_process() {
        let side = |store: Value| json!({ "store": store, "process": "bao (pid 7)", "certificates_before": null });
        assert_eq!(side_text(&side("memory".into())), "memory, bao (pid 7)");
        assert_eq!(side_text(&side(Value::Null)), "store not specified, bao (pid 7)");
    }

    #[test]
    fn ratio_is_the_median_of_the_rounds_with_their_range() {
        let other = round(100.0, [10.0, 20.0, 40.0], Some(1000.0));
        let rounds: Vec<_> = [(900.0, 1.0), (1000.0, 2.0), (1300.0, 6.0)]
            .map(|(rate, p50)| (round(rate, [p50, 4.0, 4.0], Some(50.0)), other))
            .to_vec();
        let ratios = ratios(&rounds);
        assert_eq!(
            ratios.iter().map(|r| r.what).collect::<Vec<_>>(),
            ["rate", "p50", "p99", "p99.9", "CPU per request"]
        );
        let rate = &ratios[0];
        assert_eq!((rate.first, rate.other, rate.median, rate.min, rate.max), (1000.0, 100.0, 10.0, 9.0, 13.0));
        assert_eq!((ratios[1].median, ratios[1].min, ratios[1].max), (0.2, 0.1, 0.6));
        assert_eq!((ratios[3].median, ratios[4].median), (0.1, 0.05));
    }

    #[test]
    fn ratio_needs_both_values_and_averages_an_even_median() {
        let known = round(100.0, [1.0; 3], Some(10.0));
        let unknown = round(50.0, [1.0; 3], None);
        let ratios = ratios(&[(known, unknown), (known, round(25.0, [1.0; 3], None))]);
        assert_eq!(ratios.len(), 4);
        assert_eq!((ratios[0].median, ratios[0].other), (3.0, 37.5));
    }
}
