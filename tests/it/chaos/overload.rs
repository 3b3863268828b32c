//! Overload: the server's throughput stays near its peak, and excess requests are rejected quickly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::seed::{Seed, is_long, rounds};
use crate::serve::{Served, Site};
use crate::support::{Answer, Client, send};

/// Slots of the server's commit queue.
const QUEUE: usize = 16;
/// Fewer clients than slots, which leaves some for the server's own occasional writes.
const CLIENTS: usize = 12;
/// Factor of the number of clients under overload.
const TIMES: usize = 5;
/// Minimum throughput under overload as a fraction of the peak, and maximum 99th percentile of the time of a rejection.
const GOODPUT: f64 = 0.8;
const REFUSAL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Told {
    issued: BTreeMap<String, String>,
    refusals: Vec<Duration>,
    took: Duration,
}

impl Told {
    fn rate(&self) -> f64 {
        self.issued.len() as f64 / self.took.as_secs_f64()
    }

    /// The 99th percentile of the time of a rejection.
    fn slowest(&mut self) -> Duration {
        self.refusals.sort();
        self.refusals[(self.refusals.len() - 1) * 99 / 100]
    }
}

fn judge(told: &mut Told, answer: &Answer, took: Duration) {
    match answer.status {
        200 => {
            let text = |name: &str| answer.body["data"][name].as_str().unwrap().to_owned();
            let again = told.issued.insert(text("serial_number"), text("certificate"));
            assert!(again.is_none(), "a serial number came twice");
        }
        503 => {
            assert_eq!(answer.header("retry-after"), "1", "{}", answer.text);
            assert_eq!(answer.header("content-type"), "application/json");
            assert_eq!(answer.error(), "storage: the commit queue is full");
            told.refusals.push(took);
        }
        status => panic!("{status}: {}", answer.text),
    }
}

/// Runs `count` clients in a thread of their own, each with one request after another, until `enough` is true.
fn crowd(client: Client, count: usize, enough: impl Fn(&Told) -> bool + Send + 'static) -> Told {
    let stop = AtomicBool::new(false);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = std::cell::RefCell::new(Told::default());
        let started = Instant::now();
        let one = async || {
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let body = json!({ "common_name": "a.test" });
                let answer = send(client.request("POST", "pki/issue/web").json(&body)).await;
                let mut told = told.borrow_mut();
                judge(&mut told, &answer, asked.elapsed());
                told.took = started.elapsed();
                stop.fetch_or(enough(&told), Ordering::Relaxed);
            }
        };
        runtime.block_on(join_all((0..count).map(|_| one())));
        told.into_inner()
    });
    thread.join().unwrap()
}

/// A server with a small commit queue and an authority.
async fn server() -> (Site, Served, String) {
    let site = Site::new();
    site.configure(&format!("commit_queue = {QUEUE}\n"));
    let token = site.init();
    let served = Served::start(site.command(&["serve"]).env("SIGNET_WORKERS", "2"), &site.path("log"));
    let client = served.client(&token);
    client.enable("sys/mounts/pki", "pki").await;
    client.authority("pki", json!({ "ttl": "1h" })).await;
    (site, served, token)
}

#[actix_web::test]
async fn overload_causes_rejections_and_loses_no_response() {
    let mut seed = Seed::new();
    let (site, served, token) = server().await;
    let client = served.client(&token);
    let long = is_long();
    let enough = move |told: &Told| if long { told.took.as_secs() >= 15 } else { told.issued.len() >= 60 };
    let peak = crowd(served.client(&token), CLIENTS, enough);
    assert_eq!(peak.refusals.len(), 0, "fewer than there are places");
    // Rotates the data key and backs up the store during the overload.
    let wait = seed.millis(50..400);
    let second = served.client(&token);
    let data = site.path("data");
    let copy = site.path("copy.db");
    let aside = std::thread::spawn(move || {
        std::thread::sleep(wait);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rotate = async || second.post("sys/rotate", json!({})).await.status;
        while runtime.block_on(rotate()) != 204 {
            std::thread::sleep(Duration::from_millis(5));
        }
        crate::backup::backup(&data, &copy).unwrap();
    });
    let refusals = rounds(20, 1);
    let mut told = crowd(served.client(&token), TIMES * CLIENTS, move |told| match long {
        true => told.took.as_secs() >= 60 && told.refusals.len() >= refusals,
        false => told.issued.len() >= 120 && told.refusals.len() >= refusals,
    });
    aside.join().unwrap();
    let slowest = told.slowest();
    let refused = told.refusals.len();
    println!("peak {:.0}/s, overload {:.0}/s, {refused} refusals, slowest {slowest:?}", peak.rate(), told.rate());
    if is_long() {
        assert!(told.rate() >= GOODPUT * peak.rate(), "{:.0}/s of {:.0}/s", told.rate(), peak.rate());
        assert!(slowest < REFUSAL, "{slowest:?}");
    }
    let after = crowd(served.client(&token), CLIENTS, |told| told.issued.len() >= 40);
    assert_eq!(after.refusals.len(), 0);
    for (serial, pem) in peak.issued.iter().chain(&told.issued).chain(&after.issued) {
        let answer = client.get(&format!("pki/cert/{serial}")).await;
        assert_eq!(answer.body["data"]["certificate"].as_str(), Some(pem.as_str()), "{serial}: {}", answer.text);
    }
    served.terminate();
    let last = site.path("last.db");
    crate::backup::backup(&site.path("data"), &last).unwrap();
    for file in [site.path("copy.db"), last] {
        let mut verify = site.command(&["operator", "verify-backup"]);
        let output = verify.arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
