//! Rejected requests: status and message, and no side effects.

use serde_json::{Value, json};
use signet::x509::pieces::Extensions;
use signet::x509::writer::{BIT_STRING, NULL, OID, SEQUENCE, build};
use signet::x509::{extension, name, pem};

use super::foreign::{csr, csr_of_pieces, csr_with};
use super::mount::{Pki, with};
use crate::support::send;

/// A CSR for an RSA key with a modulus of `bits` bits and this exponent; modulus and signature are made up. The
/// 2048-bit modulus has no factor below 752, is not a perfect power, and has no factors close to each other.
fn rsa_csr(bits: usize, exponent: &[u8]) -> String {
    let mut modulus: Vec<u8> = (0..bits / 8).map(|at| (0xc5 + 9 * at) as u8).collect();
    modulus[bits / 8 - 1] = 7;
    let public = build(SEQUENCE, 0, |w| {
        w.unsigned(&modulus);
        w.unsigned(exponent);
    });
    let spki = build(SEQUENCE, 0, |w| {
        w.nest(SEQUENCE, |w| {
            w.tlv(OID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]);
            w.tlv(NULL, &[]);
        });
        w.bit_string(&public);
    });
    let info = signet::x509::csr::request_info(&name::name(&[]), &spki, &Extensions::default());
    let der = build(SEQUENCE, 0, |w| {
        w.raw(&info);
        w.nest(SEQUENCE, |w| {
            w.tlv(OID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]);
            w.tlv(NULL, &[]);
        });
        w.tlv(BIT_STRING, &[&[0][..], &modulus].concat());
    });
    pem::encode("CERTIFICATE REQUEST", &der)
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
async fn members_of_the_wrong_type_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    for (path, body, field) in [
        ("issue/r", json!({ "common_name": ["a"] }), "common_name"),
        ("issue/r", json!({ "common_name": {} }), "common_name"),
        ("issue/r", json!({ "common_name": "localhost", "alt_names": { "a": 1 } }), "alt_names"),
        ("issue/r", json!({ "common_name": "localhost", "alt_names": [["a"]] }), "alt_names"),
        ("issue/r", json!({ "common_name": "localhost", "ttl": "soon" }), "ttl"),
        ("issue/r", json!({ "common_name": "localhost", "ttl": -1 }), "ttl"),
        ("issue/r", json!({ "common_name": "localhost", "ttl": true }), "ttl"),
        ("issue/r", json!({ "common_name": "localhost", "ttl": "1e400h" }), "ttl"),
        ("issue/r", json!({ "common_name": "localhost", "exclude_cn_from_sans": "maybe" }), "exclude_cn_from_sans"),
        ("issue/r", json!({ "common_name": "localhost", "exclude_cn_from_sans": 2 }), "exclude_cn_from_sans"),
        ("issue/r", json!({ "common_name": "localhost", "key_bits": "many" }), "key_bits"),
        ("sign/r", json!({ "csr": 5 }), "csr"),
        ("sign/r", json!({ "csr": ["a"] }), "csr"),
        ("roles/q", json!({ "key_bits": "2048.5" }), "key_bits"),
        ("roles/q", json!({ "key_bits": 4294967296u64 + 2048 }), "key_bits"),
        ("roles/q", json!({ "max_ttl": "-5h" }), "max_ttl"),
        ("roles/q", json!({ "allow_any_name": "yes" }), "allow_any_name"),
        ("roles/q", json!({ "allowed_domains": { "a": "b" } }), "allowed_domains"),
        ("revoke", json!({ "serial_number": [1] }), "serial_number"),
        ("root/generate/internal", json!({ "common_name": "CA", "max_path_length": "x" }), "max_path_length"),
    ] {
        pki.refused(path, body, field).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn unknown_objects_and_violations_of_the_role_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&role()).await;
    let name = json!({ "common_name": "a.foo", "key_type": "ec" });
    let also = |more: Value| with(&name, more);
    for (path, body, rule) in [
        ("issue/unknown", name.clone(), "unknown role: unknown"),
        ("sign/unknown", json!({ "csr": csr("ec-256", "/CN=a.foo", "") }), "unknown role: unknown"),
        // The role is checked before all other fields.
        ("issue/unknown", also(json!({ "ttl": "soon", "format": "pkcs12" })), "unknown role: unknown"),
        ("sign/unknown", json!({ "csr": "none" }), "unknown role: unknown"),
        ("sign-verbatim/unknown", json!({ "csr": "none" }), "unknown role: unknown"),
        ("external-policy/sign", json!({ "csr": "none", "format": "pkcs12" }), "external policy is not configured"),
        ("issuer/unknown/issue/r", name.clone(), "issuer_ref: issuer not found"),
        ("issuer/unknown/sign/r", json!({ "csr": csr("ec-256", "/CN=a.foo", "") }), "issuer_ref: issuer not found"),
        ("issue/r", also(json!({ "common_name": "a.bar" })), "common_name: common name a.bar not allowed"),
        ("issue/r", also(json!({ "alt_names": "a.bar" })), "alt_names: subject alternate name a.bar not allowed"),
        ("issue/r", also(json!({ "alt_names": "x@bar" })), "alt_names: email address x@bar not allowed"),
        ("issue/r", also(json!({ "uri_sans": "urn:a" })), "uri_sans: "),
        ("issue/r", also(json!({ "other_sans": "1.2.3;UTF8:a" })), "other_sans: "),
        ("issue/r", also(json!({ "user_ids": "a" })), "user_ids: "),
        ("issue/r", also(json!({ "serial_number": "a" })), "serial_number: "),
        ("issue/r", also(json!({ "ttl": "2h" })), "ttl: 2h is above the role's max_ttl, 1h"),
        ("issue/r", also(json!({ "not_after": "2098-01-01T00:00:00Z" })), "not_after: lies beyond the role's max_ttl"),
        ("issue/r", also(json!({ "format": "pkcs12" })), "format: must be pem, der, pem_bundle or p12"),
        ("issue/r", also(json!({ "cert_metadata": "aGk" })), "cert_metadata: "),
    ] {
        pki.refused(path, body, rule).await;
    }
    let many: Vec<String> = (0..1001).map(|n| format!("n{n}.foo")).collect();
    pki.refused("issue/r", also(json!({ "alt_names": many })), "alt_names: at most 1000").await;
    pki.stop().await;
}

