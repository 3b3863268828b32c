//! Simulates the directory, the machine identity service and the key store for `cloudbkeyvault`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use signet::keys::AzureSettings;
use signet::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};

use super::key::Key;
use super::server::{Asked, Told, serve};

pub const TENANT: &str = "11111111-2222-3333-4444-555555555555";
pub const CLIENT: &str = "app";
pub const SECRET: &str = "app-secret";

pub struct Version {
    pub id: String,
    pub kty: String,
    pub enabled: bool,
    pub key: Arc<Key>,
}

#[derive(Default)]
pub struct State {
    pub keys: BTreeMap<String, Vec<Version>>,
    pub tokens: BTreeSet<String>,
    pub grants: usize,
    /// `true` rejects every token.
    pub closed: bool,
    /// The authority that a rejection names.
    pub authority: String,
    /// Responses that replace the next signatures.
    pub instead: VecDeque<Told>,
    /// Paths of all requests to the store.
    pub asked: Vec<String>,
    /// `traceparent` of all requests, those to the directory included.
    pub traces: Vec<String>,
    /// How long a new key stays invisible.
    pub lag: Duration,
    pub hidden_until: Option<Instant>,
}

pub struct Vault {
    pub url: String,
    pub state: Arc<Mutex<State>>,
}

impl Vault {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let own = Arc::clone(&state);
        Self { url: serve(move |asked| own.lock().unwrap().answer(asked)), state }
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn settings(&self) -> AzureSettings {
        settings(&self.url)
    }
}

pub fn settings(url: &str) -> AzureSettings {
    AzureSettings {
        authority_url: Some(url.to_owned()),
        vault_url_template: format!("{url}/{{vault_name}}.{{resource}}"),
        imds_url: url.to_owned(),
        ..AzureSettings::default()
    }
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Told {
        self.traces.push(asked.header("traceparent").to_owned());
        if asked.path == format!("/{TENANT}/oauth2/v2.0/token") {
            return self.grant(asked);
        }
        if asked.path == "/metadata/identity/oauth2/token" {
            let fits = asked.header("metadata") == "true" && asked.query["resource"] == "https://vault.azure.net";
            return if fits { self.token("identity", json!("3599")) } else { Told::new(400, json!({})) };
        }
        self.asked.push(asked.path.clone());
        if self.closed || !self.tokens.contains(asked.bearer()) {
            let value =
                format!("Bearer authorization=\"{}/{TENANT}\", resource=\"https://vault.azure.net\"", self.authority);
            return Told(401, json!({"error": {"code": "Unauthorized"}}), Some(("WWW-Authenticate", value)));
        }
        assert_eq!(asked.query["api-version"], "7.4");
        let path: Vec<&str> = asked.path.split('/').skip(1).collect();
        match (asked.method.as_str(), &path[..]) {
            ("GET", ["store.vault.azure.net", "keys", name]) => self.bundle(name),
            ("POST", ["store.vault.azure.net", "keys", name, "create"]) => self.create(name, &asked.json()),
            ("POST", ["store.vault.azure.net", "keys", name, version, "sign"]) => {
                self.sign(name, version, &asked.json())
            }
            _ => refused(404, "NotFound"),
        }
    }

    fn grant(&mut self, asked: &Asked) -> Told {
        let wanted = [
            ("grant_type", "client_credentials"),
            ("client_id", CLIENT),
            ("client_secret", SECRET),
            ("scope", "https://vault.azure.net/.default"),
        ];
        let form = asked.form();
        if !wanted.iter().all(|(name, value)| form.get(*name).is_some_and(|given| given == value)) {
            // Echoes the request, credentials included.
            return Told::new(401, json!({"error": "invalid_client", "error_description": form}));
        }
        self.token("app", json!(3599))
    }

    fn token(&mut self, whose: &str, life: Value) -> Told {
        self.grants += 1;
        let token = format!("{whose}-token-{}", self.grants);
        self.tokens.insert(token.clone());
        Told::new(200, json!({"token_type": "Bearer", "access_token": token, "expires_in": life}))
    }

    /// Creates a key, or another version of it.
    pub fn make(&mut self, name: &str, kty: &str, bits: u32) {
        let versions = self.keys.entry(name.to_owned()).or_default();
        let id = format!("{:032x}", versions.len() + 1);
        let key = Arc::new(Key::generate(KeyKind::Rsa { bits }));
        versions.push(Version { id, kty: kty.to_owned(), enabled: true, key });
    }

    fn create(&mut self, name: &str, body: &Value) -> Told {
        assert_eq!((&body["kty"], &body["key_ops"]), (&json!("RSA-HSM"), &json!(["sign", "verify"])));
        self.make(name, "RSA-HSM", u32::try_from(body["key_size"].as_u64().unwrap()).unwrap());
        let made = self.bundle(name);
        self.hidden_until = Some(Instant::now() + self.lag);
        made
    }

    fn is_hidden(&self) -> bool {
        self.hidden_until.is_some_and(|until| Instant::now() < until)
    }

    fn bundle(&self, name: &str) -> Told {
        let version = self.keys.get(name).and_then(|versions| versions.last());
        let Some(version) = version.filter(|_| !self.is_hidden()) else {
            return refused(404, "KeyNotFound");
        };
        let [modulus, exponent] = version.key.numbers().map(|number| URL_SAFE_NO_PAD.encode(number));
        let key = json!({
            "kid": format!("https://store.vault.azure.net/keys/{name}/{}", version.id),
            "kty": version.kty,
            "key_ops": ["sign", "verify"],
            "n": modulus,
            "e": exponent,
        });
        Told::new(200, json!({"key": key, "attributes": {"enabled": version.enabled}}))
    }

    fn sign(&mut self, name: &str, id: &str, body: &Value) -> Told {
        if let Some(told) = self.instead.pop_front() {
            return told;
        }
        let versions = self.keys.get(name).map(Vec::as_slice).unwrap_or_default();
        let Some(version) = versions.iter().find(|version| version.id == id) else {
            return refused(404, "KeyNotFound");
        };
        if !version.enabled {
            let inner = json!({"error": {"code": "Forbidden", "innererror": {"code": "KeyDisabled"}}});
            return Told::new(403, inner);
        }
        let algorithm = match body["alg"].as_str().unwrap() {
            "RS256" => SignatureAlgorithm::RsaPkcs1(Hash::Sha256),
            "RS384" => SignatureAlgorithm::RsaPkcs1(Hash::Sha384),
            "RS512" => SignatureAlgorithm::RsaPkcs1(Hash::Sha512),
            "PS256" => SignatureAlgorithm::RsaPss(Hash::Sha256),
            "PS384" => SignatureAlgorithm::RsaPss(Hash::Sha384),
            "PS512" => SignatureAlgorithm::RsaPss(Hash::Sha512),
            _ => return refused(400, "BadParameter"),
        };
        let digest = URL_SAFE_NO_PAD.decode(body["value"].as_str().unwrap()).unwrap();
        match version.key.sign(algorithm, &digest) {
            Ok(signature) => Told::new(200, json!({"value": URL_SAFE_NO_PAD.encode(signature)})),
            Err(_) => refused(400, "BadParameter"),
        }
    }
}

fn refused(status: u16, code: &str) -> Told {
    Told::new(status, json!({"error": {"code": code, "message": "canary-message"}}))
}
