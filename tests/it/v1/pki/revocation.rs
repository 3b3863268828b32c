//! Revocations, and the CRLs that list them.

use std::time::Duration;

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use signet::clock::Time;

use super::foreign::{Ca, Crl, Files, csr};
use super::mount::{Leaf, Pki, parse, text, until};
use super::ocsp::about;
use super::ocsp::client::openssl_judges;
use crate::judges::judge;
use crate::support::Answer;

/// Asserts that the certificate is not of an issuer of this mount.
async fn is_foreign(pki: &Pki, certificate: &str) {
    let rule = "not signed by an issuer of this mount";
    pki.refused("revoke", json!({ "certificate": certificate }), rule).await;
}

#[actix_web::test]
async fn serial_is_accepted_in_every_form_and_twice() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    type Form = fn(String) -> String;
    let forms: [Form; 7] = [
        |s| s,
        |s| s.replace(':', "-"),
        |s| s.to_uppercase(),
        |s| s.to_uppercase().replace(':', "-"),
        |s| s.replace(':', ""),
        |s| s.replace(':', "").trim_start_matches('0').to_uppercase(),
        |s| format!("0x{}", s.replace(':', "")),
    ];
    for (count, form) in forms.into_iter().enumerate() {
        let leaf = pki.leaf().await;
        let before = pki.crl("default").await.number();
        let data = pki.data("revoke", json!({ "serial_number": form(leaf.serial()) })).await;
        assert_eq!(data["state"], "revoked");
        let crl = pki.crl("default").await;
        assert!(crl.serials().contains(&leaf.serial()), "on the CRL at once");
        assert_eq!((crl.number(), crl.serials().len()), (before + 1, count + 1));
        assert!(crl.is_signed_by(&root));
        for path in ["cert", "cert-record"] {
            let [read, own] = [form(leaf.serial()), leaf.serial()].map(|serial| format!("{path}/{serial}"));
            assert_eq!(pki.get(&read).await, pki.get(&own).await, "{read}");
        }
        let read = pki.get(&format!("cert/{}", leaf.serial())).await;
        assert_eq!(read["revocation_time"], data["revocation_time"]);
        assert_eq!(read["revocation_time_rfc3339"], data["revocation_time_rfc3339"]);
        assert_eq!(read["issuer_id"], pki.get("issuer/default").await["issuer_id"]);
        // A second revocation returns the same response, and the CRL does not change.
        assert_eq!(pki.revoke(&leaf).await, data);
        assert_eq!(pki.data("revoke", json!({ "certificate": leaf.pem })).await, data);
        assert_eq!(pki.crl("default").await.der, crl.der);
        assert!(pki.list("certs/revoked").await.contains(&leaf.serial()));
        assert!(pki.list("certs").await.contains(&leaf.serial()));
    }
    pki.stop().await;
}

#[actix_web::test]
async fn invalid_revocation_requests_are_rejected() {
    let pki = Pki::start().await;
    let leaf = pki.leaf().await;
    let rule = "exactly one of them must be given";
    pki.refused("revoke", json!({}), rule).await;
    pki.refused("revoke", json!({ "serial_number": leaf.serial(), "certificate": leaf.pem }), rule).await;
    for serial in ["", "xyz", "0x", "1:2", "-"] {
        pki.refused("revoke", json!({ "serial_number": serial }), "serial_number: ").await;
    }
    for serial in ["00:11", "0011", "0x11"] {
        pki.refused("revoke", json!({ "serial_number": serial }), "not found").await;
    }
    let root = pki.default_pem().await;
    let serial = parse(&root).serial().to_string();
    for named in [json!({ "serial_number": serial }), json!({ "certificate": root })] {
        pki.refused("revoke", named, "issuers cannot be revoked here").await;
    }
    for (text, rule) in [
        ("/tmp/certificate.pem".to_owned(), "too short"),
        ("x".repeat(100), "certificate: "),
        (format!("{}\ntrailing", leaf.pem), "certificate: "),
        (csr("ec-256", "/CN=a", ""), "must contain a PEM block of type CERTIFICATE"),
        (leaf.pem.replace("CERTIFICATE-----\nM", "CERTIFICATE-----\nA"), "certificate: "),
    ] {
        pki.refused("revoke", json!({ "certificate": text }), rule).await;
    }
    assert_eq!(pki.crl("default").await.serials(), [""; 0]);
    pki.stop().await;
}

