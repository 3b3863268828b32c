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
/// Connections of the victim, and its requests per second: for `issue`, and for other requests.
const VICTIMS: usize = 4;
const RATE: f64 = 100.0;
const SLOW_RATE: f64 = RATE / 5.0;
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

/// The repeated request of a victim, and the attacks during which it is measured.
struct Victim {
    class: Class,
    /// Requests per second. A write is a separate commit, and a handshake takes several milliseconds.
    rate: f64,
    attacks: Vec<Attack>,
}

struct Attack {
    kind: Kind,
    /// `false`: the attacker sends no token.
    has_token: bool,
}

struct Part {
    attack: &'static str,
    victim: String,
    connections: usize,
    quiet: Option<f64>,
    figures: Measured,
    answers: Answers,
}

struct Measured {
    answered: Answered,
    resident_mib: f64,
}

/// Measures every victim and prints the table. Fails if a limit is exceeded.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let launch = args.launch()?;
    let server = Started::launch(&launch).await?;
    let store = server.store()?;
    let tokens = prepare(&server, args.quiet).await?;
    let mut parts = Vec::new();
    let victims = victims(&server).await?;
    let peers = Peers { attacker: server.peer.clone(), victim: server.peer.clone() };
    beside(args, &server, &peers, &tokens, victims, &mut parts).await?;
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

