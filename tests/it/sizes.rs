//! Sends 4 MB in every possible form to every route of both APIs: each request gets a 4xx and costs the server little.

use std::fs;

use reqwest::Method;
use serde_json::{Value, json};
use signet::http::secrets::route::{BodyKind, Operation};

use crate::process::{Dev, dev};
use crate::support::{Answer, Client, METHODS, http_client, place_of, send};

/// Bytes of a body, below the server's limit.
const SIZE: usize = 4_000_000;
const MOST_CPU_MS: u64 = 200;
const MOST_KB: u64 = 64 << 10;

/// Creates a JSON value of about this many bytes.
type Long = fn(usize) -> String;

const LONG: [(&str, Long); 8] = [
    ("an array of numbers", |size| format!("[0{}]", ",0".repeat(size / 2 - 2))),
    ("an array of texts", |size| format!("[\"a.test\"{}]", ",\"a.test\"".repeat(size / 9 - 2))),
    ("an array of identifiers", |size| {
        let one = r#"{"id":"x","type":"x"}"#;
        format!("[{one}{}]", format!(",{one}").repeat(size / (one.len() + 1) - 1))
    }),
    ("nesting", |size| "[".repeat(size)),
    ("a text", |size| format!("\"{}\"", "a".repeat(size - 2))),
    ("a list in a text", |size| format!("\"{}\"", "a.test,".repeat(size / 7 - 1))),
    ("a JSON list in a text", |size| format!("\"[0{}]\"", ",0".repeat(size / 2 - 3))),
    ("PEM", |size| {
        let line = format!("{}\\n", "A".repeat(64));
        let body = line.repeat(size / line.len() - 2);
        format!("\"-----BEGIN CERTIFICATE-----\\n{body}-----END CERTIFICATE-----\\n\"")
    }),
];

struct Scales {
    server: Dev,
    faults: Vec<String>,
    most_cpu_ms: u64,
}

impl Scales {
    /// Sends a request. Records it if it costs too much, or if it should be rejected but is not.
    async fn weigh(&mut self, what: &str, request: reqwest::RequestBuilder, refused: bool) -> Answer {
        let pid = self.server.pid();
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        let cpu = cpu_ms(pid);
        let memory = status_kb(pid, "VmRSS");
        let answer = send(request).await;
        let cpu = cpu_ms(pid) - cpu;
        let memory = status_kb(pid, "VmHWM").saturating_sub(memory);
        let status = answer.status;
        if cpu > self.most_cpu_ms || memory > MOST_KB {
            self.faults.push(format!("{what}: {status} after {cpu} ms of CPU and {memory} KB"));
        }
        // An error must not quote a long value.
        if (refused && !(400..500).contains(&status)) || status >= 500 || (refused && answer.text.len() > 64 << 10) {
            let text: String = answer.text.chars().take(200).collect();
            self.faults.push(format!("{what}: {status} {text}"));
        }
        answer
    }
}

/// CPU time of a process. The kernel counts in hundredths of a second.
fn cpu_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

