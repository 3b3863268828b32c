//! Server settings for `cloudb`. API requests cannot change them, because the directory at these URLs vouches for the
//! identity of every client.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::outbound::cloudb::IMDS_URL;
use crate::outbound::{Outbound, validate_base_url};
use crate::secret::Secret;

/// Base URLs of the provider's services. If a URL is set here, it is used instead of the URL for the `environment` of a
/// mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudbUrls {
    /// Base URL of the directory, which issues tokens.
    pub authority: Option<String>,
    /// Base URL of the resource API.
    pub arm: Option<String>,
    /// Base URL of the directory's application API, which manages client secrets.
    pub graph: Option<String>,
    /// Base URL of the service that issues tokens for the machine's own identity; plain HTTP.
    pub imds: Option<String>,
}

impl CloudbUrls {
    /// Validates the URLs: https, or plain HTTP to the loopback interface or to the usual machine identity service.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
    pub fn check(&self) -> Result<()> {
        let imds = self.imds.as_ref().filter(|url| url.trim_end_matches('/') != IMDS_URL);
        let named = [
            ("cloudb.authority_url", self.authority.as_ref()),
            ("cloudb.arm_url", self.arm.as_ref()),
            ("cloudb.graph_url", self.graph.as_ref()),
            ("cloudb.imds_url", imds),
        ];
        named
            .iter()
            .filter_map(|(name, url)| Some((name, (*url)?)))
            .try_for_each(|(name, url)| validate_base_url(name, url).map(drop))
    }
}

/// Settings for all mounts of `cloudb`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CloudbSettings {
    /// Base URLs of the provider's services.
    pub urls: CloudbUrls,
    /// PEM file with the CA certificates that are trusted for these URLs instead of the system's CA certificates;
    /// `None` to trust the system's.
    pub ca_file: Option<PathBuf>,
    /// Defaults for values that a mount's configuration leaves empty.
    pub fallback: CloudbFallback,
}

/// Values of the provider's environment variables; `""` if a variable is not set. The API never shows them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CloudbFallback {
    /// Value of `AZURE_TENANT_ID`.
    pub tenant_id: String,
    /// Value of `AZURE_AD_RESOURCE`, the expected audience of tokens.
    pub resource: String,
    /// Value of `AZURE_ENVIRONMENT`, the name of the provider's cloud.
    pub environment: String,
    /// Value of `AZURE_CLIENT_ID`.
    pub client_id: String,
    /// Value of `AZURE_CLIENT_SECRET`.
    pub client_secret: Secret,
}

impl CloudbFallback {
    /// Reads the environment variables of this process.
    #[must_use]
    pub fn from_environment() -> Self {
        let text = |name| std::env::var(name).unwrap_or_default();
        Self {
            tenant_id: text("AZURE_TENANT_ID"),
            resource: text("AZURE_AD_RESOURCE"),
            environment: text("AZURE_ENVIRONMENT"),
            client_id: text("AZURE_CLIENT_ID"),
            client_secret: Secret::new(text("AZURE_CLIENT_SECRET")),
        }
    }
}

/// The provider's HTTP client and the server settings, shared by all `cloudb` mounts of the process.
pub(crate) struct CloudbServices {
    pub(super) outbound: Outbound,
    pub(super) clock: Clock,
    pub(super) urls: CloudbUrls,
    pub(super) fallback: CloudbFallback,
}

impl CloudbServices {
    /// Creates the HTTP client without sending a request.
    ///
    /// # Errors
    /// `Invalid`, naming the setting, for an insecure URL and for unreadable CA certificates.
    pub(crate) fn new(settings: CloudbSettings, clock: Clock) -> Result<Arc<Self>> {
        let CloudbSettings { urls, ca_file, fallback } = settings;
        urls.check()?;
        let pem = match &ca_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|e| Error::of_file("cloudb.ca_file", file, "read", e).with_kind(Kind::Invalid))?,
            None => String::new(),
        };
        Ok(Arc::new(Self { outbound: Outbound::for_configured_urls("cloudb.ca_file", &pem)?, clock, urls, fallback }))
    }
}
