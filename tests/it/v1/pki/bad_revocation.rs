//! Rejected input of revocation, CRLs, OCSP and tidying: each error names its field and rule. `revocation`,
//! `crl_config`, `ocsp::transport` and `tidy::config` have more of these cases.

use serde_json::{Value, json};
use signet::x509::ocsp::CertIdHash;
use signet::x509::writer::{NULL, OCTET_STRING, SEQUENCE, build};

use super::mount::{Pki, parse, with};
use super::ocsp::{cert_id, request};

#[actix_web::test]
async fn invalid_revocation_fields_are_rejected_by_name() {
    let pki = Pki::start().await;
    let leaf = pki.leaf().await;
    let both = "serial_number, certificate: exactly one of them must be given";
    for (body, rule) in [
        (json!({ "serial_number": null, "certificate": null }), both),
        (json!({ "serial_number": leaf.serial(), "certificate": "" }), both),
        (json!({ "serial_number": "" }), "serial_number: "),
        (json!({ "serial_number": "0x1234" }), "serial_number: "),
        (json!({ "serial_number": "ab:".repeat(21) + "ab" }), "serial_number: "),
        (json!({ "serial_number": format!("{} ", leaf.serial()) + "zz" }), "serial_number: "),
        (json!({ "certificate": "" }), "certificate: too short"),
        (
            json!({ "certificate": leaf.pem.replace("CERTIFICATE", "X509 CRL") }),
            "certificate: must contain a PEM block of type CERTIFICATE",
        ),
    ] {
        pki.refused("revoke", body, rule).await;
    }
    // `revoke-with-key` has the same rules and applies them before it reads the key.
    for body in [json!({}), json!({ "serial_number": leaf.serial(), "certificate": leaf.pem })] {
        pki.refused("revoke-with-key", with(&body, json!({ "private_key": "x" })), both).await;
    }
    let words = ["certificateHold", "removeFromCRL", "cACompromise", "aACompromise", "key compromise", "-1", "01", "7"];
    let numbers = [json!(2), json!(6), json!(256), json!(1.5)];
    for reason in words.map(Value::from).into_iter().chain(numbers) {
        let rule = "reason: must be unspecified, keyCompromise, ";
        pki.refused("revoke", json!({ "serial_number": leaf.serial(), "reason": reason }), rule).await;
    }
    let dates = ["yesterday", "2024-02-29", "2024-02-30T00:00:00Z", "2024-02-29T10:00:00", "1709200800", "-"];
    for date in dates {
        let rule = "invalidity_date: not an RFC 3339 time with zone";
        pki.refused("revoke", json!({ "serial_number": leaf.serial(), "invalidity_date": date }), rule).await;
    }
    for (date, rule) in [
        ("0000-01-01T00:00:00Z", "lies before 1950"),
        ("0001-01-01T00:00:00Z", "lies before 1950"),
        ("1949-12-31T23:59:59Z", "lies before 1950"),
        ("9999-12-31T23:59:59Z", "is later than the revocation"),
    ] {
        let rule = format!("invalidity_date: {rule}");
        let key = json!({ "private_key": leaf.data()["private_key"] });
        let body = json!({ "serial_number": leaf.serial(), "invalidity_date": date });
        pki.refused("revoke", body.clone(), &rule).await;
        pki.refused("revoke-with-key", with(&body, key), &rule).await;
        pki.refused("issuer/default/revoke", json!({ "invalidity_date": date }), &rule).await;
    }
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["revocation_time"], 0);
    pki.stop().await;
}

