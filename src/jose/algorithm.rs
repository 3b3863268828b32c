//! Signature algorithms of JWS (RFC 7518 3.1, RFC 8037 3.1), and the verification of signatures.

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use serde::{Deserialize, Serialize};

use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::public_key::PublicKey;

/// A public-key signature algorithm. `none` and algorithms with a shared secret are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JwsAlgorithm {
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

/// A public key for verifying signatures, parsed once for each signature algorithm that fits the key, because parsing
/// is slow.
pub(crate) struct JwsVerificationKey(Vec<(JwsAlgorithm, ParsedPublicKey)>);

impl JwsAlgorithm {
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

    /// Returns the algorithm with this name; names are case-sensitive.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(algorithm, _)| *algorithm)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(algorithm, _)| *algorithm == self).map_or("", |(_, name)| name)
    }

    fn fits(self, kind: KeyKind) -> bool {
        match self {
            Self::RS256 | Self::RS384 | Self::RS512 | Self::PS256 | Self::PS384 | Self::PS512 => {
                matches!(kind, KeyKind::Rsa { bits } if bits >= 2048)
            }
            Self::ES256 => kind == KeyKind::Ec(Curve::P256),
            Self::ES384 => kind == KeyKind::Ec(Curve::P384),
            Self::ES512 => kind == KeyKind::Ec(Curve::P521),
            Self::EdDsa => kind == KeyKind::Ed25519,
        }
    }

    fn verifier(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::ES256 => &signature::ECDSA_P256_SHA256_FIXED,
            Self::ES384 => &signature::ECDSA_P384_SHA384_FIXED,
            Self::ES512 => &signature::ECDSA_P521_SHA512_FIXED,
            Self::EdDsa => &signature::ED25519,
        }
    }
}

impl JwsVerificationKey {
    /// Parses a public key; `None` if the key is malformed or fits no algorithm (P-224, or RSA with less than 2048
    /// bits).
    pub(crate) fn new(public: &PublicKey) -> Option<Self> {
        let fitting = JwsAlgorithm::ALL.into_iter().map(|(algorithm, _)| algorithm).filter(|a| a.fits(public.kind()));
        let parsed = fitting.map(|a| Some((a, ParsedPublicKey::new(a.verifier(), public.bits()).ok()?)));
        parsed.collect::<Option<Vec<_>>>().filter(|parsed| !parsed.is_empty()).map(Self)
    }

    /// `true` if the key can verify signatures of this algorithm.
    pub(crate) fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        self.0.iter().any(|(known, _)| *known == algorithm)
    }

    /// `true` if `signature` is a valid signature of `message` by this key with this algorithm.
    pub(super) fn verifies(&self, algorithm: JwsAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let key = self.0.iter().find(|(known, _)| *known == algorithm);
        key.is_some_and(|(_, key)| key.verify_sig(message, signature).is_ok())
    }
}
