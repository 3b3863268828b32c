//! The database server ends at once and its synchronous standby takes over, while two real processes work.

use serde_json::json;

use super::processes::audit_when_caught_up;
use super::{ok, until};
use crate::cluster::Cluster;
use crate::crash::load::{Ledger, Load, Unanswered};
use crate::crash::place::Place;

/// A server, and a standby that has all that is answered as committed.
pub fn pair() -> (std::sync::Arc<Cluster>, crate::cluster::Database, std::sync::Arc<Cluster>) {
    let primary = Cluster::new();
    let database = primary.database();
    let standby = primary.standby();
    // Set later than the copy was made: the standby, once it is the primary, has no other to wait for.
    primary.set(&["synchronous_standby_names = '*'"]);
    while primary.psql("postgres", "SELECT sync_state FROM pg_stat_replication") != "sync" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    (primary, database, standby)
}

#[actix_web::test]
async fn a_failover_to_a_synchronous_standby_loses_nothing_that_was_answered() {
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
    // Whoever asks meanwhile is told to come again.
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
    // They hear of each other's changes there too.
    let read =
        async |client: &crate::support::Client, name: &str| client.get(&format!("pki/roles/{name}")).await.status;
    for (name, here, there) in [("a", 0, 1), ("b", 1, 0)] {
        ok(clients[here].post(&format!("pki/roles/{name}"), json!({ "key_type": "ec" })).await);
        until("the other node's role", async || read(&clients[there], name).await == 200).await;
    }
    // A node that starts now passes over the server that is gone.
    let late = place.start();
    audit_when_caught_up(&late.client().with_token(&token), &ledgers[0], &place).await;
    late.terminate();
    for node in nodes {
        node.terminate();
    }
}

#[actix_web::test]
async fn a_node_does_not_start_on_a_standby_alone() {
    let (_primary, database, standby) = pair();
    let folder = tempfile::tempdir().unwrap();
    let url = database.on(&standby).url();
    let arguments = ["dev", "--listen", "127.0.0.1:0", "--database-url", &url, "--data-dir"];
    let text = crate::process::refused(crate::process::signet().args(arguments).arg(folder.path()));
    assert!(text.contains("it takes no writes: a standby"), "{text}");
}
