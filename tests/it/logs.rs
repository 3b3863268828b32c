//! Log output on standard error: an access line for every request, and one report per store outage.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster;
use crate::process::{Dev, dev_with, signet};
use crate::source::sources;
use crate::support::{Client, send, until};

const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn started(log: &Path, settings: &[(&str, &str)], arguments: &[&str]) -> Dev {
    let mut command = signet();
    command.env("SIGNET_LOG", "info").envs(settings.iter().copied());
    dev_with(command.stderr(std::fs::File::create(log).unwrap()), arguments)
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap()
}

fn lines_of<'l>(log: &'l str, id: &str) -> Vec<&'l str> {
    log.lines().filter(|line| line.contains("signet::access") && line.contains(id)).collect()
}

async fn ask(client: &Client, method: &str, path: &str, body: Value) -> u16 {
    send(client.request(method, path).header("X-Request-Id", ID).json(&body)).await.status
}

#[actix_web::test]
async fn access_log_has_one_line_per_request_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let dev = started(&log, &[], &[]);
    let client = dev.client();
    let token = json!({ "policies": ["default"], "display_name": "a \"b\"\nc" });
    let weak = client.with_new_token(token).await;
    let name = json!({ "common_name": "hidden.test" });
    assert_eq!(ask(&client, "POST", "pki/issue/dev", name.clone()).await, 200);
    assert_eq!(ask(&client, "POST", "pki/issue/hidden-role?hidden=query", name).await, 400);
    assert_eq!(ask(&weak, "GET", "pki/roles/dev", Value::Null).await, 403);
    assert_eq!(ask(&client.with_token("hidden-token"), "GET", "hidden/path", Value::Null).await, 403);
    let projects = client.url("x").replace("/v1/x", "/api/v2/organizations/dev/projects");
    let projects = reqwest::Client::new().get(projects).bearer_auth(&dev.token).header("X-Request-Id", ID);
    let projects = send(projects).await;
    assert_eq!((projects.status, projects.header("x-request-id")), (200, ID));
    client.get("sys/health").await.assert_status(200);
    let nowhere = client.url("x").replace("/v1/x", "/hidden");
    assert_eq!(send(reqwest::Client::new().get(nowhere)).await.status, 404);
    let secret = dev.token.clone();
    dev.terminate();

    let log = read(&log);
    let lines = lines_of(&log, ID);
    let expected = [
        ["operation=update", "route=pki/issue/:", "mount=\"pki/\"", "status=200", "caller=\"dev\""],
        ["operation=update", "route=pki/issue/:", "mount=\"pki/\"", "status=400", "caller=\"dev\""],
        ["operation=read", "route=pki/roles/:", "mount=\"pki/\"", "status=403", "caller=\"token-a--b--c\""],
        ["service=secrets", "route=none", "status=403", "from=127.0.0.1", "ms="],
        ["service=projects", "operation=read", "status=200", "caller=\"dev\"", "from=127.0.0.1"],
    ];
    assert_eq!(lines.len(), expected.len(), "{log}");
    for (line, parts) in lines.iter().zip(expected) {
        for part in parts {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    assert_eq!(log.lines().filter(|line| line.contains("route=system/health")).count(), 1, "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("service=server") && line.contains("status=404")).count(), 1);
    for hidden in ["hidden", &secret] {
        assert!(!log.contains(hidden), "{log}");
    }
}

#[actix_web::test]
async fn access_log_follows_format_and_level_settings() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (settings, lines) in [
        (&[("SIGNET_LOG_FORMAT", "json")][..], 1),
        (&[("SIGNET_LOG_ACCESS", "false")], 0),
        (&[("SIGNET_LOG", "info,signet::access=off")], 0),
        (&[("SIGNET_LOG", "warn")], 0),
        (&[("SIGNET_LOG", "warn,signet::access=info")], 1),
    ] {
        let dev = started(&log, settings, &[]);
        assert_eq!(ask(&dev.client(), "GET", "sys/mounts", Value::Null).await, 200);
        dev.terminate();
        let log = read(&log);
        let found = lines_of(&log, ID);
        assert_eq!(found.len(), lines, "{settings:?}: {log}");
        if settings[0].1 == "json" {
            let all: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let line = all.iter().find(|line| line["request"] == ID).unwrap();
            assert_eq!(
                (&line["status"], &line["mount"], &line["level"]),
                (&json!(200), &json!("sys/"), &json!("INFO"))
            );
        }
    }
}

async fn store_up(client: &Client) -> (u16, Option<String>) {
    let page = client.get("sys/metrics?format=prometheus").await;
    (page.status, page.text.lines().find_map(|line| line.strip_prefix("signet_store_up ")).map(str::to_owned))
}

#[actix_web::test]
async fn database_outage_is_logged_once_and_shown_in_metrics() {
    let database = cluster::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let data = folder.path().join("data");
    let arguments = ["--data-dir", data.to_str().unwrap(), "--database-url", &database.url()];
    let dev = started(&log, &[("SIGNET_LOG_ACCESS", "false")], &arguments);
    let client = dev.client();
    let policy = json!({ "policy": "path \"sys/metrics\" { capabilities = [\"read\"] }\n\
        path \"pki/roles\" { capabilities = [\"list\"] }" });
    assert_eq!(client.post("sys/policies/acl/scrape", policy).await.status, 204);
    let mut tokens = Vec::new();
    for policy in ["scrape", "scrape", "default"] {
        tokens.push(client.with_new_token(json!({ "policies": [policy], "no_default_policy": true })).await);
    }
    let [scrape, revoked, weak] = &tokens[..] else { panic!() };
    for reader in [scrape, revoked] {
        assert_eq!(store_up(reader).await, (200, Some("1".to_owned())));
    }
    assert_eq!(store_up(weak).await.0, 403);
    assert_eq!(client.post("auth/token/revoke", json!({ "token": revoked.token })).await.status, 204);
    let before = read(&log).lines().count();

    database.out_of_reach(true);
    let started = Instant::now();
    let mut asked = 0;
    let mut at_begin = 0;
    let mut shown = false;
    while started.elapsed() < Duration::from_secs(25) {
        // After two seconds without contact, changes by other nodes may be missing, so reads may be rejected.
        let refused = client.post("pki/issue/dev", json!({ "common_name": "a.test" })).await;
        asked += u32::from(refused.status == 503);
        let listed = scrape.list("pki/roles").await;
        assert!([200, 503].contains(&listed.status), "{}", listed.text);
        let (status, up) = store_up(scrape).await;
        assert_eq!(status, 200, "the metrics are shown while the database is away");
        shown |= up.as_deref() == Some("0");
        if started.elapsed() < Duration::from_secs(12) {
            at_begin = read(&log).lines().count();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(asked > 20 && shown, "{asked} requests were refused");
    assert_eq!(store_up(scrape).await, (200, Some("0".to_owned())));
    for stranger in [revoked, weak, &client.with_token("s.unknown")] {
        assert_eq!(store_up(stranger).await.0, 503);
    }
    assert_eq!(scrape.list("pki/roles").await.status, 503, "nothing else is believed");
    let during = read(&log);
    assert_eq!(during.lines().count(), at_begin, "nothing is said again: {during}");

    database.out_of_reach(false);
    until("the end of the outage in the log", async || read(&log).contains("the outage is over")).await;
    assert_eq!(store_up(scrape).await, (200, Some("1".to_owned())));
    assert_eq!(client.post("pki/issue/dev", json!({ "common_name": "a.test" })).await.status, 200);
    dev.terminate();
    let log = read(&log);
    let told: Vec<&str> = log.lines().skip(before).filter(|line| !line.contains("stopping")).collect();
    assert!(told.len() < 10, "{log}");
    assert_eq!(told.iter().filter(|line| line.contains("store unavailable: ")).count(), 1, "{log}");
    assert_eq!(told.iter().filter(|line| line.contains("the outage is over")).count(), 1, "{log}");
    for debug in ["Some(", "Err(", "None", "Error {", "kind:", "Unavailable"] {
        assert!(!log.contains(debug), "{debug} in {log}");
    }
}

/// Files that log errors without `telemetry::outage`: errors at start, at stop or on request, and errors that occur
/// once or ever more rarely.
const ONCE: [(&str, usize); 16] = [
    ("audit/writer.rs", 1),
    ("auth/login/cloudb/rotate/begin.rs", 1),
    ("http/secrets/pki/lists.rs", 1),
    ("keys/actor/tasks.rs", 1),
    ("keys/actor/threads.rs", 1),
    ("keys/managed/view.rs", 1),
    ("keys/pool.rs", 1),
    ("server.rs", 3),
    ("server/capacity.rs", 1),
    ("server/notify.rs", 2),
    ("server/operator.rs", 1),
    ("server/renewal.rs", 1),
    ("server/tls.rs", 1),
    ("storage/embedded/checkpoint.rs", 1),
    ("storage/embedded/copy.rs", 1),
    ("rationing/cpu.rs", 2),
];

#[test]
fn recurring_errors_are_logged_as_outages() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.path.starts_with("cli/")) {
        for level in ["warn!(", "error!("] {
            let said = source.code.split(level).skip(1).map(|rest| rest.split_once(';').map_or(rest, |(said, _)| said));
            let errors = said.filter(|said| ["{error}", "%error", "{e}", "%e,"].iter().any(|part| said.contains(part)));
            *found.entry(source.path.clone()).or_default() += errors.count();
        }
    }
    found.retain(|_, count| *count > 0);
    let once = ONCE.map(|(path, count)| (path.to_owned(), count));
    assert_eq!(found, BTreeMap::from(once), "is it said again every time? then telemetry::outage is for it");
}
