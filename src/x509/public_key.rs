//! Public keys: validation of SubjectPublicKeyInfo, and verification of signatures.
//!
//! Supported are rsaEncryption, id-ecPublicKey on the four named curves with an uncompressed point on the curve, and
//! Ed25519. RSA keys above 8192 bits, and exponents that are even, below 3 or above 2³³, are rejected before any
//! arithmetic. Callers check minimum sizes.

use std::fmt;
use std::sync::OnceLock;

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::signature::{self, ParsedPublicKey, UnparsedPublicKey, VerificationAlgorithm};
use p224::ecdsa::signature::hazmat::PrehashVerifier;

use super::algorithm::{Curve, Hash, KeyKind, Sha1Algorithm, SignatureAlgorithm};
use super::oid;
use super::reader::{DerError, DerReader, DerResult, to_u64};
use super::writer::{NULL, SEQUENCE, build};
use crate::error::{Error, Result};

const MAX_RSA_BITS: u32 = 8192;
const MAX_RSA_EXPONENT: u64 = 1 << 33;
const UNSUPPORTED_KEY: DerError = DerError("unsupported public key");

/// A public key, with its original encoding.
#[derive(Clone)]
pub struct PublicKey {
    spki: Vec<u8>,
    /// Byte offset in `spki` at which the content of the BIT STRING begins; it extends to the end of `spki`.
    bits_start: usize,
    kind: KeyKind,
    /// The key as parsed by the crypto library, which binds it to one algorithm: the usual algorithm of its kind or,
    /// for RSA, the algorithm of the first digest that was verified.
    parsed: OnceLock<(SignatureAlgorithm, ParsedPublicKey)>,
}

impl PublicKey {
    /// Reads and validates a SubjectPublicKeyInfo (RFC 5280 4.1.2.7).
    ///
    /// # Errors
    /// `Invalid` with "unsupported public key" for other algorithms, else with the violated rule.
    pub fn parse(spki_der: &[u8]) -> Result<Self> {
        Self::read(spki_der).map_err(|e| e.into_error("public key"))
    }

