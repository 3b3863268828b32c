//! `sign-self-issued`: another CA's own certificate with this mount's name as issuer, and all other bytes unchanged.

use serde_json::{Value, json};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::certificate::Certificate;
use signet::x509::extension;
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::pieces::{Extensions, Name, Rdns};
use signet::x509::writer::{OCTET_STRING, SEQUENCE, build, context_constructed};
use signet::x509::{oid, pem};

use super::foreign::{self, CA, Ca, csr, openssl_verifies_chain, p256_spki, signature_algorithm, signed_by_p256};
use super::mount::{Pki, parse, with};

const PATH: &str = "root/sign-self-issued";

fn of(certificate: &str) -> Value {
    json!({ "certificate": certificate })
}

/// Signs a certificate: it is signed by the issuer, the response has nothing else, and there is no record.
async fn signed(pki: &Pki, path: &str, request: Value) -> (String, Certificate) {
    let certs = pki.list("certs").await;
    let answer = pki.post(path, request).await;
    let data = &answer.body["data"];
    let members: Vec<_> = data.as_object().unwrap().keys().cloned().collect();
    assert_eq!(members, ["certificate", "issuing_ca", "renew_after"]);
    let text = data["certificate"].as_str().unwrap().to_owned();
    let certificate = parse(&text);
    let issuer = parse(data["issuing_ca"].as_str().unwrap());
    assert!(certificate.is_signed_by(issuer.key()));
    assert_eq!(certificate.issuer(), issuer.subject());
    assert_eq!(certificate.authority_key_id().as_deref(), issuer.subject_key_id());
    assert_eq!(pki.list("certs").await, certs, "it is not recorded");
    (text, certificate)
}

#[actix_web::test]
async fn certificate_must_be_a_self_issued_ca() {
    let pki = Pki::start().await;
    let ca = Ca::root("/CN=Other");
    let refuse = async |certificate: &str, rule: &str| {
        for path in [PATH, "issuer/root/sign-self-issued"] {
            pki.refused(path, of(certificate), rule).await;
        }
    };
    let request = csr("ec-256", "/CN=a.foo", "");
    let own = |extensions: &str| Ca::root_with(foreign::new_key("ec-256"), "/CN=Self", extensions, &[]).pem;
    let below = ca.intermediate("/CN=Below", &[]).pem;
    let small = Ca::root_with(foreign::new_key("rsa-1024"), "/CN=Small", CA, &[]).pem;
    let der = parse(&ca.pem).der().to_vec();
    let no_ca = "certificate: basicConstraints must have cA TRUE";
    for (certificate, rule) in [
        (ca.signs(&request, "keyUsage=digitalSignature", &[]), no_ca),
        (own("keyUsage=digitalSignature"), no_ca),
        (own("basicConstraints=CA:FALSE"), no_ca),
        // keyUsage without keyCertSign is not a CA, regardless of basicConstraints.
        (own(&CA.replace("keyCertSign,", "")), "keyUsage of a CA certificate must have keyCertSign"),
        (below.clone(), "certificate: must be self-issued"),
        // A key that is too small for everything else is not certified here either.
        (small, "certificate: keys of this type need at least 2048 bits"),
        (pem::encode("CERTIFICATE", &[&der[..], &der].concat()), "certificate: "),
        (pem::encode("CERTIFICATE", &der[..der.len() - 1]), "certificate: "),
        (request, "must be of type CERTIFICATE"),
        (String::new(), "certificate: "),
        ("garbage".to_owned(), "certificate: "),
        (pem::encode("CERTIFICATE", &[]), "certificate: "),
    ] {
        refuse(&certificate, rule).await;
    }
    pki.refused(PATH, json!({}), "certificate: ").await;
    // Only the first block is used.
    signed(&pki, PATH, of(&format!("text before\n{}\n{below}\n", ca.pem))).await;
    pki.stop().await;
}

