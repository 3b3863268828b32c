//! `--find-rate`: searches the highest request rate that meets a p99 limit.
//!
//! The first step is a closed loop: its throughput bounds the rate that the connections can carry. A bisection at fixed
//! rates (open loop) follows, limited by steps and time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::drive::{ServerAccess, drive};
use crate::figures::Figures;
use crate::format::number;
use crate::order::RunArgs;
use crate::pace::Pace;
use crate::plan::Plan;
use crate::proc::WatchedProcesses;
use crate::report::Report;
use crate::run_context::{INTERRUPTED, is_interrupted, print_progress};
use crate::single_run;
use crate::table::Column;
use crate::workload;

/// Maximum number of steps, with the closed loop.
const MAX_STEPS: usize = 12;
/// Minimum duration of a step in seconds.
const MIN_STEP_SECONDS: u64 = 1;
/// The search ends when its bounds differ by at most this fraction of the upper one.
const RATE_PRECISION: f64 = 0.05;
/// The first upper bound of the search, relative to the throughput of the closed loop: that varies by a few percent.
const THROUGHPUT_HEADROOM: f64 = 1.1;

/// Minimum number of requests of a step: with fewer, the p99 would be the maximum.
const MIN_REQUESTS_PER_STEP: f64 = 100.0;

/// Bounds of the bisection in requests per second.
#[derive(Clone, Copy, Debug)]
struct RateSearch {
    /// Highest rate that met the limit; 0 if none did.
    kept: f64,
    /// Lowest rate that did not meet the limit.
    missed: f64,
    /// Lowest rate that a step can measure.
    lowest: f64,
}

impl RateSearch {
    fn new(throughput: f64, lowest: f64) -> Self {
        Self { kept: 0.0, missed: throughput * THROUGHPUT_HEADROOM, lowest }
    }

    /// Returns the rate of the next step; `None` once the bounds are close or too low.
    fn next(&self) -> Option<f64> {
        let rate = f64::midpoint(self.kept, self.missed);
        (self.missed - self.kept > self.missed * RATE_PRECISION && rate >= self.lowest).then_some(rate)
    }

    fn record(&mut self, rate: f64, is_kept: bool) {
        if is_kept { self.kept = rate } else { self.missed = rate }
    }

    fn found(&self) -> Option<f64> {
        Some(self.kept).filter(|rate| *rate > 0.0)
    }
}

struct RateStep {
    /// Requests per second; `None` for the closed loop.
    rate: Option<f64>,
    figures: Figures,
    is_kept: bool,
}

impl RateStep {
    fn p99_ms(&self) -> Option<f64> {
        self.figures.classes.first()?.percentile_ms(99.0)
    }

    fn throughput(&self) -> f64 {
        self.figures.classes.first().map_or(0.0, |class| self.figures.rate(class))
    }

    fn title(&self) -> String {
        self.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{} per second", number(rate)))
    }

    fn json(&self) -> Value {
        json!({
            "rate": self.rate,
            "requests_per_second": self.throughput(),
            "p50_ms": self.figures.classes.first().and_then(|class| class.percentile_ms(50.0)),
            "p99_ms": self.p99_ms(),
            "due_and_not_sent": self.figures.unsent,
            "errors": self.figures.errors().into_iter().map(|(_, count)| count).sum::<u64>(),
            "seconds": self.figures.elapsed.as_secs_f64(),
            "held": self.is_kept,
        })
    }
}

/// Members of a step that the report shows.
const STEP_COLUMNS: [Column; 6] = [
    ("rate", "/rate"),
    ("answered per second", "/requests_per_second"),
    ("p99 ms", "/p99_ms"),
    ("due and not sent", "/due_and_not_sent"),
    ("errors", "/errors"),
    ("", "/held"),
];

