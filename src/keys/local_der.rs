//! DER encoding of private keys: PKCS #8 (RFC 5208), PKCS #1 (RFC 8017 A.1.2), SEC 1 (RFC 5915).
//!
//! EC keys are encoded by hand, so that the export of a new key needs no second parse. Buffers with secrets are
//! allocated in full size, because a growing vector leaves copies in memory.

use zeroize::Zeroize;

use crate::secret::Secret;
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::public_key::{algorithm_identifier, check_rsa_numbers, read_key_algorithm};
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{DerWriter, OCTET_STRING, SEQUENCE, build, context_constructed};

const UNSUPPORTED_KEY: DerError = DerError("unsupported kind of key");
const MIN_RSA_BITS: u32 = 2048;

pub(super) struct PrivateKeyInfo<'a> {
    pub(super) kind: KeyKind,
    pub(super) key: &'a [u8],
}

impl<'a> PrivateKeyInfo<'a> {
    pub(super) fn read(der: &'a [u8]) -> DerResult<Self> {
        let mut fields = DerReader::read_single(der, SEQUENCE)?.reader();
        if fields.read_u32()? > 1 {
            return Err(DerError("the version of a private key must be 0 or 1 (RFC 5958 2)"));
        }
        let algorithm = fields.sequence()?;
        let key = fields.octet_string()?;
        // Attributes and the public key may follow; both are skipped. The crypto library compares the public key.
        while !fields.is_empty() {
            fields.any()?;
        }
        let kind = match read_key_algorithm(algorithm)?.ok_or(UNSUPPORTED_KEY)? {
            KeyKind::Rsa { .. } => KeyKind::Rsa { bits: validate_rsa_numbers(key)? },
            kind => kind,
        };
        Ok(Self { kind, key })
    }
}

/// Validates the public numbers of an RSAPrivateKey before any arithmetic, and returns the size in bits.
fn validate_rsa_numbers(key: &[u8]) -> DerResult<u32> {
    let mut fields = DerReader::read_single(key, SEQUENCE)?.reader();
    if fields.read_u32()? != 0 {
        return Err(DerError("RSA keys with more than two primes are not supported"));
    }
    let bits = check_rsa_numbers(fields.unsigned()?, fields.unsigned()?)?;
    if bits < MIN_RSA_BITS {
        return Err(DerError("RSA keys below 2048 bits are not supported"));
    }
    Ok(bits)
}

pub(super) struct EcPrivateKey<'a> {
    pub(super) scalar: &'a [u8],
    pub(super) public: Option<&'a [u8]>,
    curve: Option<&'a [u8]>,
}

impl<'a> EcPrivateKey<'a> {
    pub(super) fn read(der: &'a [u8]) -> DerResult<Self> {
        let mut fields = DerReader::read_single(der, SEQUENCE)?.reader();
        if fields.read_u32()? != 1 {
            return Err(DerError("the version of an EC private key must be 1 (RFC 5915 3)"));
        }
        let scalar = fields.octet_string()?;
        let curve = fields.optional(context_constructed(0))?.map(|p| p.reader().oid()).transpose()?;
        let public = fields.optional(context_constructed(1))?.map(|p| p.reader().bit_string()).transpose()?;
        fields.done()?;
        Ok(Self { scalar, public, curve })
    }
}

pub(super) fn parse_sec1_curve(der: &[u8]) -> DerResult<Curve> {
    let curve = EcPrivateKey::read(der)?.curve.ok_or(DerError("an EC private key must name its curve"))?;
    Curve::from_oid(curve).ok_or(UNSUPPORTED_KEY)
}

/// Encodes an ECPrivateKey with its public key. `curve` is given for a stand-alone key only: in PKCS #8 the outer
/// structure names the curve.
pub(super) fn encode_sec1(curve: Option<Curve>, scalar: &[u8], point: &[u8]) -> Secret {
    Secret::new(build(SEQUENCE, scalar.len() + point.len() + 40, |w| {
        w.integer(1);
        w.tlv(OCTET_STRING, scalar);
        if let Some(curve) = curve {
            w.nest(context_constructed(0), |w| w.oid(curve.oid()));
        }
        w.nest(context_constructed(1), |w| w.bit_string(point));
    }))
}

pub(super) fn encode_pkcs8(kind: KeyKind, key: &[u8]) -> Secret {
    Secret::new(build(SEQUENCE, key.len() + 48, |w| {
        w.integer(0);
        w.raw(&algorithm_identifier(kind));
        w.tlv(OCTET_STRING, key);
    }))
}

/// Encodes a PKCS #8 structure of an Ed25519 seed (RFC 8410 7).
pub(super) fn encode_pkcs8_ed25519(seed: &[u8]) -> Secret {
    let mut inner = DerWriter::with_capacity(seed.len() + 2);
    inner.tlv(OCTET_STRING, seed);
    let mut inner = inner.finish();
    let outer = encode_pkcs8(KeyKind::Ed25519, &inner);
    inner.zeroize();
    outer
}
