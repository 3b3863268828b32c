//! Data keys over HTTP: status, rotation, its schedule, and tampered rows.

use serde_json::{Value, json};

use crate::support::{App, Client, until};

async fn status(client: &Client) -> Value {
    client.get("sys/key-status").await.assert_status(200).body["data"].clone()
}

#[actix_web::test]
async fn rotation_creates_the_next_key_and_reseals_everything() {
    let app = App::start().await;
    let client = &app.client;
    let first = status(client).await;
    assert_eq!((&first["term"], &first["older_values"]), (&json!(1), &json!(0)));
    assert!(first["encryptions"].as_u64().unwrap() > 0 && first["install_time"].as_str().unwrap().ends_with('Z'));
    app.policy("kept", "path \"a\" { capabilities = [\"read\"] }").await;
    for path in ["sys/rotate", "sys/rotate/keyring"] {
        client.post(path, json!({})).await.assert_status(204);
    }
    assert_eq!(status(client).await["term"], 3);
    until("no value is sealed with an earlier key", async || status(client).await["older_values"] == 0).await;
    let metrics = client.get("sys/metrics?format=prometheus").await.text;
    for name in ["signet_data_key_term ", "signet_data_key_age_seconds ", "signet_data_key_older_values "] {
        assert!(metrics.contains(name), "{name}");
    }
    let sealed = status(client).await["encryptions"].as_u64().unwrap();
    assert!(sealed > 0);
    let app = app.restart().await;
    let after = status(&app.client).await;
    assert!(after["encryptions"].as_u64().unwrap() >= sealed, "{after} {sealed}");
    assert_eq!((&after["term"], &after["older_values"]), (&json!(3), &json!(0)));
    assert_eq!(app.client.get("sys/policies/acl/kept").await.status, 200);
    app.stop().await;
}

#[actix_web::test]
async fn rotation_settings_are_stored_and_returned() {
    let app = App::start().await;
    let client = &app.client;
    let settings = async || client.get("sys/rotate/config").await.body["data"].clone();
    assert_eq!(settings().await, json!({ "enabled": true, "max_operations": 2_147_483_648_u64, "interval": 0 }));
    let change = json!({ "enabled": false, "max_operations": 3_865_470_566_u64, "interval": "25h" });
    assert_eq!(client.post("sys/rotate/config", change).await.status, 204);
    assert_eq!(client.post("sys/rotate/keyring/config", json!({ "max_operations": 1_000_000 })).await.status, 204);
    assert_eq!(settings().await, json!({ "enabled": false, "max_operations": 1_000_000, "interval": 90_000 }));
    for (change, text) in [
        (json!({ "max_operations": 999_999 }), "max_operations: must be between 1000000 and 3865470566"),
        (json!({ "max_operations": 3_865_470_567_u64 }), "max_operations: must be between 1000000 and 3865470566"),
        (json!({ "interval": "23h" }), "interval: must be 0 (never), or between 24 hours and 100 years"),
        (json!({ "interval": "500ms" }), "interval: must be 0 (never), or between 24 hours and 100 years"),
    ] {
        client.post("sys/rotate/config", change).await.assert_error(400, text);
    }
    for wrong in [json!({ "enabled": [] }), json!({ "interval": {} }), json!({ "max_operations": "many" })] {
        assert_eq!(client.post("sys/rotate/config", wrong).await.status, 400);
    }
    let app = app.restart().await;
    let kept = app.client.get("sys/rotate/keyring/config").await.body["data"].clone();
    assert_eq!(kept, json!({ "enabled": false, "max_operations": 1_000_000, "interval": 90_000 }));
    app.stop().await;
}

/// A row that was modified in the database, or swapped with another, is rejected.
#[actix_web::test]
async fn altered_rows_of_roles_and_policies_are_rejected_on_load() {
    let app = App::builder().postgres().start().await;
    for name in ["one", "two"] {
        app.policy(name, &format!("path \"{name}\" {{ capabilities = [\"read\"] }}")).await;
        let role = json!({ "allow_any_name": true, "key_type": "ec" });
        assert_eq!(app.client.post(&format!("pki/roles/{name}"), role).await.status, 200);
    }
    let database = app.database();
    for kind in ["policy", "role"] {
        let is = |name: &str| format!("kind = '{kind}' AND name = '{name}'");
        assert_eq!(database.psql(&format!("SELECT count(*) FROM document WHERE {}", is("one"))), "1", "{kind}");
        let body = database.psql(&format!("SELECT encode(body, 'hex') FROM document WHERE {}", is("one")));
        let altered = "set_byte(body, length(body) - 20, get_byte(body, length(body) - 20) # 1)".to_owned();
        for (column, value) in [
            ("body", altered),
            ("body", format!("(SELECT body FROM document WHERE {})", is("two"))),
            ("version", "version + 1".to_owned()),
        ] {
            database.psql(&format!("UPDATE document SET {column} = {value} WHERE {}", is("one")));
            let refusal = app.refusal_of_another().await;
            assert!(!refusal.is_empty(), "{kind} {column}");
            let version = format!("(SELECT version FROM document WHERE {})", is("two"));
            let row = format!("body = '\\x{body}', version = {version}");
            database.psql(&format!("UPDATE document SET {row} WHERE {}", is("one")));
        }
    }
    let other = app.another().await;
    assert_eq!(other.client.get("sys/policies/acl/one").await.status, 200);
    other.stop().await;
    app.stop().await;
}

#[actix_web::test]
async fn rotation_on_one_node_applies_to_all() {
    let first = App::builder().postgres().start().await;
    let second = first.another().await;
    assert_eq!(first.client.post("sys/rotate", json!({})).await.status, 204);
    assert_eq!(status(&second.client).await["term"], 2);
    second.policy("new", "path \"a\" { capabilities = [\"read\"] }").await;
    let term = "SELECT encode(substr(body, 1, 4), 'hex') FROM document WHERE kind = 'policy' AND name = 'new'";
    assert_eq!(first.database().psql(term), "00000002");
    second.stop().await;
    first.stop().await;
}

#[actix_web::test]
async fn rotation_without_database_is_503_and_creates_no_key() {
    let app = App::builder().postgres().start().await;
    app.database().out_of_reach(true);
    for path in ["sys/rotate", "sys/rotate/config"] {
        let answer = app.client.post(path, json!({ "enabled": false })).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{path}: {}", answer.text);
    }
    app.database().out_of_reach(false);
    until("it reads again", async || app.client.get("sys/key-status").await.status == 200).await;
    assert_eq!(status(&app.client).await["term"], 1);
    // After a failure, the server waits before it reconnects for writes.
    let rotates = async || {
        let status = app.client.post("sys/rotate", json!({})).await.status;
        assert!(matches!(status, 204 | 503), "{status}");
        status == 204
    };
    until("it rotates again", rotates).await;
    assert_eq!(status(&app.client).await["term"], 2);
    app.stop().await;
}
