//! Public keys of an issuer: a published set (RFC 7517 5), or keys configured in PEM.

use serde::Deserialize;
use serde_json::Value;

use super::token::JwtHeader;
use crate::error::{Error, Kind, Result};
use crate::jose::{CompactJws, JsonWebKey, JwsVerificationKey};
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::public_key::PublicKey;

/// Maximum number of keys in a published key set.
const MAX_PUBLISHED_KEYS: usize = 100;
/// Maximum number of keys in a mount's configuration.
const MAX_CONFIGURED_KEYS: usize = 32;
/// Maximum length of a configured key in PEM, in bytes.
const MAX_PEM_BYTES: usize = 16 * 1024;
/// Maximum number of keys tried for one token. A token without a key id matches every key, and any client can send such
/// a token.
const MAX_TRIED_KEYS: usize = MAX_CONFIGURED_KEYS;

pub(super) struct KeySet(Vec<IssuerKey>);

struct IssuerKey {
    kid: Option<String>,
    /// The only signature algorithm for which the key may be used; `None` if it may be used for all algorithms that fit
    /// it.
    algorithm: Option<String>,
    key: JwsVerificationKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureOutcome {
    Verified,
    /// A key matches the token's header, but the signature is not valid for that key.
    Invalid,
    /// No key matches the token's header.
    NoMatchingKey,
}

/// A key set as the issuer publishes it. Keys are parsed one by one, so that unknown keys can be skipped.
#[derive(Deserialize)]
pub(super) struct PublishedKeySet {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses the usable keys of a published key set. Keys of unsupported types or for other uses are skipped. `who` is
    /// the prefix of error messages.
    ///
    /// # Errors
    /// `Unavailable` when there is no usable key, or too many keys.
    pub(super) fn published(set: PublishedKeySet, who: &str) -> Result<Self> {
        let wrong = |text: &str| Error::new(Kind::Unavailable, format!("{who}: {text}"));
        if set.keys.len() > MAX_PUBLISHED_KEYS {
            return Err(wrong("contains more than 100 keys"));
        }
        let keys: Vec<IssuerKey> = set.keys.into_iter().filter_map(IssuerKey::published).collect();
        if keys.is_empty() { Err(wrong("contains no usable key")) } else { Ok(Self(keys)) }
    }

    /// Parses configured keys in PEM. Each is a public key, or a certificate that contains the public key.
    ///
    /// # Errors
    /// `Invalid` with `field` and the rule.
    pub(super) fn configured(field: &str, texts: &[String]) -> Result<Self> {
        if texts.len() > MAX_CONFIGURED_KEYS {
            return Err(Error::invalid(format!("{field}: more than {MAX_CONFIGURED_KEYS} keys")));
        }
        let read = |text: &String| {
            if text.len() > MAX_PEM_BYTES {
                return Err(Error::invalid(format!("{field}: a key is longer than {MAX_PEM_BYTES} bytes")));
            }
            let key = parse_configured_key(text).map_err(|error| error.within(field))?;
            let key = JwsVerificationKey::new(&key).ok_or_else(|| {
                let rule = "must be RSA with 2048 to 8192 bits, EC of P-256, P-384 or P-521, or Ed25519";
                Error::invalid(format!("{field}: a key {rule}"))
            })?;
            Ok(IssuerKey { kid: None, algorithm: None, key })
        };
        texts.iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Verifies the signature with each key that matches the token's header, at most `MAX_TRIED_KEYS`. If key and token
    /// both have a key id, they match only if the ids are equal. If one of them has none, they match only if
    /// `needs_kid` is `false`.
    pub(super) fn verify(&self, token: &CompactJws<'_>, header: &JwtHeader, needs_kid: bool) -> SignatureOutcome {
        let mut outcome = SignatureOutcome::NoMatchingKey;
        for key in self.0.iter().filter(|key| key.may_match(header, needs_kid)).take(MAX_TRIED_KEYS) {
            if token.is_signed_by(&key.key, header.algorithm) {
                return SignatureOutcome::Verified;
            }
            outcome = SignatureOutcome::Invalid;
        }
        outcome
    }
}

impl IssuerKey {
    fn published(key: Value) -> Option<Self> {
        let key: JsonWebKey = serde_json::from_value(key).ok()?;
        if !key.is_for_signatures() {
            return None;
        }
        let parsed = JwsVerificationKey::new(&key.public_key()?)?;
        let kid = key.kid.filter(|kid| !kid.is_empty());
        Some(Self { kid, algorithm: key.alg, key: parsed })
    }

    fn may_match(&self, header: &JwtHeader, needs_kid: bool) -> bool {
        let is_named = match (&self.kid, &header.kid) {
            (Some(own), Some(requested)) => own == requested,
            (None, _) | (_, None) => !needs_kid,
        };
        let is_for_it = self.algorithm.as_deref().is_none_or(|own| own == header.algorithm.name());
        is_named && is_for_it && self.key.fits(header.algorithm)
    }
}

fn parse_configured_key(text: &str) -> Result<PublicKey> {
    let only = || Error::invalid("must be a single PEM block of type PUBLIC KEY or CERTIFICATE");
    let mut blocks = pem::parse_blocks(text)?;
    let (Some((label, der)), true) = (blocks.pop(), blocks.is_empty()) else { return Err(only()) };
    match label.as_str() {
        "PUBLIC KEY" => PublicKey::parse(&der),
        "CERTIFICATE" => Ok(Certificate::parse_untrusted(&der)?.key().clone()),
        _ => Err(only()),
    }
}
