//! `sys/auth`: methods are enabled, tuned and disabled.

use serde_json::{Value, json};

use super::{approle, log_in, role, role_with_secret_id, secret_id};
use crate::support::{App, METHODS, send, tests_on};
use crate::v1::rights::{granted, only};

tests_on!(
    method: approle() =>
        method_needs_a_free_path_and_a_method_type,
        mounts_of_one_method_are_independent,
        method_is_tuned_on_both_paths,
        sys_auth_needs_sudo_and_its_twin_below_sys_mounts_does_not,
        login_path_does_not_reveal_mounts;
    server: App::start() =>
        methods_are_listed_with_their_accessors_and_read_one_by_one,
        ignored_settings_of_a_mount_are_named;
);

async fn method_needs_a_free_path_and_a_method_type(app: &App) {
    let enable =
        async |path: &str, kind: Value| app.client.post(&format!("sys/auth/{path}"), json!({ "type": kind })).await;
    enable("approle", json!("approle")).await.assert_error(400, "path is already in use at auth/approle/");
    enable("approle/x", json!("jwt")).await.assert_error(400, "path is already in use at auth/approle/");
    enable("token", json!("approle")).await.assert_error(400, "path is already in use at auth/token/");
    assert_eq!(enable("team/machines", json!("approle")).await.status, 204);
    enable("team", json!("approle")).await.assert_error(400, "existing mount at auth/team/machines/");
    for (kind, text) in [
        (json!("token"), "mount type of \"token\" is not mountable"),
        (json!("system"), "mount type of \"system\" is not mountable"),
        (json!("pki"), "unknown mount type: \"pki\""),
        (json!("kerberos"), "unknown mount type: \"kerberos\""),
        (json!(""), "backend type must be specified as a string"),
        (Value::Null, "backend type must be specified as a string"),
    ] {
        enable("x", kind).await.assert_error(400, text);
    }
    for kind in METHODS {
        let engine = app.client.post("sys/mounts/x", json!({ "type": kind })).await;
        engine.assert_error(400, &format!("unknown mount type: {kind:?}"));
    }
    app.client
        .delete("sys/auth/token")
        .await
        .assert_error(400, "cannot disable \"auth/token/\": not an authentication method that can be disabled");
    assert_eq!(app.client.delete("sys/auth/absent").await.status, 204);
}

async fn mounts_of_one_method_are_independent(app: &App) {
    assert_eq!(app.client.post("sys/auth/team/machines", json!({ "type": "approle" })).await.status, 204);
    role(app, "web", json!({})).await;
    let path = "auth/team/machines";
    assert_eq!(app.client.list(&format!("{path}/role")).await.status, 404);
    let own = json!({ "role_id": "web-id", "token_policies": "team" });
    assert_eq!(app.client.post(&format!("{path}/role/web"), own).await.status, 204, "role ids are of one mount");
    let made = app.client.post(&format!("{path}/role/web/secret-id"), json!({})).await.body["data"].clone();
    let body = json!({ "role_id": "web-id", "secret_id": made["secret_id"] });
    let stranger = app.client.with_token("");
    let entered = stranger.post(&format!("{path}/login"), body.clone()).await;
    assert_eq!(entered.body["auth"]["policies"], json!(["default", "team"]), "{}", entered.text);
    let own = app.client.holder(&entered);
    let found = own.get("auth/token/lookup-self").await.body["data"].clone();
    assert_eq!(found["path"], "auth/team/machines/login");
    assert_eq!(found["display_name"], "team-machines");
    stranger.post("auth/approle/login", body).await.assert_error(400, "invalid role or secret ID");
    let here = secret_id(app, "web", json!({})).await;
    assert_eq!(app.client.delete("sys/auth/team/machines").await.status, 204);
    own.get("auth/token/lookup-self").await.assert_denied();
    assert_eq!(log_in(&app.client, "web", &here["secret_id"]).await.status, 200);
}

#[actix_web::test]
async fn disabled_method_revokes_its_tokens_and_their_children() {
    let app = approle().await;
    app.policy("maker", &granted("auth/token/create", &["update"])).await;
    let made = role_with_secret_id(&app, "web", json!({ "token_policies": "maker" })).await;
    let own = app.client.holder(&log_in(&app.client, "web", &made["secret_id"]).await);
    let child = app.client.holder(&own.post("auth/token/create", json!({ "policies": ["default"] })).await);
    let stranger = app.with_policies(&["default"]).await;
    for client in [&own, &child, &stranger] {
        assert_eq!(client.get("auth/token/lookup-self").await.status, 200);
    }
    assert_eq!(app.client.delete("sys/auth/approle").await.status, 204);
    own.get("auth/token/lookup-self").await.assert_denied();
    child.get("auth/token/lookup-self").await.assert_denied();
    assert_eq!(stranger.get("auth/token/lookup-self").await.status, 200);
    assert_eq!(app.client.get("auth/approle/role/web").await.error(), "no handler for route \"auth/approle/role/web\"");
    assert_eq!(log_in(&app.client, "web", &made["secret_id"]).await.status, 403, "nobody learns what is there");
    // A new method at the same path is independent of the old one.
    let app = super::with_approle(app).await;
    assert_eq!(app.client.list("auth/approle/role").await.status, 404);
    role(&app, "web", json!({})).await;
    log_in(&app.client, "web", &made["secret_id"]).await.assert_error(400, "invalid role or secret ID");
    own.get("auth/token/lookup-self").await.assert_denied();
    app.stop().await;
}

