//! Roots, issuers, keys, authority information, and response formats.

use serde_json::{Value, json};

use super::foreign::{self, Crl, Files, openssl, openssl_verifies};
use super::mount::{Pki, parse, with};

const PLAIN: &str = "localhost";

fn localhost(more: Value) -> Value {
    with(&json!({ "common_name": PLAIN }), more)
}

fn text<'a>(data: &'a Value, member: &str) -> &'a str {
    data[member].as_str().unwrap_or_else(|| panic!("{member} is no text in {data}"))
}

#[actix_web::test]
async fn answers_with_a_certificate_have_its_authority_key_id() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let csr = foreign::csr("ec-256", "/CN=a.test", "");
    let expected = pki.get(&format!("key/{}", pki.list("keys").await[0])).await["subject_key_id"].clone();
    for (path, body) in [
        ("issue/r", json!({})),
        ("issuer/root/issue/r", json!({})),
        ("sign/r", json!({ "csr": csr })),
        ("sign-verbatim", json!({ "csr": csr })),
        ("root/sign-intermediate", json!({ "csr": csr })),
    ] {
        for format in ["pem", "der", "pem_bundle"] {
            let body = with(&body, json!({ "common_name": "a.test", "format": format }));
            let data = pki.post(path, body).await.body["data"].clone();
            assert_eq!(data["authority_key_id"], expected, "{path} {format}");
            let serial = data["serial_number"].as_str().unwrap();
            assert_eq!(pki.get(&format!("cert/{serial}")).await["authority_key_id"], expected, "{path}");
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn generated_roots_are_valid_and_first_one_is_default() {
    let pki = Pki::empty().await;
    let first = pki.post("root/generate/internal", json!({ "common_name": "Root A", "key_type": "ec" })).await.body;
    let first = &first["data"];
    assert!(first.get("private_key").is_none() && first.get("private_key_type").is_none());
    let certificate = parse(text(first, "certificate"));
    assert!(certificate.is_ca() && certificate.is_self_signed() && certificate.path_length().is_none());
    assert_eq!(certificate.authority_key_id().as_deref(), certificate.subject_key_id());
    assert_eq!(first["certificate"], first["issuing_ca"]);
    assert_eq!(first["serial_number"], certificate.serial().to_string());
    assert_eq!(first["expiration"], certificate.not_after().to_string());
    assert_eq!(pki.get("config/issuers").await["default"], first["issuer_id"]);
    assert_eq!(pki.get("config/keys").await["default"], first["key_id"]);
    assert_eq!(pki.list("certs").await, [text(first, "serial_number")]);
    let crl = pki.crl("default").await;
    assert_eq!((crl.number(), crl.serials().len()), (1, 0));
    assert!(crl.is_signed_by(text(first, "certificate")));
    let pem = text(first, "certificate");
    let usage = foreign::extension(pem, "keyUsage").unwrap();
    assert_eq!(usage, (true, "Certificate Sign, CRL Sign".to_owned()));
    assert_eq!(foreign::extension(pem, "basicConstraints").unwrap(), (true, "CA:TRUE".to_owned()));
    let second = pki.root(json!({ "common_name": "Root B" })).await;
    assert_ne!(second["issuer_id"], first["issuer_id"]);
    assert_eq!(pki.get("config/issuers").await["default"], first["issuer_id"]);
    assert_eq!(pki.list("issuers").await.len(), 2);
    assert_eq!(
        pki.get(&format!("cert/{}", text(&second, "serial_number"))).await["certificate"],
        second["certificate"]
    );
    pki.stop().await;
}

#[actix_web::test]
async fn exported_root_has_its_key_and_unknown_types_are_rejected() {
    let pki = Pki::empty().await;
    let request = json!({ "common_name": "Root", "key_type": "ec", "format": "pem_bundle" });
    let data = pki.post("root/generate/exported", request).await.body["data"].clone();
    assert!(text(&data, "certificate").starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    assert_eq!(text(&data, "certificate").matches("-----BEGIN").count(), 2);
    assert_eq!(data["private_key_type"], "ec");
    let public = openssl(&["pkey", "-pubout", "-outform", "DER"], text(&data, "private_key").as_bytes());
    assert_eq!(public, parse(text(&data, "issuing_ca")).key().spki());
    for path in ["root/generate", "issuers/generate/root", "root/rotate"] {
        let answer = pki.app.client.post(&format!("pki/{path}/foo"), json!({ "key_type": "ec" })).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
    }
    // Relying parties cannot verify signatures of a P-224 CA.
    pki.refused(
        "root/generate/internal",
        json!({ "common_name": "x", "key_type": "ec", "key_bits": 224 }),
        "key_bits: ",
    )
    .await;
    assert_eq!(pki.list("issuers").await.len(), 1);
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
        "permitted_email_addresses": "c.com", "excluded_uri_domains": "d.com",
    });
    let request = with(&request, json!({ "key_type": "ec" }));
    let answer = pki.post("root/generate/internal", request).await;
    assert!(answer.warnings().contains("max_path_length"), "{}", answer.text);
    let pem = text(&answer.body["data"], "certificate");
    let expected = "C=NZ,ST=st,L=l,street=street,postalCode=1,O=o,OU=a+OU=b,CN=Root,serialNumber=s";
    assert_eq!(foreign::subject(pem), expected);
    let printed = |name: &str| {
        let (critical, text) = foreign::extension(pem, name).unwrap();
        (critical, text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (critical, names) = printed("subjectAltName");
    assert_eq!((critical, names.as_str()), (false, "DNS:Root, DNS:ca.test, IP Address:10.0.0.1, URI:urn:a:b"));
    assert_eq!(printed("basicConstraints"), (true, "CA:TRUE, pathlen:0".to_owned()));
    assert_eq!(printed("keyUsage"), (true, "Digital Signature, Certificate Sign, CRL Sign".to_owned()));
    assert_eq!(printed("extendedKeyUsage"), (false, "TLS Web Server Authentication, 1.2.3.4".to_owned()));
    let (critical, constraints) = printed("nameConstraints");
    assert!(critical);
    let expected = "Permitted: DNS:.a.com DNS:b.com email:c.com Excluded: IP:10.0.0.0/255.0.0.0 URI:d.com";
    assert_eq!(constraints, expected);
    for (more, field) in [
        (json!({ "max_path_length": -2 }), "max_path_length: "),
        (json!({ "permitted_ip_ranges": "10.0.0.1/99" }), "permitted_ip_ranges: "),
        (json!({ "ip_sans": "300.1.1.1" }), "ip_sans: "),
        (json!({ "other_sans": "x" }), "other_sans: "),
        (json!({ "signature_bits": 100 }), "signature_bits: "),
        (json!({ "key_bits": 100 }), "key_"),
        (json!({ "key_type": "dsa" }), "key_type: "),
        (json!({ "ou": "a\u{0}b" }), "ou: "),
        (json!({ "common_name": "a\u{0}b" }), "common_name: "),
        (json!({ "ext_key_usage_oids": "x" }), "ext_key_usage_oids: "),
        (json!({ "format": "DER" }), "format: "),
    ] {
        let body = with(&json!({ "common_name": "Root", "key_type": "ec" }), more);
        pki.refused("root/generate/internal", body, field).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_and_key_names_must_be_unique_and_valid() {
    let pki = Pki::start().await;
    for field in ["issuer_name", "key_name"] {
        let root = |name: &str| json!({ "common_name": "x", "key_type": "ec", field: name });
        pki.post("root/generate/internal", root("taken")).await;
        pki.refused("root/generate/internal", root("taken"), &format!("{field}: ")).await;
        for name in ["default", "DEFAULT"] {
            pki.refused("root/generate/internal", root(name), &format!("{field}: name is reserved")).await;
        }
        for name in ["a b", "-a", "a.", "ä", "a/b"] {
            pki.refused("root/generate/internal", root(name), &format!("{field}: name contains characters")).await;
        }
    }
    pki.refused("issuer/root", json!({ "issuer_name": "taken" }), "issuer_name: issuer name already in use").await;
    pki.refused("key/default", json!({ "key_name": "taken" }), "key_name: key name already in use").await;
    pki.stop().await;
}

#[actix_web::test]
async fn root_rotation_and_default_issuer() {
    let pki = Pki::start().await;
    let rotate = async || pki.post("root/rotate/internal", json!({ "common_name": "Next", "key_type": "ec" })).await;
    let first = rotate().await.body["data"].clone();
    let second = rotate().await.body["data"].clone();
    assert_eq!((text(&first, "issuer_name"), text(&second, "issuer_name")), ("next", ""));
    let root = pki.get("issuer/root").await["issuer_id"].clone();
    assert_eq!(pki.get("config/issuers").await["default"], root);
    pki.refused("root/replace", json!({ "default": "unknown" }), "default: names no issuer").await;
    assert_eq!(pki.post("root/replace", json!({})).await.body["data"]["default"], first["issuer_id"]);
    assert_eq!(pki.get("config/issuers").await["default"], first["issuer_id"]);
    for reference in ["", "default", "Default", "unknown"] {
        pki.refused("config/issuers", json!({ "default": reference }), "default: ").await;
    }
    // A write without `default` keeps the previous one.
    let follows = json!({ "default_follows_latest_issuer": true });
    let expected = json!({ "default": first["issuer_id"], "default_follows_latest_issuer": true });
    assert_eq!(pki.post("config/issuers", follows).await.body["data"], expected);
    let latest = pki.root(json!({ "common_name": "Latest" })).await;
    assert_eq!(pki.get("config/issuers").await["default"], latest["issuer_id"]);
    assert_eq!(pki.post("config/issuers", json!({ "default": "root" })).await.body["data"]["default"], root);
    pki.stop().await;
}

#[actix_web::test]
async fn authority_information_urls_are_put_into_certificates() {
    let pki = Pki::start().await;
    let empty = json!({ "issuing_certificates": [], "crl_distribution_points": [], "delta_crl_distribution_points": [],
        "ocsp_servers": [], "enable_templating": false });
    assert_eq!(pki.get("config/urls").await, empty);
    let plain = pki.issue(&json!({}), localhost(json!({}))).await;
    assert_eq!((plain.extension("authorityInfoAccess"), plain.extension("crlDistributionPoints")), (None, None));
    let urls = json!({ "issuing_certificates": "http://a.test/ca,http://b.test/ca", "crl_distribution_points": "http://a.test/crl" });
    pki.post("config/urls", urls).await;
    let more = json!({ "ocsp_servers": "http://a.test/ocsp", "delta_crl_distribution_points": "http://a.test/delta" });
    let stored = pki.post("config/urls", more).await.body["data"].clone();
    assert_eq!(stored, pki.get("config/urls").await);
    assert_eq!(stored["issuing_certificates"], json!(["http://a.test/ca", "http://b.test/ca"]));
    let leaf = pki.issue(&json!({}), localhost(json!({}))).await;
    let printed = |name: &str| {
        leaf.extension(name).map(|(_, text)| text.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap()
    };
    let access = "OCSP - URI:http://a.test/ocsp CA Issuers - URI:http://a.test/ca CA Issuers - URI:http://b.test/ca";
    assert_eq!(printed("authorityInfoAccess"), access);
    assert_eq!(printed("crlDistributionPoints"), "Full Name: URI:http://a.test/crl");
    assert_eq!(printed("freshestCRL"), "Full Name: URI:http://a.test/delta");
    let root = pki.root(json!({ "common_name": "Second" })).await;
    assert!(foreign::certificate_text(text(&root, "certificate")).contains("URI:http://a.test/ocsp"));
    pki.post("issuer/root", json!({ "issuer_name": "root", "ocsp_servers": "http://own.test" })).await;
    let leaf = pki.issue(&json!({}), localhost(json!({}))).await;
    let (_, access) = leaf.extension("authorityInfoAccess").unwrap();
    assert_eq!(access, "OCSP - URI:http://own.test");
    assert_eq!((leaf.extension("crlDistributionPoints"), leaf.extension("freshestCRL")), (None, None));
    for url in ["a.test/ca", "http://", "/ca", "not a url"] {
        pki.refused("config/urls", json!({ "issuing_certificates": url }), "issuing_certificates: ").await;
        pki.refused("issuer/root", json!({ "ocsp_servers": url }), "ocsp_servers: ").await;
    }
    assert_eq!(pki.get("config/urls").await, stored);
    pki.stop().await;
}

#[actix_web::test]
async fn urls_with_the_id_of_the_issuer() {
    let pki = Pki::start().await;
    let urls = json!({ "issuing_certificates": "http://a.test/{{issuer_id}}/der", "enable_templating": true });
    pki.post("config/urls", urls).await;
    let leaf = pki.issue(&json!({}), localhost(json!({}))).await;
    let id = pki.get("issuer/default").await["issuer_id"].clone();
    let (_, access) = leaf.extension("authorityInfoAccess").unwrap();
    assert_eq!(access, format!("CA Issuers - URI:http://a.test/{}/der", id.as_str().unwrap()));
    let root = pki.post("root/generate/internal", json!({ "common_name": "x", "key_type": "ec" })).await;
    assert!(root.warnings().contains("authorityInfoAccess and CRL URLs omitted"), "{}", root.text);
    assert_eq!(foreign::extension(text(&root.body["data"], "certificate"), "authorityInfoAccess"), None);
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_post_replaces_and_patch_merges_fields() {
    let pki = Pki::start().await;
    let full = json!({ "issuer_name": "other", "usage": "read-only", "leaf_not_after_behavior": "truncate",
        "ocsp_servers": "http://own.test", "revocation_signature_algorithm": "ecdsawithsha256" });
    let data = pki.post("issuer/root", full).await.body["data"].clone();
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
    pki.issue(&json!({}), localhost(json!({}))).await;
    // An empty POST resets all fields.
    let reset = pki.post("issuer/other", json!({})).await.body["data"].clone();
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
    let unknown = pki.app.client.post("pki/issuer/unknown", json!({})).await;
    assert_eq!(unknown.status, 404);
    pki.stop().await;
}

#[actix_web::test]
async fn deleting_issuers_and_keys_updates_the_defaults() {
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
    pki.stop().await;
}

#[actix_web::test]
async fn deleting_all_issuers_needs_sudo_and_keeps_certificates() {
    let pki = Pki::start().await;
    let leaf = pki.issue(&json!({}), localhost(json!({}))).await;
    let certs = pki.list("certs").await;
    // The path also requires `sudo`.
    pki.app
        .policy("all", "path \"pki/*\" { capabilities = [\"create\", \"read\", \"update\", \"delete\", \"list\"] }")
        .await;
    pki.app.with_policies(&["all"]).await.delete("pki/root").await.assert_denied();
    assert_eq!(pki.list("issuers").await.len(), 1);
    let answer = pki.app.client.delete("pki/root").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(!answer.warnings().is_empty());
    assert_eq!((pki.list("issuers").await.len(), pki.list("keys").await.len()), (0, 0));
    assert_eq!(pki.list("certs").await, certs);
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["certificate"], leaf.pem);
    assert_eq!(pki.list("roles").await, ["r"]);
    let again = pki.app.client.delete("pki/root").await;
    assert!(matches!(again.status, 200 | 204), "{}", again.text);
    pki.root(json!({ "issuer_name": "root" })).await;
    pki.issue(&json!({}), localhost(json!({}))).await;
    pki.stop().await;
}

#[actix_web::test]
async fn issue_response_formats() {
    use base64::Engine as _;
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let issue = async |more: Value| pki.post("issue/r", localhost(more)).await.body["data"].clone();
    let root = pki.get("cert/ca").await["certificate"].clone();
    let pem = issue(json!({})).await;
    assert_eq!((&pem["issuing_ca"], &pem["ca_chain"]), (&root, &json!([root])));
    for member in ["certificate", "private_key", "issuing_ca"] {
        assert!(text(&pem, member).ends_with("-----"), "{member} has no newline at its end");
    }
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
    for format in ["foo", "DER", "PEM", ""] {
        pki.refused("issue/r", localhost(json!({ "format": format })), "format: must be pem, der, pem_bundle or p12")
            .await;
    }
    pki.refused("issue/r", localhost(json!({ "private_key_format": "foo" })), "private_key_format: ").await;
    assert!(text(&issue(json!({ "format": null })).await, "certificate").starts_with("-----BEGIN CERTIFICATE"));
    let signed =
        pki.post("sign/r", json!({ "csr": foreign::csr("ec-256", "/CN=localhost", ""), "format": "pem_bundle" })).await;
    let signed = &signed.body["data"];
    assert!(signed.get("private_key").is_none() && signed.get("private_key_type").is_none());
    assert!(text(signed, "certificate").starts_with("-----BEGIN CERTIFICATE-----"));
    pki.stop().await;
}

#[actix_web::test]
async fn reading_issuers_with_and_without_a_token() {
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
    anyone.get("pki/issuer/second").await.assert_denied();
    let data = pki.get("issuer/second").await;
    let line = format!("{}\n", text(&second, "certificate"));
    let expected = json!({
        "issuer_id": id, "issuer_name": "second", "key_id": second["key_id"], "certificate": line,
        "manual_chain": null, "ca_chain": [line], "leaf_not_after_behavior": "err",
        "usage": "crl-signing,issuing-certificates,ocsp-signing,read-only",
        "revocation_signature_algorithm": "ECDSAWithSHA256", "issuing_certificates": [],
        "crl_distribution_points": [], "delta_crl_distribution_points": [], "ocsp_servers": [], "revoked": false,
    });
    assert_eq!(data, expected);
    assert_eq!(pki.get(&format!("issuer/{id}")).await, expected);
    let open = anyone.get("pki/issuer/second/json").await;
    let expected = json!({ "certificate": line, "ca_chain": [line], "issuer_id": id, "issuer_name": "second" });
    assert_eq!(open.body["data"], expected);
    assert_eq!(anyone.get("pki/issuer/second/pem").await.text, line);
    let der = anyone.request("GET", "pki/issuer/second/der").send().await.unwrap().bytes().await.unwrap();
    assert_eq!(der, parse(text(&second, "certificate")).der());
    for path in
        ["issuer/unknown", "issuer/unknown/json", "issuer/unknown/der", "issuer/unknown/pem", "issuer/unknown/crl"]
    {
        assert_eq!(pki.app.client.get(&format!("pki/{path}")).await.status, 404, "{path}");
    }
    // A missing raw CRL is an empty response, also for an unknown issuer.
    for path in ["issuer/unknown/crl/der", "issuer/unknown/crl/pem"] {
        assert_eq!(anyone.get(&format!("pki/{path}")).await.status, 204, "{path}");
    }
    assert_eq!(pki.get("issuer/Default").await["issuer_name"], "root");
    pki.stop().await;
}

#[actix_web::test]
async fn reading_and_renaming_keys() {
    let pki = Pki::start().await;
    let second = pki.root(json!({ "common_name": "Second", "key_name": "k2" })).await;
    let id = text(&second, "key_id").to_owned();
    let listed = pki.app.client.list("pki/keys").await.body["data"].clone();
    assert_eq!(listed["key_info"][&id], json!({ "key_name": "k2", "is_default": false }));
    let certificate = parse(text(&second, "certificate"));
    let octets = certificate.subject_key_id().unwrap().iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let key = json!({ "key_id": id, "key_name": "k2", "key_type": "ec", "subject_key_id": octets });
    assert_eq!(pki.get("key/k2").await, key);
    assert_eq!(pki.get(&format!("key/{id}")).await, key);
    assert_eq!(pki.app.client.get("pki/key/unknown").await.status, 404);
    assert_eq!(pki.post("key/k2", json!({ "key_name": "k3" })).await.body["data"]["key_name"], "k3");
    assert_eq!(pki.app.client.get("pki/key/k2").await.status, 404);
    let cleared = pki.post("key/k3", json!({ "key_name": "" })).await;
    assert!(cleared.body["data"]["key_name"] == "" && !cleared.warnings().is_empty(), "{}", cleared.text);
    assert_eq!(pki.post("config/keys", json!({ "default": id })).await.body["data"], json!({ "default": id }));
    for reference in ["", "default", "unknown"] {
        pki.refused("config/keys", json!({ "default": reference }), "default: ").await;
    }
    pki.role(&json!({})).await;
    pki.ask(&format!("issuer/{}/issue/r", text(&second, "issuer_id")), localhost(json!({}))).await;
    pki.stop().await;
}

#[actix_web::test]
async fn urls_of_a_directory_may_leave_the_host_away() {
    let pki = Pki::start().await;
    let directory = "ldap:///CN=Corp%20CA,CN=CDP,DC=example,DC=test?certificateRevocationList?base?\
        objectClass=cRLDistributionPoint";
    let points = json!([directory, "http://crl.example.test/r.crl"]);
    let answer = pki.post("config/urls", json!({ "crl_distribution_points": points })).await;
    assert_eq!(answer.body["data"]["crl_distribution_points"], points, "{}", answer.text);
    let leaf = pki.issue(&json!({}), localhost(json!({}))).await;
    let shown = super::foreign::certificate_text(&leaf.pem);
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
async fn authority_information_is_the_same_in_all_its_forms() {
    let pki = Pki::start().await;
    let anyone = pki.app.client.with_token("");
    let root = pki.get("cert/ca").await;
    let pem = text(&root, "certificate").to_owned();
    let expected = json!({ "certificate": pem, "revocation_time": 0, "revocation_time_rfc3339": "" });
    assert_eq!(root, expected);
    for path in ["ca/pem", "ca_chain", "cert/ca/raw/pem", "issuer/root/pem"] {
        assert_eq!(anyone.get(&format!("pki/{path}")).await.text, format!("{pem}\n"), "{path}");
    }
    let chain = anyone.get("pki/cert/ca_chain").await.body["data"].clone();
    assert_eq!(chain, with(&expected, json!({ "ca_chain": pem })));
    for path in ["ca", "cert/ca/raw", "issuer/root/der"] {
        let der = anyone.request("GET", &format!("pki/{path}")).send().await.unwrap().bytes().await.unwrap();
        assert_eq!(der, parse(&pem).der(), "{path}");
    }
    let der = anyone.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap();
    let crl = Crl::new(der.to_vec());
    assert!(crl.is_signed_by(&pem));
    let text_of = signet::x509::pem::encode("X509 CRL", &crl.der);
    assert_eq!(anyone.get("pki/crl/pem").await.text, format!("{text_of}\n"));
    assert_eq!(anyone.get("pki/issuer/root/crl/pem").await.text, format!("{text_of}\n"));
    assert_eq!(anyone.get("pki/cert/crl").await.body["data"]["certificate"], text_of);
    assert_eq!(anyone.get("pki/issuer/root/crl").await.body["data"]["crl"], text_of);
    let leaf = pki.issue(&json!({}), localhost(json!({}))).await;
    let files = Files::new();
    let root = files.write("root", pem.as_bytes());
    let leaf = files.write("leaf", leaf.pem.as_bytes());
    openssl_verifies(&root, &leaf).unwrap();
    pki.stop().await;
}