#[actix_web::test]
async fn unacceptable_csrs_are_rejected_before_signature_check() {
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
    pki.stop().await;
}

#[actix_web::test]
async fn duplicate_csr_extensions_are_rejected() {
    let pki = Pki::start().await;
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
async fn requests_without_token_or_policy_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let leaf = pki.ask("issue/r", json!({ "common_name": "localhost" })).await;
    let certs = pki.list("certs").await;
    // Reads without a token: permitted for certificates and lists, denied for an issuer.
    let anyone = pki.app.client.with_token("");
    anyone.post("pki/issue/r", json!({ "common_name": "localhost" })).await.assert_denied();
    assert_eq!(anyone.get(&format!("pki/cert/{}", leaf.serial())).await.status, 200);
    assert_eq!(anyone.list("pki/issuers").await.status, 200);
    anyone.get("pki/issuer/default").await.assert_denied();
    pki.app.policy("narrow", "path \"pki/issue/other\" { capabilities = [\"update\"] }\npath \"pki/roles/*\" { capabilities = [\"read\"] }").await;
    let narrow = pki.app.with_policies(&["narrow"]).await;
    for client in [&anyone, &narrow, &pki.app.client.with_token("s.forged")] {
        client.post("pki/issue/r", json!({ "common_name": "localhost" })).await.assert_denied();
        client.post("pki/issuer/root/issue/other", json!({ "common_name": "localhost" })).await.assert_denied();
        client.post("pki/sign/r", json!({ "csr": "garbage" })).await.assert_denied();
        client.post("pki/roles/r", json!({ "allow_any_name": true })).await.assert_denied();
        client.post("pki/revoke", json!({ "serial_number": leaf.serial() })).await.assert_denied();
        client.post("pki/root/generate/internal", json!({ "key_type": "ec" })).await.assert_denied();
        client.post("pki/config/urls", json!({})).await.assert_denied();
        client.get("pki/crl/rotate").await.assert_denied();
        client.list("pki/certs").await.assert_denied();
        client.delete("pki/root").await.assert_denied();
    }
    let answer = narrow.post("pki/issue/other", json!({ "common_name": "localhost" })).await;
    assert_eq!((answer.status, answer.error()), (400, "unknown role: other"));
    assert_eq!(pki.list("certs").await, certs);
    assert_eq!(pki.get("roles/r").await["allow_any_name"], false);
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["revocation_time"], 0);
    pki.stop().await;
}

