//! The results as a table, as JSON and as a page.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::anchors::Anchors;
use crate::drive::{Answered, Figures};
use crate::environment::{Facts, environment};
use crate::format::number;
use crate::html::{Page, Run};
use crate::plan::{Plan, Stock};
use crate::run_context::{INTERRUPTED, ServerFacts, servers};
use crate::server::Start;
use crate::timeline;

/// Fraction of the due requests that may remain unsent at a rate that counts as kept; one request always may.
const MAX_UNSENT_FRACTION: f64 = 0.001;

/// The measured server and the machine.
pub(crate) struct Subject<'a> {
    pub(crate) plan: &'a Plan,
    /// `SQLite`, `PostgreSQL 15.8`, or the user's description of a running server's store.
    pub(crate) store: Option<String>,
    /// Process whose CPU time and memory are reported.
    pub(crate) process: Option<String>,
    /// Startup times of the server.
    pub(crate) start: Option<Start>,
    /// Contents of the mount before the run, if counted.
    pub(crate) stock: Option<Stock>,
    pub(crate) anchors: &'a Anchors,
}

/// The report of a run.
pub(crate) struct Report<'a> {
    pub(crate) of: &'a Subject<'a>,
    pub(crate) figures: &'a Figures,
}

/// Output files, in addition to standard output.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Outputs {
    /// Write the figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a report with charts to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Commit of the server, for the report.
    #[arg(long, value_name = "ID")]
    pub(crate) commit: Option<String>,
}

impl Outputs {
    /// Writes results, a JSON object, together with the machine and the commit.
    pub(crate) fn write_json(&self, json: &Value) -> Result<(), String> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut json = json.clone();
        let facts = environment().into_iter().map(|(name, text)| (name, Value::from(text))).collect();
        json["environment"] = Value::Object(facts);
        json["environment"]["servers"] = servers().iter().map(ServerFacts::json).collect();
        json["commit"] = json!(self.commit);
        std::fs::write(path, format!("{json:#}\n")).map_err(|e| format!("writing {}: {e}", path.display()))
    }

    /// Writes the requested files.
    pub(crate) fn write<'a>(&self, json: &Value, page: impl FnOnce() -> Page<'a>) -> Result<(), String> {
        self.write_json(json)?;
        let Some(path) = &self.html else { return Ok(()) };
        let mut page = page();
        let server = |facts: ServerFacts| (format!("server {}", facts.name), facts.text());
        page.facts.extend(servers().into_iter().map(server));
        page.facts.extend(self.commit.clone().map(|commit| ("commit".to_owned(), commit)));
        std::fs::write(path, page.html()).map_err(|e| format!("writing {}: {e}", path.display()))
    }
}

