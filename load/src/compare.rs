//! Comparison of two servers in one run: same scenario, clients and bounds, in the order A B A B …, with the ratios per
//! round. Alternation exposes both servers to the same disturbances, and the report shows how far the rounds differ.
//! With `--at-once` both run concurrently, so that a disturbance affects both at the same moment.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::anchors::{self, Anchors};
use crate::drive::Figures;
use crate::format::number;
use crate::html::{Page, Run, Table};
use crate::order::{self, Order};
use crate::plan::Stock;
use crate::report::{self, Outputs};
use crate::run_context::is_interrupted;
use crate::scenario;
use crate::target::{Open, Target};

/// Arguments of `compare SCENARIO …`; the first server has the options of a single run.
#[derive(clap::Args, Debug)]
#[group(id = "comparison")]
pub(crate) struct Args {
    #[command(flatten)]
    first: crate::Args,
    /// Number of runs on each server.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Run both concurrently instead of alternately: disturbances of the machine affect both at the same moment, and
    /// rates and latencies are those of two servers that share the machine.
    #[arg(long)]
    at_once: bool,
    /// Name of the other server in the report.
    #[arg(long, value_name = "NAME", default_value = "other")]
    other_name: String,
    /// Address of the other server.
    #[arg(long, value_name = "ADDR")]
    other_addr: String,
    /// Shell command line that starts it; it is stopped after the run.
    #[arg(long, value_name = "COMMAND")]
    other_command: Option<String>,
    /// Token that may write policies and roles there.
    #[arg(long, value_name = "TOKEN", env = "SIGNET_OTHER_TOKEN", default_value = "", hide_env_values = true)]
    other_token: String,
    /// Header that carries the token (X-Vault-Token).
    #[arg(long, value_name = "NAME")]
    other_token_header: Option<String>,
    /// CA certificate for its https address, PEM.
    #[arg(long, value_name = "FILE")]
    other_ca_file: Option<PathBuf>,
    /// Its process id, for its CPU time; detected if it listens on the loopback.
    #[arg(long, value_name = "PID")]
    other_pid: Option<u32>,
    /// Description of its store, for the report.
    #[arg(long, value_name = "TEXT")]
    other_store: Option<String>,
    /// Its mount. By default the run creates and removes its own.
    #[arg(long, value_name = "MOUNT")]
    other_mount: Option<String>,
    /// Its role, which the run creates; by default a new name.
    #[arg(long, value_name = "NAME")]
    other_role: Option<String>,
    /// Use its existing mount, root and role as they are.
    #[arg(long)]
    other_prepared: bool,
}

