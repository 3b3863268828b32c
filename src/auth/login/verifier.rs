//! Verification of signed tokens of other systems (JWT, RFC 7519).
//!
//! A method creates one [`Verifier`] per write of its configuration. The steps are: format ([`Jwt::parse`]), header,
//! keys, signature, claims. A token with a rejected header causes no request, and references to keys inside a token are
//! ignored. A malformed token is `Invalid`, a rejected one `Forbidden`; keys that cannot be fetched are `Unavailable`.

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

/// Verifies the tokens of one issuer.
pub(in crate::auth) struct Verifier {
    keys: Keys,
    clock: Clock,
}

enum Keys {
    Configured(KeySet),
    Published(Arc<Cache>),
}

impl Verifier {
    /// Creates a verifier with configured keys in PEM.
    ///
    /// # Errors
    /// `Invalid` with `field` and the rule.
    pub(in crate::auth) fn configured(field: &str, keys: &[String], clock: Clock) -> Result<Self> {
        Ok(Self { keys: Keys::Configured(KeySet::configured(field, keys)?), clock })
    }

    /// Creates a verifier with published keys, without sending a request; `method` is the prefix of messages.
    pub(in crate::auth) fn published(source: Source, outbound: Outbound, method: &'static str, clock: Clock) -> Self {
        Self { keys: Keys::Published(Cache::new(source, outbound, method, clock.clone())), clock }
    }

    /// Checks that keys are cached or can be fetched.
    ///
    /// # Errors
    /// `Unavailable` with the reason.
    pub(in crate::auth) async fn check(&self) -> Result<()> {
        match &self.keys {
            Keys::Configured(_) => Ok(()),
            Keys::Published(cache) => cache.usable().await.map(drop),
        }
    }

    /// Verifies signature and claims of a token, and returns the claims.
    ///
    /// # Errors
    /// `Forbidden` for a rejected token, `Unavailable` when keys cannot be fetched.
    pub(in crate::auth) async fn verify(&self, token: &Jwt<'_>, rules: &Rules<'_>) -> Result<Claims> {
        let header = token.header(rules)?;
        let (outcome, issuer) = match &self.keys {
            Keys::Configured(keys) => (keys.verify(token, &header, false), None),
            Keys::Published(cache) => {
                let mut held = cache.usable().await?;
                let mut outcome = held.keys.verify(token, &header, rules.needs_kid);
                if outcome != Outcome::Verified {
                    // The issuer may have rotated its keys.
                    let newer = match (outcome, cache.newer(&held).await) {
                        // The key is known, so its result counts even if the issuer is unavailable.
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
