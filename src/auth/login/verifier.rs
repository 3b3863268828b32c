//! Signed tokens of others (JWT, RFC 7519), verified.
//!
//! | part | owns |
//! |---|---|
//! | `token` | the compact form and the header |
//! | `json` | objects in which nothing is there twice |
//! | `algorithm` | signature algorithms, and verifying with them |
//! | `keys` | keys that are published or configured, and which of them a token could be of |
//! | `source` | where keys are published |
//! | `cache` | published keys, asked for seldom and kept while nobody can be asked |
//! | `rules` | issuer, audience, times |
//!
//! A method makes one [`Verifier`] for each write of its configuration. The order is: the form ([`Jwt::parse`]), the
//! header, the keys, the signature, the claims. Nothing is fetched for a token whose header is refused, and nothing
//! that a token says of where its key is counts. What is wrong with the form is `Invalid`, what is refused is
//! `Forbidden`, and keys that cannot be had are `Unavailable`.

mod algorithm;
mod cache;
mod json;
mod keys;
mod rules;
mod source;
mod token;

use std::sync::Arc;

pub(in crate::auth) use self::algorithm::Algorithm;
use self::cache::Cache;
use self::keys::{KeySet, Outcome};
use self::rules::refused;
pub(in crate::auth) use self::rules::{Claims, Rules, Times};
pub(in crate::auth) use self::source::{Accepts, Document, Source};
pub(in crate::auth) use self::token::Jwt;
use crate::clock::Clock;
use crate::error::Result;
use crate::outbound::Outbound;

/// What verifies the tokens of one issuer.
pub(in crate::auth) struct Verifier {
    keys: Keys,
    clock: Clock,
}

enum Keys {
    Configured(KeySet),
    Published(Arc<Cache>),
}

impl Verifier {
    /// With keys of the configuration, in PEM.
    ///
    /// # Errors
    /// `Invalid` naming `field` and the rule.
    pub(in crate::auth) fn configured(field: &str, keys: &[String], clock: Clock) -> Result<Self> {
        Ok(Self { keys: Keys::Configured(KeySet::configured(field, keys)?), clock })
    }

    /// With keys that are published. Asks nobody yet; `method` is the subject of texts.
    pub(in crate::auth) fn published(source: Source, outbound: Outbound, method: &'static str, clock: Clock) -> Self {
        Self { keys: Keys::Published(Cache::new(source, outbound, method, clock.clone())), clock }
    }

    /// Whether keys are there now, or can be had.
    ///
    /// # Errors
    /// `Unavailable`, saying why not.
    pub(in crate::auth) async fn check(&self) -> Result<()> {
        match &self.keys {
            Keys::Configured(_) => Ok(()),
            Keys::Published(cache) => cache.usable().await.map(drop),
        }
    }

    /// The claims of a token that is signed by the issuer and holds against the rules now.
    ///
    /// # Errors
    /// `Forbidden` for a token that is refused, `Unavailable` when the keys cannot be had.
    pub(in crate::auth) async fn verify(&self, token: &Jwt<'_>, rules: &Rules<'_>) -> Result<Claims> {
        let header = token.header(rules)?;
        let (outcome, issuer) = match &self.keys {
            Keys::Configured(keys) => (keys.verify(token, &header, false), None),
            Keys::Published(cache) => {
                let mut held = cache.usable().await?;
                let mut outcome = held.keys.verify(token, &header, rules.needs_kid);
                if outcome != Outcome::Verified {
                    // An issuer may have changed its keys.
                    let newer = match (outcome, cache.newer(&held).await) {
                        // The key is known, whoever can be asked.
                        (Outcome::Wrong, Err(_)) => None,
                        (_, newer) => newer?,
                    };
                    if let Some(newer) = newer {
                        outcome = newer.keys.verify(token, &header, rules.needs_kid);
                        held = newer;
                    }
                }
                (outcome, held.issuer.clone())
            }
        };
        match outcome {
            Outcome::Verified => {}
            Outcome::Wrong => return Err(refused("the token's signature is wrong")),
            Outcome::NoKey => return Err(refused("the token is signed with a key that is not known")),
        }
        let claims = token.claims().ok_or_else(|| refused("the token's claims are not understood"))?;
        Claims::checked(claims, rules, issuer.as_deref(), self.clock.now())
    }
}
