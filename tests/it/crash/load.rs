//! Clients that issue, sign, revoke and fetch the CRL, and the record of what was acknowledged.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::{LocalBoxFuture, join_all};
use serde_json::{Value, json};
use signet::x509::crl::Crl;

use super::audit::{missing, number};
use crate::process::Dev;
use crate::support::Client;
use crate::v1::pki::foreign;

const ISSUING: usize = 3;
const SIGNING: usize = 2;
const REVOKING: usize = 2;
/// Pause of a client after a rejection, and of the CRL watcher.
const PACE: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(100);

/// Everything acknowledged, over all runs of a server.
#[derive(Default)]
pub struct Book {
    pub issued: HashMap<String, String>,
    pub revoked: HashMap<String, i64>,
    pub crl_number: u64,
    pub crls: HashMap<u64, u64>,
    pub refused: usize,
    pub wrong: Vec<String>,
    to_revoke: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Book>>);

impl Ledger {
    pub fn read(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    pub fn wait_for(&self, issued: usize, revoked: usize, refused: usize) {
        let count = || {
            let book = self.read();
            let wrong = book.wrong.clone();
            let counts = [book.issued.len(), book.revoked.len(), book.refused];
            drop(book);
            assert!(wrong.is_empty(), "{wrong:#?}");
            counts
        };
        let before = count();
        let wanted = [issued, revoked, refused];
        let started = Instant::now();
        while count().iter().zip(before).zip(wanted).any(|((now, before), wanted)| *now < before + wanted) {
            assert!(started.elapsed() < LIMIT, "{wanted:?} more than {before:?} were awaited, {:?} came", count());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The meaning of a request without a response.
#[derive(Clone, Copy, PartialEq)]
pub enum Unanswered {
    /// The server has ended: the client stops.
    IsTheEnd,
    /// A failure of the test.
    IsWrong,
}

/// Clients that run on their own thread.
pub struct Load {
    stop: Arc<AtomicBool>,
    may_end: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    /// Starts the clients, with their own connections.
    pub fn start(dev: &Dev, token: &str, ledger: &Ledger, unanswered: Unanswered) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let csr = foreign::csr("ec-256", "/CN=sign.test", "");
        let may_end = Arc::new(AtomicBool::new(unanswered == Unanswered::IsTheEnd));
        let client = dev.client().with_token(token);
        let one = One { client, ledger: ledger.clone(), stop: stop.clone(), may_end: may_end.clone() };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut all: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
            for _ in 0..ISSUING {
                all.push(Box::pin(one.issue("pki/issue/dev", json!({ "common_name": "issue.test" }))));
            }
            for _ in 0..SIGNING {
                all.push(Box::pin(one.issue("pki/sign/dev", json!({ "csr": csr }))));
            }
            for _ in 0..REVOKING {
                all.push(Box::pin(one.revoke()));
            }
            all.push(Box::pin(one.watch()));
            runtime.block_on(join_all(all));
        });
        Self { stop, may_end, thread }
    }

    /// From now on, a missing response means that the server has stopped.
    pub fn expect_the_end(&self) {
        self.may_end.store(true, Ordering::Relaxed);
    }

    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

struct One {
    client: Client,
    ledger: Ledger,
    stop: Arc<AtomicBool>,
    may_end: Arc<AtomicBool>,
}

/// The server has ended.
struct Gone;

impl One {
    fn works(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// The body of a 200; `None` if the request was rejected or failed.
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Option<Vec<u8>>, Gone> {
        let mut request = self.client.request(method, path).timeout(PATIENCE);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = async {
            let response = request.send().await?;
            let retry = response.headers().contains_key("retry-after");
            Ok::<_, reqwest::Error>((response.status().as_u16(), retry, response.bytes().await?))
        };
        match answer.await {
            Ok((200, _, body)) => return Ok(Some(body.to_vec())),
            Ok((503, true, _)) => self.ledger.read().refused += 1,
            Ok((status, retry, body)) => {
                let text = String::from_utf8_lossy(&body);
                self.ledger.read().wrong.push(format!("{path}: {status}, Retry-After {retry}: {text}"));
            }
            Err(_) if self.may_end.load(Ordering::Relaxed) => return Err(Gone),
            Err(error) => self.ledger.read().wrong.push(format!("{path}: no answer: {error:?}")),
        }
        tokio::time::sleep(PACE).await;
        Ok(None)
    }

    async fn issue(&self, path: &str, body: Value) {
        while self.works() {
            let Ok(answer) = self.ask("POST", path, Some(&body)).await else { return };
            let Some(answer) = answer else { continue };
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            let text = |name: &str| answer["data"][name].as_str().unwrap().to_owned();
            let serial = text("serial_number");
            let pem = text("certificate");
            let mut book = self.ledger.read();
            if book.issued.len().is_multiple_of(3) {
                book.to_revoke.push(serial.clone());
            }
            if book.issued.insert(serial.clone(), pem).is_some() {
                book.wrong.push(format!("{serial} was issued twice"));
            }
        }
    }

    async fn revoke(&self) {
        while self.works() {
            let next = self.ledger.read().to_revoke.pop();
            let Some(serial) = next else {
                tokio::time::sleep(PACE).await;
                continue;
            };
            let answer = self.ask("POST", "pki/revoke", Some(&json!({ "serial_number": serial }))).await;
            let mut book = self.ledger.read();
            match &answer {
                Ok(Some(answer)) => {
                    let answer: Value = serde_json::from_slice(answer).unwrap();
                    // A certificate that has expired since is not revoked.
                    if let Some(time) = answer["data"]["revocation_time"].as_i64() {
                        book.revoked.insert(serial, time);
                    }
                }
                // The outcome is unknown: revoke it again.
                Ok(None) | Err(Gone) => book.to_revoke.push(serial),
            }
            if answer.is_err() {
                return;
            }
        }
    }

    /// Checks that a CRL lists everything revoked before its request, and that its number never decreases.
    async fn watch(&self) {
        while self.works() {
            let (revoked, before) = {
                let book = self.ledger.read();
                (book.revoked.clone(), book.crl_number)
            };
            let Ok(answer) = self.ask("GET", "pki/crl", None).await else { return };
            let Some(der) = answer else { continue };
            self.saw(&der, before, &revoked);
            tokio::time::sleep(PACE).await;
        }
    }

    fn saw(&self, der: &[u8], before: u64, revoked: &HashMap<String, i64>) {
        let crl = Crl::parse(der).unwrap();
        let number = number(&crl);
        let missing = missing(&crl, revoked);
        let mut hash = DefaultHasher::new();
        der.hash(&mut hash);
        let mut book = self.ledger.read();
        let hash = hash.finish();
        if *book.crls.entry(number).or_insert(hash) != hash {
            book.wrong.push(format!("two CRLs have the number {number}"));
        }
        book.crl_number = book.crl_number.max(number);
        if number < before {
            book.wrong.push(format!("CRL number {number} after {before}"));
        }
        if !missing.is_empty() {
            book.wrong.push(format!("CRL {number} lacks {missing:?}"));
        }
    }
}
