//! The scenario `attack`: latency of one token's requests while another token repeats one expensive request on very
//! many connections.
//!
//! Each row of the table is one expensive request, sent by 64, 256 and 900 connections (or `--clients`). The victim's
//! p99 may be three times its value without an attack or 20 ms, whichever is larger; the limit for server memory is 300
//! MiB.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::background::{BackgroundLoad, RepeatedRequest, ResponseCounts};
use crate::client::{Api, ServerEndpoint};
use crate::drive::{RequestClass, RunLimits, ServerAccess, drive};
use crate::figures::Figures;
use crate::ocsp_requests::CertificateRequests;
use crate::order::RunArgs;
use crate::pace::Pace;
use crate::plan::{CLIENTS, MountContents, Plan};
use crate::preload;
use crate::report::Report;
use crate::run_context::{is_interrupted, print_progress};
use crate::server::{MOUNT, Server};

/// Default numbers of attacker connections.
const DEFAULT_CONNECTIONS: [usize; 3] = [64, 256, 900];
/// Connections of the victim, and its requests per second: `SLOW_VICTIM_RATE` for writes of roles and policies and for
/// handshakes, `VICTIM_RATE` for others.
const VICTIM_CONNECTIONS: usize = 4;
const VICTIM_RATE: f64 = 100.0;
const SLOW_VICTIM_RATE: f64 = VICTIM_RATE / 5.0;
/// Limits: ratio of the p99 to its value without an attack, p99 in milliseconds, server memory in MiB.
const MAX_RATIO: f64 = 3.0;
const MAX_P99_MS: f64 = 20.0;
const MAX_RESIDENT_MIB: f64 = 300.0;
/// Certificates in the lists that the attacker requests.
const LISTED_CERTIFICATES: u64 = 2_000;
/// Suffix of the mount whose CA has an RSA-4096 key.
const RSA_SUFFIX: &str = "-rsa";

/// A PKCS #12 file whose MAC takes 3,000,000 iterations, the most that the server accepts. Created by
/// `openssl pkcs12 -export -nokeys -in ca.pem -iter 3000000 -passout pass:secret | openssl base64`.
const SLOW_PKCS12: &str = include_str!("attack.p12.base64");
/// Path of a request that needs no work beyond HTTP.
const HEALTH: &str = "/v1/sys/health";
/// Source addresses of attacker and victim in the TLS part, where every request has its own connection.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// The repeated request of a victim, and the attacks during which it is measured.
struct Victim {
    class: RequestClass,
    /// Requests per second. A write is a separate commit, and a handshake takes several milliseconds.
    rate: f64,
    attacks: Vec<RepeatedRequest>,
}

/// The victim's results during one attack, or without an attack.
struct AttackPart {
    attack: &'static str,
    victim: String,
    connections: usize,
    /// The victim's p99 without an attack.
    quiet_p99_ms: Option<f64>,
    figures: Figures,
    answers: ResponseCounts,
}

/// Attacker and victim at one server.
struct AttackMeasurement<'a> {
    server: &'a Server,
    attacker: ServerEndpoint,
    victim: ServerEndpoint,
    attacker_token: String,
    victim_token: String,
    /// Numbers of attacker connections.
    connections: Vec<usize>,
    plan: &'a Plan,
}

