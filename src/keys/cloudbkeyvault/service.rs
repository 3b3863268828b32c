//! Calls to Azure Key Vault for one key.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{CloudBkeyvaultConfig, SUPPORTED_KEY_TYPE, TYPE_NAME};
use super::credential;
use crate::error::{Error, Kind, Result};
use crate::keys::cloud::{CloudKeyService, CloudServices};
use crate::keys::signer::KeyIdentity;
use crate::outbound::{AccessTokenCache, Method, OutboundResponse, RetryPolicy};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::public_key;

const SERVICE_LABEL: &str = "cloudbkeyvault: the key store";

pub(super) struct VaultKeyClient {
    services: Arc<CloudServices>,
    config: CloudBkeyvaultConfig,
    tokens: AccessTokenCache,
    /// URL of the key, without its version.
    url: String,
}

#[derive(Deserialize)]
struct VaultKeyBundle {
    key: VaultWebKey,
    #[serde(default)]
    attributes: VaultKeyAttributes,
}

/// A key (RFC 7517) with its permitted operations.
#[derive(Deserialize)]
struct VaultWebKey {
    kid: String,
    kty: String,
    #[serde(default)]
    key_ops: Vec<String>,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
}

#[derive(Deserialize, Default)]
struct VaultKeyAttributes {
    enabled: Option<bool>,
}

#[derive(Deserialize)]
struct VaultSignResponse {
    value: String,
}

#[derive(Deserialize)]
struct VaultErrorResponse {
    error: VaultErrorCode,
}

#[derive(Deserialize)]
struct VaultErrorCode {
    code: String,
    innererror: Option<VaultInnerError>,
}

#[derive(Deserialize)]
struct VaultInnerError {
    code: String,
}

impl VaultKeyClient {
    pub(super) fn new(services: Arc<CloudServices>, config: CloudBkeyvaultConfig) -> Self {
        let template = &services.settings.azure.vault_url_template;
        let base = template.replace("{vault_name}", &config.vault_name).replace("{resource}", config.resource());
        let url = format!("{}/keys/{}", base.trim_end_matches('/'), config.key_name);
        Self { services, config, tokens: AccessTokenCache::default(), url }
    }

    /// Sends one request; `below` is its path below the URL of the key.
    async fn call(
        &self,
        method: Method,
        below: &str,
        body: Option<Value>,
        tries: RetryPolicy,
    ) -> Result<OutboundResponse> {
        let version = &self.services.settings.azure.api_version;
        let url = format!("{}{below}?api-version={version}", self.url);
        let call = self.services.outbound.request(method, &url)?;
        let call = if let Some(body) = &body { call.json(body) } else { call };
        self.tokens.send(call, tries, SERVICE_LABEL, || credential::fetch(&self.services, &self.config)).await
    }

    /// Checks that the key in a response matches the configuration, and returns it.
    fn check_key(&self, bundle: &VaultKeyBundle) -> Result<KeyIdentity> {
        let key = &bundle.key;
        if bundle.attributes.enabled == Some(false) {
            return Err(Error::invalid(format!("{TYPE_NAME}: the key is disabled")));
        }
        if !key.kty.eq_ignore_ascii_case(SUPPORTED_KEY_TYPE) {
            let is: String = key.kty.chars().take(16).collect();
            return Err(Error::invalid(format!(
                "{TYPE_NAME}: the type of the key is {is:?}, but must be {SUPPORTED_KEY_TYPE}"
            )));
        }
        if !key.key_ops.iter().any(|operation| operation == "sign") {
            return Err(Error::invalid(format!("{TYPE_NAME}: the key_ops of the key must include sign")));
        }
        let numbers = [&key.n, &key.e].map(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')));
        let [Ok(modulus), Ok(exponent)] = numbers else { return Err(unexpected_response()) };
        let public = public_key::rsa_public_key(&modulus, &exponent)?;
        let bits = public.kind().bits();
        let wanted = self.config.bits();
        if wanted != 0 && bits != wanted {
            return Err(Error::invalid(format!("{TYPE_NAME}: the key has {bits} bits, but must have {wanted}")));
        }
        let version = key.kid.rsplit('/').next().unwrap_or_default();
        if version.is_empty() || version.len() > 64 || !version.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(unexpected_response());
        }
        Ok(KeyIdentity { public, locator: version.to_owned() })
    }
}

