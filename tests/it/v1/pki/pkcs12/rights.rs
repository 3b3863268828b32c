//! Policies for PKCS #12 files: one grant suffices for a route, and parameter rules can forbid the files.

use serde_json::{Value, json};
use signet::http::secrets::all_routes;
use signet::http::secrets::route::BodyKind;

use super::{PASSWORD, exported, import_body};
use crate::v1::pki::foreign::Ca;
use crate::v1::pki::mount::Pki;
use crate::v1::rights::{only, rule};

/// Parameter rules for `issue` that reject a PKCS #12 file, and one that allows it.
const ISSUE_REFUSED: [&str; 4] = [
    r#"allowed_parameters = { "common_name" = [], "password" = [] }"#,
    r#"allowed_parameters = { "common_name" = [], "format" = [] }"#,
    r#"denied_parameters = { "format" = ["p12"] }"#,
    r#"denied_parameters = { "password" = [] }"#,
];
const ISSUE_ALLOWED: &str = r#"allowed_parameters = { "common_name" = [], "format" = ["p12"], "password" = [] }"#;
/// Parameter rules for imports that reject a PKCS #12 file, and one that allows it.
const IMPORT_REFUSED: [&str; 4] = [
    r#"allowed_parameters = { "pem_bundle" = [], "password" = [] }"#,
    r#"allowed_parameters = { "p12" = [] }"#,
    r#"denied_parameters = { "p12" = [] }"#,
    r#"denied_parameters = { "password" = [] }"#,
];
const IMPORT_ALLOWED: &str = r#"allowed_parameters = { "p12" = [], "password" = [] }"#;

/// Returns path and body for every route that accepts the password of a PKCS #12 file.
fn requests() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (kind, route) in all_routes() {
        if kind == "pki" && route.body == BodyKind::Fields && route.fields.contains(&"password") {
            let path = route.pattern.replace(":issuer_ref", "root").replace(":name", "r");
            found.push((format!("pki/{path}"), request(route.pattern)));
        }
    }
    assert_eq!(found.len(), 6, "{found:?}");
    found
}

fn request(pattern: &str) -> Value {
    let ca = || Ca::root(&format!("/CN=Imported by {}", pattern.replace('/', " ")));
    match pattern {
        "issue/:name" | "issuer/:issuer_ref/issue/:name" => {
            json!({ "common_name": "a.test", "format": "p12", "password": PASSWORD })
        }
        "issuers/import/bundle" | "config/ca" | "keys/import" => import_body(&exported(&ca(), &[])),
        "issuers/import/cert" => import_body(&exported(&ca(), &["-nokeys"])),
        other => panic!("no request for {other}"),
    }
}

#[actix_web::test]
async fn pkcs12_request_denied_by_parameter_rules_stores_nothing() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    for (path, body) in requests() {
        let name = path.replace('/', "-");
        let is_issue = body.get("format").is_some();
        let refused = if is_issue { ISSUE_REFUSED } else { IMPORT_REFUSED };
        let allowed = if is_issue { ISSUE_ALLOWED } else { IMPORT_ALLOWED };
        let before = pki.stored().await;
        for (n, terms) in refused.into_iter().enumerate() {
            let text = rule(&path, &format!("capabilities = [\"update\"] {terms}"));
            let client = only(&pki.app, &format!("{name}-{n}"), &text).await;
            let answer = client.post(&path, body.clone()).await;
            assert_eq!((answer.status, answer.error()), (403, "permission denied"), "{path} {terms}");
        }
        assert_eq!(pki.stored().await, before, "{path}");
        let text = rule(&path, &format!("capabilities = [\"update\"] {allowed}"));
        let client = only(&pki.app, &format!("{name}-allowed"), &text).await;
        let answer = client.post(&path, body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert_ne!(pki.stored().await, before, "{path}");
    }
    pki.stop().await;
}
