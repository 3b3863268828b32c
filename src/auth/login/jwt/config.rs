//! Configuration: the issuer of tokens, and the source of its keys.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::login::config::ConfigWriteId;
use crate::auth::login::settings::LoginSettings;
use crate::auth::login::verifier::{DiscoveryDocument, JwtVerifier, KeySetSource};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::fields::{ListLimit, resource};
use crate::jose::JwsAlgorithm;
use crate::outbound::Outbound;

/// Name of the method in messages.
pub(super) const METHOD_NAME: &str = "jwt";
/// Default signature algorithms.
const DEFAULT_ALGORITHMS: &[JwsAlgorithm] = &[JwsAlgorithm::RS256];
const MAX_ISSUER_BYTES: usize = 2048;

resource! {
    /// The configuration, as stored.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct JwtConfig {
        /// Source of the keys; [`KeySourceFields`] has its fields.
        stored source: KeySource;
        /// Required issuer. If it is empty, the issuer in the discovery document is required; without that document,
        /// any.
        text bound_issuer;
        /// Role of logins that name none; empty for none.
        text default_role;
        /// Without effect; stored and returned.
        flag namespace_in_state = true;
        /// Accepted algorithms; empty for the default.
        stored algorithms: Vec<JwsAlgorithm> as ["jwt_supported_algs"];
        #[serde(default)]
        stored written: ConfigWriteId;
    }
}

/// Source of the keys. `ca_pem` replaces the system's CA certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum KeySource {
    /// Not configured yet.
    #[default]
    None,
    /// URL of the issuer, for its discovery document.
    Discovery { url: String, ca_pem: String },
    /// URL of a key set.
    KeySet { url: String, ca_pem: String },
    /// Public keys in PEM.
    Keys(Vec<String>),
}

resource! {
    /// A [`KeySource`] as the fields of requests and responses. The fields of other sources are empty.
    pub(crate) struct KeySourceFields {
        text oidc_discovery_url;
        text oidc_discovery_ca_pem;
        text jwks_url;
        text jwks_ca_pem;
        list(ListLimit::LIST) jwt_validation_pubkeys;
    }
}

impl From<KeySource> for KeySourceFields {
    fn from(source: KeySource) -> Self {
        let none = Self::default();
        match source {
            KeySource::None => none,
            KeySource::Discovery { url, ca_pem } => {
                Self { oidc_discovery_url: url, oidc_discovery_ca_pem: ca_pem, ..none }
            }
            KeySource::KeySet { url, ca_pem } => Self { jwks_url: url, jwks_ca_pem: ca_pem, ..none },
            KeySource::Keys(keys) => Self { jwt_validation_pubkeys: keys, ..none },
        }
    }
}

impl TryFrom<KeySourceFields> for KeySource {
    type Error = Error;

    fn try_from(fields: KeySourceFields) -> Result<Self> {
        let KeySourceFields { oidc_discovery_url, oidc_discovery_ca_pem, jwks_url, jwks_ca_pem, .. } = fields;
        let keys = fields.jwt_validation_pubkeys;
        match (oidc_discovery_url.is_empty(), jwks_url.is_empty(), keys.is_empty()) {
            (false, true, true) => Ok(Self::Discovery { url: oidc_discovery_url, ca_pem: oidc_discovery_ca_pem }),
            (true, false, true) => Ok(Self::KeySet { url: jwks_url, ca_pem: jwks_ca_pem }),
            (true, true, false) => Ok(Self::Keys(keys)),
            _ => Err(not_one_source()),
        }
    }
}

fn not_one_source() -> Error {
    Error::invalid("exactly one of 'jwt_validation_pubkeys', 'jwks_url' or 'oidc_discovery_url' must be set")
}

impl JwtConfig {
    /// Returns the configuration to which a write applies its fields: the current one, or an empty one.
    pub(crate) fn for_write(current: Option<&Self>) -> Self {
        Self { written: ConfigWriteId::random(), ..current.cloned().unwrap_or_default() }
    }

    /// Sets the accepted algorithms; an empty list selects the default.
    ///
    /// # Errors
    /// `Invalid` for an unsupported algorithm, including `none` and those with a shared secret.
    pub(crate) fn set_algorithms(&mut self, names: &[String]) -> Result<()> {
        let of = |name: &String| {
            let known = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA";
            JwsAlgorithm::of(name).ok_or_else(|| Error::invalid(format!("invalid jwt_supported_algs: must be {known}")))
        };
        self.algorithms = names.iter().map(of).collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the configured algorithm names.
    pub(crate) fn algorithm_names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name()).collect()
    }

    pub(super) fn algorithms(&self) -> &[JwsAlgorithm] {
        if self.algorithms.is_empty() { DEFAULT_ALGORITHMS } else { &self.algorithms }
    }

    /// Creates the verifier without sending a request.
    ///
    /// # Errors
    /// `Invalid` with field and rule for an unusable configuration.
    pub(super) fn verifier(&self, settings: &LoginSettings, clock: &Clock) -> Result<JwtVerifier> {
        if self.bound_issuer.len() > MAX_ISSUER_BYTES {
            return Err(Error::invalid(format!("bound_issuer: longer than {MAX_ISSUER_BYTES} bytes")));
        }
        let published = |source, outbound| Ok(JwtVerifier::published(source, outbound, METHOD_NAME, clock.clone()));
        match &self.source {
            KeySource::None => Err(not_one_source()),
            KeySource::Keys(keys) => JwtVerifier::configured("jwt_validation_pubkeys", keys, clock.clone()),
            KeySource::KeySet { url, ca_pem } => {
                settings.reach.validate_url("jwks_url", url)?;
                let outbound = Outbound::for_caller_urls(settings.reach, "jwks_ca_pem", ca_pem)?;
                published(KeySetSource::KeySet(url.clone()), outbound)
            }
            KeySource::Discovery { url, ca_pem } => {
                const FIELD: &str = "oidc_discovery_url";
                if url.contains("/.well-known/") {
                    return Err(Error::invalid("'oidc_discovery_url' contains '.well-known' component"));
                }
                if settings.reach.validate_url(FIELD, url)?.query().is_some() {
                    return Err(Error::invalid("oidc_discovery_url: must have no query"));
                }
                let outbound = Outbound::for_caller_urls(settings.reach, "oidc_discovery_ca_pem", ca_pem)?;
                published(discovery_source(url), outbound)
            }
        }
    }

    /// Creates the verifier and checks that keys are available.
    ///
    /// # Errors
    /// `Invalid` for an unusable configuration; `Unavailable` if keys cannot be fetched.
    pub(crate) async fn check(&self, settings: &LoginSettings, clock: &Clock) -> Result<()> {
        self.verifier(settings, clock)?.check().await
    }
}

/// The discovery document of an issuer, which must name that issuer (OpenID Connect Discovery 1.0, 4.1 and 4.3).
fn discovery_source(issuer: &str) -> KeySetSource {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let issuer = issuer.to_owned();
    let accepts = move |document: &DiscoveryDocument| {
        if document.issuer == issuer {
            Ok(())
        } else {
            Err(Error::invalid("\"issuer\" differs from oidc_discovery_url"))
        }
    };
    KeySetSource::Discovery { url, accepts: Arc::new(accepts) }
}
