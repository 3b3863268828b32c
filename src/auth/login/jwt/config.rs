//! The configuration: whose tokens are taken, and where their keys are.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::login::config::Written;
use crate::auth::login::settings::LoginSettings;
use crate::auth::login::verifier::{Algorithm, Document, Source, Verifier};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::outbound::Outbound;

/// The method, in texts.
pub(super) const METHOD: &str = "jwt";
/// What tokens are signed with where nothing else is configured.
const USUAL: &[Algorithm] = &[Algorithm::RS256];
/// Longest issuer, bytes.
const MAX_ISSUER: usize = 2048;

/// A configuration, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JwtConfig {
    /// Where the keys are.
    pub(crate) source: KeySource,
    /// The issuer of tokens; empty for that of the discovery document, or any where there is none.
    pub(crate) bound_issuer: String,
    /// The role of logins that name none; empty for none.
    pub(crate) default_role: String,
    /// Means nothing here; kept for who reads it back.
    pub(crate) namespace_in_state: bool,
    /// What tokens may be signed with; empty for the usual one.
    algorithms: Vec<Algorithm>,
    /// The write that it is of.
    #[serde(default)]
    written: Written,
}

/// Where keys come from. `ca_pem` takes the place of the system's authorities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum KeySource {
    /// Nothing is configured yet.
    #[default]
    None,
    /// The address of the issuer, below which is its discovery document.
    Discovery { url: String, ca_pem: String },
    /// The address of a key set.
    KeySet { url: String, ca_pem: String },
    /// Public keys in PEM.
    Keys(Vec<String>),
}

impl JwtConfig {
    /// What a write begins with: what stands, or else one in which nothing is said yet.
    pub(crate) fn rewritten(standing: Option<&Self>) -> Self {
        let new = || Self { namespace_in_state: true, ..Self::default() };
        Self { written: Written::now(), ..standing.cloned().unwrap_or_else(new) }
    }

    /// Takes the names of algorithms; none for the usual one.
    ///
    /// # Errors
    /// `Invalid` for one that is not offered: those with a shared secret, and `none`, never are.
    pub(crate) fn set_algorithms(&mut self, names: &[String]) -> Result<()> {
        let of = |name: &String| {
            let known = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA";
            Algorithm::of(name).ok_or_else(|| Error::invalid(format!("invalid jwt_supported_algs: must be {known}")))
        };
        self.algorithms = names.iter().map(of).collect::<Result<_>>()?;
        Ok(())
    }

    /// The names that were written.
    pub(crate) fn algorithm_names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name()).collect()
    }

    /// What tokens may be signed with.
    pub(super) fn algorithms(&self) -> &[Algorithm] {
        if self.algorithms.is_empty() { USUAL } else { &self.algorithms }
    }

    /// What verifies tokens. Asks nobody.
    ///
    /// # Errors
    /// `Invalid`, naming field and rule, when nothing can come of the configuration.
    pub(super) fn verifier(&self, settings: &LoginSettings, clock: &Clock) -> Result<Verifier> {
        if self.bound_issuer.len() > MAX_ISSUER {
            return Err(Error::invalid(format!("bound_issuer: longer than {MAX_ISSUER} bytes")));
        }
        let published = |source, outbound| Ok(Verifier::published(source, outbound, METHOD, clock.clone()));
        match &self.source {
            KeySource::None => Err(Error::invalid(
                "exactly one of 'jwt_validation_pubkeys', 'jwks_url' or 'oidc_discovery_url' must be set",
            )),
            KeySource::Keys(keys) => Verifier::configured("jwt_validation_pubkeys", keys, clock.clone()),
            KeySource::KeySet { url, ca_pem } => {
                settings.reach.url("jwks_url", url)?;
                let outbound = Outbound::given(settings.reach, "jwks_ca_pem", ca_pem)?;
                published(Source::KeySet(url.clone()), outbound)
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
                published(discovery(url), outbound)
            }
        }
    }

    /// Builds it and looks whether keys can be had.
    ///
    /// # Errors
    /// `Invalid` as above; `Unavailable` when there are none now.
    pub(crate) async fn check(&self, settings: &LoginSettings, clock: &Clock) -> Result<()> {
        self.verifier(settings, clock)?.check().await
    }
}

/// The document below an issuer's address, which must be that issuer's (OpenID Connect Discovery 1.0, 4.1 and 4.3).
fn discovery(issuer: &str) -> Source {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let issuer = issuer.to_owned();
    let accepts = move |document: &Document| {
        if document.issuer == issuer { Ok(()) } else { Err(Error::invalid("it is about another issuer")) }
    };
    Source::Discovery { url, accepts: Arc::new(accepts) }
}
