//! Every route of every table, called without a token, with a token that lacks the right, and with only the right.
//!
//! New routes are covered automatically. A route that rejects by itself, or needs a special request, has a row in
//! [`ROWS`]; [`mounted`] has the path of each mount type.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signet::auth::mounts::{MountClass, MountKind};
use signet::http::secrets::all_routes;
use signet::http::secrets::route::{BodyKind, Operation, Route, RouteAccess, operation_name};

use super::rights::{granted, only};
use crate::support::{Answer, App, Client, send, tests_on};

tests_on!(mounts: with_all_mounts() =>
    every_route_rejects_callers_without_the_right,
    every_route_accepts_its_single_right,
    every_update_route_rejects_a_truncated_body,
);

async fn ask(client: &Client, operation: Operation, path: &str, body: &Value) -> Answer {
    match operation {
        Operation::Read => client.get(path).await,
        Operation::List => client.list(path).await,
        Operation::Create | Operation::Update => client.post(path, body.clone()).await,
        Operation::Patch => client.patch(path, body.clone()).await,
        Operation::Delete => client.delete(path).await,
    }
}

fn example(pattern: &str) -> String {
    let segment = |segment: &str| match segment {
        ":type" => "internal".to_owned(),
        other if other.starts_with([':', '*']) => "0a".to_owned(),
        other => other.to_owned(),
    };
    pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
}

fn mounted(kind: &str) -> String {
    let kind = MountKind::from(kind.to_owned());
    match kind.class() {
        MountClass::Methods => format!("auth/{}", kind.name()),
        MountClass::Secrets => kind.name().to_owned(),
        MountClass::BuiltIn => match kind {
            MountKind::System => "sys".to_owned(),
            MountKind::Token => "auth/token".to_owned(),
            kind => kind.name().to_owned(),
        },
        MountClass::Unknown => panic!("{kind:?}: where is it?"),
    }
}

async fn with_all_mounts() -> App {
    let app = App::start().await;
    for kind in MountKind::ALL.iter().filter(|kind| kind.class() == MountClass::Methods) {
        app.client.post(&format!("sys/auth/{}", kind.name()), json!({ "type": kind.name() })).await.assert_status(204);
    }
    app
}

/// A request for a route that needs more than an example path and an empty body.
struct Row {
    kind: &'static str,
    operation: Operation,
    pattern: &'static str,
    path: &'static str,
    body: fn() -> Value,
    /// Further rules that it needs.
    besides: &'static str,
}

/// Routes whose handler itself returns a 403.
const ROWS: &[Row] = &[Row {
    kind: "system",
    operation: Operation::Read,
    pattern: "internal/ui/mounts/*path",
    path: "sys/internal/ui/mounts/pki",
    body: || Value::Null,
    besides: "path \"pki/*\" { capabilities = [\"read\"] }",
}];

fn row(kind: &str, route: &Route) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.kind == kind && row.operation == route.operation && row.pattern == route.pattern)
}

/// The right that the route needs if the object does not exist.
fn right_of(route: &Route) -> &'static str {
    operation_name(if route.exists.is_some() { Operation::Create } else { route.operation })
}

fn seen(route: &Route, path: &str) -> String {
    if route.operation == Operation::List { format!("{}/", path.trim_end_matches('/')) } else { path.to_owned() }
}

async fn every_route_rejects_callers_without_the_right(app: &App) {
    let powerless = only(app, "nothing", &granted("unrelated", &["read"])).await;
    let all = ["create", "read", "update", "patch", "delete", "list", "sudo"];
    let mut lacking = BTreeMap::new();
    for word in all {
        let others: Vec<_> = all.into_iter().filter(|other| *other != word).collect();
        lacking.insert(word, only(app, &format!("all-but-{word}"), &granted("*", &others)).await);
    }
    let stranger = app.client.with_token("");
    for (kind, route) in all_routes() {
        let path = format!("{}/{}", mounted(kind), example(route.pattern));
        let what = format!("{:?} {path}", route.operation);
        if route.access == RouteAccess::Open {
            let answer = ask(&stranger, route.operation, &path, &json!({})).await;
            assert!(answer.status != 403 || row(kind, route).is_some(), "{what}: {}", answer.text);
            continue;
        }
        ask(&stranger, route.operation, &path, &json!({})).await.assert_denied();
        // Neither digits nor an invented token are valid.
        for token in ["0", "s.00000000000000000000000000000000000000000000"] {
            ask(&app.client.with_token(token), route.operation, &path, &json!({})).await.assert_denied();
        }
        let answer = ask(&powerless, route.operation, &path, &json!({})).await;
        if route.access == RouteAccess::Caller {
            assert!(answer.status != 403 || row(kind, route).is_some(), "{what}: {}", answer.text);
            continue;
        }
        answer.assert_denied();
        ask(&lacking[right_of(route)], route.operation, &path, &json!({})).await.assert_denied();
        if route.access == RouteAccess::Sudo {
            ask(&lacking["sudo"], route.operation, &path, &json!({})).await.assert_denied();
        }
    }
}

async fn every_route_accepts_its_single_right(app: &App) {
    for (kind, route) in all_routes().filter(|(_, route)| route.access != RouteAccess::Open) {
        let row = row(kind, route);
        let path =
            row.map_or_else(|| format!("{}/{}", mounted(kind), example(route.pattern)), |row| row.path.to_owned());
        let word = right_of(route);
        let rights: &[&str] = if route.access == RouteAccess::Sudo { &[word, "sudo"] } else { &[word] };
        let right = match route.access {
            RouteAccess::Caller => granted("unrelated", &["read"]),
            _ => granted(&seen(route, &path), rights),
        };
        let client = only(app, "single", &(right + row.map_or("", |row| row.besides))).await;
        let answer = ask(&client, route.operation, &path, &row.map_or_else(|| json!({}), |row| (row.body)())).await;
        assert!(!matches!(answer.status, 401 | 403 | 405), "{word} {path}: {} {}", answer.status, answer.text);
        assert!(answer.error() != "unsupported path" && !answer.error().starts_with("no handler"), "{word} {path}");
        assert!(answer.status < 500 || answer.status == 503, "{word} {path}: {} {}", answer.status, answer.text);
    }
}

#[test]
fn every_row_names_a_route() {
    for row in ROWS {
        let is = |(kind, route): (&str, &Route)| self::row(kind, route).is_some_and(|found| std::ptr::eq(found, row));
        assert!(all_routes().any(is), "{} {}", row.kind, row.pattern);
    }
}

async fn every_update_route_rejects_a_truncated_body(app: &App) {
    for (kind, route) in all_routes() {
        if route.operation != Operation::Update || route.body == BodyKind::Raw {
            continue;
        }
        let request =
            app.client.request("POST", &format!("{}/{}", mounted(kind), example(route.pattern))).body("{\"a\":");
        assert_eq!(send(request).await.status, 400, "{kind} {}", route.pattern);
    }
}
