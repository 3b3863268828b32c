//! `signet serve` over an embedded store that hangs: the test holds the database's write lock.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::stage::assert_counted;
use crate::process::signet;
use crate::support::{Answer, Client};

/// A server process, which has its own metrics. Killed when dropped.
pub struct Served {
    folder: tempfile::TempDir,
    child: Child,
    /// Kept open, as a terminal would be.
    _printed: BufReader<ChildStdout>,
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
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let file = folder.path().join("signet.toml");
        let settings = format!("listen = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nworkers = 2\n{more}", data.display());
        std::fs::write(&file, settings).unwrap();
        let init = signet().args(["operator", "init", "--config"]).arg(&file).output().unwrap();
        let printed = String::from_utf8(init.stdout).unwrap();
        let token = printed.lines().find_map(|line| line.strip_prefix("token: ")).unwrap().to_owned();
        let mut child = signet().args(["serve", "--config"]).arg(&file).stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().parse().unwrap();
        let served = Self { folder, child, _printed: printed, client: Client::new(address, &token) };
        // The server's own writes at start may fill a short queue.
        served.wait_for_queue(0).await;
        served.post("sys/mounts/pki", json!({ "type": "pki" })).await;
        served.post("pki/root/generate/internal", json!({ "common_name": "Root", "key_type": "ec" })).await;
        let role = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "ttl": "24h" });
        served.post("pki/roles/web", role).await;
        served
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let answer = self.client.post(path, body).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {} {}", answer.status, answer.text);
        answer
    }

    /// Blocks writes. The server waits for the lock longer than any test runs.
    pub fn hold(&self) -> Hold {
        let db = Connection::open(self.folder.path().join("data/signet.db")).unwrap();
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
        let started = Instant::now();
        while self.queued().await != wanted {
            assert!(started.elapsed() < Duration::from_secs(15), "{} writes, not {wanted}", self.queued().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert_counted(&self.folder.path().join("data"));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
