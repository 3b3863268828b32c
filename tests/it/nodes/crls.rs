//! CRLs of several nodes: each contains all revocations, and a number means one CRL.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use futures_util::future::{join, join_all};
use serde_json::json;
use signet::x509::crl::Crl;
use signet::x509::serial::Serial;

use super::{Pair, issue, nodes, ok, revoke, stop, until};
use crate::crash::audit::number;
use crate::support::{App, Client, tests_on};
use crate::v1::pki::foreign::Crl as ForeignCrl;

tests_on!(pair: Pair::start() =>
    issuer_revoked_on_one_node_is_listed_and_disabled_on_all,
);

/// The CRL seen for each number.
#[derive(Default)]
pub struct Seen(RefCell<HashMap<u64, Vec<u8>>>);

impl Seen {
    /// Fetches a node's CRL. Asserts that its number is not below `last` and still means the same CRL.
    pub async fn fetch(&self, client: &Client, last: u64) -> Crl {
        let response = client.request("GET", "pki/crl").send().await.unwrap();
        assert_eq!(response.status(), 200);
        let der = response.bytes().await.unwrap().to_vec();
        let crl = Crl::parse(&der).unwrap();
        let number = number(&crl);
        assert!(number >= last, "CRL number {number} after {last}");
        let known = self.0.borrow_mut().entry(number).or_insert_with(|| der.clone()).clone();
        assert!(known == der, "two CRLs have the number {number}");
        crl
    }
}

fn holds(crl: &Crl, serials: &[String]) -> bool {
    let listed: BTreeSet<Serial> = crl.entries().iter().map(|entry| entry.serial).collect();
    serials.iter().all(|serial| listed.contains(&Serial::parse(serial).unwrap()))
}

async fn agree(seen: &Seen, nodes: &[&App], serials: &[String]) -> u64 {
    let mut agreed = 0;
    until("one CRL with all revocations", async || {
        let crls = join_all(nodes.iter().map(|node| seen.fetch(&node.client, 0))).await;
        let numbers: BTreeSet<u64> = crls.iter().map(number).collect();
        agreed = *numbers.last().unwrap();
        numbers.len() == 1 && crls.iter().all(|crl| holds(crl, serials))
    })
    .await;
    agreed
}

