//! Each right on `approle` through its route, in every spelling of a role's name.

use serde_json::{Value, json};
use signet::http::secrets::all_routes;
use signet::http::secrets::route::{Operation, Route, RouteAccess, operation_name};

use super::{approle, role, role_with_secret_id, secret_id};
use crate::support::{Answer, App, Client, send};
use crate::v1::rights::{granted, only, rule};

fn routes() -> Vec<&'static Route> {
    let of = all_routes().filter(|(kind, route)| *kind == "approle" && route.access == RouteAccess::Token);
    of.map(|(_, route)| route).collect()
}

fn path(route: &Route) -> String {
    let slash = if route.operation == Operation::List { "/" } else { "" };
    format!("auth/approle/{}{slash}", route.pattern.replace(":login_role", "web"))
}

/// A body that satisfies every route.
fn body(accessor: &Value) -> Value {
    json!({ "role_id": "web-id", "token_policies": "a", "token_period": 60, "bind_secret_id": true,
        "bound_cidr_list": "127.0.0.0/8", "secret_id_bound_cidrs": "127.0.0.0/8", "token_bound_cidrs": "127.0.0.0/8",
        "secret_id_num_uses": 5, "secret_id_ttl": 600, "token_num_uses": 5, "token_ttl": 60, "token_max_ttl": 60,
        "secret_id": "chosen", "secret_id_accessor": accessor })
}

async fn ask(client: &Client, route: &Route, accessor: &Value) -> Answer {
    let path = path(route);
    match route.operation {
        Operation::List => client.list(path.trim_end_matches('/')).await,
        Operation::Read => client.get(&path).await,
        Operation::Delete => {
            let accessor = accessor.as_str().unwrap();
            client.delete(&format!("{path}?secret_id=chosen&secret_id_accessor={accessor}")).await
        }
        _ => client.post(&path, body(accessor)).await,
    }
}

async fn with_role() -> (App, Value) {
    let app = approle().await;
    let made = role_with_secret_id(&app, "web", json!({})).await;
    (app, made["secret_id_accessor"].clone())
}

#[actix_web::test]
async fn one_right_lets_do_one_thing() {
    let (app, _) = with_role().await;
    for route in routes() {
        role(
            &app,
            "web",
            json!({ "secret_id_num_uses": 0, "secret_id_ttl": 0, "token_bound_cidrs": [],
            "secret_id_bound_cidrs": [], "token_max_ttl": 0, "token_period": 0 }),
        )
        .await;
        app.client.post("auth/approle/role/web/secret-id/destroy", json!({ "secret_id": "chosen" })).await;
        let made = secret_id(&app, "web", json!({})).await;
        let accessor = &made["secret_id_accessor"];
        let word = operation_name(route.operation);
        let own = path(route);
        let client = only(&app, "single", &granted(&own, &[word])).await;
        for other in routes() {
            if other.operation != route.operation || other.pattern != route.pattern {
                let answer = ask(&client, other, accessor).await;
                let what = format!("{word} {own}: {} {}", operation_name(other.operation), path(other));
                assert_eq!(answer.status, 403, "{what}: {}", answer.text);
            }
        }
        let answer = ask(&client, route, accessor).await;
        assert!(matches!(answer.status, 200 | 202 | 204), "{word} {own}: {} {}", answer.status, answer.text);
    }
    app.stop().await;
}

#[actix_web::test]
async fn all_rights_but_one_do_not_do_that_one_thing() {
    let (app, accessor) = with_role().await;
    let mut paths: Vec<String> = routes().into_iter().map(path).collect();
    paths.sort();
    paths.dedup();
    for route in routes() {
        let but = |at: &String| {
            let on = routes().into_iter().filter(|other| path(other) == *at);
            let others = on.filter(|other| other.operation != route.operation || other.pattern != route.pattern);
            others.map(|other| operation_name(other.operation)).collect::<Vec<_>>()
        };
        let rules = paths.iter().map(|at| (at, but(at))).filter(|(_, rights)| !rights.is_empty());
        let rules: String = rules.map(|(at, rights)| granted(at, &rights)).collect();
        let client = only(&app, "most", &rules).await;
        ask(&client, route, &accessor).await.assert_denied();
    }
    app.stop().await;
}

#[actix_web::test]
async fn a_rule_for_a_role_holds_in_every_spelling_of_its_name() {
    let (app, _) = with_role().await;
    role(&app, "other", json!({})).await;
    let all = granted("auth/approle/*", &["read", "update", "delete", "list"]);
    for denied in ["web", "WEB", "We*"] {
        let rules = all.clone()
            + &granted(&format!("auth/approle/role/{denied}"), &["deny"])
            + &granted(&format!("auth/approle/role/{}/secret-id", denied.replace('*', "b")), &["deny"]);
        let client = only(&app, "limited", &rules).await;
        for name in ["web", "WEB", "wEb"] {
            let path = format!("auth/approle/role/{name}");
            client.get(&path).await.assert_denied();
            client.post(&path, json!({ "token_policies": "admin" })).await.assert_denied();
            client.delete(&path).await.assert_denied();
            client.post(&format!("{path}/secret-id"), json!({})).await.assert_denied();
        }
        assert_eq!(client.get("auth/approle/role/Other").await.status, 200);
    }
    let generator = only(&app, "generator", &granted("auth/approle/role/WEB/secret-id", &["update"])).await;
    for name in ["web", "Web"] {
        assert_eq!(generator.post(&format!("auth/approle/role/{name}/secret-id"), json!({})).await.status, 200);
        let custom = format!("auth/approle/role/{name}/custom-secret-id");
        generator.post(&custom, json!({ "secret_id": "x" })).await.assert_denied();
    }
    app.stop().await;
}

#[actix_web::test]
async fn a_rule_for_a_field_holds_under_both_of_its_names() {
    let (app, _) = with_role().await;
    let text = "capabilities = [\"update\"] denied_parameters = { \"token_policies\" = [\"admin\"], \
                \"secret_id_bound_cidrs\" = [] }";
    let rules = rule("auth/approle/role/+", text) + &rule("auth/approle/role/web/policies", text);
    let client = only(&app, "writer", &rules).await;
    for body in [
        json!({ "token_policies": "admin" }),
        json!({ "policies": ["admin"] }),
        json!({ "bound_cidr_list": "::/0" }),
        json!({ "secret_id_bound_cidrs": "::/0" }),
    ] {
        client.post("auth/approle/role/web", body).await.assert_denied();
    }
    client.post("auth/approle/role/web/policies", json!({ "policies": ["admin"] })).await.assert_denied();
    assert_eq!(client.post("auth/approle/role/web", json!({ "policies": "user" })).await.status, 204);
    let put = client.request("PUT", "auth/approle/role/web").json(&json!({ "token_policies": "user" }));
    assert_eq!(send(put).await.status, 204);
    app.stop().await;
}
