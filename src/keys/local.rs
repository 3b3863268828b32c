//! Private keys in the memory of this process: generation, loading, signing and export. Keys have no `Debug`; encoded
//! keys are [`Secret`].

use aws_lc_rs::digest::Digest;
use aws_lc_rs::encoding::{AsBigEndian, AsDer, Curve25519SeedBin, EcPrivateKeyBin, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
};
use p224::ecdsa::signature::hazmat::PrehashSigner;
use zeroize::{Zeroize, Zeroizing};

use super::local_der;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use crate::x509::pem;
use crate::x509::public_key::PublicKey;

/// Type and size of a key to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    kind: KeyKind,
}

impl KeySpec {
    /// RSA with 2048 bits.
    pub const RSA_2048: Self = Self { kind: KeyKind::Rsa { bits: 2048 } };
    /// RSA with 3072 bits.
    pub const RSA_3072: Self = Self { kind: KeyKind::Rsa { bits: 3072 } };
    /// RSA with 4096 bits.
    pub const RSA_4096: Self = Self { kind: KeyKind::Rsa { bits: 4096 } };

    /// Parses `key_type` and `key_bits`. Sizes are 2048 (default), 3072, 4096 or 8192 for `rsa` and 224, 256 (default),
    /// 384 or 521 for `ec`; 0 means the default, and `ed25519` ignores the size.
    ///
    /// # Errors
    /// `Invalid`, with the name of the field.
    pub fn new(key_type: &str, bits: i64) -> Result<Self> {
        let kind = match (key_type, bits) {
            ("rsa", 0) => KeyKind::Rsa { bits: 2048 },
            ("rsa", 2048 | 3072 | 4096 | 8192) => KeyKind::Rsa { bits: bits as u32 },
            ("rsa", ..2048) => {
                return Err(Error::invalid("key_bits: RSA keys below 2048 bits are not supported"));
            }
            ("rsa", _) => {
                return Err(Error::invalid(
                    "key_bits: unsupported bit length, must be 2048, 3072, 4096 or 8192 for RSA keys",
                ));
            }
            ("ec", 224) => KeyKind::Ec(Curve::P224),
            ("ec", 0 | 256) => KeyKind::Ec(Curve::P256),
            ("ec", 384) => KeyKind::Ec(Curve::P384),
            ("ec", 521) => KeyKind::Ec(Curve::P521),
            ("ec", _) => {
                return Err(Error::invalid(
                    "key_bits: unsupported curve size, must be 224, 256, 384 or 521 for EC keys",
                ));
            }
            ("ed25519", _) => KeyKind::Ed25519,
            _ => return Err(Error::invalid("key_type: unknown key type, must be rsa, ec or ed25519")),
        };
        Ok(Self { kind })
    }

    /// The kind of the key, with its size.
    pub fn kind(self) -> KeyKind {
        self.kind
    }

    /// A placeholder public key with which a certificate is validated before its key is generated. `None` for key types
    /// whose generation takes less time than this validation.
    pub(crate) fn placeholder_key(self) -> Option<PublicKey> {
        matches!(self.kind, KeyKind::Rsa { .. }).then(|| PublicKey::placeholder(self.kind))
    }
}

/// A private key, ready to sign.
pub struct PrivateKey {
    material: LocalKeyMaterial,
    public: PublicKey,
}

enum LocalKeyMaterial {
    Rsa(RsaKeyPair),
    Ec(Curve, EcdsaKeyPair),
    P224(p224::ecdsa::SigningKey),
    Ed25519(Ed25519KeyPair),
}

impl PrivateKey {
    /// Generates a key. For RSA, this blocks the thread for up to several seconds; [`super::KeyPool`] generates RSA
    /// keys in the background.
    ///
    /// # Errors
    /// `Internal` when the crypto library fails.
    pub fn generate(spec: KeySpec) -> Result<Self> {
        let failed = |_| Error::internal("key generation failed");
        let material = match spec.kind {
            KeyKind::Rsa { bits } => {
                let size = match bits {
                    2048 => KeySize::Rsa2048,
                    3072 => KeySize::Rsa3072,
                    4096 => KeySize::Rsa4096,
                    _ => KeySize::Rsa8192,
                };
                LocalKeyMaterial::Rsa(RsaKeyPair::generate(size).map_err(failed)?)
            }
            KeyKind::Ec(curve) => match ecdsa_signer(curve) {
                Some(signer) => LocalKeyMaterial::Ec(curve, EcdsaKeyPair::generate(signer).map_err(failed)?),
                None => LocalKeyMaterial::P224(generate_p224()),
            },
            KeyKind::Ed25519 => LocalKeyMaterial::Ed25519(Ed25519KeyPair::generate().map_err(failed)?),
        };
        Ok(Self::new(spec.kind, material))
    }

