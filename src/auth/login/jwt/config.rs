//! Configuration: the issuer of tokens, and the source of its keys.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::login::config::ConfigWriteId;
use crate::auth::login::settings::LoginSettings;
use crate::auth::login::verifier::{DiscoveryDocument, JwtAlgorithm, KeySetSource, Verifier};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::outbound::Outbound;

/// Name of the method in messages.
pub(super) const METHOD_NAME: &str = "jwt";
/// Default signature algorithms.
const DEFAULT_ALGORITHMS: &[JwtAlgorithm] = &[JwtAlgorithm::RS256];
const MAX_ISSUER_BYTES: usize = 2048;

/// The configuration, as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JwtConfig {
    /// Source of the keys.
    pub(crate) source: KeySource,
    /// Required issuer; empty for that of the discovery document or, without one, for any.
    pub(crate) bound_issuer: String,
    /// Role of logins that name none; empty for none.
    pub(crate) default_role: String,
    /// Without effect; stored and returned.
    pub(crate) namespace_in_state: bool,
    /// Accepted algorithms; empty for the default.
    algorithms: Vec<JwtAlgorithm>,
    #[serde(default)]
    written: ConfigWriteId,
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

impl JwtConfig {
    /// Returns the initial value of a write: the current configuration, or an empty one.
    pub(crate) fn for_write(current: Option<&Self>) -> Self {
        let new = || Self { namespace_in_state: true, ..Self::default() };
        Self { written: ConfigWriteId::now(), ..current.cloned().unwrap_or_else(new) }
    }

    /// Sets the accepted algorithms; an empty list selects the default.
    ///
    /// # Errors
    /// `Invalid` for an unsupported algorithm, including `none` and those with a shared secret.
    pub(crate) fn set_algorithms(&mut self, names: &[String]) -> Result<()> {
        let of = |name: &String| {
            let known = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA";
            JwtAlgorithm::of(name).ok_or_else(|| Error::invalid(format!("invalid jwt_supported_algs: must be {known}")))
        };
        self.algorithms = names.iter().map(of).collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the configured algorithm names.
    pub(crate) fn algorithm_names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name()).collect()
    }

    pub(super) fn algorithms(&self) -> &[JwtAlgorithm] {
        if self.algorithms.is_empty() { DEFAULT_ALGORITHMS } else { &self.algorithms }
    }

    /// Creates the verifier without sending a request.
    ///
    /// # Errors
    /// `Invalid` with field and rule for an unusable configuration.
    pub(super) fn verifier(&self, settings: &LoginSettings, clock: &Clock) -> Result<Verifier> {
        if self.bound_issuer.len() > MAX_ISSUER_BYTES {
            return Err(Error::invalid(format!("bound_issuer: longer than {MAX_ISSUER_BYTES} bytes")));
        }
        let published = |source, outbound| Ok(Verifier::published(source, outbound, METHOD_NAME, clock.clone()));
        match &self.source {
            KeySource::None => Err(Error::invalid(
                "exactly one of 'jwt_validation_pubkeys', 'jwks_url' or 'oidc_discovery_url' must be set",
            )),
            KeySource::Keys(keys) => Verifier::configured("jwt_validation_pubkeys", keys, clock.clone()),
            KeySource::KeySet { url, ca_pem } => {
                settings.reach.url("jwks_url", url)?;
                let outbound = Outbound::given(settings.reach, "jwks_ca_pem", ca_pem)?;
                published(KeySetSource::KeySet(url.clone()), outbound)
            }
            KeySource::Discovery { url, ca_pem } => {
                const FIELD: &str = "oidc_discovery_url";
                if url.contains("/.well-known/") {
                    return Err(Error::invalid("'oidc_discovery_url' contains '.well-known' component"));
                }
                if settings.reach.url(FIELD, url)?.query().is_some() {
                    return Err(Error::invalid("oidc_discovery_url: must have no query"));
                }
                let outbound = Outbound::given(settings.reach, "oidc_discovery_ca_pem", ca_pem)?;
                published(discovery_source(url), outbound)
            }
        }
    }

    /// Creates the verifier and checks that keys are available.
    ///
    /// # Errors
    /// `Invalid` as above; `Unavailable` without keys.
    pub(crate) async fn check(&self, settings: &LoginSettings, clock: &Clock) -> Result<()> {
        self.verifier(settings, clock)?.check().await
    }
}

/// The discovery document of an issuer, which must name that issuer (OpenID Connect Discovery 1.0, 4.1 and 4.3).
fn discovery_source(issuer: &str) -> KeySetSource {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let issuer = issuer.to_owned();
    let accepts = move |document: &DiscoveryDocument| {
        if document.issuer == issuer { Ok(()) } else { Err(Error::invalid("its issuer is not the configured one")) }
    };
    KeySetSource::Discovery { url, accepts: Arc::new(accepts) }
}