#[actix_web::test]
async fn revoke_takes_the_first_certificate_of_a_chain_or_bundle() {
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    let leaf = pki.leaf().await;
    let with_key = pki.leaf().await;
    let bundle = pki.data("issue/r", json!({ "common_name": "localhost", "format": "pem_bundle" })).await;
    assert!(text(&bundle, "certificate").contains("PRIVATE KEY"));
    let key = &with_key.data()["private_key"];
    for (path, body, serial) in [
        ("revoke", json!({ "certificate": bundle["certificate"] }), text(&bundle, "serial_number")),
        ("revoke", json!({ "certificate": format!("{}\n{root}\n", leaf.pem) }), &leaf.serial()),
        (
            "revoke-with-key",
            json!({ "certificate": format!("{}\n{root}", with_key.pem), "private_key": key }),
            &with_key.serial(),
        ),
    ] {
        pki.post(path, body).await;
        assert!(pki.crl("default").await.serials().iter().any(|listed| listed == serial), "{serial}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn unstored_certificates_are_revoked_by_their_pem() {
    let pki = Pki::start().await;
    let no_store = json!({ "no_store": true });
    let leaf = pki.issue(&no_store, json!({ "common_name": "localhost" })).await;
    let path = format!("cert/{}", leaf.serial());
    assert_eq!(pki.app.client.get(&format!("pki/{path}")).await.status, 404);
    assert!(!pki.list("certs").await.contains(&leaf.serial()));
    pki.refused("revoke", json!({ "serial_number": leaf.serial() }), "not found").await;
    pki.post("revoke", json!({ "certificate": leaf.pem })).await;
    assert_eq!(pki.get(&path).await["certificate"], leaf.pem);
    assert_eq!(pki.crl("default").await.serials(), [leaf.serial()]);
    let late = pki.issue(&no_store, json!({ "common_name": "localhost" })).await;
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    is_foreign(&pki, &late.pem).await;
    // Another root with that name is a different CA.
    pki.root(json!({ "issuer_name": "root" })).await;
    is_foreign(&pki, &late.pem).await;
    pki.stop().await;
}

#[actix_web::test]
async fn stored_certificate_is_revoked_after_issuer_deletion() {
    let pki = Pki::start().await;
    let leaf = pki.leaf().await;
    assert_eq!(pki.app.client.delete("pki/issuer/root").await.status, 200);
    assert_eq!(pki.revoke(&leaf).await["state"], "revoked");
    assert_ne!(pki.get(&format!("cert/{}", leaf.serial())).await["revocation_time"], 0);
    pki.stop().await;
}

#[actix_web::test]
async fn foreign_certificates_are_rejected() {
    let pki = Pki::start().await;
    let other = Pki::start().await;
    // Same names, another key: the signature decides.
    is_foreign(&pki, &other.leaf().await.pem).await;
    is_foreign(&pki, &Ca::root("/CN=x").pem).await;
    other.stop().await;
    pki.stop().await;
}

#[actix_web::test]
async fn expired_certificates_are_revoked_only_if_allowed() {
    let now = Time::from_unix_timestamp(1_906_545_600).unwrap();
    let pki = Pki::at(now).await;
    let ask = json!({ "common_name": "localhost", "ttl": "1h" });
    let leaf = pki.issue(&json!({}), ask.clone()).await;
    let close = pki.issue(&json!({}), ask).await;
    let number = pki.crl("default").await.number();
    pki.app.clock.set(now + Duration::from_secs(3598));
    let data = pki.revoke(&close).await;
    assert_eq!((&data["revocation_time"], &data["state"]), (&json!(1_906_549_198), &json!("revoked")));
    assert_eq!(data["revocation_time_rfc3339"], "2030-06-01T12:59:58Z");
    pki.app.clock.set(now + Duration::from_secs(3599));
    let answer = pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
    assert_eq!((answer.status, &answer.body["data"]), (200, &Value::Null));
    assert!(answer.warnings().contains("expired"), "{}", answer.text);
    assert_eq!(pki.get(&format!("cert/{}", leaf.serial())).await["revocation_time"], 0);
    let crl = pki.crl("default").await;
    assert_eq!((crl.number(), crl.serials()), (number + 1, vec![close.serial()]));
    // A certificate that was revoked before it expired stays revoked, with the same response.
    pki.app.clock.set(now + Duration::from_secs(7200));
    assert_eq!(pki.revoke(&close).await, data);
    pki.post("config/crl", json!({ "allow_expired_cert_revocation": true })).await;
    assert_eq!(pki.revoke(&leaf).await["state"], "revoked");
    assert!(pki.crl("default").await.serials().contains(&leaf.serial()));
    pki.stop().await;
}

#[actix_web::test]
async fn unrelated_issuers_have_their_own_crls() {
    let pki = Pki::start().await;
    let other = pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    let leaf = pki.leaf().await;
    let its = pki.leaf_of("other").await;
    pki.revoke(&leaf).await;
    pki.revoke(&its).await;
    for (issuer, leaf, is_others) in [("root", &leaf, false), ("other", &its, true)] {
        let crl = pki.crl(issuer).await;
        assert_eq!(crl.serials(), [leaf.serial()], "{issuer}");
        assert_eq!(crl.is_signed_by(text(&other, "certificate")), is_others, "{issuer}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn entries_of_a_deleted_issuer_move_to_the_default() {
    let pki = Pki::start().await;
    pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    pki.role(&json!({})).await;
    let leaf = pki.leaf_of("other").await;
    pki.revoke(&leaf).await;
    assert_eq!(pki.crl("root").await.serials(), [""; 0]);
    let number = pki.crl("root").await.number();
    assert_eq!(pki.app.client.delete("pki/issuer/other").await.status, 200);
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    let crl = pki.crl("root").await;
    assert_eq!(crl.serials(), [leaf.serial()]);
    assert!(crl.number() > number);
    pki.stop().await;
}

#[actix_web::test]
async fn reasons_and_dates_are_on_the_list() {
    let pki = Pki::start().await;
    for (reason, printed) in [
        ("keyCompromise", Some("Key Compromise")),
        ("1", Some("Key Compromise")),
        ("AFFILIATIONCHANGED", Some("Affiliation Changed")),
        ("superseded", Some("Superseded")),
        ("cessationOfOperation", Some("Cessation Of Operation")),
        ("9", Some("Privilege Withdrawn")),
        ("unspecified", None),
        ("", None),
    ] {
        let leaf = pki.leaf().await;
        pki.post("revoke", json!({ "serial_number": leaf.serial(), "reason": reason })).await;
        let crl = pki.crl("default").await;
        let entry = crl.entry(&leaf.serial()).unwrap();
        match printed {
            Some(text) => assert!(entry.contains(text), "{reason}: {entry}"),
            None => assert!(!entry.contains("Reason"), "{reason}: {entry}"),
        }
    }
    let leaf = pki.leaf().await;
    let body = json!({ "serial_number": leaf.serial(), "invalidity_date": "2024-02-29T10:00:00+01:00" });
    pki.post("revoke", body).await;
    let crl = pki.crl("default").await;
    let entry = crl.entry(&leaf.serial()).unwrap();
    assert!(entry.contains("Invalidity Date") && entry.contains("Feb 29 09:00:00 2024 GMT"), "{entry}");
    let leaf = pki.leaf().await;
    for reason in ["certificateHold", "cACompromise", "2", "nonsense"] {
        pki.refused("revoke", json!({ "serial_number": leaf.serial(), "reason": reason }), "reason: ").await;
    }
    let body = json!({ "serial_number": leaf.serial(), "invalidity_date": "yesterday" });
    pki.refused("revoke", body, "invalidity_date: ").await;
    pki.stop().await;
}

/// Revokes for a reason. Returns the response's data and its warnings.
async fn for_reason(pki: &Pki, leaf: &Leaf, reason: &str) -> (Value, String) {
    let answer = pki.post("revoke", json!({ "serial_number": leaf.serial(), "reason": reason })).await;
    (answer.body["data"].clone(), answer.warnings())
}

#[actix_web::test]
async fn only_a_key_compromise_replaces_another_reason() {
    const TOO_LATE: &str = "only a key compromise can be added";
    let pki = Pki::start().await;
    let root = pki.default_pem().await;
    for (first, shown) in [("", None), ("superseded", Some("Superseded"))] {
        let leaf = pki.leaf().await;
        let about = about(&root, &leaf);
        let (data, warnings) = for_reason(&pki, &leaf, first).await;
        assert_eq!(warnings, "");
        let before = pki.crl("default").await;
        assert_eq!(before.entry(&leaf.serial()).unwrap().contains("Reason"), shown.is_some());
        assert_eq!(pki.ocsp(&about).await.statuses(), ["revoked"]);
        // Another reason is too late, and so is a date alone.
        let (again, warnings) = for_reason(&pki, &leaf, "affiliationChanged").await;
        assert!(again == data && warnings.contains(TOO_LATE), "{warnings}");
        let date = json!({ "serial_number": leaf.serial(), "invalidity_date": "2024-02-29T10:00:00Z" });
        assert!(pki.post("revoke", date).await.warnings().contains(TOO_LATE));
        assert_eq!(pki.crl("default").await.der, before.der, "nothing is published for it");
        // A key compromise is not too late, and the CRL has it before the response is sent. The revocation time does
        // not change.
        let body = json!({ "serial_number": leaf.serial(), "reason": "KEY_COMPROMISE", "invalidity_date": "2024-02-29T10:00:00Z" });
        let answer = pki.post("revoke", body).await;
        assert_eq!((&answer.body["data"], answer.warnings()), (&data, String::new()));
        let after = pki.crl("default").await;
        assert_eq!((after.number(), after.serials()), (before.number() + 1, before.serials()));
        let entry = after.entry(&leaf.serial()).unwrap();
        assert!(entry.contains("Key Compromise") && entry.contains("Feb 29 10:00:00 2024 GMT"), "{entry}");
        assert!(after.is_signed_by(&root));
        let date =
            |crl: &Crl| crl.entry(&leaf.serial()).unwrap().lines().find(|l| l.contains("Date: ")).unwrap().to_owned();
        assert_eq!(date(&after), date(&before));
        for reply in [pki.ocsp(&about).await, pki.ocsp_get(&about).await] {
            assert_eq!(reply.line("Revocation Reason: ").as_deref(), Some("keyCompromise (0x1)"));
            openssl_judges(&root, &leaf.pem, &reply.der, "revoked");
        }
        // It is recorded once, and nothing replaces it.
        for (reason, late) in [("keyCompromise", ""), ("", ""), ("superseded", TOO_LATE)] {
            let (again, warnings) = for_reason(&pki, &leaf, reason).await;
            assert!(again == data && warnings.contains(late) && warnings.is_empty() == late.is_empty(), "{warnings}");
        }
        assert_eq!(pki.crl("default").await.der, after.der);
    }
    let files = Files::new();
    files.write("replaced.der", &pki.crl("default").await.der);
    assert!(judge("lint_status.py", &["crl", files.path("").to_str().unwrap()]).contains("1 lists linted"));
    let der = pki.crl("default").await.der;
    let pki = pki.restart().await;
    assert_eq!(pki.crl("default").await.der, der);
    assert_eq!(pki.list("certs/revoked").await.len(), 2);
    pki.stop().await;
}

#[actix_web::test]
async fn replaced_reason_is_on_the_next_delta_crl() {
    let pki = Pki::start().await;
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true, "delta_rebuild_interval": "24h" }))
        .await;
    let old = pki.leaf().await;
    let new = pki.leaf().await;
    for_reason(&pki, &old, "superseded").await;
    pki.get("crl/rotate").await;
    let complete = pki.crl("default").await;
    let delta = async |pki: &Pki| {
        pki.get("crl/rotate-delta").await;
        Crl::new(pki.fetch("GET", "crl/delta", &[]).await.bytes().await.unwrap().to_vec())
    };
    for_reason(&pki, &new, "cessationOfOperation").await;
    assert_eq!(delta(&pki).await.serials(), [new.serial()]);
    for leaf in [&old, &new] {
        for_reason(&pki, leaf, "keyCompromise").await;
    }
    let list = delta(&pki).await;
    let mut both = [old.serial(), new.serial()];
    both.sort();
    assert_eq!(list.serials(), both);
    assert!(both.iter().all(|serial| list.entry(serial).unwrap().contains("Key Compromise")), "{}", list.text);
    assert_eq!(pki.crl("default").await.der, complete.der, "a complete one comes by the timer");
    // A restart reads them again, and the complete CRL has the reasons of the delta.
    let pki = pki.restart().await;
    pki.get("crl/rotate").await;
    let list = pki.crl("default").await;
    assert!(list.number() > complete.number());
    assert!(both.iter().all(|serial| list.entry(serial).unwrap().contains("Key Compromise")), "{}", list.text);
    pki.stop().await;
}

#[actix_web::test]
async fn replaced_reason_is_on_the_timer_built_delta_crl() {
    let pki = Pki::start().await;
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true, "delta_rebuild_interval": "1s" })).await;
    let leaf = pki.leaf().await;
    for (reason, shown) in [("superseded", "Superseded"), ("keyCompromise", "Key Compromise")] {
        for_reason(&pki, &leaf, reason).await;
        until(shown, async || {
            let list = Crl::new(pki.fetch("GET", "crl/delta", &[]).await.bytes().await.unwrap().to_vec());
            list.entry(&leaf.serial()).is_some_and(|entry| entry.contains(shown))
        })
        .await;
    }
    pki.stop().await;
}

