//! The scenario `attack`: latency of one token's requests while another token repeats one expensive request on very
//! many connections.
//!
//! Each row of the table is one expensive request, sent by 64, 256 and 900 connections (or `--clients`). The victim's
//! p99 may be three times its value without an attack or 20 ms, whichever is larger; the limit for server memory is 300
//! MiB.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::Args;
use crate::client::{Peer, Wire};
use crate::crowd::{Answers, Crowd, Kind};
use crate::drive::{Answered, Bounds, Class, Figures, Place, drive};
use crate::format::counts;
use crate::ocsp::Asked;
use crate::pace::Pace;
use crate::plan::Stock;
use crate::preload;
use crate::run_context::is_interrupted;
use crate::server::{MOUNT, Started};

/// Default numbers of attacker connections.
const CONNECTIONS: [usize; 3] = [64, 256, 900];
/// Connections of the victim, and its requests per second.
const VICTIMS: usize = 4;
const RATE: f64 = 100.0;
/// Limits: p99 relative to its value without an attack, p99 in milliseconds, memory in MiB.
const MAX_RATIO: f64 = 3.0;
const MAX_P99_MS: f64 = 20.0;
const MAX_RESIDENT_MIB: f64 = 300.0;
/// Certificates in the lists that the attacker requests.
const CERTIFICATES: u64 = 2_000;
/// Suffix of the mount whose CA has an RSA-4096 key.
const RSA_SUFFIX: &str = "-rsa";

/// A PKCS #12 file whose MAC takes 3,000,000 iterations, the most that the server accepts. Created by
/// `openssl pkcs12 -export -nokeys -in ca.pem -iter 3000000 -passout pass:secret | openssl base64`.
const SLOW_PKCS12: &str = include_str!("attack.p12.base64");
/// A request that needs no work beyond HTTP.
const HEALTH: &str = "/v1/sys/health";
/// Source addresses of attacker and victim in the TLS part, where every request has its own connection.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Issue,
    IssueByRsa,
    WriteRole,
    WritePolicy,
    /// A TLS handshake and a request without work.
    Connect,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::IssueByRsa => "issue, RSA-4096 authority",
            Self::WriteRole => "role write",
            Self::WritePolicy => "policy write",
            Self::Connect => "connect, RSA-4096",
        }
    }

    /// Returns the class of the victim's clients. `prefix` starts the names of the run's objects.
    fn class(self, prefix: &str) -> Class {
        let issue = json!({ "common_name": "victim.example.test" });
        let (path, body) = match self {
            Self::Issue => (format!("/v1/{MOUNT}/issue/{prefix}-victim"), issue),
            Self::IssueByRsa => (format!("/v1/{prefix}{RSA_SUFFIX}/issue/leaf"), issue),
            Self::WriteRole => (role_path(prefix, "victim-2"), json!({ "allow_any_name": true })),
            Self::WritePolicy => (policy_path(prefix, "victim"), policy("victim")),
            Self::Connect => (HEALTH.to_owned(), Value::Null),
        };
        let (method, body) = match body {
            Value::Null => (Method::GET, Bytes::new()),
            body => (Method::POST, body.to_string().into()),
        };
        Class { name: self.name().to_owned(), clients: VICTIMS, method, path, bodies: vec![body], ..Class::default() }
    }

    /// Returns the requests per second. A write is a separate commit, and a handshake takes several milliseconds.
    fn rate(self) -> f64 {
        match self {
            Self::Issue | Self::IssueByRsa => RATE,
            Self::WriteRole | Self::WritePolicy | Self::Connect => RATE / 5.0,
        }
    }
}

struct Row {
    kind: Kind,
    /// `false`: the attacker sends no token.
    has_token: bool,
    victim: Victim,
}

struct Part {
    attack: String,
    victim: Victim,
    connections: usize,
    quiet: Option<f64>,
    figures: Measured,
    answers: Answers,
}

struct Measured {
    answered: Answered,
    resident_mib: f64,
}

/// Runs every row and prints the table. Fails if a limit is exceeded.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let launch = args.launch()?;
    let server = Started::launch(&launch).await?;
    let store = server.store()?;
    let tokens = prepare(&server, args.quiet).await?;
    let mut parts = Vec::new();
    let rows = rows(&server).await?;
    let peers = Peers { attacker: server.peer.clone(), victim: server.peer.clone() };
    beside(args, &server, &peers, &tokens, rows, &mut parts).await?;
    if args.target.postgres.is_none() && !is_interrupted() {
        drop(server);
        let server = Started::over_tls(&launch).await?;
        // Dropping the first server removed the tokens; handshakes need none.
        let tokens = Default::default();
        let peers = Peers { attacker: server.peer.anew_from(ATTACKER), victim: server.peer.anew_from(VICTIM) };
        beside(args, &server, &peers, &tokens, vec![handshakes()], &mut parts).await?;
    }
    let shown: Vec<Value> = parts.iter().map(Part::json).collect();
    args.outputs.write_json(&json!({ "scenario": "attack", "store": store, "parts": shown }))?;
    let missed: Vec<String> = parts.iter().filter(|part| !part.holds()).map(Part::title).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("limits exceeded: {}", missed.join("; "))) }
}

