//! The `cloudb` login method: the client secret, rotated secrets and access tokens, in successful and failed logins.

use serde_json::{Value, json};

use super::Walk;
use crate::provider::{CLIENT, Provider, RESOURCE, S1, SECRET, TENANT};

const ROTATED: &str = "rotated-cloudb-canary";

pub async fn cloudb(walk: &mut Walk, provider: &Provider) {
    walk.scanner.add_text("client secret", SECRET);
    walk.scanner.add_text("rotated client secret", &format!("{ROTATED}-1"));
    walk.scanner.add_text("access token", "access-token-1");
    let config = json!({ "tenant_id": TENANT, "resource": RESOURCE, "client_id": CLIENT, "client_secret": SECRET,
        "max_retries": 0 });
    assert_eq!(walk.post("auth/cloudb/config", config).await.status, 204);
    for wrong in [
        json!({ "client_secret": SECRET, "tenant_id": "../evil" }),
        json!({ "client_secret": [SECRET] }),
        json!({ "client_secret": SECRET, "identity_token_audience": "a" }),
        json!({ "client_secret": SECRET.repeat(1000) }),
        json!({ "client_secret": SECRET, "max_retries": SECRET }),
    ] {
        assert_eq!(walk.post("auth/cloudb/config", wrong).await.status, 400);
    }
    let root = walk.root.clone();
    let shown = walk.ask(&root, "GET", "auth/cloudb/config", Value::Null, &[]).await;
    assert_eq!(shown.body["data"]["tenant_id"], TENANT);
    let role = json!({ "bound_subscription_ids": S1, "policies": "walker" });
    walk.post("auth/cloudb/role/machine", role).await;
    let machine = provider.machine("rg1", "web", "o1", "westus");
    let stranger = root.with_token("");
    for (name, claims) in [
        ("good jwt", json!({ "xms_mirid": machine })),
        ("expired jwt", json!({ "xms_mirid": machine, "exp": 1 })),
        ("jwt of another", json!({ "xms_mirid": machine, "oid": "o2" })),
    ] {
        let jwt = provider.mint(claims);
        walk.scanner.add_text(name, &jwt);
        walk.scanner.add_text(name, jwt.rsplit('.').next().unwrap());
        let body = json!({ "role": "machine", "jwt": jwt, "subscription_id": S1, "resource_group_name": "rg1",
            "vm_name": "web" });
        if name == "good jwt" {
            walk.token(&stranger, "by a jwt", "auth/cloudb/login", body.clone()).await;
        }
        let with = |field: &str, value: Value| {
            let mut body = body.clone();
            body[field] = value;
            body
        };
        for wrong in [
            with("jwt", json!(format!("{jwt}.x"))),
            with("jwt", json!([jwt])),
            with("jwt", json!(format!("{}x", &jwt[..jwt.len() - 1]))),
            with("vm_name", json!("web2")),
            with("subscription_id", json!(7)),
            json!({ "jwt": jwt }),
        ] {
            let answer = walk.ask(&stranger, "POST", "auth/cloudb/login", wrong, &[]).await;
            assert!(matches!(answer.status, 400 | 403), "{}", answer.text);
        }
    }
    assert_eq!(walk.post("auth/cloudb/rotate-root", json!({})).await.status, 204);
    walk.ask(&root, "GET", "auth/cloudb/config", Value::Null, &[]).await;
}
