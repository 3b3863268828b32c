//! Recorded requests of unmodified clients (`clients/*.json`), and what each client reads of the responses. Every
//! sequence is played with the client's own header and with the contract's; under `contract` are members whose types
//! differ.
//!
//! `prepare` has an operator's calls, `calls` the client's. `needs` maps JSON pointers to a type, `{"is": value}` or
//! `{"has": part of a text}`. `keeps` names parts of a response for `{{name}}` in later calls. `token` names the token
//! to send, or is false.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use signet::clock::parse_rfc3339;
use signet::x509::pem;

use super::pki::foreign::csr;
use super::pki::mount::parse;
use crate::support::{Answer, App, send};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    client: String,
    /// The source of the requests and of the requirements.
    source: String,
    prepare: Vec<Call>,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    does: String,
    method: String,
    path: String,
    #[serde(default = "given")]
    token: Value,
    #[serde(default)]
    body: Value,
    status: u16,
    #[serde(default)]
    needs: Map<String, Value>,
    #[serde(default)]
    contract: Map<String, Value>,
    #[serde(default)]
    keeps: BTreeMap<String, String>,
}

fn given() -> Value {
    "token".into()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Header {
    Own,
    Contract,
}

struct Play<'a> {
    app: &'a App,
    header: Header,
    kept: BTreeMap<String, String>,
}

impl Play<'_> {
    fn filled(&self, text: &str) -> String {
        self.kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
    }

    async fn send(&self, call: &Call) -> Answer {
        let request = self.app.client.with_token("").request(&call.method, &self.filled(&call.path));
        let token = call.token.as_str().map(|name| self.kept[name].as_str());
        let request = match (self.header, token) {
            (Header::Own, token) => {
                let request = request.header("X-Vault-Request", "true").header("User-Agent", "Go-http-client/1.1");
                let request = request.header("Accept-Encoding", "gzip");
                if let Some(token) = token { request.header("X-Vault-Token", token) } else { request }
            }
            (Header::Contract, Some(token)) => request.header("X-Service-Token", token),
            (Header::Contract, None) => request,
        };
        // Without a content type, as these clients send it.
        let body = if call.body.is_null() { String::new() } else { self.filled(&call.body.to_string()) };
        send(request.body(body)).await
    }

    async fn play(&mut self, call: &Call) {
        let answer = self.send(call).await;
        let what = format!("{:?}: {}: {} {}", self.header, call.does, call.method, call.path);
        assert_eq!(answer.status, call.status, "{what}: {}", answer.text);
        let mut needs = call.needs.clone();
        if self.header == Header::Contract {
            needs.extend(call.contract.clone());
        }
        for (pointer, wanted) in &needs {
            let found = answer.body.pointer(pointer).unwrap_or_else(|| panic!("{what}: no {pointer}: {}", answer.text));
            assert!(is(found, &self.filled(&wanted.to_string())), "{what}: {pointer} is {found}, not {wanted}");
        }
        for (name, pointer) in &call.keeps {
            let found = answer.body.pointer(pointer).and_then(Value::as_str);
            self.kept.insert(name.clone(), found.unwrap_or_else(|| panic!("{what}: no text {pointer}")).to_owned());
        }
    }
}

/// `true` if a member matches a requirement.
fn is(found: &Value, wanted: &str) -> bool {
    let wanted: Value = serde_json::from_str(wanted).unwrap();
    match &wanted {
        Value::Object(rule) => {
            let part = rule.get("has").is_none_or(|part| found.as_str().unwrap().contains(part.as_str().unwrap()));
            assert!(rule.keys().all(|word| ["is", "has"].contains(&word.as_str())), "{wanted}");
            part && rule.get("is").is_none_or(|value| value == found)
        }
        Value::String(word) => match word.as_str() {
            "integer" => found.is_i64(),
            "text" => found.is_string(),
            "boolean" => found.is_boolean(),
            "object" => found.is_object(),
            "texts" => found.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
            "texts or null" => found.is_null() || is(found, "\"texts\""),
            "object or null" => found.is_null() || found.is_object(),
            "time" => found.as_str().is_some_and(|text| parse_rfc3339("", text).is_ok()),
            "epoch seconds as text" => found.as_str().is_some_and(|text| text.parse::<i64>().is_ok()),
            "a key, a leaf and authorities" => is_bundle(found),
            "a leaf and its chain to the root" => is_chain(found),
            _ => panic!("{word:?} is no type"),
        },
        _ => panic!("{wanted} is no rule"),
    }
}

