//! Every route of the secrets service, each on its own server: a valid request, requests without rights, malformed
//! bodies, fields with values of wrong types, and missing objects.

use std::collections::HashSet;

use base64::Engine as _;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use signet::http::secrets::all_routes;
use signet::http::secrets::route::{BodyKind, Operation, Route, RouteAccess, operation_name};
use signet::x509::algorithm::Hash;
use signet::x509::ocsp::CertIdHash;

use super::recorder::Recorder;
use crate::faults::requests::{lease, request};
use crate::faults::stage::Stage;
use crate::support::{Client, place_of, until};
use crate::v1::pki::mount::parse;
use crate::v1::pki::ocsp;
use crate::v1::rights::only;

/// Routes that always reject: no lease can be renewed, and the server has no audit device, PKCS #11 module, directory
/// or ACME.
pub const REFUSES: &[(&str, &str, &str)] = &[
    ("system", "update", "audit/*path"),
    ("system", "delete", "audit/*path"),
    ("system", "update", "audit-hash/*path"),
    ("system", "update", "leases/renew"),
    ("system", "update", "leases/renew/*lease_id"),
    ("system", "update", "wrapping/wrap"),
    ("system", "update", "managed-keys/:backend/:managed_key/test/sign"),
    ("cloudb", "update", "login"),
    ("cloudb", "update", "rotate-root"),
    ("pki", "list", "certs/revocation-queue"),
    ("pki", "read", "acme/*path"),
    ("pki", "update", "acme/*path"),
    ("pki", "read", "roles/:role/acme/*path"),
    ("pki", "update", "roles/:role/acme/*path"),
    ("pki", "read", "issuer/:issuer_ref/acme/*path"),
    ("pki", "update", "issuer/:issuer_ref/acme/*path"),
    ("pki", "read", "issuer/:issuer_ref/roles/:role/acme/*path"),
    ("pki", "update", "issuer/:issuer_ref/roles/:role/acme/*path"),
    ("pki", "read", "external-policy/acme/*path"),
    ("pki", "update", "external-policy/acme/*path"),
    ("pki", "read", "external-policy/:policy/acme/*path"),
    ("pki", "update", "external-policy/:policy/acme/*path"),
];

/// Values for every field, next to valid values of all others. Fields that another route of the area reads get only the
/// first one.
const STRANGE: [&str; 3] = [r#"{"wrong":true}"#, "-1", r#""no such""#];

/// Concurrent routes: most of their time is disk I/O.
const AT_ONCE: usize = 4;

pub fn area(kind: &str, pattern: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| pattern.contains(part));
    match kind {
        "token" => "token",
        "approle" => "approle",
        "jwt" => "jwt",
        "cloudb" => "cloudb",
        "cubbyhole" => "wrapping",
        "system" if has(&["wrapping"]) => "wrapping",
        "identity" => "identity",
        "system" if has(&["polic", "capabilities", "leases"]) => "policies",
        "system" if has(&["quotas"]) => "quotas",
        "system" if has(&["explain", "resultant"]) => "explain",
        "system" if has(&["managed-keys"]) => "managed-keys",
        "system" => "system",
        "pki" if has(&["acme"]) => "pki-acme",
        "pki" if has(&["external-policy"]) => "pki-external-policy",
        "pki" if has(&["crl", "revo", "ocsp", "tidy"]) => "pki-revocation",
        "pki" if has(&["generate", "import", "intermediate", "rotate", "root/re", "self-issued", "config/ca"]) => {
            "pki-authorities"
        }
        "pki" if has(&["role", "issue/", "sign"]) => "pki-leaves",
        "pki" if has(&["cert", "json", "der", "pem"]) || pattern.starts_with("ca") => "pki-certificates",
        "pki" => "pki-issuers",
        _ => "projects",
    }
}

pub async fn walk(area: &str) -> Recorder {
    let mut seen = HashSet::new();
    let routes: Vec<_> = all_routes()
        .filter(|(kind, route)| self::area(kind, route.pattern) == area)
        .map(|(kind, route)| (kind, route, if seen.insert(route.fields) { &STRANGE[..] } else { &STRANGE[..1] }))
        .collect();
    let walks = routes.into_iter().map(|(kind, route, values)| walk_route(kind, route, values));
    let recorders: Vec<Recorder> = stream::iter(walks).buffered(AT_ONCE).collect().await;
    recorders.into_iter().fold(Recorder::default(), Recorder::followed_by)
}

