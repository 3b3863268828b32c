//! CPU work is queued per caller: a caller whose queue is full gets an error, and other callers are not delayed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use serde_json::json;
use signet::error::Kind;
use signet::http::sender::Sender;
use signet::projects::organization;
use signet::rationing::{MAX_WAITING_PER_CALLER, QueueCaller, cpu};
use signet::x509::ocsp::CertIdHash;

use super::mount::{Leaf, Pki, parse};
use super::ocsp::{cert_id, request};
use crate::support::{Answer, Client};
use crate::v2::fixture::{Store, World};

/// Two concurrent tests that each occupy all threads but one would block each other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const SOON: Duration = Duration::from_secs(60);

type Job = Pin<Box<dyn Future<Output = signet::error::Result<()>> + Send>>;

/// A caller's queue, full of jobs that end on drop.
struct Filled {
    gates: Vec<std::sync::mpsc::Sender<()>>,
    jobs: Vec<Job>,
    begun: Arc<AtomicUsize>,
    threads: usize,
}

impl Filled {
    /// Fills the queue. Returns `None` on a machine with one core, where the jobs would occupy the only thread.
    async fn of(caller: QueueCaller) -> Option<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores == 1 {
            return None;
        }
        let threads = cores - 1;
        let mut filled = Self { gates: Vec::new(), jobs: Vec::new(), begun: Arc::default(), threads };
        for _ in 0..threads {
            assert!(filled.push(caller).is_ok());
        }
        let working = async {
            while filled.begun.load(Ordering::SeqCst) < threads {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, working).await.expect("one thread is left to the others, and no more");
        for _ in 0..MAX_WAITING_PER_CALLER {
            assert!(filled.push(caller).is_ok());
        }
        assert_eq!(filled.push(caller).err(), Some(Kind::Busy));
        Some(filled)
    }

    fn push(&mut self, caller: QueueCaller) -> Result<(), Kind> {
        let (gate, opened) = std::sync::mpsc::channel::<()>();
        let begun = Arc::clone(&self.begun);
        let work = move || {
            begun.fetch_add(1, Ordering::SeqCst);
            let _ = opened.recv();
        };
        let mut job: Job = Box::pin(cpu::run_as(caller, work));
        if let Some(refused) = (&mut job).now_or_never() {
            return Err(refused.unwrap_err().kind());
        }
        self.gates.push(gate);
        self.jobs.push(job);
        Ok(())
    }

    /// Asserts that no queued job has started.
    fn assert_waits(&self) {
        assert_eq!(self.begun.load(Ordering::SeqCst), self.threads);
    }
}

/// Starts a mount with an RSA-3072 CA, and returns a caller with all rights there.
async fn start() -> (Pki, Client, QueueCaller) {
    let pki = Pki::empty().await;
    pki.root(json!({ "issuer_name": "rsa", "key_type": "rsa", "key_bits": 3072 })).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let all = "path \"*\" { capabilities = [\"create\", \"read\", \"update\", \"list\", \"sudo\"] }";
    pki.app.policy("all", all).await;
    let client = pki.app.with_policies(&["all"]).await;
    let known = pki.app.shared().auth.caller_by_token(&client.token).await.unwrap().unwrap();
    let caller = Sender::of_token(Some(&known), None).queue_caller();
    (pki, client, caller)
}

fn assert_busy(name: &str, answer: &Answer) {
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{name}: {}", answer.text);
    assert!(answer.text.contains("retry"), "{name}: {}", answer.text);
}

#[actix_web::test]
async fn full_cpu_queue_is_503_for_its_caller_only() {
    let _alone = ALONE.lock().await;
    let (pki, client, caller) = start().await;
    let issue = async |client: &Client| client.post("pki/issue/r", json!({ "common_name": "a.test" })).await;
    let role = json!({ "allow_any_name": true, "key_type": "ec", "no_store": true });
    pki.post("roles/unstored", role).await;
    let leaf = client.post("pki/issue/unstored", json!({ "common_name": "a.test" })).await;
    assert_eq!(leaf.status, 200, "{}", leaf.text);
    let certificate = &leaf.body["data"]["certificate"];
    let crl = pki.fetch("GET", "crl", &[]).await.bytes().await.unwrap();
    if let Some(filled) = Filled::of(caller).await {
        let refused = [
            ("a signature by a large RSA key", issue(&client).await),
            ("a detailed list", client.list("pki/certs/detailed").await),
            ("certificates that end next", client.list("pki/certs/detailed?order=not_after").await),
        ];
        for (name, answer) in &refused {
            assert_busy(name, answer);
        }
        let policy = format!("path \"a\" {{ capabilities = [\"read\"] }} # {}", "x".repeat(100_000));
        for (path, body) in [
            ("pki/issuer/rsa/sign-revocation-list", json!({ "crl_number": 9 })),
            ("pki/revoke", json!({ "certificate": certificate })),
            ("pki/keys/import", json!({ "pem_bundle": "-----BEGIN PRIVATE KEY-----" })),
            ("pki/issuers/import/crl", json!({ "crl": STANDARD.encode(&crl) })),
            ("sys/policies/acl/long", json!({ "policy": policy })),
        ] {
            assert_busy(path, &client.post(path, body).await);
        }
        let other = pki.app.with_policies(&["all"]).await;
        let served = tokio::time::timeout(SOON, issue(&other)).await.expect("one caller waits for another");
        assert_eq!(served.status, 200, "{}", served.text);
        assert_eq!(other.list("pki/certs/detailed").await.status, 200);
        filled.assert_waits();
    }
    assert_eq!(issue(&client).await.status, 200);
    pki.stop().await;
}

