//! `signet serve` over an embedded store that hangs: the test holds the database's write lock.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::stage::assert_counted;
use crate::serve::{self, Site};
use crate::support::{Answer, Client, until};

/// A server process, which has its own metrics. Killed when dropped.
pub struct Served {
    process: serve::Served,
    site: Site,
    pub client: Client,
}

/// Blocks all writes of the server until it is dropped.
pub struct Hold(Connection);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

impl Served {
    pub async fn start(queue: usize) -> Self {
        Self::configured(&format!("commit_queue = {queue}\n")).await
    }

    pub async fn configured(more: &str) -> Self {
        let site = Site::new();
        site.configure(more);
        let token = site.init();
        let process = serve::Served::start(site.command(&["serve"]).env("SIGNET_WORKERS", "2"), &site.path("log"));
        let client = process.client(&token);
        let served = Self { process, site, client };
        // The server's own writes at start may fill a short queue.
        served.wait_for_queue(0).await;
        served.client.enable("sys/mounts/pki", "pki").await;
        served.client.authority("pki", json!({ "key_bits": 256 })).await;
        served
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let answer = self.client.post(path, body).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {} {}", answer.status, answer.text);
        answer
    }

    /// Blocks writes. The server waits for the lock longer than any test runs.
    pub fn hold(&self) -> Hold {
        let db = Connection::open(self.site.path("data/signet.db")).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        Hold(db)
    }

    /// The sum of a metric's samples whose labels contain `label`.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let page = self.client.get("sys/metrics?format=prometheus").await.text;
        let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    pub async fn queued(&self) -> usize {
        self.metric("signet_commit_queue", "").await as usize
    }

    pub async fn wait_for_queue(&self, wanted: usize) {
        until(&format!("{wanted} writes in the queue"), async || self.queued().await == wanted).await;
    }

    pub fn stop(self) {
        self.process.terminate();
        assert_counted(&self.site.path("data"));
    }
}
