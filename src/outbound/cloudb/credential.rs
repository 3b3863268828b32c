//! Access tokens for the provider's APIs: of an application with a secret (RFC 6749 4.4), or of the machine's own
//! identity.

use bytes::Bytes;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::outbound::{Method, Outbound, Token, Tries};
use crate::secret::Secret;

/// Where a machine asks for its own identity; plain HTTP, and only from the machine itself.
pub(crate) const IMDS: &str = "http://169.254.169.254";
/// The version of that service.
const IMDS_VERSION: &str = "2018-02-01";

/// Who asks for a token, and what for.
pub(crate) struct Credential<'c> {
    pub(crate) outbound: &'c Outbound,
    /// Base URL of the directory.
    pub(crate) authority: &'c str,
    /// Base URL of the service of the machine's own identity.
    pub(crate) imds: &'c str,
    /// The directory's tenant, which is fit for a URL.
    pub(crate) tenant: &'c str,
    /// The application; without a secret, the one of the machine's identities that is meant, if any.
    pub(crate) client_id: &'c str,
    /// Its secret; an empty one for the machine's own identity.
    pub(crate) client_secret: &'c Secret,
    /// Base URL of the API that the token is for.
    pub(crate) resource: &'c str,
    pub(crate) tries: Tries,
    /// The subject of errors.
    pub(crate) who: &'static str,
}

impl Credential<'_> {
    /// A new token.
    ///
    /// # Errors
    /// `BadGateway` when the credential is refused, `Unavailable` when nobody answers.
    pub(crate) async fn fetch(&self) -> Result<Token> {
        if self.client_secret.expose().is_empty() { self.own().await } else { self.granted().await }
    }

    /// Of the application.
    async fn granted(&self) -> Result<Token> {
        let url = format!("{}/{}/oauth2/v2.0/token", self.authority.trim_end_matches('/'), self.tenant);
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", self.client_id)
            .append_pair("client_secret", self.client_secret.expose_text().unwrap_or_default())
            .append_pair("scope", &format!("{}/.default", self.resource))
            .finish();
        // Overwritten when the last copy of the request goes.
        let form = Bytes::from_owner(Zeroizing::new(form.into_bytes()));
        let who = format!("{}: the directory", self.who);
        let call = self.outbound.call(Method::POST, &url)?.form(form);
        Token::read(&call.send(self.tries, &who).await?, &who)
    }

    /// Of the machine.
    async fn own(&self) -> Result<Token> {
        let client_id = Some(("client_id", self.client_id)).filter(|(_, id)| !id.is_empty());
        let pairs = [("api-version", IMDS_VERSION), ("resource", self.resource)].into_iter().chain(client_id);
        let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
        let url = format!("{}/metadata/identity/oauth2/token?{query}", self.imds.trim_end_matches('/'));
        let who = format!("{}: the machine's identity service", self.who);
        let call = self.outbound.call(Method::GET, &url)?.header("Metadata", "true");
        Token::read(&call.send(self.tries, &who).await?, &who)
    }
}
