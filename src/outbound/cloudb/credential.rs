//! Access tokens for the provider's APIs: for an application with a secret (RFC 6749, 4.4), or for the
//! managed identity of the machine.

use bytes::Bytes;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::outbound::{AccessToken, Method, Outbound, RetryPolicy};
use crate::secret::Secret;

/// Address of the metadata service; plain HTTP, reachable only from the machine itself.
pub(crate) const IMDS_URL: &str = "http://169.254.169.254";
/// API version of the metadata service.
const IMDS_VERSION: &str = "2018-02-01";

/// A request for an access token.
pub(crate) struct CloudbTokenRequest<'c> {
    pub(crate) outbound: &'c Outbound,
    /// Base URL of the directory.
    pub(crate) authority: &'c str,
    /// Base URL of the metadata service.
    pub(crate) imds: &'c str,
    /// The directory's tenant, validated as a URL segment.
    pub(crate) tenant: &'c str,
    /// The application id. Without a secret: the id of the managed identity to use; empty for the default one.
    pub(crate) client_id: &'c str,
    /// The application's secret; empty for the managed identity.
    pub(crate) client_secret: &'c Secret,
    /// Base URL of the API that the token is for.
    pub(crate) resource: &'c str,
    pub(crate) tries: RetryPolicy,
    /// The prefix of error messages.
    pub(crate) error_prefix: &'static str,
}

impl CloudbTokenRequest<'_> {
    /// Fetches a new token.
    ///
    /// # Errors
    /// `BadGateway` when the credential is rejected, `Unavailable` when the service does not respond.
    pub(crate) async fn fetch(&self) -> Result<AccessToken> {
        if self.client_secret.expose().is_empty() {
            self.fetch_for_managed_identity().await
        } else {
            self.fetch_for_application().await
        }
    }

    /// Fetches a token for the application.
    async fn fetch_for_application(&self) -> Result<AccessToken> {
        let url = format!("{}/{}/oauth2/v2.0/token", self.authority.trim_end_matches('/'), self.tenant);
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", self.client_id)
            .append_pair("client_secret", self.client_secret.expose_text().unwrap_or_default())
            .append_pair("scope", &format!("{}/.default", self.resource))
            .finish();
        // The form contains the secret, so it is overwritten when the last copy of the request is dropped.
        let form = Bytes::from_owner(Zeroizing::new(form.into_bytes()));
        let service = format!("{}: the directory", self.error_prefix);
        let call = self.outbound.request(Method::POST, &url)?.form(form);
        AccessToken::read(&call.send(self.tries, &service).await?, &service)
    }

    /// Fetches a token for the managed identity.
    async fn fetch_for_managed_identity(&self) -> Result<AccessToken> {
        let client_id = Some(("client_id", self.client_id)).filter(|(_, id)| !id.is_empty());
        let pairs = [("api-version", IMDS_VERSION), ("resource", self.resource)].into_iter().chain(client_id);
        let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
        let url = format!("{}/metadata/identity/oauth2/token?{query}", self.imds.trim_end_matches('/'));
        let service = format!("{}: the machine's identity service", self.error_prefix);
        let call = self.outbound.request(Method::GET, &url)?.header("Metadata", "true");
        AccessToken::read(&call.send(self.tries, &service).await?, &service)
    }
}