fn status_kb(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn example(kind: &str, pattern: &str) -> String {
    let mount = place_of(kind);
    let segment = |segment: &str| match segment {
        ":name" => "dev".to_owned(),
        ":issuer_ref" => "default".to_owned(),
        ":type" => "internal".to_owned(),
        ":backend" => "pkcs11".to_owned(),
        other if other.starts_with([':', '*']) => "0a".to_owned(),
        other => other.to_owned(),
    };
    let segments: Vec<String> = pattern.split('/').map(segment).collect();
    format!("{mount}/{}", segments.join("/"))
}

fn request(client: &Client, operation: Operation, path: &str, body: String) -> reqwest::RequestBuilder {
    let request = match operation {
        Operation::Read => client.request("GET", path),
        Operation::List => client.request("LIST", path),
        Operation::Create | Operation::Update => client.request("POST", path),
        Operation::Patch => client.request("PATCH", path).header("Content-Type", "application/merge-patch+json"),
        Operation::Delete => client.request("DELETE", path),
    };
    request.body(body)
}

#[actix_web::test]
async fn secrets_routes_reject_four_megabytes_cheaply() {
    let server = dev(&[]);
    let client = server.client();
    let mut scales = Scales { server, most_cpu_ms: MOST_CPU_MS, faults: Vec::new() };
    for kind in METHODS {
        assert_eq!(client.post(&format!("sys/auth/{kind}"), json!({ "type": kind })).await.status, 204);
    }
    for (kind, route) in signet::http::secrets::all_routes() {
        let path = example(kind, route.pattern);
        let writes = matches!(route.operation, Operation::Create | Operation::Update | Operation::Patch);
        let fields = if route.fields.is_empty() { &["name"] } else { route.fields };
        for (name, long) in LONG {
            let member = |field: &&str| format!("\"{field}\":{}", long(SIZE / fields.len() - field.len() - 4));
            // Nothing can follow a nesting that is never closed.
            let members: Vec<String> = match name {
                "nesting" => vec![format!("\"{}\":{}", fields[0], long(SIZE - 100))],
                _ => fields.iter().map(member).collect(),
            };
            let body = format!("{{{}}}", members.join(","));
            assert!((SIZE / 2..4 << 20).contains(&body.len()), "{name}: {}", body.len());
            let what = format!("{:?} {path}: {name}", route.operation);
            // OCSP reports errors in its own format.
            let refused = writes && matches!(route.body, BodyKind::Fields | BodyKind::Verbatim);
            // A CRL may be twenty times as long; it is parsed on its own thread, one per mount.
            scales.most_cpu_ms = if route.pattern == "issuers/import/crl" { 3 * MOST_CPU_MS } else { MOST_CPU_MS };
            scales.weigh(&what, request(&client, route.operation, &path, body), refused).await;
            if !writes {
                // The body is not read, so one form is enough.
                break;
            }
        }
    }
    assert_eq!(scales.faults, [""; 0]);
    assert_eq!(client.get("auth/token/lookup-self").await.status, 200);
}

/// All bytes in one field, for routes with longer limits for a field.
#[actix_web::test]
async fn four_megabytes_in_a_single_field_are_rejected_cheaply() {
    let server = dev(&[]);
    let client = server.client();
    let mut scales = Scales { server, most_cpu_ms: MOST_CPU_MS, faults: Vec::new() };
    for (path, field) in [
        ("pki/issue/dev", "alt_names"),
        ("pki/roles/long", "allowed_domains"),
        ("pki/sign/dev", "csr"),
        ("pki/sign-verbatim", "csr"),
        ("pki/root/sign-self-issued", "certificate"),
        ("pki/revoke", "certificate"),
        ("pki/revoke-with-key", "certificate"),
        ("pki/revoke-with-key", "private_key"),
        ("pki/issuers/import/bundle", "pem_bundle"),
        ("pki/intermediate/set-signed", "certificate"),
        ("pki/keys/import", "pem_bundle"),
        ("pki/config/urls", "issuing_certificates"),
        ("pki/config/external-policy", "trusted_ca"),
        ("pki/issuer/default/resign-crls", "crls"),
        ("pki/issuer/default/sign-revocation-list", "revoked_certs"),
        ("sys/policies/acl/long", "policy"),
        ("sys/mounts/long", "description"),
        ("auth/token/create", "policies"),
        ("auth/token/create", "meta"),
        ("sys/capabilities-self", "paths"),
        ("sys/managed-keys/pkcs11/long", "usages"),
        ("sys/managed-keys/pkcs11/long", "pin"),
        ("sys/managed-keys/pkcs11/long", "mechanism"),
        ("sys/managed-keys/pkcs11/long", "key_id"),
        ("sys/managed-keys/pkcs11/long/test/sign", "hash_algorithm"),
    ] {
        for (name, long) in LONG {
            let body = format!("{{\"{field}\":{}}}", long(SIZE - 100));
            scales.weigh(&format!("{path} {field}: {name}"), client.request("POST", path).body(body), true).await;
        }
    }
    assert_eq!(scales.faults, [""; 0]);
}

struct Projects {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Projects {
    fn request(&self, method: &Method, path: &str, body: String) -> reqwest::RequestBuilder {
        let request = self.http.request(method.clone(), format!("{}/api/v2/{path}", self.base));
        request.bearer_auth(&self.token).header("Content-Type", "application/vnd.api+json").body(body)
    }

    async fn made(&self, path: &str, kind: &str, attributes: Value) -> String {
        let body = json!({ "data": { "type": kind, "attributes": attributes } });
        let answer = send(self.request(&Method::POST, path, body.to_string())).await;
        answer.body["data"]["id"].as_str().unwrap_or_else(|| panic!("{path}: {}", answer.text)).to_owned()
    }
}

#[actix_web::test]
async fn projects_routes_reject_four_megabytes_cheaply() {
    let server = dev(&[]);
    let api = Projects { http: http_client(), base: server.address.clone(), token: server.token.clone() };
    let project = api.made("organizations/dev/projects", "projects", json!({ "name": "long" })).await;
    let workspace = api.made("organizations/dev/workspaces", "workspaces", json!({ "name": "long" })).await;
    let team = api.made("organizations/dev/teams", "teams", json!({ "name": "long" })).await;
    let mut scales = Scales { server, most_cpu_ms: MOST_CPU_MS, faults: Vec::new() };
    let example = |pattern: &str| {
        let segment = |segment: &str| match segment {
            ":organization_name" => "dev".to_owned(),
            ":project_id" => project.clone(),
            ":workspace_id" => workspace.clone(),
            ":workspace_name" => "long".to_owned(),
            ":team_id" => team.clone(),
            other if other.starts_with(':') => "none".to_owned(),
            other => other.to_owned(),
        };
        pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
    };
    for route in signet::http::jsonapi::table::all_routes() {
        let path = example(route.pattern);
        let method = Method::from_bytes(route.method.as_str().as_bytes()).unwrap();
        // The bodies of reads and deletions are ignored. Deletions use missing resources, because other routes need the
        // existing ones.
        let removes = method == Method::DELETE && !route.pattern.contains("relationships");
        let writes = method != Method::GET && !removes;
        let path = if removes { route.pattern.replace(':', "no-") } else { path };
        for (name, long) in LONG {
            let long = long(SIZE - 1000);
            let documents = [
                format!("{{\"data\":{long}}}"),
                format!("{{\"data\":{{\"type\":\"projects\",\"attributes\":{{\"name\":{long}}}}}}}"),
                format!(
                    "{{\"data\":{{\"type\":\"projects\",\"attributes\":{{}},\"relationships\":{{\"tag-bindings\":{{\"data\":{long}}}}}}}}}"
                ),
            ];
            for (place, document) in ["data", "an attribute", "a relationship"].into_iter().zip(documents) {
                let what = format!("{method} {path}: {name} as {place}");
                scales.weigh(&what, api.request(&method, &path, document), writes).await;
                if !writes {
                    break;
                }
            }
            if !writes {
                break;
            }
        }
    }
    assert_eq!(scales.faults, [""; 0]);
}
