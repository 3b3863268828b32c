//! Secrets leave the server only in the response meant to return them: not in trace logs, metrics, errors or other
//! responses, nor in plain text in a store.
//!
//! The real program runs with all logging on. A walk creates tokens and keys in every way and provokes errors of every
//! kind. Then all outputs are searched for all secrets.

mod cloudb;
mod managed_keys;
pub mod private_key;
pub mod scanner;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use signet::auth::policy::Operation;
use signet::http::secrets::all_routes;

use self::private_key::private_numbers;
use self::scanner::Scanner;
use crate::cluster;
use crate::directory::TokenKey;
use crate::process::{Dev, dev_with, openssl, signet};
use crate::provider::Provider;
use crate::signers::hsm::{Hsm, SOFTHSM};
use crate::support::{Answer, Client, METHODS, place_of, send};

struct Output {
    what: String,
    bytes: Vec<u8>,
    own: BTreeSet<String>,
}

/// The outputs and secrets collected so far.
struct Walk {
    root: Client,
    scanner: Scanner,
    outputs: Vec<Output>,
}

impl Walk {
    fn new(dev: &Dev) -> Self {
        let mut walk = Self { root: dev.client(), scanner: Scanner::default(), outputs: Vec::new() };
        walk.scanner.add_text("root token", &dev.token);
        walk
    }

    /// Records a response for the search; `own` are the secrets that it may contain.
    fn keep(&mut self, what: String, answer: Answer, own: &[&str]) -> Answer {
        let what = format!("{what}: {}", answer.status);
        // An error may contain no secret.
        let own = own.iter().filter(|_| answer.status < 400).map(|s| (*s).to_owned()).collect();
        self.outputs.push(Output { what, bytes: format!("{:?}\n{}", answer.headers, answer.text).into_bytes(), own });
        answer
    }

    async fn ask(&mut self, client: &Client, method: &str, path: &str, body: Value, own: &[&str]) -> Answer {
        let mut request = client.request(method, path);
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        if method == "PATCH" {
            request = request.header("Content-Type", "application/merge-patch+json");
        }
        let answer = send(request).await;
        self.keep(format!("{method} {path} {body}"), answer, own)
    }

    async fn post(&mut self, path: &str, body: Value) -> Answer {
        let root = self.root.clone();
        self.ask(&root, "POST", path, body, &[]).await
    }

    /// Creates a token with `client`. Token and accessor are secrets named after `name`.
    async fn token(&mut self, client: &Client, name: &str, path: &str, body: Value) -> Client {
        let answer = send(client.request("POST", path).json(&body)).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let auth = &answer.body["auth"];
        let token = auth["client_token"].as_str().unwrap();
        let accessor = auth["accessor"].as_str().unwrap();
        self.scanner.add_text(&token_of(name), token);
        self.scanner.add_text(&accessor_of(name), accessor);
        let made = client.with_token(token);
        self.keep(format!("{path} for {name}"), answer, &[&token_of(name), &accessor_of(name)]);
        made
    }

    /// Makes a wrapped request. The wrapping token and its accessor are secrets named after `name`.
    async fn wrapped(&mut self, name: &str, path: &str, body: Value) -> String {
        let request = self.root.request("POST", path).header("X-Service-Wrap-TTL", "1h");
        let answer = send(request.json(&body)).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let info = &answer.body["wrap_info"];
        let token = info["token"].as_str().unwrap().to_owned();
        let accessor = info["accessor"].as_str().unwrap();
        self.scanner.add_text(&token_of(name), &token);
        self.scanner.add_text(&accessor_of(name), accessor);
        self.keep(format!("{path} for {name}"), answer, &[&token_of(name), &accessor_of(name)]);
        token
    }

    /// Makes a request that returns a private key, a secret called `name`.
    async fn key(&mut self, name: &str, path: &str, body: Value) -> Value {
        let answer = send(self.root.request("POST", path).json(&body)).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let data = answer.body["data"].clone();
        for number in private_numbers(data["private_key"].as_str().unwrap()) {
            self.scanner.add_bytes(name, &number);
        }
        self.keep(format!("{path} for {name}"), answer, &[name]);
        data
    }
}

fn token_of(name: &str) -> String {
    format!("token {name}")
}

fn accessor_of(name: &str) -> String {
    format!("accessor {name}")
}

