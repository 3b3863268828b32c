//! The scenario `oversize`: `pki/issue` alone, then while other clients send 4 MB in everything that a caller can make
//! long: arrays, lists in strings, nesting, PEM, certificates with many extensions, JSON:API documents.
//!
//! The server must reject each of these as a client error, and the p99 of `issue` may be at most three times its value
//! alone. The oversized requests are paced: the scenario measures how long one of them delays others, not the load of
//! sending them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use serde_json::{Value, json};

use crate::background::{BackgroundLoad, RepeatedRequest};
use crate::client::{Api, Client};
use crate::figures::Figures;
use crate::order::RunArgs;
use crate::plan::Plan;
use crate::report::{Report, print_interrupted};
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::scenario::Scenario;
use crate::server::Server;
use crate::table::Table;
use crate::workload;

/// Size of a body in bytes, below the server's limit so that it is read.
const BODY_BYTES: usize = 4_000_000;
/// Number of connections that send oversized requests, and the pause of each between two requests.
const SENDER_CONNECTIONS: usize = 4;
const SENDER_PAUSE: Duration = Duration::from_millis(100);
/// Maximum p99 during oversized requests, relative to its value alone.
const MAX_P99_RATIO: f64 = 3.0;

/// Runs both parts and prints the verdict. Fails if the limit is exceeded, or if an oversized request is not rejected
/// as a client error.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let server = Server::launch(&args.target.launch).await?;
    let plan = Plan { scenario: Scenario::Issue, ..args.plan() };
    let senders = BackgroundLoad {
        endpoint: server.endpoint.clone(),
        token: server.token.clone(),
        connections: SENDER_CONNECTIONS,
        requests: requests(&server).await?,
        pause: Some(SENDER_PAUSE),
    };
    let alone = issue(&plan, &server).await?;
    let (beside, answers) = senders.during(issue(&plan, &server)).await?;
    if is_interrupted() {
        [&alone, &beside].into_iter().for_each(print_interrupted);
        return Err(INTERRUPTED.to_owned());
    }
    let [alone_p99, beside_p99] = [p99_ms(&alone)?, p99_ms(&beside)?];
    let ratio = beside_p99 / alone_p99;
    let holds = ratio <= MAX_P99_RATIO;
    let part = |figures: &Figures, p99: f64| json!({ "requests": figures.count(), "p99_ms": p99 });
    let json = json!({ "scenario": "oversize", "store": server.store()?, "alone": part(&alone, alone_p99),
        "beside": part(&beside, beside_p99), "p99_ratio": ratio, "at_most": MAX_P99_RATIO, "answers": answers });
    let verdict = if holds { "held" } else { "missed" };
    let rows: Vec<Value> = answers.iter().map(|(name, counts)| json!({ "name": name, "counts": counts })).collect();
    let mut report = Report::new(server.title("oversize")?, json)
        .fact("issue alone", format!("{} requests, p99 {alone_p99:.2} ms", alone.count()))
        .fact("during 4 MB requests", format!("{} requests, p99 {beside_p99:.2} ms", beside.count()))
        .fact("ratio of both p99", format!("{ratio:.2} (limit {MAX_P99_RATIO}): {verdict}"));
    report.tables.push(Table::new("answers", &[("4 MB request", "/name"), ("answers", "/counts")], &rows));
    report.publish(&args.outputs)?;
    let wrong = answers.iter().filter(|(_, counts)| !counts.keys().all(|answer| is_client_error(answer)));
    let wrong: Vec<&str> = wrong.map(|(name, _)| *name).collect();
    if !wrong.is_empty() {
        return Err(format!("oversized requests not rejected with a client error: {}", wrong.join(", ")));
    }
    if holds {
        Ok(())
    } else {
        Err(format!("the p99 during oversized requests is {ratio:.2} times its value alone (limit {MAX_P99_RATIO})"))
    }
}

fn p99_ms(figures: &Figures) -> Result<f64, String> {
    figures.succeeded("issue")?.percentile_ms(99.0).ok_or_else(|| "issue: no request was answered".to_owned())
}

/// `true` if the status blames the client.
fn is_client_error(answer: &str) -> bool {
    matches!(answer, "400" | "413" | "414" | "422" | "431")
}

async fn issue(plan: &Plan, server: &Server) -> Result<Figures, String> {
    workload::run(plan, &server.access(), server.watched).await
}

