//! Size limits, checked before the input is processed: certificates and CSRs with their extensions and names, bundles,
//! lists. Each error names the field and the limit. `v1::caps` has the limits of lists and texts of settings.

use serde_json::{Value, json};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::extension::{basic_constraints, extension};
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::oid::{self, parse_oid};
use signet::x509::pieces::{Extensions, Name, Rdns};
use signet::x509::serial::Serial;
use signet::x509::tbs::{CertificateTbs, encode_signed};
use signet::x509::writer::{SEQUENCE, SET, build, context, context_constructed};
use signet::x509::{pem, time};

use super::foreign::{self, CA, Ca, csr, csr_of_pieces, p256_spki, signed_by_p256};
use super::mount::{Pki, with};

/// Returns `count` extensions with different identifiers and no content.
fn extensions(count: usize) -> Vec<Extensions> {
    (0..count).map(|n| extension(&parse_oid(&format!("1.3.6.1.4.1.99999.{n}")).unwrap(), false, &[5, 0])).collect()
}

/// Returns a CA certificate with `count` extensions and an invalid signature.
fn certificate(count: usize) -> String {
    let mut all = vec![basic_constraints(true, None)];
    all.extend(extensions(count - 1));
    let pieces: Vec<&Extensions> = all.iter().collect();
    let algorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);
    let subject = common_name("Very Long");
    let tbs = CertificateTbs {
        serial: &Serial::random(),
        algorithm,
        issuer: &subject,
        not_before: time::from_epoch(1_700_000_000),
        not_after: time::from_epoch(2_500_000_000),
        subject: &subject,
        spki: &p256_spki(),
        extensions: &pieces,
    };
    pem::encode("CERTIFICATE", &encode_signed(&tbs.encode(), algorithm, &[0x30, 6, 2, 1, 1, 2, 1, 1]))
}

