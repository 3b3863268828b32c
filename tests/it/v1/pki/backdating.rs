//! Backdating of certificates, CRLs and OCSP responses, for clients whose clocks are slow.

use std::time::Duration;

use serde_json::json;
use signet::clock::Time;
use signet::x509::crl::Crl;
use time::macros::datetime;

use super::mount::Pki;
use super::ocsp::about;
use crate::crash::audit::number;

const BEGIN: Time = datetime!(2031-01-01 00:00 UTC);
/// Backdating of certificates in seconds, and its maximum for CRLs and OCSP responses.
const ALLOWANCE: i64 = 30;
const LIFETIME_SECONDS: i64 = 72 * 3600;

async fn list(pki: &Pki, path: &str) -> Crl {
    Crl::parse(&pki.fetch("GET", path, &[]).await.bytes().await.unwrap()).unwrap()
}

/// Returns thisUpdate, nextUpdate and the latest revocation time of a CRL.
fn times(list: &Crl) -> (i64, i64, Option<i64>) {
    let latest = list.entries().iter().map(|entry| entry.revoked_at).max();
    (list.this_update(), list.next_update().unwrap(), latest)
}

#[actix_web::test]
async fn crls_and_ocsp_are_backdated_but_not_before_revocations() {
    let pki = Pki::at(BEGIN).await;
    pki.post("config/crl", json!({ "enable_delta": true, "auto_rebuild": true })).await;
    let first = pki.leaf().await;
    assert_eq!(first.certificate.not_before(), pki.now() - ALLOWANCE);
    for path in ["crl", "crl/delta"] {
        assert_eq!(
            times(&list(&pki, path).await),
            (pki.now() - ALLOWANCE, pki.now() + LIFETIME_SECONDS, None),
            "{path}"
        );
    }
    let request = about(&pki.default_pem().await, &first);
    let answer = pki.ocsp(&request).await;
    for (name, time) in [
        ("This Update: ", "Dec 31 23:59:30 2030 GMT"),
        ("Produced At: ", "Dec 31 23:59:30 2030 GMT"),
        ("Next Update: ", "Jan  1 12:00:00 2031 GMT"),
    ] {
        assert_eq!(answer.line(name).unwrap(), time, "{name}");
    }
    pki.app.clock.advance(Duration::from_secs(100));
    pki.revoke(&first).await;
    let revoked_at = pki.now();
    assert_eq!(pki.ocsp(&request).await.line("This Update: ").unwrap(), "Jan  1 00:01:40 2031 GMT");
    // Backdating stops at the latest revocation: ten seconds later it limits thisUpdate, a minute later it does not.
    for (later, this_update) in [(10, revoked_at), (50, revoked_at + 60 - ALLOWANCE)] {
        pki.app.clock.advance(Duration::from_secs(later));
        pki.get("crl/rotate-delta").await;
        let delta = times(&list(&pki, "crl/delta").await);
        assert_eq!(delta, (this_update, pki.now() + LIFETIME_SECONDS, Some(revoked_at)));
    }
    pki.get("crl/rotate").await;
    assert_eq!(
        times(&list(&pki, "crl").await),
        (pki.now() - ALLOWANCE, pki.now() + LIFETIME_SECONDS, Some(revoked_at))
    );
    pki.stop().await;
}

#[actix_web::test]
async fn clock_set_back_builds_no_crl_older_than_its_entries() {
    let pki = Pki::at(BEGIN).await;
    let first = pki.leaf().await;
    pki.app.clock.advance(Duration::from_secs(10 * 3600));
    pki.revoke(&first).await;
    let revoked_at = pki.now();
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