async fn tokens(walk: &mut Walk) -> Client {
    let root = walk.root.clone();
    let policy = "path \"pki2/*\" { capabilities = [\"read\", \"update\", \"list\"] }
        path \"auth/token/*\" { capabilities = [\"read\", \"update\"] }";
    walk.post("sys/policies/acl/walker", json!({ "policy": policy })).await;
    let body = json!({ "policies": ["walker"], "meta": { "team": "blue" }, "ttl": "1h", "display_name": "walker" });
    let walker = walk.token(&root, "walker", "auth/token/create", body).await;
    let child = walk.token(&walker, "child", "auth/token/create", json!({ "policies": ["default"] })).await;
    walk.token(&root, "orphan", "auth/token/create-orphan", json!({ "policies": ["walker"], "period": "1h" })).await;
    let limited = walk.token(&root, "limited", "auth/token/create", json!({ "policies": ["walker"], "num_uses": 2 }));
    let limited = limited.await;
    let token = token_of("walker");
    let accessor = accessor_of("walker");
    let shown = [token.as_str(), accessor.as_str()];
    walk.ask(&walker, "GET", "auth/token/lookup-self", Value::Null, &shown).await;
    let found = walk.ask(&root, "POST", "auth/token/lookup", json!({ "token": walker.token }), &shown).await;
    let accessor_text = found.body["data"]["accessor"].clone();
    let by_accessor = json!({ "accessor": accessor_text });
    walk.ask(&root, "POST", "auth/token/lookup-accessor", by_accessor.clone(), &[&accessor]).await;
    walk.ask(&root, "POST", "auth/token/renew-accessor", by_accessor.clone(), &[&accessor]).await;
    walk.ask(&walker, "POST", "auth/token/renew-self", json!({ "increment": "2h" }), &shown).await;
    walk.ask(&root, "POST", "auth/token/renew", json!({ "token": walker.token }), &shown).await;
    walk.post("sys/capabilities", json!({ "token": walker.token, "paths": ["pki2/issue/ec"] })).await;
    walk.post("sys/capabilities-accessor", json!({ "accessor": accessor_text, "path": "pki2/issue/ec" })).await;
    for _ in 0..3 {
        walk.ask(&limited, "GET", "pki2/config/urls", Value::Null, &[]).await;
    }
    walk.ask(&child, "GET", "pki2/roles/ec", Value::Null, &[]).await;
    walk.post("auth/token/revoke", json!({ "token": child.token })).await;
    walk.ask(&child, "GET", "auth/token/lookup-self", Value::Null, &[]).await;
    let ended = walk.token(&root, "ended", "auth/token/create", json!({ "policies": ["default"] })).await;
    let found = walk
        .ask(&ended, "GET", "auth/token/lookup-self", Value::Null, &[&token_of("ended"), &accessor_of("ended")])
        .await;
    let accessor_text = found.body["data"]["accessor"].clone();
    walk.post("auth/token/revoke-accessor", json!({ "accessor": accessor_text })).await;
    walk.post("auth/token/revoke-accessor", json!({ "accessor": accessor_text })).await;
    walker
}

async fn logins(walk: &mut Walk) {
    const CHOSEN: &str = "canary-secret-id-of-somebody";
    const KNOWN: &str = "secret id";
    let root = walk.root.clone();
    for kind in METHODS {
        walk.post(&format!("sys/auth/{kind}"), json!({ "type": kind })).await;
    }
    let role = json!({ "role_id": "canary-role", "token_policies": "walker", "secret_id_num_uses": 9 });
    walk.post("auth/approle/role/machine", role).await;
    walk.scanner.add_text(KNOWN, CHOSEN);
    let custom = json!({ "secret_id": CHOSEN, "metadata": { "team": "blue" }, "ttl": "1h" });
    let path = "auth/approle/role/machine/custom-secret-id";
    let made = walk.ask(&root, "POST", path, custom.clone(), &[KNOWN]).await;
    assert_eq!(made.status, 200, "{}", made.text);
    walk.ask(&root, "POST", path, custom, &[]).await;
    let made = send(root.request("POST", "auth/approle/role/machine/secret-id").json(&json!({}))).await;
    let random = made.body["data"]["secret_id"].as_str().unwrap().to_owned();
    walk.scanner.add_text("random secret id", &random);
    walk.keep("a random secret id".to_owned(), made, &["random secret id"]);
    let stranger = root.with_token("");
    for (name, secret_id) in [("by a chosen one", CHOSEN), ("by a random one", &random)] {
        let body = json!({ "role_id": "canary-role", "secret_id": secret_id });
        walk.token(&stranger, name, "auth/approle/login", body).await;
        for wrong in [
            json!({ "role_id": "other", "secret_id": secret_id }),
            json!({ "secret_id": secret_id }),
            json!({ "role_id": "canary-role", "secret_id": [secret_id] }),
            json!({ "role_id": "canary-role", "secret_id": format!("{secret_id}x") }),
        ] {
            walk.ask(&stranger, "POST", "auth/approle/login", wrong, &[]).await;
        }
        let named = json!({ "secret_id": secret_id });
        walk.post("auth/approle/role/machine/secret-id/lookup", named.clone()).await;
        walk.post("auth/approle/role/absent/secret-id/lookup", named.clone()).await;
        walk.post("auth/approle/role/machine/secret-id-accessor/lookup", json!({ "secret_id_accessor": secret_id }))
            .await;
    }
    walk.post("auth/approle/role/machine/secret-id/destroy", json!({ "secret_id": random })).await;
    signed_tokens(walk, &stranger).await;
}