    fn read(spki_der: &[u8]) -> DerResult<Self> {
        let mut reader = DerReader::read_single(spki_der, SEQUENCE)?.reader();
        let algorithm = reader.sequence()?;
        let bits = reader.bit_string()?;
        reader.done()?;
        let kind = check_key_bits(read_key_algorithm(algorithm)?.ok_or(UNSUPPORTED_KEY)?, bits)?;
        let parsed = match kind {
            KeyKind::Rsa { .. } => None,
            KeyKind::Ec(Curve::P224) => {
                p224::PublicKey::from_sec1_bytes(bits).map_err(|_| DerError("the EC point is not on the curve"))?;
                None
            }
            KeyKind::Ec(curve) => {
                let key = ParsedPublicKey::new(ecdsa_verifier(curve, curve.hash()).ok_or(UNSUPPORTED_KEY)?, spki_der)
                    .map_err(|_| DerError("the EC point is not on the curve"))?;
                Some((SignatureAlgorithm::Ecdsa(curve.hash()), key))
            }
            KeyKind::Ed25519 => {
                let key = ParsedPublicKey::new(&signature::ED25519, bits)
                    .map_err(|_| DerError("malformed Ed25519 public key"))?;
                Some((SignatureAlgorithm::Ed25519, key))
            }
        };
        let parsed = parsed.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Self { spki: spki_der.to_vec(), bits_start: spki_der.len() - bits.len(), kind, parsed })
    }

    /// Creates a key from the BIT STRING content of a key that this process generated or loaded, without validation.
    pub(crate) fn from_trusted_bits(kind: KeyKind, bits: &[u8]) -> Self {
        let spki = build(SEQUENCE, bits.len() + 40, |w| {
            w.raw(&algorithm_identifier(kind));
            w.bit_string(bits);
        });
        Self { bits_start: spki.len() - bits.len(), spki, kind, parsed: OnceLock::new() }
    }

    /// Creates a placeholder of this kind and size, to validate a request before its key is generated. The placeholder
    /// verifies no signature.
    pub(crate) fn placeholder(kind: KeyKind) -> Self {
        let bits = match kind {
            KeyKind::Rsa { bits } => encode_rsa_numbers(&vec![0xff; bits as usize / 8], &[1, 0, 1]),
            KeyKind::Ec(curve) => [&[4][..], &vec![0; 2 * curve.coordinate_len()]].concat(),
            KeyKind::Ed25519 => vec![0; 32],
        };
        Self::from_trusted_bits(kind, &bits)
    }

    /// The kind and size.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The SubjectPublicKeyInfo, with its original bytes.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// The content of the BIT STRING: an RSAPublicKey, an EC point, or the 32 bytes of an Ed25519 key.
    pub fn bits(&self) -> &[u8] {
        &self.spki[self.bits_start..]
    }

    /// The key identifier: SHA-1 of the BIT STRING content (RFC 5280 4.2.1.2, method 1).
    pub fn key_id(&self) -> [u8; 20] {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.bits());
        let mut id = [0; 20];
        id.copy_from_slice(digest.as_ref());
        id
    }

    /// Verifies a signature (DER for ECDSA). Signatures of RSA keys below 2048 bits are always rejected.
    ///
    /// # Errors
    /// `Invalid` when the algorithm does not fit the key, or the signature is wrong.
    pub fn verify(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> Result<()> {
        let wrong = || Error::invalid("signature does not verify");
        if let (KeyKind::Ec(Curve::P224), SignatureAlgorithm::Ecdsa(hash)) = (self.kind, algorithm) {
            return verify_p224(self.bits(), hash.digest(message).as_ref(), signature).ok_or_else(wrong);
        }
        let verifier = self.verifier(algorithm)?;
        match self.parsed.get() {
            Some((own, parsed)) if *own == algorithm => parsed.verify_sig(message, signature),
            _ => UnparsedPublicKey::new(verifier, self.bits()).verify(message, signature),
        }
        .map_err(|_| wrong())
    }

    /// Like [`PublicKey::verify`], for a message in pieces, which is hashed incrementally. For Ed25519 and P-224 the
    /// pieces are joined.
    ///
    /// # Errors
    /// As [`PublicKey::verify`].
    pub fn verify_pieces<'m>(
        &self,
        algorithm: SignatureAlgorithm,
        pieces: impl Iterator<Item = &'m [u8]>,
        signature: &[u8],
    ) -> Result<()> {
        let hash = match (self.kind, algorithm) {
            (KeyKind::Ec(Curve::P224), _) | (_, SignatureAlgorithm::Ed25519) => {
                return self.verify(algorithm, &pieces.collect::<Vec<_>>().concat(), signature);
            }
            (
                _,
                SignatureAlgorithm::Ecdsa(hash) | SignatureAlgorithm::RsaPkcs1(hash) | SignatureAlgorithm::RsaPss(hash),
            ) => hash,
        };
        let key = UnparsedPublicKey::new(self.verifier(algorithm)?, self.bits());
        let verified = key.verify_digest(&hash.digest_pieces(pieces), signature);
        verified.map_err(|_| Error::invalid("signature does not verify"))
    }

    /// Like [`PublicKey::verify`], for the digest of a message. Ed25519 does not support this.
    ///
    /// # Errors
    /// As [`PublicKey::verify`], and `Invalid` for a digest of the wrong length.
    pub fn verify_digest(&self, algorithm: SignatureAlgorithm, digest: &[u8], signature: &[u8]) -> Result<()> {
        let wrong = || Error::invalid("signature does not verify");
        let hash = algorithm.hash().ok_or_else(|| Error::invalid("Ed25519 signs messages, not digests"))?;
        let digest = Digest::import_less_safe(digest, hash.algorithm())
            .map_err(|_| Error::invalid("digest: wrong length for the signature algorithm"))?;
        if self.kind == KeyKind::Ec(Curve::P224) {
            return verify_p224(self.bits(), digest.as_ref(), signature).ok_or_else(wrong);
        }
        let verifier = self.verifier(algorithm)?;
        // A key that verifies digests usually verifies several, and parsing an RSA key takes significant time, so the
        // parsed key is kept.
        if self.parsed.get().is_none() {
            let parsed = ParsedPublicKey::new(verifier, self.bits()).map_err(|_| wrong())?;
            let _ = self.parsed.set((algorithm, parsed));
        }
        match self.parsed.get() {
            Some((own, parsed)) if *own == algorithm => parsed.verify_digest_sig(&digest, signature),
            _ => UnparsedPublicKey::new(verifier, self.bits()).verify_digest(&digest, signature),
        }
        .map_err(|_| wrong())
    }

    /// `true` if a SHA-1 signature (DER for ECDSA) is valid. A signature of an RSA key below 2048 bits is never valid.
    pub fn verifies_sha1(&self, algorithm: Sha1Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, message);
        match (self.kind, algorithm) {
            (KeyKind::Rsa { .. }, Sha1Algorithm::RsaPkcs1) => {
                let verifier = &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
                UnparsedPublicKey::new(verifier, self.bits()).verify_digest(&digest, signature).is_ok()
            }
            // ECDSA interprets the digest as a number (FIPS 186-5 6.4), so leading zeros do not change it.
            (KeyKind::Ec(Curve::P224), Sha1Algorithm::Ecdsa) => {
                verify_p224(self.bits(), &pad_left::<28>(digest.as_ref()), signature).is_some()
            }
            (KeyKind::Ec(_), Sha1Algorithm::Ecdsa) => {
                let number = pad_left::<32>(digest.as_ref());
                self.verify_digest(SignatureAlgorithm::Ecdsa(Hash::Sha256), &number, signature).is_ok()
            }
            _ => false,
        }
    }

    fn verifier(&self, algorithm: SignatureAlgorithm) -> Result<&'static dyn VerificationAlgorithm> {
        let wrong = || Error::invalid("signature does not verify");
        Ok(match (self.kind, algorithm) {
            (KeyKind::Ec(curve), SignatureAlgorithm::Ecdsa(hash)) => ecdsa_verifier(curve, hash).ok_or_else(wrong)?,
            (KeyKind::Ed25519, SignatureAlgorithm::Ed25519) => &signature::ED25519,
            (KeyKind::Rsa { .. }, SignatureAlgorithm::RsaPkcs1(hash)) => match hash {
                Hash::Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                Hash::Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                Hash::Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            },
            (KeyKind::Rsa { .. }, SignatureAlgorithm::RsaPss(hash)) => match hash {
                Hash::Sha256 => &signature::RSA_PSS_2048_8192_SHA256,
                Hash::Sha384 => &signature::RSA_PSS_2048_8192_SHA384,
                Hash::Sha512 => &signature::RSA_PSS_2048_8192_SHA512,
            },
            _ => return Err(Error::invalid("the signature algorithm does not fit the public key")),
        })
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.spki == other.spki
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?})", self.kind)
    }
}

