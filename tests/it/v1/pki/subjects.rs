//! Types and upper bounds of subjects (RFC 5280 A.1): a warning, and an error with `strict_subject`. The bounds of each
//! attribute are unit tests in `src/pki/values/subject_bounds.rs`.

use serde_json::{Value, json};
use signet::x509::name::{self, Attribute};

use super::foreign::{self, csr, csr_of_pieces};
use super::mount::{Pki, text, with};

/// Returns members of requests and roles that break a rule, with the field and the rule.
fn beyond() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!({ "country": ["NZ", "Q7"] }), "country", "must be two letters (RFC 5280 A.1, countryName"),
        (json!({ "organization": "ö".repeat(65) }), "organization", "ub-organization-name"),
        (json!({ "ou": ["a", "u".repeat(65)] }), "ou", "ub-organizational-unit-name"),
    ]
}

/// Same as [`beyond`], for members of requests only.
fn beyond_names() -> Vec<(Value, &'static str, &'static str)> {
    let long = format!("{}test", "a.".repeat(40));
    vec![
        (json!({ "common_name": long }), "common_name", "at most 64 characters long (RFC 5280 A.1, ub-common-name)"),
        (json!({ "serial_number": "ü" }), "serial_number", "must be a PrintableString (RFC 5280 A.1)"),
    ]
}

fn within() -> Value {
    json!({ "country": "NZ", "province": "p".repeat(128), "locality": "ü".repeat(128), "organization": "o".repeat(64),
        "ou": ["u".repeat(64), "ü".repeat(64)], "street_address": "s".repeat(300), "postal_code": "1".repeat(100) })
}

#[actix_web::test]
async fn subject_beyond_rfc_5280_types_and_bounds_warns() {
    let pki = Pki::start().await;
    assert_eq!(pki.role(&within()).await, "");
    for (role, field, rule) in beyond() {
        let warnings = pki.role(&role).await;
        assert!(warnings.starts_with(&format!("{field}: ")) && warnings.contains(rule), "{role}: {warnings}");
        assert_eq!(pki.get("roles/r").await["strict_subject"], false);
    }
    let anything = json!({ "allow_any_name": true, "allowed_serial_numbers": "*" });
    for (request, field, rule) in beyond_names() {
        let request = with(&json!({ "common_name": "a.test" }), request);
        let csr = csr("ec-256", "/", "");
        for (path, body) in [("issue/r", request.clone()), ("sign/r", with(&request, json!({ "csr": csr })))] {
            pki.role(&anything).await;
            let warnings = pki.ask(path, body).await.answer.warnings();
            assert!(warnings.starts_with(&format!("{field}: ")) && warnings.contains(rule), "{path}: {warnings}");
        }
    }
    let leaf = pki.issue(&anything, json!({ "common_name": "a.test", "serial_number": "1" })).await;
    assert_eq!(leaf.answer.warnings(), "");
    pki.stop().await;
}

#[actix_web::test]
async fn strict_subject_role_rejects_values_beyond_rfc_5280() {
    let pki = Pki::start().await;
    let strict =
        json!({ "strict_subject": true, "allow_any_name": true, "allowed_serial_numbers": "*", "key_type": "ec" });
    assert_eq!(pki.role(&with(&strict, within())).await, "");
    assert_eq!(pki.get("roles/r").await["strict_subject"], true);
    for (role, field, rule) in beyond() {
        pki.refused("roles/other", with(&strict, role.clone()), &format!("{field}: ")).await;
        pki.refused("roles/other", with(&strict, role.clone()), rule).await;
        let patched = pki.app.client.patch("pki/roles/r", role).await;
        assert!(patched.status == 400 && patched.error().contains("strict_subject"), "{}", patched.text);
    }
    for (request, field, rule) in beyond_names() {
        let request = with(&json!({ "common_name": "a.test" }), request);
        pki.refused("issue/r", request.clone(), rule).await;
        let csr = csr("ec-256", "/", "");
        pki.refused("sign/r", with(&request, json!({ "csr": csr })), &format!("{field}: ")).await;
    }
    pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
    // A role can become strict only if its own subject is valid.
    pki.role(&json!({ "country": "Neverland" })).await;
    let patched = pki.app.client.patch("pki/roles/r", json!({ "strict_subject": true })).await;
    assert!(patched.status == 400 && patched.error().starts_with("country: "), "{}", patched.text);
    let patched = pki.app.client.patch("pki/roles/r", json!({ "strict_subject": true, "country": "NZ" })).await;
    assert_eq!((patched.status, patched.warnings()), (200, String::new()), "{}", patched.text);
    let patched = pki.app.client.patch("pki/roles/r", json!({ "strict_subject": null })).await;
    assert_eq!(patched.body["data"]["strict_subject"], false);
    pki.stop().await;
}

