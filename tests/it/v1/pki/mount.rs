//! The mount under test: a server with a root, roles that are written right before their use, and checks for every
//! certificate and every rejection.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signet::clock::Time;
use signet::x509::certificate::Certificate;
use signet::x509::pem;
use signet::x509::pieces::Extensions;

use super::foreign::{self, Crl};
use crate::support::{Answer, App};

/// End of the root of every mount that does not have its own.
pub const FAR: &str = "2099-12-31T23:59:59Z";

/// A server with a mount `pki`.
pub struct Pki {
    pub app: App,
}

/// An issued certificate, usually a leaf.
pub struct Leaf {
    pub answer: Answer,
    pub pem: String,
    pub certificate: Certificate,
}

/// Parses the certificate of a PEM text.
pub fn parse(text: &str) -> Certificate {
    let (label, der) = pem::parse_first_block(text).unwrap().unwrap();
    assert_eq!(label, "CERTIFICATE");
    Certificate::parse(&der).unwrap()
}

/// Returns a PEM text as the server lists it: with one newline at its end.
pub fn line(pem: &str) -> String {
    format!("{}\n", pem.trim())
}

/// Returns a member that must be text.
pub fn text<'a>(data: &'a Value, member: &str) -> &'a str {
    data[member].as_str().unwrap_or_else(|| panic!("{member} is no text in {data}"))
}

