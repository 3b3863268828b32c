//! The scenarios: preparing the server, then bounded loops of requests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::Scenario;
use crate::client::Client;
use crate::server;

/// CSRs made before a `sign` run; each is sent many times.
const CSRS: usize = 256;
/// One answer in so many is opened and looked at.
const LOOK_AT: u64 = 500;

/// A run.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) clients: usize,
    pub(crate) requests: u64,
    pub(crate) seconds: u64,
    pub(crate) key_type: String,
    pub(crate) key_bits: u32,
    pub(crate) no_store: bool,
    pub(crate) quiet: bool,
}

/// What a run measured.
pub(crate) struct Figures {
    pub(crate) elapsed: Duration,
    /// Latencies of successful requests in microseconds, sorted.
    pub(crate) latencies: Vec<u32>,
    /// Failures by status or cause.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The server's CPU seconds during the run.
    pub(crate) server_cpu: Option<f64>,
    /// The server's resident memory at the end, MiB.
    pub(crate) server_mib: Option<f64>,
}

struct Progress {
    left: Cell<u64>,
    deadline: Instant,
    latencies: RefCell<Vec<u32>>,
    errors: RefCell<BTreeMap<String, u64>>,
    bar: ProgressBar,
}

/// Prepares the server and runs the plan.
pub(crate) async fn run(plan: &Plan, addr: &str, token: &str, pid: Option<u32>) -> Result<Figures, String> {
    let token = prepare(plan, addr, token).await?;
    let (path, bodies) = requests(plan)?;
    let bodies = Rc::new(bodies);
    let progress = Rc::new(Progress {
        left: Cell::new(plan.requests),
        deadline: Instant::now() + Duration::from_secs(plan.seconds),
        latencies: RefCell::new(Vec::with_capacity(plan.requests as usize)),
        errors: RefCell::default(),
        bar: bar(plan),
    });
    let mut clients = Vec::with_capacity(plan.clients);
    for _ in 0..plan.clients {
        clients.push(Client::connect(addr, &token).await?);
    }
    let cpu_before = pid.and_then(server::cpu_seconds);
    let started = Instant::now();
    let local = tokio::task::LocalSet::new();
    for (first, client) in clients.into_iter().enumerate() {
        let (path, bodies, progress) = (path.clone(), Rc::clone(&bodies), Rc::clone(&progress));
        local.spawn_local(one_client(client, path, bodies, first, progress));
    }
    local.await;
    let elapsed = started.elapsed();
    let server_cpu = pid.and_then(server::cpu_seconds).zip(cpu_before).map(|(after, before)| after - before);
    progress.bar.finish_and_clear();
    let mut latencies = progress.latencies.take();
    latencies.sort_unstable();
    Ok(Figures {
        elapsed,
        latencies,
        errors: progress.errors.take(),
        server_cpu,
        server_mib: pid.and_then(server::resident_mib),
    })
}

fn bar(plan: &Plan) -> ProgressBar {
    if plan.quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(plan.requests);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar
}

async fn one_client(mut client: Client, path: String, bodies: Rc<Vec<Bytes>>, first: usize, progress: Rc<Progress>) {
    let mut turn = first;
    while progress.left.get() > 0 && Instant::now() < progress.deadline {
        progress.left.set(progress.left.get() - 1);
        let body = bodies[turn % bodies.len()].clone();
        turn += 1;
        let started = Instant::now();
        let outcome = client.send(Method::POST, &path, body).await;
        let micros = started.elapsed().as_micros().min(u128::from(u32::MAX)) as u32;
        progress.bar.inc(1);
        let failure = match outcome {
            Ok(answer) if answer.status.is_success() && plausible(turn as u64, &answer.body) => {
                progress.latencies.borrow_mut().push(micros);
                continue;
            }
            Ok(answer) if answer.status.is_success() => "200 without a certificate".to_owned(),
            Ok(answer) => answer.status.as_u16().to_string(),
            Err(cause) => cause,
        };
        let broken = failure.parse::<u16>().is_err();
        *progress.errors.borrow_mut().entry(failure).or_default() += 1;
        if broken {
            return;
        }
    }
}

/// Looks into one answer of many: it must hold a certificate and a serial.
fn plausible(turn: u64, body: &Bytes) -> bool {
    if !turn.is_multiple_of(LOOK_AT) {
        return true;
    }
    serde_json::from_slice::<Value>(body).is_ok_and(|answer| {
        answer["data"]["certificate"].as_str().is_some_and(|c| c.starts_with("-----BEGIN CERTIFICATE-----"))
            && answer["data"]["serial_number"].is_string()
    })
}

/// A role, a policy of ten rules, and a token that has only that policy.
async fn prepare(plan: &Plan, addr: &str, token: &str) -> Result<String, String> {
    let mut client = Client::connect(addr, token).await?;
    let role = json!({
        "key_type": plan.key_type,
        "key_bits": plan.key_bits,
        "allowed_domains": ["example.test", "example.com"],
        "allow_subdomains": true,
        "no_store": plan.no_store,
    });
    client.must("/v1/pki/roles/load", &role).await?;
    let mut policy = String::new();
    for i in 0..8 {
        policy.push_str(&format!("path \"secret/team{i}/*\" {{ capabilities = [\"read\", \"list\"] }}\n"));
    }
    policy.push_str("path \"pki/issue/load\" { capabilities = [\"update\"] }\n");
    policy.push_str("path \"pki/sign/+\" { capabilities = [\"update\"] }\n");
    client.must("/v1/sys/policies/acl/load", &json!({ "policy": policy })).await?;
    let created = client.must("/v1/auth/token/create", &json!({ "policies": ["load"], "ttl": "1h" })).await?;
    created["auth"]["client_token"].as_str().map(str::to_owned).ok_or_else(|| "no token was created".to_owned())
}

/// The path and the bodies to send, in turn.
fn requests(plan: &Plan) -> Result<(String, Vec<Bytes>), String> {
    match plan.scenario {
        Scenario::Issue => {
            let body = json!({ "common_name": "load.example.test", "alt_names": "www.example.test", "ttl": "24h" });
            Ok(("/v1/pki/issue/load".to_owned(), vec![Bytes::from(body.to_string())]))
        }
        Scenario::Sign => {
            let bodies = (0..CSRS)
                .map(|i| csr(plan, i).map(|csr| Bytes::from(json!({ "csr": csr, "ttl": "24h" }).to_string())))
                .collect::<Result<_, _>>()?;
            Ok(("/v1/pki/sign/load".to_owned(), bodies))
        }
    }
}

fn csr(plan: &Plan, number: usize) -> Result<String, String> {
    let algorithm = match (plan.key_type.as_str(), plan.key_bits) {
        ("ec", 0 | 256) => &rcgen::PKCS_ECDSA_P256_SHA256,
        ("ec", 384) => &rcgen::PKCS_ECDSA_P384_SHA384,
        ("ed25519", _) => &rcgen::PKCS_ED25519,
        _ => return Err("sign: --key-type must be ec (256, 384) or ed25519".to_owned()),
    };
    let name = format!("load{number}.example.test");
    let key = rcgen::KeyPair::generate_for(algorithm).map_err(|e| e.to_string())?;
    let mut params = rcgen::CertificateParams::new(vec![name.clone()]).map_err(|e| e.to_string())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.serialize_request(&key).and_then(|csr| csr.pem()).map_err(|e| e.to_string())
}