impl Args {
    fn other(&self) -> Target {
        Target {
            name: self.other_name.clone(),
            data_dir: self.first.target.data_dir.clone(),
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
pub(crate) async fn command(args: &Args) -> Result<(), String> {
    order::can_be_planned(args.first.scenario())?;
    if args.first.find_rate {
        return Err("--find-rate: cannot be used with compare".to_owned());
    }
    args.other().check(args.first.scenario(), args.first.wanted(), "--other-")?;
    let other = args.other();
    let first = &args.first;
    let order = Order { other: Some(other.clone()), rounds: args.rounds, at_once: args.at_once, ..first.order()? };
    run(&order, &other, &first.outputs).await
}

struct Side {
    name: String,
    /// Its store, if known: a durable store and one in memory are not comparable.
    store: Option<String>,
    process: Option<String>,
    stock: Option<Stock>,
}

impl Side {
    fn json(&self) -> Value {
        json!({ "name": self.name, "store": self.store, "process": self.process,
            "certificates_before": self.stock.map(|stock| stock.certificates) })
    }

    fn text(&self) -> String {
        let store = self.store.as_deref().unwrap_or("store not specified");
        let process = self.process.as_deref().unwrap_or("process unknown");
        let stock =
            self.stock.map_or_else(String::new, |stock| format!(", {} certificates before", stock.certificates));
        format!("{store}, {process}{stock}")
    }
}

struct Turn {
    round: u64,
    server: String,
    figures: Figures,
}

impl Turn {
    fn json(&self) -> Value {
        json!({ "server": self.server, "round": self.round, "figures": self.figures.json() })
    }

    fn title(&self) -> String {
        format!("{}, round {}", self.server, self.round)
    }
}

/// Runs both servers and prints the ratios. Fails if a run failed.
pub(crate) async fn run(order: &Order, other: &Target, outputs: &Outputs) -> Result<(), String> {
    if order.target.name == other.name {
        return Err(format!("name: the servers must not both be called {}", other.name));
    }
    let scenario = order.plan.scenario;
    let both = [(&order.target, order.target.open(scenario).await?), (other, other.open(scenario).await?)];
    let mut sides = Vec::new();
    for (target, open) in &both {
        let stock = crate::filled(open, &target.plan(&order.plan), order.wanted).await?;
        sides.push(Side { name: target.name.clone(), store: open.store()?, process: open.process(), stock });
    }
    for side in &sides {
        println!("  {:<12} {}", side.name, side.text());
    }
    let anchors = anchors::measure(crate::folder(&both[0].1, &order.target), order.plan.makes_rsa())?;
    let mut turns = Vec::new();
    for round in 1..=order.rounds {
        let run = async |(target, open): &(&Target, Open)| {
            let figures = scenario::run(&target.plan(&order.plan), &open.place(), open.watched).await;
            let figures = figures.map_err(|cause| format!("{}, round {round}: {cause}", target.name))?;
            let turn = Turn { round, server: target.name.clone(), figures };
            print_turn(&turn);
            Ok::<_, String>(turn)
        };
        let [first, second] = &both;
        if order.at_once {
            turns.extend(<[_; 2]>::from(tokio::try_join!(run(first), run(second))?));
        } else {
            turns.push(run(first).await?);
            if is_interrupted() {
                break;
            }
            turns.push(run(second).await?);
        }
        if is_interrupted() {
            break;
        }
    }
    let measures: Vec<Measures> = turns.iter().map(|turn| measures(&turn.figures)).collect();
    let pairs: Vec<(Measures, Measures)> = measures.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let ratios = ratios(&pairs);
    print(order, other, &ratios, &turns);
    let json = json!({
        "compare": order.name,
        "servers": sides.iter().map(Side::json).collect::<Vec<_>>(),
        "rounds": order.rounds,
        "at_once": order.at_once,
        "ratios": ratios.iter().map(Ratio::json).collect::<Vec<_>>(),
        "runs": turns.iter().map(Turn::json).collect::<Vec<_>>(),
        "machine": report::machine_json(&anchors),
    });
    outputs.write(&json, || page(order, &sides, &ratios, &turns, &anchors))?;
    let wrong = |turn: &Turn| Some(format!("{}: {}", turn.title(), turn.figures.outcome().err()?));
    let wrong: Vec<String> = turns.iter().filter_map(wrong).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Name and unit of each compared figure.
const FIGURES: [(&str, &str); 5] =
    [("rate", "per second"), ("p50", "ms"), ("p99", "ms"), ("p99.9", "ms"), ("CPU per request", "µs")];

/// The compared figures of the first class of a run. `None` if no request succeeded or the process is unknown.
type Measures = [Option<f64>; FIGURES.len()];

fn measures(figures: &Figures) -> Measures {
    let first = figures.classes.first().filter(|class| class.count() > 0);
    let rate = first.map(|class| figures.rate(class));
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| first.map(|class| class.percentile(percent)));
    [rate, p50, p99, p999, figures.per_request(figures.cpu.sum())]
}

#[derive(Debug, PartialEq)]
struct Ratio {
    what: &'static str,
    unit: &'static str,
    /// Medians of the first server and of the other one.
    first: f64,
    other: f64,
    /// Median and range of the ratios of all rounds: figure of the first server divided by that of the other.
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
        let (first, other) = pairs.into_iter().unzip();
        let first = report::median(first)?;
        let other = report::median(other)?;
        Some(Self { what, unit, first, other, median: report::median(ratios)?, min, max })
    }

    fn json(&self) -> Value {
        json!({ "what": self.what, "unit": self.unit, "first": self.first, "other": self.other,
            "ratio": self.median, "least": self.min, "most": self.max })
    }

    fn texts(&self) -> [String; 4] {
        [
            number(self.first),
            number(self.other),
            format!("{} ×", number(self.median)),
            format!("{} – {}", number(self.min), number(self.max)),
        ]
    }
}

fn ratios(pairs: &[(Measures, Measures)]) -> Vec<Ratio> {
    let ratio = |(number, (what, unit)): (usize, (&'static str, &'static str))| {
        let pairs: Vec<_> = pairs.iter().map(|(first, other)| (first[number], other[number])).collect();
        Ratio::of(what, unit, &pairs)
    };
    FIGURES.into_iter().enumerate().filter_map(ratio).collect()
}

fn turn_text(turn: &Turn) -> String {
    let [Some(rate), Some(p50), Some(p99), Some(p999), cpu] = measures(&turn.figures) else {
        return "no request succeeded".to_owned();
    };
    let cpu = cpu.map_or_else(String::new, |cpu| format!("  CPU {cpu:.1} µs"));
    format!("{rate:>9.0} per second  p50 {p50:.2}  p99 {p99:.2}  p99.9 {p999:.2} ms{cpu}")
}

fn print_turn(turn: &Turn) {
    println!("  round {} {:<12} {}", turn.round, turn.server, turn_text(turn));
    if turn.figures.unsent > 0 {
        println!("    NOT SENT      {} due requests: all connections were busy", turn.figures.unsent);
    }
    for (cause, count) in turn.figures.classes.iter().flat_map(|class| &class.errors) {
        println!("    errors        {count} × {cause}");
    }
}

fn print(order: &Order, other: &Target, ratios: &[Ratio], turns: &[Turn]) {
    let how = if order.at_once { "at once" } else { "in turn" };
    println!("{}: {} by {}, medians of {} rounds {how}", order.name, order.target.name, other.name, order.rounds);
    println!("  {:<28}{:>12}{:>12}{:>12}  spread", "", order.target.name, other.name, "ratio");
    for ratio in ratios {
        let [first, other, median, spread] = ratio.texts();
        println!("  {:<28}{first:>12}{other:>12}{median:>12}  {spread}", format!("{}, {}", ratio.what, ratio.unit));
    }
    if let Some([first, other]) = unsent(&order.target.name, turns) {
        println!("  {NOT_SENT:<28}{first:>12}{other:>12}");
    }
}

const NOT_SENT: &str = "NOT SENT, all rounds";

/// Returns the number of unsent requests of each server; `None` if all were sent.
fn unsent(first: &str, turns: &[Turn]) -> Option<[String; 2]> {
    let of = |is_first: bool| -> u64 {
        turns.iter().filter(|turn| (turn.server == first) == is_first).map(|turn| turn.figures.unsent).sum()
    };
    let both = [of(true), of(false)];
    (both != [0, 0]).then(|| both.map(|count| number(count as f64)))
}

fn page<'a>(order: &Order, sides: &[Side], ratios: &[Ratio], turns: &'a [Turn], anchors: &Anchors) -> Page<'a> {
    let row = |ratio: &Ratio| [vec![format!("{}, {}", ratio.what, ratio.unit)], ratio.texts().to_vec()].concat();
    let names: Vec<&str> = sides.iter().map(|side| side.name.as_str()).collect();
    let mut rows: Vec<Vec<String>> = ratios.iter().map(row).collect();
    rows.extend(unsent(&order.target.name, turns).map(|both| [vec![NOT_SENT.to_owned()], both.to_vec()].concat()));
    let head = [&[""][..], &names[..], &["ratio", "spread"][..]].concat();
    let table =
        Table::new(format!("{}: medians and ratios of {} rounds", names.join(" by "), order.rounds), &head, rows);
    let runs = turns.iter().map(|turn| Run { title: turn.title(), figures: &turn.figures }).collect();
    let mut page = report::page(format!("{}: {}", order.name, names.join(" beside ")), &order.plan, runs, 2);
    page.facts.extend(report::machine_facts(anchors));
    page.facts.extend(sides.iter().map(|side| (side.name.clone(), side.text())));
    Page { tables: vec![table], ..page }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::Answered;
    use crate::histogram::Histogram;
    use crate::proc::Cpu;

