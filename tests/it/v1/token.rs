//! `auth/token/`.

use std::time::Duration;

use serde_json::json;

use crate::support::{App, send};

#[actix_web::test]
async fn a_token_looks_itself_up_with_every_verb_and_ends_itself() {
    let app = App::start().await;
    app.policy("any-verb", "path \"auth/token/lookup-self\" { capabilities = [\"read\", \"update\"] }").await;
    let client = app.with_policies(&["default", "any-verb"]).await;
    for method in ["GET", "POST", "PUT"] {
        let answer = send(client.request(method, "auth/token/lookup-self")).await;
        assert_eq!(answer.body["data"]["id"], json!(client.token), "{method}: {}", answer.text);
        assert!(answer.body["data"]["policies"].is_array());
    }
    let ended = send(client.request("PUT", "auth/token/revoke-self")).await;
    assert_eq!((ended.status, ended.text.as_str()), (204, ""));
    client.get("auth/token/lookup-self").await.assert_denied();
    app.stop().await;
}

#[actix_web::test]
async fn a_token_is_renewed_with_what_clients_send() {
    let app = App::start().await;
    let created = app.client.post("auth/token/create", json!({ "policies": ["default"], "ttl": "1h" })).await;
    let client = app.client.with_token(created.body["auth"]["client_token"].as_str().unwrap());
    for body in [json!({ "increment": 0 }), json!({ "increment": "10m" }), json!({ "increment": null })] {
        let renewed = send(client.request("PUT", "auth/token/renew-self").json(&body)).await;
        assert_eq!(renewed.body["auth"]["client_token"], json!(client.token), "{}", renewed.text);
    }
    assert_eq!(client.post("auth/token/renew-self", json!({ "increment": "-1s" })).await.status, 400);
    app.stop().await;
}

#[actix_web::test]
async fn tokens_are_managed_by_text_and_by_accessor() {
    let app = App::start().await;
    let created = app.client.post("auth/token/create-orphan", json!({ "policies": ["default"] })).await;
    let (token, accessor) = (&created.body["auth"]["client_token"], &created.body["auth"]["accessor"]);
    let looked = app.client.post("auth/token/lookup", json!({ "token": token })).await;
    assert_eq!(&looked.body["data"]["accessor"], accessor);
    let looked = app.client.post("auth/token/lookup-accessor", json!({ "accessor": accessor })).await;
    assert_eq!(looked.body["data"]["id"], "");
    let own = app.client.get("auth/token/lookup").await;
    assert_eq!(own.body["data"]["id"], json!(app.client.token));
    let ended = app.client.post("auth/token/revoke-accessor", json!({ "accessor": accessor })).await;
    assert_eq!(ended.status, 204);
    let again = app.client.post("auth/token/revoke-accessor", json!({ "accessor": accessor })).await;
    assert_eq!(again.body["warnings"], json!(["No token found with this accessor"]), "{}", again.text);
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": token })).await.status, 204);
    assert_eq!(app.client.post("auth/token/revoke", json!({})).await.error(), "missing token ID");
    app.stop().await;
}

#[actix_web::test]
async fn a_token_ends_at_its_time_and_then_looks_unknown() {
    let app = App::builder().manual_clock(time::macros::datetime!(2030-01-01 00:00 UTC)).start().await;
    let created = app.client.post("auth/token/create", json!({ "policies": ["default"], "ttl": "1h" })).await;
    let client = app.client.with_token(created.body["auth"]["client_token"].as_str().unwrap());
    app.clock.advance(Duration::from_secs(3599));
    assert_eq!(client.get("auth/token/lookup-self").await.status, 200);
    app.clock.advance(Duration::from_secs(1));
    client.get("auth/token/lookup-self").await.assert_denied();
    app.stop().await;
}
