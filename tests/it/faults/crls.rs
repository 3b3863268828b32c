//! CRLs whose record was stored and the builder was not told.

use std::sync::Arc;

use serde_json::{Value, json};

use super::double::{Fault, Faults};
use crate::support::{Answer, App};
use crate::v1::pki::mount::Pki;

/// A request whose first commit is stored without an answer.
async fn unanswered(pki: &Pki, faults: &Faults, fault: Fault, ask: impl AsyncFn() -> Answer) {
    for n in 1..10 {
        faults.arm(n, fault);
        let answer = ask().await;
        if faults.disarm().is_some_and(|met| met.call == "commit (pki)") {
            assert_eq!(answer.status, 503, "{}", answer.text);
            return;
        }
    }
    panic!("no commit of {}", pki.app.client.url("pki"));
}

#[actix_web::test]
async fn a_delta_list_that_is_taken_over_while_entries_move_loses_none_of_the_complete_list() {
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
    // An entry that another default issuer takes along.
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
