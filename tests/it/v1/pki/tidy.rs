//! Tidying: expired certificates are removed in steps, and revocations stay until the certificate has expired.

mod auto;
mod config;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::clock::Time;
use signet::x509::serial::Serial;
use time::macros::datetime;

use super::mount::{self, Leaf, Pki, with};
use crate::support::{Answer, App, Builder};

const NOW: Time = datetime!(2031-01-01 00:00 UTC);

fn builder() -> Builder {
    App::builder().manual_clock(NOW)
}

async fn start() -> Pki {
    Pki::at(NOW).await
}

/// Issues a certificate that expires in `seconds`.
async fn leaf(pki: &Pki, seconds: u64) -> Leaf {
    pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": seconds, "cert_metadata": "YQ==" })).await
}

async fn tidy(pki: &Pki, body: Value) -> Answer {
    pki.app.client.post("pki/tidy", body).await
}

async fn status(pki: &Pki) -> Value {
    pki.get("tidy-status").await
}

async fn until(pki: &Pki, state: &str) -> Value {
    mount::until(state, async || status(pki).await["state"] == state).await;
    status(pki).await
}

async fn run(pki: &Pki, body: Value) -> Value {
    let answer = tidy(pki, body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    until(pki, "Finished").await
}

#[actix_web::test]
async fn tidy_without_operations_warns_and_does_nothing() {
    let pki = start().await;
    for body in [json!({}), json!({ "tidy_cert_store": false, "safety_buffer": "1h" }), json!({ "tidy_acme": null })] {
        let answer = tidy(&pki, body).await;
        assert_eq!((answer.status, &answer.body["data"]), (202, &Value::Null), "{}", answer.text);
        assert!(answer.warnings().contains("nothing to tidy: set one of tidy_cert_store, "), "{}", answer.text);
        assert!(!answer.body["request_id"].as_str().unwrap().is_empty());
    }
    let status = status(&pki).await;
    assert_eq!((&status["state"], &status["time_started"]), (&json!("Inactive"), &Value::Null));
    assert_eq!((&status["tidy_cert_store"], &status["safety_buffer"]), (&Value::Null, &Value::Null));
    assert!(status["internal_backend_uuid"].as_str().is_some_and(|uuid| uuid.len() == 36));
    assert!(status.get("last_auto_tidy_finished").is_none() && status.get("current_cert_store_count").is_none());
    pki.stop().await;
}

async fn removes_expired_certificates(pki: &Pki) {
    let short = leaf(pki, 3600).await;
    let long = leaf(pki, 100 * 3600).await;
    let counted = pki.list("certs").await.len();
    let body = json!({ "tidy_cert_store": true, "tidy_cert_metadata": true });
    pki.app.clock.advance(Duration::from_secs(73 * 3600 + 1));
    let none = run(pki, json!({ "tidy_cert_store": true, "safety_buffer": "73h" })).await;
    assert_eq!(none["cert_store_deleted_count"], 0, "its buffer is not past");
    let answer = tidy(pki, body.clone()).await;
    assert_eq!((answer.status, &answer.body["data"]), (202, &Value::Null), "{}", answer.text);
    assert!(answer.warnings().contains("tidy: started"), "{}", answer.text);
    let done = until(pki, "Finished").await;
    assert_eq!((&done["cert_store_deleted_count"], &done["cert_metadata_deleted_count"]), (&json!(1), &json!(1)));
    for (field, value) in [
        ("error", Value::Null),
        ("message", Value::Null),
        ("time_started", "2031-01-04T01:00:01Z".into()),
        ("time_finished", "2031-01-04T01:00:01Z".into()),
        ("last_auto_tidy_finished", "2031-01-04T01:00:01Z".into()),
        ("revoked_cert_deleted_count", 0.into()),
        ("acme_orders_deleted_count", 0.into()),
        ("tidy_cert_store", true.into()),
        ("tidy_acme", false.into()),
        ("safety_buffer", (72 * 3600).into()),
        ("revoked_safety_buffer", (72 * 3600).into()),
        ("issuer_safety_buffer", (8760 * 3600).into()),
        ("pause_duration", "0s".into()),
        ("page_size", 1000.into()),
    ] {
        assert_eq!(done[field], value, "{field}");
    }
    let listed = pki.list("certs").await;
    assert!(!listed.contains(&short.serial()) && listed.contains(&long.serial()) && listed.len() == counted - 1);
    assert_eq!(pki.app.client.get(&format!("pki/cert/{}", short.serial())).await.status, 404);
    assert_eq!(pki.list("cert-metadata").await, [long.serial()]);
    let again = run(pki, body).await;
    assert_eq!((&again["cert_store_deleted_count"], &again["cert_metadata_deleted_count"]), (&json!(0), &json!(0)));
}

#[actix_web::test]
async fn expired_certificates_are_removed_on_both_stores() {
    for builder in [builder(), builder().postgres()] {
        let pki = Pki::on(builder.start().await).await;
        removes_expired_certificates(&pki).await;
        pki.stop().await;
    }
}

async fn keeps_revocations(pki: &Pki) {
    let other = leaf(pki, 700 * 3600).await;
    let leaf = leaf(pki, 3600).await;
    pki.revoke(&leaf).await;
    pki.revoke(&other).await;
    let before = pki.crl("default").await;
    let all = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "safety_buffer": "1h",
        "revoked_safety_buffer": "10h" });
    pki.app.clock.advance(Duration::from_secs(3 * 3600));
    let early = run(pki, all.clone()).await;
    assert_eq!((&early["cert_store_deleted_count"], &early["revoked_cert_deleted_count"]), (&json!(0), &json!(0)));
    assert!(pki.list("certs").await.contains(&leaf.serial()), "revoked: until its own buffer is past");
    assert_eq!(pki.crl("default").await.der, before.der, "nothing changed");
    pki.app.clock.advance(Duration::from_secs(9 * 3600));
    // The old name of the parameter.
    let late = with(&all, json!({ "tidy_revoked_certs": null, "tidy_revocation_list": true }));
    let late = run(pki, late).await;
    assert_eq!((&late["cert_store_deleted_count"], &late["revoked_cert_deleted_count"]), (&json!(1), &json!(1)));
    assert_eq!(late["tidy_revoked_certs"], true);
    let crl = pki.crl("default").await;
    let expected = (vec![other.serial()], before.number() + 2);
    assert_eq!((crl.serials(), crl.number()), expected, "one list has it after its end");
    assert_eq!(pki.list("certs/revoked").await, [other.serial()]);
    // The CRL that listed the removed entry is continued.
    let third = self::leaf(pki, 3600).await;
    pki.revoke(&third).await;
    let crl = pki.crl("default").await;
    assert!(crl.serials().contains(&third.serial()) && crl.serials().contains(&other.serial()));
}

