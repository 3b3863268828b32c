//! W3C Trace Context: a request's trace in the log, the audit and exemplars, and in the server's own calls.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use signet::keys::CloudSettings;

use crate::grafana::promtool;
use crate::judges::judge;
use crate::process::{Dev, dev_with, run, signet};
use crate::provider::{Provider, RESOURCE, S1, TENANT};
use crate::signers::cloud::server::{Told, serve};
use crate::signers::cloud::vault::{CLIENT, SECRET, TENANT as VAULT_TENANT, Vault};
use crate::support::{App, Client, send};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// `true` for a valid `traceparent` of this trace with these flags and a span other than `parent`.
pub fn is_child(value: &str, trace: &str, parent: &str, flags: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let [version, of, span, with] = parts[..] else { return false };
    let is_span = span.len() == 16 && span.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    (version, of, with) == ("00", trace, flags) && is_span && span != parent && span != "0".repeat(16)
}

fn started(folder: &Path) -> Dev {
    let mut command = signet();
    command.env("SIGNET_LOG", "info").env("SIGNET_LOG_FORMAT", "json");
    let audit = folder.join("audit.log");
    let log = File::create(folder.join("log")).unwrap();
    dev_with(command.stderr(log), &["--audit-file", audit.to_str().unwrap()])
}

fn lines(file: &Path, id: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|line| line["request"] == id || line["request"]["id"] == id).collect()
}

async fn openmetrics(client: &Client) -> String {
    let page = client.request("GET", "sys/metrics").header("Accept", "application/openmetrics-text; version=1.0.0");
    let page = send(page).await;
    assert_eq!(page.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    page.text
}

#[actix_web::test]
async fn trace_of_a_request_is_in_log_audit_and_exemplar() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let client = dev.client();
    let projects = client.url("x").replace("/v1/x", "/api/v2/organizations/dev/projects");
    let id = |n: u8| format!("0f8fad5b-d9cb-469f-a165-7086772895{n:02x}");
    let issue = |n: u8| {
        let request = client.request("POST", "pki/issue/dev").header("X-Request-Id", id(n));
        request.json(&json!({ "common_name": "traced.test" }))
    };
    let of_projects = |n: u8| {
        let request = reqwest::Client::new().get(&projects).bearer_auth(&dev.token);
        request.header("X-Request-Id", id(n)).header("traceparent", traceparent("01"))
    };
    assert_eq!(send(issue(0).header("traceparent", traceparent("01"))).await.status, 200);
    assert_eq!(send(of_projects(1)).await.status, 200);
    // An invalid or repeated header is ignored, like an absent one.
    assert_eq!(send(issue(2).header("traceparent", traceparent("0"))).await.status, 200);
    let repeated = issue(3).header("traceparent", traceparent("01")).header("traceparent", traceparent("01"));
    assert_eq!(send(repeated).await.status, 200);
    assert_eq!(send(issue(4)).await.status, 200);
    let page = openmetrics(&client).await;
    let text = client.get("sys/metrics?format=prometheus").await.text;
    dev.terminate();

    for n in 0..5 {
        let expected = if n < 2 { json!(TRACE) } else { Value::Null };
        let [log, audit] = ["log", "audit.log"].map(|file| lines(&folder.path().join(file), &id(n)));
        assert_eq!((log.len(), audit.len()), (1, 2), "{n}");
        assert_eq!(log[0]["trace_id"], expected, "{n}: {}", log[0]);
        for entry in &audit {
            assert_eq!(entry["request"]["trace_id"], expected, "{n}: {entry}");
        }
    }
    let of_issue = page.lines().filter(|line| line.contains("route=\"pki/issue/:name\"") && line.contains(" # {"));
    let exemplars: Vec<&str> = of_issue.collect();
    assert!(!exemplars.is_empty(), "{page}");
    let traced = format!("# {{request_id=\"{}\",trace_id=\"{TRACE}\"}} ", id(0));
    assert!(exemplars.iter().any(|line| line.contains(&traced)), "{exemplars:#?}");
    assert!(!text.contains(TRACE) && !text.contains(&id(0)), "ids are in exemplars only");
    let labels = page.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(" # ").next().unwrap());
    assert!(!labels.collect::<String>().contains(TRACE));
}

