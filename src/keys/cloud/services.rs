//! What the server's configuration says of the cloud services, and the HTTP client for them. One for the process.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::outbound::{Outbound, Reach};

/// What the server's configuration says of the services. None of it can be said by a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudSettings {
    /// Which addresses may be called that a key's configuration names.
    pub reach: Reach,
    /// For `cloudbkeyvault`.
    pub azure: AzureSettings,
    /// For `cloudckms`.
    pub google: GoogleSettings,
}

impl CloudSettings {
    /// As [`GoogleSettings::in_environment`].
    #[must_use]
    pub fn in_environment(self) -> Self {
        Self { google: self.google.in_environment(), ..self }
    }
}

/// Settings of `cloudbkeyvault`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureSettings {
    /// Base URL of the directory that gives access tokens, in place of the one of a key's `environment`.
    pub authority_url: Option<String>,
    /// Base URL of a key store; `{vault_name}` and `{resource}` stand for these parameters of a key.
    pub vault_url_template: String,
    /// Version of the key store's interface.
    pub api_version: String,
    /// DNS suffixes that `resource` may end in, beside those of the provider.
    pub extra_suffixes: Vec<String>,
    /// Base URL of the service that gives the tokens of a machine's own identity; plain HTTP.
    pub imds_url: String,
}

impl Default for AzureSettings {
    fn default() -> Self {
        Self {
            authority_url: None,
            vault_url_template: "https://{vault_name}.{resource}".to_owned(),
            api_version: "7.4".to_owned(),
            extra_suffixes: Vec::new(),
            imds_url: "http://169.254.169.254".to_owned(),
        }
    }
}

/// Settings of `cloudckms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoogleSettings {
    /// Base URL of the service.
    pub endpoint: String,
    /// Where a service account's assertion is exchanged for an access token.
    pub token_url: String,
    /// Base URL of the service that gives the tokens of a machine's own account; plain HTTP.
    pub metadata_url: String,
    /// The folder that files named by `credentials` are in; without it there is the file of the environment alone.
    pub credentials_dir: Option<PathBuf>,
    /// The file of the environment, for keys without `credentials`.
    pub credentials: Option<PathBuf>,
    /// The project of keys without `project`.
    pub project: Option<String>,
    /// The region of keys without `region`.
    pub region: Option<String>,
    /// Whether keys are made in software instead of in a hardware module.
    pub software_keys: bool,
}

impl Default for GoogleSettings {
    fn default() -> Self {
        Self {
            endpoint: "https://cloudkms.googleapis.com".to_owned(),
            token_url: "https://oauth2.googleapis.com/token".to_owned(),
            metadata_url: "http://metadata.google.internal".to_owned(),
            credentials_dir: None,
            credentials: None,
            project: None,
            region: None,
            software_keys: false,
        }
    }
}

impl GoogleSettings {
    /// Takes what the environment says in the provider's own variables: `GOOGLE_CREDENTIALS` or
    /// `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_PROJECT`, `GOOGLE_REGION`. An empty one counts as none.
    #[must_use]
    pub fn in_environment(self) -> Self {
        let text = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
        let file = text("GOOGLE_CREDENTIALS").or_else(|| text("GOOGLE_APPLICATION_CREDENTIALS"));
        Self {
            credentials: file.map(PathBuf::from).or(self.credentials),
            project: text("GOOGLE_PROJECT").or(self.project),
            region: text("GOOGLE_REGION").or(self.region),
            ..self
        }
    }
}

/// The way to the cloud services.
pub struct CloudServices {
    pub(in crate::keys) settings: CloudSettings,
    pub(in crate::keys) clock: Clock,
    pub(in crate::keys) outbound: Outbound,
}

impl CloudServices {
    /// Asks nobody.
    ///
    /// # Errors
    /// `Invalid` for a setting that cannot be used ([`CloudSettings::problems`]); `Internal` when TLS cannot be set up.
    pub fn new(settings: CloudSettings, clock: Clock) -> Result<Arc<Self>> {
        if let Some((name, rule)) = settings.problems().first() {
            return Err(Error::invalid(format!("{name}: {rule}")));
        }
        Ok(Arc::new(Self { settings, clock, outbound: Outbound::configured("", "")? }))
    }
}