#[actix_web::test]
async fn cross_signed_ca_keeps_its_key_names_and_dates() {
    let pki = Pki::start().await;
    let ca = Ca::root("/O=Other/CN=Other");
    let leaf = ca.signs(
        &csr("ec-256", "/CN=a.foo", ""),
        "subjectAltName=DNS:a.foo\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash",
        &[],
    );
    let before = parse(&ca.pem);
    let (cross, after) = signed(&pki, PATH, of(&ca.pem)).await;
    assert_eq!((after.serial(), after.subject()), (before.serial(), before.subject()));
    assert_eq!((after.not_before(), after.not_after()), (before.not_before(), before.not_after()));
    assert_eq!((after.key().spki(), after.subject_key_id()), (before.key().spki(), before.subject_key_id()));
    // Certificates of the other CA now verify under this one.
    let root = pki.default_pem().await;
    openssl_verifies_chain(&root, &[&cross], &leaf).unwrap();
    assert!(openssl_verifies_chain(&root, &[&ca.pem], &leaf).is_err());
    // For another type of key the issuer's algorithm is used, unless they must match.
    pki.root(json!({ "issuer_name": "rsa", "common_name": "RSA", "key_type": "rsa" })).await;
    let path = "issuer/rsa/sign-self-issued";
    let (text, _) = signed(&pki, path, of(&ca.pem)).await;
    assert_eq!(signature_algorithm(&text), "sha256WithRSAEncryption");
    let matching = json!({ "require_matching_certificate_algorithms": true });
    pki.refused(path, with(&of(&ca.pem), matching.clone()), "require_matching_certificate_algorithms: ").await;
    signed(&pki, PATH, with(&of(&ca.pem), matching)).await;
    pki.stop().await;
}

