//! Policies over HTTP: validation, storage, and the effect of a right on its route. Unit tests cover the rules.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use signet::http::secrets::route::{Operation, Route, RouteAccess};
use signet::http::secrets::{all_routes, sudo};
use time::macros::datetime;

use super::rights::{granted, only, rule};
use crate::support::{App, assert_has, tests_on, with};

tests_on!(server: App::start() =>
    invalid_policy_is_400_and_not_stored,
    parameter_rules_apply_to_every_spelling_of_a_value,
    sudo_paths_need_sudo_even_if_unimplemented,
    built_in_policies_are_read_only,
    capabilities_are_listed_by_token_and_accessor,
    policy_is_accepted_in_three_forms_and_read_unchanged,
    deny_on_a_segment_covers_the_list_of_its_folder,
    policy_names_are_folded_and_version_and_expiry_are_checked,
);

const ACL: &str = "sys/policies/acl";

async fn invalid_policy_is_400_and_not_stored(app: &App) {
    for (text, problem) in [
        (r#"path "a/+*" { capabilities = ["read"] }"#, "\"+*\" is forbidden"),
        (r#"path "a" { capabilities = ["foo"] }"#, "unknown capability \"foo\""),
        (r#"path "a" { bar = 1 }"#, "unknown key \"bar\""),
        (r#"path "a" { mfa_methods = ["x"] }"#, "unknown key \"mfa_methods\""),
        (r#"path "a" { control_group = {} }"#, "unknown key \"control_group\""),
        (r#"path "a" { pagination_limit = 1 }"#, "unknown key \"pagination_limit\""),
    ] {
        let refused = app.client.post(&format!("{ACL}/bad"), json!({ "policy": text })).await.assert_status(400);
        assert!(refused.error().starts_with("failed to parse policy: line 1: "), "{}", refused.text);
        assert!(refused.error().contains(problem), "{}", refused.text);
    }
    assert_eq!(app.client.get(&format!("{ACL}/bad")).await.status, 404);
}

async fn parameter_rules_apply_to_every_spelling_of_a_value(app: &App) {
    let allowed = r#"required_parameters = ["ttl"] allowed_parameters = { "ttl" = ["1h", "2h"], "*" = [] }"#;
    let denied = r#"denied_parameters = { "allow_any_name" = [true] }"#;
    let text = rule("pki/roles/r", &format!(r#"capabilities = ["update"] {allowed} {denied}"#));
    let client = only(app, "roles", &text).await;
    for (body, may) in [
        (json!({ "ttl": "1h" }), true),
        (json!({ "ttl": "3h" }), false),
        (json!({ "key_type": "ec" }), false),
        (json!({ "ttl": "2h", "key_type": "ec" }), true),
        (json!({ "ttl": "1h", "allow_any_name": true }), false),
        (json!({ "ttl": "1h", "allow_any_name": "true" }), false),
        (json!({ "ttl": "1h", "allow_any_name": 1 }), false),
        (json!({ "ttl": "1h", "Allow_Any_Name": true }), false),
        (json!({ "ttl": "1h", "allow_any_name": false }), true),
    ] {
        let answer = client.post("pki/roles/r", body.clone()).await;
        assert_eq!(answer.status < 300, may, "{body}: {}", answer.text);
        assert!(may || answer.status == 403, "{body}: {}", answer.text);
    }
}

async fn sudo_paths_need_sudo_even_if_unimplemented(app: &App) {
    let paths = ["pki/root/sign-self-issued", "sys/seal", "sys/config/cors", "sys/raw/x", "sys/auth/none/tune"];
    let with = |words: &[&str]| paths.map(|path| granted(path, words)).concat();
    let without = only(app, "update", &with(&["update"])).await;
    let sudo = only(app, "sudo", &with(&["update", "sudo"])).await;
    for path in paths {
        without.post(path, json!({})).await.assert_denied();
        let answer = sudo.post(path, json!({})).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.text);
    }
    // The path of an issuer does not need sudo.
    let issuer = only(app, "issuer", &granted("pki/issuer/default/sign-self-issued", &["update"])).await;
    assert_ne!(issuer.post("pki/issuer/default/sign-self-issued", json!({})).await.status, 403);
}

fn seen(route: &Route) -> String {
    let segment = |s: &str| if s.starts_with([':', '*']) { "0a".to_owned() } else { s.to_owned() };
    let path = route.pattern.split('/').map(segment).collect::<Vec<_>>().join("/");
    if route.operation == Operation::List { format!("{path}/") } else { path }
}

#[test]
fn sudo_routes_match_the_sudo_table() {
    for (kind, route) in all_routes() {
        let kind = signet::auth::mounts::MountKind::from(kind.to_owned());
        let needed = sudo::requires_sudo(&kind, &seen(route), route.operation);
        assert_eq!(route.access == RouteAccess::Sudo, needed, "{kind:?} {:?} {}", route.operation, route.pattern);
    }
}

async fn built_in_policies_are_read_only(app: &App) {
    let text = json!({ "policy": granted("x", &["read"]) });
    for name in ["ROOT", "Root%20", "root", "response-wrapping"] {
        app.client.post(&format!("{ACL}/{name}"), text.clone()).await.assert_error_begins(400, "cannot update \"");
    }
    for name in ["default", "Default", "root", "response-wrapping"] {
        let text = format!("cannot delete {:?} policy", name.to_lowercase());
        app.client.delete(&format!("{ACL}/{name}")).await.assert_error(400, &text);
    }
    assert_eq!(app.client.list(ACL).await.body["data"]["keys"], json!(["default", "root"]));
    assert_eq!(app.client.get(&format!("{ACL}/root")).await.body["data"]["policy"], "");
    let wrapping = app.client.get(&format!("{ACL}/response-wrapping")).await.body["data"]["policy"].clone();
    for path in ["cubbyhole/response", "sys/wrapping/unwrap"] {
        assert!(wrapping.as_str().unwrap().contains(path), "{wrapping}");
    }
    for body in [json!({}), json!({ "policy": "" })] {
        let refused = app.client.post(&format!("{ACL}/empty"), body).await;
        refused.assert_error(400, "'policy' parameter not supplied or empty");
    }
}

const EVERYBODYS: [(&str, &[&str]); 15] = [
    ("auth/token/lookup-self", &["read"]),
    ("auth/token/renew-self", &["update"]),
    ("auth/token/revoke-self", &["update"]),
    ("sys/capabilities-self", &["update"]),
    ("sys/internal/ui/resultant-acl", &["read"]),
    ("sys/leases/renew", &["update"]),
    ("sys/leases/lookup", &["update"]),
    ("cubbyhole/x", &["create", "delete", "list", "read", "update"]),
    ("sys/wrapping/wrap", &["update"]),
    ("sys/wrapping/lookup", &["update"]),
    ("sys/wrapping/unwrap", &["update"]),
    ("sys/tools/hash", &["update"]),
    ("sys/tools/hash/sha2-256", &["update"]),
    ("sys/internal/explain", &["deny"]),
    ("auth/token/create", &["deny"]),
];

async fn capabilities_are_listed_by_token_and_accessor(app: &App) {
    let made = app.client.post("auth/token/create", json!({ "policies": ["default"] })).await;
    let client = app.client.holder(&made);
    let accessor = &made.body["auth"]["accessor"];
    let paths = EVERYBODYS.map(|(path, _)| path);
    for answer in [
        client.post("sys/capabilities-self", json!({ "paths": paths })).await,
        client.post("sys/capabilities-self", json!({ "paths": paths.join(", "), "token": "ignored" })).await,
        app.client.post("sys/capabilities", json!({ "token": client.token, "paths": paths })).await,
        app.client.post("sys/capabilities-accessor", json!({ "accessor": accessor, "paths": paths })).await,
    ] {
        for (path, words) in EVERYBODYS {
            assert_eq!(answer.body["data"][path], json!(words), "{path}: {}", answer.text);
            assert_eq!(answer.body[path], json!(words), "{path}");
        }
        assert!(answer.body["data"].get("capabilities").is_none());
    }
    let one = client.post("sys/capabilities-self", json!({ "path": "sys/mounts" })).await;
    assert_eq!((&one.body["data"]["capabilities"], &one.body["capabilities"]), (&json!(["deny"]), &json!(["deny"])));
    let root = app.client.post("sys/capabilities-self", json!({ "path": "anything" })).await;
    assert_eq!(root.body["data"], json!({ "anything": ["root"], "capabilities": ["root"] }));
    let long = vec!["x".repeat(1000); 263];
    app.client.post("sys/capabilities-self", json!({ "paths": long[1..] })).await.assert_status(200);
    for (path, body, text) in [
        ("sys/capabilities-self", json!({ "paths": long }), "paths: longer than 262144 bytes in total"),
        ("sys/capabilities-self", json!({}), "paths must be supplied"),
        ("sys/capabilities", json!({ "path": "x" }), "token: must be given"),
        ("sys/capabilities", json!({ "path": "x", "token": "s.none" }), "token: not known"),
        ("sys/capabilities-accessor", json!({ "path": "x" }), "accessor: must be given"),
        ("sys/capabilities-accessor", json!({ "path": "x", "accessor": "none" }), "invalid accessor"),
    ] {
        app.client.post(path, body).await.assert_error(400, text);
    }
}

async fn policy_is_accepted_in_three_forms_and_read_unchanged(app: &App) {
    let forms = [
        "path \"pki/roles/*\" { capabilities = [\"read\"] }".to_owned(),
        json!({ "path": { "pki/roles/*": { "capabilities": ["read"] } } }).to_string(),
    ];
    for (at, text) in forms.iter().enumerate() {
        for sent in [text.clone(), STANDARD.encode(text)] {
            let name = format!("form-{at}");
            app.policy(&name, &sent).await;
            assert_eq!(app.client.get(&format!("{ACL}/{name}")).await.body["data"]["policy"], json!(text));
            let client = app.with_policies(&[&name]).await;
            assert_eq!(client.get("pki/roles/none").await.status, 404);
            client.list("pki/roles").await.assert_denied();
        }
    }
    let old = app.client.post("sys/policy/old", json!({ "rules": forms[0] })).await;
    assert_eq!((old.status, &old.body["data"]), (200, &Value::Null));
    assert!(old.body["warnings"][0].as_str().unwrap().contains("deprecated"), "{}", old.text);
    for name in ["old", "form-0"] {
        let read = app.client.get(&format!("sys/policy/{name}")).await;
        assert_has(&read.body["data"], json!({ "rules": forms[0], "policy": forms[0] }));
        assert_eq!(read.body["rules"], json!(forms[0]));
    }
    let names = app.client.get("sys/policy").await;
    assert_eq!(names.body["data"]["keys"], names.body["policies"]);
    assert!(names.body["policies"].as_array().unwrap().contains(&json!("old")));
    assert_eq!(app.client.delete(&format!("{ACL}/old")).await.status, 204);
    assert_eq!(app.client.get(&format!("{ACL}/old")).await.status, 404);
}

async fn deny_on_a_segment_covers_the_list_of_its_folder(app: &App) {
    let client = only(app, "lists", &(granted("pki/roles/*", &["list"]) + &granted("pki/roles/+", &["deny"]))).await;
    client.list("pki/roles").await.assert_denied();
    client.list("pki/roles/").await.assert_denied();
}

async fn policy_names_are_folded_and_version_and_expiry_are_checked(app: &App) {
    let text = granted("x", &["read"]);
    let path = &format!("{ACL}/Team/App");
    let written = app.client.post(path, json!({ "policy": text })).await;
    assert_eq!((written.status, &written.body["data"]), (200, &json!(null)), "{}", written.text);
    assert!(written.body["warnings"][0].as_str().unwrap().contains("team/app"));
    let read = app.client.get(&format!("{ACL}/team/app")).await.body["data"].clone();
    assert_has(&read, json!({ "name": "team/app", "version": 1, "cas_required": false }));
    let path = &format!("{ACL}/team/app");
    for (body, status) in [
        (json!({ "policy": text, "cas": 7 }), 400),
        (json!({ "policy": text, "cas": 1, "cas_required": true }), 204),
        (json!({ "policy": text }), 400),
        (json!({ "policy": text, "cas": 2, "ttl": "1h", "expiration": "2100-01-01T00:00:00Z" }), 400),
        (json!({ "policy": text, "cas": 2, "expiration": "tomorrow" }), 400),
        (json!({ "policy": text, "cas": 2, "expiration": "2100-01-01T00:00:00Z" }), 204),
        (json!({ "policy": "path \"x\" { capabilities = [\"read\"] min_wrapping_ttl = \"-1s\" }", "cas": 3 }), 400),
        (json!({ "policy": "x".repeat(300_000), "cas": 3 }), 400),
    ] {
        let answer = app.client.post(path, body.clone()).await;
        assert_eq!(answer.status, status, "{:.200}: {}", body.to_string(), answer.text);
    }
    let read = app.client.get(path).await.body["data"].clone();
    assert_eq!((&read["version"], &read["expiration"]), (&json!(3), &json!("2100-01-01T00:00:00Z")));
}

#[actix_web::test]
async fn a_policy_that_has_expired_counts_as_absent() {
    let app = App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC)).start().await;
    let body = json!({ "policy": granted("pki/roles/*", &["read"]), "ttl": "1m" });
    assert_eq!(app.client.post(&format!("{ACL}/short"), body).await.status, 204);
    let client = app.with_policies(&["short"]).await;
    assert_eq!(client.get("pki/roles/none").await.status, 404);
    app.clock.advance(Duration::from_secs(60));
    client.get("pki/roles/none").await.assert_denied();
    assert_eq!(app.client.get(&format!("{ACL}/short")).await.status, 404);
    app.stop().await;
}

#[actix_web::test]
async fn write_of_an_expired_policy_does_not_replace_a_valid_one() {
    let app = App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC)).start().await;
    app.policy("web", &granted("pki/roles/*", &["read"])).await;
    let client = app.with_policies(&["web", "default"]).await;
    let over = json!({ "policy": granted("x", &["read"]), "expiration": "2001-01-01T00:00:00Z" });
    for path in [format!("{ACL}/web"), "sys/policy/web".to_owned()] {
        let refused = app.client.post(&path, over.clone()).await;
        refused.assert_error(400, "refusing to update policy as expiration time has already elapsed");
    }
    let later = json!({ "expiration": "2032-01-01T00:00:00Z" });
    for end in [json!({ "ttl": "1h", "expiration": null }), later] {
        let refused = app.client.post(&format!("{ACL}/default"), with(over.clone(), end)).await;
        assert!(refused.status == 400 && refused.error().contains("\"default\" cannot be deleted"), "{}", refused.text);
    }
    assert_eq!(client.get("pki/roles/none").await.status, 404);
    assert_eq!(client.get("auth/token/lookup-self").await.status, 200);
    let short = json!({ "policy": granted("x", &["read"]), "ttl": "1h", "cas_required": true });
    assert_eq!(app.client.post(&format!("{ACL}/short"), short).await.status, 204);
    app.clock.advance(Duration::from_secs(3600));
    assert_eq!(app.client.get(&format!("{ACL}/short")).await.status, 404);
    let from_storage = json!({ "policy": granted("y", &["read"]), "cas": 0 });
    assert_eq!(app.client.post(&format!("{ACL}/short"), from_storage).await.status, 204);
    app.stop().await;
}
