//! The configuration of a `jwt` mount: the issuer of tokens, and the source of its keys.

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

/// Name of the method in error messages.
pub(super) const METHOD_NAME: &str = "jwt";
/// Signature algorithms that are accepted if the configuration lists none.
const DEFAULT_ALGORITHMS: &[JwsAlgorithm] = &[JwsAlgorithm::RS256];
const MAX_ISSUER_BYTES: usize = 2048;

resource! {
    /// The stored configuration of a `jwt` mount.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct JwtConfig {
        /// Source of the issuer's keys; requests and responses have [`KeySourceFields`] instead.
        stored source: KeySource;
        /// Issuer (`iss`) that tokens must have. If it is empty, tokens must have the issuer of the discovery document;
        /// if there is no such document, any issuer is accepted.
        text bound_issuer;
        /// Role of logins that name no role; empty for none.
        text default_role;
        /// Has no effect; stored and returned for compatibility.
        flag namespace_in_state = true;
        /// Accepted signature algorithms; empty for the default.
        stored algorithms: Vec<JwsAlgorithm> as ["jwt_supported_algs"];
        #[serde(default)]
        stored written: ConfigWriteId;
    }
}

/// Source of an issuer's public keys. If `ca_pem` is not empty, its CA certificates replace the system's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum KeySource {
    /// The mount has no configuration yet.
    #[default]
    None,
    /// The key set that the issuer's discovery document names; `url` is the URL of the issuer.
    Discovery { url: String, ca_pem: String },
    /// The key set published at `url`.
    KeySet { url: String, ca_pem: String },
    /// Public keys in PEM, which are part of the configuration.
    Keys(Vec<String>),
}

resource! {
    /// The fields of requests and responses for a [`KeySource`]. Only the fields of one kind of source are not empty.
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
    /// Returns the configuration to which a write applies its fields: the current one, or an empty one, with a new
    /// [`ConfigWriteId`].
    pub(crate) fn for_write(current: Option<&Self>) -> Self {
        Self { written: ConfigWriteId::random(), ..current.cloned().unwrap_or_default() }
    }

    /// Sets the accepted signature algorithms; an empty list selects the default.
    ///
    /// # Errors
    /// `Invalid` for an unsupported algorithm, including `none` and algorithms with a shared secret.
    pub(crate) fn set_algorithms(&mut self, names: &[String]) -> Result<()> {
        let of = |name: &String| {
            let known = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA";
            JwsAlgorithm::of(name).ok_or_else(|| Error::invalid(format!("invalid jwt_supported_algs: must be {known}")))
        };
        self.algorithms = names.iter().map(of).collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the names of the configured signature algorithms.
    pub(crate) fn algorithm_names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name()).collect()
    }

    pub(super) fn algorithms(&self) -> &[JwsAlgorithm] {
        if self.algorithms.is_empty() { DEFAULT_ALGORITHMS } else { &self.algorithms }
    }

    /// Creates the verifier of tokens without sending a request.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule, for an unusable configuration.
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

    /// Checks that the configuration is usable and that the issuer's keys are available.
    ///
    /// # Errors
    /// `Invalid` for an unusable configuration; `Unavailable` if the keys cannot be fetched.
    pub(crate) async fn check(&self, settings: &LoginSettings, clock: &Clock) -> Result<()> {
        self.verifier(settings, clock)?.check().await
    }
}

/// Returns the source that fetches the issuer's discovery document, and rejects a document that names another issuer
/// (OpenID Connect Discovery 1.0, 4.1 and 4.3).
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
