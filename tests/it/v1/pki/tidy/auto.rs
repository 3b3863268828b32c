//! Tidy runs that the server starts by itself.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signet::pki::Engine;
use signet::pki::mount::settings::tidy::AutoTidyConfig;
use signet::pki::tidy::report::TidyRunState;
use signet::pki::tidy::write_config;

use super::{builder, leaf, run, start, status, until};
use crate::v1::pki::mount::{self, Pki, with};

/// Settings for a run every 100 seconds, the first after one second of the server's clock.
fn often() -> Value {
    json!({ "enabled": true, "tidy_cert_store": true, "safety_buffer": "1s", "interval_duration": 100,
        "min_startup_backoff_duration": 1, "max_startup_backoff_duration": 1 })
}

/// Asserts that two checks for due runs start none.
async fn stays(pki: &Pki, expected: &Value) {
    let shared = pki.app.shared();
    for _ in 0..2 {
        shared.engine.start_due_tidy_runs().await;
    }
    assert_eq!(status(pki).await, *expected);
}

async fn advance(pki: &Pki, seconds: u64) {
    pki.app.clock.advance(Duration::from_secs(seconds));
}

/// Waits for a run that removed `count` certificates, and returns its status.
async fn began(pki: &Pki, count: u64) -> Value {
    mount::until("a run", async || {
        let status = status(pki).await;
        status["state"] == "Finished" && status["cert_store_deleted_count"] == count
    })
    .await;
    status(pki).await
}

#[actix_web::test]
async fn interval_starts_at_the_end_of_any_run() {
    let pki = start().await;
    leaf(&pki, 10).await;
    advance(&pki, 60).await;
    // A manual run comes first; it removes one certificate.
    let done = run(&pki, json!({ "tidy_cert_store": true, "safety_buffer": 1 })).await;
    assert_eq!(done["cert_store_deleted_count"], 1);
    pki.post("config/auto-tidy", often()).await;
    leaf(&pki, 10).await;
    leaf(&pki, 10).await;
    advance(&pki, 99).await;
    stays(&pki, &done).await;
    let pki = pki.restart().await;
    stays(&pki, &done).await;
    advance(&pki, 1).await;
    let auto = began(&pki, 2).await;
    assert_eq!(auto["time_started"], auto["last_auto_tidy_finished"]);
    assert_eq!((&auto["safety_buffer"], &auto["tidy_cert_store"]), (&json!(1), &json!(true)));
    for _ in 0..3 {
        leaf(&pki, 10).await;
    }
    advance(&pki, 99).await;
    stays(&pki, &auto).await;
    advance(&pki, 1).await;
    let second = began(&pki, 3).await;
    pki.post("config/auto-tidy", json!({ "enabled": false })).await;
    advance(&pki, 1000).await;
    stays(&pki, &second).await;
    pki.stop().await;
}

#[actix_web::test]
async fn the_first_run_waits_for_the_delay_of_the_start() {
    let pki = start().await;
    leaf(&pki, 10).await;
    let delays = json!({ "min_startup_backoff_duration": 50, "max_startup_backoff_duration": "60s" });
    pki.post("config/auto-tidy", with(&often(), delays)).await;
    let before = status(&pki).await;
    advance(&pki, 49).await;
    stays(&pki, &before).await;
    assert_eq!(before["state"], "Inactive");
    advance(&pki, 11).await;
    began(&pki, 1).await;
    pki.stop().await;
}