#[actix_web::test]
async fn revocation_is_kept_until_its_own_safety_buffer() {
    let pki = start().await;
    keeps_revocations(&pki).await;
    // A restart builds the same CRLs, although the newest revocations may be gone.
    let lists = pki.crl("default").await;
    let pki = pki.restart().await;
    assert_eq!(pki.crl("default").await.der, lists.der);
    pki.app.clock.advance(Duration::from_secs(2 * 3600));
    let done = run(&pki, json!({ "tidy_revoked_certs": true, "safety_buffer": 1 })).await;
    assert_eq!(done["revoked_cert_deleted_count"], 1);
    let lists = pki.crl("default").await;
    let pki = pki.restart().await;
    assert_eq!(pki.crl("default").await.der, lists.der, "the newest revocation is gone; its number stays covered");
    let fresh = leaf(&pki, 3600).await;
    pki.revoke(&fresh).await;
    assert!(pki.crl("default").await.serials().contains(&fresh.serial()));
    pki.stop().await;
}

#[actix_web::test]
async fn revocation_is_kept_until_its_own_buffer_on_postgresql() {
    let pki = Pki::on(builder().postgres().start().await).await;
    keeps_revocations(&pki).await;
    pki.stop().await;
}

/// Returns number and issue time of the mount's only stored complete CRL.
fn stored_list(pki: &Pki) -> (i64, i64) {
    let db = rusqlite::Connection::open(pki.app.folder().join("signet.db")).unwrap();
    let sql = "SELECT number, this_update FROM crl WHERE grp NOT LIKE '%/delta'";
    db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

/// RFC 5280 section 3.3.
#[actix_web::test]
async fn revocation_is_removed_after_a_crl_issued_after_its_expiry() {
    let all = json!({ "tidy_revoked_certs": true, "safety_buffer": 1 });
    for settings in [json!({}), json!({ "auto_rebuild": true })] {
        let pki = start().await;
        pki.post("config/crl", with(&settings, json!({ "allow_expired_cert_revocation": true }))).await;
        let [first, second, third] = [leaf(&pki, 60).await, leaf(&pki, 60).await, leaf(&pki, 60).await];
        pki.revoke(&first).await;
        assert_eq!(pki.get("crl/rotate").await["success"], true);
        let before = pki.crl("default").await;
        pki.app.clock.advance(Duration::from_secs(600));
        assert_eq!(run(&pki, all.clone()).await["revoked_cert_deleted_count"], 1);
        let after = pki.crl("default").await;
        assert_eq!((after.serials(), after.number()), (vec![], before.number() + 2), "{settings}");
        // An entry that was on such a CRL is removed immediately.
        pki.revoke(&second).await;
        pki.app.clock.advance(Duration::from_secs(1));
        assert_eq!(pki.get("crl/rotate").await["success"], true);
        let listed = pki.crl("default").await;
        assert_eq!(listed.serials(), [second.serial()]);
        pki.app.clock.advance(Duration::from_secs(600));
        assert_eq!(run(&pki, all.clone()).await["revoked_cert_deleted_count"], 1);
        assert_eq!(pki.crl("default").await.number(), listed.number() + 1, "{settings}");
        // A certificate that was revoked after its expiry is on no CRL yet if the timer builds them.
        pki.revoke(&third).await;
        let number = pki.crl("default").await.number();
        assert_eq!(run(&pki, all.clone()).await["revoked_cert_deleted_count"], 1);
        let more = if settings["auto_rebuild"] == true { 2 } else { 1 };
        let last = pki.crl("default").await;
        assert_eq!((last.serials(), last.number()), (vec![], number + more), "{settings}");
        // No CRL is built if none is due.
        run(&pki, all.clone()).await;
        assert_eq!(stored_list(&pki).0 as u64, last.number());
        pki.stop().await;
    }
}

#[actix_web::test]
async fn disabled_crls_do_not_delay_removal_of_revocations() {
    let pki = start().await;
    pki.post("config/crl", json!({ "disable": true })).await;
    let leaf = leaf(&pki, 60).await;
    pki.revoke(&leaf).await;
    let before = stored_list(&pki);
    pki.app.clock.advance(Duration::from_secs(600));
    let done = run(&pki, json!({ "tidy_revoked_certs": true, "safety_buffer": 1 })).await;
    assert_eq!((&done["revoked_cert_deleted_count"], &done["error"]), (&json!(1), &Value::Null));
    // At most one CRL is built, with the remaining entries.
    assert!(stored_list(&pki).0 <= before.0 + 1);
    pki.stop().await;
}

/// Entries that cannot be listed stay; those that were on the last CRL are removed.
#[actix_web::test]
async fn without_a_new_crl_only_listed_revocations_are_removed() {
    let pki = start().await;
    let leaves = [leaf(&pki, 60).await, leaf(&pki, 3600).await, leaf(&pki, 3601).await];
    for leaf in &leaves {
        pki.revoke(leaf).await;
    }
    pki.app.clock.advance(Duration::from_secs(600));
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    pki.post("config/crl", json!({ "max_crl_entries": 1 })).await;
    pki.app.clock.advance(Duration::from_secs(3600));
    let body = json!({ "tidy_revoked_certs": true, "safety_buffer": 1 });
    assert_eq!(tidy(&pki, body.clone()).await.status, 202);
    let ended = until(&pki, "Error").await;
    assert_eq!(ended["revoked_cert_deleted_count"], 1);
    assert!(ended["error"].as_str().unwrap().contains("max_crl_entries"), "{ended:#}");
    pki.post("config/crl", json!({ "max_crl_entries": 100 })).await;
    assert_eq!(run(&pki, body).await["revoked_cert_deleted_count"], 2);
    assert_eq!(pki.crl("default").await.serials(), [""; 0]);
    pki.stop().await;
}

/// The delta CRL covers more than the complete one, and all of its entries are removed.
#[actix_web::test]
async fn revocations_on_the_delta_crl_only_are_removed() {
    let pki = start().await;
    let lasting = leaf(&pki, 700 * 3600).await;
    pki.revoke(&lasting).await;
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true })).await;
    let short = leaf(&pki, 60).await;
    pki.revoke(&short).await;
    assert_eq!(pki.get("crl/rotate-delta").await["success"], true);
    let before = pki.crl("default").await;
    pki.app.clock.advance(Duration::from_secs(600));
    let done = run(&pki, json!({ "tidy_revoked_certs": true, "safety_buffer": 1 })).await;
    assert_eq!(done["revoked_cert_deleted_count"], 1);
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    let after = pki.crl("default").await;
    assert!(after.number() > before.number());
    assert_eq!(after.serials(), [lasting.serial()]);
    pki.stop().await;
}

