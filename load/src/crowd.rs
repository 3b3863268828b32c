//! The scenario `crowd`: the effect of one token with many connections on other callers. The others look up their own
//! token, alone and while the crowd repeats one kind of long request.
//!
//! The server may serve the crowd's requests, or reject them as invalid or too many. The p99 limit of the others is 50
//! ms, because people notice a delay of a tenth of a second.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::background::{BackgroundLoad, RepeatedRequest, ResponseCounts, is_fair};
use crate::client::{Api, Client};
use crate::drive::{RequestClass, RunLimits, ServerAccess, drive};
use crate::figures::Figures;
use crate::order::RunArgs;
use crate::pace::Pace;
use crate::proc::WatchedProcesses;
use crate::report::Report;
use crate::run_context::{is_interrupted, print_progress};
use crate::server::Server;

/// Default number of crowd connections.
const DEFAULT_CONNECTIONS: u16 = 50;
/// Connections of the other callers, and their total requests per second.
const OTHER_CONNECTIONS: usize = 8;
const OTHERS_PER_SECOND: f64 = 160.0;
/// p99 limit of the other callers in milliseconds.
const MAX_P99_MS: f64 = 50.0;
/// Size of a long body in bytes, below the server's limit so that it is read.
const BODY_BYTES: usize = 3_700_000;
/// Number of workspaces in the lists, and number of tags of each workspace.
const WORKSPACES: usize = 120;
const TAGS_PER_WORKSPACE: usize = 9;
const WORKSPACES_PATH: &str = "/api/v2/organizations/dev/workspaces";

struct CrowdPart {
    name: &'static str,
    others: Figures,
    /// Responses to the requests of the crowd.
    answers: ResponseCounts,
}

/// Runs every part and prints the verdict. Fails if the p99 limit is exceeded, or if a response to the crowd blames the
/// server.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let server = Server::launch(&args.target.launch).await?;
    let plan = args.plan();
    let time = Duration::from_secs(plan.seconds);
    let connections = args.clients_or(DEFAULT_CONNECTIONS);
    let crowd_token = token(&server).await?;
    let others = token(&server).await?;
    let requests = requests(&server).await?;
    let alone = measure_other_requests(&server, &others, time).await?;
    let mut parts = vec![CrowdPart { name: "none", others: alone, answers: ResponseCounts::new() }];
    for request in requests {
        if is_interrupted() {
            break;
        }
        let name = request.name;
        print_progress(plan.quiet, name);
        let token = if request.api == Api::Projects { server.token.clone() } else { crowd_token.clone() };
        let endpoint = server.endpoint.clone();
        let requests = vec![request];
        let crowd = BackgroundLoad { endpoint, token, connections: connections.into(), requests, pause: None };
        let (others, mut answers) = crowd.during(measure_other_requests(&server, &others, time)).await?;
        parts.push(CrowdPart { name, others, answers: answers.remove(name).unwrap_or_default() });
    }
    let shown: Vec<Value> = parts.iter().map(CrowdPart::json).collect::<Result<_, _>>()?;
    let json = json!({ "scenario": "crowd", "store": server.store()?, "clients": connections, "parts": shown,
        "at_most_ms": MAX_P99_MS });
    let columns = [
        ("crowd", "/beside"),
        ("p50 ms", "/p50_ms"),
        ("p99 ms", "/p99_ms"),
        ("max ms", "/longest_ms"),
        ("", "/holds"),
        ("errors", "/errors"),
        ("answers to the crowd", "/answers"),
    ];
    let load = format!("{OTHERS_PER_SECOND} a second by {OTHER_CONNECTIONS} connections, p99 at most {MAX_P99_MS} ms");
    Report::new(server.title("crowd")?, json)
        .fact("look-ups", load)
        .fact("crowd", format!("{connections} connections of one other token"))
        .table("look-ups during each part", "/parts", &columns)
        .publish(&args.outputs)?;
    let wrong = parts.iter().filter(|part| !part.answers.keys().all(|answer| is_fair(answer)));
    let wrong: Vec<&str> = wrong.map(|part| part.name).collect();
    if !wrong.is_empty() {
        return Err(format!("server errors in response to the crowd: {}", wrong.join(", ")));
    }
    let missed: Vec<&str> = parts.iter().filter(|part| !part.holds()).map(|part| part.name).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("p99 above {MAX_P99_MS} ms during: {}", missed.join(", "))) }
}

impl CrowdPart {
    fn holds(&self) -> bool {
        let p99 = self.others.succeeded(self.name).ok().and_then(|class| class.percentile_ms(99.0));
        p99.is_some_and(|p99| p99 <= MAX_P99_MS)
    }