fn common_name(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

fn request_of(extensions: &[Extensions]) -> String {
    csr_of_pieces(&common_name("a.test"), &extensions.iter().collect::<Vec<_>>())
}

fn host_names(count: usize) -> Extensions {
    let names = build(SEQUENCE, 0, |w| (0..count).for_each(|n| w.tlv(context(2), format!("n{n}.test").as_bytes())));
    extension(oid::SUBJECT_ALT_NAME, false, &names)
}

/// Returns the paths that accept a certificate, each with the field and a body.
fn takers(pem: &str) -> [(&'static str, &'static str, Value); 7] {
    let key = foreign::key("ec-256");
    [
        ("revoke", "certificate", json!({ "certificate": pem })),
        ("revoke-with-key", "certificate", json!({ "certificate": pem, "private_key": key })),
        ("root/sign-self-issued", "certificate", json!({ "certificate": pem })),
        ("intermediate/set-signed", "certificate", json!({ "certificate": pem })),
        ("issuers/import/cert", "pem_bundle", json!({ "pem_bundle": pem })),
        ("issuers/import/bundle", "pem_bundle", json!({ "pem_bundle": pem })),
        ("config/ca", "pem_bundle", json!({ "pem_bundle": pem })),
    ]
}

#[actix_web::test]
async fn certificate_with_too_many_extensions_is_rejected() {
    let pki = Pki::start().await;
    let many = certificate(101);
    let long = certificate(35_000);
    let longest = certificate(64_000);
    assert!(many.len() < 64 << 10 && long.len() < 1 << 20 && longest.len() > 1_600_000, "{}", long.len());
    for (path, field, body) in takers(&many) {
        pki.refused(path, body.clone(), "more than 100 extensions").await;
        pki.refused(path, body, field).await;
    }
    for (path, field, body) in takers(&long) {
        let rule = if field == "certificate" && path != "intermediate/set-signed" { "64 KiB" } else { "512 KiB" };
        pki.refused(path, body, &format!("{field}: longer than {rule}")).await;
    }
    for (path, field, body) in takers(&longest) {
        pki.refused(path, body, &format!("{field}: longer than 1048576 bytes")).await;
    }
    // One that fits into a bundle, but is larger than any real certificate.
    let one = certificate(5000);
    assert!(one.len() > 64 << 10 && one.len() < 512 << 10);
    pki.refused("issuers/import/cert", json!({ "pem_bundle": one }), "pem_bundle: block 0: certificate: longer than")
        .await;
    pki.refused("revoke", json!({ "certificate": certificate(100) }), "not signed by an issuer of this mount").await;
    pki.stop().await;
}

#[actix_web::test]
async fn csr_with_too_many_extensions_names_or_attributes_is_rejected() {
    let pki = Pki::start().await;
    pki.role(&json!({ "allow_any_name": true })).await;
    let long_subject = {
        let values: Rdns = (0..1001).map(|n| rdn(Attribute::OrganizationalUnit, &[n.to_string()])).collect();
        name::name(&[&values])
    };
    let attributes = build(SEQUENCE, 0, |w| {
        w.integer(0);
        w.raw(common_name("a.test").as_der());
        w.raw(&p256_spki());
        w.nest(context_constructed(0), |w| {
            for n in 0..101 {
                w.nest(SEQUENCE, |w| {
                    w.oid(&parse_oid(&format!("1.3.6.1.4.1.99999.{n}")).unwrap());
                    w.nest(SET, |w| w.integer(n));
                });
            }
        });
    });
    let long_name = build(SEQUENCE, 0, |w| w.tlv(context(2), "a".repeat(4097).as_bytes()));
    for (csr, rule) in [
        (request_of(&extensions(101)), "csr: more than 100 extensions"),
        (request_of(&[host_names(1001)]), "csr: more than 1000 subject alternative names"),
        (request_of(&[extension(oid::SUBJECT_ALT_NAME, false, &long_name)]), "csr: a name is longer than 4096 octets"),
        (csr_of_pieces(&long_subject, &[]), "csr: more than 1000 attributes in a subject"),
        (
            pem::encode("CERTIFICATE REQUEST", &signed_by_p256(&attributes)),
            "csr: more than 100 attributes in a request",
        ),
    ] {
        for path in ["sign/r", "sign-verbatim", "root/sign-intermediate"] {
            pki.refused(path, json!({ "csr": csr, "common_name": "a.test" }), rule).await;
        }
    }
    // The server adds its own extensions, and must be able to accept the resulting certificate later.
    let rule = "csr: more than 100 extensions";
    pki.refused("sign-verbatim", json!({ "csr": request_of(&extensions(100)) }), rule).await;
    pki.certify("sign-verbatim", json!({ "csr": request_of(&extensions(90)) })).await;
    let policies = build(SEQUENCE, 0, |w| {
        for n in 0..1001 {
            w.nest(SEQUENCE, |w| w.oid(&parse_oid(&format!("1.2.3.{n}")).unwrap()));
        }
    });
    let csr = request_of(&[extension(oid::CERTIFICATE_POLICIES, false, &policies)]);
    pki.refused("sign-verbatim", json!({ "csr": csr }), "csr: certificatePolicies: more than 1000").await;
    let large = request_of(&[extension(&parse_oid("1.2.3").unwrap(), false, &vec![4; 47_500])]);
    pki.refused("sign-verbatim", json!({ "csr": large }), "csr: the signed part is longer than 46 KiB").await;
    pki.stop().await;
}

#[actix_web::test]
async fn name_constraint_comparisons_are_limited() {
    let pki = Pki::empty().await;
    let subtrees: Vec<String> = (0..900).map(|n| format!("permitted;DNS.{n}:n{n}.test")).collect();
    let extensions = format!("{CA}\nnameConstraints=critical,@constraints\n[constraints]\n{}", {
        subtrees.iter().map(|line| line.replacen(':', " = ", 1)).collect::<Vec<_>>().join("\n")
    });
    let ca = Ca::root_with(foreign::new_key("ec-256"), "/CN=Constrained", &extensions, &[]);
    let answer = pki.post("issuers/import/bundle", json!({ "pem_bundle": ca.bundle() })).await;
    let id = answer.body["data"]["imported_issuers"][0].as_str().unwrap().to_owned();
    let path = format!("issuer/{id}/sign-verbatim");
    pki.certify(&path, json!({ "csr": request_of(&[host_names(270)]) })).await;
    let rule = "250000 comparisons of names with the name constraints of the issuing chain";
    pki.refused(&path, json!({ "csr": request_of(&[host_names(300)]) }), rule).await;
    pki.stop().await;
}

#[actix_web::test]
async fn lists_of_a_request_have_limits_of_their_own() {
    let pki = Pki::start().await;
    let numbers = |count: usize| (0..count).map(|n| format!("1.2.{n}")).collect::<Vec<_>>().join(",");
    let hosts = |count: usize| (0..count).map(|n| format!("n{n}.test")).collect::<Vec<_>>().join(",");
    let csr = csr("ec-256", "/CN=a.test", "");
    let objects: Vec<Value> = (0..101).map(|n| json!({ "id": format!("1.2.{n}"), "value": "BQA=" })).collect();
    let listed = json!({ "serial_number": "01", "revocation_time": 1, "extensions": objects });
    let crls = vec!["x"; 101];
    let blocks = format!("{}\n", pem::encode("CERTIFICATE", &[0])).repeat(101);
    let below = "root/sign-intermediate";
    let list = "issuer/root/sign-revocation-list";
    for (path, body, rule) in [
        ("intermediate/generate/internal", json!({ "organization": hosts(101) }), "organization: at most 64 entries"),
        (below, json!({ "csr": csr, "excluded_uri_domains": hosts(1001) }), "excluded_uri_domains: at most 1000"),
        (below, json!({ "csr": csr, "ext_key_usage_oids": numbers(101) }), "ext_key_usage_oids: at most 100 entries"),
        ("sign-verbatim", json!({ "csr": csr, "ext_key_usage": hosts(101) }), "ext_key_usage: at most 100 entries"),
        ("sign-verbatim", json!({ "csr": csr, "user_ids": hosts(1001) }), "at most 1000"),
        ("issuer/root/resign-crls", json!({ "crl_number": 1, "crls": crls }), "crls: at most 100 CRLs"),
        (list, json!({ "crl_number": 1, "extensions": listed["extensions"] }), "extensions: at most 100 extensions"),
        (list, json!({ "crl_number": 1, "revoked_certs": [listed] }), "revoked_certs[0]: at most 100 extensions"),
        ("config/external-policy", json!({ "trusted_ca": blocks }), "trusted_ca: more than 100 PEM blocks"),
        (
            "config/external-policy",
            json!({ "trusted_leaf_certificate_bundle": certificate(101) }),
            "trusted_leaf_certificate_bundle: certificate: more than 100 extensions",
        ),
    ] {
        let body = with(&json!({ "common_name": "Long", "key_type": "ec" }), body);
        pki.refused(path, body, rule).await;
    }
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost" })).await;
    let body = json!({ "serial_number": leaf.serial(), "private_key": "A".repeat(65 << 10) });
    pki.refused("revoke-with-key", body, "private_key: longer than 64 KiB").await;
    pki.stop().await;
}

#[actix_web::test]
async fn issuers_of_one_subject_and_key_are_limited() {
    let pki = Pki::empty().await;
    let key = foreign::new_key("ec-256");
    let again = || Ca::root_with(key.clone(), "/CN=Again", CA, &[]).pem;
    let bundle = |count: usize| (0..count).map(|_| again() + "\n").collect::<String>();
    let rule = "pem_bundle: certificate: this mount has 16 issuers of this subject and key already";
    pki.refused("issuers/import/cert", json!({ "pem_bundle": bundle(17) }), rule).await;
    let imported = pki.post("issuers/import/cert", json!({ "pem_bundle": bundle(16) })).await;
    assert_eq!(imported.body["data"]["imported_issuers"].as_array().unwrap().len(), 16);
    pki.refused("issuers/import/cert", json!({ "pem_bundle": bundle(1) }), rule).await;
    // Each of them could certify all others, but is a complete chain by itself.
    let id = imported.body["data"]["imported_issuers"][3].as_str().unwrap();
    assert_eq!(pki.get(&format!("issuer/{id}")).await["ca_chain"].as_array().unwrap().len(), 1);
    pki.stop().await;
}
