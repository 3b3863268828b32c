//! A database server that stops or hangs: requests get responses in time, and the server recovers by itself.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::endpoints::assert_unavailable;
use crate::support::{Answer, App, Client, send, until};

/// The configured maximum duration of a request.
const LONGEST: Duration = Duration::from_secs(2);
/// Tolerance for a busy machine, shorter than the store's own timeouts.
const SLACK: Duration = Duration::from_secs(7);

async fn authority() -> App {
    let app = App::builder().postgres().settings(|s| s.max_duration = LONGEST).start().await;
    let role = |no_store: bool| json!({ "allow_any_name": true, "key_type": "ec", "ttl": "24h", "no_store": no_store });
    for (path, body) in [
        ("pki/root/generate/internal", json!({ "common_name": "Root", "key_type": "ec" })),
        ("pki/roles/web", role(false)),
        ("pki/roles/unstored", role(true)),
    ] {
        app.client.post(path, body).await.assert_status(200);
    }
    app
}

async fn issue(client: &Client, role: &str) -> (String, String) {
    let answer = client.post(&format!("pki/issue/{role}"), json!({ "common_name": "a.test" })).await.assert_status(200);
    ["serial_number", "certificate"].map(|name| answer.body["data"][name].as_str().unwrap().to_owned()).into()
}

/// Data for one request of each sort, prepared before the outage.
struct Needs {
    serial: String,
    csr: String,
    /// Has an unused token, which is in no cache.
    fresh: Client,
}

async fn needs(app: &App) -> Needs {
    let folder = app.folder();
    let new = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a.test"];
    let csr = crate::process::openssl(folder, &[&new[..], &["-keyout", "/dev/null"]].concat());
    Needs { serial: issue(&app.client, "web").await.0, csr, fresh: app.with_policies(&["default"]).await }
}

