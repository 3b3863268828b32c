//! `sign-intermediate`: CAs below an issuer, named and constrained by the operator.

use serde_json::{Value, json};
use signet::x509::certificate::Certificate;
use signet::x509::csr::Csr;
use signet::x509::oid;

use super::foreign::{self, CA, Ca, csr, openssl_verifies_chain, signature_algorithm};
use super::mount::{Leaf, Pki, parse, text, with};

const PATH: &str = "root/sign-intermediate";

/// A request for a CA named `A Sub CA`, with these extensions in the CSR.
fn of(extensions: &str) -> Value {
    json!({ "csr": csr("ec-256", "/O=Csr/CN=A Sub CA", extensions), "common_name": "A Sub CA" })
}

/// Signs a CA below the default issuer, which openssl must accept.
async fn authority(pki: &Pki, request: Value) -> Leaf {
    below(pki, PATH, request).await
}

async fn below(pki: &Pki, path: &str, request: Value) -> Leaf {
    let leaf = pki.certify(path, request.clone()).await;
    assert!(leaf.certificate.is_ca(), "{request}");
    let chain: Vec<String> = serde_json::from_value(leaf.data()["ca_chain"].clone()).unwrap();
    assert_eq!(chain[0], leaf.pem, "the chain begins with the new certificate");
    assert_eq!(chain[1], leaf.data()["issuing_ca"].as_str().unwrap());
    let between: Vec<&str> = chain.iter().map(String::as_str).collect();
    openssl_verifies_chain(between.last().unwrap(), &between[1..], &leaf.pem).unwrap();
    assert!(leaf.data().get("private_key").is_none());
    leaf
}

fn basic_constraints(leaf: &Leaf) -> String {
    let (critical, text) = leaf.extension("basicConstraints").unwrap();
    assert!(critical);
    text
}

