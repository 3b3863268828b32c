//! The scenario `crowd`: the effect of one token with many connections on other callers. The others look up their own
//! token, alone and while the crowd repeats one kind of long request.
//!
//! The server may serve the crowd's requests, or reject them as invalid or too many. The p99 limit of the others is 50
//! ms, because people notice a delay of a tenth of a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::Args;
use crate::client::{Client, Peer, Wire};
use crate::drive::{Answered, Bounds, Class, Place, drive};
use crate::format::counts;
use crate::pace::Pace;
use crate::proc::Watched;
use crate::run_context::is_interrupted;
use crate::server::Started;

/// Default number of crowd connections.
const CLIENTS: usize = 50;
/// Connections of the other callers, and their total requests per second.
const OTHERS: usize = 8;
const RATE: f64 = 160.0;
/// p99 limit of the other callers in milliseconds.
const MAX_P99_MS: f64 = 50.0;
/// Size of a long body in bytes, below the server's limit so that it is read.
const SIZE: usize = 3_700_000;
/// Workspaces in the lists, and tags of each workspace.
const WORKSPACES: usize = 120;
const TAGS: usize = 9;
/// Time between the start of the crowd and the measurement.
const BEFORE: Duration = Duration::from_millis(500);
const WORKSPACES_PATH: &str = "/api/v2/organizations/dev/workspaces";

/// The request that a crowd repeats.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// `true`: the response may be compressed.
    pub(crate) gzip: bool,
}

impl Kind {
    /// Returns a GET.
    pub(crate) fn get(name: &'static str, wire: Wire, path: impl Into<String>) -> Self {
        Self { name, wire, method: Method::GET, path: path.into(), body: Bytes::new(), gzip: false }
    }

    /// Returns a POST.
    pub(crate) fn post(name: &'static str, wire: Wire, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(name, wire, path) }
    }
}

/// Number of responses by status or error.
pub(crate) type Answers = BTreeMap<String, u64>;

struct Part {
    name: &'static str,
    others: Answered,
    answers: Answers,
}

/// Runs every part and prints the verdict. Fails if the p99 limit is exceeded, or if a response to the crowd blames the
/// server.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let server = Started::launch(&args.launch()?).await?;
    let clients = if args.clients == crate::CLIENTS { CLIENTS } else { args.clients.into() };
    let one = token(&server).await?;
    let others = token(&server).await?;
    let kinds = kinds(&server).await?;
    let alone = looked_up(args, &server, &others).await?;
    let mut parts = vec![Part { name: "none", others: alone, answers: Answers::new() }];
    for kind in kinds {
        if is_interrupted() {
            break;
        }
        let name = kind.name;
        let token = if kind.wire == Wire::Projects { &server.token } else { &one };
        let crowd = Crowd::start(&server.peer, token, clients, kind)?;
        let (others, answers) = crowd.during(looked_up(args, &server, &others)).await?;
        parts.push(Part { name, answers, others });
    }
    let store = server.store()?;
    print(&store, clients, &parts);
    let shown: Vec<Value> = parts.iter().map(json_of).collect();
    args.outputs.write_json(
        &json!({ "scenario": "crowd", "store": store, "clients": clients, "parts": shown, "at_most_ms": MAX_P99_MS }),
    )?;
    let wrong = parts.iter().filter(|part| !part.answers.keys().all(|answer| is_fair(answer)));
    let wrong: Vec<&str> = wrong.map(|part| part.name).collect();
    if !wrong.is_empty() {
        return Err(format!("server errors for requests of the crowd: {}", wrong.join(", ")));
    }
    let missed: Vec<&str> = parts.iter().filter(|part| !part.holds()).map(|part| part.name).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("p99 above {MAX_P99_MS} ms during: {}", missed.join(", "))) }
}

impl Part {
    fn holds(&self) -> bool {
        self.others.errors.is_empty() && self.others.known(99.0).is_some_and(|p99| p99 <= MAX_P99_MS)
    }
}

