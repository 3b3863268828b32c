//! The scenario `oversize`: `pki/issue` alone, then while other clients send 4 MB in everything that a caller can make
//! long: arrays, lists in strings, nesting, PEM, certificates with many extensions, JSON:API documents.
//!
//! The server must reject each of these as a client error, and the p99 of `issue` may be at most three times its value
//! alone. The oversized requests are paced: the scenario measures how long one of them delays others, not the load of
//! sending them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Client, Peer, Wire};
use crate::crowd::{self, Kind};
use crate::der::{OCTET_STRING, SEQUENCE, encode};
use crate::drive::{Answered, Figures};
use crate::format::counts;
use crate::plan;
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::server::Started;
use crate::{Args, Scenario, scenario};

/// Size of a body in bytes, below the server's limit so that it is read.
const SIZE: usize = 4_000_000;
/// Connections that send them, and the pause of each between two requests.
const SENDERS: usize = 4;
const REST: Duration = Duration::from_millis(100);
/// Maximum p99 during oversized requests, relative to its value alone.
const MAX_P99_RATIO: f64 = 3.0;

/// The responses to each oversized request.
type Answers = BTreeMap<&'static str, crowd::Answers>;

/// Runs both parts and prints the verdict. Fails if the limit is exceeded, or if an oversized request is not rejected
/// as a client error.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let server = Started::launch(&args.launch()?).await?;
    let requests = requests(&server).await?;
    let alone = issue(args, &server).await?;
    let senders = Senders::start(&server, requests)?;
    let beside = issue(args, &server).await;
    let answers = senders.end()?;
    if is_interrupted() {
        for figures in [Ok(alone), beside].iter().flatten() {
            figures.print_classes();
        }
        return Err(INTERRUPTED.to_owned());
    }
    let alone = alone.succeeded("issue")?;
    let beside = beside?;
    let beside = beside.succeeded("issue")?;
    let ratio = beside.percentile(99.0) / alone.percentile(99.0);
    let store = server.store()?;
    print(&store, [alone, beside], &answers, ratio);
    let parts = [alone, beside].map(|part| json!({ "requests": part.count(), "p99_ms": part.known(99.0) }));
    args.outputs.write_json(&json!({ "scenario": "oversize", "store": store, "alone": parts[0], "beside": parts[1],
        "p99_ratio": ratio, "at_most": MAX_P99_RATIO, "answers": answers }))?;
    let wrong: Vec<&str> =
        answers.iter().filter(|(_, of)| !of.keys().all(|a| refusal(a))).map(|(name, _)| *name).collect();
    if !wrong.is_empty() {
        return Err(format!("not rejected with a client error: {}", wrong.join(", ")));
    }
    if ratio > MAX_P99_RATIO { Err(format!("p99 during them {ratio:.2} x (limit {MAX_P99_RATIO} x)")) } else { Ok(()) }
}

/// `true` if the status blames the client.
fn refusal(answer: &str) -> bool {
    matches!(answer, "400" | "413" | "414" | "422" | "431")
}

async fn issue(args: &Args, server: &Started) -> Result<Figures, String> {
    let plan = plan::Plan { scenario: Scenario::Issue, ..args.plan(Vec::new()) };
    scenario::run(&plan, &server.place(), server.watched()).await
}

/// Threads that send oversized requests one after the other until `end`.
struct Senders {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Answers>>,
}

impl Senders {
    fn start(server: &Started, requests: Vec<Kind>) -> Result<Self, String> {
        let over = Arc::<AtomicBool>::default();
        let requests = Arc::new(requests);
        let threads = (0..SENDERS).map(|first| {
            let over = Arc::clone(&over);
            let requests = Arc::clone(&requests);
            let peer = server.peer.clone();
            let token = server.token.clone();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            Ok(thread::spawn(move || {
                let mut answers = Answers::new();
                let each = requests.iter().cycle().skip(first * requests.len() / SENDERS);
                for request in each.take_while(|_| !over.load(Ordering::Relaxed)) {
                    thread::sleep(REST);
                    let answer = runtime.block_on(sent(&peer, &token, request)).unwrap_or_else(|cause| cause);
                    *answers.entry(request.name).or_default().entry(answer).or_default() += 1;
                }
                answers
            }))
        });
        let threads = threads.collect::<Result<_, String>>()?;
        Ok(Self { over, threads })
    }

