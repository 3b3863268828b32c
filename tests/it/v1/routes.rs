//! Every route of every table: without a token, and with one that grants nothing.

use serde_json::json;
use signet::http::secrets::route::{Access, BodyKind, Operation};

use crate::support::{App, Client, METHODS, place_of, send};

async fn ask(client: &Client, operation: Operation, path: &str) -> crate::support::Answer {
    match operation {
        Operation::Read => client.get(path).await,
        Operation::List => client.list(path).await,
        Operation::Create | Operation::Update => client.post(path, json!({})).await,
        Operation::Patch => client.patch(path, json!({})).await,
        Operation::Delete => client.delete(path).await,
    }
}

/// A path that a pattern matches.
fn example(pattern: &str) -> String {
    let segment = |s: &str| if s.starts_with([':', '*']) { "0a".to_owned() } else { s.to_owned() };
    pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[actix_web::test]
async fn no_route_answers_whom_it_should_not() {
    let app = App::start().await;
    app.enable_methods().await;
    app.policy("nothing", "path \"unrelated\" { capabilities = [\"read\"] }").await;
    let answer =
        app.client.post("auth/token/create", json!({ "policies": ["nothing"], "no_default_policy": true })).await;
    let powerless = app.client.with_token(answer.body["auth"]["client_token"].as_str().unwrap());
    let stranger = app.client.with_token("");
    for (kind, route) in signet::http::secrets::all_routes() {
        let path = format!("{}/{}", place_of(kind), example(route.pattern));
        if route.access == Access::Open {
            let answer = ask(&stranger, route.operation, &path).await;
            assert_ne!(answer.status, 403, "{path}: {}", answer.text);
            continue;
        }
        for client in [&stranger, &powerless] {
            let answer = ask(client, route.operation, &path).await;
            assert_eq!(answer.status, 403, "{:?} {path}: {}", route.operation, answer.text);
        }
    }
    app.stop().await;
}

#[actix_web::test]
async fn every_route_reads_its_body_within_bounds() {
    let app = App::start().await;
    app.enable_methods().await;
    for (kind, route) in signet::http::secrets::all_routes() {
        let has_mount = kind == "pki" || METHODS.contains(&kind);
        if !has_mount || route.operation != Operation::Update || route.body == BodyKind::Raw {
            continue;
        }
        let request =
            app.client.request("POST", &format!("{}/{}", place_of(kind), example(route.pattern))).body("{\"a\":");
        assert_eq!(send(request).await.status, 400, "{}", route.pattern);
    }
    app.stop().await;
}
