//! The order of system calls: an answer leaves after the disk has what it acknowledges, not before.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::place::Place;
use super::strace;
use crate::process::signet_by;

/// The lines from the one that has the request to the one that has its answer.
fn between(trace: &Path) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&std::fs::read(trace).unwrap()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let request = lines.iter().position(|line| line.contains("\"POST /v1/pki/issue/dev "))?;
    let answer = lines[request..].iter().position(|line| line.contains("\"HTTP/1.1 200 OK"))?;
    Some(lines[request..=request + answer].iter().map(|line| (*line).to_owned()).collect())
}

/// A sync that has returned, and returned 0.
fn is_sync(line: &str) -> bool {
    (line.contains("fdatasync") || line.contains("fsync")) && line.trim_end().ends_with("= 0")
}

#[actix_web::test]
async fn an_answer_leaves_after_the_sync_of_what_it_acknowledges() {
    if !strace::is_allowed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let place = Place::embedded();
    let calls = "trace=fdatasync,fsync,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg";
    // As a grandchild (-D), so that what is started here is the program itself.
    let arguments = ["-D", "-f", "-qq", "-s", "64", "-e", calls, "-o", trace.to_str().unwrap()];
    let dev = place.start_by(signet_by("strace", &arguments));
    assert!(between(&trace).is_none());
    let answer = dev.client().post("pki/issue/dev", json!({ "common_name": "order.test" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // The trace is written by another process: what was answered may come a little later.
    let started = Instant::now();
    let lines = loop {
        if let Some(lines) = between(&trace) {
            break lines;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{}", std::fs::read_to_string(&trace).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(lines.iter().any(|line| is_sync(line)), "no sync before the answer:\n{}", lines.join("\n"));
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
