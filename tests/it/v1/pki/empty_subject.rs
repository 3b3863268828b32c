//! A certificate must name its subject (RFC 5280 sections 4.1.2.6 and 4.2.1.6): without a subject it needs a
//! subjectAltName, and a CA needs a subject.

use serde_json::{Value, json};
use signet::x509::extension::extension;
use signet::x509::name;
use signet::x509::oid;
use signet::x509::pieces::{Name, Rdns};
use signet::x509::writer::{SEQUENCE, SET, build, context_constructed};

use super::foreign::{CA, Ca, csr, csr_of_pieces, new_key};
use super::mount::{Pki, with};

const NOBODY: &str = "has no name";
const NAMELESS: &str = "must have a subject";

/// `SEQUENCE {}`, and a subject whose only value is an empty text of an unknown type.
fn subjects() -> [Name; 2] {
    let empty_value = build(SET, 0, |w| {
        w.nest(SEQUENCE, |w| {
            w.oid(&[0x2a, 3]);
            w.tlv(0x0c, b"");
        });
    });
    [name::name(&[]), name::name(&[&Rdns::from_der(&empty_value).unwrap()])]
}

#[actix_web::test]
async fn certificate_without_any_name_is_rejected_on_every_path() {
    let pki = Pki::start().await;
    let role = json!({ "require_cn": false, "allow_any_name": true, "allowed_domains": "ok.test", "key_type": "any" });
    for body in [json!({}), json!({ "common_name": "" }), json!({ "alt_names": " , " })] {
        let body = with(&json!({ "key_type": "ec" }), body);
        pki.deny(&role, body, NOBODY).await;
    }
    for subject in subjects() {
        let csr = csr_of_pieces(&subject, &[]);
        let body = json!({ "csr": csr });
        pki.deny_sign(&role, body.clone(), NOBODY).await;
        for path in ["sign-verbatim", "sign-verbatim/r", "issuer/root/sign-verbatim"] {
            pki.refused(path, body.clone(), NOBODY).await;
        }
        // A directoryName without content does not count as a name.
        let nameless = build(SEQUENCE, 0, |w| w.nest(context_constructed(4), |w| w.raw(subject.as_der())));
        let csr = csr_of_pieces(&subject, &[&extension(oid::SUBJECT_ALT_NAME, true, &nameless)]);
        pki.refused("sign-verbatim", json!({ "csr": csr }), "directoryName is empty").await;
        for path in ["root/sign-intermediate", "issuer/root/sign-intermediate"] {
            let body = with(&body, json!({ "use_csr_values": true, "alt_names": "a.ok.test" }));
            pki.refused(path, body, NAMELESS).await;
        }
    }
    // Any name is enough, including one from the role's subject.
    pki.role(&with(&role, json!({ "organization": "Somebody" }))).await;
    assert_eq!(pki.ask("issue/r", json!({ "key_type": "ec" })).await.subject(), "O=Somebody");
    let only_address = json!({ "key_type": "ec", "ip_sans": "10.0.0.1" });
    assert_eq!(pki.issue(&role, only_address).await.sans(), ["IP Address:10.0.0.1"]);
    let somebody = csr("ec-256", "/", "subjectAltName = DNS:a.ok.test");
    assert_eq!(pki.certify("sign-verbatim", json!({ "csr": somebody })).await.sans(), ["DNS:a.ok.test"]);
    pki.stop().await;
}

#[actix_web::test]
async fn ca_without_subject_is_neither_created_nor_imported() {
    let pki = Pki::start().await;
    // SANs do not replace the subject of a CA (RFC 5280 section 4.1.2.6), and no key is generated for a rejected
    // request.
    for more in [json!({}), json!({ "alt_names": "ca.test" }), json!({ "common_name": " ", "ou": "" })] {
        let body = with(&json!({ "key_type": "ec" }), more);
        for path in [
            "root/generate/internal",
            "root/generate/exported",
            "issuers/generate/root/internal",
            "root/rotate/internal",
            "intermediate/generate/internal",
            "issuers/generate/intermediate/internal",
        ] {
            pki.refused(path, body.clone(), &format!("common_name: a CA certificate {NAMELESS}")).await;
        }
        let body = with(&body, json!({ "key_type": Value::Null }));
        for path in ["root/generate/existing", "intermediate/cross-sign"] {
            pki.refused(path, body.clone(), &format!("common_name: a CA certificate {NAMELESS}")).await;
        }
    }
    let nameless = Ca::root_with(new_key("ec-256"), "/", CA, &[]);
    for (path, field) in [
        ("issuers/import/bundle", "pem_bundle"),
        ("issuers/import/cert", "pem_bundle"),
        ("config/ca", "pem_bundle"),
        ("intermediate/set-signed", "certificate"),
        ("root/sign-self-issued", "certificate"),
    ] {
        pki.refused(path, json!({ field: nameless.pem }), NAMELESS).await;
    }
    // Nor a certificate whose issuer has no name, because its issuer cannot be found (RFC 5280 section 4.1.2.4).
    let below = nameless.intermediate("/CN=Below", &[]);
    pki.refused("issuers/import/cert", json!({ "pem_bundle": below.pem }), "issuer's name is empty").await;
    pki.stop().await;
}
