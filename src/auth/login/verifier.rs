//! Verification of signed tokens of other systems (JWT, RFC 7519).
//!
//! A method creates one [`JwtVerifier`] per write of its configuration. The steps are: format ([`parse_jwt`]), header,
//! keys, signature, claims. A token with a rejected header causes no request, and references to keys inside a token are
//! ignored. The error is `Invalid` for a malformed token, `Forbidden` for a rejected token, and `Unavailable` if keys
//! cannot be fetched.

mod cache;
mod keys;
mod rules;
mod source;
mod token;

use std::sync::Arc;

use self::cache::KeySetCache;
use self::keys::{KeySet, SignatureOutcome};
pub(in crate::auth) use self::rules::{JwtRules, JwtTimeRules, VerifiedClaims, forbidden};
pub(in crate::auth) use self::source::{DiscoveryCheck, DiscoveryDocument, KeySetSource};
use self::token::JwtHeader;
pub(in crate::auth) use self::token::parse_jwt;
use crate::clock::Clock;
use crate::error::Result;
use crate::jose::CompactJws;
use crate::outbound::Outbound;

/// Verifies the tokens of one issuer, with configured or published keys.
pub(in crate::auth) struct JwtVerifier {
    keys: VerifierKeys,
    clock: Clock,
}

enum VerifierKeys {
    Configured(KeySet),
    Published(Arc<KeySetCache>),
}

impl JwtVerifier {
    /// Creates a verifier with configured keys in PEM.
    ///
    /// # Errors
    /// `Invalid` with `field` and the rule.
    pub(in crate::auth) fn configured(field: &str, keys: &[String], clock: Clock) -> Result<Self> {
        Ok(Self { keys: VerifierKeys::Configured(KeySet::configured(field, keys)?), clock })
    }

    /// Creates a verifier that fetches the keys from `source` when it needs them; `method` is the prefix of messages.
    pub(in crate::auth) fn published(
        source: KeySetSource,
        outbound: Outbound,
        method: &'static str,
        clock: Clock,
    ) -> Self {
        Self { keys: VerifierKeys::Published(KeySetCache::new(source, outbound, method, clock.clone())), clock }
    }

    /// Checks that the issuer's keys are cached or can be fetched.
    ///
    /// # Errors
    /// `Unavailable` with the reason.
    pub(in crate::auth) async fn check(&self) -> Result<()> {
        match &self.keys {
            VerifierKeys::Configured(_) => Ok(()),
            VerifierKeys::Published(cache) => cache.usable_keys().await.map(drop),
        }
    }

    /// Verifies signature and claims of a token, and returns the claims.
    ///
    /// # Errors
    /// `Forbidden` for a rejected token, `Unavailable` when keys cannot be fetched.
    pub(in crate::auth) async fn verify(&self, token: &CompactJws<'_>, rules: &JwtRules<'_>) -> Result<VerifiedClaims> {
        let header = JwtHeader::of(token, rules)?;
        let (outcome, issuer) = match &self.keys {
            VerifierKeys::Configured(keys) => (keys.verify(token, &header, false), None),
            VerifierKeys::Published(cache) => {
                let mut cached = cache.usable_keys().await?;
                let mut outcome = cached.keys.verify(token, &header, rules.needs_kid);
                if outcome != SignatureOutcome::Verified {
                    // The issuer may have rotated its keys, so newer keys are tried.
                    let newer = match (outcome, cache.key_set_newer_than(&cached).await) {
                        // The signature does not match a known key, so the token is rejected even if the issuer is
                        // unavailable.
                        (SignatureOutcome::Invalid, Err(_)) => None,
                        (_, newer) => newer?,
                    };
                    if let Some(newer) = newer {
                        outcome = newer.keys.verify(token, &header, rules.needs_kid);
                        cached = newer;
                    }
                }
                (outcome, cached.issuer.clone())
            }
        };
        match outcome {
            SignatureOutcome::Verified => {}
            SignatureOutcome::Invalid => return Err(forbidden("the token's signature is wrong")),
            SignatureOutcome::NoMatchingKey => {
                return Err(forbidden("the token is signed with a key that is not known"));
            }
        }
        let claims = token
            .payload()
            .ok_or_else(|| forbidden("the token's claims are not a JSON object without duplicate members"))?;
        VerifiedClaims::validated(claims, rules, issuer.as_deref(), self.clock.now())
    }
}
