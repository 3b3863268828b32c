//! Certificates and CRLs from elsewhere: their serial numbers may collide with others in this mount.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::json;
use signet::clock::Time;
use signet::x509::crl::{encode_entry, encode_entry_with_extensions};
use signet::x509::extension::{self, extension};
use signet::x509::pem;
use signet::x509::serial::Serial;
use std::time::Duration;

use super::foreign::{CA, Ca, csr, key, new_key};
use super::imported_crl::{list, sent, status};
use super::mount::{Pki, parse, text};
use crate::v1::rights::{granted, only};

fn serial(n: u8) -> Serial {
    Serial::from_octets(&[n]).unwrap()
}

fn leaf(ca: &Ca, n: u8) -> String {
    ca.signs(&csr("ec-256", "/CN=leaf", ""), "keyUsage=digitalSignature", &["-set_serial", &n.to_string()])
}

/// Two CAs in one mount. The CRL of the first one lists number 5 as revoked at the returned time.
async fn two(pki: &Pki) -> ([Ca; 2], [String; 2], i64) {
    let authorities = [Ca::root("/CN=One"), Ca::root("/CN=Two")];
    let ids = [pki.import_one(&authorities[0].bundle()).await, pki.import_one(&authorities[1].bundle()).await];
    let at = pki.now();
    let revoked = pki.now() - 60;
    let entries = [encode_entry(&serial(5), revoked, None, None)];
    let answer = sent(&pki.app.client, list(&authorities[0], 9, &entries, at, &[])).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    (authorities, ids, revoked)
}

#[actix_web::test]
async fn submitted_certificate_with_serial_of_another_is_rejected() {
    let pki = Pki::empty().await;
    let ([one, other], [id, other_id], revoked) = two(&pki).await;
    let key = key("ec-256");
    let brought = leaf(&other, 5);
    pki.refused("revoke", json!({ "certificate": brought }), "certificate: its serial collides").await;
    let client = only(&pki.app, "with-key", &granted("pki/revoke-with-key", &["update"])).await;
    let body = json!({ "certificate": brought, "private_key": key, "reason": "keyCompromise" });
    let answer = client.post("pki/revoke-with-key", body).await;
    assert!(answer.status == 400 && answer.error().contains("its serial collides"), "{}", answer.text);
    let of_one = pki.crl(&id).await;
    assert!(of_one.entry("05").is_some_and(|entry| !entry.contains("Key Compromise")), "{}", of_one.text);
    assert_eq!(pki.crl(&other_id).await.serials(), [""; 0]);
    assert_eq!(status(&pki, &one.pem, "05").await, "revoked");
    assert_eq!(status(&pki, &other.pem, "05").await, "unknown");
    assert_eq!(pki.list("certs").await.len(), 0, "nothing was stored");
    // The certificate of the first CA with this number has been revoked since that time.
    let own = leaf(&one, 5);
    let answer = pki.post("revoke", json!({ "certificate": own })).await;
    assert_eq!(answer.body["data"]["revocation_time"], revoked, "{}", answer.text);
    // The revocations of a deleted issuer apply only to issuers with its name and key.
    let answer = pki.app.client.delete(&format!("pki/issuer/{id}")).await;
    assert!(answer.status < 300, "{}", answer.text);
    assert_eq!(status(&pki, &other.pem, "05").await, "unknown");
    pki.import_one(&one.bundle()).await;
    assert_eq!(status(&pki, &one.pem, "05").await, "revoked");
    // The number of the CA certificate itself.
    let ca = Ca::root_with(new_key("ec-256"), "/CN=Root", CA, &["-set_serial", "1"]);
    let id = pki.import_one(&ca.bundle()).await;
    let brought = leaf(&ca, 1);
    pki.refused("revoke", json!({ "certificate": brought }), "certificate: its serial collides").await;
    assert_eq!(status(&pki, &ca.pem, "01").await, "good", "the root's own");
    let at = pki.now();
    let entries = [1, 2].map(|n| encode_entry(&serial(n), at, None, None));
    let answer = sent(&pki.app.client, list(&ca, 9, &entries, at, &[])).await;
    assert!(answer.text.contains("serial number 01 is the issuer's own"), "{}", answer.text);
    assert_eq!(pki.crl(&id).await.serials(), ["02"]);
    pki.stop().await;
}

#[actix_web::test]
async fn expired_submitted_certificate_stays_revoked() {
    let at = Time::from_unix_timestamp(signet::clock::Clock::system().now().unix_timestamp()).unwrap();
    let pki = Pki::at(at).await;
    let ([one, _], _, revoked) = two(&pki).await;
    let own = leaf(&one, 5);
    pki.app.clock.set(at + Duration::from_secs(1_001 * 86_400));
    let answer = pki.post("revoke", json!({ "certificate": own })).await;
    assert_eq!(answer.body["data"]["revocation_time"], revoked, "{}", answer.text);
    pki.stop().await;
}

#[actix_web::test]
async fn concurrent_revocations_of_one_certificate_agree() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Root");
    pki.import_one(&ca.bundle()).await;
    for n in 1..=5 {
        let brought = leaf(&ca, n);
        let asked = (0..8).map(|_| pki.app.client.post("pki/revoke", json!({ "certificate": brought })));
        let answers = join_all(asked).await;
        for answer in &answers {
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.body["data"], answers[0].body["data"]);
        }
    }
    assert_eq!(pki.list("certs/revoked").await.len(), 5);
    pki.stop().await;
}