async fn methods_are_listed_with_their_accessors_and_read_one_by_one(app: &App) {
    for kind in METHODS {
        let body = json!({ "type": kind, "description": "for tests", "config": { "max_lease_ttl": "2h" } });
        assert_eq!(app.client.post(&format!("sys/auth/my-{kind}"), body).await.status, 204);
    }
    let listed = app.client.get("sys/auth").await;
    let paths: Vec<&String> = listed.body["data"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["my-approle/", "my-cloudb/", "my-jwt/", "token/"]);
    for kind in METHODS {
        let entry = &listed.body["data"][format!("my-{kind}/")];
        assert_eq!((&entry["type"], &entry["config"]["max_lease_ttl"]), (&json!(kind), &json!(7200)));
        assert_eq!(entry["config"]["token_type"], "default-service");
        assert!(entry["accessor"].as_str().unwrap().starts_with(&format!("{kind}_")));
        assert_eq!(listed.body[format!("my-{kind}/")], *entry, "at top level too");
        let one = app.client.get(&format!("sys/auth/my-{kind}")).await;
        assert_eq!(one.body["data"], *entry);
        assert!(app.client.get("sys/mounts").await.body["data"].get(format!("my-{kind}/")).is_none());
    }
    app.client.get("sys/auth/absent").await.assert_error(400, "No auth engine at absent/");
}

#[actix_web::test]
async fn method_enabled_as_azure_reads_back_so_to_known_clients_alone() {
    let app = App::start().await;
    for (path, kind) in [("azure", "azure"), ("own", "cloudb")] {
        assert_eq!(app.client.post(&format!("sys/auth/{path}"), json!({ "type": kind })).await.status, 204);
    }
    let app = app.restart().await;
    let peers = async |path: &str| {
        let request = app.client.with_token("").request("GET", path).header("X-Vault-Token", &app.client.token);
        send(request).await.body["data"].clone()
    };
    for (path, kind) in [("azure", "azure"), ("own", "cloudb")] {
        let entry = format!("{path}/");
        assert_eq!(peers("sys/auth").await[&entry]["type"], kind);
        assert_eq!(peers(&format!("sys/auth/{path}")).await["type"], kind);
        assert_eq!(peers(&format!("sys/mounts/auth/{path}")).await["type"], kind);
        assert_eq!(peers("sys/internal/ui/mounts").await["auth"][&entry]["type"], kind);
        assert_eq!(peers(&format!("sys/internal/ui/mounts/auth/{path}")).await["type"], kind);
        assert_eq!(app.client.get("sys/auth").await.body["data"][&entry]["type"], "cloudb");
        assert_eq!(app.client.get("sys/internal/ui/mounts").await.body["data"]["auth"][&entry]["type"], "cloudb");
    }
    app.stop().await;
}

async fn ignored_settings_of_a_mount_are_named(app: &App) {
    let client = &app.client;
    let config = json!({ "default_lease_tll": "1h", "max_lease_ttl": "2h", "identity_token_key": "", "bogus": [] });
    for (path, kind) in [("sys/auth/approle", "approle"), ("sys/mounts/other", "pki")] {
        let body = json!({ "type": kind, "config": config, "plugin_version": "v1", "plugin_name": "" });
        let answer = client.post(path, body).await;
        assert_eq!((answer.status, &answer.body["data"]), (200, &Value::Null), "{}", answer.text);
        let named = "Endpoint ignored these unrecognized parameters: [plugin_version default_lease_tll]";
        let meant = "did you mean default_lease_ttl instead of default_lease_tll?";
        assert_eq!(answer.body["warnings"], json!([named, meant]), "{path}");
        let tuned = client.post(&format!("{path}/tune"), json!({ "max_lease_tt": "3h" })).await.assert_status(200);
        assert!(tuned.body["warnings"][1].as_str().unwrap().contains("did you mean max_lease_ttl"), "{}", tuned.text);
        let lockout = json!({ "user_lockout_config": { "lockout_threshold": 3 }, "plugin_version": "" });
        let tuned = client.post(&format!("{path}/tune"), lockout).await;
        let named = json!(["Endpoint ignored these unrecognized parameters: [user_lockout_config]"]);
        assert_eq!((tuned.status, &tuned.body["warnings"]), (200, &named), "{}", tuned.text);
        let silent = json!({ "user_lockout_config": {}, "plugin_version": "", "description": "x" });
        assert_eq!(client.post(&format!("{path}/tune"), silent).await.status, 204);
    }
}

