//! Moving mounts, and the visibility of mounts.

use serde_json::{Value, json};

use crate::support::{App, Client, tests_on, tests_on_both_stores};
use crate::v1::rights::{granted, only};

tests_on_both_stores!(leases_follow_their_mount, prefix_revocation_skips_moved_mounts);
tests_on!(server: App::start() =>
    moving_needs_two_valid_paths,
    mount_is_visible_with_any_right_at_it_or_below,
    unauthenticated_caller_sees_little_of_public_mounts_only,
);

#[actix_web::test]
async fn mount_moves_with_its_contents() {
    let app = App::start().await;
    let client = &app.client;
    client.authority("pki", leases()).await;
    let (serial, lease) = leased(client, "pki").await;
    let ca = client.get("pki/ca/pem").await.text;

    let moved = client.post("sys/remount", json!({ "from": "pki/", "to": "team/ca/" })).await.assert_status(200);
    let id = moved.body["data"]["migration_id"].as_str().unwrap();
    assert_eq!(moved.body["migration_id"], id);
    let status = client.get(&format!("sys/remount/status/{id}")).await.body["data"].clone();
    let info = json!({ "source_mount": "pki/", "target_mount": "team/ca/", "status": "success" });
    assert_eq!(status, json!({ "migration_id": id, "migration_info": info }));
    assert_eq!(client.get("sys/remount/status/none").await.text, "{\"errors\":[]}");

    assert_eq!(client.get("pki/ca/pem").await.status, 404);
    client.with_token("").get("pki/ca/pem").await.assert_denied();
    assert_eq!(client.get("team/ca/ca/pem").await.text, ca);
    assert_eq!(client.get(&format!("team/ca/cert/{serial}")).await.status, 200);
    let again = client.post("team/ca/issue/web", json!({ "common_name": "b.test" })).await;
    assert!(again.body["lease_id"].as_str().unwrap().starts_with("team/ca/issue/web/"), "{}", again.text);
    // A lease from before the move keeps its id.
    let lease = json!({ "lease_id": lease });
    assert_eq!(client.post("sys/leases/lookup", lease.clone()).await.status, 200);
    assert_eq!(client.post("sys/leases/revoke", lease).await.status, 204);
    assert!(is_revoked(client, "team/ca", &serial).await);
    let app = app.restart().await;
    assert_eq!(app.client.get("team/ca/ca/pem").await.text, ca);
    // The path is free.
    app.client.enable("sys/mounts/pki", "pki").await;
    app.stop().await;
}

/// The field of a role whose certificates have leases.
fn leases() -> Value {
    json!({ "generate_lease": true })
}

/// The next segments of the leases below a path.
async fn keys(client: &Client, path: &str) -> Value {
    client.list(&format!("sys/leases/lookup/{path}")).await.body["data"]["keys"].clone()
}

async fn remount(client: &Client, from: &str, to: &str) {
    client.post("sys/remount", json!({ "from": from, "to": to })).await.assert_status(200);
}

async fn revoke_prefix(client: &Client, path: &str) {
    client.post(&format!("sys/leases/revoke-prefix/{path}"), json!({})).await.assert_status(204);
}

/// Issues a certificate with a lease. Returns the serial and the lease id.
async fn leased(client: &Client, mount: &str) -> (String, String) {
    let body = json!({ "common_name": "a.test" });
    let issued = client.post(&format!("{mount}/issue/web"), body).await.assert_status(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&issued.body["data"]["serial_number"]), text(&issued.body["lease_id"]))
}

async fn is_revoked(client: &Client, mount: &str, serial: &str) -> bool {
    let shown = client.get(&format!("{mount}/cert/{serial}")).await;
    shown.body["data"]["revocation_time"].as_i64().unwrap() > 0
}

async fn leases_follow_their_mount(app: &App) {
    let client = &app.client;
    client.authority("pki", leases()).await;
    let (first, first_id) = leased(client, "pki").await;
    remount(client, "pki", "b").await;
    remount(client, "b", "team/ca").await;
    let (second, _) = leased(client, "team/ca").await;
    client.enable("sys/mounts/pki", "pki").await;
    client.authority("pki", leases()).await;
    let (other, other_id) = leased(client, "pki").await;

    // The new path leads to all leases of the mount and to no others.
    assert_eq!(keys(client, "team/ca").await, json!(["issue/"]));
    assert_eq!(keys(client, "team").await, json!(["ca/"]));
    let listed = keys(client, "team/ca/issue/web").await;
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let today = format!("team/ca/issue/web/{}", first_id.rsplit('/').next().unwrap());
    for id in [&first_id, &today] {
        let shown = client.post("sys/leases/lookup", json!({ "lease_id": id })).await;
        assert_eq!(shown.body["data"]["id"], first_id.as_str(), "{}", shown.text);
    }
    let other_of_old = keys(client, "pki/issue/web").await;
    assert_eq!(other_of_old, json!([other_id.rsplit('/').next().unwrap()]));

    revoke_prefix(client, "team/ca/issue/web").await;
    assert!(is_revoked(client, "team/ca", &first).await && is_revoked(client, "team/ca", &second).await);
    assert!(!is_revoked(client, "pki", &other).await, "it belongs to another mount");
    assert_eq!(keys(client, "team/ca").await, Value::Null);
    let (third, third_id) = leased(client, "pki").await;
    remount(client, "pki", "c").await;
    let today = third_id.replacen("pki/", "c/", 1);
    assert_eq!(client.post("sys/leases/revoke", json!({ "lease_id": today })).await.status, 204);
    assert!(is_revoked(client, "c", &third).await && !is_revoked(client, "c", &other).await);
    // A path without a mount: leases that were created there.
    revoke_prefix(client, "pki").await;
    assert!(is_revoked(client, "c", &other).await);
}

