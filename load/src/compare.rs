//! Two servers in turn, in one run: the same scenario, clients and bounds, A B A B …, and the ratios of what they did,
//! round by round. What the machine does meanwhile strikes both; how far the rounds lie apart is shown.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::anchors::{self, Anchors};
use crate::drive::Figures;
use crate::environment::environment;
use crate::html::{Page, Run, Table};
use crate::order::{self, Order};
use crate::report::{self, Outputs};
use crate::scenario;
use crate::server::MOUNT;
use crate::target::Target;

/// `compare SCENARIO …`: the first server is told of as in every other run.
#[derive(clap::Args, Debug)]
#[group(id = "comparison")]
pub(crate) struct Args {
    #[command(flatten)]
    first: crate::Args,
    /// How often each server has its turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// What the other server is called in the report.
    #[arg(long, value_name = "NAME", default_value = "other")]
    other_name: String,
    /// Address of the other server.
    #[arg(long, value_name = "ADDR")]
    other_addr: String,
    /// A command line that starts it, for a shell; it ends after the run.
    #[arg(long, value_name = "COMMAND")]
    other_command: Option<String>,
    /// A token that may write policies and roles there.
    #[arg(long, value_name = "TOKEN", env = "SIGNET_OTHER_TOKEN", default_value = "", hide_env_values = true)]
    other_token: String,
    /// The header that carries it (X-Vault-Token).
    #[arg(long, value_name = "NAME")]
    other_token_header: Option<String>,
    /// The authority of its https address, PEM.
    #[arg(long, value_name = "FILE")]
    other_ca_file: Option<PathBuf>,
    /// Its process id, for its CPU time; found for one that listens on the loopback.
    #[arg(long, value_name = "PID")]
    other_pid: Option<u32>,
    /// Its mount.
    #[arg(long, value_name = "MOUNT", default_value = MOUNT)]
    other_mount: String,
    /// Its role.
    #[arg(long, value_name = "NAME")]
    other_role: Option<String>,
    /// Its mount, root and role exist, and the token may use them.
    #[arg(long, requires = "other_role")]
    other_prepared: bool,
}