/// Returns the encoded AlgorithmIdentifier of a key (RFC 3279 2.3.1, RFC 5480 2.1.1, RFC 8410 3).
pub(crate) fn algorithm_identifier(kind: KeyKind) -> Vec<u8> {
    build(SEQUENCE, 24, |w| match kind {
        KeyKind::Rsa { .. } => {
            w.oid(oid::RSA_ENCRYPTION);
            w.tlv(NULL, &[]);
        }
        KeyKind::Ec(curve) => {
            w.oid(oid::EC_PUBLIC_KEY);
            w.oid(curve.oid());
        }
        KeyKind::Ed25519 => w.oid(oid::ED25519),
    })
}

/// Reads the fields of a key's AlgorithmIdentifier. Returns `None` for other algorithms and curves. An RSA key gets 0
/// bits, because its size is not known here.
pub(crate) fn read_key_algorithm(mut fields: DerReader<'_>) -> DerResult<Option<KeyKind>> {
    let kind = match fields.oid()? {
        oid::RSA_ENCRYPTION => {
            if !fields.expect(NULL)?.content.is_empty() {
                return Err(DerError("a NULL parameter must be empty"));
            }
            KeyKind::Rsa { bits: 0 }
        }
        // Explicit parameters and implicit curves are not named curves (RFC 5480 2.1.1).
        oid::EC_PUBLIC_KEY => match fields.oid().ok().and_then(Curve::from_oid) {
            Some(curve) => KeyKind::Ec(curve),
            None => return Ok(None),
        },
        oid::ED25519 => KeyKind::Ed25519,
        _ => return Ok(None),
    };
    fields.done()?;
    Ok(Some(kind))
}

