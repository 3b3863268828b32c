//! The module call for each kind of signature, and the encoding of its input and output.
//!
//! A mechanism that hashes gets the message and signs with its built-in hash only; all others get a digest. For
//! PKCS #1, this server adds the DigestInfo (RFC 8017 9.2). ECDSA mechanisms return two concatenated numbers, which are
//! converted to DER (RFC 3279 2.2.3).

use std::ffi::c_ulong;

use cryptoki::error::{Error as BindingError, RvError};
use cryptoki::mechanism::vendor_defined::VendorDefinedMechanism;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::ObjectHandle;
use cryptoki::session::Session;

use super::recovery::Pkcs11Failure;
use crate::error::{Error, Result};
use crate::keys::signer::SigningInputKind;
use crate::keys::test_sign::{TestHash, TestSign};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::writer::{NULL, OCTET_STRING, SEQUENCE, build};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pkcs11Scheme {
    Pkcs1,
    Pss,
    Ecdsa,
    Ed25519,
}

use Pkcs11Scheme::{Ecdsa, Ed25519, Pkcs1, Pss};

pub(super) const CKM_RSA_PKCS: u64 = 0x0001;
pub(super) const CKM_RSA_PKCS_OAEP: u64 = 0x0009;
pub(super) const CKM_RSA_PKCS_PSS: u64 = 0x000d;
pub(super) const CKM_ECDSA: u64 = 0x1041;
const CKM_EDDSA: u64 = 0x1057;

/// The supported mechanisms: number, schemes with the default one first, and built-in hash. A key configured for OAEP
/// is an ordinary RSA key, so it can sign.
const SUPPORTED_MECHANISMS: [(u64, &[Pkcs11Scheme], Option<Hash>); 14] = [
    (CKM_RSA_PKCS, &[Pkcs1, Pss], None),
    (CKM_RSA_PKCS_OAEP, &[Pkcs1, Pss], None),
    (CKM_RSA_PKCS_PSS, &[Pss], None),
    (0x0040, &[Pkcs1], Some(Hash::Sha256)),
    (0x0041, &[Pkcs1], Some(Hash::Sha384)),
    (0x0042, &[Pkcs1], Some(Hash::Sha512)),
    (0x0043, &[Pss], Some(Hash::Sha256)),
    (0x0044, &[Pss], Some(Hash::Sha384)),
    (0x0045, &[Pss], Some(Hash::Sha512)),
    (CKM_ECDSA, &[Ecdsa], None),
    (0x1044, &[Ecdsa], Some(Hash::Sha256)),
    (0x1045, &[Ecdsa], Some(Hash::Sha384)),
    (0x1046, &[Ecdsa], Some(Hash::Sha512)),
    (CKM_EDDSA, &[Ed25519], None),
];

/// `true` if keys can be configured with the mechanism of this number, a `CKM_` constant.
pub fn is_supported_mechanism(number: u64) -> bool {
    SUPPORTED_MECHANISMS.iter().any(|row| row.0 == number)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFamily {
    Rsa,
    Ec,
    Ed25519,
}

/// The type of keys that sign with this mechanism; `None` if this server does not support the mechanism.
pub(super) fn key_family(number: u64) -> Option<KeyFamily> {
    let (_, schemes, _) = SUPPORTED_MECHANISMS.iter().find(|row| row.0 == number)?;
    schemes.first().map(|scheme| match scheme {
        Pkcs1 | Pss => KeyFamily::Rsa,
        Ecdsa => KeyFamily::Ec,
        Ed25519 => KeyFamily::Ed25519,
    })
}

/// The mechanism, scheme and hash with which a key makes one signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MechanismPlan {
    kind: KeyKind,
    pub(super) scheme: Pkcs11Scheme,
    pub(super) hash: TestHash,
    /// The mechanism of the call, which may differ from the configured one.
    call: u64,
    hashes: bool,
}

/// `CK_RSA_PKCS_PSS_PARAMS`. Defined here because the binding lacks some hashes.
#[repr(C)]
struct PssParams {
    hash: c_ulong,
    mask: c_ulong,
    salt: c_ulong,
}