impl Args {
    fn other(&self) -> Target {
        Target {
            name: self.other_name.clone(),
            data_dir: self.first.data_dir.clone(),
            command: self.other_command.clone(),
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

/// Compares as the command line says.
pub(crate) async fn command(args: &Args) -> Result<(), String> {
    order::can_be_planned(args.first.scenario())?;
    let (other, first) = (args.other(), &args.first);
    let name = first.scenario().name();
    let (plan, target, wanted) = (first.plan(Vec::new()), first.target(), first.wanted());
    let order = Order { name, plan, target, other: Some(other.clone()), rounds: args.rounds, wanted };
    run(&order, &other, &first.outputs()).await
}

/// One turn of a server.
struct Turn {
    round: u64,
    server: String,
    figures: Figures,
}

/// Runs both in turn and prints the ratios; an error when requests failed.
pub(crate) async fn run(order: &Order, other: &Target, outputs: &Outputs) -> Result<(), String> {
    if order.target.name == other.name {
        return Err(format!("name: the servers must not both be called {}", other.name));
    }
    let both = [(&order.target, order.target.open().await?), (other, other.open().await?)];
    let mut stored = Vec::new();
    for (target, open) in &both {
        stored.push(crate::filled(open, &target.plan(&order.plan), order.wanted).await?);
    }
    let anchors = anchors::measure(crate::folder(&both[0].1, &order.target), order.plan.makes_rsa())?;
    let mut turns = Vec::new();
    for round in 1..=order.rounds {
        for (target, open) in &both {
            let figures = scenario::run(&target.plan(&order.plan), &open.place(), open.watched).await;
            let figures = figures.map_err(|cause| format!("{}, round {round}: {cause}", target.name))?;
            let turn = Turn { round, server: target.name.clone(), figures };
            print_turn(&turn);
            turns.push(turn);
        }
    }
    let measures: Vec<Measures> = turns.iter().map(|turn| Measures::of(&turn.figures)).collect();
    let pairs: Vec<(Measures, Measures)> = measures.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let ratios = ratios(&pairs);
    print(order, other, &ratios);
    let json = || {
        json!({
            "compare": order.name,
            "servers": [order.target.name, other.name],
            "rounds": order.rounds,
            "certificates_before": stored.iter().map(|stock| stock.map(|stock| stock.certificates)).collect::<Vec<_>>(),
            "ratios": ratios.iter().map(Ratio::json).collect::<Vec<_>>(),
            "runs": turns.iter().map(turn_json).collect::<Vec<_>>(),
            "machine": report::machine_json(&anchors),
        })
    };
    outputs.write(&json(), || page(order, other, &ratios, &turns, &anchors))?;
    let failed: Vec<&str> =
        turns.iter().filter(|turn| turn.figures.failed()).map(|turn| turn.server.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("some requests failed: {}", failed.join(", "))) }
}

/// What is compared of a turn: the first class of its clients.
#[derive(Clone, Copy, Debug)]
struct Measures {
    rate: f64,
    /// p50, p99 and p99.9, milliseconds.
    latency: [f64; 3],
    /// CPU microseconds per request, where the process is known.
    cpu: Option<f64>,
}

impl Measures {
    fn of(figures: &Figures) -> Self {
        let first = figures.classes.first();
        Self {
            rate: first.map_or(0.0, |class| figures.rate(class)),
            latency: [50.0, 99.0, 99.9].map(|percent| first.map_or(0.0, |class| class.percentile(percent))),
            cpu: figures.per_request(figures.cpu.sum()),
        }
    }
}

/// One line of the comparison.
#[derive(Debug, PartialEq)]
struct Ratio {
    what: &'static str,
    unit: &'static str,
    /// Medians of the first server and of the other one.
    first: f64,
    other: f64,
    /// The median of the rounds' ratios, the first server's figure by the other's, and how far they spread.
    median: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    /// Nothing where a figure is not known of every round.
    fn of(what: &'static str, unit: &'static str, pairs: &[(Option<f64>, Option<f64>)]) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = pairs.iter().map(|(first, other)| first.zip(*other)).collect::<Option<_>>()?;
        let mut ratios: Vec<f64> = pairs.iter().map(|(first, other)| first / other).collect();
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (*ratios.first()?, *ratios.last()?);
        let (first, other) = pairs.into_iter().unzip();
        Some(Self { what, unit, first: median(first), other: median(other), median: median(ratios), least, most })
    }

    fn json(&self) -> Value {
        json!({ "what": self.what, "unit": self.unit, "first": self.first, "other": self.other,
            "ratio": self.median, "least": self.least, "most": self.most })
    }

    fn texts(&self) -> [String; 4] {
        [
            report::number(self.first),
            report::number(self.other),
            format!("{} ×", report::number(self.median)),
            format!("{} – {}", report::number(self.least), report::number(self.most)),
        ]
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let middle = of.len() / 2;
    match of.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => of[middle],
        _ => (of[middle - 1] + of[middle]) / 2.0,
    }
}

fn ratios(pairs: &[(Measures, Measures)]) -> Vec<Ratio> {
    let of = |what, unit, read: &dyn Fn(&Measures) -> Option<f64>| {
        let pairs: Vec<_> = pairs.iter().map(|(first, other)| (read(first), read(other))).collect();
        Ratio::of(what, unit, &pairs)
    };
    [
        of("rate", "per second", &|measures| Some(measures.rate)),
        of("p50", "ms", &|measures| Some(measures.latency[0])),
        of("p99", "ms", &|measures| Some(measures.latency[1])),
        of("p99.9", "ms", &|measures| Some(measures.latency[2])),
        of("CPU per request", "µs", &|measures| measures.cpu),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[allow(clippy::print_stdout, reason = "the table is what this program is for")]
fn print_turn(turn: &Turn) {
    let Measures { rate, latency: [p50, p99, p999], cpu } = Measures::of(&turn.figures);
    let cpu = cpu.map_or_else(String::new, |cpu| format!("  CPU {cpu:.1} µs"));
    println!(
        "  round {} {:<12} {rate:>9.0} per second  p50 {p50:.2}  p99 {p99:.2}  p99.9 {p999:.2} ms{cpu}",
        turn.round, turn.server
    );
    for (cause, count) in turn.figures.classes.iter().flat_map(|class| &class.errors) {
        println!("    errors        {count} × {cause}");
    }
}

#[allow(clippy::print_stdout, reason = "the table is what this program is for")]
fn print(order: &Order, other: &Target, ratios: &[Ratio]) {
    println!("{}: {} by {}, medians of {} rounds", order.name, order.target.name, other.name, order.rounds);
    println!("  {:<28}{:>12}{:>12}{:>12}  spread", "", order.target.name, other.name, "ratio");
    for ratio in ratios {
        let [first, other, median, spread] = ratio.texts();
        println!("  {:<28}{first:>12}{other:>12}{median:>12}  {spread}", format!("{}, {}", ratio.what, ratio.unit));
    }
}

fn turn_json(turn: &Turn) -> Value {
    json!({ "server": turn.server, "round": turn.round, "figures": turn.figures.json() })
}

fn page<'a>(order: &Order, other: &Target, ratios: &[Ratio], turns: &'a [Turn], anchors: &Anchors) -> Page<'a> {
    let row = |ratio: &Ratio| [vec![format!("{}, {}", ratio.what, ratio.unit)], ratio.texts().to_vec()].concat();
    let names = (order.target.name.clone(), other.name.clone());
    let table = Table {
        title: format!("{} by {}: medians and ratios of {} rounds", names.0, names.1, order.rounds),
        head: vec![String::new(), names.0, names.1, "ratio".to_owned(), "spread".to_owned()],
        rows: ratios.iter().map(row).collect(),
    };
    let title = |turn: &Turn| format!("{}, round {}", turn.server, turn.round);
    Page {
        title: format!("{}: {} beside {}", order.name, order.target.name, other.name),
        facts: [environment(), report::plan_facts(&order.plan), report::machine_facts(anchors)].concat(),
        tables: vec![table],
        runs: turns.iter().map(|turn| Run { title: title(turn), figures: &turn.figures }).collect(),
        columns: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures(rate: f64, latency: [f64; 3], cpu: Option<f64>) -> Measures {
        Measures { rate, latency, cpu }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_and_shows_how_far_they_lie_apart() {
        let other = measures(100.0, [10.0, 20.0, 40.0], Some(1000.0));
        let rounds: Vec<_> = [(900.0, 1.0), (1000.0, 2.0), (1300.0, 6.0)]
            .map(|(rate, p50)| (measures(rate, [p50, 4.0, 4.0], Some(50.0)), other))
            .to_vec();
        let ratios = ratios(&rounds);
        assert_eq!(
            ratios.iter().map(|r| r.what).collect::<Vec<_>>(),
            ["rate", "p50", "p99", "p99.9", "CPU per request"]
        );
        let rate = &ratios[0];
        assert_eq!((rate.first, rate.other, rate.median, rate.least, rate.most), (1000.0, 100.0, 10.0, 9.0, 13.0));
        assert_eq!((ratios[1].median, ratios[1].least, ratios[1].most), (0.2, 0.1, 0.6));
        assert_eq!((ratios[3].median, ratios[4].median), (0.1, 0.05));
    }

    #[test]
    fn what_is_not_known_of_both_is_not_compared_and_an_even_number_of_rounds_has_a_middle() {
        let known = measures(100.0, [1.0; 3], Some(10.0));
        let unknown = measures(50.0, [1.0; 3], None);
        let ratios = ratios(&[(known, unknown), (known, measures(25.0, [1.0; 3], None))]);
        assert_eq!(ratios.len(), 4);
        assert_eq!((ratios[0].median, ratios[0].other), (3.0, 37.5));
    }
}
