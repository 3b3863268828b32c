//! OCSP with a failing store: the response is `tryLater`.

use std::sync::Arc;

use serde_json::json;
use signet::x509::ocsp::CertIdHash;

use super::double::{Fault, Faults};
use crate::support::App;
use crate::v1::pki::mount::Pki;
use crate::v1::pki::ocsp::{cert_id, request};

#[actix_web::test]
async fn ocsp_store_failure_is_try_later_and_next_request_succeeds() {
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost" })).await;
    let issuer = crate::v1::pki::mount::parse(leaf.data()["issuing_ca"].as_str().unwrap());
    let id = cert_id(CertIdHash::Sha1, &issuer, &leaf.certificate.serial());
    for nonce in [None, Some(&[1; 16][..])] {
        let der = request(std::slice::from_ref(&id), nonce);
        faults.arm_next("status", Fault::Before);
        let reply = pki.ocsp(&der).await;
        assert!(faults.disarm().is_some());
        reply.assert_fails(503, 3);
        assert_eq!(reply.header("retry-after"), "1");
        assert_eq!(pki.ocsp(&der).await.statuses(), ["good"]);
    }
    // A recent response is served without the store.
    faults.arm_next("status", Fault::Outage);
    assert_eq!(pki.ocsp(&request(std::slice::from_ref(&id), None)).await.status, 200);
    assert!(faults.disarm().is_none());
    pki.stop().await;
}

#[actix_web::test]
async fn ocsp_shows_unconfirmed_revocation_immediately() {
    let faults = Arc::new(Faults::default());
    let clock = time::macros::datetime!(2031-01-01 00:00 UTC);
    let pki = Pki::on(App::builder().manual_clock(clock).faults(&faults).start().await).await;
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost" })).await;
    let issuer = crate::v1::pki::mount::parse(leaf.data()["issuing_ca"].as_str().unwrap());
    let der = request(&[cert_id(CertIdHash::Sha1, &issuer, &leaf.certificate.serial())], None);
    assert_eq!(pki.ocsp(&der).await.statuses(), ["good"]);
    let revoke = async || pki.app.client.post("pki/revoke", json!({ "serial_number": leaf.serial() })).await;
    faults.arm_next("commit (pki)", Fault::After);
    assert_eq!(revoke().await.status, 503);
    assert!(faults.disarm().is_some());
    assert_eq!(pki.ocsp(&der).await.statuses(), ["revoked"]);
    assert_eq!(revoke().await.status, 200);
    pki.stop().await;
}
