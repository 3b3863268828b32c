//! Clients that disconnect during a write: the write happens completely or not at all, and holds no permit.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::endpoints::assert_unavailable;
use super::stuck::Served;
use crate::support::until;

const QUEUE: usize = 16;

/// Sends a request and closes the connection after `after`, during the request or after its end.
async fn leave(served: &Served, path: &str, body: Value, after: Duration) {
    // A connection per request, so that the server sees it close.
    let connection = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let request = served.client.request("POST", path).json(&body).build().unwrap();
    let _ = tokio::time::timeout(after, connection.execute(request)).await;
}

async fn keys(served: &Served, path: &str) -> Vec<String> {
    serde_json::from_value(served.client.list(path).await.body["data"]["keys"].clone()).unwrap_or_default()
}

#[actix_web::test]
async fn disconnecting_clients_hold_no_permit_and_no_partial_write() {
    let served = Served::start(QUEUE).await;
    let mut revoked = Vec::new();
    for round in 0..24u32 {
        let issued = served.post("pki/issue/web", json!({ "common_name": "a.test" })).await;
        let serial = issued.body["data"]["serial_number"].as_str().unwrap().to_owned();
        // The store hangs in two of three rounds.
        let hold = (round % 3 != 0).then(|| served.hold());
        let after = Duration::from_micros(u64::from(round) * 700);
        let policy = json!({ "policy": format!("path \"x{round}\" {{ capabilities = [\"read\"] }}") });
        join_all([
            leave(&served, "pki/issue/web", json!({ "common_name": "left.test" }), after),
            leave(&served, &format!("pki/roles/left{round}"), json!({ "key_type": "ec" }), after),
            leave(&served, "pki/revoke", json!({ "serial_number": serial }), after),
            leave(&served, "auth/token/create", json!({ "policies": ["default"] }), after),
            leave(&served, "sys/policies/acl/left", policy, after),
            leave(&served, &format!("sys/mounts/left{round}"), json!({ "type": "pki" }), after),
            leave(&served, "sys/mounts/pki/tune", json!({ "description": round.to_string() }), after),
        ])
        .await;
        drop(hold);
        served.wait_for_queue(0).await;
        revoked.push(serial);
    }
    for serial in &revoked {
        served.post("pki/revoke", json!({ "serial_number": serial })).await;
    }
    let role = json!({ "key_type": "ec" });
    served.post("pki/roles/stayed", role).await;
    assert_eq!(keys(&served, "pki/certs/revoked").await.len(), revoked.len());
    // A mount in the table is open: it accepts a role.
    for mount in served.client.get("sys/mounts").await.body["data"].as_object().unwrap().keys() {
        if mount.starts_with("left") {
            served.post(&format!("{mount}roles/web"), json!({ "key_type": "ec" })).await;
        }
    }
    // Every permit is free: as many writes as the queue holds can wait, and all succeed.
    let hold = served.hold();
    let client = served.client.clone();
    let all = actix_web::rt::spawn(async move {
        join_all((0..QUEUE).map(|_| client.post("pki/issue/web", json!({ "common_name": "a.test" })))).await
    });
    served.wait_for_queue(QUEUE).await;
    drop(hold);
    assert!(all.await.unwrap().iter().all(|answer| answer.status == 200));
    served.wait_for_queue(0).await;
    served.stop();
}

/// Writes with a visible effect: path, body, the path to read, and a text found there.
fn writes() -> [(&'static str, Value, &'static str, &'static str); 6] {
    let policy = json!({ "policy": "path \"x\" { capabilities = [\"read\"] }" });
    [
        ("sys/policies/acl/left", policy, "sys/policies/acl/left", "path"),
        ("sys/mounts/left", json!({ "type": "pki" }), "sys/mounts/left", "pki"),
        ("sys/mounts/pki/tune", json!({ "description": "was left" }), "sys/mounts/pki", "was left"),
        ("sys/auth/token/tune", json!({ "description": "was left" }), "sys/auth/token", "was left"),
        ("pki/roles/left", json!({ "key_type": "ec" }), "pki/roles/left", "key_type"),
        ("left/roles/left", json!({ "key_type": "ec" }), "left/roles/left", "key_type"),
    ]
}

async fn wait_until_served(served: &Served, read: &str, shows: &str) {
    until(read, async || served.client.get(read).await.text.contains(shows)).await;
}

/// The client disconnects while its commit runs: the stored change is served.
#[actix_web::test]
async fn write_of_a_disconnected_client_is_served() {
    let served = Served::start(QUEUE).await;
    for (path, body, read, shows) in writes() {
        let hold = served.hold();
        tokio::select! {
            () = leave(&served, path, body, Duration::from_secs(20)) => panic!("nothing ends while the store hangs"),
            () = served.wait_for_queue(1) => {}
        }
        drop(hold);
        wait_until_served(&served, read, shows).await;
    }
    served.wait_for_queue(0).await;
    served.stop();
}

/// The same after a request timeout.
#[actix_web::test]
async fn write_of_a_timed_out_request_is_served() {
    let served = Served::configured("max_request_duration = \"1s\"\n").await;
    for (path, body, read, shows) in writes() {
        let hold = served.hold();
        assert_unavailable(&served.client.post(path, body).await, path);
        drop(hold);
        wait_until_served(&served, read, shows).await;
    }
    served.wait_for_queue(0).await;
    served.stop();
}
