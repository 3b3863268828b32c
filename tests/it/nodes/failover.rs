//! The database server crashes and its standby takes over, while two real processes work.

use serde_json::json;

use signet::x509::crl::Crl;

use super::processes::audit_when_caught_up;
use super::{ok, revoke, until};
use crate::cluster::Cluster;
use crate::crash::audit::missing;
use crate::crash::load::{Ledger, Load, Unanswered};
use crate::crash::place::Place;
use crate::support::Client;

pub fn pair() -> (std::sync::Arc<Cluster>, crate::cluster::Database, std::sync::Arc<Cluster>) {
    let primary = Cluster::new();
    let database = primary.database();
    let standby = primary.standby();
    // Set after the base backup: a promoted standby has no standby of its own to wait for.
    primary.set(&["synchronous_standby_names = '*'"]);
    while primary.psql("postgres", "SELECT sync_state FROM pg_stat_replication") != "sync" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    (primary, database, standby)
}

#[actix_web::test]
async fn failover_to_synchronous_standby_loses_no_acknowledged_change() {
    let (primary, database, standby) = pair();
    let mut place = Place::with_standby(database, &standby);
    let nodes = [place.start(), place.start()];
    let token = place.client(&nodes[0]).await.token;
    let ledgers = [Ledger::default(), Ledger::default()];
    let loads: Vec<Load> = nodes
        .iter()
        .zip(&ledgers)
        .map(|(node, ledger)| Load::start(node, &token, ledger, Unanswered::IsWrong))
        .collect();
    ledgers.iter().for_each(|ledger| ledger.wait_for(100, 10, 0));
    primary.stop();
    // During the outage, requests get a 503 with `Retry-After`.
    ledgers.iter().for_each(|ledger| ledger.wait_for(0, 0, 20));
    standby.promote();
    ledgers.iter().for_each(|ledger| ledger.wait_for(60, 6, 0));
    loads.into_iter().for_each(Load::finish);
    place.moved_to(&standby);
    let clients = nodes.each_ref().map(|node| node.client().with_token(&token));
    for client in &clients {
        for ledger in &ledgers {
            audit_when_caught_up(client, ledger, &place).await;
        }
    }
    let read = async |client: &Client, name: &str| client.get(&format!("pki/roles/{name}")).await.status;
    for (name, here, there) in [("a", 0, 1), ("b", 1, 0)] {
        ok(clients[here].post(&format!("pki/roles/{name}"), json!({ "key_type": "ec" })).await);
        until("the other node's role", async || read(&clients[there], name).await == 200).await;
    }
    let late = place.start();
    audit_when_caught_up(&late.client().with_token(&token), &ledgers[0], &place).await;
    late.terminate();
    for node in nodes {
        node.terminate();
    }
}

#[actix_web::test]
async fn failover_to_asynchronous_standby_reloads_nodes_from_it() {
    let primary = Cluster::new();
    let database = primary.database();
    let standby = primary.standby();
    let place = Place::with_standby(database, &standby);
    let nodes = [place.start(), place.start()];
    let token = place.client(&nodes[0]).await.token;
    let [a, b] = nodes.each_ref().map(|node| node.client().with_token(&token));
    let ttl =
        async |client: &Client, role: &str| client.get(&format!("pki/roles/{role}")).await.body["data"]["ttl"].clone();
    let write = async |client: &Client, role: &str, ttl: &str| {
        ok(client
            .post(&format!("pki/roles/{role}"), json!({ "key_type": "ec", "allow_any_name": true, "ttl": ttl }))
            .await);
    };
    for role in ["of-a", "of-b"] {
        write(&a, role, "1h").await;
        until("a role of the other node", async || ttl(&b, role).await == "1h").await;
    }
    let serials = [revoked(&a).await];
    let behind = "SELECT pg_current_wal_lsn() - replay_lsn FROM pg_stat_replication";
    until("the standby", async || primary.psql("postgres", behind) == "0").await;

    // From here on, nothing reaches the standby.
    standby.set(&["primary_conninfo = ''"]);
    until("no standby", async || primary.psql("postgres", behind).is_empty()).await;
    write(&a, "of-a", "2h").await;
    write(&b, "of-b", "2h").await;
    let lost = revoked(&a).await;
    for role in ["of-a", "of-b"] {
        until("a lost change", async || ttl(&a, role).await == "2h" && ttl(&b, role).await == "2h").await;
    }
    until("a lost revocation", async || is_listed(&b, &lost).await).await;

    primary.stop();
    standby.promote();
    for role in ["of-a", "of-b"] {
        until("what is stored", async || ttl(&a, role).await == "1h" && ttl(&b, role).await == "1h").await;
    }
    // Has the same sequence number as the lost revocation.
    let later = revoked_somewhere(&b).await;
    for client in [&a, &b] {
        let all = async || is_listed(client, &serials[0]).await && is_listed(client, &later).await;
        until("the revocations that are stored", all).await;
        write(client, "of-a", "3h").await;
    }
    for node in nodes {
        node.terminate();
    }
}

async fn revoked(client: &Client) -> String {
    let issued = ok(client.post("pki/issue/dev", json!({ "common_name": "a.test" })).await);
    let serial = issued["data"]["serial_number"].as_str().unwrap().to_owned();
    revoke(client, &serial).await;
    serial
}

/// Like [`revoked`]; retries while writes may still go to the old server.
async fn revoked_somewhere(client: &Client) -> String {
    let issue = async || client.post("pki/issue/dev", json!({ "common_name": "a.test" })).await.status == 200;
    until("a certificate", issue).await;
    revoked(client).await
}

async fn is_listed(client: &Client, serial: &str) -> bool {
    let der = client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap();
    let Ok(crl) = Crl::parse(&der) else { return false };
    missing(&crl, &[(serial.to_owned(), 0)].into()).is_empty()
}

#[actix_web::test]
async fn node_does_not_start_on_a_standby_without_primary() {
    let (_primary, database, standby) = pair();
    let folder = tempfile::tempdir().unwrap();
    let url = database.on(&standby).url();
    let arguments = ["dev", "--listen", "127.0.0.1:0", "--database-url", &url, "--data-dir"];
    let text = crate::process::refused(crate::process::signet().args(arguments).arg(folder.path()));
    assert!(text.contains("the server accepts no writes: it is a standby"), "{text}");
}