#[actix_web::test]
async fn openmetrics_page_is_valid_and_contains_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let client = dev.client();
    for n in 0..20 {
        let name = json!({ "common_name": format!("hidden-{n}.test") });
        assert_eq!(client.post("pki/issue/dev", name).await.status, 200);
    }
    client.with_token("hidden-token").get("pki/hidden").await.assert_denied();
    let page = openmetrics(&client).await;
    let text = send(client.request("GET", "sys/metrics?format=prometheus").header("Accept", "text/plain, */*")).await;
    let token = dev.token.clone();
    dev.terminate();
    assert_eq!((text.header("content-type"), text.header("vary")), ("text/plain; version=0.0.4", "accept"));
    assert!(!text.text.contains("# EOF") && !text.text.contains(" # {") && text.text.contains("\n\n"));
    assert!(page.ends_with("\n# EOF\n") && !page.contains("\n\n"));
    assert!(!page.contains("hidden") && !page.contains(&token), "{page}");

    // promtool imports the page into a database, which requires timestamps.
    let timed = page.lines().map(|line| match line.split_once(" # {") {
        Some((sample, exemplar)) => format!("{sample} 1700000000 # {{{exemplar}\n"),
        None if line.starts_with('#') => format!("{line}\n"),
        None => format!("{line} 1700000000\n"),
    });
    std::fs::write(folder.path().join("timed"), timed.collect::<String>()).unwrap();
    let mut promtool = Command::new(promtool());
    promtool.args(["tsdb", "create-blocks-from", "openmetrics", "timed", "blocks"]).current_dir(folder.path());
    run(&mut promtool);

    let file = folder.path().join("page");
    std::fs::write(&file, &page).unwrap();
    let read: Value = serde_json::from_str(&judge("openmetrics.py", &[file.to_str().unwrap()])).unwrap();
    let family = |name: &str| (read["families"][name]["type"].clone(), read["families"][name]["unit"].clone());
    for (name, kind, unit) in [
        ("signet_http_requests", "counter", ""),
        ("process_cpu_seconds", "counter", "seconds"),
        ("process_resident_memory_bytes", "gauge", "bytes"),
        ("signet_http_request_seconds", "histogram", "seconds"),
        ("signet_commit_batch_units", "histogram", ""),
    ] {
        assert_eq!(family(name), (json!(kind), json!(unit)), "{name}");
    }
    // Both formats have the same metric families.
    let of_text = text.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let of_text: BTreeSet<&str> = of_text
        .map(|(name, kind)| if kind == "counter" { name.strip_suffix("_total").unwrap() } else { name })
        .collect();
    assert_eq!(read["families"].as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), of_text);
    let exemplars = read["exemplars"].as_array().unwrap();
    assert!(exemplars.len() > 1, "{exemplars:?}");
    for exemplar in exemplars {
        assert_eq!(exemplar["name"], "signet_http_request_seconds_bucket");
        let labels: Vec<&String> = exemplar["exemplar"].as_object().unwrap().keys().collect();
        assert_eq!(labels, ["request_id"]);
        let id = exemplar["exemplar"]["request_id"].as_str().unwrap();
        assert_eq!(lines(&folder.path().join("log"), id).len(), 1, "{id} is in the access log");
        let bound = exemplar["labels"]["le"].as_str().unwrap().parse::<f64>().unwrap_or(f64::INFINITY);
        assert!(exemplar["value"].as_f64().unwrap() <= bound && exemplar["count"].as_f64().unwrap() >= 1.0);
    }
}

#[actix_web::test]
async fn trace_is_propagated_to_identity_providers_and_key_services() {
    let provider = Provider::start();
    let vault = Vault::start();
    let of_kms = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&of_kms);
    let kms = serve(move |asked| {
        seen.lock().unwrap().push(asked.header("traceparent").to_owned());
        Told::new(400, json!({ "__type": "NotFoundException" }))
    });
    let cloud = CloudSettings { azure: vault.settings(), ..CloudSettings::default() };
    let app = App::builder().cloudb(provider.settings()).cloud(cloud).start().await;
    for (path, body) in [
        ("sys/auth/cloudb", json!({ "type": "cloudb" })),
        ("auth/cloudb/config", json!({ "tenant_id": TENANT, "resource": RESOURCE })),
        ("auth/cloudb/role/r", json!({ "bound_subscription_ids": S1 })),
    ] {
        assert_eq!(app.client.post(path, body).await.status, 204, "{path}");
    }
    let of_vault = json!({ "tenant_id": VAULT_TENANT, "client_id": CLIENT, "client_secret": SECRET,
        "vault_name": "store", "key_name": "key", "key_type": "RSA-HSM", "key_bits": "2048", "allow_generate_key": true });
    let of_service = json!({ "access_key": "AK", "secret_key": "SK", "kms_key": "alias/x", "key_type": "ECDSA",
        "curve": "P256", "endpoint": kms, "region": "us-east-1" });
    for (path, body) in [("cloudbkeyvault/store", of_vault), ("cloudakms/service", of_service)] {
        let written = app.client.post(&format!("sys/managed-keys/{path}"), body).await;
        assert!([200, 204].contains(&written.status), "{}", written.text);
    }
    let begun = (provider.lock().traces.len(), vault.lock().traces.len(), of_kms.lock().unwrap().len());
    let machine = provider.machine("rg1", "web", "o1", "westus");
    let login = json!({ "role": "r", "jwt": provider.mint(json!({ "xms_mirid": machine })), "subscription_id": S1,
        "resource_group_name": "rg1", "vm_name": "web" });
    let traced = |path: &str, body: Value| {
        let request = app.client.request("POST", path).header("traceparent", traceparent("01"));
        send(request.json(&body))
    };
    let answer = traced("auth/cloudb/login", login).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = traced("sys/managed-keys/cloudbkeyvault/store/test/sign", json!({})).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    let answer = traced("sys/managed-keys/cloudakms/service/test/sign", json!({})).await;
    assert!(answer.status >= 400, "{}", answer.text);

    let resources = provider.lock().traces[begun.0..].to_vec();
    let resources = resources.into_iter().filter(|(path, _)| path.contains("/subscriptions/")).map(|(_, trace)| trace);
    let calls =
        [resources.collect(), vault.lock().traces[begun.1..].to_vec(), of_kms.lock().unwrap()[begun.2..].to_vec()];
    for calls in &calls {
        assert!(!calls.is_empty());
        for call in calls {
            assert!(is_child(call, TRACE, PARENT, "01"), "{calls:?}");
        }
    }
    let all: Vec<&String> = calls.iter().flatten().collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "each call has a span of its own: {all:?}");
    // Without a trace, the calls have no header.
    let before = vault.lock().traces.len();
    assert_eq!(app.client.post("sys/managed-keys/cloudbkeyvault/store/test/sign", json!({})).await.status, 204);
    let after = vault.lock().traces[before..].to_vec();
    assert!(!after.is_empty() && after.iter().all(String::is_empty), "{after:?}");
    app.stop().await;
}
