//! `--find-rate`: searches the highest request rate that meets a p99 limit.
//!
//! The first step is a closed loop: its throughput bounds the rate that the connections can carry. A bisection at fixed
//! rates (open loop) follows, limited by steps and time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::drive::{Figures, Place, drive};
use crate::format::number;
use crate::html::{Page, Run, Table};
use crate::pace::Pace;
use crate::plan::Plan;
use crate::report;
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::scenario;
use crate::{Args, Scenario};

const MAX_STEPS: usize = 12;
/// Minimum duration of a step in seconds.
const MIN_STEP_SECONDS: u64 = 1;
/// The search ends when its bounds differ by at most this fraction of the upper one.
const PRECISION: f64 = 0.05;
/// First upper bound relative to the throughput of the closed loop, which varies by a few percent.
const HEADROOM: f64 = 1.1;

/// Minimum number of requests of a step: the p99 of fewer is their maximum.
const MIN_REQUESTS: f64 = 100.0;

/// Bounds of the bisection in requests per second.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Highest rate that met the limit; 0 if none did.
    kept: f64,
    /// Lowest rate that did not.
    missed: f64,
    /// Lowest rate that a step can measure.
    lowest: f64,
}

impl Search {
    fn new(throughput: f64, lowest: f64) -> Self {
        Self { kept: 0.0, missed: throughput * HEADROOM, lowest }
    }

    /// Returns the rate of the next step; `None` once the bounds are close or too low.
    fn next(&self) -> Option<f64> {
        let rate = f64::midpoint(self.kept, self.missed);
        (self.missed - self.kept > self.missed * PRECISION && rate >= self.lowest).then_some(rate)
    }

    fn record(&mut self, rate: f64, is_kept: bool) {
        if is_kept { self.kept = rate } else { self.missed = rate }
    }

    fn found(&self) -> Option<f64> {
        Some(self.kept).filter(|rate| *rate > 0.0)
    }
}

struct Step {
    /// `None` for the closed loop.
    rate: Option<f64>,
    figures: Figures,
    is_kept: bool,
}

impl Step {
    fn p99_ms(&self) -> Option<f64> {
        self.figures.classes.first()?.known(99.0)
    }

    fn throughput(&self) -> f64 {
        self.figures.classes.first().map_or(0.0, |class| self.figures.rate(class))
    }

    fn errors(&self) -> u64 {
        self.figures.classes.iter().flat_map(|class| class.errors.values()).sum()
    }

    fn verdict(&self) -> &'static str {
        match self.rate {
            None => "closed loop",
            Some(_) if self.is_kept => "held",
            Some(_) => "missed",
        }
    }

    fn title(&self) -> String {
        self.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{} per second", number(rate)))
    }

    fn json(&self) -> Value {
        json!({
            "rate": self.rate,
            "requests_per_second": self.throughput(),
            "p50_ms": self.figures.classes.first().and_then(|class| class.known(50.0)),
            "p99_ms": self.p99_ms(),
            "due_and_not_sent": self.figures.unsent,
            "errors": self.errors(),
            "seconds": self.figures.elapsed.as_secs_f64(),
            "held": self.is_kept,
        })
    }

    fn texts(&self) -> Vec<String> {
        let p99 = self.p99_ms().map_or_else(|| "-".to_owned(), number);
        let unsent = number(self.figures.unsent as f64);
        let errors = number(self.errors() as f64);
        vec![self.title(), number(self.throughput()), p99, unsent, errors, self.verdict().to_owned()]
    }

    fn print(&self) {
        let [title, throughput, p99, unsent, errors, verdict] = &self.texts()[..] else { return };
        println!("  {title:<24} {throughput:>9} answered per second  p99 {p99:>8} ms  {verdict}");
        if self.figures.unsent > 0 || self.errors() > 0 {
            println!("    {unsent} due and not sent, {errors} errors");
        }
    }
}

/// Parses a latency of the command line: `20ms`, `1.5s`, `500us`.
pub(crate) fn latency(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds_per_unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("must end with us, ms or s".to_owned()),
    };
    let value: f64 = digits.parse().map_err(|_| "must be a number and us, ms or s".to_owned())?;
    let latency = Duration::try_from_secs_f64(value * seconds_per_unit).unwrap_or_default();
    let limits = Duration::from_micros(1)..=Duration::from_secs(60);
    if limits.contains(&latency) { Ok(latency) } else { Err("must be from 1us to 60s".to_owned()) }
}

/// `true` if the requests of the scenario can be repeated at any rate.
pub(crate) fn takes(scenario: Scenario) -> bool {
    scenario != Scenario::Revoke && crate::order::can_be_planned(scenario).is_ok()
}

