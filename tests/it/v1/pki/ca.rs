//! Roots, issuers, keys, authority information, and response formats.

use serde_json::{Value, json};

use super::foreign::{self, openssl, words};
use super::mount::{Pki, line, parse, text, with};
use crate::v1::rights::{granted, only};

fn localhost(more: Value) -> Value {
    with(&json!({ "common_name": "localhost" }), more)
}

#[actix_web::test]
async fn generated_roots_are_valid_and_first_one_is_default() {
    let pki = Pki::empty().await;
    let first = &pki.data("root/generate/internal", json!({ "common_name": "Root A", "key_type": "ec" })).await;
    let certificate = parse(text(first, "certificate"));
    assert!(certificate.is_ca() && certificate.is_self_signed() && certificate.path_length().is_none());
    assert_eq!(pki.get("config/issuers").await["default"], first["issuer_id"]);
    assert_eq!(pki.get("config/keys").await["default"], first["key_id"]);
    assert_eq!(pki.list("certs").await, [text(first, "serial_number")]);
    let crl = pki.crl("default").await;
    assert_eq!((crl.number(), crl.serials().len()), (1, 0));
    assert!(crl.is_signed_by(text(first, "certificate")));
    let second = pki.root(json!({ "common_name": "Root B" })).await;
    assert_ne!(second["issuer_id"], first["issuer_id"]);
    assert_eq!(pki.get("config/issuers").await["default"], first["issuer_id"]);
    assert_eq!(pki.list("issuers").await.len(), 2);
    let read = pki.get(&format!("cert/{}", text(&second, "serial_number"))).await;
    assert_eq!(read["certificate"], second["certificate"]);
    // An exported root comes with its key.
    let request = json!({ "common_name": "Root C", "key_type": "ec", "format": "pem_bundle" });
    let data = pki.data("root/generate/exported", request).await;
    assert!(text(&data, "certificate").starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    assert_eq!(text(&data, "certificate").matches("-----BEGIN").count(), 2);
    let public = openssl(&["pkey", "-pubout", "-outform", "DER"], text(&data, "private_key").as_bytes());
    assert_eq!(public, parse(text(&data, "issuing_ca")).key().spki());
    for path in ["root/generate", "issuers/generate/root", "root/rotate"] {
        let answer = pki.app.client.post(&format!("pki/{path}/foo"), json!({ "key_type": "ec" })).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
    }
    assert_eq!(pki.list("issuers").await.len(), 3);
    pki.stop().await;
}

#[actix_web::test]
async fn root_generation_applies_every_parameter() {
    let pki = Pki::empty().await;
    let request = json!({
        "common_name": "Root", "country": "NZ", "province": "st", "locality": "l", "street_address": "street",
        "postal_code": "1", "organization": "o", "ou": "a,b", "serial_number": "s",
        "alt_names": "ca.test", "ip_sans": "10.0.0.1", "uri_sans": "urn:a:b", "max_path_length": 0,
        "key_usage": "DigitalSignature", "ext_key_usage": "ServerAuth", "ext_key_usage_oids": "1.2.3.4",
        "permitted_dns_domains": ".a.com,b.com", "excluded_ip_ranges": "10.0.0.0/8",
        "permitted_email_addresses": "c.com", "excluded_uri_domains": "d.com", "key_type": "ec",
    });
    let answer = pki.warns("root/generate/internal", request, "max_path_length").await;
    let pem = text(&answer.body["data"], "certificate");
    let expected = "C=NZ,ST=st,L=l,street=street,postalCode=1,O=o,OU=a+OU=b,CN=Root,serialNumber=s";
    assert_eq!(foreign::subject(pem), expected);
    for (name, critical, expected) in [
        ("subjectAltName", false, "DNS:Root, DNS:ca.test, IP Address:10.0.0.1, URI:urn:a:b"),
        ("basicConstraints", true, "CA:TRUE, pathlen:0"),
        ("keyUsage", true, "Digital Signature, Certificate Sign, CRL Sign"),
        ("extendedKeyUsage", false, "TLS Web Server Authentication, 1.2.3.4"),
        (
            "nameConstraints",
            true,
            "Permitted: DNS:.a.com DNS:b.com email:c.com Excluded: IP:10.0.0.0/255.0.0.0 URI:d.com",
        ),
    ] {
        let (is_critical, printed) = foreign::extension(pem, name).unwrap();
        assert_eq!((is_critical, &words(&printed)[..]), (critical, expected), "{name}");
    }
    for (more, field) in [
        (json!({ "max_path_length": -2 }), "max_path_length: "),
        (json!({ "permitted_ip_ranges": "10.0.0.1/99" }), "permitted_ip_ranges: "),
        // Relying parties cannot verify signatures of a P-224 CA.
        (json!({ "key_bits": 224 }), "key_bits: "),
        (json!({ "ou": "a\u{0}b" }), "ou: "),
        (json!({ "common_name": "a\u{0}b" }), "common_name: "),
        (json!({ "format": "DER" }), "format: "),
    ] {
        let body = with(&json!({ "common_name": "Root", "key_type": "ec" }), more);
        pki.refused("root/generate/internal", body, field).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn issuers_and_keys_have_unique_names_that_can_change() {
    let pki = Pki::start().await;
    for field in ["issuer_name", "key_name"] {
        let root = |name: &str| json!({ "common_name": "x", "key_type": "ec", field: name });
        pki.post("root/generate/internal", root("taken")).await;
        pki.refused("root/generate/internal", root("taken"), &format!("{field}: ")).await;
        for name in ["default", "DEFAULT"] {
            pki.refused("root/generate/internal", root(name), &format!("{field}: name is reserved")).await;
        }
        pki.refused("root/generate/internal", root("a."), &format!("{field}: name contains characters")).await;
    }
    pki.refused("issuer/root", json!({ "issuer_name": "taken" }), "issuer_name: issuer name already in use").await;
    pki.refused("key/default", json!({ "key_name": "taken" }), "key_name: key name already in use").await;
    let second = pki.root(json!({ "common_name": "Second", "key_name": "k2" })).await;
    let id = text(&second, "key_id").to_owned();
    let certificate = parse(text(&second, "certificate"));
    let octets = certificate.subject_key_id().unwrap().iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let key = json!({ "key_id": id, "key_name": "k2", "key_type": "ec", "subject_key_id": octets });
    assert_eq!(pki.get("key/k2").await, key);
    assert_eq!(pki.get(&format!("key/{id}")).await, key);
    assert_eq!(pki.data("key/k2", json!({ "key_name": "k3" })).await["key_name"], "k3");
    assert_eq!(pki.app.client.get("pki/key/k2").await.status, 404);
    let cleared = pki.post("key/k3", json!({ "key_name": "" })).await;
    assert!(cleared.body["data"]["key_name"] == "" && !cleared.warnings().is_empty(), "{}", cleared.text);
    assert_eq!(pki.data("config/keys", json!({ "default": id })).await, json!({ "default": id }));
    for reference in ["", "default", "unknown"] {
        pki.refused("config/keys", json!({ "default": reference }), "default: ").await;
    }
    pki.role(&json!({})).await;
    pki.leaf_of(text(&second, "issuer_id")).await;
    pki.stop().await;
}

#[actix_web::test]
async fn root_rotation_and_default_issuer() {
    let pki = Pki::start().await;
    let rotate = async || pki.data("root/rotate/internal", json!({ "common_name": "Next", "key_type": "ec" })).await;
    let first = rotate().await;
    let second = rotate().await;
    assert_eq!((text(&first, "issuer_name"), text(&second, "issuer_name")), ("next", ""));
    let root = pki.get("issuer/root").await["issuer_id"].clone();
    assert_eq!(pki.get("config/issuers").await["default"], root);
    pki.refused("root/replace", json!({ "default": "unknown" }), "default: no issuer").await;
    assert_eq!(pki.data("root/replace", json!({})).await["default"], first["issuer_id"]);
    assert_eq!(pki.get("config/issuers").await["default"], first["issuer_id"]);
    for reference in ["", "default", "Default", "unknown"] {
        pki.refused("config/issuers", json!({ "default": reference }), "default: ").await;
    }
    // A write without `default` keeps the previous one.
    let follows = json!({ "default_follows_latest_issuer": true });
    let expected = with(&follows, json!({ "default": first["issuer_id"] }));
    assert_eq!(pki.data("config/issuers", follows).await, expected);
    let latest = pki.root(json!({ "common_name": "Latest" })).await;
    assert_eq!(pki.get("config/issuers").await["default"], latest["issuer_id"]);
    assert_eq!(pki.data("config/issuers", json!({ "default": "root" })).await["default"], root);
    pki.stop().await;
}

#[actix_web::test]
async fn authority_information_urls_are_put_into_certificates() {
    let pki = Pki::start().await;
    let empty = json!({ "issuing_certificates": [], "crl_distribution_points": [], "delta_crl_distribution_points": [],
        "ocsp_servers": [], "enable_templating": false });
    assert_eq!(pki.get("config/urls").await, empty);
    let plain = pki.leaf().await;
    assert_eq!((plain.extension("authorityInfoAccess"), plain.extension("crlDistributionPoints")), (None, None));
    let urls = json!({ "issuing_certificates": "http://a.test/ca,http://b.test/ca", "crl_distribution_points": "http://a.test/crl" });
    pki.post("config/urls", urls).await;
    let more = json!({ "ocsp_servers": "http://a.test/ocsp", "delta_crl_distribution_points": "http://a.test/delta" });
    let stored = pki.data("config/urls", more).await;
    assert_eq!(stored, pki.get("config/urls").await);
    assert_eq!(stored["issuing_certificates"], json!(["http://a.test/ca", "http://b.test/ca"]));
    let leaf = pki.leaf().await;
    let printed = |name: &str| words(&leaf.extension(name).unwrap().1);
    let access = "OCSP - URI:http://a.test/ocsp CA Issuers - URI:http://a.test/ca CA Issuers - URI:http://b.test/ca";
    assert_eq!(printed("authorityInfoAccess"), access);
    assert_eq!(printed("crlDistributionPoints"), "Full Name: URI:http://a.test/crl");
    assert_eq!(printed("freshestCRL"), "Full Name: URI:http://a.test/delta");
    let root = pki.root(json!({ "common_name": "Second" })).await;
    assert!(foreign::certificate_text(text(&root, "certificate")).contains("URI:http://a.test/ocsp"));
    pki.post("issuer/root", json!({ "issuer_name": "root", "ocsp_servers": "http://own.test" })).await;
    let leaf = pki.leaf().await;
    let (_, access) = leaf.extension("authorityInfoAccess").unwrap();
    assert_eq!(access, "OCSP - URI:http://own.test");
    assert_eq!((leaf.extension("crlDistributionPoints"), leaf.extension("freshestCRL")), (None, None));
    pki.refused("issuer/root", json!({ "ocsp_servers": "a.test/ca" }), "ocsp_servers: ").await;
    assert_eq!(pki.get("config/urls").await, stored);
    // URLs of a directory may have no host, except those of OCSP responders.
    pki.post("issuer/root", json!({ "issuer_name": "root" })).await;
    let directory = "ldap:///CN=Corp%20CA,CN=CDP,DC=example,DC=test?certificateRevocationList?base?\
        objectClass=cRLDistributionPoint";
    let points = json!([directory, "http://crl.example.test/r.crl"]);
    let stored = pki.data("config/urls", json!({ "crl_distribution_points": points })).await;
    assert_eq!(stored["crl_distribution_points"], points);
    let shown = foreign::certificate_text(&pki.leaf().await.pem);
    assert!(shown.contains(directory) && shown.contains("http://crl.example.test/r.crl"), "{shown}");
    let own = json!({ "crl_distribution_points": [directory], "issuing_certificates": [directory] });
    let issuer = pki.app.client.patch("pki/issuer/root", own).await;
    assert_eq!(issuer.body["data"]["crl_distribution_points"], json!([directory]), "{}", issuer.text);
    let refused = json!({ "ocsp_servers": [directory] });
    pki.refused("config/urls", refused, "ocsp_servers: every entry must be an absolute URL").await;
    pki.refused("config/urls", json!({ "crl_distribution_points": ["ldap://"] }), "crl_distribution_points: ").await;
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_post_replaces_and_patch_merges_fields() {
    let pki = Pki::start().await;
    let full = json!({ "issuer_name": "other", "usage": "read-only", "leaf_not_after_behavior": "truncate",
        "ocsp_servers": "http://own.test", "revocation_signature_algorithm": "ecdsawithsha256" });
    let data = pki.data("issuer/root", full).await;
    assert_eq!(text(&data, "usage"), "read-only");
    assert_eq!(text(&data, "leaf_not_after_behavior"), "truncate");
    assert_eq!(data, pki.get("issuer/other").await);
    assert_eq!(pki.app.client.get("pki/issuer/root").await.status, 404);
    pki.role(&json!({})).await;
    pki.refused("issue/r", localhost(json!({})), "issuer may not issue certificates").await;
    // A PATCH of one field keeps the others.
    let merged = pki.app.client.patch("pki/issuer/other", json!({ "usage": "issuing-certificates" })).await;
    assert_eq!(merged.status, 200, "{}", merged.text);
    assert_eq!(merged.body["data"], with(&data, json!({ "usage": "issuing-certificates,read-only" })));
    pki.leaf().await;
    // An empty POST resets all fields.
    let reset = pki.data("issuer/other", json!({})).await;
    assert_eq!(text(&reset, "issuer_name"), "");
    assert_eq!(text(&reset, "usage"), "crl-signing,issuing-certificates,ocsp-signing,read-only");
    assert_eq!(text(&reset, "leaf_not_after_behavior"), "err");
    assert_eq!(text(&reset, "revocation_signature_algorithm"), "");
    assert_eq!(reset["ocsp_servers"], json!([]));
    for (body, rule) in [
        (json!({ "usage": "issuing" }), "usage: "),
        (json!({ "leaf_not_after_behavior": "maybe" }), "leaf_not_after_behavior: "),
        (json!({ "manual_chain": "unknown" }), "manual_chain: "),
        (json!({ "revocation_signature_algorithm": "SHA256WithRSA" }), "revocation_signature_algorithm: "),
        (json!({ "revocation_signature_algorithm": "MD5" }), "revocation_signature_algorithm: "),
    ] {
        pki.refused("issuer/default", body, rule).await;
    }
    assert_eq!(pki.app.client.post("pki/issuer/unknown", json!({})).await.status, 404);
    pki.stop().await;
}

#[actix_web::test]
async fn deleting_issuers_and_keys_keeps_certificates_and_roles() {
    let pki = Pki::start().await;
    pki.post("roles/named", json!({ "issuer_ref": "root", "key_type": "ec" })).await;
    let key = text(&pki.get("issuer/root").await, "key_id").to_owned();
    let second = pki.root(json!({ "issuer_name": "second", "key_name": "k2" })).await;
    for reference in [&key, "default", "k2"] {
        let answer = pki.app.client.delete(&format!("pki/key/{reference}")).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.error().contains("in use by issuers"), "{}", answer.text);
    }
    assert_eq!(pki.list("keys").await.len(), 2);
    let answer = pki.app.client.delete("pki/issuer/root").await;
    assert_eq!((answer.status, &answer.body["data"]), (200, &Value::Null));
    let warnings = answer.warnings();
    assert!(warnings.contains("default") && warnings.contains("named"), "{warnings}");
    assert_eq!(pki.get("config/issuers").await["default"], "");
    pki.role(&json!({})).await;
    pki.refused("issue/r", localhost(json!({})), "issuer_ref: no default issuer configured").await;
    pki.refused("issue/named", localhost(json!({})), "issuer_ref: issuer not found").await;
    assert_eq!(pki.app.client.get("pki/ca/pem").await.status, 204);
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    // The key of the deleted issuer is still the default key: its deletion returns a warning.
    let answer = pki.app.client.delete(&format!("pki/key/{key}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.warnings().contains("default"), "{}", answer.text);
    assert_eq!(pki.get("config/keys").await["default"], "");
    let answer = pki.app.client.delete(&format!("pki/issuer/{}", text(&second, "issuer_id"))).await;
    assert_eq!((answer.status, answer.warnings().as_str()), (200, ""));
    assert_eq!(pki.app.client.delete("pki/key/k2").await.status, 204);
    assert_eq!(pki.app.client.delete("pki/key/k2").await.status, 204);
    assert_eq!(pki.list("keys").await.len(), 0);
    // All issuers at once.
    pki.root(json!({ "issuer_name": "root" })).await;
    let leaf = pki.leaf().await;
    let certs = pki.list("certs").await;
    // The path also requires `sudo`.
    let all = granted("pki/*", &["create", "read", "update", "delete", "list"]);
    only(&pki.app, "all", &all).await.delete("pki/root").await.assert_denied();
    assert_eq!(pki.list("issuers").await.len(), 1);
    let answer = pki.app.client.delete("pki/root").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(!answer.warnings().is_empty());
    assert_eq!((pki.list("issuers").await.len(), pki.list("keys").await.len()), (0, 0));
    assert_eq!(pki.list("certs").await, certs);
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["certificate"], leaf.pem);
    assert_eq!(pki.list("roles").await, ["named", "r"]);
    let again = pki.app.client.delete("pki/root").await;
    assert!(matches!(again.status, 200 | 204), "{}", again.text);
    pki.root(json!({ "issuer_name": "root" })).await;
    pki.leaf().await;
    pki.stop().await;
}

#[actix_web::test]
async fn issue_response_formats() {
    use base64::Engine as _;
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let issue = async |more: Value| pki.data("issue/r", localhost(more)).await;
    let root = pki.get("cert/ca").await["certificate"].clone();
    let pem = issue(json!({})).await;
    assert_eq!((&pem["issuing_ca"], &pem["ca_chain"]), (&root, &json!([root])));
    assert!(text(&pem, "private_key").starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    let bundle = issue(json!({ "format": "pem_bundle" })).await;
    // Key and certificate, without the root.
    let expected = [text(&bundle, "private_key"), "\n-----BEGIN CERTIFICATE-----"].concat();
    assert!(text(&bundle, "certificate").starts_with(&expected));
    assert_eq!(text(&bundle, "certificate").matches("-----BEGIN").count(), 2);
    assert!(!text(&bundle, "certificate").contains(root.as_str().unwrap()));
    assert_eq!((&bundle["issuing_ca"], &bundle["ca_chain"]), (&root, &json!([root])));
    let pkcs8 = issue(json!({ "format": "pem_bundle", "private_key_format": "pkcs8" })).await;
    assert!(text(&pkcs8, "private_key").starts_with("-----BEGIN PRIVATE KEY-----\n"));
    assert!(text(&pkcs8, "certificate").starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    let der = issue(json!({ "format": "der" })).await;
    let decode = |member: &Value| base64::engine::general_purpose::STANDARD.decode(member.as_str().unwrap()).unwrap();
    let certificate = signet::x509::certificate::Certificate::parse(&decode(&der["certificate"])).unwrap();
    assert_eq!(decode(&der["issuing_ca"]), parse(root.as_str().unwrap()).der());
    assert_eq!(der["ca_chain"], json!([der["issuing_ca"]]));
    let public = openssl(&["pkey", "-inform", "DER", "-pubout", "-outform", "DER"], &decode(&der["private_key"]));
    assert_eq!(public, certificate.key().spki());
    let bare = issue(json!({ "remove_roots_from_chain": true })).await;
    assert_eq!((&bare["ca_chain"], &bare["issuing_ca"]), (&json!([]), &root));
    for format in ["DER", "PEM", ""] {
        let rule = "format: must be pem, der, pem_bundle or p12";
        pki.refused("issue/r", localhost(json!({ "format": format })), rule).await;
    }
    assert!(text(&issue(json!({ "format": null })).await, "certificate").starts_with("-----BEGIN CERTIFICATE"));
    let csr = foreign::csr("ec-256", "/CN=localhost", "");
    let signed = &pki.data("sign/r", json!({ "csr": csr, "format": "pem_bundle" })).await;
    assert!(signed.get("private_key").is_none() && signed.get("private_key_type").is_none());
    assert!(text(signed, "certificate").starts_with("-----BEGIN CERTIFICATE-----"));
    pki.stop().await;
}

#[actix_web::test]
async fn issuers_are_listed_and_read_by_name_and_id() {
    let pki = Pki::start().await;
    let second = pki.root(json!({ "common_name": "Second", "issuer_name": "second", "key_name": "k2" })).await;
    let anyone = pki.app.client.with_token("");
    let listed = anyone.list("pki/issuers").await;
    assert_eq!(listed.status, 200);
    let id = text(&second, "issuer_id");
    let info = json!({ "issuer_name": "second", "is_default": false, "serial_number": second["serial_number"],
        "key_id": second["key_id"] });
    assert_eq!(listed.body["data"]["key_info"][id], info);
    assert_eq!(listed.body["data"]["keys"].as_array().unwrap().len(), 2);
    let page = anyone.list("pki/issuers?limit=1").await;
    assert_eq!(page.body["data"]["key_info"].as_object().unwrap().len(), 1, "details of the page only");
    let data = pki.get("issuer/second").await;
    let line = line(text(&second, "certificate"));
    assert_eq!(data["certificate"], line);
    assert_eq!(pki.get(&format!("issuer/{id}")).await, data);
    assert_eq!(anyone.get("pki/issuer/second/pem").await.text, line);
    let der = anyone.request("GET", "pki/issuer/second/der").send().await.unwrap().bytes().await.unwrap();
    assert_eq!(der, parse(&line).der());
    assert_eq!(pki.get("issuer/Default").await["issuer_name"], "root");
    pki.stop().await;
}
