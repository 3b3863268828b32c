//! Everything that has a limit, measured in one command and held to it: `limits`.
//!
//! A server of its own with a store of a given size; each part is bounded in time and is one of the other commands'
//! scenarios, so that a row that is missed can be looked into with that command. What the machine does at best is
//! measured beside it.

mod row;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use clap::ValueEnum;
use hyper::{Method, StatusCode};
use serde_json::json;

use crate::anchors::{self, Anchors};
use crate::drive::{Class, Figures, Place, drive};
use crate::environment::environment;
use crate::floor::{self, EmptyGet};
use crate::html::{Page, Run, Table};
use crate::ocsp::Asked;
use crate::pace::Pace;
use crate::preload::{self, Stock};
use crate::projects;
use crate::report::{self, Outputs, number};
use crate::scenario::{self, Plan};
use crate::server::{MOUNT, Start, Started};
use crate::{Scenario, crl, timeline};

use row::Row;

/// The limits. CPU in microseconds per request, latencies in milliseconds.
const ISSUE_CPU: (f64, f64) = (70.0, 45.0);
const SIGN_CPU: (f64, f64) = (120.0, 95.0);
const P99: f64 = 10.0;
const CRL_BY_SHA256: f64 = 1.3;
const CRL_COLD_S: f64 = 1.0;
const OCSP_CPU: (f64, f64) = (35.0, 12.0);
const CRL_GET_CPU: f64 = 9.0;
const DECISION_CPU: f64 = 3.0;
const PROJECTS_P99: f64 = 20.0;
const PROJECTS_CPU: f64 = 500.0;
const LISTENS_S: f64 = 0.3;
const FIRST_CRL_S: f64 = 2.0;
const MEMORY_MB: f64 = 120.0;
const DRIFT_PERCENT: f64 = 5.0;

/// Revoked certificates, unless another number is given: as many as are stored, and this at most.
const REVOKED: u64 = 1_000_000;
/// Certificates that OCSP is asked about: few enough that the server keeps the answers to all of them.
const ASKED: usize = 10_000;
/// Revocations one after the other.
const ONE_BY_ONE: usize = 10;
/// Revocations of the run at full rate.
const REVOCATIONS: u64 = 20_000;
/// A mount whose CRL is short.
const SMALL: &str = "load-small";
/// Turns of each side where the difference of two costs is looked for.
const TURNS: u64 = 3;

/// What is measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The start with the store as it is, and its first CRL.
    Start,
    /// `issue` of P-256, stored and not.
    Issue,
    /// `sign` of P-256, stored and not.
    Sign,
    /// `issue` of P-256 beside RSA-2048.
    Mixed,
    /// OCSP, signed and used again.
    Ocsp,
    /// A short CRL, over and over.
    CrlGet,
    /// The look-up of a token and the decision about it.
    Token,
    /// `revoke` at full rate.
    Revoke,
    /// One more revocation on a long CRL.
    Crl,
    /// Memory after a longer run.
    Memory,
    /// The projects API.
    Projects,
}

/// `limits`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The `signet` binary.
    #[arg(long)]
    server: PathBuf,
    /// Everything on PostgreSQL: the folder of its programs, or `auto`. Without it only the projects API is, where
    /// PostgreSQL is installed.
    #[arg(long, value_name = "BINDIR")]
    postgres: Option<PathBuf>,
    /// Data folder; what is there is used again.
    #[arg(long, default_value = "load-data")]
    data_dir: PathBuf,
    /// Certificates that are stored, and projects.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    stored: u64,
    /// How many of them are revoked (as many as are stored, at most 1,000,000).
    #[arg(long, value_name = "N")]
    revoked: Option<u64>,
    /// Connections.
    #[arg(long, default_value_t = crate::CLIENTS, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Seconds of each part.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Write the figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The commit of the server, for the report.
    #[arg(long, value_name = "ID")]
    commit: Option<String>,
    /// No progress bar.
    #[arg(long)]
    quiet: bool,
}

/// The server that is measured, and what was found so far.
struct Bench<'a> {
    args: &'a Args,
    server: Started,
    start: Start,
    stock: Stock,
    rows: Vec<Row>,
    runs: Vec<(String, Figures)>,
}