impl MechanismPlan {
    /// Returns the plan by which a key of `kind`, configured with `mechanism`, signs with `algorithm`.
    ///
    /// # Errors
    /// `Invalid`, with the parts that do not match.
    pub(super) fn for_signature(mechanism: u64, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<Self> {
        let scheme = match algorithm {
            SignatureAlgorithm::RsaPkcs1(_) => Pkcs1,
            SignatureAlgorithm::RsaPss(_) => Pss,
            SignatureAlgorithm::Ecdsa(_) => Ecdsa,
            SignatureAlgorithm::Ed25519 => Ed25519,
        };
        Self::new(mechanism, kind, Some(scheme), algorithm.hash().map(TestHash::from))
    }

    /// Returns the plan by which a key of `kind`, configured with `mechanism`, makes a test signature.
    ///
    /// # Errors
    /// As [`MechanismPlan::for_signature`].
    pub(super) fn for_test(mechanism: u64, kind: KeyKind, test: TestSign) -> Result<Self> {
        let scheme = match (kind, test.use_pss) {
            (_, None) => None,
            (KeyKind::Rsa { .. }, Some(pss)) => Some(if pss { Pss } else { Pkcs1 }),
            (_, Some(true)) => return Err(Error::invalid("use_pss: only for RSA keys")),
            (_, Some(false)) => None,
        };
        if kind == KeyKind::Ed25519 && test.hash.is_some() {
            return Err(Error::invalid("hash_algorithm: must not be set for Ed25519 keys, whose hash is fixed"));
        }
        let usual = match kind {
            KeyKind::Ec(curve) => curve.hash().into(),
            _ => TestHash::Sha256,
        };
        let fixed_hash =
            SUPPORTED_MECHANISMS.iter().find(|row| row.0 == mechanism).and_then(|row| row.2).map(TestHash::from);
        Self::new(mechanism, kind, scheme, test.hash.or(fixed_hash).or(Some(usual)))
    }

    fn new(mechanism: u64, kind: KeyKind, scheme: Option<Pkcs11Scheme>, hash: Option<TestHash>) -> Result<Self> {
        let row = SUPPORTED_MECHANISMS.iter().find(|row| row.0 == mechanism);
        let (_, schemes, fixed_hash) =
            row.ok_or_else(|| Error::invalid(format!("unsupported mechanism {mechanism:#06x}")))?;
        let fits = match kind {
            KeyKind::Rsa { .. } => schemes.contains(&Pss) || schemes.contains(&Pkcs1),
            KeyKind::Ec(_) => schemes.contains(&Ecdsa),
            KeyKind::Ed25519 => schemes.contains(&Ed25519),
        };
        if !fits {
            let name = kind.name();
            return Err(Error::invalid(format!("mechanism {mechanism:#06x} is not for a key of type {name}")));
        }
        let scheme = scheme.unwrap_or(schemes[0]);
        let hash = hash.unwrap_or(TestHash::Sha512);
        if !schemes.contains(&scheme) {
            let other = if scheme == Pss { "RSASSA-PSS" } else { "RSASSA-PKCS1-v1_5" };
            let remedy = if schemes.contains(&Pss) { ": use_pss of the role or request must be true" } else { "" };
            return Err(Error::invalid(format!("mechanism {mechanism:#06x} does not sign with {other}{remedy}")));
        }
        if fixed_hash.is_some_and(|fixed_hash| TestHash::from(fixed_hash) != hash) {
            let word = hash.name();
            return Err(Error::invalid(format!("mechanism {mechanism:#06x} uses a fixed hash that is not {word}")));
        }
        let call = match (fixed_hash, scheme) {
            (Some(_), _) => mechanism,
            (None, Pkcs1) => CKM_RSA_PKCS,
            (None, Pss) => CKM_RSA_PKCS_PSS,
            (None, Ecdsa) => CKM_ECDSA,
            (None, Ed25519) => CKM_EDDSA,
        };
        Ok(Self { kind, scheme, hash, call, hashes: fixed_hash.is_some() || scheme == Ed25519 })
    }

    pub(super) fn input_kind(&self) -> SigningInputKind {
        if self.hashes { SigningInputKind::Message } else { SigningInputKind::Digest }
    }

    /// Returns the algorithm and the digest with which the local crypto library verifies a signature of `digest`;
    /// `None` if it does not support the hash.
    pub(super) fn verification_input(&self, digest: &[u8]) -> Option<(SignatureAlgorithm, Vec<u8>)> {
        match (self.scheme, self.kind) {
            (Pkcs1, _) => Some((SignatureAlgorithm::RsaPkcs1(self.hash.as_signature_hash()?), digest.to_vec())),
            (Pss, _) => Some((SignatureAlgorithm::RsaPss(self.hash.as_signature_hash()?), digest.to_vec())),
            // ECDSA uses a digest as a number (FIPS 186-5 6.4.1). Padding or truncation to the length of the curve's
            // own hash does not change that number.
            (Ecdsa, KeyKind::Ec(curve)) => {
                let hash = curve.hash();
                let mut fitting = vec![0; (hash.digest_len() as usize).saturating_sub(digest.len())];
                fitting.extend_from_slice(digest);
                fitting.truncate(hash.digest_len() as usize);
                Some((SignatureAlgorithm::Ecdsa(hash), fitting))
            }
            _ => None,
        }
    }

    /// Signs `input`, which is of the kind that [`MechanismPlan::input_kind`] returns. The signature has the encoding
    /// of PKCS #11.
    pub(super) fn sign(&self, session: &Session, key: ObjectHandle, input: &[u8]) -> Result<Vec<u8>, Pkcs11Failure> {
        let input = self.encode_input(input);
        self.call_with_mechanism(|mechanism| session.sign(mechanism, key, &input))
    }

    pub(super) fn verify(
        &self,
        session: &Session,
        key: ObjectHandle,
        input: &[u8],
        signature: &[u8],
    ) -> Result<bool, Pkcs11Failure> {
        let input = self.encode_input(input);
        self.call_with_mechanism(|mechanism| match session.verify(mechanism, key, &input, signature) {
            Err(BindingError::Pkcs11(RvError::SignatureInvalid | RvError::SignatureLenRange, _)) => Ok(false),
            verified => verified.map(|()| true),
        })
    }

    fn encode_input(&self, input: &[u8]) -> Vec<u8> {
        match (self.scheme, self.kind) {
            (Pkcs1, _) if !self.hashes => encode_digest_info(self.hash, input),
            // ECDSA uses only the leftmost bits of a digest (FIPS 186-5 6.4.1), and some modules do not truncate it.
            (Ecdsa, KeyKind::Ec(curve)) if !self.hashes => input[..input.len().min(curve.coordinate_len())].to_vec(),
            _ => input.to_vec(),
        }
    }

    fn call_with_mechanism<T>(
        &self,
        call: impl FnOnce(&Mechanism<'_>) -> Result<T, BindingError>,
    ) -> Result<T, Pkcs11Failure> {
        let number = MechanismType::try_from(self.call as c_ulong)?;
        let (hash, mask) = hash_numbers(self.hash);
        let params = PssParams { hash, mask, salt: self.hash.digest_len() as c_ulong };
        let params = (self.scheme == Pss).then_some(&params);
        Ok(call(&Mechanism::VendorDefined(VendorDefinedMechanism::new(number, params)))?)
    }

    /// Converts the signature to the encoding of X.509.
    ///
    /// # Errors
    /// `Unavailable` when an ECDSA signature of the module has the wrong length.
    pub(super) fn encode_signature(&self, signature: Vec<u8>) -> Result<Vec<u8>> {
        match self.kind {
            KeyKind::Ec(curve) => {
                let bytes = curve.coordinate_len();
                if signature.len() != 2 * bytes {
                    return Err(Error::unavailable(
                        "pkcs11 module: returned an ECDSA signature of the wrong length",
                        "length",
                    ));
                }
                Ok(encode_ecdsa_signature(&signature[..bytes], &signature[bytes..]))
            }
            KeyKind::Rsa { .. } | KeyKind::Ed25519 => Ok(signature),
        }
    }
}

fn encode_ecdsa_signature(r: &[u8], s: &[u8]) -> Vec<u8> {
    build(SEQUENCE, r.len() + s.len() + 12, |w| {
        w.unsigned(r);
        w.unsigned(s);
    })
}

/// Encodes a DigestInfo (RFC 8017 A.2.4).
fn encode_digest_info(hash: TestHash, digest: &[u8]) -> Vec<u8> {
    build(SEQUENCE, digest.len() + 24, |w| {
        w.nest(SEQUENCE, |w| {
            w.oid(hash.oid());
            w.tlv(NULL, &[]);
        });
        w.tlv(OCTET_STRING, digest);
    })
}

/// The `CKM_` number of a hash, and the `CKG_` number of MGF1 with it.
fn hash_numbers(hash: TestHash) -> (c_ulong, c_ulong) {
    match hash {
        TestHash::Sha1 => (0x220, 1),
        TestHash::Sha224 => (0x255, 5),
        TestHash::Sha256 => (0x250, 2),
        TestHash::Sha384 => (0x260, 3),
        TestHash::Sha512 => (0x270, 4),
        TestHash::Sha3_224 => (0x2b5, 6),
        TestHash::Sha3_256 => (0x2b0, 7),
        TestHash::Sha3_384 => (0x2c0, 8),
        TestHash::Sha3_512 => (0x2d0, 9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::algorithm::Curve;
    use SignatureAlgorithm as A;

    const RSA: KeyKind = KeyKind::Rsa { bits: 2048 };
    const P256: KeyKind = KeyKind::Ec(Curve::P256);

    #[test]
    fn mechanisms_sign_only_with_their_algorithm() {
        let input_kind = |mechanism, kind, algorithm| {
            MechanismPlan::for_signature(mechanism, kind, algorithm).map(|plan| plan.input_kind()).ok()
        };
        assert_eq!(input_kind(CKM_RSA_PKCS, RSA, A::RsaPkcs1(Hash::Sha384)), Some(SigningInputKind::Digest));
        assert_eq!(input_kind(CKM_RSA_PKCS_OAEP, RSA, A::RsaPss(Hash::Sha512)), Some(SigningInputKind::Digest));
        assert_eq!(input_kind(CKM_RSA_PKCS_PSS, RSA, A::RsaPkcs1(Hash::Sha256)), None);
        assert_eq!(input_kind(0x0041, RSA, A::RsaPkcs1(Hash::Sha384)), Some(SigningInputKind::Message));
        assert_eq!(input_kind(0x0041, RSA, A::RsaPkcs1(Hash::Sha256)), None);
        assert_eq!(input_kind(0x0041, RSA, A::RsaPss(Hash::Sha384)), None);
        assert_eq!(input_kind(CKM_ECDSA, P256, A::Ecdsa(Hash::Sha256)), Some(SigningInputKind::Digest));
        assert_eq!(input_kind(0x1044, P256, A::Ecdsa(Hash::Sha256)), Some(SigningInputKind::Message));
        assert_eq!(input_kind(CKM_EDDSA, KeyKind::Ed25519, A::Ed25519), Some(SigningInputKind::Message));
        assert_eq!(input_kind(CKM_ECDSA, RSA, A::RsaPkcs1(Hash::Sha256)), None);
        assert_eq!(input_kind(CKM_RSA_PKCS, P256, A::Ecdsa(Hash::Sha256)), None);
        let text = MechanismPlan::for_signature(0x1087, P256, A::Ecdsa(Hash::Sha256)).unwrap_err().to_string();
        assert_eq!(text, "unsupported mechanism 0x1087");
    }

    #[test]
    fn test_signature_defaults_follow_the_key() {
        let plan =
            |mechanism, kind, hash, use_pss| MechanismPlan::for_test(mechanism, kind, TestSign { hash, use_pss });
        let of = |mechanism, kind| plan(mechanism, kind, None, None).map(|p| (p.scheme, p.hash)).ok();
        assert_eq!(of(CKM_RSA_PKCS, RSA), Some((Pkcs1, TestHash::Sha256)));
        assert_eq!(of(CKM_RSA_PKCS_PSS, RSA), Some((Pss, TestHash::Sha256)));
        assert_eq!(of(0x0045, RSA), Some((Pss, TestHash::Sha512)));
        assert_eq!(of(CKM_ECDSA, KeyKind::Ec(Curve::P521)), Some((Ecdsa, TestHash::Sha512)));
        assert!(plan(CKM_RSA_PKCS_PSS, RSA, None, Some(false)).is_err());
        assert!(plan(0x0040, RSA, Some(TestHash::Sha512), None).is_err());
        assert!(plan(CKM_ECDSA, P256, None, Some(true)).unwrap_err().text().starts_with("use_pss"));
        assert!(plan(CKM_ECDSA, P256, Some(TestHash::Sha3_224), Some(false)).is_ok());
    }

    #[test]
    fn ecdsa_numbers_are_encoded_as_minimal_der_integers() {
        let number = |first: &[u8]| [first, &vec![7; 32 - first.len()]].concat();
        for (r, s) in [(&[0x80][..], &[0, 0, 0x7f][..]), (&[0, 0x80], &[0xff]), (&[0; 31], &[1])] {
            let r = number(r);
            let s = number(s);
            let der = encode_ecdsa_signature(&r, &s);
            let read = numbers_of(&der);
            let stripped = |n: &[u8]| n[n.iter().position(|b| *b != 0).unwrap()..].to_vec();
            assert_eq!(read, (stripped(&r), stripped(&s)));
        }
        let plan = MechanismPlan::for_signature(CKM_ECDSA, P256, A::Ecdsa(Hash::Sha256)).unwrap();
        assert!(plan.encode_signature(vec![1; 63]).is_err() && plan.encode_signature(vec![1; 96]).is_err());
    }

    fn numbers_of(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut fields = crate::x509::reader::DerReader::read_single(der, SEQUENCE).unwrap().reader();
        let numbers = (fields.unsigned().unwrap().to_vec(), fields.unsigned().unwrap().to_vec());
        fields.done().unwrap();
        numbers
    }

    #[test]
    fn digest_info_matches_rfc8017() {
        let info = encode_digest_info(TestHash::Sha256, &[7; 32]);
        let prefix = [0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];
        assert_eq!(info, [&prefix[..], &[7; 32]].concat());
        let info = encode_digest_info(TestHash::Sha1, &[7; 20]);
        assert_eq!(info[..15], [0x30, 0x21, 0x30, 9, 6, 5, 0x2b, 0x0e, 3, 2, 0x1a, 5, 0, 4, 0x14]);
    }
}
