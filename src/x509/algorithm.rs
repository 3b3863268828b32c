//! Key kinds and signature algorithms: names, DER, and which algorithm fits which key.
//!
//! Rejected: SHA-1 and MD5 signatures, RSASSA-PSS with mixed hashes or a salt length other than the digest length,
//! and P-224 as a signing key.

use aws_lc_rs::digest;

use super::oid;
use super::reader::{DerError, DerReader, DerResult};
use super::writer::{NULL, SEQUENCE, context_constructed};
use crate::error::{Error, Result};

/// A hash function of the SHA-2 family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// Digest length in bytes.
    pub fn digest_len(self) -> u32 {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Returns the digest of `message`.
    pub fn digest(self, message: &[u8]) -> digest::Digest {
        digest::digest(self.algorithm(), message)
    }

    /// Returns the digest of a message that is given in pieces.
    pub fn digest_pieces<'m>(self, pieces: impl Iterator<Item = &'m [u8]>) -> digest::Digest {
        let mut context = digest::Context::new(self.algorithm());
        pieces.for_each(|piece| context.update(piece));
        context.finish()
    }

    pub(crate) fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

/// A hash function of data from other programs, which may still use SHA-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFunction {
    /// SHA-1.
    Sha1,
    /// A hash function of the SHA-2 family.
    Sha2(Hash),
}

impl HashFunction {
    /// All hash functions.
    pub const ALL: [Self; 4] =
        [Self::Sha1, Self::Sha2(Hash::Sha256), Self::Sha2(Hash::Sha384), Self::Sha2(Hash::Sha512)];

    /// Digest length in bytes.
    pub fn digest_len(self) -> usize {
        self.algorithm().output_len()
    }

    /// Returns the digest of `message`.
    pub fn digest(self, message: &[u8]) -> digest::Digest {
        digest::digest(self.algorithm(), message)
    }

    pub(super) fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha2(hash) => hash.algorithm(),
        }
    }

    /// The OID, DER content bytes.
    pub fn oid(self) -> &'static [u8] {
        match self {
            Self::Sha1 => oid::SHA1,
            Self::Sha2(Hash::Sha256) => oid::SHA256,
            Self::Sha2(Hash::Sha384) => oid::SHA384,
            Self::Sha2(Hash::Sha512) => oid::SHA512,
        }
    }

    /// Reads the fields of an AlgorithmIdentifier, whose NULL may be absent (RFC 4055 2.1). Returns `None` for another
    /// hash function.
    pub(super) fn read(mut fields: DerReader<'_>) -> DerResult<Option<Self>> {
        let identifier = fields.oid()?;
        optional_null(&mut fields)?;
        fields.done()?;
        Ok(Self::ALL.into_iter().find(|hash| hash.oid() == identifier))
    }
}

/// A named curve over a prime field (RFC 5480 2.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// secp224r1.
    P224,
    /// secp256r1.
    P256,
    /// secp384r1.
    P384,
    /// secp521r1.
    P521,
}

impl Curve {
    /// All curves.
    pub const ALL: [Self; 4] = [Self::P224, Self::P256, Self::P384, Self::P521];

    /// Size of the field of the curve, in bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::P224 => 224,
            Self::P256 => 256,
            Self::P384 => 384,
            Self::P521 => 521,
        }
    }

    /// The curve's OID, DER content bytes.
    pub fn oid(self) -> &'static [u8] {
        match self {
            Self::P224 => oid::P224,
            Self::P256 => oid::P256,
            Self::P384 => oid::P384,
            Self::P521 => oid::P521,
        }
    }

    /// Returns the curve with this OID (DER content bytes).
    pub fn from_oid(content: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|curve| curve.oid() == content)
    }

    /// Length of a coordinate or scalar, in bytes.
    pub fn coordinate_len(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// The hash function that keys on this curve normally sign with.
    pub fn hash(self) -> Hash {
        match self {
            Self::P224 | Self::P256 => Hash::Sha256,
            Self::P384 => Hash::Sha384,
            Self::P521 => Hash::Sha512,
        }
    }
}

/// The kind and size of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA with a modulus of `bits`.
    Rsa {
        /// Size of the modulus, in bits.
        bits: u32,
    },
    /// A key on an elliptic curve.
    Ec(Curve),
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// The name of the key type in requests and responses: `rsa`, `ec` or `ed25519`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rsa { .. } => "rsa",
            Self::Ec(_) => "ec",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Size of the key in bits; 0 for Ed25519, which has one size only.
    pub fn bits(self) -> u32 {
        match self {
            Self::Rsa { bits } => bits,
            Self::Ec(curve) => curve.bits(),
            Self::Ed25519 => 0,
        }
    }
}

