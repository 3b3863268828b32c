//! Keys of an issuer: a published set (RFC 7517 5, RFC 7518 6, RFC 8037 2), or configured in PEM.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::algorithm::VerificationKey;
use super::token::{Jwt, JwtHeader};
use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::public_key::{self, PublicKey};

/// Maximum number of keys in a published set.
const MAX_PUBLISHED_KEYS: usize = 100;
/// Maximum number of configured keys.
const MAX_CONFIGURED_KEYS: usize = 32;
/// Maximum length of a configured key, in bytes.
const MAX_PEM_BYTES: usize = 16 * 1024;
/// Maximum number of keys tried for a token that names none, since any client can send one.
const MAX_TRIED_KEYS: usize = MAX_CONFIGURED_KEYS;

pub(super) struct KeySet(Vec<IssuerKey>);

struct IssuerKey {
    kid: Option<String>,
    /// The only algorithm of the key, if it is restricted to one.
    algorithm: Option<String>,
    key: VerificationKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureOutcome {
    Verified,
    /// A matching key exists, but the signature is not valid.
    Wrong,
    /// No key matches.
    NoKey,
}

/// A published key set. Unknown members of a key are ignored.
#[derive(Deserialize)]
pub(super) struct PublishedKeySet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct JsonWebKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Collects the usable keys of a published set. Keys of other types or for other uses are skipped.
    ///
    /// # Errors
    /// `Unavailable` when there are none, or too many.
    pub(super) fn published(set: PublishedKeySet, who: &str) -> Result<Self> {
        let wrong = |text: &str| Error::new(Kind::Unavailable, format!("{who}: {text}"));
        if set.keys.len() > MAX_PUBLISHED_KEYS {
            return Err(wrong("publishes more than 100 keys"));
        }
        let keys: Vec<IssuerKey> = set.keys.into_iter().filter_map(IssuerKey::published).collect();
        if keys.is_empty() { Err(wrong("publishes no key that can be used")) } else { Ok(Self(keys)) }
    }

    /// Parses configured keys in PEM: public keys, or certificates, of which the key is used.
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
            let key = VerificationKey::new(&key).ok_or_else(|| {
                let rule = "must be RSA with 2048 to 8192 bits, EC of P-256, P-384 or P-521, or Ed25519";
                Error::invalid(format!("{field}: a key {rule}"))
            })?;
            Ok(IssuerKey { kid: None, algorithm: None, key })
        };
        texts.iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Tries the matching keys: by key id if both sides have one, else the first few.
    pub(super) fn verify(&self, token: &Jwt<'_>, header: &JwtHeader, needs_kid: bool) -> SignatureOutcome {
        let (message, signature) = token.signed_bytes_and_signature();
        let mut outcome = SignatureOutcome::NoKey;
        for key in self.0.iter().filter(|key| key.may_match(header, needs_kid)).take(MAX_TRIED_KEYS) {
            if key.key.verifies(header.algorithm, message, signature) {
                return SignatureOutcome::Verified;
            }
            outcome = SignatureOutcome::Wrong;
        }
        outcome
    }
}

impl IssuerKey {
    fn published(key: Value) -> Option<Self> {
        let key: JsonWebKey = serde_json::from_value(key).ok()?;
        let is_for_signatures = key.usage.as_deref().is_none_or(|usage| usage == "sig");
        let verifies = key.key_ops.as_ref().is_none_or(|all| all.iter().any(|one| one == "verify"));
        if !is_for_signatures || !verifies {
            return None;
        }
        let public = key.public()?;
        let kid = key.kid.filter(|kid| !kid.is_empty());
        Some(Self { kid, algorithm: key.alg, key: VerificationKey::new(&public)? })
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

impl JsonWebKey {
    fn public(&self) -> Option<PublicKey> {
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let (kind, bits) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => return public_key::rsa_key(&number(&self.n)?, &number(&self.e)?).ok(),
            ("EC", Some(name)) => {
                let curve = match name {
                    "P-256" => Curve::P256,
                    "P-384" => Curve::P384,
                    "P-521" => Curve::P521,
                    _ => return None,
                };
                let x = number(&self.x)?;
                let y = number(&self.y)?;
                if [x.len(), y.len()] != [curve.coordinate_len(); 2] {
                    return None;
                }
                (KeyKind::Ec(curve), [&[4], x.as_slice(), &y].concat())
            }
            ("OKP", Some("Ed25519")) => (KeyKind::Ed25519, number(&self.x)?),
            _ => return None,
        };
        // Assembled from untrusted values, so it is parsed like any received key.
        PublicKey::parse(PublicKey::trusted(kind, &bits).spki()).ok()
    }
}

fn parse_configured_key(text: &str) -> Result<PublicKey> {
    let only = || Error::invalid("must be one PEM block PUBLIC KEY or CERTIFICATE");
    let mut blocks = pem::parse_blocks(text)?;
    let (Some((label, der)), true) = (blocks.pop(), blocks.is_empty()) else { return Err(only()) };
    match label.as_str() {
        "PUBLIC KEY" => PublicKey::parse(&der),
        "CERTIFICATE" => Ok(Certificate::parse_untrusted(&der)?.key().clone()),
        _ => Err(only()),
    }
}
