//! External policy: a service of the operator decides, and this server signs.
//!
//! [`engine`] is that service, with real TLS. [`calls`] covers failures of the service and the network, [`templates`]
//! the content of its certificates.

mod calls;
mod config;
pub mod engine;
mod templates;

use serde_json::{Value, json};
use signet::x509::csr::Csr;
use signet::x509::pem;

use self::engine::{Engine, Reply, Site, Template};
use super::foreign;
use super::mount::{Leaf, Pki, parse, text, with};
use crate::canary::private_key::private_numbers;
use crate::canary::scanner::Scanner;
use crate::support::{Answer, App, send};
use crate::v1::identity::{entity_id, login, method};
use crate::v1::rights::granted;

/// A mount with a root, and an engine that decides for it.
struct Governed {
    pki: Pki,
    engine: Engine,
}

impl Governed {
    async fn start() -> Self {
        Self::on(App::start().await).await
    }

    async fn on(app: App) -> Self {
        let governed = Self { pki: Pki::on(app).await, engine: Engine::start().await };
        governed.pki.post("config/external-policy", governed.settings()).await;
        governed
    }

    fn settings(&self) -> Value {
        settings(&self.engine)
    }

    async fn stop(self) {
        self.pki.stop().await;
        self.engine.stop().await;
    }

    /// Asserts that a request fails with this status and with `rule` in its error, and stores nothing.
    async fn fails(&self, path: &str, body: Value, status: u16, rule: &str) -> Answer {
        let answer = self.pki.fails(&format!("external-policy/{path}"), body, status, rule).await;
        assert!(!answer.text.contains("the remote's own words"), "{}", answer.text);
        assert_eq!(answer.header("retry-after").is_empty(), status != 503, "{path}");
        answer
    }

    /// Same as [`Governed::fails`], for `sign`.
    async fn sign_fails(&self, status: u16, rule: &str) -> Answer {
        self.fails("sign", json!({ "csr": csr() }), status, rule).await
    }

    /// Asserts that no request to the engine has the caller's token.
    fn assert_not_sent(&self, token: &str) {
        for question in self.engine.raw_questions() {
            assert!(!String::from_utf8(question).unwrap().contains(token));
        }
    }

    async fn sign(&self, more: Value) -> Leaf {
        self.pki.ask("external-policy/sign", with(&json!({ "csr": csr() }), more)).await
    }
}

/// Returns settings for this engine.
pub fn settings(engine: &Engine) -> Value {
    json!({
        "enabled": true,
        "external_service_url": engine.url(),
        "trusted_ca": Site::shared().pem("ca"),
        "service_client_cert_bundle": Site::shared().bundle("client"),
    })
}

/// A CSR of the P-256 key, with values that the engine may ignore.
fn csr() -> String {
    foreign::csr("ec-256", "/CN=from the request", "subjectAltName=DNS:from.request.test")
}

/// Returns the six forms of the endpoints, with and without a policy.
fn forms() -> Vec<(String, &'static str, bool)> {
    let mut all = Vec::new();
    for (operation, mode) in [("issue", "issue"), ("sign", "sign"), ("sign-intermediate", "ica")] {
        for issuer in ["", "issuer/root/"] {
            for policy in ["", "/web"] {
                all.push((format!("{issuer}external-policy/{operation}{policy}"), mode, !policy.is_empty()));
            }
        }
    }
    all
}

#[actix_web::test]
async fn disabled_external_policy_rejects_requests() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    pki.post("config/external-policy", json!({ "enabled": false })).await;
    for (path, ..) in forms() {
        pki.refused(&path, json!({ "csr": csr() }), "external policy is not configured").await;
    }
    assert_eq!(governed.engine.asked(), 0);
    governed.stop().await;
}