async fn signed_tokens(walk: &mut Walk, stranger: &Client) {
    let key = TokenKey::fixed();
    walk.post("auth/jwt/config", json!({ "jwt_validation_pubkeys": [key.pem()] })).await;
    let role = json!({ "user_claim": "sub", "bound_audiences": "signet", "token_policies": "walker" });
    walk.post("auth/jwt/role/machine", role).await;
    let now = crate::directory::now();
    for (name, audience) in [("signed token", "signet"), ("signed token for others", "elsewhere")] {
        let jwt = key.token(&json!({ "aud": audience, "sub": "build", "iat": now, "exp": now + 3600 }));
        walk.scanner.add_text(name, &jwt);
        // The signature alone makes it a credential.
        walk.scanner.add_text(&format!("signature of a {name}"), jwt.rsplit_once('.').unwrap().1);
        let body = json!({ "role": "machine", "jwt": jwt });
        if audience == "signet" {
            walk.token(stranger, "by a signed token", "auth/jwt/login", body).await;
        } else {
            walk.ask(stranger, "POST", "auth/jwt/login", body, &[]).await;
        }
        for wrong in [
            json!({ "role": "absent", "jwt": jwt }),
            json!({ "jwt": jwt }),
            json!({ "role": "machine", "jwt": [jwt] }),
            json!({ "role": "machine", "jwt": format!("{jwt}.x") }),
            json!({ "role": "machine", "jwt": format!("{jwt}A") }),
        ] {
            walk.ask(stranger, "POST", "auth/jwt/login", wrong, &[]).await;
        }
    }
}

async fn keys(walk: &mut Walk) -> Vec<Value> {
    let mut issued = Vec::new();
    walk.post("sys/mounts/pki2", json!({ "type": "pki" })).await;
    for (kind, bits, format, key_format) in
        [("ec", 256, "pem", "der"), ("rsa", 2048, "der", "pkcs8"), ("ed25519", 0, "pem_bundle", "der")]
    {
        let body = json!({ "common_name": "Canary root", "issuer_name": kind, "key_name": kind, "key_type": kind,
            "key_bits": bits, "format": format, "private_key_format": key_format });
        walk.key(&format!("{kind} root"), "pki2/issuers/generate/root/exported", body).await;
        let body = json!({ "common_name": "Canary intermediate", "key_type": kind, "format": format,
            "private_key_format": key_format });
        walk.key(&format!("{kind} intermediate"), "pki2/intermediate/generate/exported", body).await;
        let body = json!({ "key_type": kind, "key_name": format!("{kind}-alone") });
        walk.key(&format!("{kind} alone"), "pki2/keys/generate/exported", body).await;
        let role =
            json!({ "allow_any_name": true, "key_type": kind, "key_bits": bits, "issuer_ref": kind, "ttl": "1h" });
        walk.post(&format!("pki2/roles/{kind}"), role).await;
        for format in ["pem", "der", "pem_bundle"] {
            for key_format in ["der", "pkcs8"] {
                let name = format!("{kind} leaf {format} {key_format}");
                let body =
                    json!({ "common_name": "leaf.canary.test", "format": format, "private_key_format": key_format });
                issued.push(walk.key(&name, &format!("pki2/issue/{kind}"), body).await);
            }
        }
    }
    for bits in [224, 384, 521] {
        let role = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": bits, "issuer_ref": "ec", "no_store": true, "ttl": "1h" });
        walk.post(&format!("pki2/roles/ec{bits}"), role).await;
        let body = json!({ "common_name": "leaf.canary.test" });
        issued.push(walk.key(&format!("ec {bits}"), &format!("pki2/issue/ec{bits}"), body).await);
    }
    issued
}

