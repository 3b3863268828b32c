//! Decryption with the password-based schemes of PKCS #5 and PKCS #12.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroizing;

use super::identifiers::oid;
use super::kdf::{IterationBudget, Pkcs12KeyPurpose, Pkcs12Password, derive_pbkdf2, derive_pkcs12, find_hmac_hash};
use super::problem::Pkcs12Problem;
use crate::x509::algorithm::HashFunction;
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{INTEGER, SEQUENCE};

/// Three-key Triple DES, only to read files of programs that use it by default.
#[allow(deprecated)]
const TRIPLE_DES: &Algorithm = &aws_lc_rs::cipher::DES_EDE3_FOR_LEGACY_USE_ONLY;
/// Maximum length of a salt, in bytes.
pub(super) const MAX_SALT_BYTES: usize = 256;
/// The last byte of pbeWithSHAAnd3-KeyTripleDES-CBC (RFC 7292 appendix C).
const PBE_TRIPLE_DES: u8 = 3;
/// Advice that is appended to the error for a file with an unsupported algorithm.
const CONVERT_ADVICE: &str =
    "convert the file with `openssl pkcs12 -legacy -in OLD -nodes | openssl pkcs12 -export -out NEW`";

/// Decrypts `data` with `algorithm`, the content of an AlgorithmIdentifier.
///
/// # Errors
/// The violated rule: an unsupported algorithm, or data that the password does not decrypt.
pub(super) fn decrypt(
    algorithm: DerReader<'_>,
    password: &Pkcs12Password,
    budget: &mut IterationBudget,
    data: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Pkcs12Problem> {
    let scheme = PbeScheme::read(algorithm)?;
    let key = UnboundCipherKey::new(scheme.cipher, &scheme.key(password, budget)?);
    let key =
        key.and_then(PaddedBlockDecryptingKey::cbc_pkcs7).map_err(|_| "the derived encryption key cannot be used")?;
    let context = scheme.context(password, budget)?;
    let mut data = Zeroizing::new(data.to_vec());
    let length =
        key.decrypt(&mut data, context).map_err(|_| "the password does not decrypt the contents of the file")?.len();
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
    Pbes2 { hash: HashFunction, iv: &'a [u8] },
    Pkcs12,
}

impl<'a> PbeScheme<'a> {
    fn read(mut algorithm: DerReader<'a>) -> Result<Self, Pkcs12Problem> {
        let scheme = algorithm.oid()?;
        let mut parameters = algorithm.sequence()?;
        algorithm.done()?;
        match scheme.strip_prefix(oid::PKCS12_PBE) {
            Some([PBE_TRIPLE_DES]) => {
                let salt = bounded_salt(parameters.octet_string()?)?;
                let iterations = parameters.read_u32()?;
                parameters.done()?;
                Ok(Self { cipher: TRIPLE_DES, salt, iterations, derivation: PbeKeyDerivation::Pkcs12 })
            }
            Some(_) => Err(unsupported("the file is encrypted with RC2, RC4 or two-key Triple DES")),
            None if scheme == oid::PBES2 => Self::read_pbes2(parameters),
            None => Err(unsupported("the file is encrypted with an unsupported algorithm")),
        }
    }

    /// Reads PBES2-params (RFC 8018 appendix A.4).
    fn read_pbes2(mut parameters: DerReader<'a>) -> Result<Self, Pkcs12Problem> {
        let mut derivation = parameters.sequence()?;
        let mut encryption = parameters.sequence()?;
        parameters.done()?;
        if derivation.oid()? != oid::PBKDF2 {
            return Err(unsupported("the key derivation of the file is not PBKDF2"));
        }
        let mut pbkdf2 = derivation.sequence()?;
        derivation.done()?;
        let salt = bounded_salt(pbkdf2.octet_string()?)?;
        let iterations = pbkdf2.read_u32()?;
        // keyLength is ignored, because the cipher determines the key length.
        pbkdf2.optional(INTEGER)?;
        let hash = match pbkdf2.optional(SEQUENCE)? {
            Some(function) => find_hmac_hash(function.reader().oid()?),
            None => Some(HashFunction::Sha1),
        };
        pbkdf2.done()?;
        let hash =
            hash.ok_or_else(|| unsupported("the file uses PBKDF2 with an unsupported pseudo-random function"))?;
        let cipher = match encryption.oid()? {
            oid::AES128_CBC => &AES_128,
            oid::AES192_CBC => &AES_192,
            oid::AES256_CBC => &AES_256,
            _ => return Err(unsupported("the file is encrypted with a cipher other than AES-CBC")),
        };
        let iv = encryption.octet_string()?;
        encryption.done()?;
        Ok(Self { cipher, salt, iterations, derivation: PbeKeyDerivation::Pbes2 { hash, iv } })
    }

    fn key(&self, password: &Pkcs12Password, budget: &mut IterationBudget) -> Result<Zeroizing<Vec<u8>>, String> {
        let length = key_length(self.cipher);
        match self.derivation {
            PbeKeyDerivation::Pbes2 { hash, .. } => {
                Ok(derive_pbkdf2(password, hash, self.salt, budget.spend(self.iterations)?, length))
            }
            PbeKeyDerivation::Pkcs12 => self.derive_pkcs12(password, budget, Pkcs12KeyPurpose::Encryption, length),
        }
    }

    fn context(&self, password: &Pkcs12Password, budget: &mut IterationBudget) -> Result<DecryptionContext, String> {
        let wrong = |_| "the initialization vector of the cipher has the wrong length".to_owned();
        match self.derivation {
            PbeKeyDerivation::Pbes2 { iv, .. } => {
                Ok(DecryptionContext::Iv128(FixedLength::try_from(iv).map_err(wrong)?))
            }
            PbeKeyDerivation::Pkcs12 => {
                let length = self.cipher.block_len();
                let iv = self.derive_pkcs12(password, budget, Pkcs12KeyPurpose::InitializationVector, length)?;
                Ok(DecryptionContext::Iv64(FixedLength::try_from(iv.as_slice()).map_err(wrong)?))
            }
        }
    }

    fn derive_pkcs12(
        &self,
        password: &Pkcs12Password,
        budget: &mut IterationBudget,
        purpose: Pkcs12KeyPurpose,
        length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, String> {
        let iterations = budget.spend(self.iterations)?;
        Ok(derive_pkcs12(password, HashFunction::Sha1, purpose, self.salt, iterations, length))
    }
}

fn unsupported(feature: &str) -> Pkcs12Problem {
    Pkcs12Problem::Unsupported(format!("{feature}: {CONVERT_ADVICE}"))
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

/// Returns `salt`, or an error if it is longer than [`MAX_SALT_BYTES`].
pub(super) fn bounded_salt(salt: &[u8]) -> DerResult<&[u8]> {
    if salt.len() > MAX_SALT_BYTES { Err(DerError("a salt is longer than 256 octets")) } else { Ok(salt) }
}