/// `true` for a success, and for an error that blames the sender.
fn is_fair(answer: &str) -> bool {
    answer.starts_with('2') || matches!(answer, "400" | "413" | "422" | "429")
}

async fn token(server: &Started) -> Result<String, String> {
    let body = json!({ "policies": ["default"], "no_default_policy": false, "ttl": "24h" });
    server.place().provisioner.token(&body).await
}

async fn looked_up(args: &Args, server: &Started, token: &str) -> Result<Answered, String> {
    let pace = Pace { rate: Some(RATE), ramp: Duration::ZERO };
    let time = Duration::from_secs(args.seconds);
    let bounds = Bounds { requests: u64::MAX, time, pace, quiet: args.quiet };
    let class = Class {
        plausible: |answer| answer["data"]["accessor"].is_string(),
        ..Class::get("others", OTHERS, "/v1/auth/token/lookup-self")
    };
    let place = Place { token, ..server.place() };
    let figures = drive(&place, vec![class], &bounds, Watched::default()).await?;
    figures.classes.into_iter().next().ok_or_else(|| "internal error: the run returned no class".to_owned())
}

/// Connections that repeat one request until they are stopped, on a separate thread.
pub(crate) struct Crowd {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Answers>,
}

impl Crowd {
    pub(crate) fn start(peer: &Peer, token: &str, clients: usize, kind: Kind) -> Result<Self, String> {
        let over = Arc::<AtomicBool>::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let peer = peer.clone();
        let token = token.to_owned();
        let told = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let kind = Arc::new(kind);
            runtime.block_on(async {
                let one = || repeated(peer.clone(), token.clone(), Arc::clone(&kind), Arc::clone(&told));
                let all: Vec<_> = (0..clients).map(|_| tokio::spawn(one())).collect();
                let mut sum = Answers::new();
                for one in all {
                    for (answer, count) in one.await.unwrap_or_default() {
                        *sum.entry(answer).or_default() += count;
                    }
                }
                sum
            })
        });
        Ok(Self { over, thread })
    }

    /// Measures once the crowd is at work, and stops it. Returns both results.
    pub(crate) async fn during<T>(
        self,
        measurement: impl Future<Output = Result<T, String>>,
    ) -> Result<(T, Answers), String> {
        tokio::time::sleep(BEFORE).await;
        let measured = measurement.await;
        self.over.store(true, Ordering::Relaxed);
        let answers = self.thread.join().map_err(|_| "the thread of the crowd panicked".to_owned())?;
        Ok((measured?, answers))
    }
}