/// Checks the BIT STRING content of a key, and returns the kind with the size of an RSA key.
fn check_key_bits(kind: KeyKind, bits: &[u8]) -> DerResult<KeyKind> {
    match kind {
        KeyKind::Rsa { .. } => {
            let (modulus, exponent) = read_rsa_numbers(bits)?;
            Ok(KeyKind::Rsa { bits: check_rsa_numbers(modulus, exponent)? })
        }
        KeyKind::Ec(curve) if bits.first() != Some(&4) || bits.len() != 1 + 2 * curve.coordinate_len() => {
            Err(DerError("the EC point must be uncompressed"))
        }
        KeyKind::Ed25519 if bits.len() != 32 => Err(DerError("malformed Ed25519 public key")),
        kind => Ok(kind),
    }
}

/// Creates an RSA key from a big-endian modulus and exponent, ignoring leading zeros.
///
/// # Errors
/// As [`PublicKey::parse`].
pub(crate) fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Result<PublicKey> {
    let bits = encode_rsa_numbers(modulus, exponent);
    // The numbers are untrusted, so parse the key with validation.
    PublicKey::parse(PublicKey::from_trusted_bits(KeyKind::Rsa { bits: 0 }, &bits).spki())
}

/// Encodes an RSAPublicKey (RFC 8017 A.1.1).
fn encode_rsa_numbers(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    build(SEQUENCE, modulus.len() + 24, |w| {
        w.unsigned(modulus);
        w.unsigned(exponent);
    })
}

/// Reads modulus and exponent of an RSAPublicKey, without leading zeros.
pub(super) fn read_rsa_numbers(key: &[u8]) -> DerResult<(&[u8], &[u8])> {
    let mut numbers = DerReader::read_single(key, SEQUENCE)?.reader();
    let pair = (numbers.unsigned()?, numbers.unsigned()?);
    numbers.done()?;
    Ok(pair)
}

/// Checks modulus and exponent, both without leading zeros, and returns the size of the modulus in bits. The cost of
/// verification grows with both, so the limits apply before any arithmetic.
pub(crate) fn check_rsa_numbers(modulus: &[u8], exponent: &[u8]) -> DerResult<u32> {
    if modulus.len() > MAX_RSA_BITS as usize / 8 {
        return Err(DerError("RSA keys above 8192 bits are not supported"));
    }
    let bits = modulus.first().map_or(0, |first| modulus.len() as u32 * 8 - first.leading_zeros());
    if modulus.last().is_none_or(|last| last % 2 == 0) {
        return Err(DerError("the RSA modulus must be odd"));
    }
    match to_u64(exponent) {
        Some(e) if (3..=MAX_RSA_EXPONENT).contains(&e) && e % 2 == 1 => Ok(bits),
        _ => Err(DerError("the RSA public exponent must be odd, at least 3 and at most 2^33")),
    }
}

fn ecdsa_verifier(curve: Curve, hash: Hash) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (curve, hash) {
        (Curve::P224, _) => return None,
        (Curve::P256, Hash::Sha256) => &signature::ECDSA_P256_SHA256_ASN1,
        (Curve::P256, Hash::Sha384) => &signature::ECDSA_P256_SHA384_ASN1,
        (Curve::P256, Hash::Sha512) => &signature::ECDSA_P256_SHA512_ASN1,
        (Curve::P384, Hash::Sha256) => &signature::ECDSA_P384_SHA256_ASN1,
        (Curve::P384, Hash::Sha384) => &signature::ECDSA_P384_SHA384_ASN1,
        (Curve::P384, Hash::Sha512) => &signature::ECDSA_P384_SHA512_ASN1,
        (Curve::P521, Hash::Sha256) => &signature::ECDSA_P521_SHA256_ASN1,
        (Curve::P521, Hash::Sha384) => &signature::ECDSA_P521_SHA384_ASN1,
        (Curve::P521, Hash::Sha512) => &signature::ECDSA_P521_SHA512_ASN1,
    })
}