#[actix_web::test]
async fn only_the_key_of_the_csr_is_used() {
    let pki = Pki::start().await;
    let request = of("subjectAltName = DNS:evil.test\nkeyUsage = digitalSignature\n1.2.3.4 = ASN1:UTF8String:mine\n\
                      basicConstraints = CA:FALSE\nsubjectKeyIdentifier = 0102");
    let leaf = authority(&pki, request.clone()).await;
    assert_eq!(leaf.subject(), "CN=A Sub CA");
    assert_eq!(leaf.extension("keyUsage"), Some((true, "Certificate Sign, CRL Sign".to_owned())));
    assert_eq!(basic_constraints(&leaf), "CA:TRUE");
    assert_eq!(leaf.certificate.subject_key_id(), Some(&leaf.certificate.key().key_id()[..]));
    assert_eq!(leaf.sans(), [] as [&str; 0]);
    let ids = leaf.extension_ids();
    assert_eq!(ids, ["2.5.29.15", "2.5.29.19", "2.5.29.14", "2.5.29.35"]);
    // It is stored like any certificate, and is no issuer of this mount.
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["certificate"], leaf.pem);
    assert_eq!(pki.list("issuers").await.len(), 1);
    // Without a common name in the request the CSR's is used; one of them must exist.
    let unnamed = json!({ "common_name": "", "organization": "Mine", "ou": ["b", "a"], "country": "NZ",
        "locality": "l", "province": "p", "street_address": "s", "postal_code": "1", "serial_number": "77" });
    let leaf = authority(&pki, with(&request, unnamed)).await;
    assert_eq!(leaf.subject(), "C=NZ,ST=p,L=l,street=s,postalCode=1,O=Mine,OU=a+OU=b,CN=A Sub CA,serialNumber=77");
    let nobody = json!({ "csr": csr("ec-256", "/O=Csr", "") });
    pki.refused(PATH, nobody, "common_name: must be given when the CSR has none").await;
    // There are no rules for names except for their syntax.
    let names = json!({ "common_name": "ca.test", "alt_names": "b.test,x@c.test", "ip_sans": "10.0.0.1",
        "uri_sans": "urn:a:b", "other_sans": "1.2.3;UTF8:me" });
    let leaf = authority(&pki, with(&request, names.clone())).await;
    let expected =
        ["othername: 1.2.3::me", "DNS:ca.test", "DNS:b.test", "email:x@c.test", "IP Address:10.0.0.1", "URI:urn:a:b"];
    assert_eq!(leaf.sans(), expected);
    for (field, value) in [("ip_sans", "10.0.0"), ("other_sans", "1.2.3;IA5:x"), ("organization", "a\u{7}")] {
        pki.refused(PATH, with(&request, json!({ field: value })), &format!("{field}: ")).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn key_usages_are_completed_for_a_ca() {
    let pki = Pki::start().await;
    let own = |usage: &str| with(&of(&format!("keyUsage = {usage}")), json!({ "use_csr_values": true }));
    let asked = |usage: Value| with(&of(""), json!({ "key_usage": usage }));
    // A keyUsage with keyCertSign is not extended by cRLSign, and that of the CSR takes precedence.
    for (request, critical, shown) in [
        (own("critical,digitalSignature"), true, "Digital Signature, Certificate Sign, CRL Sign"),
        (own("keyAgreement,decipherOnly"), true, "Key Agreement, Certificate Sign, CRL Sign, Decipher Only"),
        (own("cRLSign"), true, "Certificate Sign, CRL Sign"),
        (own("keyCertSign"), false, "Certificate Sign"),
        (with(&own("critical,keyCertSign"), json!({ "key_usage": "DigitalSignature" })), true, "Certificate Sign"),
        (asked(json!("DigitalSignature")), true, "Digital Signature, Certificate Sign, CRL Sign"),
        (asked(json!(["CRL", "CertSign"])), true, "Certificate Sign, CRL Sign"),
    ] {
        let leaf = authority(&pki, request.clone()).await;
        assert_eq!(leaf.extension("keyUsage"), Some((critical, shown.to_owned())), "{request}");
    }
    let purposes = json!({ "ext_key_usage": "ServerAuth", "ext_key_usage_oids": "1.2.3.4" });
    let leaf = authority(&pki, with(&of(""), purposes.clone())).await;
    let both = Some((false, "TLS Web Server Authentication, 1.2.3.4".to_owned()));
    assert_eq!(leaf.extension("extendedKeyUsage"), both);
    let root = pki.root(with(&purposes, json!({ "common_name": "Purposes" }))).await;
    assert_eq!(foreign::extension(text(&root, "certificate"), "extendedKeyUsage"), both);
    pki.stop().await;
}

#[actix_web::test]
async fn csr_and_issuer_must_be_usable() {
    let pki = Pki::start().await;
    // A CA needs a subject, even if the CSR has other names.
    let nameless = json!({ "csr": csr("ec-256", "/", "subjectAltName = DNS:ca.test"), "use_csr_values": true });
    for (path, body, rule) in [
        (PATH, nameless.clone(), "csr: a CA certificate must have a subject (RFC 5280 4.1.2.6)"),
        ("issuer/root/sign-intermediate", nameless, "csr: a CA certificate must have a subject (RFC 5280 4.1.2.6)"),
        (PATH, json!({ "common_name": "A Sub CA" }), "csr: must not be empty"),
        ("issuer/unknown/sign-intermediate", of(""), "issuer_ref: issuer not found"),
    ] {
        pki.refused(path, body, rule).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn validity_is_truncated_to_that_of_the_issuer() {
    let pki = Pki::start().await;
    let end = parse(&pki.default_pem().await).not_after();
    let beyond = with(&of(""), json!({ "not_after": "2100-01-01T00:00:00Z" }));
    let leaf = authority(&pki, beyond.clone()).await;
    assert_eq!(leaf.certificate.not_after(), end);
    assert!(leaf.answer.warnings().contains("truncated"), "{}", leaf.answer.text);
    let enforced = with(&beyond, json!({ "enforce_leaf_not_after_behavior": true }));
    pki.refused(PATH, enforced.clone(), "is beyond the expiration of the CA certificate").await;
    pki.post("issuer/root", json!({ "issuer_name": "root", "leaf_not_after_behavior": "permit" })).await;
    assert_eq!(authority(&pki, beyond.clone()).await.certificate.not_after(), end);
    assert!(authority(&pki, enforced).await.certificate.not_after() > end);
    pki.refused(PATH, with(&of(""), json!({ "ttl": "769h" })), "ttl: 769h is above the mount's max_lease_ttl").await;
    pki.stop().await;
}

#[actix_web::test]
async fn path_length_is_limited_by_the_issuer() {
    let pki = Pki::start().await;
    let asked = |length: i64| with(&of(""), json!({ "max_path_length": length }));
    for (name, length) in [("zero", 0), ("one", 1), ("three", 3)] {
        pki.root(json!({ "issuer_name": name, "common_name": name, "max_path_length": length })).await;
    }
    // The path length in the CSR is ignored.
    let own = with(&of("basicConstraints = critical,CA:TRUE,pathlen:9"), json!({ "use_csr_values": true }));
    for (issuer, request, shown) in [
        ("one", own, "CA:TRUE, pathlen:0"),
        ("three", asked(-1), "CA:TRUE, pathlen:2"),
        ("three", asked(2), "CA:TRUE, pathlen:2"),
        ("three", asked(0), "CA:TRUE, pathlen:0"),
        ("root", asked(0), "CA:TRUE, pathlen:0"),
        ("root", asked(7), "CA:TRUE, pathlen:7"),
        ("root", asked(-1), "CA:TRUE"),
    ] {
        let leaf = below(&pki, &format!("issuer/{issuer}/sign-intermediate"), request.clone()).await;
        assert_eq!(basic_constraints(&leaf), shown, "{issuer} {request}");
    }
    let last = below(&pki, "issuer/one/sign-intermediate", of("")).await;
    assert_eq!(basic_constraints(&last), "CA:TRUE, pathlen:0");
    assert!(last.answer.warnings().contains("path length is 0"), "{}", last.answer.text);
    for (issuer, request, rule) in [
        ("zero", of(""), "issuer cannot sign further CAs"),
        ("zero", asked(-1), "issuer cannot sign further CAs"),
        ("zero", asked(3), "issuer cannot sign further CAs"),
        ("three", asked(3), "is more than the issuing chain allows, 2"),
        ("three", asked(255), "is more than the issuing chain allows, 2"),
        ("root", asked(-2), "max_path_length: must be"),
    ] {
        pki.refused(&format!("issuer/{issuer}/sign-intermediate"), request, rule).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn path_lengths_from_higher_up_in_the_chain() {
    let pki = Pki::empty().await;
    // A root with path length 2 and two CAs without one: no CA may be below the last.
    let limited = CA.replace("CA:TRUE", "CA:TRUE,pathlen:2");
    let root = Ca::root_with(foreign::new_key("ec-256"), "/CN=Limited", &limited, &[]);
    let first = root.intermediate("/CN=First", &[]);
    let second = first.intermediate("/CN=Second", &[]);
    let ids = pki.import(&[second.bundle(), first.bundle(), root.bundle()].join("\n")).await;
    let path = |at: usize| format!("issuer/{}/sign-intermediate", ids[at]);
    let refused = "issuer cannot sign further CAs";
    pki.refused(&path(0), of(""), refused).await;
    pki.refused(&format!("issuer/{}/sign-self-issued", ids[0]), json!({ "certificate": root.pem }), refused).await;
    assert_eq!(basic_constraints(&below(&pki, &path(1), of("")).await), "CA:TRUE, pathlen:0");
    assert_eq!(basic_constraints(&below(&pki, &path(2), of("")).await), "CA:TRUE, pathlen:1");
    // openssl's verdict for a CA like the rejected one.
    let too_deep = second.intermediate("/CN=Third", &[]);
    let leaf = too_deep.intermediate("/CN=Fourth", &[]);
    let between = [too_deep.pem.as_str(), &second.pem, &first.pem];
    let verdict = openssl_verifies_chain(&root.pem, &between, &leaf.pem).unwrap_err();
    assert!(verdict.contains("path length"), "{verdict}");
    let leaf = pki.certify(&format!("issuer/{}/sign-verbatim", ids[0]), of("")).await;
    openssl_verifies_chain(&root.pem, &[&second.pem, &first.pem], &leaf.pem).unwrap();
    pki.stop().await;
}

#[actix_web::test]
async fn path_lengths_of_each_root_with_the_same_key() {
    let pki = Pki::empty().await;
    // The first parent is the one with the lower identifier, which is random; in either case both must count.
    for round in 0..4 {
        let key = foreign::new_key("ec-256");
        let name = format!("/CN=Root {round}");
        let root = |extensions: &str| Ca::root_with(key.clone(), &name, extensions, &[]);
        let free = root(CA);
        let limited = root(&CA.replace("CA:TRUE", "CA:TRUE,pathlen:1"));
        let below_both = free.intermediate(&format!("/CN=Below {round}"), &[]);
        let ids = pki.import(&[below_both.bundle(), free.pem, limited.pem].join("\n")).await;
        pki.refused(&format!("issuer/{}/sign-intermediate", ids[0]), of(""), "issuer cannot sign further CAs").await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn key_id_constraints_names_dates_and_hash_are_applied() {
    let pki = Pki::start().await;
    for (skid, octets) in [("aa:bb-cc dd", &[0xaa, 0xbb, 0xcc, 0xdd][..]), ("00", &[0]), ("FF", &[0xff])] {
        let leaf = authority(&pki, with(&of(""), json!({ "skid": skid }))).await;
        assert_eq!(leaf.certificate.subject_key_id(), Some(octets));
    }
    for skid in ["a", "aa:b", "0x00", "zz", &"ab".repeat(65)] {
        pki.refused(PATH, with(&of(""), json!({ "skid": skid })), "skid: ").await;
    }
    let leaf = authority(&pki, with(&of(""), json!({ "permitted_dns_domains": ".a.com,b.com" }))).await;
    let (critical, text) = leaf.extension("nameConstraints").unwrap();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!((critical, lines), (true, vec!["Permitted:", "DNS:.a.com", "DNS:b.com"]));
    let all = json!({ "excluded_dns_domains": ["c.com"], "permitted_ip_ranges": "10.0.0.0/8",
        "excluded_ip_ranges": "::ffff:10.1.0.0/112,fd00::/8", "permitted_email_addresses": "a.com",
        "excluded_email_addresses": "x@a.com", "permitted_uri_domains": ".a.com", "excluded_uri_domains": "b.a.com" });
    let leaf = authority(&pki, with(&of(""), all)).await;
    let lines: Vec<_> = leaf.extension("nameConstraints").unwrap().1.lines().map(|l| l.trim().to_owned()).collect();
    let expected = [
        "Permitted:",
        "email:a.com",
        "IP:10.0.0.0/255.0.0.0",
        "URI:.a.com",
        "Excluded:",
        "DNS:c.com",
        "email:x@a.com",
        "IP:10.1.0.0/255.255.0.0",
        "IP:FD00:0:0:0:0:0:0:0/FF00:0:0:0:0:0:0:0",
        "URI:b.a.com",
    ];
    assert_eq!(lines, expected);
    for (field, base) in [("permitted_ip_ranges", "10.0.0.1/40"), ("permitted_dns_domains", "bücher.test")] {
        pki.refused(PATH, with(&of(""), json!({ field: base })), &format!("{field}: ")).await;
    }
    let host = json!({ "common_name": "ca.test" });
    assert_eq!(authority(&pki, with(&of(""), host.clone())).await.sans(), ["DNS:ca.test"]);
    let excluded = with(&host, json!({ "exclude_cn_from_sans": true }));
    assert_eq!(authority(&pki, with(&of(""), excluded)).await.extension("subjectAltName"), None);
    pki.root(json!({ "issuer_name": "rsa", "common_name": "RSA", "key_type": "rsa" })).await;
    let request = with(&of(""), json!({ "not_before_duration": "2h", "signature_bits": 512, "ttl": "10h" }));
    let leaf = below(&pki, "issuer/rsa/sign-intermediate", request).await;
    assert_eq!(leaf.certificate.not_after() - leaf.certificate.not_before(), 12 * 3600);
    assert_eq!(signature_algorithm(&leaf.pem), "sha512WithRSAEncryption");
    let default = authority(&pki, with(&of(""), json!({ "ttl": "10h", "signature_bits": 512 }))).await;
    assert_eq!(default.certificate.not_after() - default.certificate.not_before(), 10 * 3600 + 30);
    assert_eq!(signature_algorithm(&default.pem), "ecdsa-with-SHA256");
    pki.refused(PATH, with(&of(""), json!({ "signature_bits": 1 })), "signature_bits: ").await;
    pki.stop().await;
}

#[actix_web::test]
async fn use_pss_applies_to_every_csr_key_on_every_endpoint() {
    let pki = Pki::empty().await;
    pki.root(json!({ "issuer_name": "rsa", "common_name": "RSA", "key_type": "rsa" })).await;
    let pss = "rsassaPss Hash Algorithm: sha256 Mask Algorithm: mgf1 with sha256 Salt Length: 0x20 Trailer Field: 0x01 (default)";
    for (kind, key_type) in [("ec-256", "ec"), ("ed25519", "ed25519")] {
        let request = json!({ "csr": csr(kind, "/CN=a.foo", ""), "common_name": "a.foo" });
        for role in [key_type, "any"] {
            let role = json!({ "allow_any_name": true, "key_type": role, "use_pss": true, "signature_bits": 0 });
            assert_eq!(signature_algorithm(&pki.sign(&role, request.clone()).await.pem), pss, "{kind} {role}");
        }
        let asked = with(&request, json!({ "use_pss": true, "signature_bits": 0 }));
        for path in ["sign-verbatim", "sign-verbatim/r", PATH, "issuer/rsa/sign-intermediate"] {
            assert_eq!(signature_algorithm(&pki.certify(path, asked.clone()).await.pem), pss, "{kind} {path}");
        }
        // The request decides on these paths, never the role.
        assert_eq!(signature_algorithm(&pki.certify("sign-verbatim/r", request).await.pem), "sha256WithRSAEncryption");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn values_of_the_csr_byte_for_byte() {
    let pki = Pki::start().await;
    let extensions = "keyUsage = critical,keyCertSign\nsubjectAltName = DNS:in.csr,dirName:dir,RID:1.2.3\n\
        1.2.3.4 = critical,ASN1:UTF8String:mine\nextendedKeyUsage = critical,1.2.3.4.5\n\
        subjectKeyIdentifier = 0102\nbasicConstraints = critical,CA:TRUE,pathlen:5\n[dir]\nO = x";
    let request =
        with(&of(extensions), json!({ "use_csr_values": true, "alt_names": "ignored.test", "ou": "ignored" }));
    let asked = Csr::from_pem(request["csr"].as_str().unwrap()).unwrap();
    let leaf = pki.certify(PATH, request.clone()).await;
    assert_eq!(leaf.certificate.subject(), &asked.subject);
    for extension in asked.extensions.iter().filter(|e| e.oid != oid::BASIC_CONSTRAINTS) {
        let raw = extension.raw.as_der();
        assert!(asked.der().windows(raw.len()).any(|window| window == raw), "{}", extension.oid_text());
        assert_eq!(leaf.raw(&extension.oid_text()).as_ref(), Some(&extension.raw), "{}", extension.oid_text());
    }
    assert_eq!(basic_constraints(&leaf), "CA:TRUE");
    let warnings = leaf.answer.warnings();
    for field in ["common_name", "alt_names", "ou"] {
        assert!(warnings.contains(field), "{field}: {warnings}");
    }
    // otherNames of the request are added to the CSR's names.
    let names = "subjectAltName = DNS:in.csr,IP:10.0.0.1,otherName:1.2.3;UTF8:theirs";
    let joined = with(&of(names), json!({ "use_csr_values": true, "other_sans": "1.2.3;UTF8:mine" }));
    let sans = authority(&pki, joined).await.sans();
    assert_eq!(sans, ["othername: 1.2.3::mine", "othername: 1.2.3::theirs", "DNS:in.csr", "IP Address:10.0.0.1"]);
    pki.stop().await;
}

#[actix_web::test]
async fn name_constraints_of_the_request_override_the_csr() {
    let pki = Pki::start().await;
    for critical in ["critical,", ""] {
        let request = of(&format!("nameConstraints = {critical}permitted;DNS:evil.com"));
        let asked = json!({ "use_csr_values": true, "permitted_dns_domains": "good.com" });
        let leaf = authority(&pki, with(&request, asked)).await;
        let (marked, text) = leaf.extension("nameConstraints").unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!((marked, lines), (true, vec!["Permitted:", "DNS:good.com"]));
        leaf.raw("2.5.29.30").unwrap();
    }
    // Without constraints of the operator, those of the CSR are copied if they are valid.
    let own = with(&of("nameConstraints = critical,permitted;DNS:csr.com"), json!({ "use_csr_values": true }));
    assert!(authority(&pki, own).await.extension("nameConstraints").unwrap().1.contains("csr.com"));
    let loose = with(&of("nameConstraints = permitted;DNS:csr.com"), json!({ "use_csr_values": true }));
    pki.refused(PATH, loose, "nameConstraints must be critical").await;
    // A critical extension that verifiers reject causes a warning.
    for (section, told) in [
        ("nameConstraints = critical,permitted;dirName:dn\n[dn]\nO = x", Some("csr: nameConstraints are critical")),
        ("1.2.3.9 = critical,DER:0500", Some("csr: the extension 1.2.3.9 is critical")),
        ("1.2.3.9 = DER:0500", None),
    ] {
        let signed = pki.post(PATH, with(&of(section), json!({ "use_csr_values": true }))).await;
        assert_eq!(signed.status, 200, "{section}: {}", signed.text);
        let warnings = signed.body["warnings"].to_string();
        assert_eq!(warnings.contains("below this CA may not verify"), told.is_some(), "{section}: {warnings}");
        assert!(warnings.contains(told.unwrap_or_default()), "{section}: {warnings}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn key_id_and_urls_of_the_csr_are_replaced() {
    let pki = Pki::start().await;
    let urls = json!({ "ocsp_servers": "http://own.test/ocsp", "issuing_certificates": "http://own.test/ca",
        "crl_distribution_points": "http://own.test/crl", "delta_crl_distribution_points": "http://own.test/delta" });
    pki.post("config/urls", urls).await;
    let request = of("subjectKeyIdentifier = 0102\nauthorityInfoAccess = OCSP;URI:http://evil.test\n\
         crlDistributionPoints = URI:http://evil.test/crl\nfreshestCRL = URI:http://evil.test/delta\n\
         2.5.29.35 = DER:30058003010203");
    let asked = json!({ "use_csr_values": true, "skid": "aabb" });
    let leaf = authority(&pki, with(&request, asked.clone())).await;
    assert_eq!(leaf.certificate.subject_key_id(), Some(&[0xaa, 0xbb][..]));
    let text = foreign::certificate_text(&leaf.pem);
    assert!(!text.contains("evil.test"), "{text}");
    for url in ["http://own.test/ocsp", "http://own.test/ca", "http://own.test/crl", "http://own.test/delta"] {
        assert_eq!(text.matches(url).count(), 1, "{url}: {text}");
    }
    let ids = leaf.extension_ids();
    for (at, id) in ids.iter().enumerate() {
        assert!(!ids[..at].contains(id), "{id} appears twice");
    }
    // Without URLs in the mount: AIA of the CSR, but never its distribution points.
    let none = json!({ "ocsp_servers": "", "issuing_certificates": "", "crl_distribution_points": "",
        "delta_crl_distribution_points": "" });
    pki.post("config/urls", none).await;
    let leaf = authority(&pki, with(&request, json!({ "use_csr_values": true }))).await;
    let text = foreign::certificate_text(&leaf.pem);
    assert!(text.contains("OCSP - URI:http://evil.test\n"), "{text}");
    assert!(!text.contains("evil.test/crl") && !text.contains("evil.test/delta"), "{text}");
    assert_eq!(leaf.certificate.subject_key_id(), Some(&[1, 2][..]));
    pki.stop().await;
}

/// Asserts that an issuer signs on no path.
async fn signs_nothing(pki: &Pki, issuer: &str, rule: &str) {
    let csr = csr("ec-256", "/CN=a.foo", "");
    let foreign = Ca::root("/CN=Foreign").pem;
    for (endpoint, body) in [
        ("issue/r", json!({ "common_name": "a.foo" })),
        ("sign/r", json!({ "csr": csr, "common_name": "a.foo" })),
        ("sign-verbatim", json!({ "csr": csr })),
        ("sign-verbatim/r", json!({ "csr": csr })),
        ("sign-intermediate", json!({ "csr": csr, "common_name": "a.foo" })),
        ("sign-self-issued", json!({ "certificate": foreign })),
    ] {
        pki.refused(&format!("issuer/{issuer}/{endpoint}"), body, rule).await;
    }
}

#[actix_web::test]
async fn issuer_without_cert_sign_usage_or_revoked_signs_nothing() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    for name in ["silent", "revoked"] {
        pki.root(json!({ "issuer_name": name, "common_name": name })).await;
    }
    pki.post("issuer/silent", json!({ "issuer_name": "silent", "usage": "read-only,crl-signing" })).await;
    signs_nothing(&pki, "silent", "its usage lacks issuing-certificates").await;
    pki.post("issuer/revoked/revoke", json!({})).await;
    signs_nothing(&pki, "revoked", "it is revoked").await;
    let keyless = pki.import_one(&Ca::root("/CN=Keyless").pem).await;
    signs_nothing(&pki, &keyless, "its private key is not in this mount").await;
    // Relying parties reject everything that such a certificate certifies (RFC 5280 section 4.2.1.3).
    let mute = Ca::root_with(foreign::new_key("ec-256"), "/CN=Mute", &CA.replace("keyCertSign,", ""), &[]);
    signs_nothing(&pki, &pki.import_one(&mute.bundle()).await, "keyCertSign").await;
    pki.stop().await;
}

#[actix_web::test]
async fn chains_below_an_intermediate_are_complete() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await.trim().to_owned();
    let made = pki.data("intermediate/generate/internal", json!({ "common_name": "Int", "key_type": "ec" })).await;
    let asked = json!({ "csr": made["csr"], "common_name": "Int", "not_after": "2090-01-01T00:00:00Z" });
    let intermediate = pki.certify(PATH, asked).await.pem;
    let stored = pki.data("intermediate/set-signed", json!({ "certificate": intermediate })).await;
    let id = stored["imported_issuers"][0].as_str().unwrap();
    pki.role(&json!({ "allow_any_name": true })).await;
    let csr = csr("ec-256", "/CN=a.foo", "");
    for (endpoint, body, is_ca) in [
        ("issue/r", json!({ "common_name": "a.foo" }), false),
        ("sign/r", json!({ "csr": csr }), false),
        ("sign-verbatim", json!({ "csr": csr }), false),
        ("sign-intermediate", json!({ "csr": csr, "common_name": "Deeper" }), true),
    ] {
        let path = format!("issuer/{id}/{endpoint}");
        let leaf = pki.certify(&path, body.clone()).await;
        let own: Vec<&str> = if is_ca { vec![&leaf.pem] } else { vec![] };
        let chain: Vec<&str> = own.iter().copied().chain([intermediate.as_str(), &root]).collect();
        assert_eq!(leaf.data()["ca_chain"], json!(chain), "{endpoint}");
        assert_eq!(leaf.data()["issuing_ca"], intermediate.as_str(), "{endpoint}");
        openssl_verifies_chain(&root, &[&intermediate], &leaf.pem).unwrap();
        let bundle = pki.data(&path, with(&body, json!({ "format": "pem_bundle" }))).await;
        let blocks = signet::x509::pem::parse_blocks(text(&bundle, "certificate")).unwrap();
        let certificates: Vec<_> = blocks.iter().filter(|(label, _)| label == "CERTIFICATE").collect();
        assert_eq!(certificates.len(), 2, "{endpoint}: the certificate and its issuer, no root");
        assert_eq!(Certificate::parse(&certificates[1].1).unwrap().der(), parse(&intermediate).der());
        assert_eq!(blocks.len(), if endpoint == "issue/r" { 3 } else { 2 });
        if !is_ca {
            let bare = pki.data(&path, with(&body, json!({ "remove_roots_from_chain": true }))).await;
            assert_eq!(bare["ca_chain"], json!([intermediate]), "{endpoint}");
            assert_eq!(bare["issuing_ca"], intermediate.as_str());
        }
    }
    pki.stop().await;
}