#[actix_web::test]
async fn responses_warn_of_failed_crl_builds() {
    let pki = Pki::start().await;
    let nothing = pki.post("revoke", json!({ "serial_number": pki.leaf().await.serial() })).await;
    assert_eq!(nothing.warnings(), "");
    let mut ids = Vec::new();
    for name in ["without", "nor"] {
        let made = pki.root(json!({ "common_name": name, "issuer_name": name })).await;
        ids.push(made["issuer_id"].as_str().unwrap().to_owned());
        let usage = json!({ "issuer_name": name, "usage": "read-only,issuing-certificates" });
        pki.post(&format!("issuer/{name}"), usage).await;
    }
    let told = |what: &str, answer: &Answer| {
        let warnings = answer.warnings();
        let of = |n: usize| warnings.lines().find(|l| l.starts_with(&format!("Warning {n} during CRL rebuild: ")));
        let both = [of(1), of(2)].map(|line| line.unwrap_or_else(|| panic!("{what}: {}", answer.text)));
        assert!(ids.iter().all(|id| both.iter().filter(|line| line.contains(id)).count() == 1), "{what}: {both:?}");
        assert_eq!(of(3), None, "{what}");
    };
    let leaf = pki.leaf().await;
    let revoked = pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
    assert_eq!(revoked.body["data"]["state"], "revoked");
    told("revoke", &revoked);
    // No CRL is built for a certificate that is already listed.
    let again = pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
    assert_eq!((again.warnings(), &again.body["data"]), (String::new(), &revoked.body["data"]));
    let unstored = pki.issue(&json!({ "no_store": true }), json!({ "common_name": "localhost" })).await;
    told("revoke, brought", &pki.post("revoke", json!({ "certificate": unstored.pem })).await);
    told("crl/rotate", &pki.app.client.get("pki/crl/rotate").await);
    told("config/crl", &pki.post("config/crl", json!({ "disable": true })).await);
    told("config/crl", &pki.post("config/crl", json!({ "disable": false })).await);
    pki.root(json!({ "common_name": "Other", "issuer_name": "other" })).await;
    told("config/issuers", &pki.post("config/issuers", json!({ "default": "other" })).await);
    told("issuer/revoke", &pki.post("issuer/root/revoke", json!({})).await);
    // Settings that build no CRL, and revocations that leave it to the timer.
    assert_eq!(pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": false })).await.warnings(), "");
    pki.role(&json!({})).await;
    let other = pki.leaf_of("other").await;
    assert_eq!(pki.post("revoke", json!({ "serial_number": other.serial() })).await.warnings(), "");
    pki.stop().await;
}

#[actix_web::test]
async fn missing_crl_of_keyless_issuer_warns_only_with_revocations() {
    let pki = Pki::start().await;
    let other = Ca::root("/CN=For the chain");
    let imported = pki.post("issuers/import/bundle", json!({ "pem_bundle": other.pem })).await;
    let id = imported.body["data"]["imported_issuers"][0].as_str().unwrap();
    assert!(!imported.warnings().contains("no CRL for issuers"), "{}", imported.text);
    assert_eq!(pki.app.client.get("pki/crl/rotate").await.warnings(), "");
    let leaf = other.signs(&csr("ec-256", "/CN=localhost", ""), "basicConstraints=CA:FALSE", &[]);
    let said = format!("Warning 1 during CRL rebuild: no CRL for issuers {id}: ");
    let revoked = pki.post("revoke", json!({ "certificate": leaf })).await;
    assert!(revoked.warnings().contains(&said), "{}", revoked.text);
    assert!(pki.app.client.get("pki/crl/rotate").await.warnings().contains(&said));
    pki.stop().await;
}

#[actix_web::test]
async fn restart_serves_the_same_crl() {
    let mut pki = Pki::start().await;
    pki.root(json!({ "common_name": "Other", "issuer_name": "other", "key_type": "rsa" })).await;
    let leaf = pki.leaf().await;
    let valid = pki.leaf().await;
    let its = pki.leaf_of("other").await;
    let (revoked, _) = for_reason(&pki, &leaf, "keyCompromise").await;
    pki.revoke(&its).await;
    let before = (pki.crl("root").await.der, pki.crl("other").await.der);
    let certs = pki.list("certs").await;
    let issuers = pki.get("issuer/root").await;
    for _ in 0..2 {
        pki = pki.restart().await;
        // CRLs are loaded in the background.
        until("a CRL", async || pki.app.client.get("pki/issuer/other/crl/pem").await.status != 204).await;
        assert!((pki.crl("root").await.der, pki.crl("other").await.der) == before, "the same bytes");
        assert_eq!((pki.list("certs").await, pki.get("issuer/root").await), (certs.clone(), issuers.clone()));
        assert_eq!(pki.get(&format!("cert/{}", valid.serial())).await["revocation_time"], 0);
        let read = pki.get(&format!("cert/{}", leaf.serial())).await;
        assert_eq!(read["revocation_time_rfc3339"], revoked["revocation_time_rfc3339"]);
        assert_eq!(pki.revoke(&leaf).await, revoked);
        assert!(pki.crl("root").await.der == before.0, "still the same");
    }
    // The next revocation continues from there.
    let number = pki.crl("root").await.number();
    let next = pki.leaf().await;
    pki.revoke(&next).await;
    let crl = pki.crl("root").await;
    let mut expected = [leaf.serial(), next.serial()];
    let mut listed = crl.serials();
    expected.sort();
    listed.sort();
    assert_eq!((crl.number(), listed.as_slice()), (number + 1, &expected[..]));
    assert_eq!(pki.get("issuer/root").await["issuer_name"], "root");
    pki.stop().await;
}

#[actix_web::test]
async fn concurrent_revocations_are_all_on_the_crl() {
    let pki = Pki::start().await;
    pki.role(&json!({})).await;
    let mut leaves = Vec::new();
    for _ in 0..40 {
        leaves.push(pki.ask("issue/r", json!({ "common_name": "localhost" })).await.serial());
    }
    let revocations = leaves.iter().map(|serial| pki.app.client.post("pki/revoke", json!({ "serial_number": serial })));
    let numbers = async {
        let mut last = 0;
        for _ in 0..20 {
            let number = pki.crl("default").await.number();
            assert!(number >= last, "numbers never fall");
            last = number;
        }
    };
    let (answers, ()) = join(join_all(revocations), numbers).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let mut listed = pki.crl("default").await.serials();
    listed.sort();
    leaves.sort();
    assert_eq!(listed, leaves);
    pki.stop().await;
}
