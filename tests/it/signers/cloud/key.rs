//! A key of a simulated service, which signs digests.

use aws_lc_rs::digest::Digest;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use aws_lc_rs::{digest, error::Unspecified};
use signet::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use signet::x509::public_key::PublicKey;

pub enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl Key {
    pub fn generate(kind: KeyKind) -> Self {
        let rsa = |size| Self::Rsa(RsaKeyPair::generate(size).unwrap());
        match kind {
            KeyKind::Rsa { bits: 2048 } => rsa(KeySize::Rsa2048),
            KeyKind::Rsa { bits: 3072 } => rsa(KeySize::Rsa3072),
            KeyKind::Rsa { bits: 4096 } => rsa(KeySize::Rsa4096),
            KeyKind::Ec(Curve::P256) => Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap()),
            KeyKind::Ec(Curve::P384) => Self::Ec(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).unwrap()),
            _ => panic!("no service makes {kind:?}"),
        }
    }

    pub fn spki(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Rsa(key) => key.public_key().as_der().unwrap(),
            Self::Ec(key) => key.public_key().as_der().unwrap(),
        };
        der.as_ref().to_vec()
    }

    pub fn numbers(&self) -> [Vec<u8>; 2] {
        let key = PublicKey::parse(&self.spki()).unwrap();
        // RSAPublicKey (RFC 8017, A.1.1): a sequence of two integers; the first has a two-byte length.
        let (head, rest) = key.bits().split_at(8);
        assert_eq!((head[0], head[4], head[5]), (0x30, 0x02, 0x82));
        let (modulus, exponent) = rest.split_at(usize::from(head[6]) << 8 | usize::from(head[7]));
        [modulus, &exponent[2..]].map(<[u8]>::to_vec)
    }

    /// Signs a digest. Fails if its length or the algorithm does not fit.
    pub fn sign(&self, algorithm: SignatureAlgorithm, digest: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let hash = match algorithm.hash().ok_or(Unspecified)? {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
            Hash::Sha512 => &digest::SHA512,
        };
        let digest = Digest::import_less_safe(digest, hash)?;
        match (self, algorithm) {
            (Self::Ec(key), SignatureAlgorithm::Ecdsa(_)) => Ok(key.sign_digest(&digest)?.as_ref().to_vec()),
            (Self::Rsa(key), _) => {
                let encoding: &'static dyn RsaEncoding = match algorithm {
                    SignatureAlgorithm::RsaPkcs1(Hash::Sha256) => &RSA_PKCS1_SHA256,
                    SignatureAlgorithm::RsaPkcs1(Hash::Sha384) => &RSA_PKCS1_SHA384,
                    SignatureAlgorithm::RsaPkcs1(Hash::Sha512) => &RSA_PKCS1_SHA512,
                    SignatureAlgorithm::RsaPss(Hash::Sha256) => &RSA_PSS_SHA256,
                    SignatureAlgorithm::RsaPss(Hash::Sha384) => &RSA_PSS_SHA384,
                    SignatureAlgorithm::RsaPss(Hash::Sha512) => &RSA_PSS_SHA512,
                    _ => return Err(Unspecified),
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign_digest(encoding, &digest, &mut signature)?;
                Ok(signature)
            }
            _ => Err(Unspecified),
        }
    }
}