    fn new(kind: KeyKind, material: LocalKeyMaterial) -> Self {
        let public = match &material {
            LocalKeyMaterial::Rsa(key) => PublicKey::from_trusted_bits(kind, key.public_key().as_ref()),
            LocalKeyMaterial::Ec(_, key) => PublicKey::from_trusted_bits(kind, key.public_key().as_ref()),
            LocalKeyMaterial::P224(key) => {
                PublicKey::from_trusted_bits(kind, key.verifying_key().to_encoded_point(false).as_bytes())
            }
            LocalKeyMaterial::Ed25519(key) => PublicKey::from_trusted_bits(kind, key.public_key().as_ref()),
        };
        Self { material, public }
    }

    /// Loads an unencrypted PKCS #8 key (RFC 5208, RFC 5958). The crypto library checks that its parts belong together.
    ///
    /// # Errors
    /// `Invalid`, which never quotes the key: invalid DER, trailing bytes, unsupported key type, RSA size outside 2048
    /// to 8192 bits, parts that do not belong together.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self> {
        let wrong = |_| Error::invalid("private key: its numbers do not form a valid key");
        let info = local_der::PrivateKeyInfo::read(der).map_err(|e| e.into_error("private key"))?;
        let material = match info.kind {
            KeyKind::Rsa { .. } => LocalKeyMaterial::Rsa(RsaKeyPair::from_pkcs8(der).map_err(wrong)?),
            KeyKind::Ec(curve) => match ecdsa_signer(curve) {
                Some(signer) => LocalKeyMaterial::Ec(curve, EcdsaKeyPair::from_pkcs8(signer, der).map_err(wrong)?),
                None => LocalKeyMaterial::P224(load_p224(info.key)?),
            },
            KeyKind::Ed25519 => {
                LocalKeyMaterial::Ed25519(Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(wrong)?)
            }
        };
        Ok(Self::new(info.kind, material))
    }

    /// Loads the only private key of a PEM text, in any form that [`PrivateKey::from_block`] accepts. Skips `EC
    /// PARAMETERS` blocks, which some tools write before a key.
    ///
    /// # Errors
    /// `Invalid`, which never quotes the text: not PEM, no or several key blocks, or as [`PrivateKey::from_block`].
    pub fn from_pem(text: &str) -> Result<Self> {
        let blocks = pem::parse_only_blocks(text).map_err(|e| Error::invalid(format!("private key: {}", e.text())))?;
        // Wrapped as `Secret`, so that every block is zeroized when dropped, including those that are not keys.
        let blocks: Vec<(String, Secret)> = blocks.into_iter().map(|(label, der)| (label, Secret::new(der))).collect();
        let mut keys = blocks.iter().filter(|(label, _)| label != "EC PARAMETERS");
        match (keys.next(), keys.next()) {
            (Some((label, der)), None) => Self::from_block(label, der.expose()),
            _ => Err(Error::invalid("private key: must be exactly one PEM block")),
        }
    }

    /// Loads the contents of a PEM block `PRIVATE KEY`, `RSA PRIVATE KEY` (PKCS #1) or `EC PRIVATE KEY` (SEC 1
    /// with a named curve).
    ///
    /// # Errors
    /// As [`PrivateKey::from_pkcs8`]; `Invalid` for another label.
    pub fn from_block(label: &str, der: &[u8]) -> Result<Self> {
        let of = |e: crate::x509::reader::DerError| e.into_error("private key");
        match label {
            "PRIVATE KEY" => Self::from_pkcs8(der),
            "RSA PRIVATE KEY" => Self::from_pkcs8(local_der::encode_pkcs8(KeyKind::Rsa { bits: 0 }, der).expose()),
            "EC PRIVATE KEY" => {
                let curve = local_der::parse_sec1_curve(der).map_err(of)?;
                Self::from_pkcs8(local_der::encode_pkcs8(KeyKind::Ec(curve), der).expose())
            }
            _ => Err(Error::invalid(format!("private key: a PEM block {label:?} is not a private key"))),
        }
    }

    /// Encodes the key as PKCS #8, version 1.
    ///
    /// # Errors
    /// `Internal` when the crypto library fails.
    pub fn to_pkcs8(&self) -> Result<Secret> {
        match &self.material {
            LocalKeyMaterial::Rsa(key) => {
                let der: Pkcs8V1Der<'_> = key.as_der().map_err(|_| export_error())?;
                Ok(Secret::new(der.as_ref()))
            }
            LocalKeyMaterial::Ec(..) | LocalKeyMaterial::P224(_) => {
                Ok(local_der::encode_pkcs8(self.kind(), self.encode_sec1(false)?.expose()))
            }
            LocalKeyMaterial::Ed25519(key) => {
                let seed = key.seed().map_err(|_| export_error())?;
                let seed: Curve25519SeedBin<'_> = seed.as_be_bytes().map_err(|_| export_error())?;
                Ok(local_der::encode_pkcs8_ed25519(seed.as_ref()))
            }
        }
    }

    /// Encodes the key in the traditional form of its type and returns it with its PEM label: `RSA PRIVATE KEY`
    /// (PKCS #1), `EC PRIVATE KEY` (SEC 1 with named curve and public key), or `PRIVATE KEY` (PKCS #8) for Ed25519,
    /// which has no other form.
    ///
    /// # Errors
    /// `Internal` when the crypto library fails.
    pub fn to_traditional_form(&self) -> Result<(&'static str, Secret)> {
        match &self.material {
            LocalKeyMaterial::Rsa(_) => {
                let pkcs8 = self.to_pkcs8()?;
                let info = local_der::PrivateKeyInfo::read(pkcs8.expose()).map_err(|_| export_error())?;
                Ok(("RSA PRIVATE KEY", Secret::new(info.key)))
            }
            LocalKeyMaterial::Ec(..) | LocalKeyMaterial::P224(_) => Ok(("EC PRIVATE KEY", self.encode_sec1(true)?)),
            LocalKeyMaterial::Ed25519(_) => Ok(("PRIVATE KEY", self.to_pkcs8()?)),
        }
    }

    fn encode_sec1(&self, is_stand_alone: bool) -> Result<Secret> {
        match &self.material {
            LocalKeyMaterial::Ec(curve, key) => {
                let scalar: EcPrivateKeyBin<'_> = key.private_key().as_be_bytes().map_err(|_| export_error())?;
                Ok(local_der::encode_sec1(is_stand_alone.then_some(*curve), scalar.as_ref(), self.public.bits()))
            }
            LocalKeyMaterial::P224(key) => {
                let mut scalar = key.to_bytes();
                let der = local_der::encode_sec1(is_stand_alone.then_some(Curve::P224), &scalar, self.public.bits());
                scalar[..].zeroize();
                Ok(der)
            }
            LocalKeyMaterial::Rsa(_) | LocalKeyMaterial::Ed25519(_) => Err(export_error()),
        }
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The kind of the key, with its size.
    pub fn kind(&self) -> KeyKind {
        self.public.kind()
    }

    /// Signs `message`; ECDSA signatures are DER. P-224 keys sign with any hash, but never certificates:
    /// [`SignatureAlgorithm::for_issuer`] rejects them.
    ///
    /// # Errors
    /// `Invalid` when the algorithm does not fit the key ([`SignatureAlgorithm::fits`]), `Internal` when
    /// the crypto library fails.
    pub fn sign(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Result<Vec<u8>> {
        self.sign_pieces(algorithm, std::iter::once(message))
    }

    /// As [`PrivateKey::sign`], for a message in pieces, which are hashed one by one. Only Ed25519 joins the pieces,
    /// because it reads the message twice (RFC 8032).
    ///
    /// # Errors
    /// As [`PrivateKey::sign`].
    pub fn sign_pieces<'m>(
        &self,
        algorithm: SignatureAlgorithm,
        pieces: impl Iterator<Item = &'m [u8]>,
    ) -> Result<Vec<u8>> {
        let failed = |_| Error::internal("signing failed");
        match (&self.material, algorithm) {
            (LocalKeyMaterial::Rsa(key), SignatureAlgorithm::RsaPkcs1(hash) | SignatureAlgorithm::RsaPss(hash)) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let encoding = rsa_encoding(algorithm).ok_or_else(export_error)?;
                key.sign_digest(encoding, &hash.digest_pieces(pieces), &mut signature).map_err(failed)?;
                Ok(signature)
            }
            (LocalKeyMaterial::Ec(curve, key), SignatureAlgorithm::Ecdsa(hash)) => {
                let digest = hash.digest_pieces(pieces);
                let digest = if hash == curve.hash() { digest } else { fit_digest(*curve, &digest)? };
                Ok(key.sign_digest(&digest).map_err(failed)?.as_ref().to_vec())
            }
            (LocalKeyMaterial::P224(key), SignatureAlgorithm::Ecdsa(hash)) => {
                let digest = hash.digest_pieces(pieces);
                let signature: p224::ecdsa::Signature =
                    key.sign_prehash(digest.as_ref()).map_err(|_| Error::internal("signing failed"))?;
                Ok(signature.to_der().as_bytes().to_vec())
            }
            (LocalKeyMaterial::Ed25519(key), SignatureAlgorithm::Ed25519) => {
                let message = pieces.collect::<Vec<_>>().concat();
                Ok(key.try_sign(&message).map_err(failed)?.as_ref().to_vec())
            }
            _ => Err(Error::invalid(format!(
                "signature algorithm: {} does not fit an {} key of {} bits",
                algorithm.name(),
                self.kind().name(),
                self.kind().bits()
            ))),
        }
    }
}

