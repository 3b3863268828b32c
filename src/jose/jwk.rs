//! Public keys in JSON format (RFC 7517 4, RFC 7518 6, RFC 8037 2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::public_key::{self, PublicKey};

/// A JSON Web Key as it was received. Unknown members are ignored.
#[derive(Deserialize)]
pub(crate) struct JsonWebKey {
    kty: String,
    pub(crate) kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    /// The only signature algorithm for which the key may be used; `None` for no restriction.
    pub(crate) alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl JsonWebKey {
    /// `true` if `use` and `key_ops` allow the verification of signatures.
    pub(crate) fn is_for_signatures(&self) -> bool {
        self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|all| all.iter().any(|operation| operation == "verify"))
    }

    /// Validates the key and converts it to a public key; `None` for an unsupported type and for malformed values.
    pub(crate) fn public_key(&self) -> Option<PublicKey> {
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let (kind, bits) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => return public_key::rsa_public_key(&number(&self.n)?, &number(&self.e)?).ok(),
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
        // The key is assembled from untrusted values, so it is parsed like any received key.
        PublicKey::parse(PublicKey::from_trusted_bits(kind, &bits).spki()).ok()
    }
}
