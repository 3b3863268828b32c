//! What the server's configuration and environment say of this method. None of it can be said by a request: whoever
//! could name the directory could make identities.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::outbound::cloudb::IMDS;
use crate::outbound::{Outbound, base_url};
use crate::secret::Secret;

/// The places of the provider, in place of those of a mount's `environment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudbUrls {
    /// The directory.
    pub authority: Option<String>,
    /// The resource API.
    pub arm: Option<String>,
    /// The API of the directory's applications.
    pub graph: Option<String>,
    /// The service of a machine's own identity; plain HTTP.
    pub imds: Option<String>,
}

impl CloudbUrls {
    /// Holds the places to what credentials may be sent to: https, plain HTTP on the loopback and to the usual place
    /// of a machine's own identity.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
    pub fn check(&self) -> Result<()> {
        let imds = self.imds.as_ref().filter(|url| url.trim_end_matches('/') != IMDS);
        let named = [
            ("cloudb.authority_url", self.authority.as_ref()),
            ("cloudb.arm_url", self.arm.as_ref()),
            ("cloudb.graph_url", self.graph.as_ref()),
            ("cloudb.imds_url", imds),
        ];
        named
            .iter()
            .filter_map(|(name, url)| Some((name, (*url)?)))
            .try_for_each(|(name, url)| base_url(name, url).map(drop))
    }
}

/// Settings of the method `cloudb`, for all its mounts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CloudbSettings {
    /// Places.
    pub urls: CloudbUrls,
    /// PEM file of the authorities that their certificates are held against, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// What mounts use that are not configured otherwise.
    pub fallback: Fallback,
}

/// The provider's own variables of the environment. What is in them is used and never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fallback {
    /// `AZURE_TENANT_ID`.
    pub tenant_id: String,
    /// `AZURE_AD_RESOURCE`.
    pub resource: String,
    /// `AZURE_ENVIRONMENT`.
    pub environment: String,
    /// `AZURE_CLIENT_ID`.
    pub client_id: String,
    /// `AZURE_CLIENT_SECRET`.
    pub client_secret: Secret,
}

impl Fallback {
    /// Those of this process.
    #[must_use]
    pub fn of_environment() -> Self {
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

/// The way to the provider. One for the process.
pub(crate) struct Services {
    pub(super) outbound: Outbound,
    pub(super) clock: Clock,
    pub(super) urls: CloudbUrls,
    pub(super) fallback: Fallback,
}

impl Services {
    /// Asks nobody.
    ///
    /// # Errors
    /// `Invalid` for a place that credentials must not be sent to and for authorities that cannot be read, naming
    /// the setting.
    pub(crate) fn new(settings: CloudbSettings, clock: Clock) -> Result<Arc<Self>> {
        let CloudbSettings { urls, ca_file, fallback } = settings;
        urls.check()?;
        let pem = match &ca_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|e| Error::of_file("cloudb.ca_file", file, "read", e).as_kind(Kind::Invalid))?,
            None => String::new(),
        };
        Ok(Arc::new(Self { outbound: Outbound::configured("cloudb.ca_file", &pem)?, clock, urls, fallback }))
    }
}