/// Measures and prints everything; an error when a limit is missed.
pub(crate) async fn command(args: &Args) -> Result<(), String> {
    let stock = fill(args).await?;
    let anchors = anchors::measure(&args.data_dir, false)?;
    let empty = floor::empty_get(args.clients.into(), Duration::from_secs(args.seconds.min(5))).await?;
    let server = Started::new(&args.server, &args.data_dir, args.postgres.as_deref())?;
    let start = server.start().await?;
    let mut bench = Bench { args, server, start, stock, rows: Vec::new(), runs: Vec::new() };
    for part in Part::value_variants().iter().filter(|part| args.only.is_empty() || args.only.contains(part)) {
        let already = bench.rows.len();
        if let Err(cause) = Box::pin(bench.measure(*part)).await {
            let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            bench.rows.push(Row::not_measured(name, cause));
        }
        bench.rows[already..].iter().for_each(row::print);
    }
    let floors = floors(&anchors, empty, bench.live().await.ok());
    finish(&bench, &anchors, &floors)
}

/// Makes the store what it is to be; what it then holds.
async fn fill(args: &Args) -> Result<Stock, String> {
    let revoked = args.revoked.unwrap_or(args.stored.min(REVOKED));
    let server = Started::new(&args.server, &args.data_dir, args.postgres.as_deref())?;
    // One of them is the root, which is not revoked so.
    let wanted = Stock { certificates: args.stored.max(revoked + 1), revoked };
    let stock = preload::fill(&server.place(), wanted, None, args.quiet).await?;
    server.settle()?;
    Ok(stock)
}