async fn certificates(walk: &mut Walk, walker: &Client, issued: &[Value], folder: &Path) {
    let request = "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout own.key -subj /CN=own.test";
    let csr = openssl(folder, &request.split(' ').collect::<Vec<_>>());
    walk.ask(walker, "POST", "pki2/sign/ec", json!({ "csr": csr }), &[]).await;
    walk.ask(walker, "POST", "pki2/sign/rsa", json!({ "csr": csr }), &[]).await;
    // A private key instead of the request, a likely mistake.
    for key in ["private_key", "certificate"] {
        walk.ask(walker, "POST", "pki2/sign/ec", json!({ "csr": issued[0][key] }), &[]).await;
        walk.ask(walker, "POST", "pki2/revoke", json!({ "certificate": issued[0][key] }), &[]).await;
    }
    let own = std::fs::read_to_string(folder.join("own.key")).unwrap();
    private_numbers(&own).iter().for_each(|number| walk.scanner.add_bytes("own key", number));
    for body in [json!({ "csr": own }), json!({ "csr": format!("{csr}{own}") }), json!({ "csr": [own], "ttl": own })] {
        walk.ask(walker, "POST", "pki2/sign/ec", body, &[]).await;
    }
    walk.post("pki2/revoke-with-key", json!({ "private_key": own, "serial_number": "00" })).await;
    for data in issued {
        // A foreign key, and its own; some responses had it as DER, so some requests are rejected.
        for private_key in [&json!(own), &data["private_key"]] {
            let body = json!({ "serial_number": data["serial_number"], "private_key": private_key });
            walk.ask(walker, "POST", "pki2/revoke-with-key", body, &[]).await;
        }
        walk.post("pki2/revoke", json!({ "serial_number": data["serial_number"] })).await;
    }
    walk.post("pki2/crl/rotate", Value::Null).await;
    attached(walk, walker).await;
    external_policy(walk, &csr, folder).await;
}

/// Certificate metadata, visible only to callers who may read it; certificates with leases.
async fn attached(walk: &mut Walk, walker: &Client) {
    const SECRET: &str = "Y2FuYXJ5LW1ldGFkYXRhLW9mLXNvbWVib2R5";
    walk.scanner.add_text("metadata", SECRET);
    walk.scanner.add_bytes("metadata", b"canary-metadata-of-somebody");
    let role = json!({ "allow_any_name": true, "key_type": "ec", "issuer_ref": "ec", "ttl": "1h",
        "generate_lease": true });
    walk.post("pki2/roles/leased", role).await;
    let body = json!({ "common_name": "leaf.canary.test", "cert_metadata": SECRET });
    let data = walk.key("leased leaf", "pki2/issue/leased", body.clone()).await;
    let path = format!("pki2/cert-metadata/{}", data["serial_number"].as_str().unwrap());
    let shown = walk.ask(walker, "GET", &path, Value::Null, &["metadata"]).await;
    assert_eq!(shown.body["data"]["cert_metadata"], SECRET);
    for (name, value) in [("cert_metadata", json!(format!("{SECRET}!"))), ("ttl", json!("9999999h"))] {
        let mut refused = body.clone();
        refused[name] = value;
        walk.ask(walker, "POST", "pki2/issue/leased", refused, &[]).await;
    }
    walk.ask(walker, "GET", &path.replace("cert-metadata", "cert"), Value::Null, &[]).await;
    walk.post("sys/leases/revoke-prefix/pki2/issue/leased", json!({ "sync": true })).await;
}

