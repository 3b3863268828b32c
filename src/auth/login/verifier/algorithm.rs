//! The signature algorithms of tokens (RFC 7518 3.1, RFC 8037 3.1), and the one place that verifies with them.

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm as Library, DecodingKey, crypto};
use serde::{Deserialize, Serialize};

use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::public_key::PublicKey;

/// An algorithm with a public key. Those with a shared secret, and `none`, are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::auth) enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    ES512,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// A public key that tokens are verified with.
pub(super) struct VerificationKey {
    kind: KeyKind,
    key: DecodingKey,
    /// The point of a P-521 key, whose algorithm the library does not have.
    point: Vec<u8>,
}

impl Algorithm {
    const ALL: [(Self, &'static str); 10] = [
        (Self::RS256, "RS256"),
        (Self::RS384, "RS384"),
        (Self::RS512, "RS512"),
        (Self::PS256, "PS256"),
        (Self::PS384, "PS384"),
        (Self::PS512, "PS512"),
        (Self::ES256, "ES256"),
        (Self::ES384, "ES384"),
        (Self::ES512, "ES512"),
        (Self::EdDsa, "EdDSA"),
    ];

    /// The algorithm of a name; `None` for others, and for other cases of letters.
    pub(in crate::auth) fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(algorithm, _)| *algorithm)
    }

    pub(in crate::auth) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(algorithm, _)| *algorithm == self).map_or("", |(_, name)| name)
    }

    /// Whether a key is for it.
    fn fits(self, kind: KeyKind) -> bool {
        match self {
            Self::RS256 | Self::RS384 | Self::RS512 | Self::PS256 | Self::PS384 | Self::PS512 => {
                matches!(kind, KeyKind::Rsa { .. })
            }
            Self::ES256 => kind == KeyKind::Ec(Curve::P256),
            Self::ES384 => kind == KeyKind::Ec(Curve::P384),
            Self::ES512 => kind == KeyKind::Ec(Curve::P521),
            Self::EdDsa => kind == KeyKind::Ed25519,
        }
    }

    /// The library's name of it; `None` for the one that it does not have.
    fn of_library(self) -> Option<Library> {
        Some(match self {
            Self::RS256 => Library::RS256,
            Self::RS384 => Library::RS384,
            Self::RS512 => Library::RS512,
            Self::PS256 => Library::PS256,
            Self::PS384 => Library::PS384,
            Self::PS512 => Library::PS512,
            Self::ES256 => Library::ES256,
            Self::ES384 => Library::ES384,
            Self::ES512 => return None,
            Self::EdDsa => Library::EdDSA,
        })
    }
}

impl VerificationKey {
    /// `None` for a key that no algorithm is for: of P-224, or of RSA with less than 2048 bits.
    pub(super) fn new(public: &PublicKey) -> Option<Self> {
        let bits = public.bits();
        let (key, point) = match public.kind() {
            KeyKind::Rsa { bits: size } if size >= 2048 => (DecodingKey::from_rsa_der(bits), Vec::new()),
            KeyKind::Rsa { .. } | KeyKind::Ec(Curve::P224) => return None,
            KeyKind::Ec(_) => (DecodingKey::from_ec_der(bits), bits.to_vec()),
            KeyKind::Ed25519 => (DecodingKey::from_ed_der(bits), Vec::new()),
        };
        Some(Self { kind: public.kind(), key, point })
    }

    /// Whether tokens of an algorithm can be verified with it.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        algorithm.fits(self.kind)
    }

    /// Whether a signature, in base64url, is that of a message.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &str) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        match algorithm.of_library() {
            Some(library) => crypto::verify(signature, message, &self.key, library).unwrap_or(false),
            None => URL_SAFE_NO_PAD.decode(signature).is_ok_and(|signature| {
                UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, &self.point).verify(message, &signature).is_ok()
            }),
        }
    }
}
