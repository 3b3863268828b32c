//! Decryption with the password-based schemes of PKCS #5 and PKCS #12.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroizing;

use super::identifiers::oid;
use super::kdf::{IterationBudget, Pkcs12Digest, Pkcs12KeyPurpose, Pkcs12Password, derive_pbkdf2, derive_pkcs12};
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{INTEGER, SEQUENCE};

/// Three-key Triple DES, to read files of programs that use it by default.
#[allow(deprecated)]
const TRIPLE_DES: &Algorithm = &aws_lc_rs::cipher::DES_EDE3_FOR_LEGACY_USE_ONLY;
/// Maximum length of a salt, in bytes.
pub(super) const MAX_SALT_BYTES: usize = 256;
/// The last byte of pbeWithSHAAnd3-KeyTripleDES-CBC (RFC 7292 appendix C).
const PBE_TRIPLE_DES: u8 = 3;
/// Advice for files with an unsupported algorithm.
const CONVERT_ADVICE: &str =
    "convert the file with `openssl pkcs12 -legacy -in OLD -nodes | openssl pkcs12 -export -out NEW`";

fn rule_text(error: DerError) -> String {
    error.0.to_owned()
}

/// Decrypts `data` with `algorithm`, the content of an AlgorithmIdentifier.
///
/// # Errors
/// The violated rule: an unsupported algorithm, or data that the password does not decrypt.
pub(super) fn decrypt(
    algorithm: DerReader<'_>,
    password: &Pkcs12Password,
    budget: &mut IterationBudget,
    data: &[u8],
) -> Result<Zeroizing<Vec<u8>>, String> {
    let scheme = PbeScheme::read(algorithm).map_err(rule_text)??;
    let key = UnboundCipherKey::new(scheme.cipher, &scheme.key(password, budget)?);
    let key = key.and_then(PaddedBlockDecryptingKey::cbc_pkcs7).map_err(|_| "its key cannot be used".to_owned())?;
    let context = scheme.context(password)?;
    let mut data = Zeroizing::new(data.to_vec());
    let length = key.decrypt(&mut data, context).map_err(|_| "the password does not decrypt it")?.len();
    data.truncate(length);
    Ok(data)
}

struct PbeScheme<'a> {
    cipher: &'static Algorithm,
    salt: &'a [u8],
    iterations: u32,
    derivation: PbeKeyDerivation<'a>,
}

enum PbeKeyDerivation<'a> {
    Pbes2 { digest: Pkcs12Digest, iv: &'a [u8] },
    Pkcs12,
}

impl<'a> PbeScheme<'a> {
    /// The outer error is a violated encoding rule, the inner one an unsupported algorithm.
    fn read(mut algorithm: DerReader<'a>) -> DerResult<Result<Self, String>> {
        let scheme = algorithm.oid()?;
        let mut parameters = algorithm.sequence()?;
        algorithm.done()?;
        match scheme.strip_prefix(oid::PKCS12_PBE) {
            Some([PBE_TRIPLE_DES]) => {
                let salt = bounded_salt(parameters.octet_string()?)?;
                let iterations = parameters.small()?;
                parameters.done()?;
                Ok(Ok(Self { cipher: TRIPLE_DES, salt, iterations, derivation: PbeKeyDerivation::Pkcs12 }))
            }
            Some(_) => Ok(Err(format!("it is encrypted by RC2, RC4 or two-key Triple DES: {CONVERT_ADVICE}"))),
            None if scheme == oid::PBES2 => Self::read_pbes2(parameters),
            None => Ok(Err(format!("it is encrypted by an algorithm that is not supported: {CONVERT_ADVICE}"))),
        }
    }

    /// PBES2-params (RFC 8018 appendix A.4).
    fn read_pbes2(mut parameters: DerReader<'a>) -> DerResult<Result<Self, String>> {
        let mut derivation = parameters.sequence()?;
        let mut encryption = parameters.sequence()?;
        parameters.done()?;
        if derivation.oid()? != oid::PBKDF2 {
            return Ok(Err(format!("its key derivation is not PBKDF2: {CONVERT_ADVICE}")));
        }
        let mut pbkdf2 = derivation.sequence()?;
        derivation.done()?;
        let salt = bounded_salt(pbkdf2.octet_string()?)?;
        let iterations = pbkdf2.small()?;
        // keyLength is ignored, because the cipher determines the key length.
        pbkdf2.optional(INTEGER)?;
        let digest = match pbkdf2.optional(SEQUENCE)? {
            Some(function) => Pkcs12Digest::of_hmac(function.reader().oid()?),
            None => Some(Pkcs12Digest::Sha1),
        };
        pbkdf2.done()?;
        let Some(digest) = digest else {
            return Ok(Err(format!("the pseudo-random function of its PBKDF2 is not supported: {CONVERT_ADVICE}")));
        };
        let cipher = match encryption.oid()? {
            oid::AES128_CBC => &AES_128,
            oid::AES192_CBC => &AES_192,
            oid::AES256_CBC => &AES_256,
            _ => return Ok(Err(format!("it is encrypted by a cipher other than AES-CBC: {CONVERT_ADVICE}"))),
        };
        let iv = encryption.octet_string()?;
        encryption.done()?;
        Ok(Ok(Self { cipher, salt, iterations, derivation: PbeKeyDerivation::Pbes2 { digest, iv } }))
    }

    fn key(&self, password: &Pkcs12Password, budget: &mut IterationBudget) -> Result<Zeroizing<Vec<u8>>, String> {
        let iterations = budget.take(self.iterations)?;
        let length = key_length(self.cipher);
        Ok(match self.derivation {
            PbeKeyDerivation::Pbes2 { digest, .. } => derive_pbkdf2(password, digest, self.salt, iterations, length),
            PbeKeyDerivation::Pkcs12 => {
                // Derives the initialization vector, which takes the same number of iterations.
                budget.take(self.iterations)?;
                derive_pkcs12(password, Pkcs12Digest::Sha1, Pkcs12KeyPurpose::Encryption, self.salt, iterations, length)
            }
        })
    }

    /// Returns the initialization vector. Call [`Self::key`] first, which subtracts its iterations from the budget.
    fn context(&self, password: &Pkcs12Password) -> Result<DecryptionContext, String> {
        let wrong = |_| "its initialization vector has the wrong length".to_owned();
        match self.derivation {
            PbeKeyDerivation::Pbes2 { iv, .. } => {
                Ok(DecryptionContext::Iv128(FixedLength::try_from(iv).map_err(wrong)?))
            }
            PbeKeyDerivation::Pkcs12 => {
                let iterations = std::num::NonZeroU32::new(self.iterations).ok_or("an iteration count is 0")?;
                let purpose = Pkcs12KeyPurpose::InitializationVector;
                let iv = derive_pkcs12(
                    password,
                    Pkcs12Digest::Sha1,
                    purpose,
                    self.salt,
                    iterations,
                    self.cipher.block_len(),
                );
                Ok(DecryptionContext::Iv64(FixedLength::try_from(iv.as_slice()).map_err(wrong)?))
            }
        }
    }
}

fn key_length(cipher: &'static Algorithm) -> usize {
    if cipher == &AES_128 {
        16
    } else if cipher == &AES_256 {
        32
    } else {
        24
    }
}

/// Checks that a salt is at most [`MAX_SALT_BYTES`] bytes long.
pub(super) fn bounded_salt(salt: &[u8]) -> DerResult<&[u8]> {
    if salt.len() > MAX_SALT_BYTES { Err(DerError("a salt is longer than 256 octets")) } else { Ok(salt) }
}