#[actix_web::test]
async fn engine_receives_no_password_token_or_private_key() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let engine = &governed.engine;
    for (format, is_hidden) in [("p12", true), ("pem", false)] {
        let body = json!({ "format": format, "password": "canary-of-the-file", "key_type": "ec", "other": "kept" });
        let data = pki.data("external-policy/issue", body).await;
        let question = engine.question();
        assert_eq!(question["user_request_key_values"]["other"], "kept");
        assert_eq!(question.to_string().contains("canary-of-the-file"), !is_hidden, "{format}");
        assert_eq!(data.get("p12").is_some(), is_hidden, "{format}");
        assert_eq!(data.get("private_key").is_some(), !is_hidden, "{format}");
    }
    // Text around the CSR is not sent.
    governed.sign(json!({ "csr": format!("a comment\n{}{}", csr(), foreign::key("ec-256")) })).await;
    let sent = engine.question()["user_request_key_values"]["csr"].as_str().unwrap().to_owned();
    assert!(sent.starts_with("-----BEGIN CERTIFICATE REQUEST-----") && !sent.contains("PRIVATE"), "{sent}");
    // The token is not sent either (CVE-2026-4525).
    let client = &pki.app.client;
    for header in ["Authorization", "authorization", "X-Service-Token", "X-Vault-Token", "Cookie"] {
        let tune = json!({ "passthrough_request_headers": ["X-Custom", header] });
        let refused = client.post("sys/mounts/pki/tune", tune).await;
        assert_eq!(refused.status, 400, "{header}: {}", refused.text);
    }
    let request = client.with_token("").request("POST", "pki/external-policy/sign").bearer_auth(&client.token);
    let answer = send(request.json(&json!({ "csr": csr() }))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(engine.asked(), 4);
    governed.assert_not_sent(&client.token);
    governed.stop().await;
}

#[actix_web::test]
async fn every_path_sends_the_unchanged_body_to_the_engine() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let engine = &governed.engine;
    let issuer = pki.get("issuer/root").await;
    let body = json!({
        "format": "pem", "key_type": "ec", "key_bits": 256, "private_key_format": "pkcs8", "cert_metadata": "%%",
        "ttl": { "not": "ours" }, "policy": "body", "issuer_ref": "body", "n": [1, null, 2.5, { "deep": true }], "z": null,
    });
    for (path, mode, with_policy) in forms() {
        let sent = if mode == "issue" { body.clone() } else { with(&body, json!({ "csr": csr() })) };
        let leaf = pki.ask(&path, sent.clone()).await;
        assert_eq!(leaf.answer.warnings(), "", "{path}");
        let mut question = engine.question();
        let uuid = question["request_uuid"].as_str().unwrap();
        assert_eq!((uuid.len(), uuid.as_bytes()[14]), (36, b'4'), "{path}");
        assert_eq!((&question["request_version"], &question["synchronous"]), (&json!(1), &json!(true)));
        assert!(question.get("identity_request_key_values").is_none(), "a root token has no entity");
        let user = question["user_request_key_values"].as_object_mut().unwrap();
        let csr_sent = user.remove("csr").unwrap();
        assert_eq!(json!(user), body, "{path}");
        let service = &question["service_request_values"];
        let expected = json!({
            "policy_name": if with_policy { "web" } else { "" },
            "mount": "pki/",
            "namespace": "root",
            "service_is_performance_standby": false,
            "service_is_performance_secondary": false,
            "issuance_mode": mode,
            "service_generated_private_key": mode == "issue",
            "requested_issuer_name": "root",
            "requested_issuer_id": issuer["issuer_id"],
            "requested_issuer_cert": issuer["certificate"].as_str().unwrap().trim_end(),
            "requested_issuance_config": {
                "aia_values": {
                    "issuing_certificates": [], "crl_distribution_points": [], "delta_crl_distribution_points": [],
                    "ocsp_servers": [],
                },
                "leaf_not_after_behavior": "err",
                "mount_default_ttl": 2_764_800,
                "mount_max_ttl": 2_764_800,
            },
        });
        assert_eq!(service, &expected, "{path}");
        let (label, der) = pem::parse_first_block(csr_sent.as_str().unwrap()).unwrap().unwrap();
        let csr_sent = Csr::from_der(&der).unwrap();
        csr_sent.verify().unwrap();
        assert_eq!(label, "CERTIFICATE REQUEST");
        assert_eq!(leaf.certificate.key(), &csr_sent.key, "{path}");
        if mode == "issue" {
            assert_eq!((csr_sent.subject.as_der(), csr_sent.extensions.len()), (&[0x30, 0][..], 0), "an empty CSR");
            let private_key = leaf.data()["private_key"].as_str().unwrap();
            assert!(private_key.starts_with("-----BEGIN PRIVATE KEY-----"), "{path}");
        } else {
            assert_eq!(json!(pem::encode("CERTIFICATE REQUEST", &der)), sent["csr"].as_str().unwrap().trim_end());
            assert!(leaf.data().get("private_key").is_none(), "{path}");
        }
        let chain = leaf.data()["ca_chain"].as_array().unwrap();
        assert_eq!(chain.len(), if mode == "ica" { 2 } else { 1 }, "{path}: as the plain endpoint's");
        assert_eq!(chain.last().unwrap(), issuer["certificate"].as_str().unwrap().trim_end());
    }
    assert_eq!(engine.asked(), forms().len());
    pki.post("config/cluster", json!({ "path": "https://ca.test/v1/pki", "aia_path": "http://aia.test/pki" })).await;
    let urls = json!({
        "issuing_certificates": "{{cluster_aia_path}}/issuer/{{issuer_id}}/der", "ocsp_servers": "http://ocsp.test/",
        "enable_templating": true,
    });
    pki.post("config/urls", urls).await;
    governed.sign(json!({})).await;
    let sent = &governed.engine.question()["service_request_values"]["requested_issuance_config"]["aia_values"];
    let own = format!("http://aia.test/pki/issuer/{}/der", text(&issuer, "issuer_id"));
    let expected = json!({
        "issuing_certificates": [own], "crl_distribution_points": [], "delta_crl_distribution_points": [],
        "ocsp_servers": ["http://ocsp.test/"],
    });
    assert_eq!(sent, &expected);
    governed.stop().await;
}

