//! Key derivation from passwords: PBKDF2 (RFC 8018 section 5.2) and the PKCS #12 function (RFC 7292 appendix B).

use std::num::NonZeroU32;

use aws_lc_rs::digest::{Context, digest};
use aws_lc_rs::{hmac, pbkdf2};
use zeroize::{Zeroize, Zeroizing};

use super::identifiers::oid;
use crate::error::{Error, Result};
use crate::x509::algorithm::{Hash, HashFunction};

/// Maximum length of the password of a file that is read, in bytes.
const MAX_PASSWORD_BYTES: usize = 1024;
/// Maximum length of the password of a file that is written, in characters.
const MAX_WRITTEN_PASSWORD_CHARS: usize = 128;
/// Maximum number of iterations for one file, about a second of CPU time. GnuTLS writes files with 1,800,000.
const MAX_ITERATIONS: u32 = 3_000_000;

/// The password of a file to be written: printable ASCII, because programs encode other characters differently.
pub struct WrittenPassword(Pkcs12Password);

impl WrittenPassword {
    /// Validates a password that the request field `field` contains.
    ///
    /// # Errors
    /// `Invalid` for a password that is empty, too long, or not printable ASCII.
    pub fn new(field: &str, text: &[u8]) -> Result<Self> {
        let is_printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
        if !(1..=MAX_WRITTEN_PASSWORD_CHARS).contains(&text.len()) || !is_printable {
            let rule = format!("must have 1 to {MAX_WRITTEN_PASSWORD_CHARS} printable ASCII characters");
            return Err(Error::invalid(format!("{field}: {rule}")));
        }
        Ok(Self(Pkcs12Password::new(field, text)?))
    }

    pub(super) fn password(&self) -> &Pkcs12Password {
        &self.0
    }
}

/// A password in both encodings that PKCS #12 uses.
pub(super) struct Pkcs12Password {
    /// UTF-8, for PBKDF2.
    utf8: Zeroizing<Vec<u8>>,
    /// Big-endian UTF-16 with two trailing zero bytes, for the PKCS #12 function.
    utf16: Zeroizing<Vec<u8>>,
}

impl Pkcs12Password {
    /// Validates a password that the request field `field` contains.
    ///
    /// # Errors
    /// `Invalid` for a password that is too long or not UTF-8.
    pub(super) fn new(field: &str, text: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_PASSWORD_BYTES);
        let rule = || Error::invalid(format!("{field}: must be a text of at most {MAX_PASSWORD_BYTES} bytes"));
        let text = text.ok_or_else(rule)?;
        let mut utf16 = Zeroizing::new(Vec::with_capacity(2 * text.len() + 2));
        utf16.extend(text.encode_utf16().chain([0]).flat_map(u16::to_be_bytes));
        Ok(Self { utf8: text.as_bytes().to_vec().into(), utf16 })
    }
}

/// The number of iterations that the key derivations of one file may still use.
pub(super) struct IterationBudget(u32);

impl IterationBudget {
    pub(super) fn new() -> Self {
        Self(MAX_ITERATIONS)
    }

    /// Subtracts the iterations of one key derivation; fails if too few are left.
    pub(super) fn spend(&mut self, iterations: u32) -> Result<NonZeroU32, String> {
        let count = NonZeroU32::new(iterations).ok_or("an iteration count of the key derivation is 0")?;
        self.0 = self.0.checked_sub(iterations).ok_or_else(|| {
            format!("the key derivations of the file take more than {MAX_ITERATIONS} iterations together")
        })?;
        Ok(count)
    }
}

/// Returns the hash function of the PBKDF2 pseudo-random function with this OID.
pub(super) fn find_hmac_hash(oid: &[u8]) -> Option<HashFunction> {
    let known = [
        (oid::HMAC_SHA1, HashFunction::Sha1),
        (oid::HMAC_SHA256, HashFunction::Sha2(Hash::Sha256)),
        (oid::HMAC_SHA384, HashFunction::Sha2(Hash::Sha384)),
        (oid::HMAC_SHA512, HashFunction::Sha2(Hash::Sha512)),
    ];
    known.into_iter().find_map(|(known, hash)| (known == oid).then_some(hash))
}

pub(super) fn hmac_algorithm(hash: HashFunction) -> hmac::Algorithm {
    match hash {
        HashFunction::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        HashFunction::Sha2(Hash::Sha256) => hmac::HMAC_SHA256,
        HashFunction::Sha2(Hash::Sha384) => hmac::HMAC_SHA384,
        HashFunction::Sha2(Hash::Sha512) => hmac::HMAC_SHA512,
    }
}

fn pbkdf2_algorithm(hash: HashFunction) -> pbkdf2::Algorithm {
    match hash {
        HashFunction::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
        HashFunction::Sha2(Hash::Sha256) => pbkdf2::PBKDF2_HMAC_SHA256,
        HashFunction::Sha2(Hash::Sha384) => pbkdf2::PBKDF2_HMAC_SHA384,
        HashFunction::Sha2(Hash::Sha512) => pbkdf2::PBKDF2_HMAC_SHA512,
    }
}

/// Derives `length` bytes with PBKDF2.
pub(super) fn derive_pbkdf2(
    password: &Pkcs12Password,
    hash: HashFunction,
    salt: &[u8],
    iterations: NonZeroU32,
    length: usize,
) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; length]);
    pbkdf2::derive(pbkdf2_algorithm(hash), iterations, salt, &password.utf8, &mut key);
    key
}

/// The purpose of a key derived by the PKCS #12 function (RFC 7292 appendix B.3).
#[derive(Clone, Copy)]
pub(super) enum Pkcs12KeyPurpose {
    Encryption = 1,
    InitializationVector = 2,
    Mac = 3,
}

/// Derives `length` bytes with the PKCS #12 function (RFC 7292 appendix B.2).
pub(super) fn derive_pkcs12(
    password: &Pkcs12Password,
    hash: HashFunction,
    purpose: Pkcs12KeyPurpose,
    salt: &[u8],
    iterations: NonZeroU32,
    length: usize,
) -> Zeroizing<Vec<u8>> {
    let algorithm = hash.algorithm();
    let block = algorithm.block_len();
    let filled =
        |text: &[u8]| text.iter().copied().cycle().take(text.len().next_multiple_of(block)).collect::<Vec<_>>();
    let diversifier = vec![purpose as u8; block];
    let mut input = Zeroizing::new(filled(salt));
    input.append(&mut filled(&password.utf16));
    let mut key = Zeroizing::new(Vec::with_capacity(length));
    loop {
        let mut context = Context::new(algorithm);
        context.update(&diversifier);
        context.update(&input);
        let mut output = context.finish();
        for _ in 1..iterations.get() {
            output = digest(algorithm, output.as_ref());
        }
        let output = output.as_ref();
        let missing = length - key.len();
        key.extend_from_slice(&output[..output.len().min(missing)]);
        if key.len() == length {
            return key;
        }
        let mut addend: Vec<u8> = output.iter().copied().cycle().take(block).collect();
        input.chunks_mut(block).for_each(|chunk| add_and_one(chunk, &addend));
        addend.zeroize();
    }
}

/// Adds `addend` and 1 to a big-endian number of the same length, discarding the final carry.
fn add_and_one(number: &mut [u8], addend: &[u8]) {
    let mut carry = 1;
    for (octet, added) in number.iter_mut().zip(addend).rev() {
        let sum = u16::from(*octet) + u16::from(*added) + carry;
        *octet = sum as u8;
        carry = sum >> 8;
    }
}