/// Searches and prints the rate. Fails if no rate meets the limit.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let limit = args.p99.ok_or("--p99: must be given with --find-rate")?;
    let order = args.order()?;
    let seconds = (args.seconds / MAX_STEPS as u64).max(MIN_STEP_SECONDS);
    let plan = Plan { seconds, requests: u64::MAX, ..order.target.plan(&order.plan) };
    let (open, _, _) = crate::opened(&order.target, &plan, order.wanted).await?;
    let place = open.place();
    println!(
        "{}: highest rate with a p99 of at most {}, {} connections, {seconds} s each step",
        plan.scenario.name(),
        text(limit),
        plan.clients
    );
    let time = Duration::from_secs(args.seconds);
    let (steps, search) = steps(&plan, &place, open.watched, limit, time).await?;
    let store = open.store()?;
    let json = json!({
        "scenario": plan.scenario.name(),
        "store": store,
        "process": open.process(),
        "clients": plan.clients,
        "find_rate": {
            "p99_limit_ms": limit.as_secs_f64() * 1000.0,
            "requests_per_second": search.found(),
            "steps": steps.iter().map(Step::json).collect::<Vec<_>>(),
        },
    });
    args.outputs.write(&json, || page(&plan, limit, &steps, search))?;
    if let Some(rate) = search.found() {
        println!("  found: {} per second keep a p99 of {}", number(rate), text(limit));
    }
    match search.found() {
        _ if is_interrupted() => Err(INTERRUPTED.to_owned()),
        Some(_) => Ok(()),
        None => Err(format!("no rate kept a p99 of {}", text(limit))),
    }
}

async fn steps(
    plan: &Plan,
    admin: &Place<'_>,
    watched: crate::proc::Watched,
    limit: Duration,
    time: Duration,
) -> Result<(Vec<Step>, Search), String> {
    let (token, classes) = scenario::workload(plan, admin).await?;
    let place = Place { token: &token, ..*admin };
    let lowest = MIN_REQUESTS / plan.seconds as f64;
    let begun = Instant::now();
    let mut steps = Vec::new();
    let mut search = None;
    let mut rate = None;
    while steps.len() < MAX_STEPS && !is_interrupted() && (steps.is_empty() || begun.elapsed() < time) {
        // Connections start at the same time, because each step would also measure a ramp.
        let pace = Pace { rate, ramp: Duration::ZERO };
        let bounds = Plan { pace, ..plan.clone() }.bounds();
        let figures = drive(&place, classes.clone(), &bounds, watched).await?;
        let p99 = figures.classes.first().and_then(|class| class.known(99.0));
        let is_kept = figures.outcome().is_ok() && p99.is_some_and(|p99| p99 <= limit.as_secs_f64() * 1000.0);
        let step = Step { rate, figures, is_kept };
        step.print();
        let bounds = search.get_or_insert_with(|| Search::new(step.throughput(), lowest));
        if let Some(rate) = rate.filter(|_| !step.figures.interrupted) {
            bounds.record(rate, is_kept);
        }
        if step.throughput() <= 0.0 && step.rate.is_none() && !step.figures.interrupted {
            let errors: Vec<_> = step.figures.classes.iter().map(|class| &class.errors).collect();
            return Err(format!("no request succeeded: {errors:?}"));
        }
        rate = bounds.next();
        steps.push(step);
        if rate.is_none() {
            break;
        }
    }
    Ok((steps, search.unwrap_or(Search::new(0.0, lowest))))
}

fn text(limit: Duration) -> String {
    format!("{} ms", number(limit.as_secs_f64() * 1000.0))
}

fn page<'a>(plan: &Plan, limit: Duration, steps: &'a [Step], search: Search) -> Page<'a> {
    let head = ["rate", "answered per second", "p99 ms", "due and not sent", "errors", ""];
    let table = Table::new("Steps", &head, steps.iter().map(Step::texts).collect());
    let runs = steps.iter().map(|step| Run { title: step.title(), figures: &step.figures }).collect();
    let mut page = report::page(format!("{}: highest rate", plan.scenario.name()), plan, runs, 2);
    page.facts.push(("p99 limit".to_owned(), text(limit)));
    let found = search.found().map_or_else(|| "none".to_owned(), |rate| format!("{} per second", number(rate)));
    page.facts.push(("found rate".to_owned(), found));
    Page { tables: vec![table], ..page }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of a search and its number of steps, if all rates up to `limit` meet the p99.
    fn found(throughput: f64, limit: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(throughput, 20.0);
        let mut steps = 1;
        while let Some(rate) = search.next().filter(|_| steps < MAX_STEPS) {
            search.record(rate, rate <= limit);
            steps += 1;
        }
        (search.found(), steps)
    }

    #[test]
    fn search_finds_a_rate_just_below_the_limit() {
        for (throughput, limit) in [(20_000.0, 15_000.0), (20_000.0, 3_000.0), (50.0, 49.0), (1_000.0, 5_000.0)] {
            let (rate, steps) = found(throughput, limit);
            let rate = rate.unwrap();
            let max = limit.min(throughput * HEADROOM);
            assert!(rate <= max && rate >= max * (1.0 - PRECISION) && steps <= MAX_STEPS, "{rate} of {max}: {steps}");
        }
    }

    #[test]
    fn search_without_a_result_ends_at_lowest_rate_or_step_limit() {
        assert_eq!(found(200_000.0, 0.0), (None, MAX_STEPS));
        // Starting from 110, the halves down to 20 are tried: 55 and 27.5.
        assert_eq!(found(100.0, 0.0), (None, 3));
    }

    #[test]
    fn latencies_have_a_unit_and_limits() {
        assert_eq!(latency("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(latency("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(latency("500us"), Ok(Duration::from_micros(500)));
        for (wrong, says) in
            [("20", "us, ms or s"), ("ms", "a number"), ("0ms", "from 1us"), ("61s", "to 60s"), ("-1s", "from")]
        {
            assert!(latency(wrong).is_err_and(|cause| cause.contains(says)), "{wrong}: {:?}", latency(wrong));
        }
    }
}
