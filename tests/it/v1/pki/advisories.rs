//! Known vulnerabilities of comparable servers: ways around the rules of a role, each tried with everything that
//! accepts a name.

use serde_json::{Value, json};
use signet::x509::writer::{SEQUENCE, build};
use signet::x509::{extension, name, oid};

use super::foreign::{csr, csr_of_pieces};
use super::mount::{Pki, with};

fn csr_of_names(names: &[(u8, &[u8])]) -> String {
    let value = build(SEQUENCE, 0, |w| names.iter().for_each(|(tag, content)| w.tlv(*tag, content)));
    csr_of_pieces(&name::name(&[]), &[&extension::extension(oid::SUBJECT_ALT_NAME, true, &value)])
}

/// Asserts that a name is rejected as common name, excluded common name and SAN, of the request and of a CSR.
async fn nowhere(pki: &Pki, role: &Value, fine: &str, name: &str) {
    let of_csr = with(role, json!({ "use_csr_common_name": true, "use_csr_sans": true }));
    let of_request = with(role, json!({ "use_csr_common_name": false, "use_csr_sans": false }));
    for request in [
        json!({ "common_name": name }),
        json!({ "common_name": name, "exclude_cn_from_sans": true }),
        json!({ "common_name": fine, "alt_names": name }),
        json!({ "common_name": fine, "alt_names": format!("{fine},{name}") }),
    ] {
        pki.deny(role, request.clone(), "not allowed by this role").await;
        let request = with(&request, json!({ "csr": csr("ec-256", &format!("/CN={fine}"), "") }));
        pki.deny_sign(&of_request, request, "not allowed by this role").await;
    }
    let of_subject = csr("ec-256", &format!("/CN={name}"), "");
    for more in [json!({}), json!({ "exclude_cn_from_sans": true })] {
        let request = with(&json!({ "csr": of_subject, "common_name": fine }), more);
        pki.deny_sign(&of_csr, request, "not allowed by this role").await;
    }
    let request =
        json!({ "csr": csr_of_names(&[(0x82, fine.as_bytes()), (0x82, name.as_bytes())]), "common_name": fine });
    pki.deny_sign(&of_csr, request, "not allowed by this role").await;
}

#[actix_web::test]
async fn wildcards_and_outside_names_are_rejected_in_every_field() {
    let pki = Pki::start().await;
    let bare = json!({ "allowed_domains": "example.com", "allow_bare_domains": true, "allow_subdomains": false });
    for name in ["*.example.com", "a.example.com", "evil.com"] {
        nowhere(&pki, &bare, "example.com", name).await;
    }
    let glob = json!({ "allowed_domains": "*.example.com", "allow_glob_domains": true,
        "allow_wildcard_certificates": false });
    for name in ["*.example.com", "*.a.example.com"] {
        nowhere(&pki, &glob, "a.example.com", name).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn csr_addresses_are_checked_against_the_role() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "use_csr_sans": true, "require_cn": false });
    let v4 = csr_of_names(&[(0x87, &[10, 0, 0, 1])]);
    let mapped = csr_of_names(&[(0x87, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1])]);
    for csr in [&v4, &mapped] {
        let request = json!({ "csr": csr });
        pki.deny_sign(&with(&role, json!({ "allow_ip_sans": false })), request.clone(), "csr: ").await;
        let outside = with(&role, json!({ "allowed_ip_sans_cidr": ["10.0.0.2/32", "::/0"] }));
        pki.deny_sign(&outside, request.clone(), "csr: ").await;
        let inside = with(&role, json!({ "allowed_ip_sans_cidr": "10.0.0.0/8" }));
        assert_eq!(pki.sign(&inside, request).await.sans(), ["IP Address:10.0.0.1"]);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn ambiguous_names_are_rejected() {
    let pki = Pki::start().await;
    // Without the template flag the text is an ordinary domain, which no host name equals.
    let template = "{{identity.entity.name}}.example.com";
    let role = json!({ "allowed_domains": template, "allow_subdomains": true, "allow_bare_domains": true });
    for name in ["bob.example.com", "*.example.com", template] {
        pki.deny(&role, json!({ "common_name": name }), "common_name: ").await;
    }
    let role = json!({ "allowed_domains": "example.com", "allow_subdomains": true, "allow_bare_domains": true,
        "require_cn": false });
    for name in ["a.example.com.", "example.com.", "evil.com@a.example.com@b", "a.example.com@evil.com"] {
        pki.deny(&role, json!({ "common_name": name }), "common_name: ").await;
        pki.deny(&role, json!({ "alt_names": name }), "alt_names: ").await;
        pki.deny(&role, json!({ "alt_names": format!("{name},b.example.com") }), "alt_names: ").await;
    }
    // In a CSR the tag determines the kind of a name.
    pki.role(&role).await;
    for (tag, content) in [
        (0x82, &b"x@a.example.com"[..]),
        (0x82, b"a.example.com."),
        (0x82, b"a.example.com\0.evil.com"),
        (0x82, b"evil.com\0.example.com"),
        (0x82, b"a.example.com\n"),
        (0x82, b"\xc3\xa4.example.com"),
        (0x82, b"evil.com"),
        (0x82, b""),
        (0x82, b"10.0.0.1"),
        (0x81, b"a.example.com"),
        (0x81, b"x@evil.com\0@example.com"),
        (0x81, b"x@y@example.com"),
        (0x81, b"x@evil.com"),
    ] {
        let answer = pki.app.client.post("pki/sign/r", json!({ "csr": csr_of_names(&[(tag, content)]) })).await;
        assert_eq!(answer.status, 400, "{tag:#x} {:?}: {}", String::from_utf8_lossy(content), answer.text);
    }
    // Punycode in any letter case, and invalid Punycode.
    for name in ["xn--bcher-kva.example.com", "XN--BCHER-KVA.example.com"] {
        let leaf = pki.issue(&role, json!({ "common_name": name })).await;
        assert_eq!(leaf.sans().len(), 1, "{name}");
        assert!(leaf.sans()[0].eq_ignore_ascii_case(&format!("DNS:{name}")), "{:?}", leaf.sans());
    }
    for name in ["xn--.example.com", "xn--\u{e4}.example.com"] {
        pki.deny(&role, json!({ "common_name": name }), "common_name: ").await;
    }
    pki.stop().await;
}