#[actix_web::test]
async fn paths_with_traversal_or_invalid_names_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let certs = pki.list("certs").await;
    let body = "{\"common_name\":\"localhost\"}";
    let token = &pki.app.client.token;
    for path in [
        "pki/issue/../issue/r",
        "pki/issue/%2e%2e/issue/r",
        "pki/./issue/r",
        "pki//issue/r",
        "pki/issue//r",
        "pki/issue%2fr",
        "pki/issue/r%00",
    ] {
        let head = format!("POST /v1/{path} HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nConnection: close");
        let answer = pki.app.raw(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{path}: {answer}");
        assert!(answer.contains("path: "), "{path}: {answer}");
    }
    for path in ["issue/a%20b", "issue/-r", "issue/r.", "issue/%C3%A4", "roles/a%20b", "roles/.x"] {
        let answer = pki.app.client.post(&format!("pki/{path}"), json!({ "common_name": "localhost" })).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.text);
    }
    assert_eq!((pki.list("certs").await, pki.list("roles").await), (certs, vec!["r".to_owned()]));
    pki.stop().await;
}

/// Endpoints for operators, with bodies that are valid there.
fn of_operators() -> [(&'static str, Value); 8] {
    let csr = super::foreign::csr("ec-256", "/CN=a.foo", "");
    let verbatim = json!({ "csr": csr });
    let intermediate = json!({ "csr": csr, "common_name": "A Sub CA" });
    let certificate = json!({ "certificate": super::foreign::Ca::root("/CN=Other").pem });
    [
        ("sign-verbatim", verbatim.clone()),
        ("sign-verbatim/r", verbatim.clone()),
        ("issuer/root/sign-verbatim", verbatim.clone()),
        ("issuer/root/sign-verbatim/r", verbatim),
        ("root/sign-intermediate", intermediate.clone()),
        ("issuer/root/sign-intermediate", intermediate),
        ("root/sign-self-issued", certificate.clone()),
        ("issuer/root/sign-self-issued", certificate),
    ]
}

#[actix_web::test]
async fn operators_endpoints_are_each_granted_by_their_own_path() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    pki.app
        .policy(
            "user",
            "path \"pki/issue/*\" { capabilities = [\"update\"] }\npath \"pki/sign/*\" { capabilities = [\"update\"] }",
        )
        .await;
    let user = pki.app.with_policies(&["user"]).await;
    let certs = pki.list("certs").await;
    let endpoints = of_operators();
    for (path, body) in &endpoints {
        for client in [&user, &pki.app.client.with_token("")] {
            client.post(&format!("pki/{path}"), body.clone()).await.assert_denied();
        }
    }
    assert_eq!(pki.list("certs").await, certs);
    for (at, (granted, _)) in endpoints.iter().enumerate() {
        for (name, capabilities, status) in [
            ("read", "\"read\", \"list\", \"delete\", \"sudo\"", 403),
            ("update", "\"update\", \"sudo\"", 200),
            ("create", "\"create\", \"sudo\"", 403),
        ] {
            let policy = format!("{name}-{at}");
            pki.app.policy(&policy, &format!("path \"pki/{granted}\" {{ capabilities = [{capabilities}] }}")).await;
            let client = pki.app.with_policies(&[&policy]).await;
            for (path, body) in &endpoints {
                let expected = if path == granted { status } else { 403 };
                let answer = client.post(&format!("pki/{path}"), body.clone()).await;
                assert_eq!(answer.status, expected, "{capabilities} on {granted}: {path}: {}", answer.text);
            }
        }
    }
    pki.stop().await;
}
