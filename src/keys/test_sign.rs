//! Parameters of a test signature: a scheme, and a hash from a larger set than certificates use.

use aws_lc_rs::digest;
use sha3::Digest as _;

use crate::error::{Error, Result};
use crate::x509::algorithm::Hash;
use crate::x509::oid;

/// A hash function that a test signature may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TestHash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Sha3_224,
    Sha3_256,
    Sha3_384,
    Sha3_512,
}

/// Parameters of a test signature: the key signs random bytes, and the signature is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestSign {
    /// The request field `hash_algorithm`. `None`: the hash that the key requires, or SHA-256.
    pub hash: Option<TestHash>,
    /// The request field `use_pss`. `None`: the scheme that the key requires, or PKCS #1.
    pub use_pss: Option<bool>,
}

/// The hashes, each with its name in requests, digest length in bytes, and DER object identifier without tag and
/// length.
const TEST_HASHES: [(TestHash, &str, usize, &[u8]); 9] = [
    (TestHash::Sha1, "sha1", 20, oid::SHA1),
    (TestHash::Sha224, "sha2-224", 28, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 4]),
    (TestHash::Sha256, "sha2-256", 32, oid::SHA256),
    (TestHash::Sha384, "sha2-384", 48, oid::SHA384),
    (TestHash::Sha512, "sha2-512", 64, oid::SHA512),
    (TestHash::Sha3_224, "sha3-224", 28, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 7]),
    (TestHash::Sha3_256, "sha3-256", 32, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 8]),
    (TestHash::Sha3_384, "sha3-384", 48, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 9]),
    (TestHash::Sha3_512, "sha3-512", 64, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 10]),
];

const MAX_QUOTED_CHARACTERS: usize = 64;

impl TestHash {
    /// All hash functions that a test signature may use.
    pub fn all() -> impl Iterator<Item = Self> {
        TEST_HASHES.iter().map(|row| row.0)
    }

    /// Parses `hash_algorithm`: `sha1`, `sha2-224` … `sha2-512`, `sha3-224` … `sha3-512`. SHA-2 names are also accepted
    /// as `sha224` … `sha512`.
    ///
    /// # Errors
    /// `Invalid`, with the unknown name.
    pub fn parse(word: &str) -> Result<Self> {
        let is = |known: &str| {
            known == word || known.strip_prefix("sha2-").is_some_and(|n| word.strip_prefix("sha") == Some(n))
        };
        TEST_HASHES.iter().find(|row| is(row.1)).map(|row| row.0).ok_or_else(|| {
            let word: String = word.chars().take(MAX_QUOTED_CHARACTERS).collect();
            Error::invalid(format!("unsupported hash_algorithm {word:?}"))
        })
    }

    /// The name in requests.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Digest length in bytes.
    pub fn digest_len(self) -> usize {
        self.row().2
    }

    /// The object identifier in DER, without tag and length (RFC 8017 B.1, FIPS 202).
    pub(super) fn oid(self) -> &'static [u8] {
        self.row().3
    }

    fn row(self) -> &'static (Self, &'static str, usize, &'static [u8]) {
        TEST_HASHES.iter().find(|row| row.0 == self).expect("TEST_HASHES has a row for every hash")
    }

    /// The digest of `message`.
    pub fn digest(self, message: &[u8]) -> Vec<u8> {
        let by = |algorithm| digest::digest(algorithm, message).as_ref().to_vec();
        match self {
            Self::Sha1 => by(&digest::SHA1_FOR_LEGACY_USE_ONLY),
            Self::Sha224 => by(&digest::SHA224),
            Self::Sha256 => by(&digest::SHA256),
            Self::Sha384 => by(&digest::SHA384),
            Self::Sha512 => by(&digest::SHA512),
            Self::Sha3_224 => sha3::Sha3_224::digest(message).to_vec(),
            Self::Sha3_256 => by(&digest::SHA3_256),
            Self::Sha3_384 => by(&digest::SHA3_384),
            Self::Sha3_512 => by(&digest::SHA3_512),
        }
    }

    /// The corresponding hash of certificate signatures, if there is one.
    pub fn as_signature_hash(self) -> Option<Hash> {
        match self {
            Self::Sha256 => Some(Hash::Sha256),
            Self::Sha384 => Some(Hash::Sha384),
            Self::Sha512 => Some(Hash::Sha512),
            _ => None,
        }
    }
}

impl From<Hash> for TestHash {
    fn from(hash: Hash) -> Self {
        match hash {
            Hash::Sha256 => Self::Sha256,
            Hash::Sha384 => Self::Sha384,
            Hash::Sha512 => Self::Sha512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nine_hash_names_are_parsed() {
        for hash in TestHash::all() {
            assert_eq!(TestHash::parse(hash.name()).unwrap(), hash);
            assert_eq!(hash.digest(b"abc").len(), hash.digest_len());
        }
        assert_eq!(TestHash::parse("sha256").unwrap(), TestHash::Sha256);
        for word in ["sha-256", "SHA2-256", "sha2256", "sha3", "md5", "", "sha1-", "sha2-1"] {
            let text = TestHash::parse(word).unwrap_err().to_string();
            assert_eq!(text, format!("unsupported hash_algorithm {word:?}"));
        }
        assert!(TestHash::parse(&"x".repeat(100_000)).unwrap_err().text().len() < 120);
    }

    #[test]
    fn digests_are_those_of_fips_180_and_202() {
        let hex = |hash: TestHash| hash.digest(b"abc").iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(TestHash::Sha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(TestHash::Sha224), "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        assert_eq!(hex(TestHash::Sha3_224), "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf");
        assert!(hex(TestHash::Sha3_256).starts_with("3a985da74fe225b2"));
    }
}
