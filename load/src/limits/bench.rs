//! Measurement of the server, part by part.

use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use hyper::{Method, StatusCode};

use super::options::{LimitPart, LimitsArgs};
use super::row::LimitRow;
use crate::client::Client;
use crate::drive::{RequestClass, ServerAccess, drive};
use crate::figures::Figures;
use crate::floor::EmptyGet;
use crate::format::number;
use crate::histogram::median;
use crate::ocsp_requests::CertificateRequests;
use crate::plan::{MountContents, Plan};
use crate::projects::{self, ProjectsLoad};
use crate::scenario::Scenario;
use crate::server::{Launch, MOUNT, Server, StartupTimes};
use crate::{anchors, mount, preload, timeline, workload};

/// The limits. CPU is in microseconds per request; a pair is for certificates that are stored and not stored, or for
/// OCSP responses that are signed and cached. Latencies are in milliseconds.
const MAX_ISSUE_CPU_US: (f64, f64) = (70.0, 45.0);
const MAX_SIGN_CPU_US: (f64, f64) = (120.0, 95.0);
const MAX_P99_MS: f64 = 10.0;
const MAX_CRL_SHA256_RATIO: f64 = 1.3;
const MAX_COLD_CRL_SECONDS: f64 = 1.0;
const MAX_OCSP_CPU_US: (f64, f64) = (35.0, 12.0);
const MAX_CRL_GET_CPU_US: f64 = 9.0;
const MAX_DECISION_CPU_US: f64 = 3.0;
const MAX_PROJECTS_P99_MS: f64 = 20.0;
const MAX_PROJECTS_CPU_US: f64 = 500.0;
const MAX_LISTENING_SECONDS: f64 = 0.3;
const MAX_FIRST_CRL_SECONDS: f64 = 2.0;
const MAX_MEMORY_MB: f64 = 120.0;
const MAX_DRIFT_PERCENT: f64 = 5.0;

/// Maximum of the default number of projects, which is otherwise the number of stored certificates.
const MAX_DEFAULT_PROJECTS: u64 = 1_000_000;
/// Certificates of the OCSP part: few enough for the server to cache all responses.
const OCSP_CERTIFICATES: usize = 10_000;
/// Bounds for single revocations. They continue until they have used so much CPU time that the kernel's resolution of
/// 10 ms no longer matters, within these limits of number and time.
const MIN_SEQUENTIAL_REQUESTS: usize = 10;
const MAX_SEQUENTIAL_REQUESTS: usize = 1_000;
const MIN_SEQUENTIAL_CPU_SECONDS: f64 = 1.0;
const MAX_SEQUENTIAL_TIME: Duration = Duration::from_secs(60);
const MAX_REVOCATIONS: u64 = 20_000;
/// Rounds that measure the difference of two costs, and the minimum duration of each measurement in seconds. A
/// difference of a few microseconds needs many requests.
const RUNS_PER_KIND: u64 = 3;
const MIN_RUN_SECONDS: u64 = 3;

/// The measured server and the results so far.
pub(super) struct LimitsBench<'a> {
    pub(super) args: &'a LimitsArgs,
    pub(super) server: Server,
    /// Mount with a short CRL.
    small: String,
    start: StartupTimes,
    /// Contents of the store after the filling.
    pub(super) filled: MountContents,
    /// Current contents of the store: each part adds to it.
    stock: MountContents,
    pub(super) rows: Vec<LimitRow>,
    pub(super) runs: Vec<RecordedRun>,
}

/// The results of one run in a part.
pub(super) struct RecordedRun {
    pub(super) name: String,
    pub(super) figures: Figures,
    /// Description of the store's contents during the run, for the notes of its rows.
    store_text: String,
}

struct SequentialRevocations {
    latencies_ms: Vec<f64>,
    /// CPU seconds of all revocations together; `None` if unknown.
    spent: Option<f64>,
}

impl<'a> LimitsBench<'a> {
    /// Starts the server on the filled store.
    pub(super) async fn start(args: &'a LimitsArgs, filled: MountContents) -> Result<Self, String> {
        let server = Server::launch(&args.launch).await?;
        let start = server.start().await?.ok_or("internal error: the server has no startup times")?;
        let small = server.access().provisioner.fresh_name();
        Ok(Self { args, server, small, start, filled, stock: filled, rows: Vec::new(), runs: Vec::new() })
    }
}

