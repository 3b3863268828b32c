//! Two real processes on one database: one is killed or suspended.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signet::x509::crl::Crl;

use super::crls::Seen;
use super::{ok, revoke, until};
use crate::cluster;
use crate::crash::audit::{audit, missing, number};
use crate::crash::load::{Ledger, Load, Unanswered};
use crate::crash::place::Place;
use crate::process::Dev;
use crate::support::Client;

fn signal(dev: &Dev, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(dev.pid()).unwrap()).unwrap(), signal).unwrap();
}

#[actix_web::test]
async fn one_of_two_nodes_killed_under_load_loses_nothing() {
    let place = Place::postgres(cluster::shared().database());
    let a = place.start();
    let b = place.start();
    let token = place.client(&b).await.token;
    let ledgers = [Ledger::default(), Ledger::default()];
    let one = Load::start(&a, &token, &ledgers[0], Unanswered::IsTheEnd);
    let other = Load::start(&b, &token, &ledgers[1], Unanswered::IsWrong);
    ledgers[0].wait_for(60, 6, 0);
    a.kill();
    one.finish();
    ledgers[1].wait_for(60, 6, 0);
    other.finish();
    let client = b.client().with_token(&token);
    for ledger in &ledgers {
        audit_when_caught_up(&client, ledger, &place).await;
    }
    let a = place.start();
    audit(&a.client().with_token(&token), &ledgers[1], &place).await;
    a.terminate();
    b.terminate();
}

/// Audits a ledger on a node that may still have to read its revocations.
pub(super) async fn audit_when_caught_up(client: &Client, ledger: &Ledger, place: &Place) {
    let (revoked, last) = {
        let book = ledger.read();
        (book.revoked.clone(), book.crl_number)
    };
    let caught_up = async || {
        let der = client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap();
        let crl = Crl::parse(&der).unwrap();
        number(&crl) >= last && missing(&crl, &revoked).is_empty()
    };
    until("the other node's revocations", caught_up).await;
    audit(client, ledger, place).await;
}

async fn revocations(client: &Client, count: usize) -> Vec<String> {
    let mut serials = Vec::new();
    for _ in 0..count {
        let issued = ok(client.post("pki/issue/dev", json!({ "common_name": "a.test" })).await);
        let serial = issued["data"]["serial_number"].as_str().unwrap().to_owned();
        revoke(client, &serial).await;
        serials.push(serial);
    }
    serials
}

#[actix_web::test]
async fn resumed_node_serves_no_stale_grants_or_crls() {
    let place = Place::postgres(cluster::shared().database());
    let a = place.start();
    let b = place.start();
    let token = place.client(&b).await.token;
    let here = a.client().with_token(&token);
    let there = b.client().with_token(&token);
    let seen = Seen::default();
    let read = "path \"pki/roles/*\" { capabilities = [\"read\"] }";
    ok(there.post("sys/policies/acl/reader", json!({ "policy": read })).await);
    ok(there.post("pki/roles/web", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" })).await);
    let made = ok(there.post("auth/token/create", json!({ "policies": ["reader"] })).await);
    let reader = here.with_token(made["auth"]["client_token"].as_str().unwrap());
    until("the policy", async || reader.get("pki/roles/web").await.status == 200).await;

    // Suspended during revocations, each of which publishes a CRL.
    let ledger = Ledger::default();
    let load = Load::start(&a, &token, &ledger, Unanswered::IsWrong);
    ledger.wait_for(20, 3, 0);
    signal(&a, Signal::STOP);
    let paused = Instant::now();
    let mut serials = revocations(&there, 5).await;
    let last = number(&seen.fetch(&there, 0).await);
    let none = "path \"pki/none\" { capabilities = [\"read\"] }";
    ok(there.post("sys/policies/acl/reader", json!({ "policy": none })).await);
    ok(there.patch("pki/roles/web", json!({ "allow_any_name": false })).await);
    // Longer than a node may go without reading the change log.
    while paused.elapsed() < signet::nodes::MAX_STALENESS + Duration::from_millis(500) {
        serials.extend(revocations(&there, 1).await);
    }
    signal(&a, Signal::CONT);

    reader.get("pki/roles/web").await.assert_denied();
    here.post("pki/issue/web", json!({ "common_name": "a.test" })).await.assert_status(400);
    ledger.wait_for(5, 1, 0);
    load.finish();
    serials.extend(ledger.read().revoked.keys().cloned());
    let revoked = serials.into_iter().map(|serial| (serial, 0)).collect();
    for client in [&here, &there] {
        let all = async || {
            let crl = seen.fetch(client, 0).await;
            number(&crl) > last && missing(&crl, &revoked).is_empty()
        };
        until("a CRL with all revocations", all).await;
    }
    assert_eq!(ledger.read().wrong, [""; 0]);
    a.terminate();
    b.terminate();
}