impl Bench<'_> {
    fn plan(&self, scenario: Scenario) -> Plan {
        Plan {
            scenario,
            clients: self.args.clients.into(),
            rsa_clients: 8,
            requests: u64::MAX,
            seconds: self.args.seconds,
            pace: Pace::default(),
            key_type: "ec".to_owned(),
            key_bits: 256,
            no_store: false,
            auto_rebuild: true,
            role: None,
            prepared: false,
            quiet: self.args.quiet,
            serials: Vec::new(),
        }
    }

    /// The place of the mount with the short CRL.
    fn small(&self) -> Place<'_> {
        Place { mount: SMALL, ..self.server.place() }
    }

    /// Runs a plan; gives the number of the run.
    async fn run(&mut self, name: &str, plan: &Plan) -> Result<usize, String> {
        let figures = scenario::run(plan, &self.server.place(), self.server.watched()).await?;
        Ok(self.keep(name, figures))
    }

    /// Runs a class of clients; gives the number of the run.
    async fn class(&mut self, name: &str, token: &str, class: Class, seconds: u64) -> Result<usize, String> {
        let plan = Plan { seconds, ..self.plan(Scenario::Health) };
        let place = Place { token, ..self.server.place() };
        let figures = drive(&place, vec![class], &plan.bounds(), self.server.watched()).await?;
        Ok(self.keep(name, figures))
    }

    fn keep(&mut self, name: &str, figures: Figures) -> usize {
        self.runs.push((name.to_owned(), figures));
        self.runs.len() - 1
    }

    /// A row of the CPU per request of a run.
    fn cpu(&mut self, name: &str, run: usize, limit: f64) {
        let figures = &self.runs[run].1;
        let rate = figures.classes.first().map_or(0.0, |class| figures.rate(class));
        let row = Row::new(format!("{name}, CPU"), figures.per_request(figures.cpu.sum()), limit, "µs per request");
        self.rows.push(row.with(format!("{} per second", number(rate))).of(figures));
    }

    /// A row of the p99 of a run's first class.
    fn p99(&mut self, name: &str, run: usize, limit: f64) {
        let figures = &self.runs[run].1;
        let Some(class) = figures.classes.first() else { return };
        let note = format!("p50 {}, p99.9 {}", number(class.percentile(50.0)), number(class.percentile(99.9)));
        let row = Row::new(format!("{name}, p99"), class.percentile(99.0), limit, "ms");
        self.rows.push(row.with(note).of(figures));
    }

    async fn measure(&mut self, part: Part) -> Result<(), String> {
        match part {
            Part::Start => self.start(),
            Part::Issue => return self.signing("issue P-256", Scenario::Issue, ISSUE_CPU).await,
            Part::Sign => return self.signing("sign P-256 CSR", Scenario::Sign, SIGN_CPU).await,
            Part::Mixed => {
                let name = "issue P-256 beside RSA-2048";
                let run = self.run(name, &self.plan(Scenario::Mixed)).await?;
                self.p99(name, run, P99);
            }
            Part::Ocsp => return self.ocsp().await,
            Part::CrlGet => {
                scenario::make_mount(&self.small()).await?;
                let path = self.small().path("crl");
                let clients = self.args.clients.into();
                let class = Class { name: "short CRL".to_owned(), clients, path, ..Class::default() };
                let run = self.class("CRL GET", "", class, self.args.seconds).await?;
                self.cpu("CRL GET", run, CRL_GET_CPU);
            }
            Part::Token => return self.token().await,
            Part::Revoke => {
                let plan = Plan { requests: REVOCATIONS.min(self.args.stored), ..self.plan(Scenario::Revoke) };
                let name = "revoke by the timer";
                let run = self.run(name, &plan).await?;
                self.cpu(name, run, f64::INFINITY);
                if let Some(row) = self.rows.last_mut() {
                    row.limit = None;
                }
            }
            Part::Crl => return self.crl().await,
            Part::Memory => return self.memory().await,
            Part::Projects => return self.projects().await,
        }
        Ok(())
    }

    fn start(&mut self) {
        let Start { listening, crl } = self.start;
        let cold = crl.saturating_sub(listening);
        let with = format!("with {} stored", number(self.stock.certificates as f64));
        let revoked = format!("{} revoked", number(self.stock.revoked as f64));
        self.rows.extend([
            Row::new("start, listens", listening.as_secs_f64(), LISTENS_S, "s").with(with),
            Row::new("start, first CRL", crl.as_secs_f64(), FIRST_CRL_S, "s").with(revoked.clone()),
            Row::new("CRL cold from the store", cold.as_secs_f64(), CRL_COLD_S, "s").with(revoked),
        ]);
    }

    async fn signing(&mut self, name: &str, scenario: Scenario, limits: (f64, f64)) -> Result<(), String> {
        let run = self.run(name, &self.plan(scenario)).await?;
        self.cpu(name, run, limits.0);
        self.p99(name, run, P99);
        let name = format!("{name}, no_store");
        let run = self.run(&name, &Plan { no_store: true, ..self.plan(scenario) }).await?;
        self.cpu(&name, run, limits.1);
        Ok(())
    }

    async fn ocsp(&mut self) -> Result<(), String> {
        let asked = Asked::find(&self.server.place(), ASKED).await?;
        let class = |nonce| asked.class(&Method::GET, nonce, self.args.clients.into());
        let (signed, again, warm) = (class(true), class(false), class(false));
        let run = self.class("OCSP, signed", "", signed, self.args.seconds).await?;
        self.cpu("OCSP, signed", run, OCSP_CPU.0);
        // Every certificate once, so that the answer is there.
        let plan = Plan { requests: ASKED as u64, ..self.plan(Scenario::Health) };
        let place = Place { token: "", ..self.server.place() };
        drive(&place, vec![warm], &plan.bounds(), self.server.watched()).await?;
        let run = self.class("OCSP, used again", "", again, self.args.seconds).await?;
        self.cpu("OCSP, used again", run, OCSP_CPU.1);
        Ok(())
    }

    /// Two refusals of one route in turn: for want of a token, and of a right after the token was looked up and decided
    /// about. What they differ by is the look-up and the decision.
    async fn token(&mut self) -> Result<(), String> {
        let token = scenario::prepare(&self.plan(Scenario::Issue), &self.server.place()).await?;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let seconds = (self.args.seconds / (2 * TURNS)).max(1);
        for _ in 0..TURNS {
            for (token, costs) in [(token.as_str(), &mut with), ("", &mut without)] {
                let class = Class {
                    name: "refused".to_owned(),
                    clients: self.args.clients.into(),
                    path: self.server.place().path("roles/load"),
                    refused: Some(StatusCode::FORBIDDEN),
                    ..Class::default()
                };
                let place = Place { token, ..self.server.place() };
                let plan = Plan { seconds, ..self.plan(Scenario::Health) };
                let figures = drive(&place, vec![class], &plan.bounds(), self.server.watched()).await?;
                if figures.failed() {
                    return Err(format!(
                        "refusals were expected: {:?}",
                        figures.classes.iter().map(|c| &c.errors).collect::<Vec<_>>()
                    ));
                }
                costs.extend(figures.per_request(figures.cpu.server));
            }
        }
        let (with, without) = (middle(with)?, middle(without)?);
        let note = format!("refused with a token {} µs, without one {} µs", number(with), number(without));
        self.rows.push(Row::new("token look-up and decision, CPU", with - without, DECISION_CPU, "µs").with(note));
        Ok(())
    }

    /// Revokes one after the other; every answer waits for the whole list.
    async fn crl(&mut self) -> Result<(), String> {
        let place = self.server.place();
        let mut client = place.connect().await?;
        let bodies = preload::to_revoke(&place, ONE_BY_ONE as u64 + 1, None, self.args.quiet).await?;
        preload::auto_rebuild(&mut client, MOUNT, false).await?;
        let (path, watched) = (place.path("revoke"), self.server.watched());
        let mut bodies = bodies.into_iter();
        // The first one may find a list that is due anyway.
        revoke_one(&mut client, &path, bodies.next()).await?;
        let (before, mut latencies) = (watched.read(), Vec::new());
        for body in bodies {
            let sent = Instant::now();
            revoke_one(&mut client, &path, Some(body)).await?;
            latencies.push(sent.elapsed().as_secs_f64() * 1000.0);
        }
        let spent = watched.read().since(before).server.map(|seconds| seconds * 1000.0 / latencies.len() as f64);
        let list = crl::get(&mut client, MOUNT).await?;
        let hash = anchors::micros(3, || digest(&SHA256, &list)) / 1000.0;
        let note = format!(
            "answered after {} ms; {} MB, whose SHA-256 takes {} ms",
            number(middle(latencies)?),
            number(list.len() as f64 / 1e6),
            number(hash)
        );
        let revoked = number(preload::count(&mut client, MOUNT, "certs/revoked").await? as f64);
        let name = format!("CRL of {revoked} revoked, one more, CPU");
        self.rows.push(Row::new(name, spent, CRL_BY_SHA256 * hash, "ms").with(note));
        Ok(())
    }

    async fn memory(&mut self) -> Result<(), String> {
        let plan = Plan { seconds: 3 * self.args.seconds, ..self.plan(Scenario::Issue) };
        let run = self.run("issue P-256, longer", &plan).await?;
        let figures = &self.runs[run].1;
        let drift = timeline::drift(&figures.samples).map(|drift| drift.abs() * 100.0);
        let note =
            format!("after {} requests", number(figures.classes.iter().map(|class| class.count()).sum::<u64>() as f64));
        let memory = figures.server_mib.map(|mib| mib * 1.048_576);
        let rows = [
            Row::new("memory after a run", memory, MEMORY_MB, "MB").with(note).of(figures),
            Row::new("memory, last quarter by the one before", drift, DRIFT_PERCENT, "%").of(figures),
        ];
        self.rows.extend(rows);
        Ok(())
    }

    async fn projects(&mut self) -> Result<(), String> {
        let own = match &self.args.postgres {
            Some(_) => None,
            None => {
                let folder = self.args.data_dir.join("projects");
                Some(Started::new(&self.args.server, &folder, Some("auto".as_ref()))?)
            }
        };
        let size = projects::Size {
            clients: projects::CLIENTS,
            requests: None,
            seconds: self.args.seconds,
            quiet: self.args.quiet,
        };
        let server = own.as_ref().unwrap_or(&self.server);
        let mut all = Vec::new();
        projects::bounded(server, self.args.stored, &size, |name, figures| all.push((name.to_owned(), figures)))
            .await?;
        for (name, figures) in all {
            let name = format!("projects: {name}");
            let run = self.keep(&name, figures);
            self.p99(&name, run, PROJECTS_P99);
            self.cpu(&name, run, PROJECTS_CPU);
        }
        Ok(())
    }

    /// What an empty GET of the server takes.
    async fn live(&mut self) -> Result<EmptyGet, String> {
        let class = Class {
            name: "live".to_owned(),
            clients: self.args.clients.into(),
            path: "/v1/sys/live".to_owned(),
            ..Class::default()
        };
        let run = self.class("sys/live", "", class, self.args.seconds.min(5)).await?;
        let figures = &self.runs[run].1;
        let class = figures.classes.first().filter(|_| !figures.failed()).ok_or("sys/live fails")?;
        let cpu_us = figures.per_request(figures.cpu.server).ok_or("the server's CPU time is not known")?;
        Ok(EmptyGet { cpu_us, per_second: figures.rate(class), p99_ms: class.percentile(99.0) })
    }
}