#[actix_web::test]
async fn engine_receives_caller_identity_as_configured() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let engine = &governed.engine;
    pki.app.policy("asker", &granted("pki/external-policy/*", &["update"])).await;
    let accessor = method(&pki.app, "one").await;
    let bob = login(&pki.app, "one", "b", json!({ "k": "v" })).await;
    let id = entity_id(&bob).await;
    let path = format!("identity/entity/id/{id}");
    let entity = json!({ "name": "bob", "policies": "asker", "metadata": { "team": "web" } });
    assert_eq!(pki.app.client.post(&path, entity).await.status, 204);
    let shown = pki.app.client.get(&path).await.body["data"].clone();
    let staff = json!({ "name": "staff", "mount_accessor": accessor });
    for (settings, entity, groups) in [
        (json!({}), json!(null), json!([])),
        (json!({ "entity_jmespath": "@", "group_jmespath": "@" }), shown, json!([staff])),
        (json!({ "entity_jmespath": "name", "group_jmespath": "name" }), json!("bob"), json!(["staff"])),
        (json!({ "entity_jmespath": "metadata.team", "group_jmespath": "none" }), json!("web"), json!([])),
        (json!({ "entity_jmespath": "metadata.none", "group_jmespath": "" }), json!(null), json!([])),
    ] {
        pki.post("config/external-policy", settings.clone()).await;
        for operation in ["sign", "sign-intermediate", "issue"] {
            let body = if operation == "issue" { json!({ "key_type": "ec" }) } else { json!({ "csr": csr() }) };
            let answer = bob.post(&format!("pki/external-policy/{operation}"), body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let told = engine.question()["identity_request_key_values"].clone();
            assert_eq!(told, json!({ "entity_id": id, "entity": entity, "groups": groups }), "{settings} {operation}");
        }
    }
    governed.assert_not_sent(&bob.token);
    governed.sign(json!({})).await;
    assert!(engine.question().get("identity_request_key_values").is_none(), "a root token has no entity");
    governed.stop().await;
}

#[actix_web::test]
async fn private_keys_are_generated_locally_and_not_sent() {
    let governed = Governed::start().await;
    let root = governed.pki.default_pem().await;
    for (request, kind) in [
        (json!({}), "rsa 2048"),
        (json!({ "key_type": "rsa", "key_bits": "3072" }), "rsa 3072"),
        (json!({ "key_type": "ec" }), "ec 256"),
        (json!({ "key_type": "ec", "key_bits": 224 }), "ec 224"),
        (json!({ "key_type": "ec", "key_bits": 384 }), "ec 384"),
        (json!({ "key_type": "ec", "key_bits": 521 }), "ec 521"),
        (json!({ "key_type": "ed25519", "key_bits": 7 }), "ed25519 0"),
    ] {
        let leaf = governed.pki.ask("external-policy/issue", request).await;
        let found = leaf.certificate.key().kind();
        assert_eq!(format!("{} {}", found.name(), found.bits()), kind);
        let private_key = leaf.data()["private_key"].as_str().unwrap();
        let public = foreign::openssl(&["pkey", "-pubout", "-outform", "DER"], private_key.as_bytes());
        assert_eq!(public, leaf.certificate.key().spki(), "{kind}: the key is the certificate's");
        foreign::openssl_verifies_chain(&root, &[], &leaf.pem).unwrap();
        let mut scanner = Scanner::default();
        private_numbers(private_key).iter().for_each(|number| scanner.add_bytes(kind, number));
        assert!(!scanner.found(private_key.as_bytes()).is_empty(), "the search sees what it looks for");
        let asked = governed.engine.raw_questions();
        assert!(scanner.found(asked.last().unwrap()).is_empty(), "{kind}: the engine got the private key");
    }
    governed.stop().await;
}