async fn method_is_tuned_on_both_paths(app: &App) {
    let client = &app.client;
    assert_eq!(client.get("sys/auth/approle/tune").await.body["data"]["token_type"], "default-service");
    let tune = json!({ "default_lease_ttl": "1h", "max_lease_ttl": "2h", "token_type": "service", "description": "x" });
    assert_eq!(client.post("sys/auth/approle/tune", tune).await.status, 204);
    let shown = client.get("sys/mounts/auth/approle/tune").await.body["data"].clone();
    let read = (&shown["default_lease_ttl"], &shown["max_lease_ttl"], &shown["token_type"]);
    assert_eq!(read, (&json!(3600), &json!(7200), &json!("service")));
    for bad in [json!({ "default_lease_ttl": "3h" }), json!({ "max_lease_ttl": "-1h" }), json!({ "token_type": "x" })] {
        let answer = client.post("sys/mounts/auth/approle/tune", bad.clone()).await;
        let field = bad.as_object().unwrap().keys().next().unwrap().clone();
        assert!(answer.status == 400 && answer.error().contains(&field), "{}", answer.text);
    }
    assert_eq!(client.post("sys/mounts/auth/approle/tune", json!({ "default_lease_ttl": "" })).await.status, 204);
    assert_eq!(client.get("sys/auth/approle/tune").await.body["data"]["default_lease_ttl"], 3600);
    // Login tokens follow the mount's settings.
    let made = role_with_secret_id(app, "web", json!({})).await;
    let life = async || log_in(client, "web", &made["secret_id"]).await.body["auth"]["lease_duration"].clone();
    assert_eq!(life().await, 3600);
    client.post("sys/auth/approle/tune", json!({ "default_lease_ttl": "system", "max_lease_ttl": 0 })).await;
    assert_eq!(life().await, 2_764_800);
    let answer = client.post("auth/approle/role/web", json!({ "token_period": "769h" })).await;
    answer.assert_error(400, "token period of \"769h\" is greater than the backend's maximum lease TTL of \"768h\"");
}

async fn sys_auth_needs_sudo_and_its_twin_below_sys_mounts_does_not(app: &App) {
    let plain = only(app, "plain", &granted("sys/auth/*", &["create", "read", "update", "delete"])).await;
    plain.post("sys/auth/x", json!({ "type": "approle" })).await.assert_denied();
    plain.delete("sys/auth/approle").await.assert_denied();
    plain.get("sys/auth/approle").await.assert_denied();
    plain.post("sys/auth/approle/tune", json!({ "description": "x" })).await.assert_denied();
    let twin = only(app, "twin", &granted("sys/mounts/auth/approle/tune", &["read", "update"])).await;
    assert_eq!(twin.post("sys/mounts/auth/approle/tune", json!({ "description": "x" })).await.status, 204);
    assert_eq!(twin.get("sys/mounts/auth/approle/tune").await.body["data"]["description"], "x");
    // All rights on secret engines include reading methods, as some clients need, but not disabling them.
    let engines = only(app, "engines", &granted("sys/mounts/*", &["create", "read", "update", "delete"])).await;
    engines
        .delete("sys/mounts/auth/approle")
        .await
        .assert_error(400, "cannot unmount \"auth/approle/\": reserved for the system");
    let method = app.client.get("sys/auth/approle").await.body["data"].clone();
    assert_eq!(method["type"], "approle");
    assert_eq!(engines.get("sys/mounts/auth/approle").await.body["data"], method);
    engines.get("sys/mounts/auth/absent").await.assert_error(400, "No secret engine mount at auth/absent/");
    twin.get("sys/mounts/auth/approle").await.assert_denied();
    for (right, done) in [("update", "sys/auth/x"), ("delete", "sys/auth/approle")] {
        let client = only(app, "sudo", &granted("sys/auth/*", &[right, "sudo"])).await;
        let enabled = client.post("sys/auth/x", json!({ "type": "approle" })).await;
        let disabled = client.delete("sys/auth/approle").await;
        let answers = [("update", enabled), ("delete", disabled)];
        for (word, answer) in answers {
            assert_eq!(answer.status, if word == right { 204 } else { 403 }, "{done}: {word}: {}", answer.text);
        }
    }
    let lister = only(app, "lister", &granted("sys/auth", &["read"])).await;
    assert_eq!(lister.get("sys/auth").await.status, 200);
    lister.get("sys/auth/x").await.assert_denied();
}

async fn login_path_does_not_reveal_mounts(app: &App) {
    let stranger = app.client.with_token("");
    stranger.post("auth/absent/login", json!({ "role_id": "x" })).await.assert_denied();
    stranger.get("auth/approle/role/web").await.assert_denied();
    stranger.get("auth/absent/role/web").await.assert_denied();
    let get = stranger.get("auth/approle/login").await;
    assert_eq!((get.status, get.header("allow")), (405, "POST, PUT"), "{}", get.text);
    let powerless = app.with_policies(&["default"]).await;
    let here = powerless.get("sys/internal/ui/mounts/auth/approle").await;
    let absent = powerless.get("sys/internal/ui/mounts/auth/absent").await;
    assert_eq!((here.status, absent.status), (403, 403));
    assert_eq!(here.text.replace("approle", "absent"), absent.text);
}
