//! OCSP while the store fails: an answer in its own form, that says to come back.

use std::sync::Arc;

use serde_json::json;
use signet::x509::ocsp::IdHash;

use super::double::{Fault, Faults};
use crate::support::App;
use crate::v1::pki::mount::Pki;
use crate::v1::pki::ocsp::{cert_id, request};

#[actix_web::test]
async fn a_store_that_fails_is_try_later_and_the_next_request_is_answered() {
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    let leaf = pki.issue(&json!({}), json!({ "common_name": "localhost" })).await;
    let issuer = crate::v1::pki::mount::parse(leaf.data()["issuing_ca"].as_str().unwrap());
    let id = cert_id(IdHash::Sha1, &issuer, &leaf.certificate.serial());
    for nonce in [None, Some(&[1; 16][..])] {
        let der = request(std::slice::from_ref(&id), nonce);
        faults.arm(1, Fault::Before);
        let reply = pki.ocsp(&der).await;
        assert_eq!(faults.disarm().map(|met| met.call), Some("status"));
        reply.assert_fails(503, 3);
        assert_eq!(reply.header("retry-after"), "1");
        assert_eq!(pki.ocsp(&der).await.statuses(), ["good"]);
    }
    // What is there a moment ago needs no store.
    faults.arm(1, Fault::Outage);
    assert_eq!(pki.ocsp(&request(std::slice::from_ref(&id), None)).await.status, 200);
    assert!(faults.disarm().is_none());
    pki.stop().await;
}