impl CloudKeyService for VaultKeyClient {
    const NAME: &'static str = TYPE_NAME;

    fn check_algorithm(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<()> {
        match (kind, jws_algorithm(algorithm)) {
            (KeyKind::Rsa { .. }, Some(_)) => Ok(()),
            _ => Err(Error::invalid(format!("{TYPE_NAME}: the key does not sign with {}", algorithm.name()))),
        }
    }

    async fn find_key(&self) -> Result<Option<KeyIdentity>> {
        let reply = self.call(Method::GET, "", None, RetryPolicy::FOUR_ATTEMPTS).await?;
        match reply.status() {
            200 => self.check_key(&reply.read(SERVICE_LABEL)?).map(Some),
            404 => Ok(None),
            _ => Err(rejection_error(&reply)),
        }
    }

    async fn create_key(&self) -> Result<()> {
        let body = json!({
            "kty": SUPPORTED_KEY_TYPE,
            "key_size": self.config.bits(),
            "key_ops": ["sign", "verify"],
            "attributes": { "enabled": true },
        });
        // Not retried: a second request would generate another version of the key.
        let reply = self.call(Method::POST, "/create", Some(body), RetryPolicy::SINGLE_ATTEMPT).await?;
        if reply.status() == 200 { Ok(()) } else { Err(rejection_error(&reply)) }
    }

    async fn sign(&self, version: &str, algorithm: SignatureAlgorithm, digest: &[u8]) -> Result<Vec<u8>> {
        let unsupported =
            || Error::internal(format!("{TYPE_NAME}: signature algorithm {} is unsupported", algorithm.name()));
        let jws_name = jws_algorithm(algorithm).ok_or_else(unsupported)?;
        let body = json!({ "alg": jws_name, "value": URL_SAFE_NO_PAD.encode(digest) });
        let reply =
            self.call(Method::POST, &format!("/{version}/sign"), Some(body), RetryPolicy::FOUR_ATTEMPTS).await?;
        if reply.status() != 200 {
            return Err(rejection_error(&reply));
        }
        let signed: VaultSignResponse = reply.read(SERVICE_LABEL)?;
        URL_SAFE_NO_PAD.decode(signed.value.trim_end_matches('=')).map_err(|_| unexpected_response())
    }
}

/// Returns the name of an algorithm in Key Vault requests (RFC 7518 3.1).
fn jws_algorithm(algorithm: SignatureAlgorithm) -> Option<&'static str> {
    use SignatureAlgorithm::{RsaPkcs1, RsaPss};
    Some(match algorithm {
        RsaPkcs1(Hash::Sha256) => "RS256",
        RsaPkcs1(Hash::Sha384) => "RS384",
        RsaPkcs1(Hash::Sha512) => "RS512",
        RsaPss(Hash::Sha256) => "PS256",
        RsaPss(Hash::Sha384) => "PS384",
        RsaPss(Hash::Sha512) => "PS512",
        _ => return None,
    })
}

/// Returns the error for a response with an error status. The message of the vault is not passed on.
fn rejection_error(reply: &OutboundResponse) -> Error {
    let status = reply.status();
    tracing::debug!(status, reason = reply.error_code(), "a call of the key store failed");
    let refusal: Option<VaultErrorResponse> = reply.read(SERVICE_LABEL).ok();
    let code = refusal.as_ref().map_or("", |refusal| {
        refusal.error.innererror.as_ref().map_or(refusal.error.code.as_str(), |inner| inner.code.as_str())
    });
    let text = match (status, code) {
        (_, "KeyDisabled") => "the key is disabled".to_owned(),
        (401 | 403, _) => "the key store rejected the credential of this server".to_owned(),
        (404, _) => "the key no longer exists in its key store".to_owned(),
        _ => format!("the key store refused the request (status {status})"),
    };
    Error::new(Kind::BadGateway, format!("{TYPE_NAME}: {text}"))
}

fn unexpected_response() -> Error {
    Error::new(Kind::BadGateway, format!("{SERVICE_LABEL}: its response has an unexpected form"))
}
