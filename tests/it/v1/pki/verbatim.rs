//! `sign-verbatim`: the certificate has the contents of the CSR byte for byte, and is never a CA.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use signet::x509::certificate::Certificate;
use signet::x509::csr::Csr;
use signet::x509::extension;
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::pieces::{Extensions, Name, Rdns};
use signet::x509::writer::{SEQUENCE, UTF8_STRING, build};
use signet::x509::{oid, pem};

use super::foreign::{self, csr, csr_of_pieces, csr_with};
use super::mount::{Leaf, Pki, with};

/// Returns a request with a CSR for `/CN=a.foo` and these extensions.
fn of(extensions: &str) -> Value {
    json!({ "csr": csr("ec-256", "/CN=a.foo", extensions) })
}

/// Same as [`of`], with extensions as DER pieces.
fn of_pieces(extensions: &[&Extensions]) -> Value {
    json!({ "csr": csr_of_pieces(&common_name("a.foo"), extensions) })
}

fn common_name(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

/// Identifiers of the server's own extensions.
const SKI: &str = "2.5.29.14";
const AKI: &str = "2.5.29.35";
const AIA: &str = "1.3.6.1.5.5.7.1.1";
const CDP: &str = "2.5.29.31";
const FRESHEST: &str = "2.5.29.46";

async fn verbatim(pki: &Pki, request: Value) -> Leaf {
    let leaf = pki.certify("sign-verbatim", request).await;
    assert!(!leaf.certificate.is_ca());
    leaf
}

#[actix_web::test]
async fn extensions_are_copied_byte_for_byte() {
    let pki = Pki::start().await;
    let request = of("1.2.3.4 = critical,ASN1:UTF8String:mine\nkeyUsage = digitalSignature,nonRepudiation\n\
         subjectAltName = DNS:A.foo,email:x@a.foo,IP:10.0.0.1,IP:::1,URI:urn:a:b,RID:1.2.3.4,\
         otherName:1.3.6.1.4.1.311.20.2.3;UTF8:me,otherName:1.2.3;IA5STRING:x,dirName:dir\n\
         extendedKeyUsage = critical,codeSigning,1.2.3.4.5\ntlsfeature = status_request\n\
         certificatePolicies = 1.2.3\n1.2.3.5 = DER:00ff\n[dir]\nO = Directory");
    let leaf = verbatim(&pki, request.clone()).await;
    let asked = Csr::from_pem(request["csr"].as_str().unwrap()).unwrap();
    assert_eq!(asked.extensions.len(), 7);
    for extension in &asked.extensions {
        // The bytes are openssl's, not a re-encoding by this server.
        let raw = extension.raw.as_der();
        assert!(asked.der().windows(raw.len()).any(|window| window == raw), "{}", extension.oid_text());
        assert_eq!(leaf.raw(&extension.oid_text()).as_ref(), Some(&extension.raw), "{}", extension.oid_text());
    }
    // The server's own extensions come first, and the copies keep their order.
    let mut order = vec![SKI.to_owned(), AKI.to_owned()];
    order.extend(asked.extensions.iter().map(|e| e.oid_text()));
    assert_eq!(leaf.extension_ids(), order);
    assert_eq!(leaf.extension("keyUsage"), Some((false, "Digital Signature, Non Repudiation".to_owned())));
    let sans = leaf.sans();
    assert_eq!(sans.iter().filter(|name| name.contains("1.3.6.1.4.1.311.20.2.3") || name.contains("UPN")).count(), 1);
    assert_eq!(sans.len(), 9, "{sans:?}");
    assert_eq!(leaf.certificate.subject(), &asked.subject);
    assert_eq!(leaf.certificate.key().spki(), asked.key.spki());
    pki.stop().await;
}

#[actix_web::test]
async fn subjects_are_copied_byte_for_byte() {
    let pki = Pki::start().await;
    // TeletexString, BMPString, a repeated attribute, unknown ones, an empty value.
    let pair = |oid: &[u8], tag: u8, value: &[u8]| {
        let rdn = build(0x31, 0, |w| {
            w.nest(SEQUENCE, |w| {
                w.oid(oid);
                w.tlv(tag, value);
            });
        });
        Rdns::from_der(&rdn).unwrap()
    };
    let subject = name::name(&[
        &pair(Attribute::Organization.oid(), 0x14, b"Bucher"),
        &pair(Attribute::CommonName.oid(), UTF8_STRING, b"one"),
        &pair(Attribute::CommonName.oid(), 0x1e, b"\0t\0w\0o"),
        &pair(&[0x2a, 3], 0x12, b"5 5"),
        &pair(&[0x2a, 4], 0x0c, b""),
    ]);
    let leaf = verbatim(&pki, json!({ "csr": csr_of_pieces(&subject, &[]) })).await;
    assert_eq!(leaf.certificate.subject(), &subject);
    // `user_ids` are appended without validation.
    let request = json!({ "csr": csr_of_pieces(&subject, &[]), "user_ids": "humer,b" });
    let leaf = verbatim(&pki, request).await;
    let ids = ["humer", "b"].map(|id| rdn(Attribute::UserId, &[id.to_owned()]));
    assert_eq!(leaf.certificate.subject(), &subject.with_rdns(&ids.into_iter().collect()).unwrap());
    // An empty subject is allowed with a SAN, which is then critical.
    let san = extension::extension(oid::SUBJECT_ALT_NAME, false, &build(SEQUENCE, 0, |w| w.tlv(0x82, b"a.foo")));
    let leaf = verbatim(&pki, json!({ "csr": csr_of_pieces(&name::name(&[]), &[&san]) })).await;
    assert_eq!(leaf.extension("subjectAltName"), Some((true, "DNS:a.foo".to_owned())));
    assert!(leaf.answer.warnings().contains("subjectAltName was marked critical"), "{}", leaf.answer.text);
    pki.refused("sign-verbatim", json!({ "csr": csr_of_pieces(&name::name(&[]), &[]) }), "the certificate has no name")
        .await;
    pki.stop().await;
}

#[actix_web::test]
async fn explicit_default_of_a_csr_extension_is_dropped() {
    let pki = Pki::start().await;
    // An explicit FALSE is not DER: the extension is copied without it.
    let explicit = build(SEQUENCE, 0, |w| {
        w.oid(&[0x2a, 3]);
        w.tlv(0x01, &[0]);
        w.tlv(0x04, b"\x01\x02\x03");
    });
    let explicit = Extensions::from_der(&explicit).unwrap();
    let leaf = verbatim(&pki, of_pieces(&[&explicit])).await;
    assert_eq!(leaf.raw("1.2.3"), Some(extension::extension(&[0x2a, 3], false, b"\x01\x02\x03")));
    // `signed.rs` has extensions with invalid contents.
    let constraints = extension::extension(oid::NAME_CONSTRAINTS, true, b"\x30\x09\xa0\x07\x30\x05\x82\x03foo");
    pki.refused("sign-verbatim", of_pieces(&[&constraints]), "nameConstraints need cA TRUE").await;
    pki.refused("sign-verbatim", of_pieces(&[&explicit, &explicit]), "csr: an extension appears twice").await;
    pki.stop().await;
}

#[actix_web::test]
async fn usages_of_the_request_are_defaults_only() {
    let pki = Pki::start().await;
    let usage = |leaf: &Leaf| leaf.extension("keyUsage");
    let purposes = |leaf: &Leaf| leaf.extension("extendedKeyUsage").map(|(_, text)| text);
    let leaf = verbatim(&pki, of("")).await;
    assert_eq!(usage(&leaf), Some((true, "Digital Signature, Key Encipherment, Key Agreement".to_owned())));
    assert_eq!(purposes(&leaf), None);
    for none in [json!([]), json!("")] {
        assert_eq!(usage(&verbatim(&pki, with(&of(""), json!({ "key_usage": none }))).await), None, "{none}");
    }
    let asked = json!({ "key_usage": ["datAencipherment", "KeyUsageDigitalSignature"],
        "ext_key_usage": "ServerAuth,emailprotection", "ext_key_usage_oids": ["1.2.3.4"] });
    let leaf = verbatim(&pki, with(&of(""), asked.clone())).await;
    assert_eq!(usage(&leaf), Some((true, "Digital Signature, Data Encipherment".to_owned())));
    assert_eq!(purposes(&leaf).as_deref(), Some("TLS Web Server Authentication, E-mail Protection, 1.2.3.4"));
    // Values of the CSR take precedence.
    let own = of("keyUsage = keyAgreement\nextendedKeyUsage = timeStamping");
    let leaf = verbatim(&pki, with(&own, asked)).await;
    assert_eq!(usage(&leaf), Some((false, "Key Agreement".to_owned())));
    assert_eq!(purposes(&leaf).as_deref(), Some("Time Stamping"));
    pki.refused("sign-verbatim", with(&of(""), json!({ "ext_key_usage_oids": "x" })), "ext_key_usage_oids: ").await;
    pki.stop().await;
}

#[actix_web::test]
async fn ca_csrs_and_cert_sign_usage_are_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    for path in ["sign-verbatim", "sign-verbatim/r", "issuer/root/sign-verbatim", "issuer/root/sign-verbatim/r"] {
        for ca in ["CA:TRUE", "critical,CA:TRUE", "critical,CA:TRUE,pathlen:0"] {
            let request = of(&format!("basicConstraints = {ca}"));
            pki.refused(path, request, "csr: basicConstraints have cA TRUE").await;
        }
        // keyCertSign in any letter case, in the CSR and in the request.
        for usage in ["keyCertSign", "critical,digitalSignature,keyCertSign,cRLSign"] {
            pki.refused(path, of(&format!("keyUsage = {usage}")), "csr: keyUsage has keyCertSign").await;
        }
        for usage in ["certsign", "DigitalSignature,KeyUsageCertSign"] {
            let request = with(&of(""), json!({ "key_usage": usage }));
            pki.refused(path, request, "key_usage: CertSign belongs to CA certificates").await;
        }
    }
    // cRLSign alone does not make a CA.
    let leaf = verbatim(&pki, of("keyUsage = critical,cRLSign")).await;
    assert_eq!(leaf.extension("keyUsage"), Some((true, "CRL Sign".to_owned())));
    // cA FALSE is copied from the CSR, or added on request.
    let leaf = verbatim(&pki, of("basicConstraints = CA:FALSE")).await;
    assert_eq!(leaf.extension("basicConstraints"), Some((false, "CA:FALSE".to_owned())));
    let leaf = verbatim(&pki, with(&of(""), json!({ "basic_constraints_valid_for_non_ca": true }))).await;
    assert_eq!(leaf.extension("basicConstraints"), Some((true, "CA:FALSE".to_owned())));
    pki.role(&json!({ "basic_constraints_valid_for_non_ca": true })).await;
    let by_role = pki.certify("sign-verbatim/r", of("")).await;
    assert_eq!(by_role.extension("basicConstraints"), Some((true, "CA:FALSE".to_owned())));
    let overruled = with(&of(""), json!({ "basic_constraints_valid_for_non_ca": false }));
    assert_eq!(pki.certify("sign-verbatim/r", overruled).await.extension("basicConstraints"), None);
    pki.stop().await;
}

