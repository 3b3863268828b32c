//! Limits that apply to every caller.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{App, send, tests_on};

tests_on!(
    server: App::start() =>
        ambiguous_paths_are_rejected_before_policies,
        a_header_block_above_the_limit_is_431,
        malformed_json_is_not_quoted_in_errors,
        only_the_root_namespace_exists,
        token_names_metadata_and_policies_are_limited,
        body_is_exactly_one_json_object;
    small_bodies: App::builder().settings(|s| s.max_body = 10_000).start() =>
        body_above_the_limit_is_413_with_and_without_token;
);

async fn ambiguous_paths_are_rejected_before_policies(app: &App) {
    for path in [
        "/v1/sys/policies/acl/../../mounts",
        "/v1/sys/policies/acl/%2e%2e/%2e%2e/mounts",
        "/v1/sys//mounts",
        "/v1//sys/mounts",
        "/v1/sys/mounts%2fpki",
        "/v1/sys/mounts/%00",
        "/v1/sys/mounts/%0a",
        "/v1/sys/./mounts",
        "/v1/sys/mounts/%zz",
    ] {
        let answer = app.raw_get(path).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{path}: {answer}");
    }
    let long = app.raw_get(&format!("/v1/sys/{}", "a".repeat(2048))).await;
    assert!(long.starts_with("HTTP/1.1 400 "), "{long}");
    assert!(app.raw_get("/%761/sys/mounts").await.starts_with("HTTP/1.1 404 "));
    assert!(app.raw_get("/v1/sys/mounts").await.starts_with("HTTP/1.1 200 "));
}

async fn a_header_block_above_the_limit_is_431(app: &App) {
    send(app.client.request("GET", "sys/health").header("X-Filler", "x".repeat(70_000))).await.assert_status(431);
}

async fn body_above_the_limit_is_413_with_and_without_token(app: &App) {
    let fill = |length: usize| format!("{{\"path\":\"{}\"}}", "a".repeat(length - 11));
    for client in [app.client.clone(), app.client.with_token("")] {
        let answer = send(client.request("POST", "sys/capabilities-self").body(fill(10_001))).await;
        answer.assert_error(413, "http: request body too large");
        send(client.request("POST", "sys/capabilities-self").body(fill(20_000_000))).await.assert_status(413);
    }
    send(app.client.request("POST", "sys/capabilities-self").body(fill(10_000))).await.assert_status(200);
    let chunks = format!("{:x}\r\n{}\r\n", 4096, "a".repeat(4096)).repeat(4);
    let token = &app.client.token;
    let head = format!("POST /v1/sys/capabilities-self HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\n");
    let request = format!("{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let answer = app.raw(request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[actix_web::test]
async fn deep_or_wide_json_is_rejected_quickly() {
    let app = App::builder().settings(|s| s.max_body = 32 << 20).start().await;
    let started = Instant::now();
    for body in ["[".repeat(10_000_000), format!("{{\"a\":[{}\"\"]}}", "\"\",".repeat(100_000))] {
        send(app.client.request("POST", "sys/capabilities-self").body(body)).await.assert_error_has(400, "too complex");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    app.stop().await;
}

async fn malformed_json_is_not_quoted_in_errors(app: &App) {
    let answer = send(app.client.request("POST", "sys/mounts/x").body("{\"client_secret\":\"hunter2")).await;
    assert!(answer.status == 400 && !answer.text.contains("hunter2"), "{}", answer.text);
}

async fn only_the_root_namespace_exists(app: &App) {
    for header in ["X-Service-Namespace", "X-Vault-Namespace"] {
        let root = ["root", "root/", "/root", "", "/"].map(|name| (name, 200));
        let other = ["foo", "foo/", "root/x", "ROOT"].map(|name| (name, 404));
        for (name, status) in root.into_iter().chain(other) {
            let answer = send(app.client.request("GET", "sys/mounts").header(header, name)).await;
            assert_eq!(answer.status, status, "{header}: {name}");
        }
    }
}

async fn token_names_metadata_and_policies_are_limited(app: &App) {
    let answer = app.client.get(&format!("pki/roles/{}", "r".repeat(129))).await;
    answer.assert_error(400, "name: longer than 128 characters");
    assert_eq!(app.client.get(&format!("pki/roles/{}", "r".repeat(128))).await.status, 404);
    let names = |count: usize| (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>();
    let pairs =
        |count: usize| names(count).into_iter().map(|name| (name, json!("x"))).collect::<serde_json::Map<_, _>>();
    for (body, status) in [
        (json!({ "policies": names(256), "no_default_policy": true }), 200),
        (json!({ "policies": names(257) }), 400),
        (json!({ "meta": pairs(64) }), 200),
        (json!({ "meta": pairs(65) }), 400),
        (json!({ "meta": { "a": "x".repeat(4_096) } }), 400),
    ] {
        let answer = app.client.post("auth/token/create", body).await;
        assert_eq!(answer.status, status, "{:.300}", answer.text);
    }
}

#[actix_web::test]
async fn a_body_that_takes_too_long_to_arrive_ends_its_request() {
    let app = App::builder().settings(|settings| settings.body_timeout = Duration::from_millis(300)).start().await;
    let started = Instant::now();
    let head = "POST /v1/sys/capabilities-self HTTP/1.1\r\nHost: t\r\nConnection: close\r\n";
    let head = format!("{head}X-Service-Token: {}\r\nContent-Length: 100\r\n\r\n{{", app.client.token);
    let answer = app.raw(head).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("took too long to arrive"), "{answer}");
    assert!(started.elapsed() < Duration::from_secs(10));
    app.stop().await;
}

async fn body_is_exactly_one_json_object(app: &App) {
    let policy = "{\"policy\":\"path \\\"x\\\" { capabilities = [\\\"read\\\"] }\"}";
    for tail in [" {}", " x", "]"] {
        let request = app.client.request("POST", "sys/policies/acl/twice").body(format!("{policy}{tail}"));
        assert_eq!(send(request).await.status, 400, "{tail}");
    }
    assert_eq!(app.client.get("sys/policies/acl/twice").await.status, 404);
    let blanks = app.client.request("POST", "sys/policies/acl/twice").body(format!("{policy} \r\n\t "));
    assert_eq!(send(blanks).await.status, 204);
}
