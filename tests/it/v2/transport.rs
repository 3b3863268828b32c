//! Rules for every request: tokens, content types, paths, headers.

use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{PROJECTS, World, assert_refused, on_both_stores, resource};
use crate::support::send;

on_both_stores!(requests_without_token_or_with_unknown_path_are_rejected, invalid_media_type_or_document_is_rejected);

async fn requests_without_token_or_with_unknown_path_are_rejected(world: &World) {
    let owner = &world.owner;
    let none = owner.with_token("");
    for route in signet::http::jsonapi::table::all_routes().filter(|route| !route.needs_no_token) {
        let path = route.pattern.replace(':', "x");
        let answer = send(none.request(route.method.as_str().parse().unwrap(), &path)).await;
        assert_eq!(answer.status, 401, "{} {}", route.method, route.pattern);
        assert_eq!(answer.body["errors"][0]["status"], "401");
        assert_eq!(answer.header("www-authenticate"), "Bearer");
    }
    let other = none.request(Method::GET, PROJECTS).header("Authorization", "Token x");
    assert_eq!(send(other).await.status, 401);
    let mut changed = owner.token.clone();
    let last = changed.pop().unwrap();
    changed.push(if last == 'A' { 'B' } else { 'A' });
    for token in ["x", "aaaaaaaaaaaaaa.pjv1.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &changed] {
        assert_eq!(owner.with_token(token).get(PROJECTS).await.status, 401);
    }
    let ping = none.get("ping").await;
    assert_eq!((ping.status, ping.header("tfp-api-version"), &ping.text[..]), (204, "2.6", ""));
    let discovery = world.app.client.page("/.well-known/terraform.json").await;
    assert_eq!((discovery.status, discovery.header("content-type")), (200, "application/json"));
    let services = ["tfe.v2", "tfe.v2.1", "tfe.v2.2"].map(|service| (service.to_owned(), json!("/api/v2/")));
    assert_eq!(discovery.body, Value::Object(services.into_iter().collect()));
    let nothing = owner.get("nothing/here").await;
    assert_refused(&nothing, 404, &[("", "no such path")]);
    assert_eq!(nothing.header("content-type"), "application/vnd.api+json");
    assert_eq!(owner.get(&format!("{PROJECTS}/")).await.status, 200, "a slash at the end");
    let list = owner.get(PROJECTS).await;
    assert!(!list.header("x-request-id").is_empty() && list.header("x-ratelimit-limit").is_empty());
}

async fn invalid_media_type_or_document_is_rejected(world: &World) {
    let body = |name: &str| resource("projects", json!({ "name": name })).to_string();
    let typed = |kind: Option<&str>, body: String| {
        let request = world.owner.request(Method::POST, PROJECTS).body(body);
        send(match kind {
            Some(kind) => request.header("Content-Type", kind),
            None => request,
        })
    };
    for kind in [None, Some("application/json"), Some("application/vnd.api+json; ext=foo")] {
        assert_refused(&typed(kind, body("abc")).await, 415, &[("", "Content-Type must be")]);
    }
    for (charset, name) in [("; charset=utf-8", "abc"), (";charset=\"UTF-8\"", "quoted")] {
        let kind = format!("application/vnd.api+json{charset}");
        assert_eq!(typed(Some(&kind), body(name)).await.status, 201, "{kind}");
    }
    let api = Some("application/vnd.api+json");
    assert_refused(&typed(api, "{".to_owned()).await, 400, &[("", "request body: not valid JSON")]);
    for text in ["{}", "[]", "{\"data\":[]}"] {
        assert_eq!(typed(api, text.to_owned()).await.status, 422, "{text}");
    }
    let wrong = resource("project", json!({ "name": "abd" })).to_string();
    assert_refused(&typed(api, wrong).await, 409, &[("/data/type", "type must be projects")]);
    let missing = json!({ "data": { "attributes": { "name": "abd" } } }).to_string();
    assert_refused(&typed(api, missing).await, 422, &[("/data/type", "type is missing")]);
}