/// Polls until `done`, for at most 30 seconds.
pub async fn until(awaited: &str, mut done: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !done().await {
        assert!(started.elapsed() < Duration::from_secs(30), "waited 30 s for {awaited}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns `base` with the members of `more`.
pub fn with(base: &Value, more: Value) -> Value {
    let mut both = base.clone();
    both.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    both
}

impl Pki {
    /// Starts a mount whose default issuer is a P-256 root named `root` that ends at [`FAR`].
    pub async fn start() -> Self {
        Self::on(App::start().await).await
    }

    /// Same as [`Pki::start`], on this server.
    pub async fn on(app: App) -> Self {
        let pki = Self { app };
        pki.root(json!({ "issuer_name": "root" })).await;
        pki
    }

    /// Same as [`Pki::start`], with a manual clock.
    pub async fn at(now: Time) -> Self {
        Self::on(App::builder().manual_clock(now).start().await).await
    }

    /// Starts a mount without an issuer.
    pub async fn empty() -> Self {
        Self { app: App::start().await }
    }

    /// Stops the server.
    pub async fn stop(self) {
        self.app.stop().await;
    }

    /// Restarts the server on the same data.
    pub async fn restart(self) -> Self {
        Self { app: self.app.restart().await }
    }

    /// Returns the time of its clock, in epoch seconds.
    pub fn now(&self) -> i64 {
        self.app.clock.now().unix_timestamp()
    }

    /// Creates a root, by default with P-256 and ending at [`FAR`]. Returns the response's data.
    pub async fn root(&self, request: Value) -> Value {
        let mut base = json!({ "common_name": "Test Root", "key_type": "ec" });
        if request.get("ttl").is_none() {
            base["not_after"] = FAR.into();
        }
        self.data("root/generate/internal", with(&base, request)).await
    }

    /// Sends a write that must succeed.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let answer = self.app.client.post(&format!("pki/{path}"), body).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {} {}", answer.status, answer.text);
        answer
    }

    /// Returns the data of a write that must succeed.
    pub async fn data(&self, path: &str, body: Value) -> Value {
        self.post(path, body).await.body["data"].clone()
    }

    /// Sends a write that must succeed with this warning.
    pub async fn warns(&self, path: &str, body: Value, warning: &str) -> Answer {
        let answer = self.post(path, body).await;
        assert!(answer.warnings().contains(warning), "{path}: {} does not warn {warning:?}", answer.text);
        answer
    }

    /// Imports a bundle. Returns the identifiers of the new issuers.
    pub async fn import(&self, bundle: &str) -> Vec<String> {
        let data = self.data("issuers/import/bundle", json!({ "pem_bundle": bundle })).await;
        serde_json::from_value(data["imported_issuers"].clone()).unwrap()
    }

    /// Same as [`Pki::import`], for a bundle with exactly one new issuer.
    pub async fn import_one(&self, bundle: &str) -> String {
        let [id] = <[String; 1]>::try_from(self.import(bundle).await).unwrap();
        id
    }

    /// Sends a request without a token, with these headers.
    pub async fn fetch(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let request = self.app.client.with_token("").request(method, &format!("pki/{path}"));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    }

    /// Returns the data of a read that must succeed.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self.app.client.get(&format!("pki/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body["data"].clone()
    }

    /// Returns the keys of a list; none for 404.
    pub async fn list(&self, path: &str) -> Vec<String> {
        let answer = self.app.client.list(&format!("pki/{path}")).await;
        if answer.status == 404 {
            assert_eq!(answer.text, "{\"errors\":[]}");
            return Vec::new();
        }
        serde_json::from_value(answer.body["data"]["keys"].clone()).unwrap()
    }

    /// Returns everything that a rejected request must not change.
    pub async fn stored(&self) -> Vec<Vec<String>> {
        let mut lists = Vec::new();
        for path in ["certs", "certs/revoked", "roles", "issuers", "keys"] {
            lists.push(self.list(path).await);
        }
        lists
    }

    /// Asserts that a write is rejected with 400 and with `rule` in the error, and changes nothing.
    pub async fn refused(&self, path: &str, body: Value, rule: &str) {
        self.fails(path, body, 400, rule).await;
    }

    /// Same as [`Pki::refused`], with this status. Returns the response.
    pub async fn fails(&self, path: &str, body: Value, status: u16, rule: &str) -> Answer {
        let before = self.stored().await;
        let shown = body.to_string().chars().take(400).collect::<String>();
        let answer = self.app.client.post(&format!("pki/{path}"), body).await;
        assert_eq!(answer.status, status, "{path} {shown}: {}", answer.text);
        assert_eq!(answer.body["errors"].as_array().map(Vec::len), Some(1), "{}", answer.text);
        assert!(answer.error().contains(rule), "{path} {shown}: {} does not say {rule:?}", answer.text);
        assert_eq!(self.stored().await, before, "{path} {shown}: something was stored");
        answer
    }

    /// Writes role `r`, by default for EC keys. Returns its warnings.
    pub async fn role(&self, role: &Value) -> String {
        self.post("roles/r", with(&json!({ "key_type": "ec" }), role.clone())).await.warnings()
    }

    /// Issues under a role, which must succeed.
    pub async fn issue(&self, role: &Value, request: Value) -> Leaf {
        self.role(role).await;
        self.ask("issue/r", request).await
    }

    /// Signs under a role, which must succeed.
    pub async fn sign(&self, role: &Value, request: Value) -> Leaf {
        self.role(role).await;
        self.ask("sign/r", request).await
    }

    /// Issues a leaf for `localhost` under a role with the default rules.
    pub async fn leaf(&self) -> Leaf {
        self.issue(&json!({}), json!({ "common_name": "localhost" })).await
    }

    /// Same as [`Pki::leaf`], by this issuer and under the role of the mount.
    pub async fn leaf_of(&self, issuer: &str) -> Leaf {
        self.ask(&format!("issuer/{issuer}/issue/r"), json!({ "common_name": "localhost", "ttl": "1h" })).await
    }

    /// Revokes a leaf by its serial number. Returns the response's data.
    pub async fn revoke(&self, leaf: &Leaf) -> Value {
        self.data("revoke", json!({ "serial_number": leaf.serial() })).await
    }

    /// Requests a leaf in PEM, which must succeed. Its key identifier must be derived from its key.
    pub async fn ask(&self, path: &str, request: Value) -> Leaf {
        let leaf = self.certify(path, request).await;
        assert_eq!(leaf.certificate.subject_key_id(), Some(&leaf.certificate.key().key_id()[..]), "{path}: SKI");
        assert!(!leaf.certificate.is_ca(), "{path}: a leaf");
        leaf
    }

    /// Requests a certificate in PEM, which must succeed. The response must describe it correctly, and the issuer in
    /// the response must have signed it.
    pub async fn certify(&self, path: &str, request: Value) -> Leaf {
        let shown = request.to_string().chars().take(400).collect::<String>();
        let answer = self.app.client.post(&format!("pki/{path}"), request).await;
        assert_eq!(answer.status, 200, "{path} {shown}: {}", answer.text);
        let data = &answer.body["data"];
        let pem = data["certificate"].as_str().unwrap().to_owned();
        let certificate = parse(&pem);
        let issuer = parse(data["issuing_ca"].as_str().unwrap());
        assert!(certificate.is_signed_by(issuer.key()), "{shown}: signature");
        assert_eq!(certificate.issuer(), issuer.subject(), "{shown}: issuer");
        assert_eq!(certificate.authority_key_id().as_deref(), issuer.subject_key_id(), "{shown}: AKI");
        let key_id = certificate.authority_key_id().unwrap_or_default();
        let key_id: Vec<String> = key_id.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(data["authority_key_id"], key_id.join(":"), "{shown}: AKI");
        assert_eq!(data["serial_number"], certificate.serial().to_string());
        assert_eq!(data["expiration"], certificate.not_after().to_string());
        Leaf { answer, pem, certificate }
    }

    /// Asserts that `issue` rejects the request with `rule`, and changes nothing.
    pub async fn deny(&self, role: &Value, request: Value, rule: &str) {
        self.role(role).await;
        self.refused("issue/r", request, rule).await;
    }

    /// Asserts that `sign` rejects the request with `rule`, and changes nothing.
    pub async fn deny_sign(&self, role: &Value, request: Value, rule: &str) {
        self.role(role).await;
        self.refused("sign/r", request, rule).await;
    }

    /// Returns the published CRL of an issuer.
    pub async fn crl(&self, issuer: &str) -> Crl {
        let response = self.fetch("GET", &format!("issuer/{issuer}/crl/der"), &[]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/pkix-crl");
        Crl::new(response.bytes().await.unwrap().to_vec())
    }
}

impl Leaf {
    /// Returns the response's data.
    pub fn data(&self) -> &Value {
        &self.answer.body["data"]
    }

    /// Returns the serial number in the format of responses.
    pub fn serial(&self) -> String {
        self.certificate.serial().to_string()
    }

    /// Returns the subject alternative names in openssl's output, in order: `DNS:a`, `email:b@c`, `IP Address:1.2.3.4`,
    /// `URI:d`, `othername: <oid>::<text>`.
    pub fn sans(&self) -> Vec<String> {
        let Some((_, text)) = foreign::extension(&self.pem, "subjectAltName") else { return Vec::new() };
        text.split(", ").map(str::to_owned).collect()
    }

    /// Returns the complete extension with this dotted identifier, byte for byte.
    pub fn raw(&self, oid: &str) -> Option<Extensions> {
        let mut found = self.certificate.extensions().iter().filter(|e| e.oid_text() == oid);
        let raw = found.next().map(|e| e.raw.clone());
        assert!(found.next().is_none(), "{oid} appears twice");
        raw
    }

    /// Returns the dotted identifiers of its extensions, in order.
    pub fn extension_ids(&self) -> Vec<String> {
        self.certificate.extensions().iter().map(|e| e.oid_text()).collect()
    }

    /// Same as [`foreign::extension`], for this certificate.
    pub fn extension(&self, name: &str) -> Option<(bool, String)> {
        foreign::extension(&self.pem, name)
    }

    /// Same as [`foreign::subject`], for this certificate.
    pub fn subject(&self) -> String {
        foreign::subject(&self.pem)
    }
}

impl Answer {
    /// Returns the warnings in one text; empty without any.
    pub fn warnings(&self) -> String {
        let warnings = self.body["warnings"].as_array().cloned().unwrap_or_default();
        warnings.iter().map(|w| w.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    }
}
