//! The figures as a table and as JSON.

use std::path::Path;

use serde_json::{Value, json};

use crate::Scenario;
use crate::anchors::Anchors;
use crate::drive::{Answered, Figures};
use crate::preload::Stock;
use crate::scenario::Plan;
use crate::server::Start;

/// All there is to say of a run.
pub(crate) struct Report<'a> {
    pub(crate) plan: &'a Plan,
    /// `SQLite`, `PostgreSQL 15.8`; `None` for a server that is not ours.
    pub(crate) store: Option<String>,
    /// How long it took to start.
    pub(crate) start: Option<Start>,
    /// What the mount held before the run, where it was counted.
    pub(crate) stock: Option<Stock>,
    pub(crate) figures: &'a Figures,
    pub(crate) anchors: &'a Anchors,
}

impl Figures {
    fn rate(&self, class: &Answered) -> f64 {
        class.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds per successful request; of a single class only, because classes cost differently.
    pub(crate) fn per_request(&self, cpu: Option<f64>) -> Option<f64> {
        let [class] = &self.classes[..] else { return None };
        cpu.map(|cpu| cpu * 1e6 / class.latencies.len().max(1) as f64)
    }
}

impl Report<'_> {
    /// The scenario's name on the command line.
    fn name(&self) -> &'static str {
        match self.plan.scenario {
            Scenario::Preload => "preload",
            Scenario::Issue => "issue",
            Scenario::Sign => "sign",
            Scenario::SignManaged => "sign-managed",
            Scenario::Revoke => "revoke",
            Scenario::Crl => "crl",
            Scenario::Login => "login",
            Scenario::Mixed => "mixed",
            Scenario::Ocsp => "ocsp",
            Scenario::Oversize => "oversize",
            Scenario::Projects => "projects",
        }
    }

    /// The rate of RSA keys (the last class of a run that makes some) as a share of what the cores can do.
    fn rsa_share(&self) -> Option<f64> {
        let rate = self.figures.classes.last().map(|class| self.figures.rate(class))?;
        self.anchors.rsa_2048_per_second().map(|limit| rate / limit)
    }

    pub(crate) fn json(&self) -> Value {
        let (figures, cpu) = (self.figures, self.figures.cpu);
        json!({
            "scenario": self.name(),
            "store": self.store,
            "start_seconds": self.start.map(|start| json!({
                "listening": start.listening.as_secs_f64(),
                "first_crl": start.crl.as_secs_f64(),
            })),
            "stored": !self.plan.no_store,
            "certificates_before": self.stock.map(|stock| stock.certificates),
            "revoked_before": self.stock.map(|stock| stock.revoked),
            "seconds": figures.elapsed.as_secs_f64(),
            "classes": figures.classes.iter().map(|class| self.class_json(class)).collect::<Vec<_>>(),
            "cpu_seconds": { "server": cpu.server, "postgres": cpu.postgres, "sum": cpu.sum() },
            "cpu_us_per_request": {
                "server": figures.per_request(cpu.server),
                "postgres": figures.per_request(cpu.postgres),
                "sum": figures.per_request(cpu.sum()),
            },
            "rsa_share_of_limit": self.rsa_share(),
            "p99_allowance_ms": self.anchors.p99_allowance_ms(),
            "server_resident_mib": figures.server_mib,
            "machine": machine_json(self.anchors),
        })
    }

    fn class_json(&self, class: &Answered) -> Value {
        json!({
            "key": class.name,
            "clients": class.clients,
            "requests": class.latencies.len(),
            "errors": class.errors,
            "requests_per_second": self.figures.rate(class),
            "latency_ms": {
                "p50": class.percentile(50.0),
                "p90": class.percentile(90.0),
                "p99": class.percentile(99.0),
                "p999": class.percentile(99.9),
                "max": class.percentile(100.0),
            },
        })
    }

    /// Writes the figures to a file.
    pub(crate) fn write_json(&self, path: &Path) -> Result<(), String> {
        write(path, &self.json())
    }

    /// Prints the figures as a table.
    #[allow(clippy::print_stdout, reason = "the table is what this program is for")]
    pub(crate) fn print(&self) {
        let (figures, anchors) = (self.figures, self.anchors);
        println!("{} on {}", self.name(), self.store.as_deref().unwrap_or("a running server"));
        if let Some(start) = self.start {
            println!("  start           {}", start_text(start));
        }
        if let Some(stock) = self.stock {
            print_stock(stock);
        }
        for class in &figures.classes {
            self.print_class(class);
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

    #[allow(clippy::print_stdout, reason = "the table is what this program is for")]
    fn print_class(&self, class: &Answered) {
        let rate = self.figures.rate(class);
        println!("  {}, {} clients", class.name, class.clients);
        println!("    requests      {} in {:.1} s", class.latencies.len(), self.figures.elapsed.as_secs_f64());
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

    #[allow(clippy::print_stdout, reason = "the table is what this program is for")]
    fn print_cpu(&self) {
        let (cpu, figures) = (self.figures.cpu, self.figures);
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

/// Writes figures to a file.
pub(crate) fn write(path: &Path, figures: &Value) -> Result<(), String> {
    std::fs::write(path, format!("{figures:#}\n")).map_err(|e| format!("writing {}: {e}", path.display()))
}

/// How long a start took.
pub(crate) fn start_text(start: Start) -> String {
    format!("listens after {:.2} s, first CRL after {:.2} s", start.listening.as_secs_f64(), start.crl.as_secs_f64())
}

/// Says what a mount holds.
#[allow(clippy::print_stdout, reason = "the table is what this program is for")]
pub(crate) fn print_stock(stock: Stock) {
    println!("  certificates    {}, {} of them revoked", stock.certificates, stock.revoked);
}

fn machine_json(anchors: &Anchors) -> Value {
    json!({
        "cores": anchors.cores,
        "p256_sign_us": anchors.p256_sign,
        "p256_verify_us": anchors.p256_verify,
        "p256_keygen_us": anchors.p256_keygen,
        "rsa_2048_keygen_ms": anchors.rsa_2048_keygen_ms,
        "rsa_2048_keys_per_second": anchors.rsa_2048_per_second(),
        "sha256_64mib_ms": anchors.sha256_64mib_ms,
        "fdatasync_us": anchors.fdatasync,
        "fdatasync_p99_us": anchors.fdatasync_p99,
    })
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"))
}

/// Says what went wrong.
#[allow(clippy::print_stderr, reason = "a command's error goes to standard error")]
pub(crate) fn complain(text: &str) {
    eprintln!("signet-load: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Cpu;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn json_of(scenario: Scenario, counts: &[usize]) -> Value {
        let class = |count: &usize| Answered {
            name: "any".to_owned(),
            clients: 1,
            latencies: vec![1000; *count],
            errors: BTreeMap::new(),
        };
        let figures = Figures {
            elapsed: Duration::from_secs(10),
            classes: counts.iter().map(class).collect(),
            cpu: Cpu { server: Some(0.5), postgres: Some(0.25) },
            server_mib: None,
        };
        let anchors = Anchors {
            p256_sign: 1.0,
            p256_verify: 1.0,
            p256_keygen: 1.0,
            sha256_64mib_ms: 1.0,
            fdatasync: 1.0,
            fdatasync_p99: 1.0,
            rsa_2048_keygen_ms: (scenario == Scenario::Mixed).then_some(50.0),
            cores: 2,
        };
        let plan = Plan {
            scenario,
            mount: "pki".to_owned(),
            clients: 1,
            rsa_clients: 1,
            requests: 1,
            seconds: 1,
            key_type: "ec".to_owned(),
            key_bits: 256,
            no_store: false,
            quiet: true,
            serials: Vec::new(),
        };
        Report { plan: &plan, store: None, start: None, stock: None, figures: &figures, anchors: &anchors }.json()
    }

    #[test]
    fn cpu_is_per_successful_request_of_both() {
        let json = json_of(Scenario::Issue, &[10_000]);
        assert_eq!(json["cpu_us_per_request"], json!({ "server": 50.0, "postgres": 25.0, "sum": 75.0 }));
        assert_eq!(json["classes"][0]["requests_per_second"], 1000.0);
        assert_eq!(json["rsa_share_of_limit"], Value::Null);
    }

    #[test]
    fn of_mixed_the_share_is_that_of_the_rsa_class_and_cpu_is_not_divided() {
        let json = json_of(Scenario::Mixed, &[10_000, 100]);
        assert_eq!(json["rsa_share_of_limit"], 0.25);
        assert_eq!(json["cpu_us_per_request"]["sum"], Value::Null);
        assert_eq!(json["cpu_seconds"]["sum"], 0.75);
    }
}