/// A signature algorithm that this server creates and accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5.
    RsaPkcs1(Hash),
    /// RSASSA-PSS with MGF1 over the same hash, a salt as long as the digest, and trailer 1.
    RsaPss(Hash),
    /// ECDSA.
    Ecdsa(Hash),
    /// Ed25519.
    Ed25519,
}

const SIGNATURE_ALGORITHMS: [(SignatureAlgorithm, &str, &[u8]); 10] = {
    use Hash::{Sha256, Sha384, Sha512};
    use SignatureAlgorithm::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
    [
        (RsaPkcs1(Sha256), "SHA256WithRSA", &pkcs1(11)),
        (RsaPkcs1(Sha384), "SHA384WithRSA", &pkcs1(12)),
        (RsaPkcs1(Sha512), "SHA512WithRSA", &pkcs1(13)),
        (RsaPss(Sha256), "SHA256WithRSAPSS", &pss(1, 32)),
        (RsaPss(Sha384), "SHA384WithRSAPSS", &pss(2, 48)),
        (RsaPss(Sha512), "SHA512WithRSAPSS", &pss(3, 64)),
        (Ecdsa(Sha256), "ECDSAWithSHA256", &ecdsa(2)),
        (Ecdsa(Sha384), "ECDSAWithSHA384", &ecdsa(3)),
        (Ecdsa(Sha512), "ECDSAWithSHA512", &ecdsa(4)),
        (Ed25519, "Ed25519", &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70]),
    ]
};

/// The AlgorithmIdentifier of RSASSA-PKCS1-v1_5, whose parameters are NULL (RFC 4055 5).
const fn pkcs1(last_arc: u8) -> [u8; 15] {
    [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last_arc, 5, 0]
}

/// The AlgorithmIdentifier of ECDSA, whose parameters are absent (RFC 5758 3.2).
const fn ecdsa(last_arc: u8) -> [u8; 12] {
    [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, last_arc]
}

/// The AlgorithmIdentifier of RSASSA-PSS (RFC 4055 3.1). Parameters: hash, MGF1 over the same hash, salt length; the
/// trailer field has its default.
const fn pss(hash_arc: u8, salt: u8) -> [u8; 67] {
    #[rustfmt::skip]
    let der = [
        0x30, 0x41, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10,
        0x30, 0x34,
        0xa0, 0x0f, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, hash_arc, 5, 0,
        0xa1, 0x1c, 0x30, 0x1a, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8,
        0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, hash_arc, 5, 0,
        0xa2, 3, 2, 1, salt,
    ];
    der
}

