//! The keys of an issuer: published as a set (RFC 7517 5, RFC 7518 6, RFC 8037 2), or written into a configuration.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::algorithm::VerificationKey;
use super::token::{Header, Jwt};
use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::public_key::{self, PublicKey};

/// Most keys of a set.
const MAX_KEYS: usize = 100;
/// Most keys of a configuration, and the longest text of one.
const MAX_CONFIGURED: usize = 32;
const MAX_PEM: usize = 16 * 1024;
/// Most keys that are tried with a token that names none of them: nobody is known before one fits.
const MOST_TRIED: usize = MAX_CONFIGURED;

/// Keys, of which each verifies tokens of some algorithms.
pub(super) struct KeySet(Vec<Key>);

struct Key {
    kid: Option<String>,
    /// The one algorithm that it is for, where it says so.
    algorithm: Option<String>,
    key: VerificationKey,
}

/// What became of a token's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Verified,
    /// There is a key that it could be of, and it is not.
    Wrong,
    /// There is no key that it could be of.
    NoKey,
}

/// A set as it is published. What a key says beside this does not count.
#[derive(Deserialize)]
pub(super) struct Published {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct WebKey {
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
    /// The keys of a set that can be used. Keys of other kinds and for other uses may stand beside them.
    ///
    /// # Errors
    /// `Unavailable` when there is none, or there are too many.
    pub(super) fn published(set: Published, who: &str) -> Result<Self> {
        let wrong = |text: &str| Error::new(Kind::Unavailable, format!("{who}: {text}"));
        if set.keys.len() > MAX_KEYS {
            return Err(wrong("publishes more than 100 keys"));
        }
        let keys: Vec<Key> = set.keys.into_iter().filter_map(Key::published).collect();
        if keys.is_empty() { Err(wrong("publishes no key that can be used")) } else { Ok(Self(keys)) }
    }

    /// Keys that stand in a configuration, in PEM: public keys, and certificates for the sake of theirs.
    ///
    /// # Errors
    /// `Invalid` naming `field` and the rule.
    pub(super) fn configured(field: &str, texts: &[String]) -> Result<Self> {
        if texts.len() > MAX_CONFIGURED {
            return Err(Error::invalid(format!("{field}: more than {MAX_CONFIGURED} keys")));
        }
        let read = |text: &String| {
            if text.len() > MAX_PEM {
                return Err(Error::invalid(format!("{field}: a key is longer than {MAX_PEM} bytes")));
            }
            let key = configured(text).map_err(|error| error.within(field))?;
            let key = VerificationKey::new(&key).ok_or_else(|| {
                let rule = "must be RSA with 2048 to 8192 bits, EC of P-256, P-384 or P-521, or Ed25519";
                Error::invalid(format!("{field}: a key {rule}"))
            })?;
            Ok(Key { kid: None, algorithm: None, key })
        };
        texts.iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Tries the keys that a token could be of: where both have a name, the one of that name, else the first few.
    pub(super) fn verify(&self, token: &Jwt<'_>, header: &Header, needs_kid: bool) -> Outcome {
        let (message, signature) = token.signed();
        let mut outcome = Outcome::NoKey;
        for key in self.0.iter().filter(|key| key.could_be(header, needs_kid)).take(MOST_TRIED) {
            if key.key.verifies(header.algorithm, message, signature) {
                return Outcome::Verified;
            }
            outcome = Outcome::Wrong;
        }
        outcome
    }
}

impl Key {
    fn published(key: Value) -> Option<Self> {
        let key: WebKey = serde_json::from_value(key).ok()?;
        let is_for_signatures = key.usage.as_deref().is_none_or(|usage| usage == "sig");
        let verifies = key.key_ops.as_ref().is_none_or(|all| all.iter().any(|one| one == "verify"));
        if !is_for_signatures || !verifies {
            return None;
        }
        let public = key.public()?;
        let kid = key.kid.filter(|kid| !kid.is_empty());
        Some(Self { kid, algorithm: key.alg, key: VerificationKey::new(&public)? })
    }

    fn could_be(&self, header: &Header, needs_kid: bool) -> bool {
        let is_named = match (&self.kid, &header.kid) {
            (Some(own), Some(asked)) => own == asked,
            (None, _) | (_, None) => !needs_kid,
        };
        let is_for_it = self.algorithm.as_deref().is_none_or(|own| own == header.algorithm.name());
        is_named && is_for_it && self.key.fits(header.algorithm)
    }
}

impl WebKey {
    fn public(&self) -> Option<PublicKey> {
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let (kind, bits) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => return public_key::rsa(&number(&self.n)?, &number(&self.e)?).ok(),
            ("EC", Some(name)) => {
                let curve = match name {
                    "P-256" => Curve::P256,
                    "P-384" => Curve::P384,
                    "P-521" => Curve::P521,
                    _ => return None,
                };
                let (x, y) = (number(&self.x)?, number(&self.y)?);
                if [x.len(), y.len()] != [curve.octets(); 2] {
                    return None;
                }
                (KeyKind::Ec(curve), [&[4], x.as_slice(), &y].concat())
            }
            ("OKP", Some("Ed25519")) => (KeyKind::Ed25519, number(&self.x)?),
            _ => return None,
        };
        // Put together from what somebody says, and read as if it came from anywhere.
        PublicKey::parse(PublicKey::trusted(kind, &bits).spki()).ok()
    }
}

fn configured(text: &str) -> Result<PublicKey> {
    let only = || Error::invalid("must be one PEM block PUBLIC KEY or CERTIFICATE");
    let mut blocks = pem::blocks(text)?;
    let (Some((label, der)), true) = (blocks.pop(), blocks.is_empty()) else { return Err(only()) };
    match label.as_str() {
        "PUBLIC KEY" => PublicKey::parse(&der),
        "CERTIFICATE" => Ok(Certificate::submitted(&der)?.key().clone()),
        _ => Err(only()),
    }
}
