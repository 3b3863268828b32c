//! The results of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::environment::Facts;
use crate::format::number;
use crate::histogram::LatencyHistogram;
use crate::proc::CpuSeconds;
use crate::run_context::INTERRUPTED;
use crate::timeline::{self, Sample, Timeline};

/// Fraction of the due requests that may remain unsent without missing the rate. One request may always remain unsent.
const MAX_UNSENT_FRACTION: f64 = 0.001;

/// Results of a run. A run ends when its first class of clients ends; later responses of other classes do not count.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) elapsed: Duration,
    pub(crate) classes: Vec<ClassFigures>,
    pub(crate) cpu: CpuSeconds,
    /// Resident memory of the server at the end, in MiB.
    pub(crate) server_mib: Option<f64>,
    /// CPU time and memory of every second.
    pub(crate) samples: Vec<Sample>,
    /// Requests of the first class that were due but not sent, because all connections were busy.
    pub(crate) unsent: u64,
    /// `true` if a signal ended the run early.
    pub(crate) interrupted: bool,
}

/// Results of a class of clients.
#[derive(Default)]
pub(crate) struct ClassFigures {
    pub(crate) name: String,
    pub(crate) clients: usize,
    /// Latencies of successful requests.
    pub(crate) latencies: LatencyHistogram,
    /// Latencies and errors over time.
    pub(crate) timeline: Timeline,
    /// Number of failures by status or cause.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl ClassFigures {
    /// Returns a percentile of the successful requests in milliseconds; `None` if no request succeeded.
    pub(crate) fn percentile_ms(&self, percent: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.latencies.percentile_ms(percent))
    }

    /// Returns the number of successful requests.
    pub(crate) fn count(&self) -> u64 {
        self.latencies.count()
    }

    fn json(&self, rate: f64) -> Value {
        let [p50, p90, p99, p999, max] = [50.0, 90.0, 99.0, 99.9, 100.0].map(|percent| self.percentile_ms(percent));
        json!({
            "key": self.name,
            "clients": self.clients,
            "requests": self.count(),
            "errors": self.errors,
            "requests_per_second": rate,
            "latency_ms": { "p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": max },
        })
    }

    /// Returns requests, errors, p50 and p99 for the report of a part.
    pub(crate) fn part_json(&self) -> Value {
        json!({ "requests": self.count(), "errors": self.errors, "p50_ms": self.percentile_ms(50.0),
            "p99_ms": self.percentile_ms(99.0) })
    }

    fn over_time(&self) -> Value {
        let width = self.timeline.width.as_secs();
        let slots = self.timeline.slots.iter().zip(0_u64..).map(|(slot, n)| {
            let [p50, p99, p999, max] = [50.0, 99.0, 99.9, 100.0].map(|percent| slot.latencies.percentile_ms(percent));
            json!({ "second": n * width, "requests": slot.latencies.count(), "errors": slot.errors, "p50_ms": p50,
                "p99_ms": p99, "p999_ms": p999, "max_ms": max })
        });
        slots.collect()
    }
}

impl Figures {
    /// Returns the only class.
    pub(crate) fn only(&self) -> Result<&ClassFigures, String> {
        let [class] = &self.classes[..] else { return Err("internal error: not exactly one class".to_owned()) };
        Ok(class)
    }

    /// Returns the only class. Fails if any of its requests failed; `name` names the requests in the error.
    pub(crate) fn succeeded(&self, name: &str) -> Result<&ClassFigures, String> {
        let class = self.only()?;
        if class.errors.is_empty() {
            Ok(class)
        } else {
            Err(format!("{name}: some requests failed: {:?}", class.errors))
        }
    }

    /// Returns the successful requests of all classes.
    pub(crate) fn count(&self) -> u64 {
        self.classes.iter().map(ClassFigures::count).sum()
    }

    /// Returns the causes of failed requests of all classes, with their numbers.
    pub(crate) fn errors(&self) -> Vec<(&String, &u64)> {
        self.classes.iter().flat_map(|class| &class.errors).collect()
    }

    /// Returns the successful requests of a class per second.
    pub(crate) fn rate(&self, class: &ClassFigures) -> f64 {
        class.count() as f64 / self.elapsed.as_secs_f64()
    }

    /// Converts `cpu` seconds to microseconds per successful request. `None` without successful requests, and for
    /// several classes, because their requests differ in cost.
    pub(crate) fn per_request(&self, cpu: Option<f64>) -> Option<f64> {
        let [class] = &self.classes[..] else { return None };
        cpu.filter(|_| class.count() > 0).map(|cpu| cpu * 1e6 / class.count() as f64)
    }

    /// `true` if any request failed, or none of the first class succeeded.
    pub(crate) fn failed(&self) -> bool {
        let none = self.classes.first().is_none_or(|class| class.count() == 0);
        none || self.classes.iter().any(|class| !class.errors.is_empty())
    }