/// Sends one request of each sort concurrently. Returns the responses with their durations.
async fn each_sort(app: &App, needs: &Needs) -> Vec<(&'static str, Answer, Duration)> {
    let Needs { serial, csr, fresh } = needs;
    let client = &app.client;
    let read = format!("pki/cert/{serial}");
    let requests: [(&'static str, &Client, &str, &str, Value); 8] = [
        ("issue", client, "POST", "pki/issue/web", json!({ "common_name": "a.test" })),
        ("sign", client, "POST", "pki/sign/web", json!({ "csr": csr })),
        ("role", client, "POST", "pki/roles/other", json!({ "key_type": "ec" })),
        ("policy", client, "POST", "sys/policies/acl/other", json!({ "policy": "path \"x\" { policy = \"read\" }" })),
        ("token", fresh, "GET", "auth/token/lookup-self", Value::Null),
        ("revoke", client, "POST", "pki/revoke", json!({ "serial_number": serial })),
        ("certificate", client, "GET", &read, Value::Null),
        ("health", client, "GET", "sys/health", Value::Null),
    ];
    join_all(requests.map(|(sort, client, method, path, body)| {
        let request = client.request(method, path).json(&body);
        async move {
            let started = Instant::now();
            (sort, send(request).await, started.elapsed())
        }
    }))
    .await
}

/// Waits until requests of each sort succeed.
async fn all_is_well(app: &App, needs: &Needs) {
    let started = Instant::now();
    loop {
        let answers = each_sort(app, needs).await;
        let failed: Vec<_> = answers.iter().filter(|(_, answer, _)| !matches!(answer.status, 200 | 204)).collect();
        if failed.is_empty() {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(40), "{}: {}", failed[0].0, failed[0].1.text);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Asserts that this is a 503 with `Retry-After` that names no internals.
fn assert_out(sort: &str, answer: &Answer) {
    match sort {
        "health" => assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{}", answer.text),
        _ => assert_unavailable(answer, sort),
    }
    assert!(!answer.text.contains("postgres") && !answer.text.contains("signet-pg"), "{}", answer.text);
}

#[actix_web::test]
async fn database_outage_is_503_and_cached_data_is_still_served() {
    let app = authority().await;
    let needs = needs(&app).await;
    let crl = app.client.get("pki/crl").await.text;
    app.database().out_of_reach(true);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for answers in join_all((0..3).map(|_| each_sort(&app, &needs))).await {
        for (sort, answer, took) in answers {
            assert_out(sort, &answer);
            assert!(took < LONGEST + SLACK, "{sort}: {took:?}");
        }
    }
    assert_eq!(app.client.get("pki/crl").await.text, crl, "a published CRL needs no database");
    app.database().out_of_reach(false);
    all_is_well(&app, &needs).await;
    app.stop().await;
}

#[actix_web::test]
async fn hanging_database_delays_no_request_beyond_its_time_limit() {
    let app = authority().await;
    let needs = needs(&app).await;
    app.database().signal_connections("STOP");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for answers in join_all((0..5).map(|_| each_sort(&app, &needs))).await {
        for (sort, answer, took) in answers {
            // The server opens new connections for reads, which do not hang.
            let may_read = matches!(sort, "token" | "certificate") && answer.status == 200;
            if !may_read {
                assert_out(sort, &answer);
            }
            assert!(took < LONGEST + SLACK, "{sort}: {took:?}");
        }
    }
    app.database().signal_connections("CONT");
    all_is_well(&app, &needs).await;
    app.stop().await;
}

#[actix_web::test]
async fn hang_during_commits_leaves_complete_transactions_only() {
    let app = authority().await;
    let client = &app.client;
    let mut acknowledged = Vec::new();
    for round in 0..6u64 {
        // A role with `no_store`: the certificate is stored together with its revocation.
        let brought = join_all((0..4).map(|_| issue(client, "unstored"))).await;
        let requests = brought.into_iter().map(|(serial, pem)| (serial, "pki/revoke", json!({ "certificate": pem })));
        let issues = (0..12).map(|_| (String::new(), "pki/issue/web", json!({ "common_name": "a.test" })));
        let answers = join_all(requests.chain(issues).map(|(serial, path, body)| async move {
            let answer = client.post(path, body).await;
            let issued = answer.body["data"]["serial_number"].as_str().map(str::to_owned);
            (answer, issued.unwrap_or(serial))
        }));
        let hang = async {
            tokio::time::sleep(Duration::from_millis(round * 2)).await;
            app.database().signal_connections("STOP");
            tokio::time::sleep(Duration::from_millis(200)).await;
            // In every second round the backends are terminated, in the others they continue.
            if round % 2 == 0 {
                app.database().end_connections();
            }
            app.database().signal_connections("CONT");
        };
        let (answers, ()) = futures_util::future::join(answers, hang).await;
        for (answer, serial) in answers {
            match answer.status {
                200 => acknowledged.push(serial),
                _ => assert_unavailable(&answer, "in a hang"),
            }
        }
    }
    let name = json!({ "common_name": "a.test" });
    until("a certificate", async || client.post("pki/issue/web", name.clone()).await.status == 200).await;
    for serial in &acknowledged {
        assert_eq!(client.get(&format!("pki/cert/{serial}")).await.status, 200, "{serial} was acknowledged");
    }
    let database = app.database();
    let alone = "SELECT COUNT(*) FROM revocation r WHERE NOT EXISTS
        (SELECT 1 FROM certificate c WHERE c.mount = r.mount AND c.serial = r.serial)";
    assert_eq!(database.psql(alone), "0", "a revocation without the certificate that came with it");
    let counted = database.psql("SELECT SUM(certificates), SUM(revocations) FROM counter");
    let found = database.psql("SELECT (SELECT COUNT(*) FROM certificate), (SELECT COUNT(*) FROM revocation)");
    assert_eq!(counted, found);
    assert_eq!(database.psql("SELECT COALESCE(MAX(seq), 0) - COUNT(*) FROM revocation"), "0");
    app.stop().await;
}