/// Records a route on its own server, isolated from the other routes.
async fn walk_route(kind: &str, route: &Route, values: &[&str]) -> Recorder {
    let mut recorder = Recorder::default();
    recorder.heading(&format!("{kind}: {} {}", operation_name(route.operation), route.pattern));
    let stage = Stage::with_authority().await;
    let ask = match aside(&mut recorder, &stage, kind, route).await {
        Some(ask) => ask,
        None => well(&mut recorder, &stage, kind, route).await,
    };
    badly(&mut recorder, &stage, kind, route, ask, values).await;
    stage.stop().await;
    recorder
}

struct Ask {
    path: String,
    body: Value,
}

fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "GET",
        Operation::List => "LIST",
        Operation::Create | Operation::Update => "POST",
        Operation::Patch => "PATCH",
        Operation::Delete => "DELETE",
    }
}

fn asking(client: &Client, operation: Operation, path: &str, body: &str) -> reqwest::RequestBuilder {
    let request = client.request(verb(operation), path);
    match operation {
        Operation::Create | Operation::Update => {
            request.header("content-type", "application/json").body(body.to_owned())
        }
        Operation::Patch => request.header("content-type", "application/merge-patch+json").body(body.to_owned()),
        _ => request,
    }
}

/// The valid request.
async fn well(recorder: &mut Recorder, stage: &Stage, kind: &str, route: &Route) -> Ask {
    let ask = request(stage, kind, route.operation, route.pattern).await;
    let ask = ask.unwrap_or_else(|| panic!("no request for {kind} {}", route.pattern));
    let client =
        ask.token.as_ref().map_or_else(|| stage.app.client.clone(), |token| stage.app.client.with_token(token));
    let asked = asking(&client, route.operation, &ask.path, &ask.body.to_string());
    if route.pattern == "metrics" {
        recorder.ask_without_body(asked).await;
    } else {
        recorder.ask(asked).await;
    }
    if route.operation == Operation::Read {
        recorder.ask_without_body(client.request("HEAD", &ask.path)).await;
    }
    Ask { path: ask.path, body: ask.body }
}

/// The routes that `faults::requests` leaves out.
async fn aside(recorder: &mut Recorder, stage: &Stage, kind: &str, route: &Route) -> Option<Ask> {
    let client = &stage.app.client;
    let pattern = route.pattern;
    let post = |path: &str, body: &Value| client.request("POST", path).json(body);
    match (kind, pattern) {
        ("system", "health") => {
            for query in ["", "?standbyok=true", "?activecode=299", "?activecode=x"] {
                recorder.ask(client.with_token("").request("GET", &format!("sys/health{query}"))).await;
            }
            Some(Ask { path: "sys/health".to_owned(), body: Value::Null })
        }
        ("system", "leases/revoke" | "leases/revoke/*lease_id") => {
            let id = lease(stage).await;
            let body = json!({});
            let id_body = json!({ "lease_id": id });
            let (path, body) = match pattern {
                "leases/revoke" => ("sys/leases/revoke".to_owned(), id_body.clone()),
                _ => (format!("sys/leases/revoke/{id}"), body),
            };
            recorder.ask(post(&path, &body)).await;
            recorder.ask(post("sys/leases/lookup", &id_body)).await;
            Some(Ask { path, body })
        }
        ("system", "leases/revoke-prefix/*prefix" | "leases/revoke-force/*prefix") => {
            lease(stage).await;
            let path = format!("sys/{}", pattern.replace("*prefix", "pki/issue/leased"));
            recorder.ask(post(&path, &json!({}))).await;
            recorder.ask(client.request("LIST", "sys/leases/lookup/pki/issue/leased")).await;
            Some(Ask { path, body: json!({}) })
        }
        ("pki", "tidy") => {
            let body = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "safety_buffer": "1s" });
            recorder.ask(post("pki/tidy", &body)).await;
            until_tidied(client).await;
            recorder.ask(client.request("GET", "pki/tidy-status")).await;
            Some(Ask { path: "pki/tidy".to_owned(), body: json!({ "safety_buffer": "1s" }) })
        }
        ("pki", "certs/revocation-queue") => {
            recorder.ask(client.request("LIST", "pki/certs/revocation-queue")).await;
            Some(Ask { path: "pki/certs/revocation-queue".to_owned(), body: Value::Null })
        }
        ("pki", "ocsp" | "unified-ocsp" | "ocsp/**request" | "unified-ocsp/**request") => {
            Some(ocsp(recorder, stage, pattern).await)
        }
        _ => None,
    }
}