async fn requests(server: &Server) -> Result<Vec<RepeatedRequest>, String> {
    let mut client = Client::connect_as(&server.endpoint, &server.token, Api::Projects).await?;
    let projects = client.get_json("/api/v2/organizations/dev/projects").await?;
    let project = projects["data"][0]["id"].as_str().ok_or("the organization dev has no project")?;
    let secrets = |name, path: &str, field: &str, value: String| {
        RepeatedRequest::post(
            name,
            Api::Secrets,
            path,
            format!("{{\"common_name\":\"a.example.test\",\"{field}\":{value}}}"),
        )
    };
    let document = |name, method, path: String, data: String| RepeatedRequest {
        method,
        ..RepeatedRequest::post(name, Api::Projects, path, format!("{{\"data\":{data}}}"))
    };
    let texts = format!("[{}]", ["\"a.test\""].repeat(BODY_BYTES / 9).join(","));
    let tag = "{\"type\":\"tag-bindings\",\"attributes\":{\"key\":\"k\",\"value\":\"v\"}}";
    let tags = format!("[{}]", [tag].repeat(BODY_BYTES / (tag.len() + 1)).join(","));
    let issue = "/v1/pki/issue/dev";
    let many_extensions = certificate().map_err(|e| e.to_string())?;
    Ok(vec![
        secrets("an array of numbers", issue, "alt_names", numbers()),
        secrets("an array of texts", issue, "alt_names", texts.clone()),
        secrets("a list in a text", issue, "alt_names", quoted(&"a.test,".repeat(BODY_BYTES / 7))),
        secrets("a JSON list in a text", issue, "alt_names", quoted(&numbers())),
        secrets("a long name", issue, "common_name", quoted(&"a".repeat(BODY_BYTES))),
        secrets("nesting", issue, "alt_names", "[".repeat(BODY_BYTES)),
        secrets(
            "domains of a role",
            "/v1/pki/roles/oversize",
            "allowed_domains",
            quoted(&"a.test,".repeat(BODY_BYTES / 7)),
        ),
        secrets("a policy", "/v1/sys/policies/acl/oversize", "policy", quoted(&"path a {} ".repeat(BODY_BYTES / 10))),
        secrets(
            "PEM of a request",
            "/v1/pki/sign/dev",
            "csr",
            quoted(&pem("CERTIFICATE REQUEST", &vec![0; BODY_BYTES / 4 * 3])),
        ),
        secrets("many extensions", "/v1/pki/revoke", "certificate", quoted(&pem("CERTIFICATE", &many_extensions))),
        secrets("a bundle of certificates", "/v1/pki/issuers/import/bundle", "pem_bundle", quoted(&bundle())),
        document(
            "relationships",
            Method::POST,
            "/api/v2/organizations/dev/projects".to_owned(),
            format!(
                "{{\"type\":\"projects\",\"attributes\":{{\"name\":\"oversize\"}},\"relationships\":{{\"tag-bindings\":{{\"data\":{}}}}}}}",
                numbers()
            ),
        ),
        document("tag bindings", Method::PATCH, format!("/api/v2/projects/{project}/tag-bindings"), tags),
        document(
            "workspaces to move",
            Method::POST,
            format!("/api/v2/projects/{project}/relationships/workspaces"),
            texts,
        ),
    ])
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns a JSON array of numbers, about [`BODY_BYTES`] bytes long.
fn numbers() -> String {
    format!("[0{}]", ",0".repeat(BODY_BYTES / 2))
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// Returns about [`BODY_BYTES`] bytes of PEM certificates, none of which is valid.
fn bundle() -> String {
    let one = pem("CERTIFICATE", &[0x30, 0]);
    one.repeat(BODY_BYTES / (one.len() + 4))
}

/// Returns a certificate whose PEM has about [`BODY_BYTES`] bytes, most of them different extensions.
fn certificate() -> Result<Vec<u8>, rcgen::Error> {
    // The last arc takes three bytes. A whole extension takes 19 bytes, and 28 bytes as PEM in a JSON string.
    let extension =
        |n: usize| CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1 << 14 | n as u64], vec![5, 0]);
    let mut params = CertificateParams::default();
    params.custom_extensions = (0..BODY_BYTES / 28).map(extension).collect();
    Ok(params.self_signed(&KeyPair::generate()?)?.der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_values_have_about_the_body_size() {
        for value in [numbers(), bundle(), pem("CERTIFICATE", &certificate().unwrap())] {
            assert!((BODY_BYTES * 9 / 10..1 << 22).contains(&value.len()), "{}", value.len());
        }
        assert!(serde_json::from_str::<Value>(&numbers()).is_ok());
    }
}
