//! Requests for intermediates, and the import of the signed certificates.

use base64::Engine as _;
use serde_json::{Value, json};
use signet::x509::pem;

use super::foreign::{self, Ca, csr_of_key, csr_text, openssl, openssl_verifies_chain, words};
use super::mount::{Pki, line, parse, text, with};

/// Creates a P-256 request in the mount, and returns the response's data.
async fn request(pki: &Pki, more: Value) -> Value {
    let body = with(&json!({ "common_name": "Intermediate", "key_type": "ec" }), more);
    pki.data("intermediate/generate/internal", body).await
}

#[actix_web::test]
async fn signed_intermediate_issues_certificates() {
    let pki = Pki::empty().await;
    let root = Ca::root("/CN=Foreign Root");
    let data = request(&pki, json!({ "key_name": "int" })).await;
    assert!(data.get("private_key").is_none() && data.get("private_key_type").is_none());
    assert_eq!(text(&data, "key_name"), "int");
    assert_eq!(pki.get("config/keys").await["default"], data["key_id"]);
    assert_eq!((pki.list("issuers").await.len(), pki.list("certs").await.len()), (0, 0));
    let signed = root.signs(text(&data, "csr"), foreign::CA, &[]);
    let body = json!({ "certificate": signed });
    let set = pki.warns("intermediate/set-signed", body, "no authority information").await;
    let id = set.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
    let expected = json!({ "imported_issuers": [id], "imported_keys": [], "existing_issuers": [], "existing_keys": [],
        "mapping": { &id: data["key_id"] } });
    assert_eq!(set.body["data"], expected);
    assert_eq!(pki.get("config/issuers").await["default"], id);
    let issuer = pki.get("issuer/default").await;
    assert_eq!((&issuer["key_id"], &issuer["ca_chain"]), (&data["key_id"], &json!([line(&signed)])));
    assert_eq!((text(&issuer, "issuer_name"), text(&issuer, "leaf_not_after_behavior")), ("", "err"));
    assert_eq!(text(&issuer, "usage"), "crl-signing,issuing-certificates,ocsp-signing,read-only");
    assert_eq!(text(&issuer, "revocation_signature_algorithm"), "");
    // With its root the chain is complete, also in responses. Imported certificates are not listed as issued.
    pki.post("issuers/import/cert", json!({ "pem_bundle": root.pem })).await;
    assert_eq!(pki.get("issuer/default").await["ca_chain"], json!([line(&signed), line(&root.pem)]));
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": "1h" })).await;
    assert_eq!(leaf.data()["ca_chain"], json!([signed, root.pem]));
    assert_eq!(pki.list("certs").await, [leaf.serial()]);
    let serial = parse(&signed).serial().to_string();
    assert_eq!(pki.app.client.get(&format!("pki/cert/{serial}")).await.status, 404);
    openssl_verifies_chain(&root.pem, &[&signed], &leaf.pem).unwrap();
    let crl = pki.crl("default").await;
    assert!(crl.is_signed_by(&signed));
    assert_eq!(crl.number(), 2, "one for the import, one for the import of the root");
    let pki = pki.restart().await;
    assert_eq!(pki.get("issuer/default").await["ca_chain"], json!([line(&signed), line(&root.pem)]));
    assert_eq!(pki.crl("default").await.der, crl.der);
    pki.stop().await;
}

