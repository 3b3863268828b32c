//! Simulates the token service, the machine metadata service and the key service for `cloudckms`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use signet::keys::{GoogleSettings, KeySpec, PrivateKey};
use signet::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use signet::x509::pem;
use signet::x509::public_key::PublicKey;

use super::key::Key;
use super::server::{Asked, Told, serve};

pub const RING: &str = "projects/project/locations/europe-west3/keyRings/ring";
const ACCOUNT: &str = "signer@project.example";

/// The first version of a key.
pub struct Version {
    pub algorithm: String,
    pub state: String,
    /// The number of further responses which report that the key is being generated.
    pub pending: usize,
    pub key: Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    PemChecksum,
    SignatureChecksum,
    DigestNotVerified,
    AnotherName,
}

#[derive(Default)]
pub struct State {
    pub keys: BTreeMap<String, Version>,
    pub fault: Option<Fault>,
    pub tokens: BTreeSet<String>,
    pub account: Option<PublicKey>,
    pub url: String,
}

pub struct Kms {
    pub url: String,
    pub state: Arc<Mutex<State>>,
}

impl Kms {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let own = Arc::clone(&state);
        let url = serve(move |asked| own.lock().unwrap().answer(asked));
        state.lock().unwrap().url = url.clone();
        Self { url, state }
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn settings(&self) -> GoogleSettings {
        GoogleSettings {
            endpoint: self.url.clone(),
            token_url: format!("{}/token", self.url),
            metadata_url: self.url.clone(),
            ..GoogleSettings::default()
        }
    }

    pub fn account(&self, path: &Path) {
        let key = PrivateKey::generate(KeySpec::new("rsa", 2048).unwrap()).unwrap();
        self.lock().account = Some(key.public().clone());
        let private_key = pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose());
        let file = json!({
            "type": "service_account",
            "client_email": ACCOUNT,
            "private_key_id": "key-1",
            "private_key": private_key,
            "token_uri": "http://127.0.0.1:1/elsewhere",
        });
        std::fs::write(path, file.to_string()).unwrap();
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Told {
        match asked.path.as_str() {
            "/token" => return self.grant(asked),
            "/computeMetadata/v1/instance/service-accounts/default/token" => {
                let fits = asked.header("metadata-flavor") == "Google";
                return if fits { self.token("machine") } else { refused(403, "PERMISSION_DENIED") };
            }
            _ => {}
        }
        if !self.tokens.contains(asked.bearer()) {
            return refused(401, "UNAUTHENTICATED");
        }
        let Some(path) = asked.path.strip_prefix("/v1/").and_then(|path| path.strip_prefix(RING)) else {
            return refused(404, "NOT_FOUND");
        };
        let path: Vec<&str> = path.split('/').skip(1).collect();
        match (asked.method.as_str(), &path[..]) {
            ("POST", ["cryptoKeys"]) => self.create(&asked.query["cryptoKeyId"], &asked.json()),
            ("GET", ["cryptoKeys", name]) if self.keys.contains_key(*name) => Told::new(200, json!({})),
            ("GET", ["cryptoKeys", name, "cryptoKeyVersions", "1"]) => self.version(name),
            ("GET", ["cryptoKeys", name, "cryptoKeyVersions", "1", "publicKey"]) => self.public(name),
            ("POST", ["cryptoKeys", name, "cryptoKeyVersions", "1:asymmetricSign"]) => self.sign(name, &asked.json()),
            _ => refused(404, "NOT_FOUND"),
        }
    }

    /// Checks a service account's JWT: its key and its audience.
    fn grant(&mut self, asked: &Asked) -> Told {
        let form = asked.form();
        assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let (signed, signature) = form["assertion"].rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let parts: Vec<Value> = signed
            .split('.')
            .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        assert_eq!((&parts[0]["alg"], &parts[0]["kid"]), (&json!("RS256"), &json!("key-1")));
        let life = parts[1]["exp"].as_i64().unwrap() - parts[1]["iat"].as_i64().unwrap();
        assert!(parts[1]["aud"] == json!(format!("{}/token", self.url)) && life == 3600);
        assert_eq!(parts[1]["scope"], "https://www.googleapis.com/auth/cloudkms");
        let algorithm = SignatureAlgorithm::RsaPkcs1(Hash::Sha256);
        let is_ours = |key: &PublicKey| key.verify(algorithm, signed.as_bytes(), &signature).is_ok();
        if parts[1]["iss"] == ACCOUNT && self.account.as_ref().is_some_and(is_ours) {
            return self.token("account");
        }
        Told::new(400, json!({"error": "invalid_grant"}))
    }

