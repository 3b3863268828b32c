//! Signature algorithms of tokens (RFC 7518 3.1, RFC 8037 3.1), and verification.

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm as Library, DecodingKey, crypto};
use serde::{Deserialize, Serialize};

use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::public_key::PublicKey;

/// A public-key signature algorithm. `none` and algorithms with a shared secret are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::auth) enum JwtAlgorithm {
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

pub(super) struct VerificationKey {
    kind: KeyKind,
    key: VerificationKeyForm,
}

/// A key in the form that its verification needs.
enum VerificationKeyForm {
    /// For the JWT library, which parses it for every token.
    Library(DecodingKey),
    /// Parsed once per algorithm: RSA, because parsing is slow, and P-521, which the JWT library does not support.
    Parsed(Vec<(JwtAlgorithm, ParsedPublicKey)>),
}

impl JwtAlgorithm {
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

    /// Returns the algorithm with this name, which is case-sensitive.
    pub(in crate::auth) fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(algorithm, _)| *algorithm)
    }

    pub(in crate::auth) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(algorithm, _)| *algorithm == self).map_or("", |(_, name)| name)
    }

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

    /// Returns the JWT library's algorithm, for keys that it parses.
    fn of_library(self) -> Option<Library> {
        Some(match self {
            Self::ES256 => Library::ES256,
            Self::ES384 => Library::ES384,
            Self::EdDsa => Library::EdDSA,
            _ => return None,
        })
    }

    fn of_parsed(self) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match self {
            Self::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::ES512 => &signature::ECDSA_P521_SHA512_FIXED,
            _ => return None,
        })
    }
}

impl VerificationKey {
    /// Creates a key; `None` for one that no algorithm accepts: P-224, or RSA with less than 2048 bits.
    pub(super) fn new(public: &PublicKey) -> Option<Self> {
        let kind = public.kind();
        let bits = public.bits();
        let key = match kind {
            KeyKind::Rsa { bits } if bits < 2048 => return None,
            KeyKind::Ec(Curve::P224) => return None,
            KeyKind::Rsa { .. } | KeyKind::Ec(Curve::P521) => VerificationKeyForm::Parsed(parse_key(kind, bits)?),
            KeyKind::Ec(_) => VerificationKeyForm::Library(DecodingKey::from_ec_der(bits)),
            KeyKind::Ed25519 => VerificationKeyForm::Library(DecodingKey::from_ed_der(bits)),
        };
        Some(Self { kind, key })
    }

    /// `true` if the key can verify tokens of this algorithm.
    pub(super) fn fits(&self, algorithm: JwtAlgorithm) -> bool {
        algorithm.fits(self.kind)
    }

    /// `true` if a base64url signature is valid for a message.
    pub(super) fn verifies(&self, algorithm: JwtAlgorithm, message: &[u8], signature: &str) -> bool {
        match &self.key {
            VerificationKeyForm::Library(key) => algorithm
                .of_library()
                .filter(|_| self.fits(algorithm))
                .is_some_and(|library| crypto::verify(signature, message, key, library).unwrap_or(false)),
            VerificationKeyForm::Parsed(keys) => {
                keys.iter().find(|(own, _)| *own == algorithm).is_some_and(|(_, key)| {
                    let signature = URL_SAFE_NO_PAD.decode(signature);
                    signature.is_ok_and(|signature| key.verify_sig(message, &signature).is_ok())
                })
            }
        }
    }
}

/// Parses a key for each of its algorithms; `None` if it is malformed.
fn parse_key(kind: KeyKind, bits: &[u8]) -> Option<Vec<(JwtAlgorithm, ParsedPublicKey)>> {
    let own = JwtAlgorithm::ALL.into_iter().map(|(algorithm, _)| algorithm).filter(|algorithm| algorithm.fits(kind));
    own.map(|algorithm| Some((algorithm, ParsedPublicKey::new(algorithm.of_parsed()?, bits).ok()?))).collect()
}
