//! The dashboard and the alerting rules: what they ask for is in the catalogue, and at `/metrics` after
//! a walk through the server.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signet::audit::DeviceSettings;
use signet::telemetry::{CATALOGUE, MetricKind};

use crate::metrics::{metric_of, page_of_all};
use crate::provider::{Provider, RESOURCE, S1, TENANT};
use crate::support::App;

const DASHBOARD: &str = include_str!("../../grafana/dashboards/signet.json");
const ALERTS: &str = include_str!("../../grafana/alerts.yml");
const ALERTS_TEST: &str = include_str!("../../grafana/alerts_test.yml");

/// Every series that the expressions use: its name as written, and the labels it is selected by.
fn used() -> BTreeSet<(String, Vec<String>)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    let rules: Vec<&str> = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(rules.len(), ALERTS.matches("- alert: ").count());
    assert!(queries.len() > 30 && rules.len() >= 5);
    queries.into_iter().chain(rules).flat_map(series).collect()
}

fn series(expression: &str) -> Vec<(String, Vec<String>)> {
    let begins = ["signet_", "process_"].into_iter().flat_map(|prefix| expression.match_indices(prefix));
    begins
        .map(|(at, _)| {
            let rest = &expression[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let selector =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
            let labels =
                selector.split(", ").filter_map(|pair| pair.split_once('=')).map(|(label, _)| label.to_owned());
            // Prometheus itself adds `instance`.
            (name.to_owned(), labels.filter(|label| label != "instance").collect())
        })
        .collect()
}

#[test]
fn dashboard_and_alerts_use_what_is_in_the_catalogue_and_all_of_it() {
    let used = used();
    for (series, _) in &used {
        assert!(metric_of(series).is_some(), "{series}: not in the catalogue, or not in that form");
    }
    for metric in CATALOGUE {
        let shown = used.iter().any(|(series, _)| metric_of(series).is_some_and(|m| m.name == metric.name));
        assert!(shown, "{}: on no panel", metric.name);
    }
}

#[test]
fn every_alert_has_a_test_where_it_is_raised_and_one_where_it_is_not() {
    let names = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    // What is expected to be raised names the alert on a line of its own, what is not in braces.
    let raised: BTreeSet<&str> =
        ALERTS_TEST.lines().filter_map(|line| line.trim().strip_prefix("alertname: ")).collect();
    for name in names {
        assert!(raised.contains(name), "{name}: no promtool test raises it");
        assert!(ALERTS_TEST.contains(&format!("alertname: {name} }}")), "{name}: no promtool test is without it");
    }
}

/// Does a little of everything that is measured.
async fn walk(app: &App, provider: &Provider) {
    crate::signers::sign_once("walked").await;
    let root = json!({ "common_name": "root.test", "key_type": "ec" });
    assert_eq!(app.client.post("pki/root/generate/internal", root).await.status, 200);
    let role = json!({ "allow_any_name": true, "key_type": "any", "ttl": "1h" });
    assert_eq!(app.client.post("pki/roles/any", role).await.status, 200);
    let issued = app.client.post("pki/issue/any", json!({ "common_name": "a.test", "key_type": "ec" })).await;
    assert_eq!(issued.status, 200, "{}", issued.text);
    let role = json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": 2048, "ttl": "1h" });
    assert_eq!(app.client.post("pki/roles/rsa", role).await.status, 200);
    assert_eq!(app.client.post("pki/issue/rsa", json!({ "common_name": "b.test" })).await.status, 200);
    assert_eq!(app.client.post("pki/sign/rsa", json!({ "csr": "none" })).await.status, 400);
    let serial = issued.body["data"]["serial_number"].clone();
    assert_eq!(app.client.post("pki/revoke", json!({ "serial_number": serial })).await.status, 200);
    assert_eq!(app.client.get("pki/crl/pem").await.status, 200);
    let machine = provider.machine("rg1", "web", "o1", "westus");
    for (path, body) in [
        ("sys/auth/cloudb", json!({ "type": "cloudb" })),
        ("auth/cloudb/config", json!({ "tenant_id": TENANT, "resource": RESOURCE })),
        ("auth/cloudb/role/r", json!({ "bound_subscription_ids": S1 })),
    ] {
        assert_eq!(app.client.post(path, body).await.status, 204);
    }
    let login = json!({ "role": "r", "jwt": provider.mint(json!({ "xms_mirid": machine })), "subscription_id": S1,
        "resource_group_name": "rg1", "vm_name": "web" });
    assert_eq!(app.client.post("auth/cloudb/login", login).await.status, 200);
}

#[actix_web::test]
async fn every_series_in_use_is_there_after_a_walk_with_its_help() {
    // The store with the most to measure.
    let provider = Provider::start();
    let folder = tempfile::tempdir().unwrap();
    let audit = DeviceSettings::file("main", folder.path().join("audit.log"));
    let app = App::builder().postgres().cloudb(provider.settings()).audit_devices([audit]).start().await;
    walk(&app, &provider).await;
    let page = page_of_all(&app.client).await.text;
    for (series, labels) in used() {
        let metric = metric_of(&series).unwrap();
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        assert!(page.contains(&format!("# HELP {} {}\n", metric.name, metric.help)), "{series}");
        assert!(page.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{series}");
        let mut lines =
            page.lines().filter(|line| line.strip_prefix(&series).is_some_and(|rest| rest.starts_with(['{', ' '])));
        assert!(
            lines.any(|line| labels.iter().all(|label| line.contains(&format!("{label}=\"")))),
            "{series} with {labels:?}"
        );
    }
    for zero in ["signet_pki_crl_builds_total{result=\"failed\"} ", "signet_commit_failures_total{reason=\"busy\"} "] {
        assert!(page.contains(zero), "{zero}");
    }
    app.stop().await;
}
