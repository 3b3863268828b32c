//! Access tokens for a key store: of an application with a secret (RFC 6749 4.4), or of the machine's own identity.

use bytes::Bytes;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use super::config::CloudBkeyvaultConfig;
use crate::error::Result;
use crate::keys::cloud::CloudServices;
use crate::keys::redacted;
use crate::outbound::{Method, Token, Tries};

const DIRECTORY: &str = "cloudbkeyvault: the directory";
const IMDS: &str = "cloudbkeyvault: the machine's identity service";
const IMDS_VERSION: &str = "2018-02-01";

/// A new token for the key store of a configuration.
///
/// # Errors
/// `BadGateway` when the credential is refused, `Unavailable` when nobody answers.
pub(super) async fn fetch(services: &CloudServices, config: &CloudBkeyvaultConfig) -> Result<Token> {
    if redacted::is_set(&config.client_secret) { granted(services, config).await } else { own(services, config).await }
}

/// Of the application.
async fn granted(services: &CloudServices, config: &CloudBkeyvaultConfig) -> Result<Token> {
    let base = match &services.settings.azure.authority_url {
        Some(url) => url.as_str(),
        None => config.cloud()?.authority,
    };
    let url = format!("{}/{}/oauth2/v2.0/token", base.trim_end_matches('/'), config.tenant_id);
    let secret = config.client_secret.expose_text().unwrap_or_default();
    let form = Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("client_id", &config.client_id)
        .append_pair("client_secret", secret)
        .append_pair("scope", &format!("https://{}/.default", config.resource()))
        .finish();
    // Overwritten when the last copy of the request goes.
    let form = Bytes::from_owner(Zeroizing::new(form.into_bytes()));
    let call = services.outbound.call(Method::POST, &url)?.form(form);
    Token::read(&call.send(Tries::FOUR, DIRECTORY).await?, DIRECTORY)
}

/// Of the machine.
async fn own(services: &CloudServices, config: &CloudBkeyvaultConfig) -> Result<Token> {
    let base = services.settings.azure.imds_url.trim_end_matches('/');
    let query = Serializer::new(String::new())
        .append_pair("api-version", IMDS_VERSION)
        .append_pair("resource", &format!("https://{}", config.resource()))
        .finish();
    let url = format!("{base}/metadata/identity/oauth2/token?{query}");
    let call = services.outbound.call(Method::GET, &url)?.header("Metadata", "true");
    Token::read(&call.send(Tries::FOUR, IMDS).await?, IMDS)
}
