//! `/metrics` after using every feature: all metrics are in the catalogue, and no label value comes from a caller.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;
use signet::auth::policy::Operation;
use signet::http::secrets::all_routes;
use signet::http::secrets::route::operation_name;
use signet::telemetry::{CATALOGUE, Metric, MetricKind};

use crate::cluster;
use crate::process::{dev_with, signet};
use crate::provider::{CLIENT, Provider, RESOURCE, S1, SECRET, TENANT};
use crate::signers::hsm::{Hsm, PIN, SOFTHSM};
use crate::source::sources;
use crate::support::{Answer, Client};

pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

pub fn samples(page: &str) -> Vec<Sample> {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let pairs = labels.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty());
            let pairs = pairs.map(|pair| pair.split_once("=\"").unwrap());
            Sample {
                name: name.to_owned(),
                labels: pairs.map(|(k, v)| (k.to_owned(), v.trim_end_matches('"').to_owned())).collect(),
                value: value.parse().unwrap(),
            }
        })
        .collect()
}

pub fn metric_of(name: &str) -> Option<&'static Metric> {
    CATALOGUE.iter().find(|metric| match metric.kind {
        MetricKind::Counter | MetricKind::Gauge => name == metric.name,
        MetricKind::Histogram(_) => {
            let suffix = name.strip_prefix(metric.name);
            suffix.is_some_and(|suffix| ["_bucket", "_sum", "_count"].contains(&suffix))
        }
    })
}

/// All permitted values of a label.
pub fn closed_set(label: &str) -> BTreeSet<String> {
    let operations = [Operation::Read, Operation::List, Operation::Update, Operation::Patch, Operation::Delete];
    let words: Vec<String> = match label {
        "service" => ["secrets", "projects", "none"].map(str::to_owned).to_vec(),
        "operation" => {
            let signing = ["none", "issue", "sign", "sign_verbatim", "sign_intermediate", "sign_self_issued"];
            let signing = signing.into_iter().chain(["external_policy"]);
            operations.into_iter().map(operation_name).chain(signing).map(str::to_owned).collect()
        }
        "route" => {
            let routes = all_routes().map(|(kind, route)| format!("{kind}/{}", route.pattern));
            routes.chain(["none".to_owned()]).collect()
        }
        "status" => {
            let words = ["other", "ok", "refused", "not_found", "failed"].map(str::to_owned);
            (200..600).map(|status| status.to_string()).chain(words).collect()
        }
        "stage" => ["rules", "key", "sign", "store"].map(str::to_owned).to_vec(),
        "result" => {
            let calls = ["answered", "rejected", "malformed", "busy", "open"];
            let ocsp = ["successful", "malformed_request", "internal_error", "try_later", "unauthorized"];
            let ocsp = ocsp.into_iter().chain(["good", "unknown", "hit", "miss"]);
            let ends = ["done", "failed", "cancelled", "revoked", "expired"];
            let logins = ["ok", "bad_request", "denied", "provider_error", "written"];
            ends.into_iter().chain(logins).chain(calls).chain(ocsp).map(str::to_owned).collect()
        }
        "kind" => {
            let signers = ["busy", "unavailable", "refused", "invalid", "wrong", "changed", "internal"];
            let tidied = ["certificate", "revocation", "metadata", "issuer"];
            tidied.into_iter().chain(signers).map(str::to_owned).collect()
        }
        // Names that operators gave their keys.
        "key" => vec!["hsm".to_owned()],
        "device" => vec!["file".to_owned()],
        "state" => ["idle", "busy", "stuck"].map(str::to_owned).to_vec(),
        "cause" => ["session", "login", "token", "module", "device"].map(str::to_owned).to_vec(),
        "reason" => {
            let failures = ["busy", "serial_taken", "conflict", "internal", "unavailable"];
            let retries = ["connection", "clash", "unit"];
            let connections = ["idle", "head", "full", "address", "flood", "requests"];
            failures.into_iter().chain(retries).chain(connections).map(str::to_owned).collect()
        }
        "listener" => ["main", "metrics", "public"].map(str::to_owned).to_vec(),
        "rule" => ["number", "covers", "entries"].map(str::to_owned).to_vec(),
        "name" => {
            let writes = ["commit", "drop", "dev"];
            let reads = "changes re_seal data_key_use meta documents certificate status known serials revoked_serials \
                revocations crls counts token entity entities aliases lease api_token_seal lease_ids answered \
                ending_leases metadata metadata_serials certificates tidy";
            writes.into_iter().chain(reads.split(' ')).map(str::to_owned).collect()
        }
        "lane" => ["small", "large"].map(str::to_owned).to_vec(),
        "bits" => ["2048", "3072", "4096"].map(str::to_owned).to_vec(),
        "part" => ["system", "mount", "crls"].map(str::to_owned).to_vec(),
        // Paths where operators mounted engines and methods, and `none`.
        "mount" => {
            let built_in = ["sys/", "auth/token/", "cubbyhole/", "identity/", "none"];
            ["auth/cloudb/", "pki/"].into_iter().chain(built_in).map(str::to_owned).collect()
        }
        "version" => vec![env!("CARGO_PKG_VERSION").to_owned()],
        "call" => ["token", "vm", "vmss", "resource", "identity", "identities", "types"].map(str::to_owned).to_vec(),
        _ => vec![],
    };
    words.into_iter().collect()
}