#[actix_web::test]
async fn urls_of_the_mount_replace_those_of_the_csr() {
    let pki = Pki::start().await;
    let request = of("subjectKeyIdentifier = 0102\nauthorityInfoAccess = OCSP;URI:http://evil.test\n\
         crlDistributionPoints = URI:http://evil.test/crl\nfreshestCRL = URI:http://evil.test/delta\n\
         2.5.29.35 = DER:30058003010203");
    let asked = Csr::from_pem(request["csr"].as_str().unwrap()).unwrap();
    let of_csr = |oid: &[u8]| Some(asked.extension(oid).unwrap().raw.clone());
    // Without URLs in the mount those of the CSR are copied. The AKI is always the issuer's; `certify` checks it.
    let leaf = verbatim(&pki, request.clone()).await;
    assert_eq!(leaf.certificate.subject_key_id(), Some(&[1, 2][..]));
    assert_eq!(leaf.raw(AIA), of_csr(oid::AUTHORITY_INFO_ACCESS));
    assert_eq!(leaf.raw(CDP), of_csr(oid::CRL_DISTRIBUTION_POINTS));
    assert_eq!(leaf.raw(FRESHEST), of_csr(oid::FRESHEST_CRL));
    let urls = json!({ "delta_crl_distribution_points": "http://own.test/delta" });
    pki.post("config/urls", urls.clone()).await;
    let leaf = verbatim(&pki, request.clone()).await;
    assert_eq!(leaf.raw(FRESHEST), Some(extension::freshest_crl(&["http://own.test/delta".to_owned()])));
    assert_eq!(leaf.raw(AIA), of_csr(oid::AUTHORITY_INFO_ACCESS));
    let all = json!({ "ocsp_servers": "http://own.test/ocsp", "crl_distribution_points": "http://own.test/crl" });
    pki.post("config/urls", with(&urls, all)).await;
    let leaf = verbatim(&pki, request).await;
    let text = foreign::certificate_text(&leaf.pem);
    assert!(!text.contains("evil.test"), "{text}");
    for url in ["http://own.test/ocsp", "http://own.test/crl", "http://own.test/delta"] {
        assert_eq!(text.matches(url).count(), 1, "{url}: {text}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn roles_determine_only_dates_and_storage() {
    let pki = Pki::start().await;
    for path in ["sign-verbatim/unknown", "issuer/root/sign-verbatim/unknown"] {
        pki.refused(path, of(""), "unknown role: unknown").await;
    }
    // The role's rules for names and keys do not apply.
    pki.role(&json!({ "allowed_domains": "other.test", "key_type": "rsa", "key_bits": 4096, "ttl": "5h",
        "max_ttl": "6h", "not_before_duration": "2h", "no_store": true, "organization": "Role" }))
        .await;
    let leaf = pki.certify("sign-verbatim/r", of("subjectAltName = DNS:evil.test")).await;
    assert_eq!((leaf.subject().as_str(), leaf.sans()), ("CN=a.foo", vec!["DNS:evil.test".to_owned()]));
    assert_eq!(leaf.certificate.not_after() - leaf.certificate.not_before(), 7 * 3600);
    assert_eq!(pki.app.client.get(&format!("pki/cert/{}", leaf.serial())).await.status, 404);
    assert!(!pki.list("certs").await.contains(&leaf.serial()));
    let seven = with(&of(""), json!({ "ttl": "7h" }));
    pki.refused("sign-verbatim/r", seven.clone(), "ttl: 7h is above the role's max_ttl, 6h").await;
    // Without a role the certificate is stored, and the mount's lifetimes apply.
    let leaf = verbatim(&pki, seven).await;
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["certificate"], leaf.pem);
    let beyond = with(&of(""), json!({ "ttl": "769h" }));
    pki.refused("sign-verbatim", beyond, "ttl: 769h is above the mount's max_lease_ttl").await;
    pki.stop().await;
}

#[actix_web::test]
async fn the_issuer_is_the_paths_then_the_roles_then_the_default() {
    let pki = Pki::start().await;
    pki.root(json!({ "issuer_name": "second", "common_name": "Second" })).await;
    pki.root(json!({ "issuer_name": "third", "common_name": "Third" })).await;
    pki.role(&json!({ "issuer_ref": "second" })).await;
    for (path, issuer) in [
        ("sign-verbatim", "CN=Test Root"),
        ("sign-verbatim/r", "CN=Second"),
        ("issuer/third/sign-verbatim", "CN=Third"),
        ("issuer/third/sign-verbatim/r", "CN=Third"),
        ("issuer/default/sign-verbatim/r", "CN=Test Root"),
    ] {
        let leaf = pki.certify(path, of("")).await;
        assert_eq!(foreign::subject(leaf.data()["issuing_ca"].as_str().unwrap()), issuer, "{path}");
    }
    pki.refused("issuer/unknown/sign-verbatim", of(""), "issuer_ref: issuer not found").await;
    pki.stop().await;
}

#[actix_web::test]
async fn weak_or_malformed_csrs_are_rejected() {
    let pki = Pki::start().await;
    let (label, mut der) = pem::parse_first_block(&csr("ec-256", "/CN=a", "")).unwrap().unwrap();
    *der.last_mut().unwrap() ^= 1;
    for (csr, rule) in [
        (csr("rsa-1024", "/CN=a", ""), "csr: keys of this type need at least 2048"),
        (csr_with("ec-256", "/CN=a", "", &["-sha1"]), "csr: request signature invalid"),
        (csr_with("rsa-2048", "/CN=a", "", &["-sha1"]), "csr: request signature invalid"),
        (csr_with("rsa-2048", "/CN=a", "", &["-md5"]), "csr: request signature invalid"),
        (pem::encode(&label, &der), "csr: request signature invalid"),
        (String::new(), "csr: must not be empty"),
        ("garbage".to_owned(), "csr: contains no data"),
    ] {
        for path in ["sign-verbatim", "root/sign-intermediate"] {
            pki.refused(path, json!({ "csr": csr, "common_name": "A Sub CA" }), rule).await;
        }
    }
    for kind in ["ec-224", "ec-521", "ed25519", "rsa-2048"] {
        verbatim(&pki, json!({ "csr": csr(kind, "/CN=a", "") })).await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn response_formats() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let data = async |more: Value| pki.data("sign-verbatim", with(&of(""), more)).await;
    let pem = data(json!({})).await;
    assert_eq!((&pem["issuing_ca"], &pem["ca_chain"]), (&json!(root), &json!([root])));
    assert!(pem.get("private_key").is_none() && pem.get("private_key_type").is_none());
    assert_eq!(data(json!({ "remove_roots_from_chain": true })).await["ca_chain"], json!([]));
    let bundle = data(json!({ "format": "pem_bundle" })).await;
    assert_eq!(bundle["certificate"].as_str().unwrap().matches("-----BEGIN").count(), 1);
    let der = data(json!({ "format": "der" })).await;
    let der = STANDARD.decode(der["certificate"].as_str().unwrap()).unwrap();
    Certificate::parse(&der).unwrap();
    pki.stop().await;
}