impl LimitsBench<'_> {
    fn plan(&self, scenario: Scenario) -> Plan {
        Plan {
            scenario,
            clients: self.args.clients,
            rsa_clients: 8,
            requests: Some(u64::MAX),
            seconds: self.args.seconds,
            key_type: "ec".to_owned(),
            key_bits: 256,
            auto_rebuild: true,
            quiet: self.args.quiet,
            ..Plan::default()
        }
    }

    fn small(&self) -> ServerAccess<'_> {
        ServerAccess { mount: &self.small, ..self.server.access() }
    }

    fn store_text(&self) -> String {
        format!("with {} stored", number(self.stock.certificates as f64))
    }

    /// Runs a plan and returns the index of its results in `runs`.
    async fn run(&mut self, name: &str, plan: &Plan) -> Result<usize, String> {
        let store_text = self.store_text();
        let figures = workload::run(plan, &self.server.access(), self.server.watched).await?;
        self.stock.certificates += issued(plan, &figures);
        Ok(self.record_run(name, figures, store_text))
    }

    async fn class(&mut self, name: &str, token: &str, class: RequestClass, seconds: u64) -> Result<usize, String> {
        let plan = Plan { seconds, ..self.plan(Scenario::Health) };
        let access = ServerAccess { token, ..self.server.access() };
        let figures = drive(&access, vec![class], &plan.bounds(), self.server.watched).await?;
        let store_text = self.store_text();
        Ok(self.record_run(name, figures, store_text))
    }

    fn record_run(&mut self, name: &str, figures: Figures, store_text: String) -> usize {
        self.runs.push(RecordedRun { name: name.to_owned(), figures, store_text });
        self.runs.len() - 1
    }

    fn cpu(&mut self, name: &str, run: usize, limit: impl Into<Option<f64>>) {
        let RecordedRun { figures, store_text, .. } = &self.runs[run];
        let rate = figures.classes.first().map_or(0.0, |class| figures.rate(class));
        let row =
            LimitRow::new(format!("{name}, CPU"), figures.per_request(figures.cpu.sum()), limit, "µs per request");
        self.rows.push(row.with(format!("{} per second, {store_text}", number(rate))).of(figures));
    }

    fn p99(&mut self, name: &str, run: usize, limit: f64) {
        let RecordedRun { figures, store_text, .. } = &self.runs[run];
        let Some(class) = figures.classes.first() else { return };
        let note = format!(
            "p50 {}, p99.9 {}, {store_text}",
            number(class.latencies.percentile_ms(50.0)),
            number(class.latencies.percentile_ms(99.9))
        );
        let row = LimitRow::new(format!("{name}, p99"), class.percentile_ms(99.0), limit, "ms");
        self.rows.push(row.with(note).of(figures));
    }

    pub(super) async fn measure(&mut self, part: LimitPart) -> Result<(), String> {
        match part {
            LimitPart::Start => self.add_startup_rows(),
            LimitPart::Issue => return self.signing("issue P-256", Scenario::Issue, MAX_ISSUE_CPU_US).await,
            LimitPart::Sign => return self.signing("sign P-256 CSR", Scenario::Sign, MAX_SIGN_CPU_US).await,
            LimitPart::Mixed => {
                let name = "issue P-256 during RSA-2048";
                let run = self.run(name, &self.plan(Scenario::Mixed)).await?;
                self.p99(name, run, MAX_P99_MS);
            }
            LimitPart::Ocsp => return self.ocsp().await,
            LimitPart::CrlGet => {
                mount::create(&self.small()).await?;
                let class = workload::complete_crl(&self.small(), self.args.clients.into());
                let run = self.class("CRL GET", "", class, self.args.seconds).await?;
                self.cpu("CRL GET", run, MAX_CRL_GET_CPU_US);
            }
            LimitPart::Token => return self.token().await,
            LimitPart::Revoke => return self.revoke().await,
            LimitPart::Crl => return self.crl().await,
            LimitPart::Memory => return self.memory().await,
            LimitPart::Projects => return self.projects().await,
        }
        Ok(())
    }

    fn add_startup_rows(&mut self) {
        let StartupTimes { listening, crl } = self.start;
        let cold = crl.saturating_sub(listening);
        let with = format!("with {} stored", number(self.filled.certificates as f64));
        let revoked = format!("{} revoked", number(self.filled.revoked as f64));
        self.rows.extend([
            LimitRow::new("start until it listens", listening.as_secs_f64(), MAX_LISTENING_SECONDS, "s").with(with),
            LimitRow::new("start until the first CRL", crl.as_secs_f64(), MAX_FIRST_CRL_SECONDS, "s")
                .with(revoked.clone()),
            LimitRow::new("first CRL, loaded from the store", cold.as_secs_f64(), MAX_COLD_CRL_SECONDS, "s")
                .with(revoked),
        ]);
    }

    async fn signing(&mut self, name: &str, scenario: Scenario, limits: (f64, f64)) -> Result<(), String> {
        let run = self.run(name, &self.plan(scenario)).await?;
        self.cpu(name, run, limits.0);
        self.p99(name, run, MAX_P99_MS);
        let name = format!("{name}, no_store");
        let run = self.run(&name, &Plan { no_store: true, ..self.plan(scenario) }).await?;
        self.cpu(&name, run, limits.1);
        Ok(())
    }

    async fn ocsp(&mut self) -> Result<(), String> {
        let requests = CertificateRequests::find(&self.server.access(), OCSP_CERTIFICATES).await?;
        let class = |nonce| requests.class(&Method::GET, nonce, self.args.clients.into());
        let signed = class(true);
        let cached = class(false);
        let warm = class(false);
        let run = self.class("OCSP, signed", "", signed, self.args.seconds).await?;
        self.cpu("OCSP, signed", run, MAX_OCSP_CPU_US.0);
        // Requests every certificate once, so that its response is cached.
        let plan = Plan { requests: Some(OCSP_CERTIFICATES as u64), ..self.plan(Scenario::Health) };
        let access = ServerAccess { token: "", ..self.server.access() };
        drive(&access, vec![warm], &plan.bounds(), self.server.watched).await?;
        let run = self.class("OCSP, cached", "", cached, self.args.seconds).await?;
        self.cpu("OCSP, cached", run, MAX_OCSP_CPU_US.1);
        Ok(())
    }

    /// Compares two rejections of one route: without a token, and without permission after the token look-up. The
    /// difference is the cost of look-up and authorization.
    async fn token(&mut self) -> Result<(), String> {
        let seconds = (self.args.seconds / (2 * RUNS_PER_KIND)).max(MIN_RUN_SECONDS);
        let plan = Plan { seconds: 2 * RUNS_PER_KIND * seconds, ..self.plan(Scenario::Issue) };
        let token = workload::prepare(&plan, &self.server.access()).await?;
        let mut rounds = Vec::new();
        for _ in 0..RUNS_PER_KIND {
            rounds.push((self.refusals(&token, seconds).await?, self.refusals("", seconds).await?));
        }
        self.rows.push(decision_row(&rounds));
        Ok(())
    }

    async fn refusals(&self, token: &str, seconds: u64) -> Result<f64, String> {
        let path = self.server.access().path("roles/load");
        let expected_rejection = Some(StatusCode::FORBIDDEN);
        let class = RequestClass { expected_rejection, ..RequestClass::get("refused", self.args.clients.into(), path) };
        let access = ServerAccess { token, ..self.server.access() };
        let plan = Plan { seconds, ..self.plan(Scenario::Health) };
        let figures = drive(&access, vec![class], &plan.bounds(), self.server.watched).await?;
        if figures.failed() {
            return Err(format!("requests that must get 403 got another answer: {:?}", figures.errors()));
        }
        figures.per_request(figures.cpu.server).ok_or_else(|| "the server's CPU time is not known".to_owned())
    }

    /// Revokes at full rate while the timer builds the CRL.
    async fn revoke(&mut self) -> Result<(), String> {
        let access = self.server.access();
        let mut client = access.connect().await?;
        let requests = MAX_REVOCATIONS.min(self.args.stored);
        let (serials, issued) = preload::revocation_bodies(&access, requests, None, self.args.quiet).await?;
        self.stock.certificates += issued;
        let before = preload::rebuilds(&mut client, MOUNT).await?;
        preload::auto_rebuild(&access, true).await?;
        let name = "revoke, CRL built by the timer";
        let run = self.run(name, &Plan { requests: Some(requests), serials, ..self.plan(Scenario::Revoke) }).await;
        preload::auto_rebuild(&self.server.access(), before).await?;
        let run = run?;
        self.stock.revoked += self.runs[run].figures.count();
        self.cpu(name, run, None::<f64>);
        Ok(())
    }

    /// Revokes one certificate after the other; each response waits for a CRL build.
    async fn crl(&mut self) -> Result<(), String> {
        let access = self.server.access();
        let mut client = access.connect().await?;
        let (bodies, issued) =
            preload::revocation_bodies(&access, MAX_SEQUENTIAL_REQUESTS as u64 + 1, None, self.args.quiet).await?;
        self.stock.certificates += issued;
        let before = preload::rebuilds(&mut client, MOUNT).await?;
        preload::auto_rebuild(&access, false).await?;
        let outcome = self.revoke_sequentially(&mut client, bodies).await;
        preload::auto_rebuild(&self.server.access(), before).await?;
        let SequentialRevocations { latencies_ms, spent } = outcome?;
        let times = latencies_ms.len();
        self.stock.revoked += times as u64 + 1;
        let list = client.get(&self.server.access().path("crl")).await?;
        let hash = anchors::micros(3, || digest(&SHA256, &list)) / 1000.0;
        let note = format!(
            "{times} times, {} s of CPU; answered after {} ms; {} MB, whose SHA-256 takes {} ms",
            spent.map_or_else(|| "-".to_owned(), number),
            number(median(latencies_ms).unwrap_or(f64::NAN)),
            number(list.len() as f64 / 1e6),
            number(hash)
        );
        let revoked = number(preload::count(&mut client, MOUNT, "certs/revoked").await? as f64);
        let name = format!("one more revocation on a CRL of {revoked}, CPU");
        let each = spent.map(|seconds| seconds * 1000.0 / times as f64);
        self.rows.push(LimitRow::new(name, each, MAX_CRL_SHA256_RATIO * hash, "ms").with(note));
        Ok(())
    }

    async fn revoke_sequentially(
        &self,
        client: &mut Client,
        bodies: Vec<Bytes>,
    ) -> Result<SequentialRevocations, String> {
        let path = self.server.access().path("revoke");
        let watched = self.server.watched;
        let mut bodies = bodies.into_iter();
        // The first revocation may also cause a CRL build that was due anyway.
        revoke_one(client, &path, bodies.next().unwrap_or_default()).await?;
        let before = watched.read();
        let started_at = Instant::now();
        let mut done = SequentialRevocations { latencies_ms: Vec::new(), spent: None };
        for body in bodies {
            let sent = Instant::now();
            revoke_one(client, &path, body).await?;
            done.latencies_ms.push(sent.elapsed().as_secs_f64() * 1000.0);
            done.spent = watched.read().since(before).server;
            if done.is_enough(started_at.elapsed()) {
                break;
            }
        }
        Ok(done)
    }

    async fn memory(&mut self) -> Result<(), String> {
        let plan = Plan { seconds: 3 * self.args.seconds, ..self.plan(Scenario::Issue) };
        let run = self.run("issue P-256, longer", &plan).await?;
        let figures = &self.runs[run].figures;
        let drift = timeline::drift(&figures.samples).map(|drift| drift.abs() * 100.0);
        let note = format!(
            "after {} requests, {}, {} revoked",
            number(figures.count() as f64),
            self.store_text(),
            number(self.stock.revoked as f64)
        );
        let memory = figures.server_mib.map(|mib| mib * 1.048_576);
        let rows = [
            LimitRow::new("memory after a run", memory, MAX_MEMORY_MB, "MB").with(note.clone()).of(figures),
            LimitRow::new("memory, change in the last quarter of a run", drift, MAX_DRIFT_PERCENT, "%")
                .with(note)
                .of(figures),
        ];
        self.rows.extend(rows);
        Ok(())
    }

    async fn projects(&mut self) -> Result<(), String> {
        let own = match &self.args.launch.postgres {
            Some(_) => None,
            None => {
                let data_dir = self.args.launch.data_dir.join("projects");
                let postgres = Some("auto".into());
                Some(Server::launch(&Launch { data_dir, postgres, ..self.args.launch.clone() }).await?)
            }
        };
        let load = ProjectsLoad {
            many: self.args.projects.unwrap_or(self.args.stored.min(MAX_DEFAULT_PROJECTS)),
            clients: projects::DEFAULT_CONNECTIONS,
            requests: None,
            seconds: self.args.seconds,
            quiet: self.args.quiet,
        };
        let (projects, parts) = load.measure(own.as_ref().unwrap_or(&self.server), true).await?;
        for part in parts {
            let name = format!("projects: {}", part.name);
            let figures = part.figures;
            let run = self.record_run(&name, figures, format!("with {} projects", number(projects as f64)));
            self.p99(&name, run, MAX_PROJECTS_P99_MS);
            self.cpu(&name, run, MAX_PROJECTS_CPU_US);
        }
        Ok(())
    }

    /// Measures an empty GET of the server.
    pub(super) async fn live(&mut self) -> Result<EmptyGet, String> {
        let class = RequestClass::get("live", self.args.clients.into(), "/v1/sys/live");
        let run = self.class("sys/live", "", class, self.args.seconds.min(5)).await?;
        let figures = &self.runs[run].figures;
        let class = figures.classes.first().filter(|_| !figures.failed()).ok_or("requests to sys/live failed")?;
        let cpu_us = figures.per_request(figures.cpu.server).ok_or("the server's CPU time is not known")?;
        Ok(EmptyGet { cpu_us, per_second: figures.rate(class), p99_ms: class.latencies.percentile_ms(99.0) })
    }
}