#[actix_web::test]
async fn revoked_unexpired_certificates_stay_on_the_crl() {
    let pki = start().await;
    let leaves = [leaf(&pki, 10).await, leaf(&pki, 30 * 24 * 3600).await];
    for leaf in &leaves {
        pki.revoke(leaf).await;
    }
    let all = json!({
        "tidy_cert_store": true, "tidy_revoked_certs": true, "tidy_invalid_certs": true, "tidy_expired_issuers": true,
        "tidy_cert_metadata": true, "tidy_revoked_cert_issuer_associations": true, "tidy_acme": true,
        "tidy_move_legacy_ca_bundle": true, "tidy_revocation_queue": true, "tidy_cross_cluster_revoked_certs": true,
        "safety_buffer": "1s", "revoked_safety_buffer": 1, "issuer_safety_buffer": "1s",
    });
    pki.app.clock.advance(Duration::from_secs(24 * 3600));
    let answer = tidy(&pki, all).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    for idle in ["tidy_acme", "tidy_move_legacy_ca_bundle", "tidy_revocation_queue", "tidy_cross_cluster_revoked_certs"]
    {
        assert!(answer.warnings().contains(&format!("{idle}: has no effect")), "{}", answer.text);
    }
    let done = until(&pki, "Finished").await;
    assert_eq!(done["revoked_cert_deleted_count"], 1);
    assert_eq!(pki.crl("default").await.serials(), [leaves[1].serial()]);
    assert!(pki.list("certs").await.contains(&leaves[1].serial()));
    assert_eq!(pki.list("certs/revoked").await, [leaves[1].serial()]);
    pki.stop().await;
}