impl SignatureAlgorithm {
    /// The encoded AlgorithmIdentifier: with NULL parameters for PKCS #1, with all parameters for PSS, and without
    /// parameters for ECDSA and Ed25519.
    pub fn der(self) -> &'static [u8] {
        self.row().2
    }

    /// The name in configuration and responses, such as `SHA256WithRSAPSS`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> &'static (Self, &'static str, &'static [u8]) {
        SIGNATURE_ALGORITHMS
            .iter()
            .find(|row| row.0 == self)
            .expect("SIGNATURE_ALGORITHMS has a row for every algorithm")
    }

    /// Parses a name in any letter case. `PureEd25519` is an alias of `Ed25519`.
    pub fn parse_name(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("PureEd25519") {
            return Some(Self::Ed25519);
        }
        SIGNATURE_ALGORITHMS.iter().find(|row| row.1.eq_ignore_ascii_case(text)).map(|row| row.0)
    }

    /// Reads the AlgorithmIdentifier of a signature.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, for SHA-1, MD5, unknown algorithms, and PSS parameters other than one SHA-2 hash,
    /// a salt as long as the digest, and trailer 1.
    pub fn from_der(alg_id: &[u8]) -> Result<Self> {
        if let Some(row) = SIGNATURE_ALGORITHMS.iter().find(|row| row.2 == alg_id) {
            return Ok(row.0);
        }
        read_algorithm(alg_id).map_err(|e| e.into_error("signature algorithm"))
    }

    /// Returns the algorithm with which an issuer signs. RSA issuers use `signature_bits` (0 means 256) and `use_pss`;
    /// other keys have exactly one algorithm.
    ///
    /// # Errors
    /// `Invalid` for bits other than 0, 256, 384 and 512, and for a P-224 issuer.
    pub fn for_issuer(issuer: KeyKind, signature_bits: u32, use_pss: bool) -> Result<Self> {
        let hash = match signature_bits {
            0 | 256 => Hash::Sha256,
            384 => Hash::Sha384,
            512 => Hash::Sha512,
            _ => return Err(Error::invalid("signature_bits: unsupported hash size, must be 0, 256, 384 or 512")),
        };
        match issuer {
            KeyKind::Rsa { .. } if use_pss => Ok(Self::RsaPss(hash)),
            KeyKind::Rsa { .. } => Ok(Self::RsaPkcs1(hash)),
            KeyKind::Ec(Curve::P224) => Err(Error::invalid("issuer: a P-224 key cannot sign certificates")),
            KeyKind::Ec(curve) => Ok(Self::Ecdsa(curve.hash())),
            KeyKind::Ed25519 => Ok(Self::Ed25519),
        }
    }

    /// Returns the algorithms that a key of this kind may sign certificates with, preferred ones first.
    pub fn all_for(kind: KeyKind) -> impl Iterator<Item = Self> {
        SIGNATURE_ALGORITHMS.iter().map(|row| row.0).filter(move |algorithm| algorithm.is_usual_for(kind))
    }

    /// The hash function applied to the message. `None` for Ed25519, which hashes internally.
    pub fn hash(self) -> Option<Hash> {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) => Some(hash),
            Self::Ed25519 => None,
        }
    }

    /// `true` if a local key of `kind` can sign with this algorithm: RSA with any hash and scheme, EC with any hash.
    pub fn fits(self, kind: KeyKind) -> bool {
        matches!(
            (self, kind),
            (Self::RsaPkcs1(_) | Self::RsaPss(_), KeyKind::Rsa { .. })
                | (Self::Ecdsa(_), KeyKind::Ec(_))
                | (Self::Ed25519, KeyKind::Ed25519)
        )
    }

    /// `true` if keys of `kind` normally sign certificates with this algorithm: like [`Self::fits`], except that an EC
    /// key must use the hash of its curve.
    pub fn is_usual_for(self, kind: KeyKind) -> bool {
        match (self, kind) {
            (Self::Ecdsa(hash), KeyKind::Ec(curve)) => hash == curve.hash(),
            _ => self.fits(kind),
        }
    }
}

/// A signature algorithm with SHA-1. Only existing signatures are verified with it, where a forgery would do little
/// harm. New signatures with SHA-1 are neither created nor accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sha1Algorithm {
    /// RSASSA-PKCS1-v1_5.
    RsaPkcs1,
    /// ECDSA.
    Ecdsa,
}

impl Sha1Algorithm {
    /// Reads an AlgorithmIdentifier; returns `None` for any other algorithm.
    pub fn from_der(alg_id: &[u8]) -> Option<Self> {
        let mut reader = DerReader::read_single(alg_id, SEQUENCE).ok()?.reader();
        let algorithm = match reader.oid().ok()? {
            known if known == oid::SHA1_WITH_RSA => Self::RsaPkcs1,
            known if known == oid::ECDSA_WITH_SHA1 => Self::Ecdsa,
            _ => return None,
        };
        optional_null(&mut reader).ok()?;
        reader.done().ok()?;
        Some(algorithm)
    }
}

/// Reads an AlgorithmIdentifier whose encoding is not in [`SIGNATURE_ALGORITHMS`]. Accepts common non-standard
/// encodings (absent NULL for RSA, NULL for ECDSA); the error names the reason of a rejection.
fn read_algorithm(alg_id: &[u8]) -> DerResult<SignatureAlgorithm> {
    let mut reader = DerReader::read_single(alg_id, SEQUENCE)?.reader();
    let algorithm = reader.oid()?;
    if algorithm == oid::RSASSA_PSS {
        let mut parameters = reader.sequence()?;
        reader.done()?;
        return read_pss(&mut parameters);
    }
    if algorithm == oid::MD5_WITH_RSA {
        return Err(DerError("MD5 signatures are not accepted"));
    }
    if algorithm == oid::SHA1_WITH_RSA || algorithm == oid::ECDSA_WITH_SHA1 {
        return Err(DerError("SHA-1 signatures are not accepted"));
    }
    // In every row of the table, four header bytes precede the OID; the fourth of them is the OID's length.
    let row = SIGNATURE_ALGORITHMS.iter().find(|row| row.2[4..4 + usize::from(row.2[3])] == *algorithm);
    let known = row.ok_or(DerError("unsupported signature algorithm"))?.0;
    match known {
        SignatureAlgorithm::Ed25519 => return Err(DerError("Ed25519 parameters must be absent (RFC 8410 3)")),
        SignatureAlgorithm::Ecdsa(_) => {
            // RFC 5758 3.2 omits the parameters; some hardware key stores write NULL.
            optional_null(&mut reader)?;
            reader.done().map_err(|_| DerError("ECDSA parameters must be absent (RFC 5758 3.2)"))?;
        }
        _ => {
            optional_null(&mut reader)?;
            reader.done()?;
        }
    }
    Ok(known)
}