async fn revoke_one(client: &mut crate::client::Client, path: &str, body: Option<Bytes>) -> Result<(), String> {
    let answer = client.send(Method::POST, path, body.unwrap_or_default()).await?;
    if answer.status.is_success() { Ok(()) } else { Err(format!("{path}: {}", answer.status)) }
}

/// The median.
fn middle(mut of: Vec<f64>) -> Result<f64, String> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().ok_or_else(|| "the server's CPU time is not known".to_owned())
}

/// What the machine does at best, and the server when it is asked for nothing.
fn floors(anchors: &Anchors, empty: EmptyGet, live: Option<EmptyGet>) -> Vec<(String, String)> {
    let get = |get: EmptyGet| {
        format!(
            "{} µs of CPU, {} per second, p99 {} ms",
            number(get.cpu_us),
            number(get.per_second),
            number(get.p99_ms)
        )
    };
    let mut floors = vec![
        ("P-256 sign".to_owned(), format!("{} µs", number(anchors.p256_sign))),
        ("P-256 verify".to_owned(), format!("{} µs", number(anchors.p256_verify))),
        ("SHA-256".to_owned(), format!("{} GB/s", number(anchors.sha256_gb_per_second()))),
        (
            "fdatasync of 8 KiB".to_owned(),
            format!("p50 {} µs, p99 {} µs", number(anchors.fdatasync_p50), number(anchors.fdatasync_p99)),
        ),
        ("empty GET, bare loop".to_owned(), get(empty)),
    ];
    floors.extend(live.map(|live| ("empty GET, sys/live".to_owned(), get(live))));
    floors
}