/// A CRL with the maximum number of entries blocks only the revocations of its own issuer.
#[actix_web::test]
async fn full_crl_fails_revocations_of_its_own_issuer_only() {
    let pki = Pki::empty().await;
    let one = Ca::root("/CN=One");
    let other = Ca::root("/CN=Two");
    let id = pki.import_one(&one.bundle()).await;
    let other_id = pki.import_one(&other.bundle()).await;
    pki.post("config/crl", json!({ "max_crl_entries": 2 })).await;
    let revoke = async |brought: &str| pki.app.client.post("pki/revoke", json!({ "certificate": brought })).await;
    for n in 1..=2 {
        assert_eq!(revoke(&leaf(&other, n)).await.status, 200);
    }
    let third = leaf(&other, 3);
    let failed = revoke(&third).await;
    assert!(failed.status == 503 && failed.error().contains("max_crl_entries"), "{}", failed.text);
    let done = revoke(&leaf(&one, 4)).await;
    assert!(done.status == 200 && done.warnings().contains("the CRL of another issuer"), "{}", done.text);
    assert_eq!(pki.crl(&id).await.serials(), ["04"]);
    let again = revoke(&third).await;
    assert!(again.status == 503 && again.error().contains("max_crl_entries"), "{}", again.text);
    assert_eq!(pki.crl(&other_id).await.serials().len(), 2);
    // A higher limit publishes the pending revocation.
    pki.post("config/crl", json!({ "max_crl_entries": 10 })).await;
    assert_eq!(pki.crl(&other_id).await.serials().len(), 3);
    assert_eq!(revoke(&third).await.status, 200);
    pki.stop().await;
}

#[actix_web::test]
async fn certificate_on_hold_can_be_revoked_permanently() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Root");
    let id = pki.import_one(&ca.bundle()).await;
    let at = pki.now();
    let entries: Vec<Vec<u8>> = (1..=3).map(|n| encode_entry(&serial(n), at - 60, Some(6), None)).collect();
    let answer = sent(&pki.app.client, list(&ca, 9, &entries, at, &[])).await;
    assert!(answer.warnings().contains("certificateHold"), "{}", answer.text);
    pki.post("revoke", json!({ "serial_number": "01" })).await;
    pki.post("revoke", json!({ "serial_number": "02", "reason": "superseded" })).await;
    let crl = pki.crl(&id).await;
    let entry_of = |number: &str| crl.entry(number).unwrap();
    assert!(!entry_of("01").contains("Reason") && entry_of("02").contains("Superseded"), "{}", crl.text);
    assert!(entry_of("03").contains("Certificate Hold"), "{}", crl.text);
    let late = json!({ "serial_number": "02", "reason": "cessationOfOperation" });
    pki.warns("revoke", late, "already revoked").await;
    pki.stop().await;
}

#[actix_web::test]
async fn resign_crls_rejects_crls_with_other_scopes() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Root");
    pki.import_one(&ca.bundle()).await;
    let at = pki.now();
    let path = "issuer/default/resign-crls";
    let ask = |der: &[u8]| json!({ "crls": [STANDARD.encode(der)], "crl_number": 9 });
    let scope = |content: &[u8]| extension(&[0x55, 0x1d, 28], true, &[&[0x30, content.len() as u8], content].concat());
    let plain = [encode_entry(&serial(5), at, None, None)];
    let removed = [encode_entry(&serial(5), at, Some(8), None)];
    let unknown = extension(&[0x2a, 3, 4], true, &[5, 0]);
    let indirect = extension(&[0x55, 0x1d, 29], true, &[0x30, 0]);
    let of = |further: &signet::x509::pieces::Extensions| [encode_entry_with_extensions(&serial(5), at, further)];
    for (der, rule) in [
        (list(&ca, 1, &plain, at, &[&scope(&[0x84, 1, 0xff])]), "CRL index 0: crl: indirect CRLs"),
        (list(&ca, 1, &plain, at, &[&scope(&[0x85, 1, 0xff])]), "CRL index 0: crl: CRLs of attribute certificates"),
        (list(&ca, 1, &plain, at, &[&unknown]), "CRL index 0: crl: critical extension 1.2.3.4 is not supported"),
        (list(&ca, 2, &removed, at, &[&extension::delta_crl_indicator(1)]), "serial number 05: removeFromCRL"),
        (list(&ca, 1, &of(&indirect), at, &[]), "serial number 05: names another issuer"),
        (list(&ca, 1, &of(&unknown), at, &[]), "serial number 05: critical extension 1.2.3.4 is not supported"),
    ] {
        pki.refused(path, ask(&der), rule).await;
    }
    let delta = list(&ca, 2, &plain, at, &[&extension::delta_crl_indicator(1)]);
    assert_eq!(pki.post(path, ask(&delta)).await.status, 200);
    let partial = pki.post(path, ask(&list(&ca, 1, &plain, at, &[&scope(&[0x81, 1, 0xff])]))).await;
    assert!(partial.status == 200 && partial.warnings().contains("do not cover all"), "{}", partial.text);
    pki.stop().await;
}

#[actix_web::test]
async fn sign_self_issued_rejects_a_used_serial_number() {
    let pki = Pki::start().await;
    let path = "root/sign-self-issued";
    for serial in [pki.leaf().await.serial(), parse(&pki.default_pem().await).serial().to_string()] {
        let number = format!("0x{}", serial.replace(':', ""));
        let other = Ca::root_with(new_key("ec-256"), "/CN=Other", CA, &["-set_serial", &number]);
        let taken = json!({ "certificate": other.pem });
        pki.refused(path, taken, "is that of another certificate of the issuer").await;
    }
    // A certificate of another issuer keeps its number: numbers are unique per issuer.
    let other = pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    let signed = pki.data(path, json!({ "certificate": other["certificate"] })).await;
    assert!(pem::parse_blocks(text(&signed, "certificate")).is_ok());
    pki.stop().await;
}
