//! Access tokens for Google Cloud KMS: for a service account whose key is in a file (RFC 7523), or for the machine's
//! account.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded::Serializer;

use super::file::CredentialFile;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::keys::cloud::CloudServices;
use crate::keys::local::PrivateKey;
use crate::outbound::{AccessToken, Method, RetryPolicy};
use crate::secret::{Secret, sealed};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};

const TOKEN_SERVICE_LABEL: &str = "cloudckms: the token service";
const METADATA_SERVICE_LABEL: &str = "cloudckms: the machine's metadata service";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const OAUTH_SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";
/// Lifetime of an assertion in seconds; the maximum that the service accepts.
const ASSERTION_LIFETIME_SECONDS: i64 = 3600;

#[derive(Deserialize)]
struct ServiceAccountFile {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key_id: String,
    #[serde(with = "sealed")]
    private_key: Secret,
}

/// Requests a new token of the account in `file`, or of the machine.
///
/// # Errors
/// `Invalid` when the file is not usable, `BadGateway` when the credential is rejected,
/// `Unavailable` without a response.
pub(super) async fn fetch(services: Arc<CloudServices>, file: Option<CredentialFile>) -> Result<AccessToken> {
    let Some(file) = file else { return fetch_machine_token(&services).await };
    let url = services.settings.google.token_url.clone();
    let clock = services.clock.clone();
    let audience = url.clone();
    let assertion = tokio::task::spawn_blocking(move || sign_assertion(&file.read()?, &audience, &clock));
    let assertion = assertion.await.map_err(Error::internal)??;
    let form = Serializer::new(String::new())
        .append_pair("grant_type", GRANT_TYPE)
        .append_pair("assertion", &assertion)
        .finish();
    let call = services.outbound.request(Method::POST, &url)?.form(form);
    AccessToken::read(&call.send(RetryPolicy::FOUR_ATTEMPTS, TOKEN_SERVICE_LABEL).await?, TOKEN_SERVICE_LABEL)
}

async fn fetch_machine_token(services: &CloudServices) -> Result<AccessToken> {
    let base = services.settings.google.metadata_url.trim_end_matches('/');
    let url = format!("{base}/computeMetadata/v1/instance/service-accounts/default/token");
    let call = services.outbound.request(Method::GET, &url)?.header("Metadata-Flavor", "Google");
    AccessToken::read(&call.send(RetryPolicy::FOUR_ATTEMPTS, METADATA_SERVICE_LABEL).await?, METADATA_SERVICE_LABEL)
}

/// Returns a JWT that identifies the account, signed with its key (RFC 7519, RFC 7515 3.1).
fn sign_assertion(file: &Secret, audience: &str, clock: &Clock) -> Result<String> {
    let wrong = || Error::invalid("credentials: must be the JSON file of a service account with an RSA key");
    let account: ServiceAccountFile = serde_json::from_slice(file.expose()).map_err(|_| wrong())?;
    let key = PrivateKey::from_pem(account.private_key.expose_text().unwrap_or_default()).map_err(|_| wrong())?;
    if account.kind != "service_account" || !matches!(key.kind(), KeyKind::Rsa { .. }) {
        return Err(wrong());
    }
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": account.private_key_id });
    let now = clock.now().unix_timestamp();
    let claims = json!({
        "iss": account.client_email,
        "scope": OAUTH_SCOPE,
        "aud": audience,
        "iat": now,
        "exp": now + ASSERTION_LIFETIME_SECONDS,
    });
    let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = parts.join(".");
    let signature = key.sign(SignatureAlgorithm::RsaPkcs1(Hash::Sha256), signed.as_bytes())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
