//! The signing algorithms of Google Cloud KMS. A key has exactly one, which determines its type, the scheme and the
//! hash.

use crate::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CkmsAlgorithm {
    pub(super) name: &'static str,
    pub(super) kind: KeyKind,
    pub(super) signature_algorithm: SignatureAlgorithm,
}

const fn algorithm(name: &'static str, kind: KeyKind, signature_algorithm: SignatureAlgorithm) -> CkmsAlgorithm {
    CkmsAlgorithm { name, kind, signature_algorithm }
}

const fn rsa(bits: u32) -> KeyKind {
    KeyKind::Rsa { bits }
}

const CKMS_ALGORITHMS: [CkmsAlgorithm; 10] = {
    use Hash::{Sha256, Sha384, Sha512};
    use SignatureAlgorithm::{Ecdsa, RsaPkcs1, RsaPss};
    [
        algorithm("EC_SIGN_P256_SHA256", KeyKind::Ec(Curve::P256), Ecdsa(Sha256)),
        algorithm("EC_SIGN_P384_SHA384", KeyKind::Ec(Curve::P384), Ecdsa(Sha384)),
        algorithm("RSA_SIGN_PSS_2048_SHA256", rsa(2048), RsaPss(Sha256)),
        algorithm("RSA_SIGN_PSS_3072_SHA256", rsa(3072), RsaPss(Sha256)),
        algorithm("RSA_SIGN_PSS_4096_SHA256", rsa(4096), RsaPss(Sha256)),
        algorithm("RSA_SIGN_PSS_4096_SHA512", rsa(4096), RsaPss(Sha512)),
        algorithm("RSA_SIGN_PKCS1_2048_SHA256", rsa(2048), RsaPkcs1(Sha256)),
        algorithm("RSA_SIGN_PKCS1_3072_SHA256", rsa(3072), RsaPkcs1(Sha256)),
        algorithm("RSA_SIGN_PKCS1_4096_SHA256", rsa(4096), RsaPkcs1(Sha256)),
        algorithm("RSA_SIGN_PKCS1_4096_SHA512", rsa(4096), RsaPkcs1(Sha512)),
    ]
};

impl CkmsAlgorithm {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        CKMS_ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }

    pub(super) fn names() -> String {
        CKMS_ALGORITHMS.each_ref().map(|algorithm| algorithm.name).join(", ")
    }
}