/// Measures every victim and prints the table. Fails if a limit is exceeded.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let launch = &args.target.launch;
    let plan = args.plan();
    let connections = if plan.clients == CLIENTS { DEFAULT_CONNECTIONS.to_vec() } else { vec![plan.clients.into()] };
    let server = Server::launch(launch).await?;
    let store = server.store()?;
    let [attacker_token, victim_token] = prepare(&server, plan.quiet).await?;
    let attacker = server.endpoint.clone();
    let victim = server.endpoint.clone();
    let duel =
        AttackMeasurement { server: &server, attacker, victim, attacker_token, victim_token, connections, plan: &plan };
    let mut parts = Vec::new();
    let mut outcome = duel.measure(victims(&server).await?, &mut parts).await;
    let connections = duel.connections;
    if launch.postgres.is_none() && outcome.is_ok() && !is_interrupted() {
        drop(server);
        let server = Server::over_tls(launch).await?;
        let [attacker, victim] = [ATTACKER, VICTIM].map(|address| server.endpoint.with_source_address(address));
        // The tokens were removed with the first server; handshakes need none.
        let [attacker_token, victim_token] = <[String; 2]>::default();
        let duel = AttackMeasurement {
            server: &server,
            attacker,
            victim,
            attacker_token,
            victim_token,
            connections,
            plan: &plan,
        };
        outcome = duel.measure(vec![handshakes()], &mut parts).await;
    }
    let json: Vec<Value> = parts.iter().map(AttackPart::json).collect::<Result<_, _>>()?;
    let columns = [
        ("victim", "/victim"),
        ("attack", "/attack"),
        ("connections", "/connections"),
        ("p50 ms", "/p50_ms"),
        ("p99 ms", "/p99_ms"),
        ("ratio", "/ratio"),
        ("MiB", "/resident_mib"),
        ("", "/holds"),
        ("errors", "/errors"),
        ("answers to the attacker", "/answers"),
    ];
    Report::new("attack", json!({ "scenario": "attack", "store": store, "parts": json }))
        .table("victims during the attacks", "/parts", &columns)
        .publish(&args.outputs)?;
    outcome?;
    let missed: Vec<String> = parts.iter().filter(|part| !part.holds()).map(AttackPart::title).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("limits exceeded: {}", missed.join("; "))) }
}

