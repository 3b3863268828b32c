//! The real program and its audit file: killed under load, and told that its file was moved.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::dev;

/// A process that is killed has written both lines of every certificate that it answered.
#[actix_web::test]
async fn a_kill_under_load_loses_no_line_of_what_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (data, path) = (folder.path().join("data"), folder.path().join("audit.log"));
    let (data, file) = (data.to_str().unwrap(), path.to_str().unwrap());
    let dev = dev(&["--data-dir", data, "--audit-file", file]);
    let answered = Arc::new(Mutex::new(BTreeSet::new()));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (client, answered) = (dev.client(), Arc::clone(&answered));
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