impl Figures {
    pub(crate) fn rate(&self, class: &Answered) -> f64 {
        class.count() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns microseconds per successful request. `None` without such requests, and for several classes, because
    /// their costs differ.
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
        let sent: u64 = self.classes.first().map_or(0, Answered::count);
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

    /// Returns all results, including their course over time.
    pub(crate) fn json(&self) -> Value {
        let cpu = self.cpu;
        json!({
            "seconds": self.elapsed.as_secs_f64(),
            "interrupted": self.interrupted,
            "classes": self.classes.iter().map(|class| self.class_json(class)).collect::<Vec<_>>(),
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

    /// Prints rate, latency and errors of each class.
    pub(crate) fn print_classes(&self) {
        self.classes.iter().for_each(|class| self.print_class(class));
        if self.interrupted {
            println!("  INTERRUPTED     after {:.1} s", self.elapsed.as_secs_f64());
        }
    }

    fn print_class(&self, class: &Answered) {
        let rate = self.rate(class);
        println!("  {}, {} clients", class.name, class.clients);
        println!("    requests      {} in {:.1} s", class.count(), self.elapsed.as_secs_f64());
        println!("    rate          {rate:.*} per second", if rate < 100.0 { 1 } else { 0 });
        println!(
            "    latency ms    p50 {:.2}  p90 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}",
            class.percentile(50.0),
            class.percentile(90.0),
            class.percentile(99.0),
            class.percentile(99.9),
            class.percentile(100.0)
        );
        if class.errors.is_empty() {
            println!("    errors        none");
        }
        for (cause, count) in &class.errors {
            println!("    errors        {count} × {cause}");
        }
    }

    fn class_json(&self, class: &Answered) -> Value {
        let width = class.timeline.width.as_secs();
        let course = class.timeline.slots.iter().zip(0_u64..).map(|(slot, n)| {
            let at = |percent| slot.latencies.percentile(percent) as f64 / 1000.0;
            json!({ "second": n * width, "requests": slot.latencies.count(), "errors": slot.errors, "p50_ms": at(50.0),
                "p99_ms": at(99.0), "p999_ms": at(99.9), "max_ms": at(100.0) })
        });
        json!({
            "key": class.name,
            "clients": class.clients,
            "requests": class.count(),
            "errors": class.errors,
            "requests_per_second": self.rate(class),
            "latency_ms": {
                "p50": class.known(50.0),
                "p90": class.known(90.0),
                "p99": class.known(99.0),
                "p999": class.known(99.9),
                "max": class.known(100.0),
            },
            "slot_seconds": width,
            "over_time": course.collect::<Vec<_>>(),
        })
    }
}

/// Returns a page about runs of a plan, without tables.
pub(crate) fn page<'a>(title: impl Into<String>, plan: &Plan, runs: Vec<Run<'a>>, columns: usize) -> Page<'a> {
    let facts = [environment(), plan_facts(plan)].concat();
    Page { title: title.into(), facts, tables: Vec::new(), runs, columns }
}

impl Subject<'_> {
    /// Returns a page about runs on the server.
    pub(crate) fn page<'a>(&self, title: &str, runs: Vec<Run<'a>>, columns: usize) -> Page<'a> {
        let mut page = page(title, self.plan, runs, columns);
        page.facts.extend(machine_facts(self.anchors));
        let store = self.store.clone().unwrap_or_else(|| "of a running server".to_owned());
        page.facts.push(("store".to_owned(), store));
        page.facts.extend(self.process.clone().map(|process| ("process".to_owned(), process)));
        page
    }
}

impl Report<'_> {
    /// Returns the rate of RSA keys (the last class of such a run) relative to what the cores can generate.
    fn rsa_share(&self) -> Option<f64> {
        let rate = self.figures.classes.last().map(|class| self.figures.rate(class))?;
        self.of.anchors.rsa_2048_per_second().map(|limit| rate / limit)
    }

    pub(crate) fn json(&self) -> Value {
        let Subject { plan, store, process, start, stock, anchors } = self.of;
        let mut json = self.figures.json();
        let more = json!({
            "scenario": plan.scenario.name(),
            "store": store,
            "process": process,
            "start_seconds": start.map(|start| json!({
                "listening": start.listening.as_secs_f64(),
                "first_crl": start.crl.as_secs_f64(),
            })),
            "stored": !plan.no_store,
            "certificates_before": stock.map(|stock| stock.certificates),
            "revoked_before": stock.map(|stock| stock.revoked),
            "rate": plan.pace.rate,
            "rsa_share_of_limit": self.rsa_share(),
            "p99_allowance_ms": anchors.p99_allowance_ms(),
            "machine": machine_json(anchors),
        });
        if let (Some(figures), Value::Object(more)) = (json.as_object_mut(), more) {
            figures.extend(more);
        }
        json
    }

    /// Returns the report as a page with charts.
    pub(crate) fn page(&self, title: &str) -> Page<'_> {
        let runs = vec![Run { title: self.of.plan.scenario.name(), figures: self.figures }];
        let mut page = self.of.page(title, runs, 1);
        page.facts.extend(self.of.start.map(|start| ("start".to_owned(), start_text(start))));
        page.facts.extend(self.of.stock.map(|stock| ("certificates before".to_owned(), stock_text(stock))));
        page
    }

    /// Prints the figures as a table.
    pub(crate) fn print(&self) {
        let Subject { plan, store, process, start, stock, anchors } = self.of;
        let figures = self.figures;
        println!("{} on {}", plan.scenario.name(), store.as_deref().unwrap_or("a running server"));
        if let Some(process) = process {
            println!("  process         {process}");
        }
        if let Some(start) = start {
            println!("  start           {}", start_text(*start));
        }
        stock.iter().copied().for_each(print_stock);
        figures.print_classes();
        if figures.unsent > 0 {
            println!("  NOT SENT        {} due requests: all connections were busy", figures.unsent);
        }
        if let Some(drift) = timeline::drift(&figures.samples) {
            println!("  memory drift    {:+.1} % from the third quarter of the run to the last", drift * 100.0);
        }
        println!("  p99 allowance   {:.2} ms (15 ms and three times the p99 of fdatasync)", anchors.p99_allowance_ms());
        self.print_cpu();
        println!("  server memory   {} MiB", optional(figures.server_mib));
        println!(
            "  machine         P-256 sign {:.1} µs, verify {:.1} µs, keygen {:.1} µs; SHA-256 of 64 MiB {:.0} ms; fdatasync {:.0} µs (p99 {:.0})",
            anchors.p256_sign,
            anchors.p256_verify,
            anchors.p256_keygen,
            anchors.sha256_64mib_ms,
            anchors.fdatasync,
            anchors.fdatasync_p99
        );
        if let (Some(ms), Some(limit), Some(share)) =
            (anchors.rsa_2048_keygen_ms, anchors.rsa_2048_per_second(), self.rsa_share())
        {
            println!("  RSA-2048 keys   {ms:.1} ms each, so at most {limit:.1} per second on {} cores", anchors.cores);
            println!("  RSA share       {:.0} % of that", share * 100.0);
        }
    }

    fn print_cpu(&self) {
        let cpu = self.figures.cpu;
        let figures = self.figures;
        let mut parts = vec![("server CPU", cpu.server)];
        if cpu.postgres.is_some() {
            parts.extend([("PostgreSQL CPU", cpu.postgres), ("sum of CPU", cpu.sum())]);
        }
        for (name, seconds) in parts {
            match figures.per_request(seconds) {
                Some(micros) => println!("  {name:<15} {micros:.1} µs per request"),
                None => println!("  {name:<15} {} s", optional(seconds)),
            }
        }
    }
}

