//! Calls to Google Cloud KMS for one key.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::algorithm::CkmsAlgorithm;
use super::checksum::crc32c;
use super::config::{CloudCkmsConfig, TYPE_NAME};
use super::credential;
use super::file::CredentialFile;
use crate::error::{Error, Kind, Result};
use crate::keys::cloud::{CloudKeyService, CloudServices};
use crate::keys::signer::KeyIdentity;
use crate::outbound::{AccessTokenCache, Method, OutboundRequest, OutboundResponse, RetryPolicy};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::pem;
use crate::x509::public_key::PublicKey;

const SERVICE_LABEL: &str = "cloudckms: the key service";
/// Maximum number of checks that a newly generated key is ready.
const MAX_GENERATION_CHECKS: u32 = 20;
/// Pause between two checks that a newly generated key is ready.
const GENERATION_CHECK_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct CkmsKeyClient {
    services: Arc<CloudServices>,
    tokens: AccessTokenCache,
    file: Option<CredentialFile>,
    algorithm: &'static CkmsAlgorithm,
    /// Resource name of the key ring; `key` and `version` are the resource names of the key and its version.
    ring: String,
    key: String,
    version: String,
    /// The name of the key within its ring.
    key_id: String,
}

#[derive(Deserialize)]
struct CkmsKeyVersion {
    name: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    algorithm: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CkmsPublicKey {
    name: String,
    pem: String,
    pem_crc32c: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CkmsSignResponse {
    name: String,
    signature: String,
    signature_crc32c: String,
    #[serde(default)]
    verified_digest_crc32c: bool,
}

#[derive(Deserialize)]
struct CkmsErrorResponse {
    error: CkmsErrorStatus,
}

#[derive(Deserialize)]
struct CkmsErrorStatus {
    status: String,
}

impl CkmsKeyClient {
    pub(super) fn new(services: Arc<CloudServices>, config: &CloudCkmsConfig) -> Result<Self> {
        let (ring, key) = config.resource_names(&services)?;
        Ok(Self {
            tokens: AccessTokenCache::default(),
            file: CredentialFile::resolve(&config.credentials, &services.settings.google)?,
            algorithm: config.algorithm()?,
            version: format!("{key}/cryptoKeyVersions/{}", config.version()),
            key_id: config.crypto_key.clone(),
            services,
            ring,
            key,
        })
    }

    fn request(&self, method: Method, name: &str) -> Result<OutboundRequest> {
        let base = self.services.settings.google.endpoint.trim_end_matches('/');
        self.services.outbound.request(method, &format!("{base}/v1/{name}"))
    }

    async fn call(&self, call: OutboundRequest) -> Result<OutboundResponse> {
        let fetch = || credential::fetch(Arc::clone(&self.services), self.file.clone());
        self.tokens.send(call, RetryPolicy::FOUR_ATTEMPTS, SERVICE_LABEL, fetch).await
    }

    /// Looks up the configured version of the key; `None` when the key does not exist.
    async fn find_version(&self) -> Result<Option<CkmsKeyVersion>> {
        let reply = self.call(self.request(Method::GET, &self.version)?).await?;
        match reply.status() {
            200 => {
                let version: CkmsKeyVersion = reply.read(SERVICE_LABEL)?;
                self.require_configured_version(&version.name)?;
                Ok(Some(version))
            }
            404 => {
                let reply = self.call(self.request(Method::GET, &self.key)?).await?;
                match reply.status() {
                    404 => Ok(None),
                    200 => Err(Error::invalid(format!("{TYPE_NAME}: the key has no such crypto_key_version"))),
                    _ => Err(rejection_error(&reply)),
                }
            }
            _ => Err(rejection_error(&reply)),
        }
    }

    /// Checks that a key version matches the configuration and is enabled.
    fn check_version(&self, version: &CkmsKeyVersion) -> Result<()> {
        if version.algorithm != self.algorithm.name {
            let is: String = version.algorithm.chars().take(64).collect();
            let wanted = self.algorithm.name;
            return Err(Error::invalid(format!(
                "{TYPE_NAME}: the algorithm of the key is {is:?}, but must be {wanted}"
            )));
        }
        match version.state.as_str() {
            "ENABLED" => Ok(()),
            "PENDING_GENERATION" => {
                Err(Error::new(Kind::Unavailable, format!("{TYPE_NAME}: the key is being generated; retry shortly")))
            }
            state => {
                let state: String = state.chars().take(64).collect();
                Err(Error::invalid(format!("{TYPE_NAME}: the state of the key is {state:?}, but must be ENABLED")))
            }
        }
    }

    fn require_configured_version(&self, name: &str) -> Result<()> {
        if name == self.version { Ok(()) } else { Err(invalid_response("is about another key")) }
    }
}

impl CloudKeyService for CkmsKeyClient {
    const NAME: &'static str = TYPE_NAME;

    fn check_algorithm(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<()> {
        if kind == self.algorithm.kind && algorithm == self.algorithm.signature_algorithm {
            return Ok(());
        }
        let name = self.algorithm.name;
        let only = self.algorithm.signature_algorithm.name();
        Err(Error::invalid(format!("algorithm {name} supports only {only}, not {}", algorithm.name())))
    }

    fn default_test_algorithm(&self, _: KeyKind) -> Result<SignatureAlgorithm> {
        Ok(self.algorithm.signature_algorithm)
    }

    async fn find_key(&self) -> Result<Option<KeyIdentity>> {
        let Some(version) = self.find_version().await? else { return Ok(None) };
        self.check_version(&version)?;
        let reply = self.call(self.request(Method::GET, &format!("{}/publicKey", self.version))?).await?;
        if reply.status() != 200 {
            return Err(rejection_error(&reply));
        }
        let response: CkmsPublicKey = reply.read(SERVICE_LABEL)?;
        self.require_configured_version(&response.name)?;
        verify_checksum(response.pem.as_bytes(), &response.pem_crc32c)?;
        let (_, spki) = pem::parse_first_block(&response.pem)?.ok_or_else(|| invalid_response("contains no key"))?;
        let public = PublicKey::parse(&spki)?;
        if public.kind() != self.algorithm.kind {
            return Err(invalid_response("contains a key of another type"));
        }
        Ok(Some(public.into()))
    }

    async fn create_key(&self) -> Result<()> {
        let protection = if self.services.settings.google.software_keys { "SOFTWARE" } else { "HSM" };
        let body = json!({
            "purpose": "ASYMMETRIC_SIGN",
            "versionTemplate": { "protectionLevel": protection, "algorithm": self.algorithm.name },
        });
        let below = format!("cryptoKeys?cryptoKeyId={}&skipInitialVersionCreation=false", self.key_id);
        let request = self.request(Method::POST, &format!("{}/{below}", self.ring))?;
        let reply = self.call(request.json(&body)).await?;
        match reply.status() {
            // 409: another request generated the key first, and that key is used.
            200 | 409 => {}
            404 => return Err(Error::invalid(format!("{TYPE_NAME}: the key_ring does not exist"))),
            _ => return Err(rejection_error(&reply)),
        }
        for _ in 0..MAX_GENERATION_CHECKS {
            match self.find_version().await? {
                Some(version) if version.state == "PENDING_GENERATION" => {
                    tokio::time::sleep(GENERATION_CHECK_PAUSE).await
                }
                _ => break,
            }
        }
        Ok(())
    }

    async fn sign(&self, _: &str, _: SignatureAlgorithm, digest: &[u8]) -> Result<Vec<u8>> {
        let hash = match self.algorithm.signature_algorithm.hash() {
            Some(Hash::Sha256) => "sha256",
            Some(Hash::Sha384) => "sha384",
            Some(Hash::Sha512) => "sha512",
            None => {
                return Err(Error::internal(format!("{TYPE_NAME}: the algorithm {} has no hash", self.algorithm.name)));
            }
        };
        let body = json!({
            "digest": { hash: STANDARD.encode(digest) },
            "digestCrc32c": crc32c(digest).to_string(),
        });
        let request = self.request(Method::POST, &format!("{}:asymmetricSign", self.version))?.json(&body);
        let reply = self.call(request).await?;
        if reply.status() != 200 {
            return Err(rejection_error(&reply));
        }
        let signed: CkmsSignResponse = reply.read(SERVICE_LABEL)?;
        self.require_configured_version(&signed.name)?;
        if !signed.verified_digest_crc32c {
            return Err(invalid_response("is not for the digest that was sent"));
        }
        let signature = STANDARD.decode(&signed.signature).map_err(|_| invalid_response("contains no signature"))?;
        verify_checksum(&signature, &signed.signature_crc32c)?;
        Ok(signature)
    }
}

fn verify_checksum(bytes: &[u8], crc: &str) -> Result<()> {
    if crc.parse() == Ok(crc32c(bytes)) { Ok(()) } else { Err(invalid_response("was corrupted in transit")) }
}

fn invalid_response(why: &str) -> Error {
    Error::new(Kind::BadGateway, format!("{SERVICE_LABEL}: its response {why}"))
}

/// Returns the error for a response with an error status. The message of the service is not passed on.
fn rejection_error(reply: &OutboundResponse) -> Error {
    let status = reply.status();
    tracing::debug!(status, reason = reply.error_code(), "a call of the key service failed");
    let refusal: Option<CkmsErrorResponse> = reply.read(SERVICE_LABEL).ok();
    let text = match (status, refusal.as_ref().map_or("", |refusal| refusal.error.status.as_str())) {
        (401 | 403, _) => "the key service rejected the credential of this server".to_owned(),
        (404, _) => "the key no longer exists at the key service".to_owned(),
        (_, "FAILED_PRECONDITION") => "the state of the key does not allow the operation".to_owned(),
        _ => format!("the key service refused the request (status {status})"),
    };
    Error::new(Kind::BadGateway, format!("{TYPE_NAME}: {text}"))
}