#[actix_web::test]
async fn signatures_keep_their_algorithm_while_it_is_accepted() {
    let pki = Pki::empty().await;
    pki.root(json!({ "issuer_name": "rsa", "common_name": "RSA", "key_type": "rsa" })).await;
    let pss = ["-sha384", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"];
    let shown = "rsassaPss Hash Algorithm: sha384 Mask Algorithm: mgf1 with sha384 Salt Length: 0x30";
    for (arguments, expected) in [
        (&["-sha512"][..], "sha512WithRSAEncryption"),
        (&["-sha1"], "sha256WithRSAEncryption"),
        (&["-md5"], "sha256WithRSAEncryption"),
        (&["-sha224"], "sha256WithRSAEncryption"),
        (&pss, shown),
    ] {
        let ca = Ca::root_with(foreign::key("rsa-2048"), "/CN=Other", CA, arguments);
        let algorithm = signature_algorithm(&signed(&pki, PATH, of(&ca.pem)).await.0);
        assert!(algorithm.starts_with(expected), "{arguments:?}: {algorithm}");
    }
    pki.stop().await;
}

/// An unusual CA certificate, in pieces.
struct Odd {
    extensions: Vec<Extensions>,
    subject: Name,
}

impl Odd {
    /// Strings of old types, unique identifiers, unknown extensions, out of order, and one with BER inside.
    fn new() -> Self {
        let teletex = build(0x31, 0, |w| {
            w.nest(SEQUENCE, |w| {
                w.oid(Attribute::Organization.oid());
                w.tlv(0x14, b"Bucher");
            });
        });
        let common_name = rdn(Attribute::CommonName, &["Odd".to_owned()]);
        Self {
            extensions: vec![
                extension::extension(&[0x2a, 3, 4], false, b"\x30\x80\x00\x00"),
                extension::extension(oid::SUBJECT_KEY_ID, false, &[OCTET_STRING, 3, 1, 2, 3]),
                extension::extension(&[0x2a, 3, 5], true, b"not even DER \xff"),
                extension::extension(oid::AUTHORITY_KEY_ID, false, b"\x30\x05\x80\x03\x01\x02\x03"),
                extension::authority_info_access(&["http://theirs.test/ocsp".to_owned()], &[]),
                extension::crl_distribution_points(&["http://theirs.test/crl".to_owned()]),
                extension::basic_constraints(true, Some(9)),
                extension::extension(oid::KEY_USAGE, false, &[3, 2, 1, 6]),
            ],
            subject: name::name(&[&Rdns::from_der(&teletex).unwrap(), &common_name]),
        }
    }

    fn tbs(&self, issuer: &Name, extensions: &[Extensions]) -> Vec<u8> {
        build(SEQUENCE, 0, |w| {
            w.nest(context_constructed(0), |w| w.integer(2));
            w.integer(77);
            w.raw(SignatureAlgorithm::Ecdsa(Hash::Sha256).der());
            w.raw(issuer.as_der());
            w.nest(SEQUENCE, |w| {
                w.tlv(0x17, b"500101000000Z");
                w.tlv(0x18, b"99991231235959Z");
            });
            w.raw(self.subject.as_der());
            w.raw(&p256_spki());
            w.tlv(0x81, &[0, 1, 2]);
            w.tlv(0x82, &[4, 0xf0]);
            w.nest(context_constructed(3), |w| w.nest(SEQUENCE, |w| extensions.iter().for_each(|e| w.raw(e.as_der()))));
        })
    }
}

#[actix_web::test]
async fn only_issuer_key_id_and_crl_urls_are_replaced() {
    let pki = Pki::start().await;
    let root = parse(&pki.default_pem().await);
    let key_id = extension::authority_key_id(root.subject_key_id().unwrap());
    let odd = Odd::new();
    let certificate = pem::encode("CERTIFICATE", &signed_by_p256(&odd.tbs(&odd.subject, &odd.extensions)));
    let mut expected = odd.extensions.clone();
    expected[3].clone_from(&key_id);
    let (_, after) = signed(&pki, PATH, of(&certificate)).await;
    assert_eq!(after.tbs(), odd.tbs(root.subject(), &expected));
    // With URLs in the mount, its distribution points replace those of the certificate in their position.
    let urls = json!({ "ocsp_servers": "http://own.test/ocsp", "crl_distribution_points": "http://own.test/crl" });
    pki.post("config/urls", urls).await;
    let points = extension::crl_distribution_points(&["http://own.test/crl".to_owned()]);
    expected[5].clone_from(&points);
    let (_, after) = signed(&pki, PATH, of(&certificate)).await;
    assert_eq!(after.tbs(), odd.tbs(root.subject(), &expected));
    // Replacements without an original are appended.
    let without: Vec<_> = [0, 1, 2, 4, 6, 7].map(|at| odd.extensions[at].clone()).to_vec();
    let certificate = pem::encode("CERTIFICATE", &signed_by_p256(&odd.tbs(&odd.subject, &without)));
    let (_, after) = signed(&pki, PATH, of(&certificate)).await;
    assert_eq!(after.tbs(), odd.tbs(root.subject(), &[without, vec![key_id, points]].concat()));
    pki.stop().await;
}

#[actix_web::test]
async fn signing_an_own_issuer_warns_of_a_repeated_serial_number() {
    let pki = Pki::start().await;
    let new = pki.root(json!({ "issuer_name": "new" })).await;
    let certificate = new["certificate"].as_str().unwrap();
    let path = "issuer/root/sign-self-issued";
    let answer = pki.post(path, json!({ "certificate": certificate })).await;
    assert!(answer.warnings().contains("repeats the issuer and serial number"), "{}", answer.text);
    let repeated = answer.body["data"]["certificate"].as_str().unwrap();
    pki.refused("issuers/import/cert", json!({ "pem_bundle": repeated }), "collides with another certificate").await;
    // The alternative that the warning names.
    let csr =
        pki.post("intermediate/cross-sign", json!({ "common_name": "Test Root", "key_ref": new["key_id"] })).await;
    let csr = csr.body["data"]["csr"].as_str().unwrap();
    let crossed = json!({ "csr": csr, "use_csr_values": true });
    let crossed = pki.certify("issuer/root/sign-intermediate", crossed).await;
    assert_eq!(crossed.certificate.subject(), crossed.certificate.issuer());
    assert_eq!(crossed.certificate.key(), parse(certificate).key());
    let imported = pki.post("issuers/import/cert", json!({ "pem_bundle": crossed.pem })).await;
    assert_eq!(imported.body["data"]["imported_issuers"].as_array().map(Vec::len), Some(1), "{}", imported.text);
    pki.stop().await;
}

#[actix_web::test]
async fn unusual_extensions_warn_as_on_import() {
    let pki = Pki::start().await;
    for (extensions, concern) in [
        ("1.2.3.4=critical,ASN1:NULL", "the extension 1.2.3.4 is critical"),
        ("nameConstraints=critical,permitted;DNS:.foo.test", "begins with a dot"),
    ] {
        let extensions = format!("{}\n{extensions}", CA);
        let other = Ca::root_with(foreign::new_key("ec-256"), "/CN=Other", &extensions, &[]);
        let warnings = pki.post("root/sign-self-issued", json!({ "certificate": other.pem })).await.warnings();
        assert!(warnings.contains(concern), "{extensions}: {warnings}");
        let imported = pki.post("issuers/import/cert", json!({ "pem_bundle": other.pem })).await.warnings();
        assert!(imported.contains(concern), "{extensions}: {imported}");
    }
    pki.stop().await;
}
