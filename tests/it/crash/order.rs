//! The order of system calls: a response is sent only after its data has been synced to disk.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::place::Place;
use super::strace::{self, Traced};
use crate::cluster::Cluster;
use crate::process::{Dev, signet_by};

fn between(trace: &Path) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&std::fs::read(trace).unwrap()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let request = lines.iter().position(|line| line.contains("\"POST /v1/pki/issue/dev "))?;
    let answer = lines[request..].iter().position(|line| line.contains("\"HTTP/1.1 200 OK"))?;
    Some(lines[request..=request + answer].iter().map(|line| (*line).to_owned()).collect())
}

fn is_sync(line: &str) -> bool {
    (line.contains("fdatasync") || line.contains("fsync")) && line.trim_end().ends_with("= 0")
}

/// Waits until a trace, written by another process, contains a match.
fn wait_for<T>(trace: &Path, found: impl Fn(&Path) -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found(trace) {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{}", std::fs::read_to_string(trace).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The program under `strace -D`: strace is the grandchild, so the started process is the program.
fn traced(trace: &Path, arguments: &[&str]) -> Command {
    let usual = ["-D", "-f", "-qq", "-s", "64", "-o", trace.to_str().unwrap(), "-e"];
    signet_by("strace", &[&usual[..], arguments].concat())
}

async fn issue(dev: &Dev) {
    dev.client().post("pki/issue/dev", json!({ "common_name": "order.test" })).await.assert_status(200);
}

#[actix_web::test]
async fn response_is_sent_after_the_sync_of_its_data() {
    if !strace::sees_the_server() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let calls = "trace=fdatasync,fsync,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg";
    let dev = Place::embedded().start_by(traced(&trace, &[calls]));
    assert!(between(&trace).is_none());
    issue(&dev).await;
    let lines = wait_for(&trace, between);
    assert!(lines.iter().any(|line| is_sync(line)), "no sync before the answer:\n{}", lines.join("\n"));
    dev.terminate();
}

#[actix_web::test]
async fn database_confirms_a_commit_after_its_sync() {
    if !strace::is_allowed() {
        return;
    }
    let cluster = Cluster::new();
    let place = Place::postgres(cluster.database());
    let dev = place.start();
    issue(&dev).await;
    // The process that writes the database's WAL is one of these two. Other connections have committed before.
    let writers = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter' UNION ALL
        (SELECT pid FROM pg_stat_activity WHERE query = 'COMMIT' ORDER BY query_start DESC LIMIT 1)";
    let pids: Vec<u32> = place.column(writers).iter().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let also = format!("-p{}", pids[1]);
    let arguments = ["-o", trace.to_str().unwrap(), "-e", "trace=recvfrom,sendto,fdatasync", &also];
    let Some(_traced) = Traced::attach(pids[0], &arguments) else { return };
    issue(&dev).await;
    let lines = wait_for(&trace, |trace| {
        let text = String::from_utf8_lossy(&std::fs::read(trace).unwrap()).into_owned();
        let (_, after) = text.split_once("\\vCOMMIT\\0")?;
        let (before_answer, _) = after.split_once("\\vCOMMIT\\0")?;
        Some(before_answer.to_owned())
    });
    assert!(lines.lines().any(is_sync), "no sync before the answer:\n{lines}");
    dev.terminate();
}

#[actix_web::test]
async fn wal_left_by_a_crash_is_rewritten_and_synced_at_start() {
    if !strace::sees_the_server() {
        return;
    }
    let place = Place::embedded();
    let dev = place.start();
    issue(&dev).await;
    dev.kill();
    let log = std::fs::metadata(place.file("signet.db-wal")).unwrap().len();
    assert!(log > 0);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let dev = place.start_by(traced(&trace, &["trace=pwrite64,fdatasync,fsync", "-y"]));
    let written = wait_for(&trace, |trace| {
        let text = String::from_utf8_lossy(&std::fs::read(trace).unwrap()).into_owned();
        let of_log: Vec<&str> = text.lines().filter(|line| line.contains("signet.db-wal>")).collect();
        let synced = of_log.iter().position(|line| is_sync(line))?;
        let len = |line: &&str| line.rsplit("= ").next().unwrap().trim().parse::<u64>().unwrap();
        Some(of_log[..synced].iter().map(len).sum::<u64>())
    });
    assert_eq!(written, log, "all of it, and nothing else, before the first sync");
    dev.terminate();
}

#[test]
fn only_a_sync_that_succeeded_counts() {
    assert!(is_sync("12 fdatasync(9)                      = 0"));
    assert!(is_sync("12 <... fdatasync resumed>)          = 0"));
    assert!(!is_sync("12 fdatasync(9 <unfinished ...>"));
    assert!(!is_sync("12 fdatasync(9)                     = -1 EIO (Input/output error)"));
    assert!(!is_sync("12 write(9, \"\", 0)                 = 0"));
}