async fn prefix_revocation_skips_moved_mounts(app: &App) {
    let client = &app.client;
    for mount in ["team/pki", "team/stays"] {
        client.enable(&format!("sys/mounts/{mount}"), "pki").await;
        client.authority(mount, leases()).await;
    }
    let (moved, _) = leased(client, "team/pki").await;
    let (stays, _) = leased(client, "team/stays").await;
    remount(client, "team/pki", "prod/pki").await;
    assert_eq!((keys(client, "team").await, keys(client, "prod").await), (json!(["stays/"]), json!(["pki/"])));
    revoke_prefix(client, "team").await;
    assert!(is_revoked(client, "team/stays", &stays).await);
    assert!(!is_revoked(client, "prod/pki", &moved).await, "it is in use at another path");
    revoke_prefix(client, "prod").await;
    assert!(is_revoked(client, "prod/pki", &moved).await);
}

async fn moving_needs_two_valid_paths(app: &App) {
    for (body, text) in [
        (json!({ "from": "pki" }), "both 'from' and 'to' path must be specified as a string"),
        (json!({ "from": "", "to": "x" }), "both 'from' and 'to' path must be specified as a string"),
        (json!({ "from": "absent", "to": "x" }), "no matching mount at \"absent/\""),
        (
            json!({ "from": "pki", "to": "sys/x" }),
            "cannot remount to destination \"sys/\": reserved for the system; choose another path",
        ),
    ] {
        app.client.post("sys/remount", body).await.assert_error(400, text);
    }
}

async fn seen(client: &Client) -> (Vec<String>, Vec<String>) {
    let answer = client.get("sys/internal/ui/mounts").await.assert_status(200);
    let paths = |name: &str| answer.body["data"][name].as_object().unwrap().keys().cloned().collect();
    (paths("secret"), paths("auth"))
}

async fn mount_is_visible_with_any_right_at_it_or_below(app: &App) {
    for path in ["team/ca", "open"] {
        app.client.enable(&format!("sys/mounts/{path}"), "pki").await;
    }
    let tune = json!({ "listing_visibility": "unauth", "description": "for all" });
    assert_eq!(app.client.post("sys/mounts/open/tune", tune).await.status, 204);
    for (name, rule, path) in [
        ("below", granted("pki/issue/web", &["update"]), "pki"),
        ("deep", granted("team/ca/roles/+", &["read"]), "team/ca"),
        ("at", granted("pki", &["list"]), "pki"),
        ("above", granted("team/*", &["read"]), "team/ca"),
    ] {
        let client = only(app, name, &rule).await;
        for asked in [path.to_owned(), format!("{path}/issue/web")] {
            let answer = client.get(&format!("sys/internal/ui/mounts/{asked}")).await;
            assert_eq!(answer.body["data"]["path"], format!("{path}/"), "{name} {asked}: {}", answer.text);
        }
        assert_eq!(seen(&client).await.0, ["open/".to_owned(), format!("{path}/")], "{name}");
        // A mount that the client may not see looks like a missing one.
        let other = if path == "pki" { "team/ca" } else { "pki" };
        for hidden in [other, "absent"] {
            let answer = client.get(&format!("sys/internal/ui/mounts/{hidden}")).await;
            assert_eq!(answer.status, 403, "{name} {hidden}: {}", answer.text);
            assert!(answer.error().ends_with(&format!("grant access to path \"{hidden}/\"")), "{}", answer.text);
        }
    }
    let denied = format!("{}{}", granted("pki/*", &["deny"]), granted("+/issue/web", &["update"]));
    let client = only(app, "denied", &denied).await;
    assert_eq!(client.get("sys/internal/ui/mounts/pki").await.status, 403);
    let (secret, auth) = seen(&app.client).await;
    assert!(secret.contains(&"pki/".to_owned()) && auth.contains(&"token/".to_owned()), "{secret:?} {auth:?}");
}

async fn unauthenticated_caller_sees_little_of_public_mounts_only(app: &App) {
    let stranger = app.client.with_token("");
    assert_eq!(seen(&stranger).await, (vec![], vec![]));
    let tune = json!({ "listing_visibility": "unauth", "description": "for all" });
    assert_eq!(app.client.post("sys/mounts/pki/tune", tune).await.status, 204);
    let shown = stranger.get("sys/internal/ui/mounts").await.body["data"]["secret"].clone();
    let little = json!({ "type": "pki", "description": "for all", "options": Value::Null });
    assert_eq!(shown, json!({ "pki/": little }));
    app.client.with_token("s.unknown").get("sys/internal/ui/mounts").await.assert_denied();
    stranger.get("sys/internal/ui/mounts/pki").await.assert_denied();
}