/// Left-pads a number with zeros to `LEN` bytes.
fn pad_left<const LEN: usize>(octets: &[u8]) -> [u8; LEN] {
    let mut number = [0; LEN];
    if let Some(end) = LEN.checked_sub(octets.len()).and_then(|start| number.get_mut(start..)) {
        end.copy_from_slice(octets);
    }
    number
}

fn verify_p224(point: &[u8], digest: &[u8], signature: &[u8]) -> Option<()> {
    let key = p224::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
    let signature = p224::ecdsa::Signature::from_der(signature).ok()?;
    key.verify_prehash(digest, &signature).ok()
}

/// Encodes a SubjectPublicKeyInfo with this RSA key, to test the limits.
#[cfg(test)]
pub(crate) fn rsa_spki(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    PublicKey::from_trusted_bits(KeyKind::Rsa { bits: 0 }, &encode_rsa_numbers(modulus, exponent)).spki
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{KeyPair as _, RsaEncoding};
    use proptest::prelude::*;

    use super::*;
    use crate::x509::testing::OpenSsl;

    fn odd_modulus(octets: usize) -> Vec<u8> {
        let mut modulus = vec![0xc5; octets];
        modulus[octets - 1] = 1;
        modulus
    }

    #[test]
    fn rsa_limits_hold_before_any_arithmetic() {
        let refused = |modulus: &[u8], exponent: &[u8], text: &str| {
            let error = PublicKey::parse(&rsa_spki(modulus, exponent)).unwrap_err();
            assert!(error.text().contains(text), "{error}");
        };
        refused(&odd_modulus(2048), &[1, 0, 1], "above 8192 bits");
        refused(&odd_modulus(1025), &[1, 0, 1], "above 8192 bits");
        refused(&odd_modulus(256), &[2, 0, 0, 0, 1], "exponent");
        refused(&odd_modulus(256), &[1, 0, 0, 0, 0, 0, 0, 0, 1], "exponent");
        refused(&odd_modulus(256), &[4], "exponent");
        refused(&odd_modulus(256), &[1], "exponent");
        refused(&[0xc5, 2], &[3], "odd");
        let spki = rsa_spki(&odd_modulus(1024), &[1, 0, 1]);
        assert_eq!(PublicKey::parse(&spki).unwrap().kind(), KeyKind::Rsa { bits: 8192 });
        let small = PublicKey::parse(&rsa_spki(&odd_modulus(128), &[3])).unwrap();
        assert_eq!(small.kind().bits(), 1024, "minimum sizes are the caller's rule");
    }

    #[test]
    fn keys_of_openssl_are_read_byte_for_byte() {
        let openssl = OpenSsl::new();
        for (arguments, kind) in crate::x509::testing::OPENSSL_KEY_ARGUMENTS {
            let key = openssl.key("key.pem", arguments);
            let spki = openssl.run(&["pkey", "-in", &key, "-pubout", "-outform", "DER"]);
            let parsed = PublicKey::parse(&spki).unwrap();
            assert_eq!((parsed.kind(), parsed.spki()), (*kind, &spki[..]));
            assert_eq!(PublicKey::from_trusted_bits(*kind, parsed.bits()).spki(), spki);
        }
    }

    #[test]
    fn unsupported_public_keys_and_points_are_refused() {
        let openssl = OpenSsl::new();
        let spki = |arguments: &[&str], more: &[&str]| {
            let key = openssl.key("key.pem", arguments);
            openssl.run(&[&["pkey", "-in", &key, "-pubout", "-outform", "DER"], more].concat())
        };
        let p256 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let cases = [
            (spki(&["-algorithm", "X25519"], &[]), "unsupported public key"),
            (spki(&["-algorithm", "Ed448"], &[]), "unsupported public key"),
            (
                spki(&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:brainpoolP256r1"], &[]),
                "unsupported public key",
            ),
            (spki(&["-algorithm", "RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"], &[]), "unsupported public key"),
            (spki(&[&p256[..], &["-pkeyopt", "ec_param_enc:explicit"]].concat(), &[]), "unsupported public key"),
            (spki(&p256, &["-ec_conv_form", "compressed"]), "uncompressed"),
            (spki(&p256, &["-ec_conv_form", "hybrid"]), "uncompressed"),
        ];
        for (der, text) in cases {
            let error = PublicKey::parse(&der).unwrap_err();
            assert!(error.text().contains(text), "{text}: {error}");
        }
        for curve in ["P-224", "P-256", "P-384", "P-521"] {
            let mut off = spki(&["-algorithm", "EC", "-pkeyopt", &format!("ec_paramgen_curve:{curve}")], &[]);
            *off.last_mut().unwrap() ^= 1;
            assert!(PublicKey::parse(&off).unwrap_err().text().contains("on the curve"), "{curve}");
            off.push(0);
            assert!(PublicKey::parse(&off).unwrap_err().text().contains("trailing"), "{curve}");
        }
    }

    #[test]
    fn digest_verifies_only_with_the_algorithm_that_signed_it() {
        let key = signature::RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let public = PublicKey::from_trusted_bits(KeyKind::Rsa { bits: 2048 }, key.public_key().as_ref());
        let encodings: [(SignatureAlgorithm, &'static dyn RsaEncoding); 3] = [
            (SignatureAlgorithm::RsaPss(Hash::Sha384), &signature::RSA_PSS_SHA384),
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha384), &signature::RSA_PKCS1_SHA384),
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha256), &signature::RSA_PKCS1_SHA256),
        ];
        for (made_with, encoding) in encodings {
            let mut signature = vec![0; key.public_modulus_len()];
            key.sign(encoding, &SystemRandom::new(), b"message", &mut signature).unwrap();
            let verifies = |algorithm: SignatureAlgorithm, message| {
                let digest = algorithm.hash().unwrap().digest(message);
                public.verify_digest(algorithm, digest.as_ref(), &signature).is_ok()
            };
            for (algorithm, _) in encodings {
                assert_eq!(verifies(algorithm, b"message"), algorithm == made_with, "{}", algorithm.name());
                assert!(!verifies(algorithm, b"another"));
            }
        }
    }

    #[test]
    fn key_id_equals_that_of_openssl() {
        let openssl = OpenSsl::new();
        let key = openssl.key("key.pem", crate::x509::testing::OPENSSL_KEY_ARGUMENTS[1].0);
        let spki = openssl.run(&["pkey", "-in", &key, "-pubout", "-outform", "DER"]);
        let certificate = openssl.run(&["req", "-x509", "-new", "-key", &key, "-subj", "/CN=a", "-outform", "DER"]);
        let id = PublicKey::parse(&spki).unwrap().key_id();
        assert!(certificate.windows(20).any(|w| w == id));
    }

    proptest! {
        #[test]
        fn mutated_keys_stay_byte_for_byte_or_are_refused(at in 0_usize..91, byte in any::<u8>(), cut in 0_usize..92) {
            let mut spki = PublicKey::from_trusted_bits(KeyKind::Ec(Curve::P256), &P256_POINT).spki().to_vec();
            let at = at % spki.len();
            spki[at] = byte;
            if let Ok(key) = PublicKey::parse(&spki) {
                prop_assert_eq!(key.spki(), &spki[..]);
            }
            prop_assert!(cut >= spki.len() || PublicKey::parse(&spki[..cut]).is_err());
        }
    }

    /// The generator of P-256.
    #[rustfmt::skip]
    const P256_POINT: [u8; 65] = [
        0x04,
        0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2,
        0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96,
        0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16,
        0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
    ];
}
