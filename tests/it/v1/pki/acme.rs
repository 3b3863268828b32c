//! ACME is not implemented: error responses to its clients.

use serde_json::{Value, json};

use super::mount::Pki;
use crate::support::send;

#[actix_web::test]
async fn acme_client_without_token_gets_not_enabled_problem() {
    let pki = Pki::start().await;
    let stranger = pki.app.client.with_token("");
    for directory in ["acme", "roles/web/acme", "issuer/root/roles/web/acme", "external-policy/mine/acme"] {
        for path in ["directory", "new-nonce", "new-account", "order/1/finalize"] {
            let path = format!("pki/{directory}/{path}");
            // Requests as ACME clients send them: reads, HEAD for a nonce, and signed bodies (RFC 8555 section 6.2).
            let jose = || stranger.request("POST", &path).header("content-type", "application/jose+json").body("{}");
            for request in [stranger.request("GET", &path), jose(), jose().body("no JSON")] {
                let response = request.send().await.unwrap();
                assert_eq!(response.status(), 404, "{path}");
                assert_eq!(response.headers()["content-type"], "application/problem+json");
                let body: Value = response.json().await.unwrap();
                assert_eq!(body["detail"], "ACME is not enabled in this mount");
                assert_eq!((&body["status"], &body["errors"][0]), (&json!(404), &body["detail"]));
            }
            assert_eq!(stranger.request("HEAD", &path).send().await.unwrap().status(), 404);
            let long = stranger.request("POST", &path).body(vec![b'a'; 300 << 10]);
            assert_eq!(send(long).await.status, 404, "{path}: what is beyond the bound is not kept");
        }
    }
    pki.post("roles/acme", json!({})).await;
    pki.get("roles/acme").await;
    stranger.get("pki/roles/acme").await.assert_denied();
    pki.stop().await;
}
