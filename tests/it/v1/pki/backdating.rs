//! Backdating of certificates, CRLs and OCSP responses, for clients whose clocks are slow.

use std::time::Duration;

use serde_json::json;
use signet::clock::Time;
use signet::x509::crl::Crl;
use time::macros::datetime;

use super::mount::{Leaf, Pki};
use super::ocsp::about;
use crate::crash::audit::number;
use crate::support::App;

const BEGIN: Time = datetime!(2031-01-01 00:00 UTC);
/// Backdating of certificates in seconds, and its maximum for CRLs and OCSP responses.
const ALLOWANCE: i64 = 30;
const LIFETIME_SECONDS: i64 = 72 * 3600;

async fn started() -> Pki {
    Pki::on(App::builder().manual_clock(BEGIN).start().await).await
}

fn now(pki: &Pki) -> i64 {
    pki.app.clock.now().unix_timestamp()
}

async fn list(pki: &Pki, path: &str) -> Crl {
    Crl::parse(&pki.fetch("GET", path, &[]).await.bytes().await.unwrap()).unwrap()
}

/// Returns thisUpdate, nextUpdate and the latest revocation time of a CRL.
fn times(list: &Crl) -> (i64, i64, Option<i64>) {
    let latest = list.entries().iter().map(|entry| entry.revoked_at).max();
    (list.this_update(), list.next_update().unwrap(), latest)
}

async fn leaf(pki: &Pki) -> Leaf {
    pki.issue(&json!({}), json!({ "common_name": "localhost" })).await
}

async fn revoke(pki: &Pki, leaf: &Leaf) {
    pki.post("revoke", json!({ "serial_number": leaf.serial() })).await;
}

#[actix_web::test]
async fn crls_are_backdated_but_not_before_their_entries() {
    let pki = started().await;
    pki.post("config/crl", json!({ "enable_delta": true, "auto_rebuild": true })).await;
    let first = leaf(&pki).await;
    assert_eq!(first.certificate.not_before(), now(&pki) - ALLOWANCE);
    for path in ["crl", "crl/delta"] {
        assert_eq!(
            times(&list(&pki, path).await),
            (now(&pki) - ALLOWANCE, now(&pki) + LIFETIME_SECONDS, None),
            "{path}"
        );
    }
    pki.app.clock.advance(Duration::from_secs(100));
    revoke(&pki, &first).await;
    let revoked_at = now(&pki);
    // Backdating stops at the latest revocation: ten seconds later it limits thisUpdate, a minute later it does not.
    for (later, this_update) in [(10, revoked_at), (50, revoked_at + 60 - ALLOWANCE)] {
        pki.app.clock.advance(Duration::from_secs(later));
        pki.get("crl/rotate-delta").await;
        let delta = times(&list(&pki, "crl/delta").await);
        assert_eq!(delta, (this_update, now(&pki) + LIFETIME_SECONDS, Some(revoked_at)));
    }
    pki.get("crl/rotate").await;
    assert_eq!(
        times(&list(&pki, "crl").await),
        (now(&pki) - ALLOWANCE, now(&pki) + LIFETIME_SECONDS, Some(revoked_at))
    );
    pki.stop().await;
}

#[actix_web::test]
async fn clock_set_back_builds_no_crl_older_than_its_entries() {
    let pki = started().await;
    let first = leaf(&pki).await;
    pki.app.clock.advance(Duration::from_secs(10 * 3600));
    revoke(&pki, &first).await;
    let revoked_at = now(&pki);
    pki.app.clock.set(BEGIN);
    pki.get("crl/rotate").await;
    let rotated = list(&pki, "crl").await;
    assert_eq!(times(&rotated), (revoked_at, revoked_at + LIFETIME_SECONDS, Some(revoked_at)));
    // The CRL is not rebuilt although its thisUpdate is in the future.
    let mount = pki.app.shared().auth.mounts().get("pki").unwrap().clone();
    let authority = pki.app.shared().mounts.authority(&mount).await.unwrap();
    authority.build_crls(signet::pki::crl::CrlBuildRequest::DUE).await.unwrap();
    assert_eq!(number(&list(&pki, "crl").await), number(&rotated));
    let answer = pki.ocsp(&about(&pki.default_pem().await, &first)).await;
    assert_eq!(answer.line("This Update: "), answer.line("Revocation Time: "));
    pki.stop().await;
}

#[actix_web::test]
async fn ocsp_responses_are_backdated() {
    let pki = started().await;
    let root = pki.default_pem().await;
    let first = leaf(&pki).await;
    let answer = pki.ocsp(&about(&root, &first)).await;
    let line = |name: &str| answer.line(name).unwrap();
    assert_eq!(line("This Update: "), "Dec 31 23:59:30 2030 GMT");
    assert_eq!(line("Produced At: "), "Dec 31 23:59:30 2030 GMT");
    assert_eq!(line("Next Update: "), "Jan  1 12:00:00 2031 GMT");
    revoke(&pki, &first).await;
    let answer = pki.ocsp(&about(&root, &first)).await;
    assert_eq!(answer.line("This Update: ").unwrap(), "Jan  1 00:00:00 2031 GMT");
    pki.stop().await;
}