/// Describes the startup times.
pub(crate) fn start_text(start: Start) -> String {
    format!("listens after {:.2} s, first CRL after {:.2} s", start.listening.as_secs_f64(), start.crl.as_secs_f64())
}

/// Prints the contents of a mount.
pub(crate) fn print_stock(stock: Stock) {
    println!("  certificates    {}", stock_text(stock));
}

fn stock_text(stock: Stock) -> String {
    format!("{}, {} of them revoked", stock.certificates, stock.revoked)
}

/// Returns scenario, load and limits of a plan.
pub(crate) fn plan_facts(plan: &Plan) -> Facts {
    let mut load = match plan.pace.rate {
        Some(rate) => format!("{} a second by at most {} connections", number(rate), plan.clients),
        None => format!("{} connections, each with one request in flight", plan.clients),
    };
    if !plan.pace.ramp.is_zero() {
        load.push_str(&format!(", within {} s", plan.pace.ramp.as_secs()));
    }
    let mut most = format!("{} s", plan.seconds);
    if plan.requests < u64::MAX {
        most.push_str(&format!(" or {} requests", number(plan.requests as f64)));
    }
    let facts = [("scenario", plan.scenario.name()), ("load", load), ("at most", most)];
    facts.map(|(name, text)| (name.to_owned(), text)).to_vec()
}

/// Returns the reference measurements of the machine.
pub(crate) fn machine_facts(anchors: &Anchors) -> Facts {
    let crypto = format!(
        "P-256 sign {:.1} µs, verify {:.1} µs, keygen {:.1} µs; SHA-256 {:.2} GB/s",
        anchors.p256_sign,
        anchors.p256_verify,
        anchors.p256_keygen,
        anchors.sha256_gb_per_second()
    );
    let disk = format!("fdatasync p50 {:.0} µs, p99 {:.0} µs", anchors.fdatasync_p50, anchors.fdatasync_p99);
    vec![("machine at best".to_owned(), crypto), ("disk".to_owned(), disk)]
}

