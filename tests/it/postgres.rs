//! The server over PostgreSQL. The other tests use the embedded store; these use every table once more.

mod pooler;
mod start;
mod tls;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster;
use crate::process::dev;
use crate::support::{App, Client, until};

async fn authority() -> App {
    let app = App::builder().postgres().start().await;
    let root = json!({ "common_name": "Root", "key_type": "ec", "ttl": "87600h" });
    app.client.post("sys/mounts/pki/tune", json!({ "max_lease_ttl": "87600h" })).await;
    assert_eq!(app.client.post("pki/root/generate/internal", root).await.status, 200);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "max_ttl": "720h" });
    assert_eq!(app.client.post("pki/roles/web", role).await.status, 200);
    app
}

async fn issue(client: &Client) -> String {
    let answer = client.post("pki/issue/web", json!({ "common_name": "a.test" })).await.assert_status(200);
    answer.body["data"]["serial_number"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn certificates_and_revocations_survive_a_restart() {
    let app = authority().await;
    let kept = issue(&app.client).await;
    let revoked = issue(&app.client).await;
    let answer = app.client.post("pki/revoke", json!({ "serial_number": revoked })).await.assert_status(200);
    let root = app.client.get("pki/ca/pem").await.text;

    let app = app.restart().await;
    assert_eq!(app.client.get("sys/seal-status").await.body["storage_type"], "postgresql");
    assert_eq!(app.client.get("pki/ca/pem").await.text, root);
    let kept = app.client.get(&format!("pki/cert/{kept}")).await.body;
    assert_eq!(kept["data"]["revocation_time"], 0);
    let gone = app.client.get(&format!("pki/cert/{revoked}")).await.body;
    assert_eq!(gone["data"]["revocation_time"], answer.body["data"]["revocation_time"]);
    assert_eq!(app.client.list("pki/certs/revoked").await.body["data"]["keys"], json!([revoked]));
    issue(&app.client).await;
    let sums = "SELECT SUM(certificates), SUM(revocations) FROM counter";
    assert_eq!(app.database().psql(sums), "4|1", "the root counts too");
    app.stop().await;
}

#[actix_web::test]
async fn mounts_are_enabled_and_disabled() {
    let app = authority().await;
    assert_eq!(app.client.post("sys/mounts/team", json!({ "type": "pki" })).await.status, 204);
    assert_eq!(app.client.post("team/roles/x", json!({ "key_type": "ec" })).await.status, 200);
    assert_eq!(app.client.list("team/roles").await.body["data"]["keys"], json!(["x"]));
    assert_eq!(app.client.delete("sys/mounts/team").await.status, 204);
    assert_eq!(app.client.get("team/roles/x").await.status, 404);
    let app = app.restart().await;
    assert!(app.client.get("sys/mounts").await.body["data"].get("team/").is_none());
    app.stop().await;
}

#[actix_web::test]
async fn tokens_are_created_renewed_and_revoked_with_their_children() {
    let app = App::builder().postgres().start().await;
    app.policy("maker", "path \"auth/token/*\" { capabilities = [\"update\", \"read\"] }").await;
    let parent = app.with_policies(&["maker"]).await;
    let child = parent.with_new_token(json!({ "ttl": "1h", "policies": ["maker"] })).await;
    assert_eq!(child.get("auth/token/lookup-self").await.status, 200);
    assert_eq!(child.post("auth/token/renew-self", json!({})).await.status, 200);
    let app = app.restart().await;
    let parent = app.client.with_token(&parent.token);
    let child = app.client.with_token(&child.token);
    assert_eq!(child.get("auth/token/lookup-self").await.status, 200);
    assert_eq!(parent.post("auth/token/revoke-self", json!({})).await.status, 204);
    child.get("auth/token/lookup-self").await.assert_denied();
    app.stop().await;
}

#[actix_web::test]
async fn outage_is_503_and_recovers_by_itself() {
    let app = authority().await;
    let database = app.database();
    database.out_of_reach(true);
    let started = Instant::now();
    let answer = app.client.post("pki/issue/web", json!({ "common_name": "a.test" })).await.assert_status(503);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert!(!answer.text.contains("postgres"), "{}", answer.text);
    database.out_of_reach(false);
    let back = async || app.client.post("pki/issue/web", json!({ "common_name": "a.test" })).await.status == 200;
    until("a certificate", back).await;
    let metrics = app.client.page("/metrics").await.text;
    assert!(metrics.contains("signet_postgres_transaction_seconds_count{name=\"commit\"}"), "{metrics}");
    app.stop().await;
}

#[actix_web::test]
async fn dev_stores_data_in_the_database_and_key_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let database = cluster::shared().database();
    let url = database.url();
    let arguments = ["--data-dir", folder.path().to_str().unwrap(), "--database-url", &url];
    let first = dev(&arguments);
    let root = first.client().get("pki/ca/pem").await.text;
    first.terminate();
    let second = dev(&arguments);
    assert_eq!(second.client().get("pki/ca/pem").await.text, root);
    second.client().post("pki/issue/dev", json!({ "common_name": "a.test" })).await.assert_status(200);
    second.terminate();
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["seal.key"]);
}