    fn json(&self) -> Result<Value, String> {
        let class = self.others.only()?;
        let mut json = class.part_json();
        json["beside"] = self.name.into();
        json["answers"] = json!(self.answers);
        json["longest_ms"] = json!(class.percentile_ms(100.0));
        json["holds"] = self.holds().into();
        Ok(json)
    }
}

async fn token(server: &Server) -> Result<String, String> {
    let body = json!({ "policies": ["default"], "no_default_policy": false, "ttl": "24h" });
    server.access().provisioner.token(&body).await
}

async fn measure_other_requests(server: &Server, token: &str, time: Duration) -> Result<Figures, String> {
    let pace = Pace { rate: Some(OTHERS_PER_SECOND), ramp: Duration::ZERO };
    let bounds = RunLimits { requests: u64::MAX, time, pace, quiet: true };
    let class = RequestClass {
        plausible: |answer| answer["data"]["accessor"].is_string(),
        ..RequestClass::get("others", OTHER_CONNECTIONS, "/v1/auth/token/lookup-self")
    };
    let access = ServerAccess { token, ..server.access() };
    drive(&access, vec![class], &bounds, WatchedProcesses::default()).await
}

/// Creates the workspaces for the lists, and returns one request of every kind.
async fn requests(server: &Server) -> Result<Vec<RepeatedRequest>, String> {
    let mut client = Client::connect_as(&server.endpoint, &server.token, Api::Projects).await?;
    for n in 0..WORKSPACES {
        let body = workspace(&format!("crowd-{n}"), &tags());
        // 422: the workspace is left over from a killed run.
        let answer = client.send(Method::POST, WORKSPACES_PATH, body).await?;
        if !matches!(answer.status.as_u16(), 201 | 422) {
            return Err(answer.unexpected("creating a workspace"));
        }
        let made: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if let Some(id) = made["data"]["id"].as_str() {
            let path = format!("/api/v2/workspaces/{id}");
            server.access().provisioner.remove_later(format!("the workspace crowd-{n}"), Api::Projects, path);
        }
    }
    let wrap = "/v1/sys/wrapping/wrap";
    let rights = "/v1/sys/capabilities-self";
    let include = "include=organization,project,effective_tag_bindings";
    let numbers = format!("{{\"data\":[0{}]}}", ",0".repeat(BODY_BYTES / 2));
    let text = workspace(&"a".repeat(BODY_BYTES), "[]");
    let paths: Vec<String> = (0..1_000).map(|n| format!("secret/a/path/number/{n}")).collect();
    let values: serde_json::Map<String, Value> = (0..9_000).map(|n| (format!("key-{n}"), n.into())).collect();
    Ok(vec![
        RepeatedRequest::get(
            "a page of 100 with all includes",
            Api::Projects,
            format!("{WORKSPACES_PATH}?page%5Bsize%5D=100&{include}"),
        ),
        RepeatedRequest::get("a page of 20", Api::Projects, WORKSPACES_PATH),
        RepeatedRequest::post("a document of numbers", Api::Projects, WORKSPACES_PATH, numbers),
        RepeatedRequest::post("a document with a long name", Api::Projects, WORKSPACES_PATH, text),
        RepeatedRequest::post(
            "a body of one long text",
            Api::Secrets,
            wrap,
            json!({ "text": "a".repeat(BODY_BYTES) }).to_string(),
        ),
        RepeatedRequest::post("a body of 9,000 values", Api::Secrets, wrap, Value::from(values).to_string()),
        RepeatedRequest::post("rights on 1,000 paths", Api::Secrets, rights, json!({ "paths": paths }).to_string()),
    ])
}

fn workspace(name: &str, tags: &str) -> Bytes {
    format!(
        "{{\"data\":{{\"type\":\"workspaces\",\"attributes\":{{\"name\":\"{name}\"}},\
         \"relationships\":{{\"tag-bindings\":{{\"data\":{tags}}}}}}}}}"
    )
    .into()
}

fn tags() -> String {
    let one =
        |n| json!({ "type": "tag-bindings", "attributes": { "key": format!("key-{n}"), "value": format!("{n}") } });
    Value::from((0..TAGS_PER_WORKSPACE).map(one).collect::<Vec<_>>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_document_is_valid_json() {
        let read: Value = serde_json::from_slice(&workspace("w", &tags())).unwrap();
        assert_eq!(read["data"]["attributes"]["name"], "w");
        let tags = read["data"]["relationships"]["tag-bindings"]["data"].as_array().unwrap();
        assert_eq!((tags.len(), &tags[8]["attributes"]["key"]), (TAGS_PER_WORKSPACE, &json!("key-8")));
    }
}