#[actix_web::test]
async fn intermediate_in_the_mount_of_its_root() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let csr = request(&pki, json!({ "add_basic_constraints": true })).await;
    let body = json!({ "csr": csr["csr"], "common_name": "Below", "ttl": "10h" });
    let signed = pki.data("root/sign-intermediate", body).await;
    let pem = text(&signed, "certificate");
    let set = pki.data("intermediate/set-signed", json!({ "certificate": pem })).await;
    let id = set["imported_issuers"][0].as_str().unwrap();
    assert_eq!(set["mapping"], json!({ id: csr["key_id"] }));
    assert_eq!(pki.get("config/issuers").await["default"], pki.get("issuer/root").await["issuer_id"]);
    let path = format!("issuer/{id}");
    assert_eq!(pki.get(&path).await["ca_chain"], json!([line(pem), line(&root)]));
    pki.role(&json!({})).await;
    let leaf = pki.leaf_of(id).await;
    openssl_verifies_chain(&root, &[pem], &leaf.pem).unwrap();
    // It was issued here, so it is listed; it is revoked by revoking the issuer.
    let serial = text(&signed, "serial_number");
    assert!(pki.list("certs").await.contains(&serial.to_owned()));
    pki.refused("revoke", json!({ "serial_number": serial }), "issuers cannot be revoked here").await;
    let revoked = pki.post(&format!("{path}/revoke"), json!({})).await;
    assert_eq!(revoked.warnings(), "");
    assert_eq!(pki.crl("root").await.serials(), [serial]);
    let read = pki.get(&format!("cert/{serial}")).await;
    assert_eq!(read["revocation_time"], revoked.body["data"]["revocation_time"]);
    assert_eq!(read["issuer_id"], pki.get("issuer/root").await["issuer_id"]);
    // A certificate that was revoked before its import is a revoked issuer.
    let csr = request(&pki, json!({ "common_name": "Third" })).await;
    let body = json!({ "csr": csr["csr"], "common_name": "Third", "ttl": "10h" });
    let signed = pki.data("root/sign-intermediate", body).await;
    pki.post("revoke", json!({ "serial_number": signed["serial_number"], "reason": "superseded" })).await;
    let body = json!({ "certificate": signed["certificate"] });
    let set = pki.warns("intermediate/set-signed", body, "remains revoked in this mount").await;
    let id = set.body["data"]["imported_issuers"][0].as_str().unwrap();
    assert_eq!(pki.get(&format!("issuer/{id}")).await["revoked"], true);
    let listed = pki.crl("root").await;
    assert!(listed.entry(text(&signed, "serial_number")).unwrap().contains("Superseded"));
    let body = json!({ "common_name": "localhost", "ttl": "1h" });
    pki.refused(&format!("issuer/{id}/issue/r"), body, "it is revoked").await;
    let pki = pki.restart().await;
    assert_eq!(pki.crl("root").await.der, listed.der);
    pki.stop().await;
}

