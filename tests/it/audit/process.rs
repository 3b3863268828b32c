//! The real program and its audit file: killed under load, at the file size limit, and checked by `check`.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{dev, dev_with, signet, signet_by};
use crate::support::until;

/// Both entries of every acknowledged certificate are in the file after a kill.
#[actix_web::test]
async fn kill_under_load_loses_no_audit_entry_of_a_response() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = folder.path().join("audit.log");
    let data = data.to_str().unwrap();
    let file = path.to_str().unwrap();
    let dev = dev(&["--data-dir", data, "--audit-file", file]);
    let answered = Arc::new(Mutex::new(BTreeSet::new()));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let client = dev.client();
            let answered = Arc::clone(&answered);
            actix_rt::spawn(async move {
                loop {
                    let request = client.request("POST", "pki/issue/dev").json(&json!({ "common_name": "web.test" }));
                    let Ok(answer) = request.send().await else { return };
                    if answer.status() != 200 {
                        return;
                    }
                    let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
                    answered.lock().unwrap().insert(id);
                }
            })
        })
        .collect();
    while answered.lock().unwrap().len() < 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    dev.kill();
    for task in tasks {
        task.await.unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let mut told = BTreeSet::new();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let line: Value = serde_json::from_str(line).unwrap();
        told.insert((line["type"].as_str().unwrap().to_owned(), line["request"]["id"].as_str().unwrap().to_owned()));
    }
    for id in &*answered.lock().unwrap() {
        for kind in ["request", "response"] {
            assert!(told.contains(&(kind.to_owned(), id.clone())), "{kind} of {id}");
        }
    }
}

/// At the file size limit of the process (RLIMIT_FSIZE), requests that cannot be recorded are rejected and the process
/// lives on.
#[actix_web::test]
async fn the_limit_of_a_files_size_is_a_full_device() {
    const LIMIT: u64 = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let mut command = signet_by("prlimit", &[&format!("--fsize={LIMIT}")]);
    let dev = dev_with(&mut command, &["--audit-file", path.to_str().unwrap()]);
    let client = dev.client();
    assert_eq!(client.get("sys/mounts").await.status, 200);
    // The file is sparse up to the limit.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(LIMIT - 1).unwrap();
    for _ in 0..3 {
        assert_eq!(client.get("sys/mounts").await.status, 503);
    }
    assert_eq!((client.get("sys/live").await.status, client.get("sys/health").await.status), (200, 503));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    until("health", async || client.get("sys/health").await.status == 200).await;
    assert_eq!(client.get("sys/mounts").await.status, 200);
    dev.terminate();
}

#[test]
fn check_reports_pipe_without_reader() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signet.toml");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let device = format!("[[audit]]\ntype = \"file\"\nfile_path = \"{}\"\n", pipe.display());
    let data = folder.path().join("data");
    fs::write(&file, format!("data_dir = \"{}\"\n{device}", data.display())).unwrap();
    let output = signet().args(["check", "--config"]).arg(&file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("pipe: is a pipe without a reader, or a socket"), "{text}");
}