/// Waits until a node has polled the change log several times.
async fn looks(app: &App) {
    let count = async || {
        let page = app.client.page("/metrics").await.text;
        let line = page.lines().find(|line| line.starts_with("signet_changes_polls_total{result=\"done\"}"));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let before = count().await;
    until("looks at the log", async || count().await >= before + 9.0).await;
}

fn published(app: &App) -> u64 {
    app.database().psql("SELECT max(number) FROM crl").parse().unwrap()
}

#[actix_web::test]
async fn concurrent_revocations_are_on_both_crls_with_unique_numbers() {
    const EACH: usize = 150;
    let (a, [b]) = nodes().await;
    let seen = Seen::default();
    let work = async |client: Client| {
        let mut serials = Vec::new();
        for _ in 0..EACH / 10 {
            let serial = issue(&client).await;
            revoke(&client, &serial).await;
            // A revocation whose response has arrived is on that node's CRL.
            assert!(holds(&seen.fetch(&client, 0).await, std::slice::from_ref(&serial)));
            serials.push(serial);
        }
        serials
    };
    let all = [&a, &b].into_iter().flat_map(|node| (0..10).map(|_| work(node.client.clone())));
    let done = std::cell::Cell::new(false);
    let watch = async |client: &Client| {
        let mut last = 0;
        while !done.get() {
            last = number(&seen.fetch(client, last).await);
        }
    };
    let working = async {
        let serials = join_all(all).await.concat();
        done.set(true);
        serials
    };
    let (serials, _) = join(working, join(watch(&a.client), watch(&b.client))).await;
    assert_eq!(serials.len(), 2 * EACH);
    let agreed = agree(&seen, &[&a, &b], &serials).await;

    // No further CRL is published, however often the nodes poll.
    assert_eq!(published(&a), agreed);
    looks(&a).await;
    assert_eq!(published(&a), agreed);
    assert_eq!(a.database().psql("SELECT max(rev_seq) FROM mount"), (2 * EACH).to_string());
    assert_eq!(a.database().psql("SELECT sum(revocations) FROM counter"), (2 * EACH).to_string());
    stop(a, [b]).await;
}

#[actix_web::test]
async fn three_nodes_serve_one_crl_whichever_node_signed_it() {
    let (a, [b, c]) = nodes().await;
    let seen = Seen::default();
    let mut serials = Vec::new();
    for node in [&a, &b, &c, &a] {
        let serial = issue(&node.client).await;
        revoke(&node.client, &serial).await;
        serials.push(serial);
        agree(&seen, &[&a, &b, &c], &serials).await;
    }
    // One number per revocation: nodes that follow do not sign again.
    let before = published(&a);
    assert!(before <= 1 + 4 * 2, "{before} CRLs for 4 revocations");
    ok(b.client.post("pki/crl/rotate", json!({})).await);
    assert_eq!(agree(&seen, &[&a, &b, &c], &serials).await, published(&a));
    assert!(published(&a) > before);
    looks(&a).await;
    agree(&seen, &[&a, &b, &c], &serials).await;
    stop(a, [b, c]).await;
}

#[actix_web::test]
async fn replaced_reason_is_on_the_crl_of_every_node() {
    let (a, [b]) = nodes().await;
    let seen = Seen::default();
    let serials = [issue(&a.client).await, issue(&b.client).await];
    for (node, serial) in [&a, &b].into_iter().zip(&serials) {
        ok(node.client.post("pki/revoke", json!({ "serial_number": serial, "reason": "superseded" })).await);
    }
    let before = agree(&seen, &[&a, &b], &serials).await;
    // Each on the node that did not revoke it.
    for (node, serial) in [&b, &a].into_iter().zip(&serials) {
        ok(node.client.post("pki/revoke", json!({ "serial_number": serial, "reason": "keyCompromise" })).await);
    }
    let reasons = async |node: &App| {
        let der = node.client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap();
        ForeignCrl::new(der.to_vec()).text.matches("Key Compromise").count()
    };
    until("the reasons on both", async || reasons(&a).await == 2 && reasons(&b).await == 2).await;
    let after = agree(&seen, &[&a, &b], &serials).await;
    assert!(after > before);
    looks(&a).await;
    assert_eq!(published(&a), after, "nobody signs again");
    // A node that starts now builds the same CRL.
    let c = a.another().await;
    assert_eq!(agree(&seen, &[&a, &b, &c], &serials).await, after);
    assert_eq!(a.database().psql("SELECT sum(revocations) FROM counter"), "2");
    stop(a, [b, c]).await;
}

async fn issuer_revoked_on_one_node_is_listed_and_disabled_on_all(Pair { a, b }: &Pair) {
    let csr = ok(a
        .client
        .post("pki/intermediate/generate/internal", json!({ "common_name": "Sub", "key_type": "ec" }))
        .await);
    let sign = json!({ "csr": csr["data"]["csr"], "common_name": "Sub", "ttl": "8760h" });
    let signed = ok(a.client.post("pki/root/sign-intermediate", sign).await);
    let set =
        ok(a.client.post("pki/intermediate/set-signed", json!({ "certificate": signed["data"]["certificate"] })).await);
    let id = set["data"]["imported_issuers"][0].as_str().unwrap();
    let serial = signed["data"]["serial_number"].as_str().unwrap().to_owned();
    until("the issuer", async || b.client.get(&format!("pki/issuer/{id}")).await.status == 200).await;
    ok(b.client.post(&format!("pki/issuer/{id}/revoke"), json!({})).await);
    let crl =
        async || Crl::parse(&a.client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap()).unwrap();
    until("its revocation", async || holds(&crl().await, std::slice::from_ref(&serial))).await;
    let path = format!("pki/issuer/{id}/issue/web");
    let refused = async || a.client.post(&path, json!({ "common_name": "a.test", "ttl": "1h" })).await.status == 400;
    until("its refusal", refused).await;
}

/// The numbers of a node's complete and delta CRL, and the serials on either.
async fn lists(node: &App) -> ([u64; 2], BTreeSet<Serial>) {
    let fetch = async |path: &str| {
        let response = node.client.request("GET", path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        Crl::parse(&response.bytes().await.unwrap()).unwrap()
    };
    let both = [fetch("pki/crl").await, fetch("pki/crl/delta").await];
    let serials = both.iter().flat_map(|list| list.entries().iter().map(|entry| entry.serial)).collect();
    (both.each_ref().map(number), serials)
}

/// CRLs built on request on any node: a node with later revocations also takes them over, and gives its next CRLs
/// higher numbers.
#[actix_web::test]
async fn timer_built_crls_agree_on_all_nodes() {
    let (a, [b, c]) = nodes().await;
    let all = [&a, &b, &c];
    let config = json!({ "auto_rebuild": true, "enable_delta": true, "delta_rebuild_interval": "15m",
        "auto_rebuild_grace_period": "12h", "expiry": "72h" });
    ok(a.client.post("pki/config/crl", config).await);
    let work = async |first: usize| {
        for n in first..first + 6 {
            let serial = issue(&all[n % 3].client).await;
            revoke(&all[(n / 2) % 3].client, &serial).await;
            let path = if n % 2 == 0 { "pki/crl/rotate-delta" } else { "pki/crl/rotate" };
            ok(all[(n + n / 3) % 3].client.post(path, json!({})).await);
        }
    };
    for round in 0..5 {
        join_all((0..6).map(|n| work(n + round))).await;
        until("one pair of lists on all nodes", async || {
            let seen = join_all(all.iter().map(|node| lists(node))).await;
            seen.iter().all(|one| *one == seen[0])
        })
        .await;
    }
    for node in all {
        let serial = issue(&node.client).await;
        revoke(&node.client, &serial).await;
        let ([_, before], _) = lists(node).await;
        ok(node.client.post("pki/crl/rotate-delta", json!({})).await);
        let ([_, after], listed) = lists(node).await;
        assert!(after > before && listed.contains(&Serial::parse(&serial).unwrap()), "{before} {after}");
    }
    stop(a, [b, c]).await;
}