/// Searches and prints the rate. Fails if no rate meets the limit.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let limit = args.p99.ok_or("--p99: must be given with --find-rate")?;
    let order = args.order()?;
    let time = Duration::from_secs(order.plan.seconds);
    let seconds = (order.plan.seconds / MAX_STEPS as u64).max(MIN_STEP_SECONDS);
    let plan = Plan { seconds, requests: Some(u64::MAX), ..order.plan };
    let server = order.target.open(plan.scenario).await?;
    single_run::fill(&server, &plan, order.wanted).await?;
    let (steps, search) = steps(&plan, &server.access(), server.watched, limit, time).await?;
    let limit_text = format!("{} ms", number(limit.as_secs_f64() * 1000.0));
    let json = json!({
        "scenario": plan.scenario.name(),
        "store": server.store()?,
        "process": server.process(),
        "clients": plan.clients,
        "find_rate": {
            "p99_limit_ms": limit.as_secs_f64() * 1000.0,
            "requests_per_second": search.found(),
            "steps": steps.iter().map(RateStep::json).collect::<Vec<_>>(),
        },
    });
    let found = search.found().map_or_else(|| "none".to_owned(), |rate| format!("{} per second", number(rate)));
    let mut report = Report::new(format!("{}: highest rate", plan.scenario.name()), json)
        .facts(plan.facts())
        .fact("p99 limit", &limit_text)
        .fact("found rate", found)
        .table("steps, the first one in a closed loop", "/find_rate/steps", &STEP_COLUMNS);
    for step in &steps {
        report = report.run(step.title(), &step.figures);
    }
    report.publish(&args.outputs)?;
    match search.found() {
        _ if is_interrupted() => Err(INTERRUPTED.to_owned()),
        Some(_) => Ok(()),
        None => Err(format!("no tested rate met the p99 limit of {limit_text}")),
    }
}

async fn steps(
    plan: &Plan,
    admin: &ServerAccess<'_>,
    watched: WatchedProcesses,
    limit: Duration,
    time: Duration,
) -> Result<(Vec<RateStep>, RateSearch), String> {
    let (token, classes) = workload::workload(plan, admin).await?;
    let access = ServerAccess { token: &token, ..*admin };
    let lowest = MIN_REQUESTS_PER_STEP / plan.seconds as f64;
    let started = Instant::now();
    let mut steps = Vec::new();
    let mut search = None;
    let mut rate = None;
    while steps.len() < MAX_STEPS && !is_interrupted() && (steps.is_empty() || started.elapsed() < time) {
        // Connections start at the same time: a ramp would be part of what each step measures.
        let pace = Pace { rate, ramp: Duration::ZERO };
        let bounds = Plan { pace, ..plan.clone() }.bounds();
        let figures = drive(&access, classes.clone(), &bounds, watched).await?;
        let p99 = figures.classes.first().and_then(|class| class.percentile_ms(99.0));
        let is_kept = figures.outcome().is_ok() && p99.is_some_and(|p99| p99 <= limit.as_secs_f64() * 1000.0);
        let step = RateStep { rate, figures, is_kept };
        print_progress(plan.quiet, &format!("{}: p99 {:.2} ms", step.title(), p99.unwrap_or(f64::NAN)));
        let bounds = search.get_or_insert_with(|| RateSearch::new(step.throughput(), lowest));
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
    Ok((steps, search.unwrap_or(RateSearch::new(0.0, lowest))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of a search and its number of steps, if all rates up to `limit` meet the p99.
    fn found(throughput: f64, limit: f64) -> (Option<f64>, usize) {
        let mut search = RateSearch::new(throughput, 20.0);
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
            let max = limit.min(throughput * THROUGHPUT_HEADROOM);
            assert!(
                rate <= max && rate >= max * (1.0 - RATE_PRECISION) && steps <= MAX_STEPS,
                "{rate} of {max}: {steps}"
            );
        }
    }

    #[test]
    fn search_without_a_result_ends_at_lowest_rate_or_step_limit() {
        assert_eq!(found(200_000.0, 0.0), (None, MAX_STEPS));
        // After the closed loop, the search starts at 110 and halves the rate down to 20: it tries 55 and 27.5.
        assert_eq!(found(100.0, 0.0), (None, 3));
    }
}