#[actix_web::test]
async fn full_cpu_queue_rejects_pkcs12_of_its_caller_only() {
    let _alone = ALONE.lock().await;
    let (pki, client, caller) = start().await;
    pki.root(json!({ "issuer_name": "ec", "common_name": "EC Root" })).await;
    let issue = "pki/issuer/ec/issue/r";
    let plain = json!({ "common_name": "a.test" });
    let p12 = json!({ "common_name": "a.test", "format": "p12", "password": "secret" });
    let import = json!({ "p12": "MAA=", "password": "secret" });
    if let Some(filled) = Filled::of(caller).await {
        assert_eq!(client.post(issue, plain).await.status, 200, "an EC key signs outside the queue");
        assert_busy("issue of a PKCS #12 file", &client.post(issue, p12.clone()).await);
        for path in ["issuers/import/bundle", "issuers/import/cert", "config/ca", "keys/import"] {
            assert_busy(path, &client.post(&format!("pki/{path}"), import.clone()).await);
        }
        let other = pki.app.with_policies(&["all"]).await;
        let issued = tokio::time::timeout(SOON, other.post(issue, p12.clone())).await;
        assert_eq!(issued.expect("one caller waits for another").status, 200);
        let imported = other.post("pki/issuers/import/bundle", import).await;
        assert!(imported.error().starts_with("p12: not a PKCS #12 file"), "{}", imported.text);
        filled.assert_waits();
    }
    assert_eq!(client.post(issue, p12).await.status, 200);
    pki.stop().await;
}

#[actix_web::test]
async fn cpu_queue_full_refuses_long_projects_list_of_its_caller() {
    let _alone = ALONE.lock().await;
    let world = World::start(Store::Embedded).await;
    let created = world.run(|mut tx| {
        async move {
            let olga: i64 = tx.one("SELECT id FROM users", &[]).await?.get()?;
            // More rows than a response that is rendered outside the queue has.
            for n in 0..=500 {
                organization::create(&mut tx, olga, &format!("many-{n}"), "olga@acme.test", "{}").await?;
            }
            Ok(olga)
        }
        .boxed_local()
    });
    let caller = Sender::User(created.await).queue_caller();
    if let Some(filled) = Filled::of(caller).await {
        let refused = world.owner.get("organizations").await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{}", refused.text);
        assert_eq!(world.owner.get("organizations?page[number]=1").await.status, 200, "a page is short");
        let made = json!({ "data": { "type": "organizations", "attributes": { "name": "new", "email": "a@b.test" } } });
        assert_eq!(world.owner.post("organizations", made).await.status, 201, "a write is never refused late");
        filled.assert_waits();
    }
    let whole = world.owner.get("organizations").await;
    assert!(whole.body["data"].as_array().unwrap().len() > 500, "{}", whole.text);
    world.app.stop().await;
}

/// Without a token the caller is the IP address, and is served after all callers with a token.
#[actix_web::test]
async fn full_queue_of_a_slow_key_is_503_for_ocsp_without_token_only() {
    let _alone = ALONE.lock().await;
    let (pki, client, _) = start().await;
    let leaf: Leaf = pki.ask("issue/r", json!({ "common_name": "b.test" })).await;
    let issuer = parse(&pki.default_pem().await);
    let id = cert_id(CertIdHash::Sha1, &issuer, &leaf.certificate.serial());
    let asked = request(&[id], Some(&[7; 32]));
    let address = Sender::of_token(None, Some("127.0.0.1".parse().unwrap())).queue_caller();
    if let Some(filled) = Filled::of(address).await {
        let reply = pki.ocsp(&asked).await;
        reply.assert_fails(503, 3);
        assert_eq!(reply.header("retry-after"), "1");
        let issued = client.post("pki/issue/r", json!({ "common_name": "a.test" }));
        let issued = tokio::time::timeout(SOON, issued).await.expect("a caller with a token waits for one without");
        assert_eq!(issued.status, 200, "{}", issued.text);
        filled.assert_waits();
    }
    assert_eq!(pki.ocsp(&asked).await.statuses(), ["good"]);
    pki.stop().await;
}