pub(crate) fn machine_json(anchors: &Anchors) -> Value {
    json!({
        "cores": anchors.cores,
        "p256_sign_us": anchors.p256_sign,
        "p256_verify_us": anchors.p256_verify,
        "p256_keygen_us": anchors.p256_keygen,
        "rsa_2048_keygen_ms": anchors.rsa_2048_keygen_ms,
        "rsa_2048_keys_per_second": anchors.rsa_2048_per_second(),
        "sha256_64mib_ms": anchors.sha256_64mib_ms,
        "fdatasync_us": anchors.fdatasync,
        "fdatasync_p50_us": anchors.fdatasync_p50,
        "fdatasync_p99_us": anchors.fdatasync_p99,
    })
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"))
}

/// Returns the median; for an even count, the mean of the two middle values.
pub(crate) fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let middle = of.len() / 2;
    let upper = *of.get(middle)?;
    Some(if of.len() % 2 == 1 { upper } else { (of[middle - 1] + upper) / 2.0 })
}

/// Prints an error to standard error.
#[allow(clippy::print_stderr, reason = "a command's error goes to standard error")]
pub(crate) fn complain(text: &str) {
    eprintln!("signet-load: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::histogram::Histogram;
    use crate::proc::Cpu;
    use std::time::Duration;

    fn figures(counts: &[usize]) -> Figures {
        let class = |count: &usize| Answered {
            latencies: {
                let mut latencies = Histogram::default();
                (0..*count).for_each(|_| latencies.record(1000));
                latencies
            },
            ..Answered::default()
        };
        Figures {
            elapsed: Duration::from_secs(10),
            classes: counts.iter().map(class).collect(),
            cpu: Cpu { server: Some(0.5), postgres: Some(0.25) },
            ..Figures::default()
        }
    }

    fn json_of(scenario: Scenario, counts: &[usize]) -> Value {
        let figures = figures(counts);
        let anchors = Anchors {
            p256_sign: 1.0,
            p256_verify: 1.0,
            p256_keygen: 1.0,
            sha256_64mib_ms: 1.0,
            fdatasync: 1.0,
            fdatasync_p50: 1.0,
            fdatasync_p99: 1.0,
            rsa_2048_keygen_ms: (scenario == Scenario::Mixed).then_some(50.0),
            cores: 2,
        };
        let plan = Plan { scenario, ..Plan::default() };
        let store = None;
        let process = Some("bao (pid 7)".to_owned());
        let subject = Subject { plan: &plan, store, process, start: None, stock: None, anchors: &anchors };
        Report { of: &subject, figures: &figures }.json()
    }

    #[test]
    fn the_median_is_that_of_the_sorted() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(vec![9.0, 1.0, 5.0, 6.0]), Some(5.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn class_without_responses_has_no_latency() {
        let json = json_of(Scenario::Issue, &[0]);
        assert_eq!((&json["classes"][0]["latency_ms"]["p50"], &json["process"]), (&Value::Null, &json!("bao (pid 7)")));
        assert_eq!(json["cpu_us_per_request"]["sum"], Value::Null);
    }

    #[test]
    fn rate_that_was_not_reached_is_an_error() {
        let mut figures = figures(&[9_990]);
        figures.unsent = 10;
        assert_eq!(figures.outcome(), Ok(()));
        figures.unsent = 11;
        let says = "rate not reached: 11 of 10001 due requests were not sent; use more clients or a lower rate";
        assert_eq!(figures.outcome(), Err(says.to_owned()));
        figures.classes[0].errors = [("503".to_owned(), 1)].into();
        assert_eq!(figures.outcome(), Err("some requests failed".to_owned()));
    }

    #[test]
    fn cpu_is_per_successful_request_of_both() {
        let json = json_of(Scenario::Issue, &[10_000]);
        assert_eq!(json["cpu_us_per_request"], json!({ "server": 50.0, "postgres": 25.0, "sum": 75.0 }));
        assert_eq!(json["classes"][0]["requests_per_second"], 1000.0);
        assert_eq!(json["rsa_share_of_limit"], Value::Null);
    }

    #[test]
    fn mixed_run_reports_rsa_ratio_and_total_cpu_only() {
        let json = json_of(Scenario::Mixed, &[10_000, 100]);
        assert_eq!(json["rsa_share_of_limit"], 0.25);
        assert_eq!(json["cpu_us_per_request"]["sum"], Value::Null);
        assert_eq!(json["cpu_seconds"]["sum"], 0.75);
    }
}