/// Wrapped responses, fetched and not, and a token's cubbyhole.
async fn wrapped(walk: &mut Walk, walker: &Client) {
    const SECRET: &str = "canary-of-a-wrapped-secret";
    const KEPT: &str = "canary-of-a-cubbyhole";
    walk.scanner.add_text("wrapped secret", SECRET);
    walk.scanner.add_text("kept secret", KEPT);
    let secret = json!({ "password": SECRET });
    let first = walk.wrapped("first", "sys/wrapping/wrap", secret.clone()).await;
    let body = json!({ "token": first });
    walk.post("sys/wrapping/lookup", body.clone()).await;
    let second = walk.wrapped("second", "sys/wrapping/rewrap", body.clone()).await;
    let root = walk.root.clone();
    let fetched = walk.ask(&root, "POST", "sys/wrapping/unwrap", json!({ "token": second }), &["wrapped secret"]).await;
    assert_eq!(fetched.body["data"], secret);
    for path in ["unwrap", "lookup", "rewrap"] {
        walk.post(&format!("sys/wrapping/{path}"), body.clone()).await;
    }
    walk.wrapped("third", "sys/wrapping/wrap", secret).await;
    let inner = walk.wrapped("fourth", "auth/token/create", json!({ "policies": ["default"] })).await;
    let fetched = send(walk.root.request("POST", "sys/wrapping/unwrap").json(&json!({ "token": inner }))).await;
    let auth = fetched.body["auth"].clone();
    walk.scanner.add_text(&token_of("inner"), auth["client_token"].as_str().unwrap());
    walk.keep("a token that was put away".to_owned(), fetched, &[&token_of("inner")]);
    walk.ask(walker, "POST", "cubbyhole/kept", json!({ "a": KEPT }), &[]).await;
    walk.ask(walker, "GET", "cubbyhole/kept", Value::Null, &["kept secret"]).await;
    walk.ask(&root, "GET", "cubbyhole/kept", Value::Null, &[]).await;
    let too_much = json!({ "a": KEPT.repeat(5_000) });
    walk.ask(walker, "POST", "cubbyhole/kept", too_much, &[]).await;
}

async fn imports(walk: &mut Walk, folder: &Path) {
    for (name, algorithm) in [("ec", "EC"), ("rsa", "RSA"), ("ed25519", "ED25519")] {
        let option: &[&str] = if name == "ec" { &["-pkeyopt", "ec_paramgen_curve:P-256"] } else { &[] };
        let key = openssl(folder, &[&["genpkey", "-quiet", "-algorithm", algorithm], option].concat());
        private_numbers(&key).iter().for_each(|number| walk.scanner.add_bytes(&format!("imported {name} key"), number));
        let file = format!("{name}.key");
        std::fs::write(folder.join(&file), &key).unwrap();
        let certificate = openssl(folder, &["req", "-x509", "-new", "-key", &file, "-subj", "/CN=imported"]);
        let bundle = format!("{certificate}{key}");
        walk.post("pki2/issuers/import/cert", json!({ "pem_bundle": bundle })).await;
        walk.post("pki2/intermediate/set-signed", json!({ "certificate": bundle })).await;
        walk.post("pki2/config/ca", json!({ "pem_bundle": format!("{bundle}after") })).await;
        walk.post("pki2/config/ca", json!({ "pem_bundle": bundle.replace("BEGIN PRIVATE", "BEGIN EC PRIVATE") })).await;
        walk.post("pki2/keys/import", json!({ "pem_bundle": bundle, "key_name": key })).await;
        walk.post("pki2/keys/import", json!({ "pem_bundle": key })).await.assert_status(200);
        walk.post("pki2/config/ca", json!({ "pem_bundle": bundle })).await.assert_status(200);
    }
}

/// An unreachable policy engine, and its client key.
async fn external_policy(walk: &mut Walk, csr: &str, folder: &Path) {
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout client.key -subj /CN=client";
    let certificate = openssl(folder, &request.split(' ').collect::<Vec<_>>());
    let key = std::fs::read_to_string(folder.join("client.key")).unwrap();
    private_numbers(&key).iter().for_each(|number| walk.scanner.add_bytes("client key", number));
    let settings = json!({ "enabled": true, "external_service_url": "https://127.0.0.1:1/", "trusted_ca": certificate,
        "service_client_cert_bundle": format!("{certificate}{key}") });
    assert_eq!(walk.post("pki2/config/external-policy", settings).await.status, 200);
    walk.post("pki2/external-policy/sign", json!({ "csr": csr })).await.assert_status(503);
    walk.post("pki2/external-policy/issue", json!({ "key_type": "ec" })).await;
    walk.post("pki2/config/external-policy", json!({ "service_client_cert_bundle": key })).await;
}

