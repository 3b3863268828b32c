//! Tidy, with one of its store calls failing at a time: the request gets a 503 or the run ends with an error, and the
//! next run completes the work.

use std::time::Duration;

use serde_json::{Value, json};

use super::double::Fault;
use super::endpoints::assert_unavailable;
use super::stage::{Stage, assert_counters};
use crate::support::until;

/// More store calls than the request and its run make.
const MOST: usize = 40;

async fn state(stage: &Stage) -> Value {
    stage.app.client.get("pki/tidy-status").await.body["data"]["state"].clone()
}

/// Runs tidy with the `n`th call failing. Returns `false` if it makes fewer calls.
async fn step(stage: &Stage, n: usize, fault: Fault) -> bool {
    let what = format!("call {n} {fault:?}");
    let body = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "tidy_cert_metadata": true,
        "tidy_expired_issuers": true, "safety_buffer": "1s", "revoked_safety_buffer": "30s" });
    let lasting = stage.issue().await;
    stage.post("pki/revoke", json!({ "serial_number": lasting })).await;
    let short = stage.post("pki/issue/short", json!({ "common_name": "a.test", "cert_metadata": "YQ==" })).await;
    let short = short.body["data"]["serial_number"].clone();
    stage.post("pki/revoke", json!({ "serial_number": short })).await;
    stage.app.clock.advance(Duration::from_secs(100));
    let mount = stage.app.shared().auth.mounts().iter().find(|mount| mount.path == "pki/").unwrap().id;
    stage.faults.arm(n, fault);
    let answer = stage.app.client.post("pki/tidy", body.clone()).await;
    if answer.status == 202 {
        until(&what, async || {
            let row = stage.faults.real().pki.tidy(mount).await.unwrap();
            stage.faults.has_met() || row.is_some_and(|row| row.valid_until == 0)
        })
        .await;
    } else {
        assert_unavailable(&answer, &what);
    }
    let met = stage.faults.disarm();
    if answer.status == 202 {
        // The run ends by itself. If the clock moved first, its lock would expire and the run would renew it.
        until(&what, async || {
            let row = stage.faults.real().pki.tidy(mount).await.unwrap();
            row.is_some_and(|row| row.valid_until == 0)
        })
        .await;
    } else {
        // The lock may be stored although the request failed. It has no run and expires.
        stage.app.clock.advance(Duration::from_secs(61));
    }
    until(&what, async || !["Running", "Cancelling"].contains(&state(stage).await.as_str().unwrap())).await;
    let first = state(stage).await;
    let second = stage.app.client.post("pki/tidy", body).await;
    assert_eq!(second.status, 202, "{what}: {}", second.text);
    until(&what, async || state(stage).await == "Finished").await;
    let certificates = stage.app.client.list("pki/certs").await.body["data"]["keys"].clone();
    let revoked = stage.app.client.list("pki/certs/revoked").await.body["data"]["keys"].clone();
    let has = |list: &Value, serial: &Value| list.as_array().is_some_and(|list| list.contains(serial));
    assert!(!has(&certificates, &short) && !has(&revoked, &short), "{what}");
    assert!(has(&certificates, &json!(lasting)) && has(&revoked, &json!(lasting)), "{what}");
    assert_eq!(stage.app.client.list("pki/cert-metadata").await.status, 404, "{what}");
    assert_counters(stage.app.folder());
    assert_eq!(stage.differences().await, Vec::<String>::new(), "{what}");
    if met.is_none() {
        assert_eq!((answer.status, &first), (202, &json!("Finished")), "{what}");
    }
    met.is_some()
}

#[actix_web::test]
async fn failed_tidy_run_is_continued_by_the_next_run() {
    let mut failed = 0;
    for fault in [Fault::Before, Fault::After, Fault::Outage] {
        let stage = Stage::with_authority().await;
        stage.post("pki/roles/short", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "40s" })).await;
        let mut n = 1;
        while step(&stage, n, fault).await {
            n += 1;
            assert!(n < MOST);
        }
        failed += n - 1;
        let serials = stage.app.client.list("pki/certs/revoked").await.body["data"]["keys"].as_array().unwrap().len();
        assert_eq!(serials, n, "every one that has not expired");
        stage.stop().await;
    }
    assert!(failed > 20, "{failed} calls failed");
}