fn read_pss(parameters: &mut DerReader<'_>) -> DerResult<SignatureAlgorithm> {
    const SHA2_REQUIRED: DerError = DerError("RSASSA-PSS must use SHA-256, SHA-384 or SHA-512");
    // The defaults of hash, MGF1 and salt length are SHA-1 and 20 bytes, so none of these fields may be absent.
    let hash = HashFunction::read(parameters.optional_explicit(0, SEQUENCE)?.ok_or(SHA2_REQUIRED)?.reader())?;
    let Some(HashFunction::Sha2(signed_hash)) = hash else { return Err(SHA2_REQUIRED) };
    let mut mask = parameters.optional_explicit(1, SEQUENCE)?.ok_or(SHA2_REQUIRED)?.reader();
    if mask.oid()? != oid::MGF1 || HashFunction::read(mask.sequence()?)? != hash {
        return Err(DerError("RSASSA-PSS must use MGF1 with the hash of the signature"));
    }
    mask.done()?;
    let salt = match parameters.optional(context_constructed(2))? {
        Some(field) => DerReader::read_to_end(field.content, DerReader::read_u32)?,
        None => 20,
    };
    if salt != signed_hash.digest_len() {
        return Err(DerError("RSASSA-PSS salt must be as long as the digest"));
    }
    if let Some(trailer) = parameters.optional(context_constructed(3))?
        && DerReader::read_to_end(trailer.content, DerReader::read_u32)? != 1
    {
        return Err(DerError("RSASSA-PSS trailer must be 1"));
    }
    parameters.done()?;
    Ok(SignatureAlgorithm::RsaPss(signed_hash))
}

