//! `auth/token/`.

mod by_path;
mod escalation;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use serde_json::json;

use super::rights::{granted, only};
use crate::support::{App, Client, send, tests_on};

tests_on!(
    server: App::start() =>
        a_token_looks_itself_up_with_every_verb_and_ends_itself,
        a_token_ends_with_all_of_its_descendants_however_many,
        token_renewal_accepts_every_client_body,
        tokens_are_managed_by_text_and_by_accessor,
        altered_batch_token_is_rejected,
        revoke_orphan_names_a_missing_or_unknown_token,
        accessor_list_is_paged,
        token_role_needs_the_right_to_its_path,
        accessor_is_not_found_through_another_namespace,
        batch_token_leases_end_with_its_parent_and_orphan_has_none;
    clocked: App::builder().manual_clock(time::macros::datetime!(2030-01-01 00:00 UTC)).start() =>
        a_token_ends_at_its_time_and_then_looks_unknown,
        tidy_returns_immediately_and_removes_expired_tokens;
);

async fn a_token_looks_itself_up_with_every_verb_and_ends_itself(app: &App) {
    app.policy("any-verb", "path \"auth/token/lookup-self\" { capabilities = [\"read\", \"update\"] }").await;
    let client = app.with_policies(&["default", "any-verb"]).await;
    for method in ["GET", "POST", "PUT"] {
        let answer = send(client.request(method, "auth/token/lookup-self")).await;
        assert_eq!(answer.body["data"]["id"], json!(client.token), "{method}: {}", answer.text);
        assert!(answer.body["data"]["policies"].is_array());
    }
    send(client.request("PUT", "auth/token/revoke-self")).await.assert_status(204);
    client.get("auth/token/lookup-self").await.assert_denied();
}

async fn a_token_ends_with_all_of_its_descendants_however_many(app: &App) {
    let made = async |by: &Client| {
        let made = by.post("auth/token/create", json!({})).await;
        by.with_token(made.body["auth"]["client_token"].as_str().unwrap_or_else(|| panic!("{}", made.text)))
    };
    app.policy("makes", &granted("auth/token/create", &["update"])).await;
    let parent = app.with_policies(&["default", "makes"]).await;
    let mut descendants = Vec::new();
    for _ in 0..14 {
        descendants.extend(join_all((0..50).map(|_| made(&parent))).await);
    }
    let mut deep = parent.clone();
    for _ in 0..5 {
        deep = made(&deep).await;
        descendants.extend(join_all((0..10).map(|_| made(&deep))).await);
        descendants.push(deep.clone());
    }
    for one in &descendants {
        assert_eq!(one.get("auth/token/lookup-self").await.status, 200);
    }
    assert_eq!(parent.post("auth/token/revoke-self", json!({})).await.status, 204);
    for one in descendants.iter().chain([&parent]) {
        one.get("auth/token/lookup-self").await.assert_denied();
    }
}

async fn token_renewal_accepts_every_client_body(app: &App) {
    let client = app.client.with_new_token(json!({ "policies": ["default"], "ttl": "1h" })).await;
    for body in [json!({ "increment": 0 }), json!({ "increment": "10m" }), json!({ "increment": null })] {
        let renewed = send(client.request("PUT", "auth/token/renew-self").json(&body)).await;
        assert_eq!(renewed.body["auth"]["client_token"], json!(client.token), "{}", renewed.text);
    }
    assert_eq!(client.post("auth/token/renew-self", json!({ "increment": "-1s" })).await.status, 400);
}

async fn tokens_are_managed_by_text_and_by_accessor(app: &App) {
    let created = app.client.post("auth/token/create-orphan", json!({ "policies": ["default"] })).await;
    let token = &created.body["auth"]["client_token"];
    let accessor = &created.body["auth"]["accessor"];
    let looked = app.client.post("auth/token/lookup", json!({ "token": token })).await;
    assert_eq!(&looked.body["data"]["accessor"], accessor);
    let looked = app.client.post("auth/token/lookup-accessor", json!({ "accessor": accessor })).await;
    assert_eq!(looked.body["data"]["id"], "");
    let queried = app.client.get(&format!("auth/token/lookup?token={}", token.as_str().unwrap())).await;
    assert_eq!(&queried.body["data"]["id"], token, "{}", queried.text);
    app.client.post("auth/token/lookup", json!({ "token": "s.unknown" })).await.assert_error(403, "bad token");
    let own = app.client.get("auth/token/lookup").await;
    assert_eq!(own.body["data"]["id"], json!(app.client.token));
    app.client.post("auth/token/revoke-accessor", json!({ "accessor": accessor })).await.assert_status(204);
    let again = app.client.post("auth/token/revoke-accessor", json!({ "accessor": accessor })).await;
    assert_eq!(again.body["warnings"], json!(["No token found with this accessor"]), "{}", again.text);
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": token })).await.status, 204);
    assert_eq!(app.client.post("auth/token/revoke", json!({})).await.error(), "missing token ID");
}