#[actix_web::test]
async fn copied_csr_subject_is_checked_against_rfc_5280_bounds() {
    let pki = Pki::start().await;
    pki.role(&json!({ "strict_subject": true })).await;
    let long = "o".repeat(65);
    for (attribute, value, rule) in [
        (Attribute::Organization, &long[..], "csr: organization must be at most 64 characters long (RFC 5280 A.1, ub-"),
        (Attribute::SerialNumber, "ü", "csr: serial_number must be a PrintableString (RFC 5280 A.1)"),
        (Attribute::Country, "N", "csr: country must be two letters (RFC 5280 A.1, countryName"),
        (Attribute::Title, &long[..], "ub-title"),
    ] {
        let subject = name::name(&[&name::rdn(attribute, &[value.to_owned()])]);
        let body = json!({ "csr": csr_of_pieces(&subject, &[]) });
        pki.refused("sign-verbatim/r", body.clone(), rule).await;
        pki.warns("sign-verbatim", body.clone(), rule).await;
        pki.warns("root/sign-intermediate", with(&body, json!({ "use_csr_values": true })), rule).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn ca_subject_is_checked_against_rfc_5280_bounds() {
    let pki = Pki::start().await;
    let names =
        beyond_names().into_iter().map(|(body, field, rule)| (with(&json!({ "common_name": "A" }), body), field, rule));
    for (body, field, rule) in beyond().into_iter().chain(names) {
        let body = with(&json!({ "common_name": "An Authority", "key_type": "ec" }), body);
        let csr = json!({ "csr": csr("ec-256", "/", "") });
        for path in ["root/generate/internal", "intermediate/generate/internal", "root/sign-intermediate"] {
            let body = if path.ends_with("intermediate") { with(&body, csr.clone()) } else { body.clone() };
            let warned = pki.warns(path, body, rule).await;
            assert!(warned.warnings().contains(&format!("{field}: ")), "{path}: {}", warned.text);
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn attribute_values_form_one_rdn_or_one_each() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "ou": ["C", "A", "B", "A"], "organization": ["Y", "X"] });
    let name = json!({ "common_name": "a.foo" });
    assert_eq!(pki.issue(&role, name.clone()).await.subject(), "O=X+O=Y,OU=A+OU=B+OU=C,CN=a.foo");
    let separate = with(&role, json!({ "separate_rdns": true }));
    assert_eq!(pki.issue(&separate, name).await.subject(), "O=Y,O=X,OU=C,OU=A,OU=B,CN=a.foo");
    assert_eq!(pki.get("roles/r").await["separate_rdns"], true);
    let asked = json!({ "common_name": "Below", "ou": ["C", "A"], "separate_rdns": true });
    let root = pki.root(asked.clone()).await;
    assert_eq!(foreign::subject(text(&root, "certificate")), "OU=C,OU=A,CN=Below");
    let below = with(&asked, json!({ "csr": csr("ec-256", "/CN=Below", "") }));
    assert_eq!(pki.certify("root/sign-intermediate", below).await.subject(), "OU=C,OU=A,CN=Below");
    pki.stop().await;
}
