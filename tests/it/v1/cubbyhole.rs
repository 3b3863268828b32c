//! Cubbyholes: data that belongs to a token.

use serde_json::{Value, json};

use crate::support::{App, tests_on};

tests_on!(server: App::start() =>
    token_writes_reads_lists_and_deletes_its_own_entries,
    entry_and_cubbyhole_sizes_are_limited,
    batch_token_has_no_cubbyhole,
    the_mount_is_shown_and_stays_where_it_is,
);

async fn token_writes_reads_lists_and_deletes_its_own_entries(app: &App) {
    let one = app.with_policies(&["default"]).await;
    let other = app.with_policies(&["default"]).await;
    let entry = json!({ "user": "a", "list": [1, "2", null], "token": "kept as it is" });
    assert_eq!(one.post("cubbyhole/team/login", entry.clone()).await.status, 204);
    assert_eq!(one.post("cubbyhole/note", json!({ "text": "b" })).await.status, 204);
    let read = one.get("cubbyhole/team/login").await;
    assert_eq!((&read.body["data"], &read.body["mount_type"]), (&entry, &json!("cubbyhole")), "{}", read.text);
    assert_eq!(one.list("cubbyhole").await.body["data"]["keys"], json!(["note", "team/"]));
    assert_eq!(one.list("cubbyhole/team").await.body["data"]["keys"], json!(["login"]));
    assert_eq!(one.get("cubbyhole/?list=true&after=note").await.body["data"]["keys"], json!(["team/"]));
    assert_eq!(one.post("cubbyhole/note", json!({ "other": 1 })).await.status, 204);
    assert_eq!(one.get("cubbyhole/note").await.body["data"], json!({ "other": 1 }));
    for client in [&other, &app.client] {
        assert_eq!(client.get("cubbyhole/note").await.text, "{\"errors\":[]}");
        assert_eq!(client.list("cubbyhole").await.status, 404);
    }
    for _ in 0..2 {
        assert_eq!(one.delete("cubbyhole/note").await.status, 204);
    }
    assert_eq!(one.get("cubbyhole/note").await.status, 404);
    one.post("cubbyhole/note", json!({})).await.assert_error(400, "missing data fields");
    let large = one.post("cubbyhole/note", json!({ "text": "x".repeat(64 << 10) })).await;
    let hint = "the limit of this route is 65536 bytes and is not configurable";
    assert_eq!((large.status, &large.body["warnings"][0]), (413, &json!(hint)));
    app.client.with_token("").get("cubbyhole/note").await.assert_denied();
}

#[actix_web::test]
async fn entries_are_deleted_with_their_token() {
    let app = App::start().await;
    let child = app.with_policies(&["default"]).await;
    assert_eq!(child.post("cubbyhole/a", json!({ "b": 1 })).await.status, 204);
    app.client.post("cubbyhole/a", json!({ "b": 2 })).await.assert_status(204);
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": child.token })).await.status, 204);
    child.get("cubbyhole/a").await.assert_denied();
    let app = app.restart().await;
    assert_eq!(app.client.get("cubbyhole/a").await.body["data"], json!({ "b": 2 }));
    app.stop().await;
}

async fn entry_and_cubbyhole_sizes_are_limited(app: &App) {
    let client = app.with_policies(&["default"]).await;
    client.post("cubbyhole/a", json!({ "a": "x".repeat(70_000) })).await.assert_status(413);
    let mut kept = 0;
    let text = "x".repeat(60_000);
    let full = loop {
        let answer = client.post(&format!("cubbyhole/{kept}"), json!({ "a": text })).await;
        if answer.status != 204 {
            break answer;
        }
        kept += 1;
        assert!(kept < 100);
    };
    assert_eq!(full.status, 400, "{}", full.text);
    assert_eq!(full.error(), "cubbyhole: a token may have at most 128 entries and 2 MiB in total");
    assert_eq!(client.delete("cubbyhole/0").await.status, 204);
    assert_eq!(client.post("cubbyhole/x", json!({ "a": text })).await.status, 204);
    assert_eq!(app.with_policies(&["default"]).await.post("cubbyhole/a", json!({ "a": text })).await.status, 204);
}

async fn batch_token_has_no_cubbyhole(app: &App) {
    let batch = app.client.with_new_token(json!({ "policies": ["default"], "type": "batch" })).await;
    for answer in [
        batch.post("cubbyhole/a", json!({ "b": 1 })).await,
        batch.get("cubbyhole/a").await,
        batch.list("cubbyhole").await,
        batch.delete("cubbyhole/a").await,
    ] {
        assert_eq!((answer.status, answer.error()), (400, "cubbyhole: not available to batch tokens"));
    }
    // Its responses can be wrapped nevertheless.
    let wrapped = batch.request("GET", "auth/token/lookup-self").header("X-Vault-Wrap-TTL", "60");
    let token = super::wrapping::token_in(&crate::support::send(wrapped).await);
    let fetched = app.client.post("sys/wrapping/unwrap", json!({ "token": token })).await;
    assert_eq!(fetched.body["data"]["type"], "batch");
}

async fn the_mount_is_shown_and_stays_where_it_is(app: &App) {
    let shown = app.client.get("sys/mounts").await.body["data"]["cubbyhole/"].clone();
    assert_eq!(shown["type"], "cubbyhole");
    assert_eq!(
        app.client.delete("sys/mounts/cubbyhole").await.error(),
        "cannot unmount \"cubbyhole/\": reserved for the system"
    );
    let help = app.client.get("cubbyhole/a?help=1").await;
    assert!(help.body["help"].as_str().unwrap().contains("*path"), "{}", help.text);
    let missing = app.client.post("cubbyhole", json!({ "a": 1 })).await;
    assert_eq!((missing.status, &missing.body["data"]), (405, &Value::Null), "{}", missing.text);
}
