//! CRLs after store faults: commits that were stored although they failed, and failed reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::double::{Fault, Faults};
use crate::support::{Answer, App, until};
use crate::v1::pki::mount::Pki;

/// Sends a request whose first PKI commit is stored but reported as failed.
async fn unanswered(pki: &Pki, faults: &Faults, fault: Fault, ask: impl AsyncFn() -> Answer) {
    faults.arm_next("commit (pki)", fault);
    let answer = ask().await;
    assert!(faults.disarm().is_some(), "a commit of {}", pki.app.client.url("pki"));
    answer.assert_status(503);
}

#[actix_web::test]
async fn delta_crl_after_failed_commit_keeps_complete_crl_entries() {
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    for name in ["other", "third"] {
        pki.root(json!({ "common_name": name, "issuer_name": name })).await;
    }
    pki.role(&json!({})).await;
    let revoked = async |issuer: &str| {
        let leaf = pki.ask(&format!("issuer/{issuer}/issue/r"), json!({ "common_name": "localhost" })).await;
        pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
        leaf.serial()
    };
    let mut complete = [revoked("root").await, revoked("other").await];
    // A deleted issuer's entry moves to the CRL of the next default issuer.
    let orphan = revoked("third").await;
    assert_eq!(pki.app.client.delete("pki/issuer/third").await.status, 200);
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    let later = [revoked("root").await, revoked("other").await];
    unanswered(&pki, &faults, Fault::After, async || pki.app.client.get("pki/crl/rotate-delta").await).await;
    let default = || pki.app.client.post("pki/config/issuers", json!({ "default": "other" }));
    unanswered(&pki, &faults, Fault::Outage, async || default().await).await;
    let answer = default().await;
    assert_eq!((answer.status, &answer.body["warnings"]), (200, &Value::Null), "{}", answer.text);
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    for (n, issuer) in ["root", "other"].into_iter().enumerate() {
        let mut expected = vec![std::mem::take(&mut complete[n]), later[n].clone()];
        expected.extend((issuer == "other").then(|| orphan.clone()));
        expected.sort();
        assert_eq!(pki.crl(issuer).await.serials(), expected, "{issuer}");
    }
    pki.stop().await;
}

/// The build at the end of tidy reads all revocations; here a read fails, and the next build repeats it.
#[actix_web::test]
async fn entries_move_to_new_default_issuer_after_a_failed_read() {
    let faults = Arc::new(Faults::default());
    let clock = time::macros::datetime!(2031-01-01 00:00 UTC);
    let pki = Pki::on(App::builder().manual_clock(clock).faults(&faults).start().await).await;
    for name in ["other", "third"] {
        pki.root(json!({ "common_name": name, "issuer_name": name })).await;
    }
    pki.role(&json!({})).await;
    let revoked = async |issuer: &str, ttl: u64| {
        let ask = json!({ "common_name": "localhost", "ttl": ttl });
        let leaf = pki.ask(&format!("issuer/{issuer}/issue/r"), ask).await;
        pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
        leaf.serial()
    };
    let orphan = revoked("third", 360_000).await;
    assert_eq!(pki.app.client.delete("pki/issuer/third").await.status, 200);
    let stored = async || {
        let listed = pki.app.client.list("pki/certs/revoked").await.body["data"]["keys"].clone();
        serde_json::from_value::<Vec<String>>(listed).unwrap()
    };
    for n in 1..9 {
        let ended = revoked("other", 60).await;
        pki.app.clock.advance(Duration::from_secs(600));
        faults.arm_among(&BTreeSet::from(["revocations"]), n, Fault::Before);
        let tidy = json!({ "tidy_revoked_certs": true, "safety_buffer": 1 });
        assert_eq!(pki.app.client.post("pki/tidy", tidy).await.status, 202);
        until("the end of tidy", async || pki.get("tidy-status").await["state"] != "Running").await;
        // Stops once the failed read follows the removal: an earlier build lists ended certificates a last time.
        if faults.disarm().is_some() && !stored().await.contains(&ended) {
            break;
        }
        assert!(n < 8, "no read of revocations");
    }
    pki.post("config/issuers", json!({ "default": "other" })).await;
    let left = stored().await;
    assert!(left.contains(&orphan));
    let late = revoked("root", 360_000).await;
    assert_eq!(pki.crl("root").await.serials(), [late]);
    assert_eq!(pki.crl("other").await.serials(), left);
    pki.stop().await;
}

/// Revocations are read in pages of ten thousand.
#[actix_web::test]
async fn failed_read_during_crl_build_loses_no_entry() {
    const MANY: i64 = 10_050;
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    let db = rusqlite::Connection::open(pki.app.folder().join("signet.db")).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    let issuer = pki.get("issuer/root").await["issuer_id"].as_str().unwrap().to_owned();
    db.execute_batch("BEGIN").unwrap();
    let mount: i64 = db.query_row("SELECT mount FROM certificate", [], |row| row.get(0)).unwrap();
    let row = "INSERT INTO revocation (mount, serial, seq, issuer, revoked_at_micros, not_after) \
        VALUES ($1, $2, $3, $4, 1000000, 4000000000)";
    for n in 1..=MANY {
        let serial = (n + 0x0100_0000).to_be_bytes();
        db.execute(row, rusqlite::params![mount, &serial[4..], n, issuer]).unwrap();
    }
    db.execute("UPDATE mount SET rev_seq = $1 WHERE id = $2", [MANY, mount]).unwrap();
    db.execute_batch("COMMIT").unwrap();
    let mut halves = 0;
    for n in 1..8 {
        faults.arm_among(&BTreeSet::from(["revocations"]), n, Fault::Before);
        let status = pki.app.client.get("pki/crl/rotate").await.status;
        halves += usize::from(faults.disarm().is_some());
        if status == 200 {
            break;
        }
    }
    assert!(halves >= 2, "each of the two reads failed once");
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    assert_eq!(pki.crl("root").await.serials().len(), MANY as usize);
    pki.stop().await;
}