/// Prints what is left, writes the outputs, and says whether everything holds.
#[allow(clippy::print_stdout, reason = "the table is what this program is for")]
fn finish(bench: &Bench<'_>, anchors: &Anchors, floors: &[(String, String)]) -> Result<(), String> {
    let args = bench.args;
    println!("the machine's floors");
    floors.iter().for_each(|(name, text)| println!("  {name:<28} {text}"));
    let store = bench.server.store()?;
    let outputs = Outputs { json: args.json.clone(), html: args.html.clone(), commit: args.commit.clone() };
    let json = json!({
        "limits": bench.rows.iter().map(Row::json).collect::<Vec<_>>(),
        "store": store,
        "certificates_before": bench.stock.certificates,
        "revoked_before": bench.stock.revoked,
        "floors": floors.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect::<Vec<_>>(),
        "machine": report::machine_json(anchors),
        "runs": bench.runs.iter().map(|(name, figures)| json!({ "name": name, "figures": figures.json() })).collect::<Vec<_>>(),
    });
    outputs.write(&json, || page(bench, &store, floors))?;
    match row::summed(&bench.rows) {
        (0, 0) => Ok(()),
        (missed, unknown) => Err(format!("{missed} limits missed, {unknown} not measured")),
    }
}

fn page<'a>(bench: &'a Bench<'_>, store: &str, floors: &[(String, String)]) -> Page<'a> {
    let head = ["", "measured", "limit", "unit", "verdict", "note"].map(str::to_owned).to_vec();
    let rows = bench.rows.iter().map(Row::texts).collect();
    let floors = floors.iter().map(|(name, text)| vec![name.clone(), text.clone()]).collect();
    let stock = bench.stock;
    let mut facts = environment();
    facts.push(("store".to_owned(), store.to_owned()));
    facts.push(("certificates".to_owned(), format!("{}, {} revoked", stock.certificates, stock.revoked)));
    Page {
        title: "Limits".to_owned(),
        facts,
        tables: vec![
            Table { title: "Measured beside the limits".to_owned(), head, rows },
            Table { title: "The machine's floors".to_owned(), head: vec![String::new(); 2], rows: floors },
        ],
        runs: bench.runs.iter().map(|(name, figures)| Run { title: name.clone(), figures }).collect(),
        columns: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_that_of_the_sorted() {
        assert_eq!(middle(vec![9.0, 1.0, 5.0]), Ok(5.0));
        assert!(middle(Vec::new()).is_err());
    }
}
