//! Wrapped responses: what is stored, what the client gets instead, and who may unwrap.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::clock::parse_rfc3339;
use signet::http::sender::Sender;
use time::macros::datetime;

use super::rights::{granted, only, only_by, rule};
use crate::faults::double::{Fault, Faults};
use crate::serve::Site;
use crate::support::{Answer, App, Client, send, tests_on};

tests_on!(
    server: App::start() =>
        wrapped_response_is_unwrapped_once_and_complete,
        raw_bodies_are_wrapped,
        the_holder_needs_no_other_token_than_the_wrapping_one,
        the_cubbyhole_of_a_wrapping_token_holds_the_answer_too,
        data_of_the_wrap_endpoint_is_returned_on_unwrap,
        empty_and_error_responses_are_not_wrapped,
        invalid_wrap_ttls_are_rejected,
        policy_wrapping_ttl_limits_apply,
        one_right_is_enough_for_each_of_the_paths,
        too_long_response_is_not_wrapped,
        wrapping_without_token_is_limited_to_five_minutes,
        wrap_quota_limits_each_caller_separately;
    clocked: App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC)).start() =>
        used_or_expired_wrapping_token_returns_nothing,
        rewrap_invalidates_the_first_token;
);

const INVALID: &str = "wrapping token is not valid or does not exist";

async fn wrapped(client: &Client, method: &str, path: &str, body: Value) -> Answer {
    let request = client.request(method, path).header("X-Service-Wrap-TTL", "60s");
    send(if body.is_null() { request } else { request.json(&body) }).await
}