/// `true` if the PEM blocks in `data` and its `ca_chain` are one private key, one leaf, and CA certificates; clients
/// reject any other block.
fn is_bundle(data: &Value) -> bool {
    let own = data.as_object().unwrap().values().filter_map(Value::as_str);
    let chain = data["ca_chain"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let texts: Vec<&str> = own.chain(chain).filter(|text| text.contains("-----BEGIN")).collect();
    let blocks: Vec<(String, Vec<u8>)> = texts.iter().flat_map(|text| pem::parse_blocks(text).unwrap()).collect();
    let keys = blocks.iter().filter(|(label, _)| label.ends_with("PRIVATE KEY")).count();
    let certificates: Vec<_> = blocks.iter().filter(|(label, _)| label == "CERTIFICATE").collect();
    let leaf = |der: &[u8]| !parse(&pem::encode("CERTIFICATE", der)).is_ca();
    let leaves = certificates.iter().filter(|(_, der)| leaf(der)).count();
    keys == 1 && leaves == 1 && certificates.len() > 1 && keys + certificates.len() == blocks.len()
}

/// `true` if `certificate` is a leaf and `ca_chain` leads from it to a root, with one certificate per text.
fn is_chain(data: &Value) -> bool {
    let chain = data["ca_chain"].as_array().unwrap();
    let texts = std::iter::once(&data["certificate"]).chain(chain).map(|text| text.as_str().unwrap());
    let all: Vec<_> = texts.filter(|text| text.matches("-----BEGIN").count() == 1).map(parse).collect();
    let links = all.windows(2).all(|pair| pair[0].issuer() == pair[1].subject());
    let ends = all.last().is_some_and(|root| root.issuer() == root.subject());
    all.len() == chain.len() + 1 && !all[0].is_ca() && links && ends
}

/// Plays a sequence with both headers, each on its own server.
async fn plays(text: &str) {
    let sequence: Sequence = serde_json::from_str(text).unwrap();
    assert!(!sequence.client.is_empty() && !sequence.source.is_empty() && !sequence.calls.is_empty());
    for header in [Header::Own, Header::Contract] {
        let app = App::start().await;
        // In a JSON text, line ends are escaped.
        let request = csr("ec-256", "/CN=signed.example.test", "").replace('\n', "\\n");
        let kept = [("token", app.client.token.clone()), ("csr", request)];
        let kept = kept.map(|(name, value)| (name.to_owned(), value)).into();
        let mut play = Play { app: &app, header: Header::Contract, kept };
        for call in &sequence.prepare {
            play.play(call).await;
        }
        play.header = header;
        for call in &sequence.calls {
            play.play(call).await;
        }
        app.stop().await;
    }
}

#[actix_web::test]
async fn consul_template_renders_and_renews_certificates() {
    plays(include_str!("clients/consul_template.json")).await;
}

#[actix_web::test]
async fn cert_manager_logs_in_and_gets_a_leaf_with_its_chain() {
    plays(include_str!("clients/cert_manager.json")).await;
}

#[actix_web::test]
async fn the_agent_finds_its_token_and_renders_a_certificate() {
    plays(include_str!("clients/agent.json")).await;
}

#[actix_web::test]
async fn terraform_provider_reads_back_its_writes_without_changes() {
    plays(include_str!("clients/terraform_provider.json")).await;
}

#[actix_web::test]
async fn peer_command_line_moves_unwraps_and_shows_status() {
    plays(include_str!("clients/command_line.json")).await;
}

#[test]
fn type_check_distinguishes_json_types() {
    for (word, good, bad) in [
        ("integer", json!(5), json!("5")),
        ("integer", json!(-5), json!(5.5)),
        ("text", json!("5"), json!(5)),
        ("texts", json!([]), Value::Null),
        ("texts", json!(["a"]), json!([1])),
        ("texts or null", Value::Null, json!("a")),
        ("time", json!("2026-01-01T00:00:00Z"), json!(1_767_225_600)),
        ("epoch seconds as text", json!("5"), json!(5)),
    ] {
        let word = json!(word).to_string();
        assert!(is(&good, &word) && !is(&bad, &word), "{word}");
    }
    assert!(is(&json!(5), "{\"is\":5}") && !is(&json!("5"), "{\"is\":5}"));
    assert!(is(&json!("abc"), "{\"has\":\"b\"}") && !is(&json!("abc"), "{\"has\":\"d\"}"));
}