    fn token(&mut self, whose: &str) -> Told {
        let token = format!("{whose}-token-{}", self.tokens.len());
        self.tokens.insert(token.clone());
        Told::new(200, json!({"access_token": token, "expires_in": 3599, "token_type": "Bearer"}))
    }

    fn create(&mut self, name: &str, body: &Value) -> Told {
        assert_eq!(
            (&body["purpose"], &body["versionTemplate"]["protectionLevel"]),
            (&json!("ASYMMETRIC_SIGN"), &json!("HSM"))
        );
        if self.keys.contains_key(name) {
            return refused(409, "ALREADY_EXISTS");
        }
        self.make(name, body["versionTemplate"]["algorithm"].as_str().unwrap(), 1);
        Told::new(200, json!({"name": format!("{RING}/cryptoKeys/{name}")}))
    }

    pub fn make(&mut self, name: &str, algorithm: &str, pending: usize) {
        let kind = match algorithm {
            "EC_SIGN_P256_SHA256" => KeyKind::Ec(Curve::P256),
            "EC_SIGN_P384_SHA384" => KeyKind::Ec(Curve::P384),
            _ if algorithm.contains("_2048_") => KeyKind::Rsa { bits: 2048 },
            _ if algorithm.contains("_3072_") => KeyKind::Rsa { bits: 3072 },
            _ => KeyKind::Rsa { bits: 4096 },
        };
        let algorithm = algorithm.to_owned();
        let state = "ENABLED".to_owned();
        let key = Key::generate(kind);
        self.keys.insert(name.to_owned(), Version { algorithm, state, pending, key });
    }

    fn name(&self, name: &str) -> String {
        let name = if self.fault == Some(Fault::AnotherName) { "another" } else { name };
        format!("{RING}/cryptoKeys/{name}/cryptoKeyVersions/1")
    }

    fn version(&mut self, name: &str) -> Told {
        let own = self.name(name);
        let Some(version) = self.keys.get_mut(name) else { return refused(404, "NOT_FOUND") };
        let state = if version.pending > 0 { "PENDING_GENERATION" } else { &version.state };
        let told = json!({"name": own, "state": state, "algorithm": version.algorithm});
        version.pending = version.pending.saturating_sub(1);
        Told::new(200, told)
    }

    fn public(&self, name: &str) -> Told {
        let version = &self.keys[name];
        let pem = pem::encode("PUBLIC KEY", &version.key.spki()) + "\n";
        let crc = crc32c(pem.as_bytes()) ^ u32::from(self.fault == Some(Fault::PemChecksum));
        let algorithm = &version.algorithm;
        Told::new(
            200,
            json!({"name": self.name(name), "pem": pem, "pemCrc32c": crc.to_string(), "algorithm": algorithm}),
        )
    }

    fn sign(&self, name: &str, body: &Value) -> Told {
        let Some(version) = self.keys.get(name) else { return refused(404, "NOT_FOUND") };
        if version.state != "ENABLED" {
            return refused(400, "FAILED_PRECONDITION");
        }
        let (hash, word) = match &version.algorithm {
            name if name.ends_with("SHA256") => (Hash::Sha256, "sha256"),
            name if name.ends_with("SHA384") => (Hash::Sha384, "sha384"),
            _ => (Hash::Sha512, "sha512"),
        };
        let algorithm = match &version.algorithm {
            name if name.starts_with("EC") => SignatureAlgorithm::Ecdsa(hash),
            name if name.contains("PSS") => SignatureAlgorithm::RsaPss(hash),
            _ => SignatureAlgorithm::RsaPkcs1(hash),
        };
        let Some(digest) = body["digest"][word].as_str() else { return refused(400, "INVALID_ARGUMENT") };
        let digest = STANDARD.decode(digest).unwrap();
        assert_eq!(body["digestCrc32c"], crc32c(&digest).to_string());
        let Ok(signature) = version.key.sign(algorithm, &digest) else { return refused(400, "INVALID_ARGUMENT") };
        let crc = crc32c(&signature) ^ u32::from(self.fault == Some(Fault::SignatureChecksum));
        let signed = json!({
            "name": self.name(name),
            "signature": STANDARD.encode(signature),
            "signatureCrc32c": crc.to_string(),
            "verifiedDigestCrc32c": self.fault != Some(Fault::DigestNotVerified),
        });
        Told::new(200, signed)
    }
}

fn refused(code: u16, status: &str) -> Told {
    Told::new(code, json!({"error": {"code": code, "status": status, "message": "canary-message"}}))
}