    fn round(rate: f64, [p50, p99, p999]: [f64; 3], cpu: Option<f64>) -> Measures {
        [Some(rate), Some(p50), Some(p99), Some(p999), cpu]
    }

    fn turn(server: &str, answered: u64, unsent: u64) -> Turn {
        let mut latencies = Histogram::default();
        (0..answered).for_each(|_| latencies.record(2000));
        let class = Answered { latencies, ..Answered::default() };
        let elapsed = Duration::from_secs(10);
        let cpu = Cpu { server: Some(0.5), postgres: None };
        let figures = Figures { elapsed, classes: vec![class], cpu, unsent, ..Figures::default() };
        Turn { round: 1, server: server.to_owned(), figures }
    }

    #[test]
    fn server_without_successes_has_no_figures_or_ratios() {
        let nothing = turn("signet", 0, 0);
        let some = turn("bao", 1000, 0);
        assert_eq!(turn_text(&nothing), "no request succeeded");
        assert!(turn_text(&some).contains("100 per second  p50 2.00"), "{}", turn_text(&some));
        let pair = (measures(&nothing.figures), measures(&some.figures));
        assert_eq!(pair.0, [None; 5]);
        assert!(ratios(&[pair]).is_empty());
    }

    #[test]
    fn unsent_requests_are_reported_for_both_servers() {
        assert_eq!(unsent("signet", &[turn("signet", 5, 0), turn("bao", 5, 0)]), None);
        let turns = [turn("signet", 5, 0), turn("bao", 5, 1500), turn("signet", 5, 2), turn("bao", 5, 7)];
        assert_eq!(unsent("signet", &turns), Some(["2".to_owned(), "1,507".to_owned()]));
    }

    #[test]
    fn a_side_says_what_it_stores_in() {
        let name = "bao".to_owned();
        let process = Some("bao (pid 7)".to_owned());
        let mut side = Side { name, store: Some("memory".to_owned()), process, stock: None };
        assert_eq!((side.text().as_str(), &side.json()["store"]), ("memory, bao (pid 7)", &json!("memory")));
        side.store = None;
        assert_eq!((side.text().as_str(), &side.json()["store"]), ("store not specified, bao (pid 7)", &Value::Null));
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