impl AttackMeasurement<'_> {
    /// Measures each victim without an attack, and during each of its attacks.
    async fn measure(&self, victims: Vec<Victim>, parts: &mut Vec<AttackPart>) -> Result<(), String> {
        for Victim { class, rate, attacks } in victims {
            if is_interrupted() {
                return Ok(());
            }
            let victim = class.name.clone();
            let figures = self.victim_run(&class, rate).await?;
            let quiet_p99_ms = figures.only()?.percentile_ms(99.0);
            let answers = ResponseCounts::new();
            parts.push(AttackPart { attack: "none", victim, connections: 0, quiet_p99_ms, figures, answers });
            for request in attacks {
                for connections in self.connections.iter().copied() {
                    if is_interrupted() {
                        return Ok(());
                    }
                    let name = request.name;
                    let token = self.attacker_token.clone();
                    let requests = vec![request.clone()];
                    let endpoint = self.attacker.clone();
                    let attacker = BackgroundLoad { endpoint, token, connections, requests, pause: None };
                    let (figures, mut answers) = attacker.during(self.victim_run(&class, rate)).await?;
                    let victim = class.name.clone();
                    let answers = answers.remove(name).unwrap_or_default();
                    let part = AttackPart { attack: name, victim, connections, quiet_p99_ms, figures, answers };
                    let verdict = if part.holds() { "held" } else { "missed" };
                    print_progress(self.plan.quiet, &format!("{}: {verdict}", part.title()));
                    parts.push(part);
                    // Waits until the server has processed queued requests of this attack, which would affect the next
                    // part.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        Ok(())
    }

    async fn victim_run(&self, victim: &RequestClass, rate: f64) -> Result<Figures, String> {
        let pace = Pace { rate: Some(rate), ramp: Duration::ZERO };
        let time = Duration::from_secs(self.plan.seconds);
        let bounds = RunLimits { requests: u64::MAX, time, pace, quiet: true };
        let access = ServerAccess { endpoint: &self.victim, token: &self.victim_token, ..self.server.access() };
        drive(&access, vec![victim.clone()], &bounds, self.server.watched).await
    }
}

impl AttackPart {
    fn title(&self) -> String {
        format!("{} connections of {} during {}", self.connections, self.attack, self.victim)
    }

    fn p99_ms(&self) -> Option<f64> {
        self.figures.only().ok()?.percentile_ms(99.0)
    }

    fn resident_mib(&self) -> f64 {
        let samples = self.figures.samples.iter().filter_map(|sample| sample.resident_mib);
        samples.chain(self.figures.server_mib).fold(0.0, f64::max)
    }

    fn holds(&self) -> bool {
        let p99s = self.p99_ms().zip(self.quiet_p99_ms);
        let is_fast = p99s.is_some_and(|(p99, quiet)| p99 <= (MAX_RATIO * quiet).max(MAX_P99_MS));
        is_fast && self.figures.errors().is_empty() && self.resident_mib() <= MAX_RESIDENT_MIB
    }

    fn json(&self) -> Result<Value, String> {
        let mut json = self.figures.only()?.part_json();
        json["attack"] = self.attack.into();
        json["victim"] = self.victim.clone().into();
        json["connections"] = self.connections.into();
        json["ratio"] = json!(self.p99_ms().zip(self.quiet_p99_ms).map(|(p99, quiet)| p99 / quiet));
        json["resident_mib"] = self.resident_mib().into();
        json["answers"] = json!(self.answers);
        json["holds"] = self.holds().into();
        Ok(json)
    }
}

/// Creates the objects for attacker and victim, and returns their tokens.
async fn prepare(server: &Server, quiet: bool) -> Result<[String; 2], String> {
    let provisioner = server.access().provisioner;
    let prefix = provisioner.name();
    let all = "path \"*\" { capabilities = [\"create\", \"read\", \"update\", \"delete\", \"list\", \"sudo\"] }";
    provisioner.policy(prefix, all).await?;
    provisioner.role(MOUNT, &format!("{prefix}-victim"), &role("ec", 256, false)).await?;
    let rsa_mount = format!("{prefix}{RSA_SUFFIX}");
    provisioner.mount(&rsa_mount, &json!({ "type": "pki" })).await?;
    let root = json!({ "common_name": "RSA root", "key_type": "rsa", "key_bits": 4096, "ttl": "240h" });
    provisioner.post(&format!("/v1/{rsa_mount}/root/generate/internal"), &root).await?;
    provisioner.role(MOUNT, &format!("{prefix}-p12"), &role("ec", 256, true)).await?;
    provisioner.role(MOUNT, &format!("{prefix}-rsa-keys"), &role("rsa", 2048, true)).await?;
    provisioner.role(&rsa_mount, "leaf", &role("ec", 256, true)).await?;
    provisioner.role(&rsa_mount, "stored", &role("ec", 256, false)).await?;
    let leaf = json!({ "common_name": "leaf.example.test" });
    provisioner.post(&format!("/v1/{rsa_mount}/issue/stored"), &leaf).await?;
    // The requests of the run will create these objects, so their removal is registered here.
    for (kind, path) in [
        ("role", role_path(prefix, "victim-2")),
        ("role", role_path(prefix, "attack")),
        ("policy", policy_path(prefix, "victim")),
        ("policy", policy_path(prefix, "attacked")),
    ] {
        provisioner.remove_later(format!("the {kind} at {path}"), Api::Secrets, path);
    }
    preload::fill(&server.access(), MountContents { certificates: LISTED_CERTIFICATES, revoked: 0 }, None, quiet)
        .await?;
    let token = json!({ "policies": [prefix], "ttl": "24h" });
    Ok([provisioner.token(&token).await?, provisioner.token(&token).await?])
}

fn role(key_type: &str, key_bits: u32, no_store: bool) -> Value {
    json!({ "allow_any_name": true, "key_type": key_type, "key_bits": key_bits, "ttl": "24h",
        "no_store": no_store })
}

fn role_path(prefix: &str, name: &str) -> String {
    format!("/v1/{MOUNT}/roles/{prefix}-{name}")
}

fn policy_path(prefix: &str, name: &str) -> String {
    format!("/v1/sys/policies/acl/{prefix}-{name}")
}

fn policy(name: &str) -> Value {
    json!({ "policy": format!("path \"secret/{name}\" {{ capabilities = [\"read\"] }}") })
}

async fn victims(server: &Server) -> Result<Vec<Victim>, String> {
    let prefix = server.access().provisioner.name();
    let rsa_mount = format!("{prefix}{RSA_SUFFIX}");
    let access = ServerAccess { mount: &rsa_mount, ..server.access() };
    let about = CertificateRequests::find(&access, 1).await?.class(&Method::GET, true, 1);
    let ocsp = String::from_utf8_lossy(&about.bodies[0]).into_owned();
    let list = Method::from_bytes(b"LIST").map_err(|e| e.to_string())?;
    let leaf = json!({ "common_name": "attack.example.test" });
    let sign = post("rsa-sign", format!("/v1/{rsa_mount}/issue/leaf"), &leaf);
    let nonce = RepeatedRequest { has_token: false, ..get("ocsp-nonce", ocsp) };
    let role = post("role-writes", role_path(prefix, "attack"), &any_name());
    let policies = post("policy-writes", policy_path(prefix, "attacked"), &policy("attacked"));
    let detailed = get("detailed-list", format!("/v1/{MOUNT}/certs/detailed?limit=250"));
    let names = get("gzip-list", format!("/v1/{MOUNT}/certs?limit=1000"));
    let p12 = json!({ "common_name": "attack.example.test", "format": "p12", "password": "secret" });
    // The server detects the wrong password only after the key derivation, and imports nothing.
    let import = json!({ "p12": SLOW_PKCS12, "password": "wrong" });
    let issue = vec![
        sign.clone(),
        post("rsa-keys", format!("/v1/{MOUNT}/issue/{prefix}-rsa-keys"), &leaf),
        post("p12-issue", format!("/v1/{MOUNT}/issue/{prefix}-p12"), &p12),
        post("p12-import", format!("/v1/{MOUNT}/issuers/import/bundle"), &import),
        nonce.clone(),
        RepeatedRequest { method: list.clone(), ..detailed },
        RepeatedRequest { method: list, gzip: true, ..names },
        role.clone(),
        policies.clone(),
    ];
    let victim = json!({ "common_name": "victim.example.test" });
    Ok(vec![
        writer("issue", VICTIM_RATE, format!("/v1/{MOUNT}/issue/{prefix}-victim"), &victim, issue),
        writer(
            "issue, RSA-4096 authority",
            VICTIM_RATE,
            format!("/v1/{rsa_mount}/issue/leaf"),
            &victim,
            vec![sign, nonce],
        ),
        writer("role write", SLOW_VICTIM_RATE, role_path(prefix, "victim-2"), &any_name(), vec![role]),
        writer("policy write", SLOW_VICTIM_RATE, policy_path(prefix, "victim"), &policy("victim"), vec![policies]),
    ])
}

fn any_name() -> Value {
    json!({ "allow_any_name": true })
}

fn get(name: &'static str, path: String) -> RepeatedRequest {
    RepeatedRequest::get(name, Api::Secrets, path)
}

fn post(name: &'static str, path: String, body: &Value) -> RepeatedRequest {
    RepeatedRequest::post(name, Api::Secrets, path, body.to_string())
}

/// Returns a victim that sends POST requests.
fn writer(name: &str, rate: f64, path: String, body: &Value, attacks: Vec<RepeatedRequest>) -> Victim {
    let class = RequestClass::post(name, VICTIM_CONNECTIONS, path, vec![body.to_string().into()], |_| true);
    Victim { class, rate, attacks }
}

/// Returns a victim and an attacker that perform TLS handshakes with a server that has an RSA-4096 key.
fn handshakes() -> Victim {
    let attack = RepeatedRequest { has_token: false, ..get("handshakes", HEALTH.to_owned()) };
    Victim {
        class: RequestClass::get("connect, RSA-4096", VICTIM_CONNECTIONS, HEALTH),
        rate: SLOW_VICTIM_RATE,
        attacks: vec![attack],
    }
}