async fn a_token_ends_at_its_time_and_then_looks_unknown(app: &App) {
    let client = app.client.with_new_token(json!({ "policies": ["default"], "ttl": "1h" })).await;
    app.clock.advance(Duration::from_secs(3599));
    assert_eq!(client.get("auth/token/lookup-self").await.status, 200);
    app.clock.advance(Duration::from_secs(1));
    client.get("auth/token/lookup-self").await.assert_denied();
}

async fn altered_batch_token_is_rejected(app: &App) {
    let body = json!({ "type": "batch", "policies": ["default"], "ttl": "1h" });
    let made = app.client.post("auth/token/create", body).await;
    let token = made.body["auth"]["client_token"].as_str().unwrap();
    assert_eq!(app.client.with_token(token).get("auth/token/lookup-self").await.status, 200, "{}", made.text);
    let mut sealed = URL_SAFE_NO_PAD.decode(token.strip_prefix("b.").unwrap()).unwrap();
    for bit in 0..sealed.len() * 8 {
        sealed[bit / 8] ^= 1 << (bit % 8);
        let forged = format!("b.{}", URL_SAFE_NO_PAD.encode(&sealed));
        assert!(app.shared().auth.recognise(&forged, None).await.is_err(), "bit {bit}");
        if bit % 97 == 0 {
            app.client.with_token(&forged).get("auth/token/lookup-self").await.assert_denied();
        }
        sealed[bit / 8] ^= 1 << (bit % 8);
    }
    for cut in [token.len() - 1, 40, 3, 2] {
        app.client.with_token(&token[..cut]).get("auth/token/lookup-self").await.assert_denied();
    }
    let other = App::start().await;
    other.client.with_token(token).get("auth/token/lookup-self").await.assert_denied();
    other.stop().await;
}

async fn revoke_orphan_names_a_missing_or_unknown_token(app: &App) {
    let path = "auth/token/revoke-orphan";
    let parent = app.with_policies(&["default"]).await;
    let sudo = &app.client;
    assert_eq!(sudo.post(path, json!({ "token": "s.unknown" })).await.error(), "token to revoke not found");
    assert_eq!(sudo.post(path, json!({})).await.error(), "missing token ID");
    send(sudo.request("PUT", path).json(&json!({ "token": parent.token }))).await.assert_status(204);
    parent.get("auth/token/lookup-self").await.assert_denied();
}

