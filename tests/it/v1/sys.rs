//! `sys/`: status pages, mounts, policies, capabilities, metrics, managed keys.

mod managed_keys;
mod moves;
mod rotate;

use serde_json::{Value, json};

use crate::support::{App, send, tests_on};

tests_on!(server: App::start() =>
    status_pages_are_open_and_have_no_envelope,
    mounts_are_listed_in_data_and_at_top_level,
    mount_without_any_route_is_not_listed,
    mount_is_enabled_tuned_and_disabled,
    metrics_count_requests_by_route_and_not_by_name,
    root_tokens_that_never_expire_are_counted,
    irrevocable_lease_list_is_empty_and_old_paths_are_404,
    cve_2025_52894_and_2026_5807_no_attempt_can_be_cancelled,
    mount_help_lists_its_operations,
);

async fn status_pages_are_open_and_have_no_envelope(app: &App) {
    let stranger = app.client.with_token("");
    let keys = [("sys/live", "live"), ("sys/seal-status", "sealed"), ("sys/leader", "ha_enabled")];
    for (path, key) in keys.into_iter().chain([("sys/init", "initialized")]) {
        let answer = stranger.get(path).await.assert_status(200);
        assert!(answer.body.get(key).is_some() && answer.body.get("data").is_none(), "{path}: {}", answer.text);
    }
}

async fn mounts_are_listed_in_data_and_at_top_level(app: &App) {
    let mounts = app.client.get("sys/mounts").await;
    assert_eq!(mounts.body["data"]["pki/"]["type"], "pki");
    assert_eq!(mounts.body["pki/"], mounts.body["data"]["pki/"]);
    assert!(mounts.body["data"]["pki/"]["config"]["default_lease_ttl"].is_i64());
    assert!(mounts.body["data"].get("sys/").is_some() && mounts.body["data"].get("auth/token/").is_none());
    assert!(app.client.get("sys/auth").await.body["data"].get("token/").is_some());
    assert_eq!(app.client.get("sys/mounts/pki").await.body["data"]["type"], "pki");
    app.client.get("sys/mounts/absent").await.assert_error(400, "No secret engine mount at absent/");
}

async fn mount_without_any_route_is_not_listed(app: &App) {
    for (list, prefix) in [("sys/mounts", ""), ("sys/auth", "auth/")] {
        let mounts = app.client.get(list).await.body["data"].clone();
        for (path, mount) in mounts.as_object().unwrap() {
            let kind = mount["type"].as_str().unwrap();
            assert!(signet::http::secrets::all_routes().any(|(known, _)| known == kind), "{prefix}{path} {kind}");
        }
    }
    app.policy("auditor", "path \"sys/mounts\" { capabilities = [\"read\"] }").await;
    let seen = app.with_policies(&["auditor"]).await.get("sys/mounts").await;
    let paths: Vec<&String> = seen.body["data"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["cubbyhole/", "identity/", "pki/", "sys/"]);
    for path in ["identity", "cubbyhole"] {
        assert_eq!(app.client.get(&format!("{path}/x")).await.status, 404);
        let answer = app.client.post(&format!("sys/mounts/{path}"), json!({ "type": "pki" })).await;
        let text = format!("cannot mount \"{path}/\": reserved for the system; choose another path");
        answer.assert_error(400, &text);
    }
}

async fn mount_is_enabled_tuned_and_disabled(app: &App) {
    app.client.enable("sys/mounts/team/ca", "pki").await;
    let tune = json!({ "max_lease_ttl": "8760h", "default_lease_ttl": "", "options": null, "force_no_cache": false });
    assert_eq!(app.client.post("sys/mounts/team/ca/tune", tune).await.status, 204);
    assert!(app.client.get("sys/mounts/team/ca/tune").await.body["data"]["max_lease_ttl"].is_i64());
    assert_eq!(app.client.get("team/ca/roles/x").await.text, "{\"errors\":[]}");
    let seen = app.client.get("sys/internal/ui/mounts/team/ca/roles").await;
    assert_eq!(seen.body["data"]["path"], "team/ca/", "{}", seen.text);
    assert_eq!(app.client.delete("sys/mounts/team/ca").await.status, 204);
    assert_eq!(app.client.delete("sys/mounts/team/ca").await.status, 204);
    assert_eq!(app.client.get("team/ca/roles/x").await.error(), "no handler for route \"team/ca/roles/x\"");
}

async fn metrics_count_requests_by_route_and_not_by_name(app: &App) {
    app.client.get("sys/policies/acl/very-secret-name").await;
    let page = app.client.page("/metrics").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/plain; version=0.0.4"));
    let line = "route=\"system/policies/acl/*name\",status=\"404\"}";
    assert!(page.text.contains(line), "{}", page.text);
    assert!(!page.text.contains("very-secret-name"));
    let text = app.client.get("sys/metrics?format=prometheus").await;
    assert_eq!((text.status, text.header("content-type")), (200, "text/plain; version=0.0.4"));
    let summary = app.client.get("sys/metrics").await;
    assert_eq!((summary.status, summary.header("content-type")), (200, "application/json"));
    let counters = summary.body["Counters"].as_array().unwrap();
    let asked = counters.iter().find(|counter| counter["Labels"]["route"] == "system/policies/acl/*name");
    assert!(asked.is_some_and(|counter| counter["Count"].as_i64().unwrap() > 0), "{asked:?}");
    assert!(!summary.text.contains("very-secret-name") && summary.body["Timestamp"].is_string());
    let answer = app.client.get("sys/metrics?format=xml").await;
    answer.assert_error(400, "format: must be json or prometheus, not \"xml\"");
}