async fn projects(walk: &mut Walk) {
    let base = walk.root.url("").replace("/v1/", "/api/v2/");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = |method: &str, token: &str, path: &str| {
        let request = http.request(method.parse().unwrap(), format!("{base}{path}")).bearer_auth(token);
        request.header("Content-Type", "application/vnd.api+json")
    };
    let root = walk.root.token.clone();
    let account = send(request("GET", &root, "account/details")).await;
    let teams = send(request("GET", &root, "organizations/dev/teams")).await;
    let [user, team] = [&account.body["data"]["id"], &teams.body["data"][0]["id"]].map(|id| id.as_str().unwrap());
    for path in [
        format!("users/{user}/authentication-tokens"),
        format!("teams/{team}/authentication-token"),
        "organizations/dev/authentication-token".to_owned(),
    ] {
        let made = send(request("POST", &root, &path)).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text);
        let token = made.body["data"]["attributes"]["token"].as_str().unwrap().to_owned();
        let name = token_of(&path);
        walk.scanner.add_text(&name, &token);
        // The part before the last dot is public.
        walk.scanner.add_text(&name, token.rsplit('.').next().unwrap());
        let own = format!("authentication-tokens/{}", made.body["data"]["id"].as_str().unwrap());
        walk.keep(format!("POST {path}"), made, &[&name]);
        let wrong = format!("{}x", &token[..token.len() - 1]);
        let steps = [("GET", &token, &path), ("GET", &root, &own), ("GET", &wrong, &own), ("PUT", &token, &own)];
        for (method, token, path) in steps.into_iter().chain([("DELETE", &root, &own), ("GET", &token, &own)]) {
            let answer = send(request(method, token, path)).await;
            walk.keep(format!("{method} {path}"), answer, &[]);
        }
        let body = format!("{{\"data\": {{\"type\": \"{token}\", \"attributes\": {{\"expired-at\": \"{token}\"}}}}}}");
        let refused = send(request("POST", &root, &path).body(body)).await;
        walk.keep(format!("POST {path}"), refused, &[]);
    }
}

async fn errors(walk: &mut Walk, walker: &Client) {
    walk.scanner.add_text("wrong token", "s.WrongTokenThatNobodyHas");
    walk.scanner.add_text("body secret", "hunter2-hunter2-hunter2");
    for (header, prefix) in [("X-Service-Token", ""), ("X-Vault-Token", ""), ("Authorization", "Bearer ")] {
        for token in ["s.WrongTokenThatNobodyHas", "s.WrongTokenThatNobodyHas ", "é s.WrongTokenThatNobodyHas"] {
            let request = walk.root.with_token("").request("GET", "sys/mounts");
            let answer = send(request.header(header, format!("{prefix}{token}"))).await;
            walk.keep(format!("{header} {token}"), answer, &[]);
        }
    }
    let both = walker.request("GET", "sys/mounts").header("Authorization", format!("Bearer {}", walk.root.token));
    let answer = send(both).await;
    walk.keep("two tokens".to_owned(), answer, &[]);
    for path in ["sys/mounts/x", "pki2/roles/x", "pki2/issue/ec", "auth/token/create", "sys/policies/acl/x", "none/x"] {
        for body in [
            "{\"client_secret\":\"hunter2-hunter2-hunter2",
            "{\"client_secret\":\"hunter2-hunter2-hunter2\"} hunter2-hunter2-hunter2",
            "{\"hunter2-hunter2-hunter2",
            "hunter2-hunter2-hunter2",
            "[\"hunter2-hunter2-hunter2\"]",
            "\"hunter2-hunter2-hunter2\"",
        ] {
            let request = walk.root.request("POST", path).body(body);
            let answer = send(request).await;
            walk.keep(format!("POST {path} {body}"), answer, &[]);
        }
    }
    let root = walk.root.clone();
    for (method, path) in [
        ("DELETE", "pki2/issue/ec"),
        ("GET", "pki2/issue/ec"),
        ("GET", "pki2/none"),
        ("GET", "none/none"),
        ("BREW", "pki2/roles/ec"),
        ("GET", "pki2/cert/zz"),
        ("GET", "auth/token/lookup?token=s.WrongTokenThatNobodyHas"),
        ("GET", "auth/token/lookup-self?token=s.WrongTokenThatNobodyHas"),
    ] {
        let own: &[&str] =
            if path.starts_with("auth/token/lookup-self") { &["root token", "accessor root"] } else { &[] };
        walk.ask(&root, method, path, Value::Null, own).await;
    }
}

/// Accessors of the tokens that are live when all routes are read.
const LIVING: &[&str] = &[
    "accessor by a chosen one",
    "accessor by a jwt",
    "accessor by a random one",
    "accessor by a signed token",
    "accessor orphan",
    "accessor root",
    "accessor third",
    "accessor walker",
];