/// Measures each victim without an attack, and during each of its attacks.
async fn beside(
    args: &Args,
    server: &Started,
    peers: &Peers,
    (attacker, token): &(String, String),
    victims: Vec<Victim>,
    parts: &mut Vec<Part>,
) -> Result<(), String> {
    let sizes = if args.clients == crate::CLIENTS { CONNECTIONS.to_vec() } else { vec![args.clients.into()] };
    let place = Place { peer: &peers.victim, token, ..server.place() };
    let mut done = |part: Part| {
        part.print();
        parts.push(part);
    };
    for Victim { class, rate, attacks } in victims {
        if is_interrupted() {
            return Ok(());
        }
        let victim = class.name.clone();
        let figures = measure(args, server, &place, &class, rate).await?;
        let quiet = figures.answered.known(99.0);
        let answers = Answers::new();
        done(Part { attack: "none", victim: victim.clone(), connections: 0, quiet, figures, answers });
        for Attack { kind, has_token } in attacks {
            let token = if has_token { attacker } else { "" };
            for connections in sizes.iter().copied() {
                if is_interrupted() {
                    return Ok(());
                }
                let crowd = Crowd::start(&peers.attacker, token, connections, kind.clone())?;
                let (figures, answers) = crowd.during(measure(args, server, &place, &class, rate)).await?;
                done(Part { attack: kind.name, victim: victim.clone(), connections, quiet, figures, answers });
                // Queued requests must not affect the next part.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    Ok(())
}

impl Part {
    fn title(&self) -> String {
        format!("{} × {} beside {}", self.connections, self.attack, self.victim)
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
        json!({ "attack": self.attack, "victim": self.victim, "connections": self.connections,
            "requests": answered.count(), "errors": answered.errors, "p50_ms": answered.known(50.0),
            "p99_ms": answered.known(99.0), "ratio": self.ratio(), "resident_mib": self.figures.resident_mib,
            "answers": self.answers, "holds": self.holds() })
    }

    fn print(&self) {
        let answered = &self.figures.answered;
        println!(
            "  {} {:<26} {:>4} × {:<14} p50 {:>8.2}  p99 {:>8.2} ms  {:>6.1} x  {:>5.0} MiB  {} {:?}",
            if self.holds() { "holds " } else { "MISSED" },
            self.victim,
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
    provisioner.role(MOUNT, &format!("{prefix}-victim"), &role("ec", 256, false)).await?;
    let rsa_mount = format!("{prefix}{RSA_SUFFIX}");
    provisioner.mount(&rsa_mount, &json!({ "type": "pki" })).await?;
    let root = json!({ "common_name": "RSA root", "key_type": "rsa", "key_bits": 4096, "ttl": "240h" });
    provisioner.must(&format!("/v1/{rsa_mount}/root/generate/internal"), &root).await?;
    provisioner.role(MOUNT, &format!("{prefix}-p12"), &role("ec", 256, true)).await?;
    provisioner.role(MOUNT, &format!("{prefix}-rsa-keys"), &role("rsa", 2048, true)).await?;
    provisioner.role(&rsa_mount, "leaf", &role("ec", 256, true)).await?;
    provisioner.role(&rsa_mount, "stored", &role("ec", 256, false)).await?;
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

async fn victims(server: &Started) -> Result<Vec<Victim>, String> {
    let prefix = server.place().provisioner.name();
    let rsa_mount = format!("{prefix}{RSA_SUFFIX}");
    let place = Place { mount: &rsa_mount, ..server.place() };
    let about = Asked::find(&place, 1).await?.class(&Method::GET, true, 1);
    let ocsp = String::from_utf8_lossy(&about.bodies[0]).into_owned();
    let list = Method::from_bytes(b"LIST").map_err(|e| e.to_string())?;
    let leaf = json!({ "common_name": "attack.example.test" });
    let sign = post("rsa-sign", format!("/v1/{rsa_mount}/issue/leaf"), &leaf);
    let nonce = Attack { has_token: false, ..attack(get("ocsp-nonce", ocsp)) };
    let again = Attack { kind: nonce.kind.clone(), ..nonce };
    let role = post("role-writes", role_path(prefix, "attack"), &any_name());
    let policies = post("policy-writes", policy_path(prefix, "attacked"), &policy("attacked"));
    let detailed = get("detailed-list", format!("/v1/{MOUNT}/certs/detailed?limit=250"));
    let names = get("gzip-list", format!("/v1/{MOUNT}/certs?limit=1000"));
    let p12 = json!({ "common_name": "attack.example.test", "format": "p12", "password": "secret" });
    // The server detects the wrong password only after the key derivation, and imports nothing.
    let import = json!({ "p12": SLOW_PKCS12, "password": "wrong" });
    let issue = vec![
        attack(sign.clone()),
        attack(post("rsa-keys", format!("/v1/{MOUNT}/issue/{prefix}-rsa-keys"), &leaf)),
        attack(post("p12-issue", format!("/v1/{MOUNT}/issue/{prefix}-p12"), &p12)),
        attack(post("p12-import", format!("/v1/{MOUNT}/issuers/import/bundle"), &import)),
        nonce,
        attack(Kind { method: list.clone(), ..detailed }),
        attack(Kind { method: list, gzip: true, ..names }),
        attack(role.clone()),
        attack(policies.clone()),
    ];
    let victim = json!({ "common_name": "victim.example.test" });
    Ok(vec![
        writer("issue", RATE, format!("/v1/{MOUNT}/issue/{prefix}-victim"), &victim, issue),
        writer(
            "issue, RSA-4096 authority",
            RATE,
            format!("/v1/{rsa_mount}/issue/leaf"),
            &victim,
            vec![attack(sign), again],
        ),
        writer("role write", SLOW_RATE, role_path(prefix, "victim-2"), &any_name(), vec![attack(role)]),
        writer("policy write", SLOW_RATE, policy_path(prefix, "victim"), &policy("victim"), vec![attack(policies)]),
    ])
}

fn any_name() -> Value {
    json!({ "allow_any_name": true })
}

fn attack(kind: Kind) -> Attack {
    Attack { kind, has_token: true }
}

fn get(name: &'static str, path: String) -> Kind {
    Kind::get(name, Wire::Secrets, path)
}

fn post(name: &'static str, path: String, body: &Value) -> Kind {
    Kind::post(name, Wire::Secrets, path, body.to_string())
}

/// Returns a victim that sends POST requests.
fn writer(name: &str, rate: f64, path: String, body: &Value, attacks: Vec<Attack>) -> Victim {
    let class = Class::post(name, VICTIMS, path, vec![body.to_string().into()], |_| true);
    Victim { class, rate, attacks }
}

/// Returns a victim and an attacker that perform TLS handshakes with a server that has an RSA-4096 key.
fn handshakes() -> Victim {
    let attack = Attack { kind: get("handshakes", HEALTH.to_owned()), has_token: false };
    Victim { class: Class::get("connect, RSA-4096", VICTIMS, HEALTH), rate: SLOW_RATE, attacks: vec![attack] }
}

async fn measure(
    args: &Args,
    server: &Started,
    place: &Place<'_>,
    victim: &Class,
    rate: f64,
) -> Result<Measured, String> {
    let pace = Pace { rate: Some(rate), ramp: Duration::ZERO };
    let bounds = Bounds { requests: u64::MAX, time: Duration::from_secs(args.seconds), pace, quiet: true };
    let Figures { classes, server_mib, samples, .. } =
        drive(place, vec![victim.clone()], &bounds, server.watched()).await?;
    let answered = classes.into_iter().next().ok_or("internal error: the run returned no class")?;
    let resident = samples.iter().filter_map(|sample| sample.resident_mib).chain(server_mib).fold(0.0, f64::max);
    Ok(Measured { answered, resident_mib: resident })
}