/// Adjusts a digest to the length of the curve's own hash, which the crypto library requires. ECDSA uses the leftmost
/// bits of a longer digest, and interprets a shorter digest as an integer (FIPS 186-5 6.4.1). So truncation and
/// zero-padding on the left do not change the signature.
fn fit_digest(curve: Curve, digest: &Digest) -> Result<Digest> {
    let bytes = digest.as_ref();
    let expected_hash = curve.hash();
    let mut fitting = vec![0; expected_hash.digest_len() as usize];
    let shared = bytes.len().min(fitting.len());
    let from = fitting.len() - shared;
    fitting[from..].copy_from_slice(&bytes[..shared]);
    Digest::import_less_safe(&fitting, expected_hash.algorithm()).map_err(|_| Error::internal("signing failed"))
}

fn export_error() -> Error {
    Error::internal("private key export failed")
}

fn ecdsa_signer(curve: Curve) -> Option<&'static EcdsaSigningAlgorithm> {
    match curve {
        Curve::P224 => None,
        Curve::P256 => Some(&signature::ECDSA_P256_SHA256_ASN1_SIGNING),
        Curve::P384 => Some(&signature::ECDSA_P384_SHA384_ASN1_SIGNING),
        Curve::P521 => Some(&signature::ECDSA_P521_SHA512_ASN1_SIGNING),
    }
}