#[actix_web::test]
async fn manual_run_blocks_automatic_runs() {
    let pki = start().await;
    for _ in 0..6 {
        leaf(&pki, 10).await;
    }
    advance(&pki, 60).await;
    let slow = json!({ "tidy_cert_store": true, "safety_buffer": 1, "page_size": 5, "pause_duration": "1h" });
    assert_eq!(pki.app.client.post("pki/tidy", slow).await.status, 202);
    until(&pki, "Running").await;
    pki.post("config/auto-tidy", with(&often(), json!({ "interval_duration": 1 }))).await;
    advance(&pki, 2).await;
    pki.app.shared().engine.start_due_tidy_runs().await;
    let still = status(&pki).await;
    assert_eq!((&still["state"], &still["pause_duration"]), (&json!("Running"), &json!("1h")));
    pki.post("tidy-cancel", json!({})).await;
    // The certificate is removed by the first run or by the next one, which starts now.
    mount::until("the removal", async || pki.list("certs").await.len() == 1).await;
    pki.stop().await;
}

/// Two engines on one store: of runs that are due on both, one starts.
#[actix_web::test]
async fn one_of_two_nodes_runs_tidy() {
    let pki = Pki::on(builder().postgres().start().await).await;
    for _ in 0..12 {
        leaf(&pki, 10).await;
    }
    let shared = pki.app.shared();
    let mount = shared.auth.mounts().iter().find(|mount| mount.path == "pki/").unwrap().id;
    let authority = shared.engine.authority(mount).unwrap();
    // Slow, so that it is still running when the other engine checks.
    let config = with(&often(), json!({ "page_size": 5, "pause_duration": "1h" }));
    pki.post("config/auto-tidy", config).await;
    let other = Engine::new(
        Arc::clone(&authority.deps().store),
        Arc::clone(&authority.deps().serials),
        Arc::clone(&authority.deps().signers),
        pki.app.clock.clone(),
        signet::outbound::EgressPolicy::default(),
    );
    other.open(mount).await.unwrap();
    advance(&pki, 60).await;
    other.start_due_tidy_runs().await;
    shared.engine.start_due_tidy_runs().await;
    let running = until(&pki, "Running").await;
    other.start_due_tidy_runs().await;
    shared.engine.start_due_tidy_runs().await;
    assert_eq!(status(&pki).await["time_started"], running["time_started"]);
    // Both see the run, and either may cancel it.
    let seen = other.authority(mount).unwrap().tidy_status().await.unwrap();
    assert_eq!(seen.report.unwrap().state, TidyRunState::Running);
    assert!(!other.authority(mount).unwrap().tidy(AutoTidyConfig::default().run_config).await.unwrap());
    assert!(authority.tidy_cancel().await.unwrap());
    assert!(other.authority(mount).unwrap().tidy_cancel().await.is_ok());
    let ended = until(&pki, "Cancelled").await;
    assert_eq!(ended["cert_store_deleted_count"], 1);
    write_config(&authority, |stands| Ok(AutoTidyConfig { enabled: false, ..stands.clone() })).await.unwrap();
    other.stop_tidy_runs().await;
    drop(other);
    pki.stop().await;
}

#[actix_web::test]
async fn run_of_a_crashed_server_lapses() {
    let pki = Pki::on(builder().postgres().start().await).await;
    leaf(&pki, 10).await;
    advance(&pki, 60).await;
    run(&pki, json!({ "tidy_cert_store": true, "safety_buffer": 1 })).await;
    // As if another node had started a run and died.
    pki.app.database().psql(
        "UPDATE tidy SET run = 7, valid_until = 2000000000, report = convert_to(replace(convert_from(report, 'UTF8'),
            '\"state\":\"Finished\"', '\"state\":\"Running\"'), 'UTF8')",
    );
    assert_eq!(status(&pki).await["state"], "Running");
    let again = json!({ "tidy_cert_store": true, "safety_buffer": 1 });
    assert_eq!(pki.app.client.post("pki/tidy", again.clone()).await.status, 200);
    assert_eq!(pki.post("tidy-cancel", json!({})).await.body["data"]["state"], "Cancelling");
    pki.app.clock.set(signet::clock::Time::from_unix_timestamp(2_000_000_000).unwrap());
    let lapsed = status(&pki).await;
    assert_eq!(lapsed["state"], "Error");
    assert!(lapsed["error"].as_str().unwrap().contains("the server stopped"));
    pki.stop().await;
}