async fn repeated(peer: Peer, token: String, kind: Arc<Kind>, over: Arc<AtomicBool>) -> Answers {
    let mut answers = Answers::new();
    let mut connection = None;
    while !over.load(Ordering::Relaxed) {
        let answer = match &mut connection {
            None => match Client::connect_as(&peer, &token, kind.wire).await {
                Ok(made) => {
                    connection = Some(made.accepting_gzip(kind.gzip));
                    continue;
                }
                Err(cause) => Err(cause),
            },
            Some(client) => client.send(kind.method.clone(), &kind.path, kind.body.clone()).await,
        };
        let answer = answer.map_or_else(|cause| cause, |answer| answer.status.as_u16().to_string());
        if !is_fair(&answer) {
            connection = None;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        *answers.entry(answer).or_default() += 1;
    }
    answers
}

/// Creates the workspaces for the lists, and returns one request of every kind.
async fn kinds(server: &Started) -> Result<Vec<Kind>, String> {
    let mut client = Client::connect_as(&server.peer, &server.token, Wire::Projects).await?;
    for n in 0..WORKSPACES {
        let body = workspace(&format!("crowd-{n}"), &tags());
        // 422: the workspace is left over from a killed run.
        let answer = client.send(Method::POST, WORKSPACES_PATH, body).await?;
        if !matches!(answer.status.as_u16(), 201 | 422) {
            return Err(answer.unexpected("making a workspace"));
        }
        let made: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if let Some(id) = made["data"]["id"].as_str() {
            let path = format!("/api/v2/workspaces/{id}");
            server.place().provisioner.remove_later(format!("the workspace crowd-{n}"), Wire::Projects, path);
        }
    }
    let wrap = "/v1/sys/wrapping/wrap";
    let rights = "/v1/sys/capabilities-self";
    let include = "include=organization,project,effective_tag_bindings";
    let numbers = format!("{{\"data\":[0{}]}}", ",0".repeat(SIZE / 2));
    let text = workspace(&"a".repeat(SIZE), "[]");
    let paths: Vec<String> = (0..1_000).map(|n| format!("secret/a/path/number/{n}")).collect();
    let values: serde_json::Map<String, Value> = (0..9_000).map(|n| (format!("key-{n}"), n.into())).collect();
    Ok(vec![
        Kind::get(
            "a page of 100 with all includes",
            Wire::Projects,
            format!("{WORKSPACES_PATH}?page%5Bsize%5D=100&{include}"),
        ),
        Kind::get("a page of 20", Wire::Projects, WORKSPACES_PATH),
        Kind::post("a document of numbers", Wire::Projects, WORKSPACES_PATH, numbers),
        Kind::post("a document with a long name", Wire::Projects, WORKSPACES_PATH, text),
        Kind::post("a body of one long text", Wire::Secrets, wrap, json!({ "text": "a".repeat(SIZE) }).to_string()),
        Kind::post("a body of 9,000 values", Wire::Secrets, wrap, Value::from(values).to_string()),
        Kind::post("rights on 1,000 paths", Wire::Secrets, rights, json!({ "paths": paths }).to_string()),
    ])
}

fn workspace(name: &str, tags: &str) -> Bytes {
    format!(
        "{{\"data\":{{\"type\":\"workspaces\",\"attributes\":{{\"name\":\"{name}\"}},\
         \"relationships\":{{\"tag-bindings\":{{\"data\":{tags}}}}}}}}}"
    )
    .into()
}

fn tags() -> String {
    let one =
        |n| json!({ "type": "tag-bindings", "attributes": { "key": format!("key-{n}"), "value": format!("{n}") } });
    Value::from((0..TAGS).map(one).collect::<Vec<_>>()).to_string()
}

fn json_of(part: &Part) -> Value {
    let others = &part.others;
    json!({ "beside": part.name, "requests": others.count(), "errors": others.errors, "answers": part.answers,
        "p50_ms": others.known(50.0), "p99_ms": others.known(99.0), "longest_ms": others.known(100.0),
        "holds": part.holds() })
}

fn print(store: &str, clients: usize, parts: &[Part]) {
    println!("crowd on {store}: {RATE} look-ups a second by {OTHERS} connections, beside {clients} of one other token");
    for part in parts {
        let others = &part.others;
        let verdict = if part.holds() { "holds " } else { "MISSED" };
        println!(
            "  {verdict}  {:<34} p50 {:>7.2}  p99 {:>7.2}  max {:>8.2} ms  {}",
            part.name,
            others.known(50.0).unwrap_or(f64::NAN),
            others.known(99.0).unwrap_or(f64::NAN),
            others.known(100.0).unwrap_or(f64::NAN),
            counts(&part.answers)
        );
        for (cause, count) in &others.errors {
            println!("          {count} × {cause}");
        }
    }
    println!("  p99 at most {MAX_P99_MS} ms");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_read() {
        let read: Value = serde_json::from_slice(&workspace("w", &tags())).unwrap();
        assert_eq!(read["data"]["attributes"]["name"], "w");
        let tags = read["data"]["relationships"]["tag-bindings"]["data"].as_array().unwrap();
        assert_eq!((tags.len(), &tags[8]["attributes"]["key"]), (TAGS, &json!("key-8")));
    }

    #[test]
    fn a_refusal_of_the_sender_is_fair_and_a_failure_is_not() {
        assert!(["200", "201", "400", "413", "422", "429"].iter().all(|answer| is_fair(answer)));
        assert!(["500", "503", "403", "connection reset"].iter().all(|answer| !is_fair(answer)));
    }
}