impl SequentialRevocations {
    /// `true` if there were enough revocations to compute the cost of one.
    fn is_enough(&self, since: Duration) -> bool {
        let spent = self.spent.is_none_or(|spent| spent >= MIN_SEQUENTIAL_CPU_SECONDS);
        self.latencies_ms.len() >= MIN_SEQUENTIAL_REQUESTS && (spent || since >= MAX_SEQUENTIAL_TIME)
    }
}

fn issued(plan: &Plan, figures: &Figures) -> u64 {
    let stores = matches!(plan.scenario, Scenario::Issue | Scenario::Sign | Scenario::Mixed) && !plan.no_store;
    if stores { figures.count() } else { 0 }
}

async fn revoke_one(client: &mut Client, path: &str, body: Bytes) -> Result<(), String> {
    let answer = client.send(Method::POST, path, body).await?;
    let text = String::from_utf8_lossy(&answer.body);
    if answer.status.is_success() && serde_json::from_str(&text).is_ok_and(|answer| preload::revoked(&answer)) {
        return Ok(());
    }
    Err(format!("{path}: {}: the response confirms no revocation: {text}", answer.status))
}

/// Returns the row for token look-up and authorization, from the costs with and without a token in each round. The
/// figure is the median of the differences within a round, because a disturbance of the machine affects both costs of a
/// round.
fn decision_row(rounds: &[(f64, f64)]) -> LimitRow {
    let of = |read: &dyn Fn(&(f64, f64)) -> f64| median(rounds.iter().map(read)).unwrap_or(f64::NAN);
    let with = of(&|round| round.0);
    let without = of(&|round| round.1);
    let difference = of(&|round| round.0 - round.1);
    let note = format!("refused with a token {} µs, without one {} µs", number(with), number(without));
    let (measured, note) = if difference > 0.0 {
        (Some(difference), note)
    } else {
        (None, format!("{note}: the measurements vary more than the difference to be measured"))
    };
    LimitRow::new("token look-up and decision, CPU", measured, MAX_DECISION_CPU_US, "µs").with(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::{Double, Shape};
    use crate::target::Target;

    #[test]
    fn decision_is_the_median_difference_or_not_measured() {
        // The machine becomes slower from round to round. The medians of both costs differ by 1.5, the median
        // difference is 2.
        let row = decision_row(&[(30.0, 28.0), (40.0, 38.5), (50.0, 47.0)]);
        assert_eq!((row.measured, row.verdict()), (Some(2.0), "held"));
        let row = decision_row(&[(30.0, 20.0), (40.0, 30.0), (50.0, 49.0)]);
        assert_eq!((row.measured, row.verdict()), (Some(10.0), "missed"));
        for rounds in [&[(30.0, 31.0), (30.0, 30.0), (30.0, 28.0)][..], &[]] {
            let row = decision_row(rounds);
            assert_eq!((row.measured, row.verdict()), (None, "not measured"));
        }
    }

    #[test]
    fn revocations_continue_until_their_cpu_time_is_measurable() {
        let done = |times: usize, spent| SequentialRevocations { latencies_ms: vec![1.0; times], spent };
        let soon = Duration::from_secs(1);
        assert!(!done(9, Some(5.0)).is_enough(soon));
        assert!(done(10, Some(1.0)).is_enough(soon));
        assert!(!done(500, Some(0.9)).is_enough(soon));
        assert!(done(500, Some(0.9)).is_enough(MAX_SEQUENTIAL_TIME));
        assert!(done(10, None).is_enough(soon), "without CPU figures the minimum number is enough");
    }

    #[tokio::test]
    async fn response_without_a_revocation_time_is_an_error() {
        for (expired, says) in [(false, None), (true, Some("confirms no revocation"))] {
            let double = Double::start(Shape { expired, ..Shape::default() });
            double.hold("pki", 1, 0);
            let target =
                Target { addr: double.addr.clone(), token: "root".to_owned(), prepared: true, ..Target::default() };
            let server = target.open(Scenario::Issue).await.unwrap();
            let mut client = server.access().connect().await.unwrap();
            let (bodies, _) = preload::revocation_bodies(&server.access(), 1, None, true).await.unwrap();
            let outcome = revoke_one(&mut client, "/v1/pki/revoke", bodies[0].clone()).await;
            assert_eq!(outcome.is_ok(), says.is_none(), "{outcome:?}");
            assert!(says.is_none_or(|says| outcome.unwrap_err().contains(says)));
            assert_eq!(double.stock("pki").1, usize::from(!expired));
        }
    }
}