fn rsa_encoding(algorithm: SignatureAlgorithm) -> Option<&'static dyn RsaEncoding> {
    Some(match algorithm {
        SignatureAlgorithm::RsaPkcs1(Hash::Sha256) => &signature::RSA_PKCS1_SHA256,
        SignatureAlgorithm::RsaPkcs1(Hash::Sha384) => &signature::RSA_PKCS1_SHA384,
        SignatureAlgorithm::RsaPkcs1(Hash::Sha512) => &signature::RSA_PKCS1_SHA512,
        SignatureAlgorithm::RsaPss(Hash::Sha256) => &signature::RSA_PSS_SHA256,
        SignatureAlgorithm::RsaPss(Hash::Sha384) => &signature::RSA_PSS_SHA384,
        SignatureAlgorithm::RsaPss(Hash::Sha512) => &signature::RSA_PSS_SHA512,
        SignatureAlgorithm::Ecdsa(_) | SignatureAlgorithm::Ed25519 => return None,
    })
}

/// Generates a uniform scalar by rejection sampling (FIPS 186-5 A.2.2). It rejects about one candidate in 2¹¹².
fn generate_p224() -> p224::ecdsa::SigningKey {
    loop {
        let candidate = Zeroizing::new(crate::random::bytes::<28>());
        if let Ok(key) = p224::ecdsa::SigningKey::from_slice(&*candidate) {
            return key;
        }
    }
}

fn load_p224(sec1: &[u8]) -> Result<p224::ecdsa::SigningKey> {
    let wrong = || Error::invalid("private key: its numbers do not form a valid key");
    let parts = local_der::EcPrivateKey::read(sec1).map_err(|e| e.into_error("private key"))?;
    if parts.scalar.len() != Curve::P224.coordinate_len() {
        return Err(wrong());
    }
    let key = p224::ecdsa::SigningKey::from_slice(parts.scalar).map_err(|_| wrong())?;
    let derived_public = key.verifying_key().to_encoded_point(false);
    match parts.public {
        Some(public) if public != derived_public.as_bytes() => Err(wrong()),
        _ => Ok(key),
    }
}

#[cfg(test)]
mod tests;