    fn end(self) -> Result<Answers, String> {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Answers::new();
        for thread in self.threads {
            let answers = thread.join().map_err(|_| "a sender of oversized requests died")?;
            for (name, of) in answers {
                let sum = all.entry(name).or_default();
                of.into_iter().for_each(|(answer, count)| *sum.entry(answer).or_default() += count);
            }
        }
        Ok(all)
    }
}

/// Sends a request on a separate connection and returns the status.
async fn sent(peer: &Peer, token: &str, request: &Kind) -> Result<String, String> {
    let mut client = Client::connect_as(peer, token, request.wire).await?;
    let answer = client.send(request.method.clone(), &request.path, request.body.clone()).await?;
    Ok(answer.status.as_u16().to_string())
}

async fn requests(server: &Started) -> Result<Vec<Kind>, String> {
    let mut client = Client::connect_as(&server.peer, &server.token, Wire::Projects).await?;
    let projects = client.send(Method::GET, "/api/v2/organizations/dev/projects", Bytes::new()).await?;
    let projects: Value = serde_json::from_slice(&projects.body).map_err(|e| format!("projects: {e}"))?;
    let project = projects["data"][0]["id"].as_str().ok_or("the organization dev has no project")?;
    let secrets = |name, path: &str, field: &str, value: String| {
        Kind::post(name, Wire::Secrets, path, format!("{{\"common_name\":\"a.example.test\",\"{field}\":{value}}}"))
    };
    let document = |name, method, path: String, data: String| Kind {
        method,
        ..Kind::post(name, Wire::Projects, path, format!("{{\"data\":{data}}}"))
    };
    let texts = format!("[{}]", ["\"a.test\""].repeat(SIZE / 9).join(","));
    let tag = "{\"type\":\"tag-bindings\",\"attributes\":{\"key\":\"k\",\"value\":\"v\"}}";
    let tags = format!("[{}]", [tag].repeat(SIZE / (tag.len() + 1)).join(","));
    let issue = "/v1/pki/issue/dev";
    Ok(vec![
        secrets("an array of numbers", issue, "alt_names", numbers()),
        secrets("an array of texts", issue, "alt_names", texts.clone()),
        secrets("a list in a text", issue, "alt_names", quoted(&"a.test,".repeat(SIZE / 7))),
        secrets("a JSON list in a text", issue, "alt_names", quoted(&numbers())),
        secrets("a long name", issue, "common_name", quoted(&"a".repeat(SIZE))),
        secrets("nesting", issue, "alt_names", "[".repeat(SIZE)),
        secrets("domains of a role", "/v1/pki/roles/oversize", "allowed_domains", quoted(&"a.test,".repeat(SIZE / 7))),
        secrets("a policy", "/v1/sys/policies/acl/oversize", "policy", quoted(&"path a {} ".repeat(SIZE / 10))),
        secrets(
            "PEM of a request",
            "/v1/pki/sign/dev",
            "csr",
            quoted(&pem("CERTIFICATE REQUEST", &vec![0; SIZE / 4 * 3])),
        ),
        secrets("many extensions", "/v1/pki/revoke", "certificate", quoted(&pem("CERTIFICATE", &certificate()))),
        secrets("a bundle of certificates", "/v1/pki/issuers/import/bundle", "pem_bundle", quoted(&bundle())),
        document(
            "relationships",
            Method::POST,
            "/api/v2/organizations/dev/projects".to_owned(),
            format!(
                "{{\"type\":\"projects\",\"attributes\":{{\"name\":\"oversize\"}},\"relationships\":{{\"tag-bindings\":{{\"data\":{}}}}}}}",
                numbers()
            ),
        ),
        document("tag bindings", Method::PATCH, format!("/api/v2/projects/{project}/tag-bindings"), tags),
        document(
            "workspaces to move",
            Method::POST,
            format!("/api/v2/projects/{project}/relationships/workspaces"),
            texts,
        ),
    ])
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns a JSON array of numbers, about [`SIZE`] bytes long.
fn numbers() -> String {
    format!("[0{}]", ",0".repeat(SIZE / 2))
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// Returns about [`SIZE`] bytes of PEM certificates, none of which is valid.
fn bundle() -> String {
    let one = pem("CERTIFICATE", &[0x30, 0]);
    one.repeat(SIZE / (one.len() + 4))
}

/// Returns an unsigned certificate (RFC 5280 section 4.1) of about [`SIZE`] bytes, most of them different extensions.
fn certificate() -> Vec<u8> {
    let extension = |n: usize| {
        // 1.3.6.1.4.1.99999, and the number as an arc of three bytes.
        let arcs = [
            0x2b,
            6,
            1,
            4,
            1,
            0x86,
            0x8d,
            0x1f,
            0x80 | (n >> 14) as u8 & 0x7f,
            0x80 | (n >> 7) as u8 & 0x7f,
            n as u8 & 0x7f,
        ];
        encode(SEQUENCE, &[&encode(0x06, &[&arcs]), &encode(OCTET_STRING, &[&[5, 0]])])
    };
    let extensions: Vec<u8> = (0..SIZE / 28).flat_map(extension).collect();
    let algorithm = encode(SEQUENCE, &[&[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let common_name = encode(SEQUENCE, &[&[0x06, 3, 0x55, 4, 3], &[0x0c, 1, b'a']]);
    let name = encode(SEQUENCE, &[&encode(0x31, &[&common_name])]);
    let validity = encode(SEQUENCE, &[&encode(0x17, &[b"260101000000Z"]), &encode(0x17, &[b"360101000000Z"])]);
    let curve = [0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let key = encode(SEQUENCE, &[&encode(SEQUENCE, &[&curve]), &encode(0x03, &[&[0, 4], &[1; 64]])]);
    let extensions = encode(0xa3, &[&encode(SEQUENCE, &[&extensions])]);
    let version_and_serial = [0xa0, 3, 2, 1, 2, 2, 1, 1];
    let fields = encode(SEQUENCE, &[&version_and_serial, &algorithm, &name, &validity, &name, &key, &extensions]);
    encode(SEQUENCE, &[&fields, &algorithm, &encode(0x03, &[&[0; 72]])])
}

fn print(store: &str, [alone, beside]: [&Answered; 2], answers: &Answers, ratio: f64) {
    println!("oversize on {store}: issue by {} clients, {SENDERS} that send 4 MB", alone.clients);
    for (name, part) in [("alone", alone), ("beside them", beside)] {
        println!(
            "  {name:<12} {:>8} requests  p50 {:>7.2}  p99 {:>7.2}  p99.9 {:>7.2}  max {:>8.2} ms",
            part.count(),
            part.percentile(50.0),
            part.percentile(99.0),
            part.percentile(99.9),
            part.percentile(100.0)
        );
    }
    for (name, of) in answers {
        println!("  {name:<28} {}", counts(of));
    }
    let verdict = if ratio <= MAX_P99_RATIO { "holds" } else { "MISSED" };
    println!("  {verdict}  p99 during them {ratio:.2} x (limit {MAX_P99_RATIO} x)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_have_about_the_declared_size() {
        for value in [numbers(), bundle(), pem("CERTIFICATE", &certificate())] {
            assert!((SIZE * 9 / 10..1 << 22).contains(&value.len()), "{}", value.len());
        }
        assert!(serde_json::from_str::<Value>(&numbers()).is_ok());
    }
}
