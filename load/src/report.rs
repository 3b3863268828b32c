//! The figures as a table and as JSON.

use std::path::Path;

use serde_json::{Value, json};

use crate::anchors::Anchors;
use crate::scenario::{Figures, Plan};

impl Figures {
    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Milliseconds below which `percent` of the successful requests were answered.
    fn percentile(&self, percent: f64) -> f64 {
        if self.latencies.is_empty() {
            return 0.0;
        }
        let rank = (self.latencies.len() as f64 * percent / 100.0).ceil() as usize;
        f64::from(self.latencies[rank.clamp(1, self.latencies.len()) - 1]) / 1000.0
    }

    /// The server's CPU time per successful request, in microseconds.
    fn cpu_per_request(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu * 1e6 / self.latencies.len().max(1) as f64)
    }
}

fn figures_json(plan: &Plan, figures: &Figures, anchors: &Anchors) -> Value {
    json!({
        "scenario": format!("{:?}", plan.scenario).to_lowercase(),
        "key": format!("{} {}", plan.key_type, plan.key_bits),
        "clients": plan.clients,
        "stored": !plan.no_store,
        "requests": figures.latencies.len(),
        "errors": figures.errors,
        "seconds": figures.elapsed.as_secs_f64(),
        "requests_per_second": figures.rate(),
        "latency_ms": {
            "p50": figures.percentile(50.0),
            "p90": figures.percentile(90.0),
            "p99": figures.percentile(99.0),
            "p999": figures.percentile(99.9),
            "max": figures.percentile(100.0),
        },
        "server_cpu_us_per_request": figures.cpu_per_request(),
        "server_resident_mib": figures.server_mib,
        "machine": {
            "p256_sign_us": anchors.p256_sign,
            "p256_verify_us": anchors.p256_verify,
            "p256_keygen_us": anchors.p256_keygen,
            "sha256_64mib_ms": anchors.sha256_64mib_ms,
            "fdatasync_us": anchors.fdatasync,
            "fdatasync_p99_us": anchors.fdatasync_p99,
        },
    })
}

/// Writes the figures to a file.
pub(crate) fn write_json(path: &Path, plan: &Plan, figures: &Figures, anchors: &Anchors) -> Result<(), String> {
    let text = format!("{:#}\n", figures_json(plan, figures, anchors));
    std::fs::write(path, text).map_err(|e| format!("writing {}: {e}", path.display()))
}

/// Prints the figures as a table.
#[allow(clippy::print_stdout, reason = "the table is what this program is for")]
pub(crate) fn print(plan: &Plan, figures: &Figures, anchors: &Anchors) {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
    println!("{:?} {} {}, {} clients", plan.scenario, plan.key_type, plan.key_bits, plan.clients);
    println!("  requests        {} in {:.1} s", figures.latencies.len(), figures.elapsed.as_secs_f64());
    println!("  rate            {:.0} per second", figures.rate());
    println!(
        "  latency ms      p50 {:.2}  p90 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}",
        figures.percentile(50.0),
        figures.percentile(90.0),
        figures.percentile(99.0),
        figures.percentile(99.9),
        figures.percentile(100.0)
    );
    println!("  server CPU      {} µs per request", optional(figures.cpu_per_request()));
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
    if figures.errors.is_empty() {
        println!("  errors          none");
    }
    for (cause, count) in &figures.errors {
        println!("  errors          {count} × {cause}");
    }
}

/// Says what went wrong.
#[allow(clippy::print_stderr, reason = "a command's error goes to standard error")]
pub(crate) fn complain(text: &str) {
    eprintln!("signet-load: {text}");
}