/// Calls every read and list route, with existing names.
async fn reads(walk: &mut Walk, issued: &[Value]) {
    let serial = issued[0]["serial_number"].as_str().unwrap();
    let root = walk.root.clone();
    for (kind, route) in all_routes() {
        let method = match route.operation {
            Operation::Read => "GET",
            Operation::List => "LIST",
            Operation::Create | Operation::Update | Operation::Patch | Operation::Delete => continue,
        };
        let path = path_of(kind, route.pattern, serial);
        let own: &[&str] = match &path[..] {
            "auth/token/accessors" => LIVING,
            path if path.starts_with("auth/token/lookup") => &["root token", "accessor root"],
            _ => &[],
        };
        walk.ask(&root, method, &path, Value::Null, own).await;
    }
}

/// Fills the pattern of a route with existing names.
fn path_of(kind: &str, pattern: &str, serial: &str) -> String {
    let mount = match kind {
        "pki" => "pki2".to_owned(),
        kind => place_of(kind),
    };
    let segments = pattern.split('/').map(|segment| match segment {
        ":issuer_ref" | ":key_ref" | ":name" => "ec",
        ":serial" => serial,
        ":id" => "none",
        ":type" => "exported",
        ":backend" => "pkcs11",
        ":managed_key" => "hsm",
        ":login_role" => "machine",
        "*path" if kind == "cubbyhole" => "kept",
        "*path" => "pki2",
        "*name" => "walker",
        "*prefix" | "*lease_id" => "pki2/issue/none",
        other => other,
    });
    format!("{mount}/{}", segments.collect::<Vec<_>>().join("/"))
}

/// Fields whose values an error may quote: names and numbers of public certificates, enumerated values, mount paths.
const QUOTED: &[&str] = &[
    "common_name",
    "alt_names",
    "ip_sans",
    "uri_sans",
    "other_sans",
    "serial_number",
    "allowed_other_sans",
    "ext_key_usage_oids",
    "type",
    "library",
    "usages",
    "hash_algorithm",
    "environment",
    "from",
    "to",
];