pub fn token_in(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["wrap_info"]["token"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

pub fn assert_taken(answer: &Answer) {
    answer.assert_error(400, INVALID);
}

async fn unwrap(client: &Client, token: &str) -> Answer {
    client.post("sys/wrapping/unwrap", json!({ "token": token })).await
}

async fn lookup(client: &Client, token: &str) -> Answer {
    client.post("sys/wrapping/lookup", json!({ "token": token })).await
}

async fn wrapped_response_is_unwrapped_once_and_complete(app: &App) {
    app.client.authority("pki", json!({})).await;
    let answer = wrapped(&app.client, "POST", "pki/issue/web", json!({ "common_name": "a.test", "bogus": 1 })).await;
    let members = answer.body.as_object().unwrap();
    for (name, value) in members.iter().filter(|(name, _)| !["wrap_info", "mount_type"].contains(&name.as_str())) {
        let nothing = matches!(value, Value::Null | Value::Bool(false)) || value == "" || value == 0;
        assert!(nothing, "{name}: {}", answer.text);
    }
    let info = &answer.body["wrap_info"];
    assert_eq!((&info["ttl"], &info["creation_path"]), (&json!(60), &json!("pki/issue/web")));
    assert!(parse_rfc3339("", info["creation_time"].as_str().unwrap()).is_ok() && info["accessor"].is_string());
    assert!(info.get("wrapped_accessor").is_none());
    assert_eq!(answer.header("cache-control"), "no-store");

    let token = token_in(&answer);
    let stranger = app.client.with_token("");
    let told = lookup(&stranger, &token).await.body["data"].clone();
    let expected = json!({ "creation_path": "pki/issue/web", "creation_time": info["creation_time"],
        "creation_ttl": 60 });
    assert_eq!(told, expected);
    let fetched = unwrap(&app.client, &token).await;
    assert_eq!((fetched.status, fetched.header("content-type")), (200, "application/json"));
    assert!(fetched.body["data"]["private_key"].as_str().unwrap().contains("PRIVATE KEY"), "{}", fetched.text);
    assert_eq!(fetched.body["wrap_info"], Value::Null);
    assert_eq!(fetched.body["request_id"], answer.header("x-request-id"), "the request that made it");
    assert!(fetched.body["warnings"][0].as_str().unwrap().contains("bogus"));
    for again in [unwrap(&app.client, &token).await, lookup(&app.client, &token).await] {
        assert_taken(&again);
    }
}

async fn raw_bodies_are_wrapped(app: &App) {
    app.client.authority("pki", json!({})).await;
    let stranger = app.client.with_token("");
    for path in ["pki/ca/pem", "pki/ca", "pki/crl", "pki/crl/pem"] {
        let clear = stranger.get(path).await;
        let answer = wrapped(&stranger, "GET", path, Value::Null).await;
        assert!(answer.body["wrap_info"]["token"].is_string(), "{path}: {}", answer.text);
        assert_eq!((answer.header("etag"), answer.header("last-modified")), ("", ""), "{path}");
        let fetched = unwrap(&app.client, &token_in(&answer)).await;
        assert_eq!(fetched.header("content-type"), clear.header("content-type"), "{path}");
        assert_eq!((fetched.status, fetched.text), (200, clear.text), "{path}");
    }
}

async fn used_or_expired_wrapping_token_returns_nothing(app: &App) {
    let made = |client: Client| async move { token_in(&wrapped(&client, "GET", "sys/mounts", Value::Null).await) };
    let token = made(app.client.clone()).await;
    let attempts = join_all((0..20).map(|_| unwrap(&app.client, &token))).await;
    assert_eq!(attempts.iter().filter(|answer| answer.status == 200).count(), 1);
    attempts.iter().filter(|answer| answer.status != 200).for_each(assert_taken);
    let late = made(app.client.clone()).await;
    app.clock.advance(Duration::from_secs(60));
    for answer in [unwrap(&app.client, &late).await, lookup(&app.client, &late).await] {
        assert_taken(&answer);
    }
    for token in [app.client.token.as_str(), "s.unknown", "x"] {
        assert_taken(&unwrap(&app.client, token).await);
        assert_taken(&lookup(&app.client, token).await);
        assert_taken(&app.client.post("sys/wrapping/rewrap", json!({ "token": token })).await);
    }
    assert_eq!(app.client.get("auth/token/lookup-self").await.status, 200, "it is no wrapping token, and lives");
}

async fn the_holder_needs_no_other_token_than_the_wrapping_one(app: &App) {
    let token = async || token_in(&wrapped(&app.client, "GET", "sys/mounts", Value::Null).await);
    let stranger = app.client.with_token("");
    // Like the command line, with and without a token of its own.
    let first = token().await;
    let own = app.client.with_token(&first);
    assert_eq!(send(own.request("GET", "sys/wrapping/lookup")).await.body["data"]["creation_ttl"], 60);
    assert_eq!(send(own.request("PUT", "sys/wrapping/unwrap")).await.status, 200);
    assert_taken(&send(own.request("PUT", "sys/wrapping/unwrap")).await);
    assert_eq!(unwrap(&stranger, &token().await).await.status, 200);
    for path in ["unwrap", "lookup"] {
        stranger.post(&format!("sys/wrapping/{path}"), json!({})).await.assert_error(400, "token: must be given");
    }
    // It is valid for nothing else, and any other request uses it up.
    let other = app.client.with_token(&token().await);
    other.get("auth/token/lookup-self").await.assert_denied();
    assert_taken(&unwrap(&stranger, &other.token).await);
}

async fn the_cubbyhole_of_a_wrapping_token_holds_the_answer_too(app: &App) {
    let token = token_in(&wrapped(&app.client, "GET", "sys/mounts", Value::Null).await);
    let kept = app.client.with_token(&token).get("cubbyhole/response").await;
    let inner: Value = serde_json::from_str(kept.body["data"]["response"].as_str().unwrap()).unwrap();
    assert!(inner["data"].get("pki/").is_some(), "{}", kept.text);
    assert_taken(&unwrap(&app.client, &token).await);
    app.client.with_token(&token).get("cubbyhole/response").await.assert_denied();
}

async fn data_of_the_wrap_endpoint_is_returned_on_unwrap(app: &App) {
    let data = json!({ "user": "a", "password": "hunter2", "nested": { "list": [1, "two", null] } });
    let answer = wrapped(&app.client, "POST", "sys/wrapping/wrap", data.clone()).await;
    assert!(!answer.text.contains("hunter2"));
    assert_eq!(unwrap(&app.client, &token_in(&answer)).await.body["data"], data);
    let answer = app.client.post("sys/wrapping/wrap", data).await;
    answer.assert_error(400, "endpoint requires response wrapping to be used");
}

async fn rewrap_invalidates_the_first_token(app: &App) {
    let first = token_in(&wrapped(&app.client, "POST", "sys/wrapping/wrap", json!({ "a": 1 })).await);
    app.clock.advance(Duration::from_secs(50));
    let answer = app.client.post("sys/wrapping/rewrap", json!({ "token": first })).await;
    let info = &answer.body["wrap_info"];
    assert_eq!((&info["ttl"], &info["creation_path"]), (&json!(60), &json!("sys/wrapping/wrap")));
    assert_eq!(info["creation_time"], "2031-01-01T00:00:50Z");
    assert_taken(&unwrap(&app.client, &first).await);
    app.clock.advance(Duration::from_secs(59));
    assert_eq!(unwrap(&app.client, &token_in(&answer)).await.body["data"], json!({ "a": 1 }));
    app.client.post("sys/wrapping/rewrap", json!({})).await.assert_error(400, "token: must be given");
    // A wrapped response is not wrapped twice, even if the header requests it.
    let second = token_in(&wrapped(&app.client, "POST", "sys/wrapping/wrap", json!({ "b": 1 })).await);
    let third = token_in(&wrapped(&app.client, "POST", "sys/wrapping/rewrap", json!({ "token": second })).await);
    assert_eq!(unwrap(&app.client, &third).await.body["data"], json!({ "b": 1 }));
}

#[actix_web::test]
async fn wrapped_token_is_named_by_its_accessor_only() {
    let app = App::start().await;
    let answer = wrapped(&app.client, "POST", "auth/token/create", json!({ "policies": ["default"] })).await;
    assert!(answer.body["auth"].is_null());
    let auth = unwrap(&app.client, &token_in(&answer)).await.body["auth"].clone();
    assert_eq!(answer.body["wrap_info"]["wrapped_accessor"], auth["accessor"]);
    assert!(!answer.text.contains(auth["client_token"].as_str().unwrap()));
    let made = app.client.with_token(auth["client_token"].as_str().unwrap());
    assert_eq!(made.get("auth/token/lookup-self").await.status, 200);
    // A secret id also has an accessor.
    let app = super::login::with_approle(app).await;
    app.client.post("auth/approle/role/web", json!({})).await.assert_status(204);
    for path in ["secret-id", "custom-secret-id"] {
        let body = json!({ "secret_id": "a-secret-id-that-somebody-chose" });
        let answer = wrapped(&app.client, "POST", &format!("auth/approle/role/web/{path}"), body).await;
        let data = unwrap(&app.client, &token_in(&answer)).await.body["data"].clone();
        let accessor = &answer.body["wrap_info"]["wrapped_accessor"];
        assert!(accessor.is_string() && *accessor == data["secret_id_accessor"], "{path}: {}", answer.text);
        assert!(!answer.text.contains(data["secret_id"].as_str().unwrap()));
    }
    app.stop().await;
}

async fn empty_and_error_responses_are_not_wrapped(app: &App) {
    let policy = json!({ "policy": "path \"x\" { capabilities = [\"read\"] }" });
    for (method, path, body, status) in [
        ("POST", "sys/policies/acl/x", policy, 204),
        ("GET", "pki/roles/none", Value::Null, 404),
        ("LIST", "pki/roles", Value::Null, 404),
        ("POST", "pki/issue/none", json!({}), 400),
        ("HEAD", "sys/mounts", Value::Null, 200),
        ("GET", "sys/health", Value::Null, 200),
        ("GET", "sys/seal-status", Value::Null, 200),
    ] {
        let answer = wrapped(&app.client, method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        assert!(answer.body.get("wrap_info").is_none(), "{method} {path}: {}", answer.text);
    }
    wrapped(&app.client.with_token("s.unknown"), "GET", "sys/mounts", Value::Null).await.assert_denied();
}

async fn invalid_wrap_ttls_are_rejected(app: &App) {
    let own = || app.client.request("GET", "auth/token/lookup-self");
    let peer = "X-Vault-Wrap-TTL";
    let contract = "X-Service-Wrap-TTL";
    for (header, value) in [(peer, "-1s"), (peer, "soon"), (contract, "999ms"), (contract, "769h")] {
        let answer = send(own().header(header, value)).await;
        assert_eq!(answer.status, 400, "{value}: {}", answer.text);
        assert!(answer.error().starts_with("wrap-ttl: ") && !answer.text.contains(&app.client.token), "{value}");
    }
    let two = send(own().header(peer, "1m").header(contract, "2m")).await;
    assert_eq!(two.error(), "wrap-ttl: two different durations were sent; send one");
    let wrapped = send(own().header(peer, "1m0s")).await;
    assert!(wrapped.status == 200 && wrapped.body["wrap_info"]["token"].is_string(), "{}", wrapped.text);
    assert!(!wrapped.text.contains(&app.client.token));
    assert_eq!(send(own().header(peer, "0s")).await.body["data"]["id"], json!(app.client.token));
}

async fn policy_wrapping_ttl_limits_apply(app: &App) {
    let limits = "min_wrapping_ttl = \"30s\"\n max_wrapping_ttl = \"90s\"";
    let text = rule("sys/mounts", &format!("capabilities = [\"read\"]\n {limits}"));
    let client = only(app, "wraps", &text).await;
    client.get("sys/mounts").await.assert_denied();
    for (ttl, status) in [("29s", 403), ("30s", 200), ("90s", 200), ("91s", 403), ("0", 403)] {
        let answer = send(client.request("GET", "sys/mounts").header("X-Vault-Wrap-TTL", ttl)).await;
        assert_eq!(answer.status, status, "{ttl}: {}", answer.text);
        assert_eq!(answer.body["wrap_info"].is_object(), status == 200, "{ttl}");
    }
}

/// A process of its own: the metrics of all tests in this one exceed the size limit.
#[actix_web::test]
async fn metrics_are_wrapped_if_a_policy_requires_it() {
    let site = Site::new();
    let token = site.init();
    let served = site.serve();
    let limits = "capabilities = [\"read\"]\n min_wrapping_ttl = \"30s\"\n max_wrapping_ttl = \"90s\"";
    let client = only_by(&served.client(&token), "scrapes", &rule("sys/metrics", limits)).await;
    client.get("sys/metrics?format=prometheus").await.assert_denied();
    let answer = send(client.request("GET", "sys/metrics?format=prometheus").header("X-Vault-Wrap-TTL", "60s")).await;
    assert!(answer.status == 200 && !answer.text.contains("signet_"), "{}", answer.text);
    let kept = unwrap(&client, &token_in(&answer)).await;
    assert!(kept.text.contains("signet_connections_open"), "{}", kept.text);
    served.terminate();
}

async fn one_right_is_enough_for_each_of_the_paths(app: &App) {
    let token = async || token_in(&wrapped(&app.client, "POST", "sys/wrapping/wrap", json!({ "a": 1 })).await);
    let client = only(app, "wrap", &granted("sys/wrapping/wrap", &["update"])).await;
    assert!(wrapped(&client, "POST", "sys/wrapping/wrap", json!({ "a": 1 })).await.body["wrap_info"].is_object());
    client.post("sys/wrapping/rewrap", json!({ "token": token().await })).await.assert_denied();
    let client = only(app, "rewrap", &granted("sys/wrapping/rewrap", &["update"])).await;
    let answer = client.post("sys/wrapping/rewrap", json!({ "token": token().await })).await;
    assert_eq!(unwrap(&client, &token_in(&answer)).await.body["data"], json!({ "a": 1 }));
    wrapped(&client, "POST", "sys/wrapping/wrap", json!({ "a": 1 })).await.assert_denied();
}

#[actix_web::test]
async fn response_that_cannot_be_stored_is_not_revealed() {
    let faults = Arc::new(Faults::default());
    let app = App::builder().faults(&faults).start().await;
    // The commits of the token and of the wrapped response.
    for fault in [Fault::Before, Fault::After] {
        let mut commits = 0;
        for commit in 1.. {
            faults.arm_among(&BTreeSet::from(["commit (auth)"]), commit, fault);
            let answer = wrapped(&app.client, "POST", "auth/token/create", json!({ "policies": ["default"] })).await;
            if faults.disarm().is_none() {
                break;
            }
            commits += 1;
            assert_eq!(answer.status, 503, "{commit} {fault:?}: {}", answer.text);
            let told = ["client_token", "\"s.", "accessor"].iter().any(|part| answer.text.contains(part));
            assert!(!told, "{}", answer.text);
        }
        assert_eq!(commits, 2, "{fault:?}");
    }
    app.stop().await;
}

async fn too_long_response_is_not_wrapped(app: &App) {
    app.client.authority("pki", json!({})).await;
    app.policy("long", &format!("# {}\npath \"x\" {{ capabilities = [\"read\"] }}", "a".repeat(200_000))).await;
    assert!(wrapped(&app.client, "GET", "sys/policies/acl/long", Value::Null).await.body["wrap_info"].is_object());
    let text = "a".repeat(600_000);
    let body = json!({ "a": text, "b": text });
    let answer = wrapped(&app.client, "POST", "sys/wrapping/wrap", body).await;
    assert_eq!((answer.status, answer.body["wrap_info"].is_object()), (400, false), "{}", answer.error());
    assert!(answer.error().starts_with("wrap-ttl: the response exceeds the limit"), "{}", answer.error());
}

async fn wrapping_without_token_is_limited_to_five_minutes(app: &App) {
    app.client.authority("pki", json!({})).await;
    let stranger = app.client.with_token("");
    let ask = async |ttl: &str| send(stranger.request("GET", "pki/ca/pem").header("X-Service-Wrap-TTL", ttl)).await;
    ask("301s").await.assert_error(400, "wrap-ttl: must be at most 300s for requests without a token");
    assert!(ask("300s").await.body["wrap_info"].is_object());
    // Unwrapping with a wrap header fails and does not use up the token.
    let token = token_in(&ask("60s").await);
    wrapped(&app.client, "POST", "sys/wrapping/unwrap", json!({ "token": token })).await.assert_status(400);
    unwrap(&app.client, &token).await.assert_status(200);
}

async fn wrap_quota_limits_each_caller_separately(app: &App) {
    app.policy("makes", &granted("auth/token/create", &["update"])).await;
    let one = app.with_policies(&["default", "makes"]).await;
    let other = app.with_policies(&["default"]).await;
    let wrap = async |client: &Client| wrapped(client, "POST", "sys/wrapping/wrap", json!({ "a": "b" })).await;
    let token = token_in(&wrap(&one).await);
    // Uses up the budget at once; two hours restore this amount.
    let shared = app.shared();
    let caller = shared.auth.recognise(&one.token, None).await.unwrap();
    shared.wrap_quota.charge(Sender::of_token(Some(&caller), None), 512 << 20);
    let child = one.with_new_token(json!({})).await;
    for client in [&one, &child] {
        let text = "wrap-ttl: limit of 256 MiB of wrapped responses per hour reached; retry later";
        wrap(client).await.assert_error(429, text);
    }
    // Rejected before anything is created.
    let tokens = async || app.client.list("auth/token/accessors").await.body["data"]["keys"].as_array().unwrap().len();
    let before = tokens().await;
    assert_eq!(wrapped(&one, "POST", "auth/token/create", json!({})).await.status, 429);
    assert_eq!(tokens().await, before);
    // Existing wrapped responses can be fetched, and other callers are unaffected.
    assert_eq!(unwrap(&one, &token).await.status, 200);
    assert!(wrap(&other).await.body["wrap_info"].is_object());
}