pub async fn until_tidied(client: &Client) {
    let state = async || client.get("pki/tidy-status").await.body["data"]["state"].clone();
    until("the end of tidy", async || !["Running", "Cancelling"].contains(&state().await.as_str().unwrap())).await;
}

async fn ocsp(recorder: &mut Recorder, stage: &Stage, pattern: &str) -> Ask {
    let client = stage.app.client.with_token("");
    if pattern.contains("unified") {
        stage.post("pki/config/crl", json!({ "auto_rebuild": true, "unified_crl": true })).await;
    }
    let mut questions = Vec::new();
    for state in ["good", "revoked", "unknown"] {
        let issued = stage.post("pki/issue/web", json!({ "common_name": format!("{state}.test") })).await.body;
        if state == "revoked" {
            stage.post("pki/revoke", json!({ "serial_number": issued["data"]["serial_number"] })).await;
        }
        let text = |name: &str| issued["data"][name].as_str().unwrap().to_owned();
        let serial = parse(&text("certificate")).serial();
        let issuer = if state == "unknown" { parse(&text("certificate")) } else { parse(&text("issuing_ca")) };
        questions.push(ocsp::request(&[ocsp::cert_id(CertIdHash::Sha1, &issuer, &serial)], None));
        if state == "good" {
            let id = ocsp::cert_id(CertIdHash::Sha2(Hash::Sha256), &issuer, &serial);
            questions.push(ocsp::request(&[id], Some(&[7; 16])));
        }
    }
    let path = format!("pki/{}", pattern.trim_end_matches("/**request"));
    for question in questions {
        let asked = if pattern.ends_with("request") {
            let text = base64::engine::general_purpose::STANDARD.encode(question);
            client
                .request("GET", &format!("{path}/{}", text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")))
        } else {
            client.request("POST", &path).header("content-type", "application/ocsp-request").body(question)
        };
        recorder.ask(asked).await;
    }
    let path = if pattern.ends_with("request") { format!("{path}/AAAA") } else { path };
    Ask { path, body: Value::Null }
}

/// Rejected requests, one line each.
async fn badly(recorder: &mut Recorder, stage: &Stage, kind: &str, route: &Route, ask: Ask, values: &[&str]) {
    let client = &stage.app.client;
    let operation = route.operation;
    let path = &ask.path;
    let mut line = async |what: &str, request| recorder.ask_briefly(what, request).await;
    let body = ask.body.to_string();
    if route.access != RouteAccess::Open {
        line("without a token", asking(&client.with_token(""), operation, path, &body)).await;
        let rule = "path \"unrelated\" { capabilities = [\"read\"] }";
        let powerless = only(&stage.app, "powerless", rule).await;
        line("without a right", asking(&powerless, operation, path, &body)).await;
    }
    line("by OPTIONS", client.request("OPTIONS", path)).await;
    let absent = example(kind, route.pattern);
    if absent != *path && kind != "token" {
        line("of nothing", asking(client, operation, &absent, &body)).await;
    }
    if !matches!(operation, Operation::Update | Operation::Patch) {
        return recorder.blank();
    }
    if (kind, route.pattern) == ("token", "tidy") {
        // The result depends on whether a tidy is running.
        return recorder.blank();
    }
    for body in ["{\"a\":", "[]", "{\"bogus\":1,\"bogus\":2}"] {
        line(&format!("with {body}"), asking(client, operation, path, body)).await;
    }
    if route.body == BodyKind::Raw {
        return recorder.blank();
    }
    line("as text", client.request(verb(operation), path).header("content-type", "text/plain").body(body)).await;
    for field in route.fields.iter().copied().chain(["bogus"]) {
        for value in values {
            let mut body = if ask.body.is_object() { ask.body.clone() } else { json!({}) };
            body[field] = serde_json::from_str(value).unwrap();
            line(&format!("{field} = {value}"), asking(client, operation, path, &body.to_string())).await;
        }
    }
    recorder.blank();
}

/// A path of a pattern that does not exist.
fn example(kind: &str, pattern: &str) -> String {
    let mount = place_of(kind);
    let segment = |s: &str| match s {
        ":backend" => "pkcs11".to_owned(),
        s if s.starts_with([':', '*']) => "0a".to_owned(),
        s => s.to_owned(),
    };
    format!("{mount}/{}", pattern.split('/').map(segment).collect::<Vec<_>>().join("/"))
}