    /// Returns an error for an interruption, failed requests, or a rate that was not kept.
    pub(crate) fn outcome(&self) -> Result<(), String> {
        if self.interrupted {
            return Err(INTERRUPTED.to_owned());
        }
        if self.failed() {
            return Err("some requests failed".to_owned());
        }
        let sent: u64 = self.classes.first().map_or(0, ClassFigures::count);
        let due = sent + self.unsent;
        // A few requests that are due at the very end may remain unsent.
        if self.unsent as f64 > (due as f64 * MAX_UNSENT_FRACTION).max(1.0) {
            return Err(format!(
                "rate not reached: {} of {due} due requests were not sent; use more clients or a lower rate",
                self.unsent
            ));
        }
        Ok(())
    }

    /// Returns the results of each class, without their course over time.
    pub(crate) fn classes_json(&self) -> Vec<Value> {
        self.classes.iter().map(|class| class.json(self.rate(class))).collect()
    }

    /// Returns all results, including their course over time.
    pub(crate) fn json(&self) -> Value {
        let cpu = self.cpu;
        let mut classes = self.classes_json();
        for (json, class) in classes.iter_mut().zip(&self.classes) {
            json["slot_seconds"] = class.timeline.width.as_secs().into();
            json["over_time"] = class.over_time();
        }
        json!({
            "seconds": self.elapsed.as_secs_f64(),
            "interrupted": self.interrupted,
            "classes": classes,
            "due_and_not_sent": self.unsent,
            "cpu_seconds": { "server": cpu.server, "postgres": cpu.postgres, "sum": cpu.sum() },
            "cpu_us_per_request": {
                "server": self.per_request(cpu.server),
                "postgres": self.per_request(cpu.postgres),
                "sum": self.per_request(cpu.sum()),
            },
            "server_resident_mib": self.server_mib,
            "server_over_time": self.samples.iter().map(|sample| json!({
                "second": sample.at, "cpu_seconds": sample.cpu, "resident_mib": sample.resident_mib,
            })).collect::<Vec<_>>(),
        })
    }

    /// Returns the results that do not belong to one class.
    pub(crate) fn facts(&self) -> Facts {
        let cpu_text = |seconds| match self.per_request(Some(seconds)) {
            Some(micros) => format!("{} µs per request", number(micros)),
            None => format!("{} s", number(seconds)),
        };
        let unsent = (self.unsent > 0).then(|| format!("{} due requests: all connections were busy", self.unsent));
        let interrupted = self.interrupted.then(|| format!("after {:.1} s", self.elapsed.as_secs_f64()));
        let drift = timeline::drift(&self.samples)
            .map(|drift| format!("{:+.1} % from the third quarter of the run to the last", drift * 100.0));
        let facts = [
            ("INTERRUPTED", interrupted),
            ("NOT SENT", unsent),
            ("server CPU", self.cpu.server.map(cpu_text)),
            ("PostgreSQL CPU", self.cpu.postgres.map(cpu_text)),
            ("sum of CPU", self.cpu.postgres.and(self.cpu.sum()).map(cpu_text)),
            ("server memory", self.server_mib.map(|mib| format!("{} MiB", number(mib)))),
            ("memory drift", drift),
        ];
        facts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
    }
    /// Returns the results of classes with these numbers of successful requests of one millisecond.
    #[cfg(test)]
    pub(crate) fn of_counts(counts: &[u64]) -> Self {
        let class = |count: &u64| {
            let mut latencies = LatencyHistogram::default();
            (0..*count).for_each(|_| latencies.record(1000));
            ClassFigures { latencies, ..ClassFigures::default() }
        };
        Self {
            elapsed: Duration::from_secs(10),
            classes: counts.iter().map(class).collect(),
            cpu: CpuSeconds { server: Some(0.5), postgres: Some(0.25) },
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_that_was_not_reached_is_an_error() {
        let mut figures = Figures::of_counts(&[9_990]);
        figures.unsent = 10;
        assert_eq!(figures.outcome(), Ok(()));
        figures.unsent = 11;
        let message = "rate not reached: 11 of 10001 due requests were not sent; use more clients or a lower rate";
        assert_eq!(figures.outcome(), Err(message.to_owned()));
        figures.classes[0].errors = [("503".to_owned(), 1)].into();
        assert_eq!(figures.outcome(), Err("some requests failed".to_owned()));
    }

    #[test]
    fn cpu_is_per_successful_request_of_server_and_postgresql() {
        let json = Figures::of_counts(&[10_000]).json();
        assert_eq!(json["cpu_us_per_request"], json!({ "server": 50.0, "postgres": 25.0, "sum": 75.0 }));
        assert_eq!(json["classes"][0]["requests_per_second"], 1000.0);
    }

    #[test]
    fn class_without_responses_has_no_latency_and_no_cpu_per_request() {
        let json = Figures::of_counts(&[0]).json();
        assert_eq!(json["classes"][0]["latency_ms"]["p50"], Value::Null);
        assert_eq!(json["cpu_us_per_request"]["sum"], Value::Null);
    }

    #[test]
    fn several_classes_have_total_cpu_only() {
        let json = Figures::of_counts(&[10_000, 100]).json();
        assert_eq!(json["cpu_us_per_request"]["sum"], Value::Null);
        assert_eq!(json["cpu_seconds"]["sum"], 0.75);
    }
}