#[actix_web::test]
async fn one_run_at_a_time_until_it_is_cancelled() {
    let pki = start().await;
    for _ in 0..12 {
        leaf(&pki, 60).await;
    }
    let none = pki.post("tidy-cancel", json!({})).await;
    assert_eq!((none.status, &none.body["data"]), (200, &Value::Null));
    assert!(none.warnings().contains("not running"), "{}", none.text);
    pki.app.clock.advance(Duration::from_secs(3600));
    let slow = json!({ "tidy_cert_store": true, "safety_buffer": "1s", "page_size": 5, "pause_duration": "1h" });
    assert_eq!(tidy(&pki, slow.clone()).await.status, 202);
    let running = until(&pki, "Running").await;
    assert_eq!((&running["time_finished"], &running["pause_duration"]), (&Value::Null, &json!("1h")));
    assert!(running["message"].is_null() || running["message"].as_str().unwrap().starts_with("Tidying: "));
    let second = tidy(&pki, slow).await;
    assert_eq!((second.status, &second.body["data"]), (200, &Value::Null));
    assert!(second.warnings().contains("already running"), "{}", second.text);
    // The first step is complete: the pause follows after one certificate.
    mount::until("the first step", async || pki.list("certs").await.len() <= 12).await;
    let cancelled = pki.post("tidy-cancel", json!({})).await;
    assert!(["Cancelling", "Cancelled"].contains(&cancelled.body["data"]["state"].as_str().unwrap()));
    let ended = until(&pki, "Cancelled").await;
    assert_eq!((&ended["cert_store_deleted_count"], &ended["error"]), (&json!(1), &Value::Null));
    assert!(ended["time_finished"].is_string() && ended.get("last_auto_tidy_finished").is_none());
    assert_eq!(pki.list("certs").await.len(), 12, "eleven, and the root");
    let rest = json!({ "tidy_cert_store": true, "safety_buffer": "1s", "page_size": 5, "pause_duration": "1ms" });
    assert_eq!(run(&pki, rest).await["cert_store_deleted_count"], 11);
    pki.stop().await;
}

