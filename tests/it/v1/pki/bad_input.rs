//! Rejected requests: status and message, and no side effects.

use serde_json::{Value, json};
use signet::x509::{extension, name, pem};

use super::foreign::{Ca, csr, csr_of_pieces, csr_with};
use super::mount::{Pki, with};
use super::weak_keys;
use crate::support::send;
use crate::v1::rights::{granted, only};

/// A CSR for an RSA key with a modulus of `bits` bits and this exponent; modulus and signature are made up. The
/// 2048-bit modulus has no factor below 752, is not a perfect power, and has no factors close to each other.
fn rsa_csr(bits: usize, exponent: &[u8]) -> String {
    let mut modulus: Vec<u8> = (0..bits / 8).map(|at| (0xc5 + 9 * at) as u8).collect();
    modulus[bits / 8 - 1] = 7;
    weak_keys::rsa_csr(&modulus, exponent)
}

fn role() -> Value {
    json!({ "key_type": "any", "allowed_domains": "foo", "allow_subdomains": true, "max_ttl": "1h", "require_cn": false })
}

#[actix_web::test]
async fn malformed_bodies_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let certs = pki.list("certs").await;
    for (path, body) in [
        ("issue/r", "{\"common_name\":"),
        ("issue/r", "[]"),
        ("issue/r", "\"text\""),
        ("issue/r", "{} {}"),
        ("issue/r", "{\"common_name\":\"\u{1}\"}"),
        ("roles/q", "{\"ttl\":1,}"),
        ("sign/r", "not json"),
        ("revoke", "{'serial_number':''}"),
        ("root/generate/internal", "{\"key_type\":nope}"),
    ] {
        let answer = send(pki.app.client.request("POST", &format!("pki/{path}")).body(body)).await;
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text);
        assert!(answer.error().starts_with("request body: "), "{path} {body}: {}", answer.text);
        assert!(!answer.text.contains("nope"), "the input is not quoted");
    }
    let deep = format!("{{\"alt_names\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let answer = send(pki.app.client.request("POST", "pki/issue/r").body(deep)).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!((pki.list("certs").await, pki.list("roles").await), (certs, vec!["r".to_owned()]));
    pki.stop().await;
}

#[actix_web::test]
async fn unknown_objects_and_violations_of_the_role_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&role()).await;
    let name = json!({ "common_name": "a.foo", "key_type": "ec" });
    let also = |more: Value| with(&name, more);
    for (path, body, rule) in [
        ("sign/unknown", json!({ "csr": csr("ec-256", "/CN=a.foo", "") }), "unknown role: unknown"),
        // The role is checked before all other fields.
        ("issue/unknown", also(json!({ "ttl": "soon", "format": "pkcs12" })), "unknown role: unknown"),
        ("sign/unknown", json!({ "csr": "none" }), "unknown role: unknown"),
        ("sign-verbatim/unknown", json!({ "csr": "none" }), "unknown role: unknown"),
        ("external-policy/sign", json!({ "csr": "none", "format": "pkcs12" }), "external policy is not configured"),
        ("issuer/unknown/sign/r", json!({ "csr": csr("ec-256", "/CN=a.foo", "") }), "issuer_ref: issuer not found"),
        ("issue/r", also(json!({ "alt_names": "x@bar" })), "alt_names: email address x@bar not allowed"),
        ("issue/r", also(json!({ "alt_names": [["a"]] })), "alt_names"),
        ("issue/r", also(json!({ "ttl": "2h" })), "ttl: 2h is above the role's max_ttl, 1h"),
        ("issue/r", also(json!({ "ttl": "1e400h" })), "ttl"),
        ("issue/r", also(json!({ "not_after": "2098-01-01T00:00:00Z" })), "not_after: lies beyond the role's max_ttl"),
        ("issue/r", also(json!({ "cert_metadata": "aGk" })), "cert_metadata: "),
        ("roles/q", json!({ "key_bits": "2048.5" }), "key_bits"),
        ("roles/q", json!({ "key_bits": 4294967296u64 + 2048 }), "key_bits"),
    ] {
        pki.refused(path, body, rule).await;
    }
    let before = pki.stored().await;
    for path in ["issue/a%20b", "issue/-r", "issue/r.", "issue/%C3%A4", "roles/a%20b", "roles/.x"] {
        let answer = pki.app.client.post(&format!("pki/{path}"), json!({ "common_name": "localhost" })).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.text);
    }
    assert_eq!(pki.stored().await, before);
    let many: Vec<String> = (0..1001).map(|n| format!("n{n}.foo")).collect();
    pki.refused("issue/r", also(json!({ "alt_names": many })), "alt_names: at most 1000").await;
    pki.stop().await;
}

