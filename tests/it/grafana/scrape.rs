//! Runs every query of the dashboards on the metrics of a server that used every feature, with promtool
//! (`target/promtool`, see `tests/run`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};
use signet::audit::AuditDeviceSettings;
use signet::keys::SignerActor;
use signet::telemetry::{CATALOGUE, MetricKind};

use super::{boards, promtool};
use crate::metrics::{Sample, metric_of, page_of_all, samples};
use crate::provider::{Provider, RESOURCE, S1, TENANT};
use crate::support::App;

const TROUBLES: [&str; 3] = ["429", "500", "503"];

/// Maximum (route, mount) pairs kept per metric, service, operation, status, result and family of routes.
const MOST_SERIES: usize = 2;

/// Uses every feature that is measured. The managed key's series vanish when the returned actor is dropped.
async fn walk(app: &App, provider: &Provider) -> SignerActor {
    let key = crate::signers::sign_once("walked").await;
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
    assert_eq!(app.public().get("pki/crl/pem").await.status, 200);
    log_in(app, provider).await;
    assert_eq!(app.client.with_token("s.unknown").get("sys/mounts").await.status, 403);
    assert_eq!(app.client.page("/api/v2/ping").await.status, 204);
    assert_eq!(app.client.page("/api/v2/account/details").await.status, 401);
    key
}

async fn log_in(app: &App, provider: &Provider) {
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
    let refused = app.client.post("auth/cloudb/login", json!({ "role": "r", "jwt": "none" })).await;
    assert!((400..500).contains(&refused.status), "{}", refused.text);
    assert_eq!(app.client.post("auth/token/create", json!({})).await.status, 200);
}

#[actix_web::test]
async fn queries_return_data_after_a_walk_and_metrics_have_help() {
    let provider = Provider::start();
    let folder = tempfile::tempdir().unwrap();
    let audit = AuditDeviceSettings::file("main", folder.path().join("audit.log"));
    let app = App::builder().postgres().public().cloudb(provider.settings()).audit_devices([audit]).start().await;
    let _key = walk(&app, &provider).await;
    let page = page_of_all(&app.client).await.text;
    app.stop().await;
    for metric in CATALOGUE {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        assert!(page.contains(&format!("# HELP {} {}\n", metric.name, metric.help)), "{}", metric.name);
        assert!(page.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}", metric.name);
    }
    for zero in ["signet_pki_crl_builds_total{result=\"failed\"} ", "signet_commit_failures_total{reason=\"busy\"} "] {
        assert!(page.contains(zero), "{zero}");
    }
    let file = folder.path().join("queries.json");
    // Tests of each query only whether it returns a series.
    let asked = boards().into_iter().flat_map(|board| board.asked());
    let cases: Vec<Value> = asked
        .map(|asked| {
            let expression = asked.expression.replace("$__rate_interval", "5m").replace("$__range", "1h");
            let expression = expression.replace("$instance", "(a|b)").replace("$job", "(signet)");
            let expression = expression.replace("$mount", ".*");
            json!({ "expr": format!("count({expression}) > bool 0"), "eval_time": "15m",
                "exp_samples": [{ "labels": "{}", "value": 1 }] })
        })
        .collect();
    assert!(cases.len() > 150);
    let test = json!({ "interval": "1m", "input_series": series(&few(samples(&page))), "promql_expr_test": cases });
    let file_body = json!({ "rule_files": [], "evaluation_interval": "1m", "tests": [test] });
    std::fs::write(&file, file_body.to_string()).unwrap();
    let output = Command::new(promtool()).args(["test", "rules"]).arg(&file).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// Reduces the samples to a few routes and mounts. Other tests in this process create hundreds, too many for promtool.
fn few(mut samples: Vec<Sample>) -> Vec<Sample> {
    let mut seen: BTreeMap<Vec<String>, BTreeSet<(String, String)>> = BTreeMap::new();
    samples.retain(|Sample { name, labels, .. }| {
        let of = |label: &str| labels.get(label).cloned().unwrap_or_default();
        let route = of("route");
        let mount = of("mount");
        // A few of each family of routes that queries name, and a few of the others.
        let begins = ["token/", "pki/c", "pki/issuer", "pki/ocsp"];
        let family = match begins.iter().find(|begin| route.starts_with(**begin)) {
            _ if route.ends_with("/login") => "login",
            Some(begin) => begin,
            None => "",
        };
        let place = vec![name.clone(), of("service"), of("operation"), of("status"), of("result"), family.to_owned()];
        let kept = seen.entry(place).or_default();
        let series = (route, mount);
        kept.contains(&series) || (kept.len() < MOST_SERIES && kept.insert(series))
    });
    samples
}

/// Converts the samples into series of two servers over 15 minutes: counters grow, gauges stay constant.
fn series(samples: &[Sample]) -> Vec<Value> {
    let mut all = BTreeMap::new();
    for instance in ["a", "b"] {
        let own = [("job", "signet"), ("instance", instance)];
        let named = |name: &str, labels: &[(&str, &str)]| {
            let pairs = labels.iter().chain(&own).map(|(label, value)| format!("{label}={}", json!(value)));
            format!("{name}{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        };
        all.insert(named("up", &[]), "1x15".to_owned());
        let alert = [("alertname", "SignetStoreDown"), ("alertstate", "firing"), ("severity", "critical")];
        all.insert(named("ALERTS", &alert), "1x15".to_owned());
        for Sample { name, labels, value } in samples {
            // A gauge of 0 means that the object does not exist; here it does.
            let values = match metric_of(name).unwrap().kind {
                MetricKind::Gauge => format!("{}x15", value.max(1.0)),
                MetricKind::Counter | MetricKind::Histogram(_) => format!("0+{}x15", value + 1.0),
            };
            let mut labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            all.insert(named(name, &labels), values.clone());
            let well = |(label, value): &(&str, &str)| *label == "status" && value.starts_with('2');
            if name == "signet_http_requests_total" && labels.iter().any(well) {
                for trouble in TROUBLES {
                    labels.retain(|(label, _)| *label != "status");
                    labels.push(("status", trouble));
                    all.insert(named(name, &labels), values.clone());
                }
            }
        }
    }
    all.into_iter().map(|(series, values)| json!({ "series": series, "values": values })).collect()
}