/// Reads algorithm parameters that must be NULL or absent.
fn optional_null(reader: &mut DerReader<'_>) -> DerResult<()> {
    match reader.optional(NULL)? {
        Some(null) if !null.content.is_empty() => Err(DerError("a NULL parameter must be empty")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_algorithm_reads_back_from_its_der_and_its_name() {
        for (algorithm, name, der) in SIGNATURE_ALGORITHMS {
            assert_eq!(read_algorithm_or_known(der), algorithm);
            assert_eq!(algorithm.der(), der);
            assert_eq!(SignatureAlgorithm::parse_name(&name.to_lowercase()), Some(algorithm));
            DerReader::read_single(der, SEQUENCE).unwrap();
        }
    }

    #[test]
    fn ecdsa_parameters_may_only_be_absent_or_null() {
        for (hash, arc) in [(Hash::Sha256, 2), (Hash::Sha384, 3), (Hash::Sha512, 4)] {
            let mut with_null = [&ecdsa(arc)[..], &[5, 0]].concat();
            with_null[1] += 2;
            assert_eq!(SignatureAlgorithm::from_der(&with_null).unwrap(), SignatureAlgorithm::Ecdsa(hash));
            with_null[12] = 4;
            let refused = SignatureAlgorithm::from_der(&with_null).unwrap_err();
            assert!(refused.text().contains("ECDSA parameters must be absent"), "{refused}");
        }
        let refused = SignatureAlgorithm::from_der(&[0x30, 7, 6, 3, 0x2b, 0x65, 0x70, 5, 0]).unwrap_err();
        assert!(refused.text().contains("Ed25519 parameters must be absent"), "{refused}");
    }

    #[test]
    fn sha1_algorithms_are_read_only_as_sha1_algorithms() {
        let ecdsa_with_sha1 = [0x30, 9, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
        assert_eq!(Sha1Algorithm::from_der(&pkcs1(5)), Some(Sha1Algorithm::RsaPkcs1));
        assert_eq!(Sha1Algorithm::from_der(&ecdsa_with_sha1), Some(Sha1Algorithm::Ecdsa));
        for other in [&pkcs1(4)[..], &pkcs1(11), &ecdsa(2)] {
            assert_eq!(Sha1Algorithm::from_der(other), None);
        }
    }

    fn read_algorithm_or_known(der: &[u8]) -> SignatureAlgorithm {
        let quick = SignatureAlgorithm::from_der(der).unwrap();
        if matches!(quick, SignatureAlgorithm::RsaPkcs1(_) | SignatureAlgorithm::RsaPss(_)) {
            assert_eq!(read_algorithm(der).unwrap(), quick, "the slow path agrees");
        }
        quick
    }

    #[test]
    fn weak_and_unknown_algorithms_are_refused_by_name() {
        let mut salt_20 = pss(1, 32);
        salt_20[66] = 20;
        let mut mixed = pss(1, 32);
        mixed[59] = 2;
        let mut wrong_mask = pss(1, 32);
        wrong_mask[46] = 9;
        let cases: [(Vec<u8>, &str); 8] = [
            (pkcs1(5).to_vec(), "SHA-1"),
            (pkcs1(4).to_vec(), "MD5"),
            (vec![0x30, 9, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "SHA-1"),
            (salt_20.to_vec(), "salt must be as long"),
            (mixed.to_vec(), "MGF1"),
            (wrong_mask.to_vec(), "MGF1"),
            (pss(1, 32)[..13].iter().copied().chain([0x30, 0]).collect::<Vec<_>>(), "truncated"),
            (vec![0x30, 5, 6, 3, 0x2b, 0x65, 0x71], "unsupported"),
        ];
        for (der, text) in cases {
            let error = SignatureAlgorithm::from_der(&der).unwrap_err();
            assert!(error.text().contains(text), "{text}: {error}");
        }
        let defaults = [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10, 0x30, 0];
        assert!(SignatureAlgorithm::from_der(&defaults).unwrap_err().text().contains("SHA-256"));
    }

    #[test]
    fn issuer_algorithm_follows_its_key_and_settings() {
        use SignatureAlgorithm as A;
        let rsa = KeyKind::Rsa { bits: 2048 };
        let cases = [
            (rsa, 0, false, A::RsaPkcs1(Hash::Sha256)),
            (rsa, 384, false, A::RsaPkcs1(Hash::Sha384)),
            (rsa, 0, true, A::RsaPss(Hash::Sha256)),
            (rsa, 512, true, A::RsaPss(Hash::Sha512)),
            (KeyKind::Ec(Curve::P256), 512, true, A::Ecdsa(Hash::Sha256)),
            (KeyKind::Ec(Curve::P384), 0, false, A::Ecdsa(Hash::Sha384)),
            (KeyKind::Ec(Curve::P521), 256, false, A::Ecdsa(Hash::Sha512)),
            (KeyKind::Ed25519, 384, true, A::Ed25519),
        ];
        for (kind, bits, pss, expected) in cases {
            assert_eq!(A::for_issuer(kind, bits, pss).unwrap(), expected, "{kind:?} {bits} {pss}");
            assert!(expected.fits(kind));
        }
        assert!(A::for_issuer(KeyKind::Ec(Curve::P224), 0, false).is_err());
        assert!(A::for_issuer(rsa, 100, false).is_err());
        let p256 = KeyKind::Ec(Curve::P256);
        assert!(A::Ecdsa(Hash::Sha384).fits(p256) && !A::Ecdsa(Hash::Sha384).is_usual_for(p256));
        assert!(A::Ecdsa(Hash::Sha256).is_usual_for(p256) && A::RsaPss(Hash::Sha512).is_usual_for(rsa));
        assert!(!A::Ecdsa(Hash::Sha256).fits(rsa));
        assert!(!A::Ed25519.fits(rsa));
    }

    proptest! {
        #[test]
        fn mutated_identifiers_never_panic(row in 0..SIGNATURE_ALGORITHMS.len(), at in 0_usize..70, byte in any::<u8>()) {
            let mut der = SIGNATURE_ALGORITHMS[row].2.to_vec();
            let at = at % der.len();
            der[at] = byte;
            let _ = Sha1Algorithm::from_der(&der);
            if let Ok(algorithm) = SignatureAlgorithm::from_der(&der) {
                prop_assert!(SIGNATURE_ALGORITHMS.iter().any(|row| row.0 == algorithm));
            }
        }
    }
}