pub async fn page_of_all(client: &Client) -> Answer {
    let started = Instant::now();
    loop {
        let page = client.page("/metrics").await;
        if page.text.contains("\nsignet_changes_lag_seconds_count") {
            return page;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{}", page.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[actix_web::test]
async fn all_metrics_are_exported_with_labels_of_closed_sets() {
    let folder = tempfile::tempdir().unwrap();
    let url = cluster::shared().database().url();
    let hsm = Hsm::new(folder.path());
    hsm.token("hidden-token-label");
    let data = folder.path().join("data");
    let library = format!("hidden-library={SOFTHSM}");
    let provider = Provider::start();
    let mut command = signet();
    command.env("SIGNET_AUDIT", folder.path().join("audit.log"));
    for place in ["AUTHORITY", "ARM", "GRAPH", "IMDS"] {
        command.env(format!("SIGNET_CLOUDB_{place}_URL"), &provider.url);
    }
    let dev = dev_with(
        command.env("SOFTHSM2_CONF", hsm.settings()),
        &["--data-dir", data.to_str().unwrap(), "--database-url", &url, "--pkcs11-library", &library],
    );
    let client = dev.client();
    let key = json!({ "library": "hidden-library", "token_label": "hidden-token-label", "key_label": "hidden-label",
        "mechanism": "0x1041", "pin": PIN, "allow_generate_key": "true", "curve": "P256" });
    assert_eq!(client.post("sys/managed-keys/pkcs11/hsm", key).await.status, 200);
    assert_eq!(client.post("sys/managed-keys/pkcs11/hsm/test/sign", json!({})).await.status, 204);
    let role = json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": 2048 });
    assert_eq!(client.post("pki/roles/secretive", role).await.status, 200);
    let issued = client.post("pki/issue/secretive", json!({ "common_name": "hidden.test" })).await.body;
    let serial = issued["data"]["serial_number"].as_str().unwrap();
    assert_eq!(
        client.post("pki/issue/dev", json!({ "common_name": "hidden.test", "ttl": "9999999h" })).await.status,
        400
    );
    assert_eq!(client.post("pki/sign/dev", json!({ "csr": "hidden" })).await.status, 400);
    assert_eq!(client.post("pki/revoke", json!({ "serial_number": serial })).await.status, 200);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "generate_lease": true });
    assert_eq!(client.post("pki/roles/secretive", role).await.status, 200);
    client.post("pki/issue/secretive", json!({ "common_name": "hidden.test" })).await.assert_status(200);
    assert_eq!(client.post("sys/leases/revoke-prefix/pki", json!({})).await.status, 204);
    assert_eq!(client.get("hidden/hidden").await.status, 404);
    assert_eq!(client.get("pki/hidden").await.status, 404);
    assert_eq!(client.get(&format!("pki/cert/{serial}")).await.status, 200);
    client.with_token("hidden-token").get("sys/mounts").await.assert_denied();
    assert_eq!(client.post("sys/auth/cloudb", json!({ "type": "cloudb" })).await.status, 204);
    let config = json!({ "tenant_id": TENANT, "resource": RESOURCE, "client_id": CLIENT, "client_secret": SECRET });
    assert_eq!(client.post("auth/cloudb/config", config).await.status, 204);
    client.post("auth/cloudb/role/secretive", json!({ "bound_subscription_ids": S1 })).await;
    let jwt = provider.mint(json!({ "xms_mirid": provider.machine("rg1", "hidden", "o1", "westus") }));
    let login = json!({ "role": "secretive", "jwt": jwt, "subscription_id": S1, "resource_group_name": "rg1",
        "vm_name": "hidden" });
    client.post("auth/cloudb/login", login).await.assert_status(200);
    let issuers = client.list("pki/issuers").await.body["data"]["key_info"].clone();
    let issuers: BTreeSet<String> = issuers.as_object().unwrap().keys().cloned().collect();
    let page = page_of_all(&client).await;
    assert_eq!(page.header("content-type"), "text/plain; version=0.0.4");

    let samples = samples(&page.text);
    for metric in CATALOGUE {
        let name = metric.name;
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        assert!(page.text.contains(&format!("# TYPE {name} {kind}\n")), "{name}:\n{}", page.text);
        assert!(page.text.contains(&format!("# HELP {name} {}\n", metric.help)), "{name}:\n{}", page.text);
        assert!(samples.iter().any(|s| metric_of(&s.name).is_some_and(|m| m.name == name)), "{name}");
    }
    for sample in &samples {
        let metric = metric_of(&sample.name).unwrap_or_else(|| panic!("{} is not in the catalogue", sample.name));
        let labels: BTreeSet<&str> = sample.labels.keys().map(String::as_str).filter(|label| *label != "le").collect();
        assert_eq!(labels, metric.labels.iter().copied().collect(), "{}", sample.name);
        for (label, value) in sample.labels.iter().filter(|(label, _)| *label != "le") {
            let of_the_program = label == "commit" && !value.is_empty();
            // Issuer ids; a name could be any text.
            if of_the_program || (label == "issuer" && issuers.contains(value)) {
                continue;
            }
            assert!(closed_set(label).contains(value), "{}: {label} = {value}", sample.name);
        }
        assert!(sample.value >= 0.0, "{}", sample.name);
    }
    for sent in ["secretive", "hidden", serial, &dev.token, PIN] {
        assert!(!page.text.contains(sent), "{sent} is on the page");
    }
    let counted = |name: &str| samples.iter().filter(|s| s.name == name).map(|s| s.value).sum::<f64>();
    assert_eq!(counted("signet_pki_certificates_total"), 2.0);
    assert_eq!(counted("signet_pki_leases_total"), 1.0);
    let ended = |result| {
        let of = samples.iter().find(|s| s.name == "signet_pki_leases_ended_total" && s.labels["result"] == result);
        of.map(|sample| sample.value)
    };
    assert_eq!((ended("revoked"), ended("expired")), (Some(1.0), Some(0.0)));
    assert_eq!(counted("signet_pki_refusals_total"), 2.0);
    assert_eq!(counted("signet_pki_revocations_total"), 2.0);
    assert_eq!(counted("signet_key_generation_work_seconds_count"), 1.0);
    assert_eq!(counted("signet_key_generation_queue"), 0.0);
    assert_eq!(counted("signet_signer_call_seconds_count"), 2.0);
    assert_eq!(counted("signet_http_requests_total"), 19.0);
    assert_eq!(counted("signet_store_up"), 1.0);
    let ends: Vec<&Sample> = samples.iter().filter(|s| s.name == "signet_pki_issuer_not_after_seconds").collect();
    assert_eq!((ends.len(), &ends[0].labels["mount"][..]), (1, "pki/"));
    dev.terminate();
}

#[test]
fn metric_names_are_in_the_catalogue_only_and_all_are_recorded() {
    let sources = sources();
    let (catalogue, others): (Vec<_>, Vec<_>) =
        sources.iter().partition(|source| source.path == "telemetry/catalogue.rs");
    for source in &others {
        for prefix in ["\"signet_", "\"process_"] {
            assert!(!source.code.contains(prefix), "{}: a metric's name outside the catalogue", source.path);
        }
    }
    let constants = catalogue[0].code.lines().filter_map(|line| {
        let (constant, rest) = line.trim_start().split_once(" = \"")?;
        Some((constant, rest.split_once("\":")?.0))
    });
    let constants: Vec<_> = constants.collect();
    assert_eq!(constants.len(), CATALOGUE.len());
    for (constant, name) in constants {
        assert!(CATALOGUE.iter().any(|metric| metric.name == name), "{name} is not in the table");
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let used = others.iter().any(|source| {
            let mut places = source.code.match_indices(constant);
            places.any(|(at, _)| {
                !source.code[..at].ends_with(word) && !source.code[at + constant.len()..].starts_with(word)
            })
        });
        assert!(used, "{constant} is never recorded");
    }
}

async fn counted_mounts(client: &Client) -> BTreeSet<String> {
    let page = client.get("sys/metrics?format=prometheus").await.text;
    let requests = samples(&page).into_iter().filter(|sample| sample.name == "signet_http_requests_total");
    requests.map(|sample| sample.labels["mount"].clone()).collect()
}

#[actix_web::test]
async fn series_of_a_mount_end_when_it_is_moved_or_deleted() {
    let dev = dev_with(&mut signet(), &[]);
    let client = dev.client();
    let counts = |page: &str, mount: &str| {
        let own = samples(page).into_iter().filter(|sample| sample.labels.get("mount").is_some_and(|of| of == mount));
        own.map(|sample| (sample.name, sample.value)).collect::<Vec<_>>()
    };
    let page = async || client.get("sys/metrics?format=prometheus").await.text;
    assert_eq!(client.post("sys/mounts/team", json!({ "type": "pki" })).await.status, 204);
    let shown = counts(&page().await, "team/");
    let zeros = |name: &str| shown.iter().filter(|(own, value)| own == name && *value == 0.0).count();
    assert_eq!(zeros("signet_pki_certificates_total"), 6, "there from the start: {shown:?}");
    assert_eq!(zeros("signet_pki_refusals_total"), 6);
    let root = json!({ "common_name": "root.test", "key_type": "ec" });
    assert_eq!(client.post("team/root/generate/internal", root).await.status, 200);
    let role = json!({ "allow_any_name": true, "key_type": "ec" });
    assert_eq!(client.post("team/roles/any", role).await.status, 200);
    assert_eq!(client.post("team/issue/any", json!({ "common_name": "a.test" })).await.status, 200);
    assert_eq!(client.post("team/issue/any", json!({})).await.status, 400);
    assert_eq!(client.post("pki/issue/dev", json!({ "common_name": "b.test" })).await.status, 200);
    let of = |page: &str, mount: &str, name: &str| {
        counts(page, mount).into_iter().filter(|(own, _)| own == name).map(|(_, value)| value).sum::<f64>()
    };
    let text = page().await;
    for mount in ["team/", "pki/"] {
        assert_eq!(of(&text, mount, "signet_pki_certificates_total"), 1.0, "{mount}");
    }
    assert_eq!(of(&text, "team/", "signet_pki_refusals_total"), 1.0);
    assert_eq!(of(&text, "team/", "signet_http_requests_total"), 4.0);

    client.post("sys/remount", json!({ "from": "team", "to": "other-team" })).await.assert_status(200);
    assert_eq!(client.post("other-team/issue/any", json!({ "common_name": "a.test" })).await.status, 200);
    let text = page().await;
    assert_eq!(of(&text, "other-team/", "signet_pki_certificates_total"), 1.0, "{text}");
    assert!(!text.contains("mount=\"team/\""), "{text}");
    assert_eq!(client.delete("sys/mounts/other-team").await.status, 204);
    assert!(!page().await.contains("other-team/"));
    dev.terminate();
}

#[actix_web::test]
async fn at_most_200_mounts_have_their_own_label() {
    let dev = dev_with(&mut signet(), &[]);
    let client = dev.client();
    let method = |n: usize| format!("method-{n:03}");
    for n in 0..205 {
        assert_eq!(client.post(&format!("sys/auth/{}", method(n)), json!({ "type": "approle" })).await.status, 204);
        assert_eq!(client.list(&format!("auth/{}/role", method(n))).await.status, 404);
    }
    let counted = counted_mounts(&client).await;
    let own = counted.iter().filter(|mount| mount.starts_with("auth/method-")).count();
    // The other five are sys/, identity/, cubbyhole/, auth/token/ and pki/.
    assert_eq!((own, counted.contains("other")), (195, true), "{counted:?}");
    assert!(!counted.contains(&format!("auth/{}/", method(204))));
    for n in 0..12 {
        assert_eq!(client.delete(&format!("sys/auth/{}", method(n))).await.status, 204);
    }
    assert_eq!(client.list(&format!("auth/{}/role", method(204))).await.status, 404);
    let counted = counted_mounts(&client).await;
    assert!(counted.contains(&format!("auth/{}/", method(204))), "a free label is given out again: {counted:?}");
    assert!(!counted.contains(&format!("auth/{}/", method(0))));
    dev.terminate();
}