#[actix_web::test]
async fn csr_generation_applies_every_parameter() {
    let pki = Pki::empty().await;
    let body = json!({
        "country": "NZ", "province": "st", "locality": "l", "street_address": "street", "postal_code": "1",
        "organization": "o", "ou": "a,b", "serial_number": "s", "common_name": "int.test",
        "alt_names": "ca.test,x@ca.test", "ip_sans": "10.0.0.1", "uri_sans": "urn:a:b",
        "other_sans": "1.2.3;UTF8:text", "add_basic_constraints": true, "key_usage": "CertSign,CRLSign,DigitalSignature",
    });
    let printed = words(&csr_text(text(&request(&pki, body).await, "csr")));
    for part in [
        "Subject: C=NZ,ST=st,L=l,street=street,postalCode=1,O=o,OU=a+OU=b,CN=int.test,serialNumber=s",
        "X509v3 Key Usage: critical Digital Signature, Certificate Sign, CRL Sign X509v3 Basic Constraints: critical CA:TRUE X509v3",
        "X509v3 Subject Alternative Name: othername: 1.2.3::text, DNS:int.test, DNS:ca.test, email:x@ca.test, IP Address:10.0.0.1, URI:urn:a:b",
        "Signature Algorithm: ecdsa-with-SHA256",
    ] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    // The request contains only what the caller named.
    let plain = csr_text(text(&request(&pki, json!({ "exclude_cn_from_sans": true })).await, "csr"));
    for name in ["Basic Constraints", "Key Usage", "Alternative Name"] {
        assert!(!plain.contains(name), "{name}: {plain}");
    }
    for (more, field) in [
        (json!({ "key_type": "ec", "key_bits": 224 }), "key_bits: "),
        (json!({ "ou": "a\u{0}b" }), "ou: "),
        (json!({ "common_name": "a\u{0}b" }), "common_name: "),
        (json!({ "key_name": "default" }), "key_name: "),
    ] {
        let body = with(&json!({ "common_name": "x", "key_type": "ec" }), more);
        pki.refused("intermediate/generate/internal", body, field).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn forms_and_algorithms_of_a_request() {
    let pki = Pki::empty().await;
    let generate = async |kind: &str, more: Value| {
        let body = with(&json!({ "common_name": "Int", "key_type": "ec" }), more);
        pki.data(&format!("issuers/generate/intermediate/{kind}"), body).await
    };
    let public = |key: &[u8], form: &str| openssl(&["pkey", "-inform", form, "-pubout"], key);
    let of_csr = |csr: &str| openssl(&["req", "-noout", "-pubkey"], csr.as_bytes());
    let plain = generate("exported", json!({})).await;
    assert!(text(&plain, "csr").starts_with("-----BEGIN CERTIFICATE REQUEST-----\n"));
    assert!(text(&plain, "csr").ends_with("-----END CERTIFICATE REQUEST-----"));
    assert!(text(&plain, "private_key").starts_with("-----BEGIN EC PRIVATE KEY-----"));
    assert_eq!(text(&plain, "private_key_type"), "ec");
    assert_eq!(public(text(&plain, "private_key").as_bytes(), "PEM"), of_csr(text(&plain, "csr")));
    let bundle = generate("exported", json!({ "format": "pem_bundle", "private_key_format": "pkcs8" })).await;
    let csr = text(&bundle, "csr");
    assert!(csr.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    assert_eq!(csr.matches("-----BEGIN").count(), 2);
    assert!(text(&bundle, "private_key").starts_with("-----BEGIN PRIVATE KEY-----"));
    csr_text(csr);
    let kept = generate("internal", json!({ "format": "pem_bundle" })).await;
    assert!(text(&kept, "csr").starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
    let der = generate("exported", json!({ "format": "der" })).await;
    let decode = |member| base64::engine::general_purpose::STANDARD.decode(text(&der, member)).unwrap();
    let csr = pem::encode("CERTIFICATE REQUEST", &decode("csr"));
    assert_eq!(public(&decode("private_key"), "DER"), of_csr(&csr));
    for (more, algorithm) in [
        (json!({ "key_type": "rsa" }), "sha256WithRSAEncryption"),
        (json!({ "key_type": "rsa", "signature_bits": 512 }), "sha512WithRSAEncryption"),
        (
            json!({ "key_type": "rsa", "signature_bits": 384, "use_pss": true }),
            "rsassaPss Signature Value: Hash Algorithm: sha384",
        ),
        (json!({ "key_bits": 384 }), "ecdsa-with-SHA384"),
        (json!({ "key_bits": 521, "signature_bits": 256 }), "ecdsa-with-SHA512"),
        (json!({ "key_type": "ed25519" }), "ED25519"),
    ] {
        let printed = words(&csr_text(text(&generate("internal", more).await, "csr")));
        assert!(printed.contains(&format!("Signature Algorithm: {algorithm}")), "{algorithm}: {printed}");
    }
    // An existing key: no new key is generated, and none is returned.
    let keys = pki.list("keys").await.len();
    for path in ["intermediate/generate/existing", "intermediate/cross-sign"] {
        let body = json!({ "common_name": "Again", "key_ref": plain["key_id"] });
        let again = pki.data(path, body).await;
        assert!(again.get("private_key").is_none());
        assert_eq!(again["key_id"], plain["key_id"]);
        assert_eq!(of_csr(text(&again, "csr")), of_csr(text(&plain, "csr")));
    }
    assert_eq!(pki.list("keys").await.len(), keys);
    pki.stop().await;
}

#[actix_web::test]
async fn a_chain_below_a_root_that_another_one_certifies() {
    let pki = Pki::empty().await;
    let a = Ca::root("/CN=A");
    let b = Ca::root("/CN=B");
    let cross = a.signs(&csr_of_key(&b.key, "/CN=B", "", &[]), foreign::CA, &[]);
    let below = b.intermediate("/CN=Below", &[]);
    let expected = json!([line(&below.pem), line(&b.pem)]);
    // The order of the imports does not matter.
    for pem in [&below.bundle(), &cross, &a.pem, &b.pem] {
        pki.import_one(pem).await;
    }
    assert_eq!(pki.get("issuer/default").await["ca_chain"], expected);
    let pki = pki.restart().await;
    assert_eq!(pki.get("issuer/default").await["ca_chain"], expected);
    // A bundle contains the chain without self-signed certificates.
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": "1h" })).await;
    let bundle = pki.data("issue/r", json!({ "common_name": "localhost", "ttl": "1h", "format": "pem_bundle" })).await;
    for (pem, is_in) in [(&below.pem, true), (&cross, false), (&a.pem, false), (&b.pem, false)] {
        assert_eq!(text(&bundle, "certificate").contains(pem), is_in, "{bundle}");
    }
    openssl_verifies_chain(&a.pem, &[&below.pem, &cross], &leaf.pem).unwrap();
    openssl_verifies_chain(&b.pem, &[&below.pem], &leaf.pem).unwrap();
    pki.stop().await;
}
