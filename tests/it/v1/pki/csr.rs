//! Requests with a CSR, key types and signature algorithms.

use serde_json::{Value, json};
use signet::x509::pem;
use signet::x509::reader::DerReader;
use signet::x509::writer::{SEQUENCE, build};

use super::foreign::{csr, csr_with, openssl, signature_algorithm};
use super::mount::{Pki, with};

fn of(kind: &str) -> Value {
    json!({ "csr": csr(kind, "/CN=a.foo", "") })
}

fn role(key_type: &str, bits: u32) -> Value {
    json!({ "allow_any_name": true, "key_type": key_type, "key_bits": bits })
}

async fn signs(pki: &Pki, role: &Value, kinds: &[&str]) {
    for kind in kinds {
        let leaf = pki.sign(role, of(kind)).await;
        let bits = kind.split_once('-').map_or(0, |(_, bits)| bits.parse().unwrap());
        assert_eq!(leaf.certificate.key().kind().bits(), bits, "{kind}");
    }
}

async fn refuses(pki: &Pki, role: &Value, kinds: &[&str], rule: &str) {
    for kind in kinds {
        pki.deny_sign(role, of(kind), rule).await;
    }
}

#[actix_web::test]
async fn csr_with_null_parameters_for_ecdsa_is_signed() {
    let pki = Pki::start().await;
    for kind in ["ec-256", "ec-384", "ec-521"] {
        let (label, der) = pem::parse_first_block(&csr(kind, "/CN=a.foo", "")).unwrap().unwrap();
        let mut parts = DerReader::read_single(&der, SEQUENCE).unwrap().reader();
        let [info, algorithm, signature] = [(); 3].map(|()| parts.any().unwrap());
        let with = |parameters: &[u8]| {
            let algorithm = build(SEQUENCE, 0, |w| w.raw(&[algorithm.content, parameters].concat()));
            let der = build(SEQUENCE, 0, |w| [info.raw, &algorithm, signature.raw].iter().for_each(|part| w.raw(part)));
            pem::encode(&label, &der)
        };
        let csr = with(&[5, 0]);
        openssl(&["req", "-verify", "-noout"], csr.as_bytes());
        pki.sign(&role("ec", 0), json!({ "csr": csr })).await;
        let rule = "ECDSA parameters must be absent (RFC 5758 3.2)";
        pki.deny_sign(&role("ec", 0), json!({ "csr": with(&[4, 0]) }), rule).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn csr_key_must_have_the_type_and_minimum_size_of_the_role() {
    let pki = Pki::start().await;
    let rsa = role("rsa", 0);
    refuses(&pki, &rsa, &["rsa-1024"], "csr: ").await;
    refuses(&pki, &rsa, &["ec-256", "ec-384", "ed25519"], "csr: role requires keys of type rsa").await;
    signs(&pki, &rsa, &["rsa-2048", "rsa-3072"]).await;
    signs(&pki, &role("rsa", 2048), &["rsa-2048", "rsa-3072"]).await;
    refuses(&pki, &role("rsa", 3072), &["rsa-2048"], "minimum of an 3072-bit key").await;
    refuses(&pki, &role("ec", 0), &["ec-224"], "minimum of an 256-bit key").await;
    refuses(&pki, &role("ec", 0), &["rsa-2048", "ed25519"], "csr: role requires keys of type ec").await;
    signs(&pki, &role("ec", 224), &["ec-224", "ec-256", "ec-384", "ec-521"]).await;
    refuses(&pki, &role("ec", 384), &["ec-256"], "minimum of an 384-bit key").await;
    signs(&pki, &role("ec", 384), &["ec-521"]).await;
    refuses(&pki, &role("ed25519", 0), &["rsa-2048", "ec-256"], "csr: role requires keys of type ed25519").await;
    signs(&pki, &role("ed25519", 0), &["ed25519"]).await;
    refuses(&pki, &role("any", 0), &["rsa-1024"], "minimum of an 2048-bit key").await;
    // Other curves are not a supported key type.
    refuses(&pki, &role("any", 0), &["curve-secp256k1", "curve-brainpoolP256r1"], "unsupported public key").await;
    // `key_bits` of the role is ignored with the key type `any`.
    let any = role("any", 4096);
    signs(&pki, &any, &["rsa-2048", "ec-224", "ec-256", "ec-384", "ec-521", "ed25519"]).await;
    pki.stop().await;
}

#[actix_web::test]
async fn signature_algorithm_follows_role_and_issuer_key() {
    let pki = Pki::start().await;
    for (name, key_type, bits) in [("rsa", "rsa", 2048), ("p256", "ec", 256), ("p384", "ec", 384), ("ed", "ed25519", 0)]
    {
        pki.root(json!({ "issuer_name": name, "common_name": name, "key_type": key_type, "key_bits": bits })).await;
    }
    let pss = |hash: &str, salt: &str| {
        format!(
            "rsassaPss Hash Algorithm: {hash} Mask Algorithm: mgf1 with {hash} Salt Length: {salt} \
             Trailer Field: 0x01 (default)"
        )
    };
    for (issuer, kind, settings, expected) in [
        ("rsa", "rsa-2048", json!({ "use_pss": true }), &pss("sha256", "0x20")[..]),
        ("rsa", "rsa-2048", json!({ "use_pss": true, "signature_bits": 512 }), &pss("sha512", "0x40")),
        ("p256", "ec-256", json!({ "use_pss": true }), "ecdsa-with-SHA256"),
        ("ed", "ed25519", json!({ "use_pss": true }), "ED25519"),
        ("rsa", "rsa-2048", json!({ "signature_bits": 384 }), "sha384WithRSAEncryption"),
        ("rsa", "rsa-2048", json!({}), "sha256WithRSAEncryption"),
        ("rsa", "ec-256", json!({ "signature_bits": 512 }), "sha512WithRSAEncryption"),
        // An EC key signs with the hash of its curve.
        ("p256", "ec-256", json!({ "signature_bits": 512 }), "ecdsa-with-SHA256"),
        ("p384", "ec-256", json!({ "signature_bits": 256 }), "ecdsa-with-SHA384"),
    ] {
        let role = with(&role(kind.split('-').next().unwrap(), 0), with(&settings, json!({ "issuer_ref": issuer })));
        let leaf = pki.sign(&role, of(kind)).await;
        assert_eq!(signature_algorithm(&leaf.pem), expected, "{kind} by {issuer} with {settings}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn names_come_from_request_or_csr_as_the_role_says() {
    let pki = Pki::start().await;
    let from = |csr: bool| with(&role("ec", 0), json!({ "use_csr_common_name": csr }));
    let body = |subject: &str| json!({ "csr": csr("ec-256", subject, ""), "common_name": "b.foo" });
    let leaf = pki.sign(&from(true), body("/CN=a.foo")).await;
    assert_eq!((leaf.subject().as_str(), leaf.sans()), ("CN=a.foo", vec!["DNS:a.foo".to_owned()]));
    assert!(leaf.answer.warnings().contains("common_name ignored"), "{}", leaf.answer.text);
    for (from_csr, subject, dropped) in [(false, "/CN=a.foo", "CN"), (true, "/O=x", "O")] {
        let leaf = pki.sign(&from(from_csr), body(subject)).await;
        assert_eq!(leaf.subject(), "CN=b.foo");
        assert_eq!(leaf.answer.warnings(), format!("csr: subject not granted: {dropped}"));
    }
    // The selected source has no common name, and the role requires one.
    pki.deny_sign(&from(true), json!({ "csr": csr("ec-256", "/O=x", "") }), "require_cn").await;
    pki.deny_sign(&from(false), json!({ "csr": csr("ec-256", "/CN=a.foo", "") }), "require_cn").await;
    let from = |csr: bool| json!({ "allowed_domains": "foo", "allow_subdomains": true, "use_csr_sans": csr });
    let body = |san: &str| json!({ "csr": csr("ec-256", "/CN=a.foo", &format!("subjectAltName = DNS:{san}")), "alt_names": "y.foo" });
    let leaf = pki.sign(&from(true), body("x.foo")).await;
    assert_eq!(leaf.sans(), ["DNS:x.foo", "DNS:a.foo"]);
    assert!(leaf.answer.warnings().contains("alt_names ignored"), "{}", leaf.answer.text);
    let leaf = pki.sign(&from(false), body("x.foo")).await;
    assert_eq!(leaf.sans(), ["DNS:a.foo", "DNS:y.foo"]);
    assert_eq!(leaf.answer.warnings(), "csr: extension not granted: subjectAltName (2.5.29.17): x.foo");
    pki.deny_sign(&from(true), body("evil.com"), "csr: subject alternate name evil.com not allowed by this role").await;
    pki.stop().await;
}

#[actix_web::test]
async fn malformed_tampered_or_weakly_signed_csrs_are_rejected() {
    let pki = Pki::start().await;
    let any = role("any", 0);
    for kind in ["rsa-2048", "ec-224", "ec-256", "ed25519"] {
        let (label, der) = pem::parse_first_block(&csr(kind, "/CN=a.foo", "")).unwrap().unwrap();
        // One letter of the name changes, so that everything still parses.
        let at = der.windows(5).position(|window| window == b"a.foo").unwrap();
        let mut renamed = der.clone();
        renamed[at] = b'b';
        let mut tampered = der.clone();
        *tampered.last_mut().unwrap() ^= 1;
        for (der, rule) in [
            (renamed, "request signature invalid"),
            (tampered, "request signature invalid"),
            (der[..der.len() - 1].to_vec(), "csr: "),
            ([&der[..], &[0]].concat(), "csr: "),
        ] {
            pki.deny_sign(&any, json!({ "csr": pem::encode(&label, &der) }), rule).await;
        }
    }
    let text = csr("ec-256", "/CN=a.foo", "");
    let base64 = text.lines().filter(|line| !line.starts_with('-')).collect::<String>();
    for (body, rule) in [
        (json!({ "csr": "" }), "csr: must not be empty"),
        (json!({}), "csr: must not be empty"),
        (json!({ "csr": pem::encode("CERTIFICATE REQUEST", b"\x30\x03\x02\x01\x00") }), "csr: "),
        // Base64 without armor is not PEM, nor are doubly escaped line feeds.
        (json!({ "csr": base64 }), "csr: contains no data"),
        (json!({ "csr": text.replace('\n', "\\n") }), "csr: "),
    ] {
        pki.deny_sign(&any, body, rule).await;
    }
    // Variants in real files: CRLF, leading blanks, a second block, the older label.
    for text in [
        format!("\n  \n{}", text.replace('\n', "\r\n")),
        format!("{text}{text}"),
        text.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
    ] {
        pki.sign(&any, json!({ "csr": text })).await;
    }
    let pss = |hash: &'static str, salt: &'static str| [hash, "-sigopt", "rsa_padding_mode:pss", "-sigopt", salt];
    for (kind, arguments) in [
        ("ec-256", &["-sha1"][..]),
        ("rsa-2048", &["-sha1"]),
        ("rsa-2048", &["-md5"]),
        ("rsa-2048", &["-sha224"]),
        ("rsa-2048", &pss("-sha256", "rsa_pss_saltlen:20")),
    ] {
        let csr = csr_with(kind, "/CN=a.foo", "", arguments);
        pki.deny_sign(&any, json!({ "csr": csr }), "request signature invalid").await;
    }
    for arguments in [&["-sha384"][..], &["-sha512"], &pss("-sha384", "rsa_pss_saltlen:digest")] {
        pki.sign(&any, json!({ "csr": csr_with("rsa-2048", "/CN=a.foo", "", arguments) })).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn other_csr_contents_are_ignored_or_rejected() {
    let pki = Pki::start().await;
    let any = role("any", 0);
    let organized = with(&any, json!({ "organization": "Good" }));
    let evil = csr("ec-256", "/C=XX/O=Evil/OU=Evil/CN=a.foo/serialNumber=", "");
    assert_eq!(pki.sign(&organized, json!({ "csr": evil })).await.subject(), "O=Good,CN=a.foo");
    assert_eq!(pki.sign(&any, json!({ "csr": evil })).await.subject(), "CN=a.foo");
    let ca =
        csr("ec-256", "/CN=a.foo", "basicConstraints = critical,CA:TRUE,pathlen:3\nkeyUsage = keyCertSign,cRLSign");
    let leaf = pki.sign(&any, json!({ "csr": ca })).await;
    assert!(leaf.answer.warnings().contains("basicConstraints"), "{}", leaf.answer.text);
    assert_eq!(leaf.extension("basicConstraints"), None);
    let (_, usage) = leaf.extension("keyUsage").unwrap();
    assert!(!usage.contains("Sign,") && !usage.contains("Certificate Sign"), "{usage}");
    let more = "extendedKeyUsage = codeSigning\n1.2.3.4 = critical,ASN1:UTF8String:mine\nsubjectKeyIdentifier = 0102";
    let leaf = pki.sign(&any, json!({ "csr": csr("ec-256", "/CN=a.foo", more) })).await;
    assert!(!leaf.extension("extendedKeyUsage").unwrap().1.contains("Code Signing"));
    // keyUsage, extKeyUsage, SKI, AKI, SAN: nothing else, in this order.
    assert_eq!(leaf.extension_ids(), [15, 37, 14, 35, 17].map(|last| format!("2.5.29.{last}")));
    let other = csr("ec-256", "/CN=a.foo", "subjectAltName = otherName:1.2.3.4;IA5STRING:x");
    let open = with(&any, json!({ "allowed_other_sans": "*" }));
    pki.deny_sign(&open, json!({ "csr": other }), "csr: the otherName of type 1.2.3.4 must be a UTF8String").await;
    let leaf = pki.sign(&with(&open, json!({ "use_csr_sans": false })), json!({ "csr": other })).await;
    assert_eq!(leaf.sans(), ["DNS:a.foo"]);
    pki.stop().await;
}

#[actix_web::test]
async fn issue_generates_every_key_type() {
    let pki = Pki::start().await;
    let any = role("any", 0);
    let named = |more: Value| with(&json!({ "common_name": "a.foo" }), more);
    pki.deny(&any, named(json!({})), "key_type: must be given when the role permits any").await;
    for (key_type, bits, size, label) in [
        ("rsa", 0, 2048, "RSA PRIVATE KEY"),
        ("rsa", 2048, 2048, "RSA PRIVATE KEY"),
        ("rsa", 3072, 3072, "RSA PRIVATE KEY"),
        ("rsa", 4096, 4096, "RSA PRIVATE KEY"),
        ("ec", 0, 256, "EC PRIVATE KEY"),
        ("ec", 224, 224, "EC PRIVATE KEY"),
        ("ec", 256, 256, "EC PRIVATE KEY"),
        ("ec", 384, 384, "EC PRIVATE KEY"),
        ("ec", 521, 521, "EC PRIVATE KEY"),
        ("ed25519", 0, 0, "PRIVATE KEY"),
    ] {
        let leaf = pki.issue(&any, named(json!({ "key_type": key_type, "key_bits": bits }))).await;
        assert_eq!(leaf.data()["private_key_type"], key_type);
        assert_eq!(leaf.certificate.key().kind().bits(), size, "{key_type} {bits}");
        let private = leaf.data()["private_key"].as_str().unwrap();
        assert!(private.starts_with(&format!("-----BEGIN {label}-----\n")), "{key_type} {bits}");
        // openssl derives the public key of the certificate from the private key.
        let public = openssl(&["pkey", "-pubout", "-outform", "DER"], private.as_bytes());
        assert_eq!(public, leaf.certificate.key().spki(), "{key_type} {bits}");
    }
    for (key_type, bits) in [("rsa", 1024), ("rsa", 2047), ("rsa", 16384), ("ec", 192), ("dsa", 0), ("", 0), ("ec", -1)]
    {
        pki.deny(&any, named(json!({ "key_type": key_type, "key_bits": bits })), "key_").await;
    }
    let leaf = pki.issue(&role("ec", 0), named(json!({ "key_type": "rsa" }))).await;
    assert_eq!(leaf.data()["private_key_type"], "ec");
    assert!(leaf.answer.warnings().contains("key_type and key_bits ignored"), "{}", leaf.answer.text);
    pki.stop().await;
}