#[actix_web::test]
async fn pause_is_between_certificates_not_pages() {
    let pki = start().await;
    // Total pauses of a run: long ones after each certificate, short ones accumulated to a second.
    for (pause, count, least) in [("300ms", 4, 900), ("20ms", 60, 1000), ("0s", 60, 0)] {
        for _ in 0..count {
            leaf(&pki, 60).await;
        }
        pki.app.clock.advance(Duration::from_secs(3600));
        let body = json!({ "tidy_cert_store": true, "safety_buffer": "1s", "pause_duration": pause });
        let started = Instant::now();
        let done = run(&pki, body).await;
        let took = started.elapsed();
        assert_eq!(done["cert_store_deleted_count"], count, "{pause}");
        assert!(took >= Duration::from_millis(least), "{pause}: {took:?}");
        assert!(took < Duration::from_millis(least + 10_000), "{pause}: {took:?}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn expired_issuers_except_the_default_are_removed() {
    let pki = Pki { app: builder().start().await };
    for name in ["default-one", "old", "revoking", "lasting"] {
        let end = if name == "lasting" { "2050-01-01T00:00:00Z" } else { "2031-02-01T00:00:00Z" };
        pki.root(json!({ "issuer_name": name, "key_name": name, "common_name": name, "not_after": end })).await;
    }
    pki.post("config/issuers", json!({ "default": "default-one" })).await;
    let leaf =
        pki.issue(&json!({ "issuer_ref": "lasting" }), json!({ "common_name": "localhost", "ttl": "700h" })).await;
    pki.revoke(&leaf).await;
    let keys = pki.list("keys").await;
    pki.app.clock.set(datetime!(2032-01-15 00:00 UTC));
    // The default buffer is a year, which is not past.
    for (buffer, count) in [(json!(null), 0), (json!("300d"), 2)] {
        let done = run(&pki, json!({ "tidy_expired_issuers": true, "issuer_safety_buffer": buffer })).await;
        assert_eq!(done["expired_issuer_deleted_count"], count, "{buffer}");
    }
    for (name, status) in [("default-one", 200), ("old", 404), ("revoking", 404), ("lasting", 200)] {
        assert_eq!(pki.app.client.get(&format!("pki/issuer/{name}/json")).await.status, status, "{name}");
    }
    assert_eq!(pki.list("keys").await, keys, "keys stay");
    assert_eq!(pki.crl("lasting").await.serials(), [leaf.serial()]);
    pki.stop().await;
}

#[actix_web::test]
async fn unreadable_certificate_is_removed_only_on_request() {
    let pki = start().await;
    let broken = leaf(&pki, 3600).await;
    let kept = leaf(&pki, 3600).await;
    let sound = leaf(&pki, 3600).await;
    pki.revoke(&kept).await;
    let db = rusqlite::Connection::open(pki.app.folder().join("signet.db")).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    for leaf in [&broken, &kept] {
        let serial = Serial::parse(&leaf.serial()).unwrap();
        let change = "UPDATE certificate SET der = x'3000' WHERE serial = $1";
        assert_eq!(db.execute(change, [serial.octets()]).unwrap(), 1);
    }
    run(&pki, json!({ "tidy_cert_store": true, "tidy_revoked_certs": true })).await;
    assert!(pki.list("certs").await.contains(&broken.serial()), "without being asked it stays");
    let done = run(&pki, json!({ "tidy_invalid_certs": true, "page_size": 5 })).await;
    assert_eq!(done["cert_store_deleted_count"], 1);
    let listed = pki.list("certs").await;
    assert!(!listed.contains(&broken.serial()) && listed.contains(&sound.serial()));
    assert!(listed.contains(&kept.serial()), "revoked and not expired: it stays whatever it is");
    assert_eq!(pki.list("certs/revoked").await, [kept.serial()]);
    pki.stop().await;
}

#[actix_web::test]
async fn revocations_find_their_issuer_again() {
    let pki = start().await;
    let bundle = pki.root(json!({ "issuer_name": "other", "common_name": "Other" })).await["certificate"].clone();
    let leaf = pki.issue(&json!({ "issuer_ref": "other" }), json!({ "common_name": "localhost" })).await;
    pki.revoke(&leaf).await;
    assert_eq!(pki.app.client.delete("pki/issuer/other").await.status, 200);
    assert_eq!(pki.crl("root").await.serials(), [leaf.serial()], "the default issuer's list has it meanwhile");
    pki.post("issuers/import/cert", json!({ "pem_bundle": bundle })).await;
    let done = run(&pki, json!({ "tidy_revoked_cert_issuer_associations": true })).await;
    assert_eq!(done["missing_issuer_cert_count"], 1);
    assert_eq!(pki.crl("root").await.serials(), [""; 0]);
    let again = run(&pki, json!({ "tidy_revoked_cert_issuer_associations": true })).await;
    assert_eq!(again["missing_issuer_cert_count"], 0);
    pki.stop().await;
}

/// A mount whose run has removed the first of twelve revocations and pauses for an hour.
async fn in_the_middle_of_a_run() -> Pki {
    let pki = start().await;
    for _ in 0..12 {
        pki.revoke(&leaf(&pki, 60).await).await;
    }
    pki.app.clock.advance(Duration::from_secs(3600));
    let slow = json!({ "tidy_revoked_certs": true, "safety_buffer": "1s", "page_size": 5, "pause_duration": "1h" });
    assert_eq!(tidy(&pki, slow).await.status, 202);
    mount::until("the first removal", async || pki.list("certs/revoked").await.len() == 11).await;
    pki
}

#[actix_web::test]
async fn interrupted_run_is_continued_by_the_next() {
    let pki = in_the_middle_of_a_run().await.restart().await;
    let cut = status(&pki).await;
    assert_eq!((&cut["state"], &cut["revoked_cert_deleted_count"]), (&json!("Error"), &json!(1)));
    assert_eq!(cut["error"], "the server stopped during the run");
    assert_eq!(pki.list("certs/revoked").await.len(), 11);
    let done = run(&pki, json!({ "tidy_revoked_certs": true, "safety_buffer": "1s" })).await;
    assert_eq!((&done["revoked_cert_deleted_count"], &done["error"]), (&json!(11), &Value::Null));
    assert_eq!(pki.crl("default").await.serials(), [""; 0]);
    pki.stop().await;
}

#[actix_web::test]
async fn cancelled_run_leaves_crls_of_the_remaining_revocations() {
    let pki = in_the_middle_of_a_run().await;
    pki.post("tidy-cancel", json!({})).await;
    let ended = until(&pki, "Cancelled").await;
    assert_eq!(ended["revoked_cert_deleted_count"], 1);
    let mut left = pki.crl("default").await.serials();
    left.sort();
    let mut revoked = pki.list("certs/revoked").await;
    revoked.sort();
    assert_eq!(left, revoked);
    pki.stop().await;
}

#[actix_web::test]
async fn issuance_and_revocation_during_a_run_lose_nothing() {
    let pki = start().await;
    for _ in 0..60 {
        leaf(&pki, 60).await;
    }
    pki.app.clock.advance(Duration::from_secs(3600));
    pki.post("config/auto-tidy", json!({ "maintain_stored_certificate_counts": true })).await;
    let body = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "safety_buffer": "1s", "page_size": 5 });
    assert_eq!(tidy(&pki, body).await.status, 202);
    let issued = join_all((0..40).map(|n| {
        let pki = &pki;
        async move {
            let leaf = pki.ask("issue/r", json!({ "common_name": "localhost", "ttl": 600 })).await;
            if n % 4 == 0 {
                pki.revoke(&leaf).await;
            }
            leaf.serial()
        }
    }))
    .await;
    let done = until(&pki, "Finished").await;
    assert_eq!(done["cert_store_deleted_count"], 60);
    assert_eq!((&done["current_cert_store_count"], &done["current_revoked_cert_count"]), (&json!(41), &json!(10)));
    let listed = pki.list("certs").await;
    assert!(issued.iter().all(|serial| listed.contains(serial)) && listed.len() == 41);
    assert_eq!(pki.crl("default").await.serials().len(), 10);
    crate::faults::stage::assert_counted(pki.app.folder());
    pki.stop().await;
}