#[actix_web::test]
async fn durations_beyond_their_bounds_are_rejected_by_name() {
    let pki = Pki::start().await;
    let durations = ["expiry", "ocsp_expiry", "auto_rebuild_grace_period", "delta_rebuild_interval"];
    let before = pki.get("config/crl").await;
    let long = [json!("36601d"), json!("9999999999999h"), json!(4_000_000_000_u64), json!(u64::MAX)];
    let malformed = ["-1s", "1h-", "1 h", "1y", "0x10", "1e3"].map(Value::from);
    for name in durations {
        for value in &long {
            pki.refused("config/crl", json!({ (name): value }), &format!("{name}: must be a")).await;
        }
        for value in &malformed {
            let rule = format!("{name}: must be a duration such as 72h");
            pki.refused("config/crl", json!({ (name): value }), &rule).await;
        }
    }
    for value in [json!(0), json!("0h"), json!(""), json!("999ms")] {
        pki.refused("config/crl", json!({ "expiry": value }), "expiry: must be at least one second").await;
    }
    assert_eq!(pki.get("config/crl").await, before);
    // CRLs whose content comes from the caller have the same rules.
    for (value, rule) in [
        (json!("-1h"), "next_update: must be a duration"),
        (json!("36601d"), "next_update: must be at most 100 years"),
        (json!("0s"), "next_update: must be at least one second"),
        (json!("500ms"), "next_update: must be at least one second"),
    ] {
        for path in ["issuer/root/sign-revocation-list", "issuer/root/resign-crls"] {
            pki.refused(path, json!({ "crl_number": 1, "next_update": value }), rule).await;
        }
    }
    let task = json!({ "tidy_cert_store": true });
    let refused = async |body: Value, rule: &str| {
        pki.refused("tidy", with(&task, body.clone()), rule).await;
        pki.refused("config/auto-tidy", body, rule).await;
    };
    for name in ["safety_buffer", "revoked_safety_buffer", "issuer_safety_buffer", "acme_account_safety_buffer"] {
        for value in [json!("4000000d"), json!(u64::MAX), json!("-72h"), json!("1h-2h")] {
            refused(json!({ (name): value }), name).await;
        }
    }
    refused(json!({ "pause_duration": "4000000d" }), "pause_duration: ").await;
    let body = json!({ "min_startup_backoff_duration": "2h", "max_startup_backoff_duration": "1h" });
    pki.refused("config/auto-tidy", body, "max_startup_backoff_duration: must not be below").await;
    pki.stop().await;
}

#[actix_web::test]
async fn malformed_ocsp_requests_are_rejected() {
    let pki = Pki::start().await;
    let root = parse(&pki.default_pem().await);
    let leaf = pki.leaf().await;
    let serial = leaf.certificate.serial();
    let good = request(&[cert_id(CertIdHash::Sha1, &root, &serial)], Some(&[1; 32]));
    assert_eq!(pki.ocsp(&good).await.statuses(), ["good"]);
    for length in 0..good.len() {
        pki.ocsp(&good[..length]).await.assert_fails(400, 1);
    }
    let id = |hash: &[u8], octets: usize, serial: &[u8]| {
        build(SEQUENCE, 128, |w| {
            w.nest(SEQUENCE, |w| {
                w.oid(hash);
                w.tlv(NULL, &[]);
            });
            w.tlv(OCTET_STRING, &vec![1; octets]);
            w.tlv(OCTET_STRING, &vec![1; octets]);
            w.unsigned(serial);
        })
    };
    const MD5: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 5];
    const SHA3_256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 8];
    for (hash, octets, serial) in [
        (MD5, 16, &[1][..]),
        (SHA3_256, 32, &[1]),
        // Hashes of the wrong length, and a serial number that is too long.
        (CertIdHash::Sha1.oid(), 32, &[1]),
        (CertIdHash::ALL[1].oid(), 20, &[1]),
        (CertIdHash::Sha1.oid(), 20, &[1; 21]),
    ] {
        pki.ocsp(&request(&[id(hash, octets, serial)], None)).await.assert_fails(400, 1);
    }
    let nonce = |octets: usize| request(&[cert_id(CertIdHash::Sha1, &root, &serial)], Some(&vec![7; octets]));
    for octets in [0, 129, 256, 1500] {
        pki.ocsp(&nonce(octets)).await.assert_fails(400, 1);
    }
    assert_eq!(pki.ocsp(&nonce(128)).await.statuses(), ["good"]);
    let huge = [&good[..], &[0; 4096]].concat();
    pki.ocsp(&huge).await.assert_fails(400, 1);
    pki.stop().await;
}