/// Sends a secret in every field of every writing route: no error quotes it.
async fn planted(walk: &mut Walk, serial: &str, folder: &Path) {
    let key = openssl(folder, &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let token = "s.PlantedTokenOfSomebody";
    walk.scanner.add_text("planted token", token);
    private_numbers(&key).iter().for_each(|number| walk.scanner.add_bytes("planted key", number));
    let mut seen = BTreeSet::new();
    for (kind, route) in all_routes() {
        let method = match route.operation {
            Operation::Update => "POST",
            Operation::Patch => "PATCH",
            Operation::Create | Operation::Read | Operation::List | Operation::Delete => continue,
        };
        // Routes that share a table of fields share the code that reads them.
        if !seen.insert((route.operation as u8, route.fields)) {
            continue;
        }
        let path = path_of(kind, route.pattern, serial);
        let root = walk.root.clone();
        let shown: &[&str] = if path.ends_with("lookup-self") { &["root token", "accessor root"] } else { &[] };
        for field in route.fields {
            for value in [json!(token), json!([token]), json!({ "a": token }), json!(key), json!([[key]])] {
                let mut body = json!({ "common_name": "planted.test", "key_type": "ec" });
                body[field] = value;
                let own = [shown, &["planted token", "planted key"]].concat();
                walk.ask(&root, method, &path, body, &own).await;
                if QUOTED.contains(field) {
                    walk.outputs.pop();
                }
            }
        }
    }
}

/// Everything that is stored except the seal key: the data folder, and a database's files and dump.
fn stored(data: &Path, database: Option<&cluster::Database>) -> Vec<Output> {
    let entries = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let kept = entries.filter(|path| !path.ends_with("seal.key") && path.is_file());
    let mut all: Vec<(PathBuf, Vec<u8>)> = kept.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    if let Some(database) = database {
        let dump = database.dump();
        assert!(dump.windows(13).any(|text| text == b"COPY public.t"), "the dump holds the rows of the tokens");
        all.push(("dump".into(), dump));
        all.extend(database.files());
    }
    let output = |(path, bytes): (PathBuf, _)| Output { what: path.display().to_string(), bytes, own: BTreeSet::new() };
    all.into_iter().map(output).collect()
}

#[actix_web::test]
async fn secrets_appear_only_in_their_intended_responses() {
    walk_and_search(None).await;
}

#[actix_web::test]
async fn no_secret_is_in_the_database_in_clear() {
    walk_and_search(Some(cluster::shared().database())).await;
}

async fn walk_and_search(database: Option<cluster::Database>) {
    let database = database.as_ref();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let log = folder.path().join("log");
    let mut command = signet();
    command.env("SIGNET_LOG", "trace").stderr(std::fs::File::create(&log).unwrap());
    let devices = tempfile::tempdir().unwrap();
    let hsm = Hsm::new(devices.path());
    command.env("SOFTHSM2_CONF", hsm.settings()).env("SIGNET_PKCS11_LIBRARIES", format!("hsm={SOFTHSM}"));
    let services = managed_keys::Services::start(devices.path());
    services.name_to(&mut command);
    let provider = Provider::start();
    for place in ["AUTHORITY", "ARM", "GRAPH", "IMDS"] {
        command.env(format!("SIGNET_CLOUDB_{place}_URL"), &provider.url);
    }
    if let Some(database) = database {
        command.env("SIGNET_DATABASE_URL", database.url());
    }
    // Inside the folder that is searched.
    let audit = data.join("audit.log");
    let dev = dev_with(&mut command, &["--data-dir", data.to_str().unwrap(), "--audit-file", audit.to_str().unwrap()]);
    let mut walk = Walk::new(&dev);
    let seal_key = std::fs::read_to_string(data.join("seal.key")).unwrap();
    walk.scanner.add_text("seal key", seal_key.trim());
    let octet = |at: usize| u8::from_str_radix(&seal_key[at..at + 2], 16).unwrap();
    walk.scanner.add_bytes("seal key", &(0..64).step_by(2).map(octet).collect::<Vec<_>>());
    let root = walk.root.clone();
    let own = ["root token", "accessor root"];
    let found = walk.ask(&root, "GET", "auth/token/lookup-self", Value::Null, &own).await;
    walk.scanner.add_text("accessor root", found.body["data"]["accessor"].as_str().unwrap());

    let walker = tokens(&mut walk).await;
    logins(&mut walk).await;
    cloudb::cloudb(&mut walk, &provider).await;
    let issued = keys(&mut walk).await;
    wrapped(&mut walk, &walker).await;
    certificates(&mut walk, &walker, &issued, folder.path()).await;
    imports(&mut walk, folder.path()).await;
    errors(&mut walk, &walker).await;
    projects(&mut walk).await;
    managed_keys::in_a_token(&mut walk, &hsm).await;
    managed_keys::at_services(&mut walk, &services).await;
    reads(&mut walk, &issued).await;
    let running = stored(&data, database);
    planted(&mut walk, issued[0]["serial_number"].as_str().unwrap(), folder.path()).await;
    let metrics = walk.root.page("/metrics").await;
    assert!(metrics.text.contains("signet_http_requests_total"));
    walk.keep("/metrics".to_owned(), metrics, &[]);
    let printed = dev.printed();
    dev.terminate();

    let log = std::fs::read(&log).unwrap();
    assert!(String::from_utf8_lossy(&log).contains("DEBUG"), "the log holds every level");
    walk.outputs.push(Output { what: "log".to_owned(), bytes: log, own: BTreeSet::new() });
    let own = BTreeSet::from(["root token".to_owned()]);
    walk.outputs.push(Output { what: "standard output".to_owned(), bytes: printed.into_bytes(), own });
    let main = if database.is_some() { "dump" } else { "-wal" };
    assert!(running.iter().any(|file| file.what.ends_with(main)), "the log of the store is searched too");
    walk.outputs.extend(running);
    let planted = BTreeSet::from(["planted token".to_owned(), "planted key".to_owned()]);
    // A planted value may become part of a certificate, which is public.
    walk.outputs.extend(stored(&data, database).into_iter().map(|file| Output { own: planted.clone(), ..file }));

    let mut leaks = Vec::new();
    for output in &walk.outputs {
        let found = walk.scanner.found(&output.bytes);
        let leaked: Vec<_> = found.iter().filter(|(secret, _)| !output.own.contains(*secret)).collect();
        if !leaked.is_empty() {
            leaks.push(format!("{}\n    {leaked:?}", output.what));
        }
        // The search works: it finds each secret in the response that may contain it.
        for secret in output.own.iter().filter(|secret| !secret.starts_with("planted")) {
            assert!(found.iter().any(|(name, _)| name == secret), "{}: {secret} is not there", output.what);
        }
    }
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}