#[actix_web::test]
async fn closed_metrics_need_a_token() {
    let app = App::builder().settings(|s| s.open_metrics = false).start().await;
    assert_eq!(app.client.page("/metrics").await.status, 403);
    assert_eq!(app.client.get("sys/metrics").await.status, 200);
    let page = app.client.request("GET", "sys/metrics").build().unwrap();
    let url = page.url().as_str().replace("/v1/sys/metrics", "/metrics");
    let page = |url: String| send(reqwest::Client::new().get(url).header("X-Service-Token", &app.client.token));
    assert_eq!(page(url.clone()).await.header("content-type"), "text/plain; version=0.0.4");
    let json = page(format!("{url}?format=json")).await;
    assert_eq!((json.status, json.header("content-type")), (200, "application/json"));
    assert_eq!(page(format!("{url}?format=xml")).await.status, 400);
    let nobody = crate::v1::rights::only(&app, "none", "path \"x\" { capabilities = [\"read\"] }").await;
    let help = reqwest::Client::new().get(format!("{url}?help=1")).header("X-Service-Token", &nobody.token);
    let help = send(help).await;
    assert!(help.status == 200 && !help.text.contains("signet_"), "help is for all, metrics are not");
    app.stop().await;
}

#[actix_web::test]
async fn health_reports_a_compatible_and_the_product_version() {
    let app = App::start().await;
    let stranger = app.client.with_token("");
    for path in ["sys/health", "sys/seal-status"] {
        let body = stranger.get(path).await.body;
        let version = body["version"].as_str().unwrap();
        let numbers: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
        assert!(numbers.len() == 3 && (numbers[0], numbers[1]) >= (1, 15), "{path}: {body}");
        assert_eq!((&body["product"], &body["product_version"]), (&json!("signet"), &json!(env!("CARGO_PKG_VERSION"))));
    }
    let history = app.client.list("sys/version-history").await.body["data"].clone();
    assert_eq!(history["keys"], json!([env!("CARGO_PKG_VERSION")]));
    let own = &history["key_info"][env!("CARGO_PKG_VERSION")];
    assert_eq!(own["previous_version"], Value::Null);
    assert!(own["timestamp_installed"].is_string());
    assert_eq!(app.client.get("sys/version-history").await.status, 405);
    let app = app.restart().await;
    assert_eq!(app.client.list("sys/version-history").await.body["data"], history);
    app.stop().await;
}

async fn root_tokens_that_never_expire_are_counted(app: &App) {
    let count = async || app.client.get("sys/internal/status").await.body["data"]["endless_root_tokens"].clone();
    let status = app.client.get("sys/internal/status").await;
    assert_eq!(status.body["data"], json!({ "restore": null, "endless_root_tokens": 1 }), "{}", status.text);
    let endless = app.client.post("auth/token/create", json!({ "policies": ["root"] })).await;
    for body in [json!({ "policies": ["root"], "ttl": "1h" }), json!({ "policies": ["default"] })] {
        assert_eq!(app.client.post("auth/token/create", body).await.status, 200);
    }
    assert_eq!(count().await, 2);
    let accessor = json!({ "accessor": endless.body["auth"]["accessor"] });
    assert!(app.client.post("auth/token/revoke-accessor", accessor).await.status < 300);
    assert_eq!(count().await, 1);
}

async fn irrevocable_lease_list_is_empty_and_old_paths_are_404(app: &App) {
    let none = app.client.get("sys/leases?type=irrevocable").await.body["data"].clone();
    assert_eq!(none, json!({ "lease_count": 0, "counts": {}, "leases": [] }));
    assert_eq!(app.client.get("sys/leases").await.status, 404);
    for query in ["type=other", "type=irrevocable&limit=0", "type=irrevocable&limit=x"] {
        assert_eq!(app.client.get(&format!("sys/leases?{query}")).await.status, 400, "{query}");
    }
    for path in ["renew", "renew/x", "revoke", "revoke/x", "revoke-prefix/x", "revoke-force/x"] {
        app.client.post(&format!("sys/{path}"), json!({ "lease_id": "x" })).await.assert_error(404, "unsupported path");
    }
}

async fn cve_2025_52894_and_2026_5807_no_attempt_can_be_cancelled(app: &App) {
    for path in ["sys/generate-root/attempt", "sys/rekey/init", "sys/rekey-recovery-key/init"] {
        app.client.with_token("").delete(path).await.assert_denied();
        assert_eq!(app.client.delete(path).await.status, 404, "there is no such thing here");
    }
}

#[actix_web::test]
async fn the_key_that_seals_has_a_number_and_a_time() {
    let app = App::start().await;
    let status = app.client.get("sys/key-status").await;
    let data = status.body["data"].clone();
    assert_eq!((&data["term"], &status.body["term"]), (&json!(1), &json!(1)), "{}", status.text);
    assert!(data["encryptions"].as_i64().unwrap() > 0);
    signet::clock::parse_rfc3339("", data["install_time"].as_str().unwrap()).unwrap();
    let app = app.restart().await;
    assert_eq!(app.client.get("sys/key-status").await.body["data"]["install_time"], data["install_time"]);
    app.stop().await;
}

async fn mount_help_lists_its_operations(app: &App) {
    for (path, parts) in [
        ("sys", &["system at sys/", "mounts/*path/tune: read, update", "wrapping/unwrap: update"][..]),
        ("pki/", &["pki at pki/", "roles/:name: read, update, patch, delete"][..]),
        ("auth/token", &["token at auth/token/", "lookup-self: read, update"][..]),
        ("cubbyhole", &["cubbyhole at cubbyhole/"][..]),
    ] {
        let help = app.client.get(&format!("{path}?help=1")).await;
        let text = help.body["help"].as_str().unwrap_or_else(|| panic!("{path}: {}", help.text));
        assert!(parts.iter().all(|part| text.contains(part)), "{path}: {text}");
    }
}