#[actix_web::test]
async fn invalid_requests_are_rejected_before_the_engine_is_called() {
    let governed = Governed::start().await;
    let weak = foreign::csr("rsa-1024", "/CN=a", "");
    let good = csr();
    let mut der = pem::parse_first_block(&good).unwrap().unwrap().1;
    *der.last_mut().unwrap() ^= 1;
    let forged = pem::encode("CERTIFICATE REQUEST", &der);
    for (path, body, rule) in [
        ("issue", json!({ "key_type": "dsa" }), "key_type: "),
        ("issue", json!({ "key_type": "rsa", "key_bits": 1024 }), "key_bits: "),
        ("issue", json!({ "key_type": "ec", "key_bits": 255 }), "key_bits: "),
        ("issue", json!({ "format": "xml" }), "format: "),
        ("sign", json!({}), "csr: must not be empty"),
        ("sign", json!({ "csr": forged }), "csr: request signature invalid"),
        ("sign", json!({ "csr": weak }), "csr: "),
        ("sign-intermediate", json!({ "csr": "x" }), "csr: "),
        ("sign-intermediate", json!({ "csr": good, "format": 1 }), "format: "),
    ] {
        governed.fails(path, body, 400, rule).await;
    }
    let unknown = "issuer/nobody/external-policy/sign";
    governed.pki.refused(unknown, json!({ "csr": csr() }), "issuer_ref: issuer not found").await;
    assert_eq!(governed.engine.asked(), 0);
    governed.stop().await;
}

#[actix_web::test]
async fn external_policy_formats_match_the_plain_endpoints() {
    let governed = Governed::start().await;
    let pki = &governed.pki;
    let body = json!({ "key_type": "ec", "format": "der", "remove_roots_from_chain": true });
    let data = pki.data("external-policy/issue", body).await;
    assert_eq!(data["ca_chain"], json!([]));
    assert!(text(&data, "certificate").starts_with("MI"));
    let data = pki.data("external-policy/issue", json!({ "key_type": "ec", "format": "pem_bundle" })).await;
    let bundle = text(&data, "certificate");
    assert!(bundle.starts_with("-----BEGIN EC PRIVATE KEY-----") && bundle.contains("BEGIN CERTIFICATE"), "{bundle}");
    // Dates have the type that clients of the token header expect.
    let token = &pki.app.client.token;
    for (header, peers) in [("X-Service-Token", false), ("X-Vault-Token", true)] {
        for (operation, leaf) in [("issue", true), ("sign", true), ("sign-intermediate", false)] {
            let body = if operation == "issue" { json!({ "key_type": "ec" }) } else { json!({ "csr": csr() }) };
            let path = format!("pki/external-policy/{operation}");
            let request = pki.app.client.with_token("").request("POST", &path).header(header, token).json(&body);
            let answer = send(request).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            let data = &answer.body["data"];
            let certificate = parse(text(data, "certificate"));
            let date = |at: i64| if peers { json!(at) } else { json!(at.to_string()) };
            assert_eq!(data["expiration"], date(certificate.not_after()), "{header} {operation}");
            let begin = leaf.then(|| date(certificate.not_before()));
            assert_eq!(data.get("not_before"), begin.as_ref(), "{header} {operation}");
        }
    }
    governed.stop().await;
}

#[actix_web::test]
async fn engine_response_must_match_request_id_and_key() {
    let governed = Governed::start().await;
    let engine = &governed.engine;
    engine.consents(&Template::default(), json!({ "request_uuid": "other" }));
    governed.sign_fails(400, "request_uuid").await;
    for status in [201, 204, 400, 401, 500, 503] {
        engine.says(move |_| Reply::status(status));
        governed.sign_fails(502, &format!("status {status}")).await;
    }
    engine.consents(&Template { other_key: true, ..Template::default() }, json!({}));
    governed.sign_fails(400, "public key is not the request's").await;
    governed.fails("issue", json!({ "key_type": "ec" }), 400, "public key is not the request's").await;
    let warnings = json!({ "error": "but\nlook", "warnings": ["first", "", "second\u{7}"] });
    engine.consents(&Template::default(), warnings);
    let leaf = governed.sign(json!({})).await;
    assert_eq!(leaf.answer.body["warnings"], json!(["first", "second", "but look"]));
    engine.says(|q| {
        Reply::json(json!({ "request_uuid": q["request_uuid"], "error": format!("no\u{1b}[1m {}", "x".repeat(9999)) }))
    });
    let refused = governed.sign_fails(400, "external policy: no [1m xxx").await;
    assert!(refused.text.len() < 700, "{}", refused.text.len());
    governed.stop().await;
}