struct Peers {
    attacker: Peer,
    victim: Peer,
}

/// Measures the victim during each row, and once per kind of its requests without an attack.
async fn beside(
    args: &Args,
    server: &Started,
    peers: &Peers,
    (attacker, victim): &(String, String),
    rows: Vec<Row>,
    parts: &mut Vec<Part>,
) -> Result<(), String> {
    let sizes = if args.clients == crate::CLIENTS { CONNECTIONS.to_vec() } else { vec![args.clients.into()] };
    let place = Place { peer: &peers.victim, token: victim, ..server.place() };
    let mut quiet = BTreeMap::new();
    for row in rows {
        if is_interrupted() {
            return Ok(());
        }
        if let Entry::Vacant(entry) = quiet.entry(row.victim) {
            let figures = measure(args, server, &place, row.victim).await?;
            let p99 = figures.answered.known(99.0);
            entry.insert(p99);
            let part = Part {
                attack: "nobody".to_owned(),
                victim: row.victim,
                connections: 0,
                quiet: p99,
                figures,
                answers: Answers::new(),
            };
            part.print();
            parts.push(part);
        }
        let token = if row.has_token { attacker } else { "" };
        for connections in &sizes {
            if is_interrupted() {
                return Ok(());
            }
            let crowd = Crowd::start(&peers.attacker, token, *connections, row.kind.clone())?;
            let (figures, answers) = crowd.during(measure(args, server, &place, row.victim)).await?;
            let part = Part {
                attack: row.kind.name.to_owned(),
                victim: row.victim,
                connections: *connections,
                quiet: quiet.get(&row.victim).copied().flatten(),
                answers,
                figures,
            };
            part.print();
            parts.push(part);
            // Queued requests must not affect the next row.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

impl Part {
    fn title(&self) -> String {
        format!("{} × {} beside {}", self.connections, self.attack, self.victim.name())
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.figures.answered.known(99.0)? / self.quiet?)
    }

    fn holds(&self) -> bool {
        let p99 = self.figures.answered.known(99.0);
        let is_fast = p99.zip(self.quiet).is_some_and(|(p99, quiet)| p99 <= (MAX_RATIO * quiet).max(MAX_P99_MS));
        is_fast && self.figures.answered.errors.is_empty() && self.figures.resident_mib <= MAX_RESIDENT_MIB
    }

    fn json(&self) -> Value {
        let answered = &self.figures.answered;
        json!({ "attack": self.attack, "victim": self.victim.name(), "connections": self.connections,
            "requests": answered.count(), "errors": answered.errors, "p50_ms": answered.known(50.0),
            "p99_ms": answered.known(99.0), "ratio": self.ratio(), "resident_mib": self.figures.resident_mib,
            "answers": self.answers, "holds": self.holds() })
    }

    fn print(&self) {
        let answered = &self.figures.answered;
        println!(
            "  {} {:<26} {:>4} × {:<14} p50 {:>8.2}  p99 {:>8.2} ms  {:>6.1} x  {:>5.0} MiB  {} {:?}",
            if self.holds() { "holds " } else { "MISSED" },
            self.victim.name(),
            self.connections,
            self.attack,
            answered.known(50.0).unwrap_or(f64::NAN),
            answered.known(99.0).unwrap_or(f64::NAN),
            self.ratio().unwrap_or(f64::NAN),
            self.figures.resident_mib,
            counts(&self.answers),
            answered.errors,
        );
    }
}

/// Creates the objects for attacker and victim, and returns their tokens.
async fn prepare(server: &Started, quiet: bool) -> Result<(String, String), String> {
    let provisioner = server.place().provisioner;
    let prefix = provisioner.name();
    let all = "path \"*\" { capabilities = [\"create\", \"read\", \"update\", \"delete\", \"list\", \"sudo\"] }";
    provisioner.policy(prefix, all).await?;
    let role = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "ttl": "24h" });
    provisioner.role(MOUNT, &format!("{prefix}-victim"), &role).await?;
    let rsa_mount = format!("{prefix}{RSA_SUFFIX}");
    provisioner.mount(&rsa_mount, &json!({ "type": "pki" })).await?;
    let root = json!({ "common_name": "RSA root", "key_type": "rsa", "key_bits": 4096, "ttl": "240h" });
    provisioner.must(&format!("/v1/{rsa_mount}/root/generate/internal"), &root).await?;
    let unstored = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "ttl": "24h", "no_store": true });
    provisioner.role(MOUNT, &format!("{prefix}-p12"), &unstored).await?;
    let rsa = json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": 2048, "ttl": "24h", "no_store": true });
    provisioner.role(MOUNT, &format!("{prefix}-rsa-keys"), &rsa).await?;
    for (name, no_store) in [("leaf", true), ("stored", false)] {
        let role =
            json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "ttl": "24h", "no_store": no_store });
        provisioner.role(&rsa_mount, name, &role).await?;
    }
    let leaf = json!({ "common_name": "leaf.example.test" });
    provisioner.must(&format!("/v1/{rsa_mount}/issue/stored"), &leaf).await?;
    // The requests of the run create these objects.
    for (kind, path) in [
        ("role", role_path(prefix, "victim-2")),
        ("role", role_path(prefix, "attack")),
        ("policy", policy_path(prefix, "victim")),
        ("policy", policy_path(prefix, "attacked")),
    ] {
        provisioner.remove_later(format!("the {kind} at {path}"), Wire::Secrets, path);
    }
    preload::fill(&server.place(), Stock { certificates: CERTIFICATES, revoked: 0 }, None, quiet).await?;
    let token = json!({ "policies": [prefix], "ttl": "24h" });
    Ok((provisioner.token(&token).await?, provisioner.token(&token).await?))
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

