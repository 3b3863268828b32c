//! CRLs across restarts and kills of the server: no CRL lacks an entry of an earlier one, and the server knows all
//! revocations from its first response.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signet::x509::crl::Crl;
use signet::x509::serial::Serial;

use super::audit::{audit, number};
use super::load::{Ledger, Load, Unanswered};
use super::place::Place;
use crate::cluster;
use crate::support::Client;

const STARTS: usize = 6;
const LIMIT: Duration = Duration::from_secs(40);

struct Watch {
    /// The number of servers so far, and a client of the last one.
    server: Arc<Mutex<(usize, Client)>>,
    /// The number of the server whose CRL was seen last.
    seen: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Watch {
    fn start(client: Client) -> Self {
        let server = Arc::new(Mutex::new((1, client)));
        let seen = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let watching = watching(Arc::clone(&server), Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(watching)
        });
        Self { server, seen, stop, thread }
    }

    fn follow(&self, client: Client) {
        let mut server = self.server.lock().unwrap();
        *server = (server.0 + 1, client);
    }

    fn wait(&self) {
        let wanted = self.server.lock().unwrap().0;
        let started = Instant::now();
        while self.seen.load(Ordering::Relaxed) < wanted {
            assert!(!self.thread.is_finished(), "a list was wrong");
            assert!(started.elapsed() < LIMIT, "no list of server {wanted}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn watching(server: Arc<Mutex<(usize, Client)>>, seen: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> usize {
    let mut last = BTreeSet::new();
    let mut last_number = 0;
    let mut lists = 0;
    while !stop.load(Ordering::Relaxed) {
        let (nth, client) = server.lock().unwrap().clone();
        let Some(der) = list(&client).await else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let crl = Crl::parse(&der).unwrap();
        let listed: BTreeSet<Serial> = crl.entries().iter().map(|entry| entry.serial).collect();
        let lost: Vec<&Serial> = last.difference(&listed).collect();
        assert!(lost.is_empty(), "server {nth}, list {}: {lost:?} were on list {last_number}", number(&crl));
        assert!(number(&crl) >= last_number, "server {nth}: list {} after {last_number}", number(&crl));
        (last, last_number, lists) = (listed, number(&crl), lists + 1);
        seen.store(nth, Ordering::Relaxed);
    }
    lists
}

/// The served CRL, or `None` while the server stops or is down.
async fn list(client: &Client) -> Option<Vec<u8>> {
    let response = client.request("GET", "pki/crl").send().await.ok()?;
    match response.status().as_u16() {
        200 => response.bytes().await.ok().map(Vec::from),
        500.. => None,
        other => panic!("{other} is no answer to who asks for a list that was there before"),
    }
}

async fn restarted_again_and_again(place: Place) {
    let ledger = Ledger::default();
    let mut dev = place.start();
    let token = place.client(&dev).await.token;
    let watch = Watch::start(dev.client().with_token(&token));
    for start in 0..STARTS {
        watch.wait();
        let load = Load::start(&dev, &token, &ledger, Unanswered::IsTheEnd);
        ledger.wait_for(8, 4, 0);
        match start % 2 {
            0 => dev.kill(),
            _ => drop(dev.terminate()),
        }
        load.finish();
        dev = place.start();
        let client = dev.client().with_token(&token);
        watch.follow(client.clone());
        // Possibly before the CRLs are loaded, the server knows these revocations.
        let revoked = ledger.read().revoked.clone();
        for (serial, time) in revoked.iter().take(3) {
            let read = client.get(&format!("pki/cert/{serial}")).await;
            assert_eq!(read.body["data"]["revocation_time"].as_i64(), Some(*time), "{serial}: {}", read.text);
        }
    }
    watch.wait();
    audit(&dev.client().with_token(&token), &ledger, &place).await;
    let lists = watch.finish();
    assert!(lists > STARTS, "{lists} lists were looked at");
    dev.terminate();
}

#[actix_web::test]
async fn crl_loses_no_entry_over_restarts_on_the_embedded_store() {
    restarted_again_and_again(Place::embedded()).await;
}

#[actix_web::test]
async fn crl_loses_no_entry_over_restarts_on_postgresql() {
    restarted_again_and_again(Place::postgres(cluster::shared().database())).await;
}
