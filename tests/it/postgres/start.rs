//! `signet serve` with a database that is not available yet.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;
use crate::process::refused;
use crate::serve::Site;

pub(super) fn site(url: &str) -> Site {
    let site = Site::new();
    configure(&site, url);
    site
}

fn configure(site: &Site, url: &str) {
    let key = site.path("key");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\ndatabase_url = \"{url}\"\nseal_key_file = \"{}\"\n",
        key.display()
    );
    std::fs::write(site.path("signet.toml"), text).unwrap();
}

fn wait_for(log: &Path, text: &str) {
    let started = Instant::now();
    while !std::fs::read_to_string(log).is_ok_and(|log| log.contains(text)) {
        assert!(started.elapsed() < Duration::from_secs(20), "no {text:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Killed if the test fails.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn server_waits_for_a_database_that_starts_later() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let site = site(&database.url());
    let token = site.init();
    cluster.stop();

    let log = site.path("log-of-the-first");
    let mut command = site.command(&["serve"]);
    let mut first = Waiting(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
    wait_for(&log, "waiting for the database: storage: the database is unreachable");
    // Several attempts later there is still one log line.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(std::fs::read_to_string(&log).unwrap().matches("waiting for the database").count(), 1);
    kill_process(Pid::from_child(&first.0), Signal::TERM).unwrap();
    assert!(first.0.wait().unwrap().success(), "it was asked to end");

    std::thread::scope(|scope| {
        let starting = scope.spawn(|| site.serve());
        wait_for(&site.path("log"), "waiting for the database");
        cluster.start();
        let served = starting.join().unwrap();
        served.wait_for_log("the database is reachable");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(served.client(&token).get("sys/mounts")).status, 200);
        served.terminate();
    });
}

#[test]
fn permanent_database_problem_fails_the_start() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let site = site(&database.url());
    site.init();
    configure(&site, &format!("{}&passfile=/nowhere", database.url()));
    let error = refused(&mut site.command(&["serve"]));
    assert!(error.contains("passfile: file does not exist: /nowhere"), "{error}");
    configure(&site, &database.url());
    cluster.set(&["synchronous_commit = off"]);
    let error = refused(&mut site.command(&["serve"]));
    assert!(error.contains("synchronous_commit = off"), "{error}");
}