async fn rows(server: &Started) -> Result<Vec<Row>, String> {
    let prefix = server.place().provisioner.name();
    let rsa_mount = format!("{prefix}{RSA_SUFFIX}");
    let place = Place { mount: &rsa_mount, ..server.place() };
    let about = Asked::find(&place, 1).await?.class(&Method::GET, true, 1);
    let ocsp = String::from_utf8_lossy(&about.bodies[0]).into_owned();
    let list = Method::from_bytes(b"LIST").map_err(|e| e.to_string())?;
    let leaf = json!({ "common_name": "attack.example.test" });
    let sign = post("rsa-sign", format!("/v1/{rsa_mount}/issue/leaf"), &leaf);
    let nonce = get("ocsp-nonce", ocsp);
    let role = post("role-writes", role_path(prefix, "attack"), &json!({ "allow_any_name": true }));
    let policies = post("policy-writes", policy_path(prefix, "attacked"), &policy("attacked"));
    let detailed = get("detailed-list", format!("/v1/{MOUNT}/certs/detailed?limit=250"));
    let names = get("gzip-list", format!("/v1/{MOUNT}/certs?limit=1000"));
    let p12 = json!({ "common_name": "attack.example.test", "format": "p12", "password": "secret" });
    // The server detects the wrong password only after the key derivation, and imports nothing.
    let import = json!({ "p12": SLOW_PKCS12, "password": "wrong" });
    Ok(vec![
        row(sign.clone(), Victim::Issue),
        row(post("rsa-keys", format!("/v1/{MOUNT}/issue/{prefix}-rsa-keys"), &leaf), Victim::Issue),
        row(post("p12-issue", format!("/v1/{MOUNT}/issue/{prefix}-p12"), &p12), Victim::Issue),
        row(post("p12-import", format!("/v1/{MOUNT}/issuers/import/bundle"), &import), Victim::Issue),
        Row { has_token: false, ..row(nonce.clone(), Victim::Issue) },
        row(Kind { method: list.clone(), ..detailed }, Victim::Issue),
        row(Kind { method: list, gzip: true, ..names }, Victim::Issue),
        row(role.clone(), Victim::Issue),
        row(policies.clone(), Victim::Issue),
        row(sign, Victim::IssueByRsa),
        Row { has_token: false, ..row(nonce, Victim::IssueByRsa) },
        row(role, Victim::WriteRole),
        row(policies, Victim::WritePolicy),
    ])
}

fn row(kind: Kind, victim: Victim) -> Row {
    Row { kind, has_token: true, victim }
}

fn get(name: &'static str, path: String) -> Kind {
    Kind::get(name, Wire::Secrets, path)
}

fn post(name: &'static str, path: String, body: &Value) -> Kind {
    Kind::post(name, Wire::Secrets, path, body.to_string())
}

/// TLS handshakes with a server that has an RSA-4096 key.
fn handshakes() -> Row {
    Row { has_token: false, ..row(get("handshakes", HEALTH.to_owned()), Victim::Connect) }
}

async fn measure(args: &Args, server: &Started, place: &Place<'_>, victim: Victim) -> Result<Measured, String> {
    let pace = Pace { rate: Some(victim.rate()), ramp: Duration::ZERO };
    let bounds = Bounds { requests: u64::MAX, time: Duration::from_secs(args.seconds), pace, quiet: true };
    let Figures { classes, server_mib, samples, .. } =
        drive(place, vec![victim.class(server.place().provisioner.name())], &bounds, server.watched()).await?;
    let answered = classes.into_iter().next().ok_or("internal error: the run returned no class")?;
    let resident = samples.iter().filter_map(|sample| sample.resident_mib).chain(server_mib).fold(0.0, f64::max);
    Ok(Measured { answered, resident_mib: resident })
}
