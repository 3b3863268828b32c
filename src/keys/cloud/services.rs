//! Server settings of the cloud services, and the HTTP client for them. One instance per process.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::outbound::{EgressPolicy, Outbound};

/// Settings of the cloud services. Requests cannot change them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudSettings {
    /// The rules for addresses that the configuration of a key names.
    pub egress_policy: EgressPolicy,
    /// Settings of `cloudbkeyvault`.
    pub azure: AzureSettings,
    /// Settings of `cloudckms`.
    pub google: GoogleSettings,
}

impl CloudSettings {
    /// Applies the provider's environment variables: see [`GoogleSettings::with_environment`].
    #[must_use]
    pub fn with_environment(self) -> Self {
        Self { google: self.google.with_environment(), ..self }
    }
}

/// Settings of `cloudbkeyvault`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureSettings {
    /// Base URL of the directory that issues access tokens; overrides that of a key's `environment`.
    pub authority_url: Option<String>,
    /// URL template of a vault; `{vault_name}` and `{resource}` are replaced by these parameters of a key.
    pub vault_url_template: String,
    /// API version of the vault.
    pub api_version: String,
    /// DNS suffixes allowed for `resource` in addition to those of the provider.
    pub extra_suffixes: Vec<String>,
    /// Base URL of the service that issues tokens of the machine's identity; plain HTTP.
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
    /// URL at which a service account's assertion is exchanged for an access token.
    pub token_url: String,
    /// Base URL of the service that issues tokens of the machine's account; plain HTTP.
    pub metadata_url: String,
    /// Folder of the files that `credentials` names. Without it, only the file from the environment can be used.
    pub credentials_dir: Option<PathBuf>,
    /// Credentials file from the environment, for keys without `credentials`.
    pub credentials: Option<PathBuf>,
    /// Project of keys without `project`.
    pub project: Option<String>,
    /// Region of keys without `region`.
    pub region: Option<String>,
    /// `true` if keys are generated in software instead of a hardware module.
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
    /// Applies the provider's own environment variables: `GOOGLE_CREDENTIALS` or `GOOGLE_APPLICATION_CREDENTIALS`,
    /// `GOOGLE_PROJECT`, `GOOGLE_REGION`. Empty variables count as unset.
    #[must_use]
    pub fn with_environment(self) -> Self {
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

/// Settings and HTTP client of the cloud services.
pub struct CloudServices {
    pub(in crate::keys) settings: CloudSettings,
    pub(in crate::keys) clock: Clock,
    pub(in crate::keys) outbound: Outbound,
}

impl CloudServices {
    /// Creates the client. Makes no request.
    ///
    /// # Errors
    /// `Invalid` for a setting that cannot be used ([`CloudSettings::problems`]); `Internal` when TLS cannot be set up.
    pub fn new(settings: CloudSettings, clock: Clock) -> Result<Arc<Self>> {
        if let Some((name, rule)) = settings.problems().first() {
            return Err(Error::invalid(format!("{name}: {rule}")));
        }
        Ok(Arc::new(Self { settings, clock, outbound: Outbound::for_configured_urls("", "")? }))
    }
}