async fn accessor_list_is_paged(app: &App) {
    let path = "auth/token/accessors";
    app.with_policies(&["default"]).await;
    app.with_policies(&["default"]).await;
    let all = app.client.list(path).await;
    let all: Vec<&str> = all.body["data"]["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(all.len(), 3);
    let page = app.client.get(&format!("{path}?list=true&limit=2")).await;
    let first = page.body["data"]["keys"].clone();
    let after = first[1].as_str().unwrap();
    let rest = app.client.get(&format!("{path}?list=true&limit=2&after={after}")).await.body["data"]["keys"].clone();
    assert_eq!((first.as_array().unwrap().len(), rest.as_array().unwrap().len()), (2, 1));
    for key in all {
        app.client.post("auth/token/lookup-accessor", json!({ "accessor": key })).await.assert_status(200);
        assert!(first.as_array().unwrap().contains(&json!(key)) || rest[0] == key);
    }
}

async fn tidy_returns_immediately_and_removes_expired_tokens(app: &App) {
    let rows = async || app.shared().auth.sweep().await.unwrap();
    for _ in 0..5 {
        app.client.post("auth/token/create", json!({ "policies": ["default"], "ttl": "1m" })).await;
    }
    app.clock.advance(Duration::from_secs(60));
    let begun = app.client.post("auth/token/tidy", json!({})).await;
    assert_eq!((begun.status, begun.body["data"].is_null()), (202, true), "{}", begun.text);
    assert!(begun.body["warnings"][0].as_str().unwrap().starts_with("Tidy operation successfully started."));
    let ended = Instant::now() + Duration::from_secs(20);
    let turn = loop {
        assert!(Instant::now() < ended, "the tidy does not end");
        match app.shared().auth.try_tidy_permit() {
            Some(turn) => break turn,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(rows().await, 0, "nothing was left");
    let second = app.client.post("auth/token/tidy", json!({})).await;
    assert_eq!(
        (second.status, second.body["warnings"].clone()),
        (200, json!(["Token tidy operation already in progress."]))
    );
    drop(turn);
    assert_eq!(app.client.post("auth/token/tidy", json!({})).await.status, 202);
}

#[actix_web::test]
async fn token_roles_are_stored_under_case_sensitive_names() {
    let app = App::start().await;
    assert_eq!(app.client.list("auth/token/roles").await.status, 404);
    let absent = app.client.get("auth/token/roles/web").await;
    assert_eq!((absent.status, absent.text.as_str()), (404, "{\"errors\":[]}"));
    for (method, body) in [("POST", json!({ "orphan": true })), ("PUT", json!({ "path_suffix": "v1" }))] {
        send(app.client.request(method, "auth/token/roles/web").json(&body)).await.assert_status(204);
    }
    app.client.post("auth/token/roles/Web", json!({})).await;
    let shown = app.client.get("auth/token/roles/web").await.body["data"].clone();
    assert_eq!((&shown["orphan"], &shown["path_suffix"], &shown["name"]), (&json!(true), &json!("v1"), &json!("web")));
    assert_eq!(app.client.list("auth/token/roles").await.body["data"]["keys"], json!(["Web", "web"]));
    let warned = app.client.post("auth/token/roles/long", json!({ "token_explicit_max_ttl": "9999h" })).await;
    assert_eq!((warned.status, warned.body["data"].is_null()), (200, true), "{}", warned.text);
    let made = app.client.post("auth/token/create/web", json!({ "policies": ["default"] })).await;
    let shown = app.client.post("auth/token/lookup", json!({ "token": made.body["auth"]["client_token"] })).await;
    assert_eq!(shown.body["data"]["path"], "auth/token/create/web/v1", "{}", shown.text);
    assert_eq!(app.client.post("auth/token/create/absent", json!({})).await.error(), "unknown role absent");
    for _ in 0..2 {
        assert_eq!(app.client.delete("auth/token/roles/web").await.status, 204);
    }
    let app = app.restart().await;
    assert_eq!(app.client.list("auth/token/roles").await.body["data"]["keys"], json!(["Web", "long"]));
    app.stop().await;
}

async fn token_role_needs_the_right_to_its_path(app: &App) {
    app.client.post("auth/token/roles/dev", json!({ "allowed_policies": "dev" })).await;
    app.client.post("auth/token/roles/ops", json!({ "allowed_policies": "ops" })).await;
    let client = only(app, "uses-dev", &granted("auth/token/create/dev", &["update"])).await;
    let made = client.post("auth/token/create/dev", json!({})).await;
    assert_eq!(made.body["auth"]["policies"], json!(["default", "dev"]), "{}", made.text);
    for path in ["auth/token/create/ops", "auth/token/create", "auth/token/roles/dev"] {
        client.post(path, json!({})).await.assert_denied();
    }
    client.get("auth/token/roles/dev").await.assert_denied();
}

#[actix_web::test]
async fn bound_token_is_checked_against_the_forwarded_address() {
    let app = App::builder().behind_proxy().start().await;
    let role = json!({ "allowed_policies": "default", "token_bound_cidrs": "192.0.2.0/24" });
    app.client.post("auth/token/roles/bound", role).await;
    let client = app.client.holder(&app.client.post("auth/token/create/bound", json!({})).await);
    let from = async |address: &str| client.at(address).get("auth/token/lookup-self").await;
    let shown = from("192.0.2.9").await;
    assert_eq!(shown.body["data"]["bound_cidrs"], json!(["192.0.2.0/24"]), "{}", shown.text);
    from("198.51.100.1").await.assert_denied();
    client.get("auth/token/lookup-self").await.assert_denied();
    app.stop().await;
}

async fn accessor_is_not_found_through_another_namespace(app: &App) {
    let made = app.client.post("auth/token/create", json!({ "policies": ["default"] })).await;
    let accessor = json!({ "accessor": made.body["auth"]["accessor"] });
    for path in ["lookup-accessor", "renew-accessor", "revoke-accessor"] {
        let request = app.client.request("POST", &format!("auth/token/{path}")).json(&accessor);
        send(request.header("X-Vault-Namespace", "team/")).await.assert_error(404, "namespace not found");
    }
    let client = app.client.holder(&made);
    assert_eq!(client.get("auth/token/lookup-self").await.status, 200);
}

async fn batch_token_leases_end_with_its_parent_and_orphan_has_none(app: &App) {
    let root = json!({ "common_name": "Root", "key_type": "ec", "ttl": "100h" });
    assert_eq!(app.client.post("pki/root/generate/internal", root).await.status, 200);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "generate_lease": true, "ttl": "1h" });
    app.client.post("pki/roles/leased", role).await;
    app.policy("issue", &granted("pki/issue/leased", &["update"])).await;
    app.policy("make", &granted("auth/token/create", &["update", "sudo"])).await;
    let parent = app.with_policies(&["issue", "make"]).await;
    let batch = async |body: serde_json::Value| {
        let made = parent.post("auth/token/create", body).await;
        app.client.with_token(made.body["auth"]["client_token"].as_str().unwrap())
    };
    let child = batch(json!({ "type": "batch" })).await;
    let issued = child.post("pki/issue/leased", json!({ "common_name": "a.test" })).await;
    let lease = issued.body["lease_id"].clone();
    assert_eq!(app.client.post("sys/leases/lookup", json!({ "lease_id": lease })).await.status, 200, "{}", issued.text);
    let orphan = batch(json!({ "type": "batch", "no_parent": true, "policies": ["issue"] })).await;
    let refused = orphan.post("pki/issue/leased", json!({ "common_name": "a.test" })).await;
    assert!(refused.status == 400 && refused.error().starts_with("lease: batch tokens without"), "{}", refused.text);
    app.client.post("auth/token/revoke", json!({ "token": parent.token })).await;
    assert_eq!(app.client.post("sys/leases/lookup", json!({ "lease_id": lease })).await.status, 400);
}