#[actix_web::test]
async fn csrs_with_bad_keys_signatures_or_extensions_are_rejected() {
    let pki = Pki::start().await;
    let exponent = "RSA public exponent must be odd, at least 3 and at most 2^33";
    // The signatures are invalid: any other error shows that the signature was not verified.
    for (csr, rule) in [
        (rsa_csr(16384, &[1, 0, 1]), "RSA keys above 8192 bits are not supported"),
        (rsa_csr(8200, &[1, 0, 1]), "RSA keys above 8192 bits are not supported"),
        // A huge exponent makes every verification slow; an even one is invalid.
        (rsa_csr(2048, &[0x7f; 255]), exponent),
        (rsa_csr(2048, &[2]), exponent),
        (rsa_csr(2048, &[1]), exponent),
        (rsa_csr(1024, &[1, 0, 1]), "minimum of an 2048-bit key"),
        (rsa_csr(2048, &[1, 0, 1]), "request signature invalid"),
        ("A".repeat(1 << 20), "csr: longer than 64 KiB"),
        ("A".repeat((1 << 20) + 1), "csr: longer than 1048576 bytes"),
        (pem::encode("CERTIFICATE REQUEST", &vec![0x30; 1 << 19]), "csr: longer than 64 KiB"),
    ] {
        pki.deny_sign(&role(), json!({ "csr": csr }), rule).await;
    }
    let answer = pki.app.client.post("pki/sign/r", json!({ "csr": "A".repeat(5 << 20) })).await;
    assert_eq!(answer.status, 413, "{}", answer.text);
    let small = csr("rsa-1024", "/CN=a.foo", "");
    pki.deny_sign(&role(), json!({ "csr": small }), "minimum of an 2048-bit key").await;
    let weak = csr_with("ec-256", "/CN=a.foo", "", &["-sha1"]);
    pki.deny_sign(&role(), json!({ "csr": weak }), "csr: request signature invalid").await;
    // The same extension by its name and by its OID.
    let twice = csr("ec-256", "/CN=a.foo", "basicConstraints = CA:FALSE\n2.5.29.19 = DER:3000");
    pki.deny_sign(&role(), json!({ "csr": twice }), "csr: ").await;
    let san = |name: &[u8]| {
        let names = [&[0x30, name.len() as u8 + 2, 0x82, name.len() as u8], name].concat();
        extension::extension(&[0x55, 0x1d, 0x11], false, &names)
    };
    // A permitted name before one that is not: neither may be used.
    let twice = csr_of_pieces(&name::name(&[]), &[&san(b"a.foo"), &san(b"evil.com")]);
    pki.deny_sign(&role(), json!({ "csr": twice }), "csr: ").await;
    let once = csr_of_pieces(&name::name(&[]), &[&san(b"a.foo")]);
    assert_eq!(pki.sign(&role(), json!({ "csr": once })).await.sans(), ["DNS:a.foo"]);
    pki.stop().await;
}

#[actix_web::test]
async fn operators_endpoints_are_each_granted_by_their_own_path() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let csr = csr("ec-256", "/CN=a.foo", "");
    let verbatim = json!({ "csr": csr });
    let intermediate = json!({ "csr": csr, "common_name": "A Sub CA" });
    let certificate = json!({ "certificate": Ca::root("/CN=Other").pem });
    let endpoints = [
        ("sign-verbatim", &verbatim),
        ("sign-verbatim/r", &verbatim),
        ("issuer/root/sign-verbatim", &verbatim),
        ("issuer/root/sign-verbatim/r", &verbatim),
        ("root/sign-intermediate", &intermediate),
        ("issuer/root/sign-intermediate", &intermediate),
        ("root/sign-self-issued", &certificate),
        ("issuer/root/sign-self-issued", &certificate),
    ];
    for (own, _) in &endpoints {
        let users = granted("pki/issue/*", &["update"]) + &granted("pki/sign/*", &["update"]);
        let rights = users + &granted(&format!("pki/{own}"), &["update", "sudo"]);
        let client = only(&pki.app, "operator", &rights).await;
        for (path, body) in &endpoints {
            let expected = if path == own { 200 } else { 403 };
            let answer = client.post(&format!("pki/{path}"), (*body).clone()).await;
            assert_eq!(answer.status, expected, "right to {own}: {path}: {}", answer.text);
        }
    }
    pki.stop().await;
}
