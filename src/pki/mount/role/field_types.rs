//! Types of role fields: keys, signature hashes, rules for the validity in requests, and the source of serialNumber.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::keys::local::KeySpec;
use crate::pki::values::Keyword;
use crate::pki::values::original_text::Rfc3339Text;
use crate::x509::algorithm::KeyKind;

/// The keys that a role certifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredRoleKeys", into = "StoredRoleKeys")]
pub enum RoleKeys {
    /// Any key that this server certifies; the request selects type and size of a key that `issue` generates.
    Any,
    /// Keys of one type: `issue` generates keys of this size, `sign` accepts this size and larger.
    Only(KeySpec),
}

/// Stored form of [`RoleKeys`].
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct StoredRoleKeys {
    key_type: String,
    key_bits: u32,
}

impl Default for StoredRoleKeys {
    fn default() -> Self {
        Self { key_type: "rsa".to_owned(), key_bits: 0 }
    }
}

impl RoleKeys {
    /// RSA keys of at least 2048 bits.
    pub const DEFAULT: Self = Self::Only(KeySpec::RSA_2048);

    /// Parses a key type (`rsa`, `ec`, `ed25519`, `any`) and size; 0 bits is the type's default. The size is ignored
    /// for `ed25519` and `any`.
    ///
    /// # Errors
    /// `Invalid` naming `key_type` or `key_bits`.
    pub fn new(key_type: &str, bits: u32) -> Result<Self> {
        let rule = match (key_type, bits) {
            ("any", _) => return Ok(Self::Any),
            ("rsa", 0 | 2048 | 3072 | 4096 | 8192) | ("ec", 0 | 224 | 256 | 384 | 521) | ("ed25519", _) => {
                return KeySpec::new(key_type, i64::from(bits)).map(Self::Only);
            }
            ("rsa", ..2048) => "key_bits: RSA keys below 2048 bits are not supported",
            ("rsa", _) => "key_bits: unsupported bit length: must be 2048, 3072, 4096 or 8192",
            ("ec", _) => "key_bits: unsupported curve size: must be 224, 256, 384 or 521",
            _ => "key_type: unknown key type: must be rsa, ec, ed25519 or any",
        };
        Err(Error::invalid(rule))
    }

    /// Returns `rsa`, `ec`, `ed25519` or `any`.
    pub fn key_type(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Only(spec) => spec.kind().name(),
        }
    }

    /// Returns the size of generated keys, and the minimum size of certified keys, in bits; 0 for `ed25519` and `any`.
    pub fn bits(self) -> u32 {
        match self {
            Self::Any => 0,
            Self::Only(spec) => spec.kind().bits(),
        }
    }

    pub(super) fn are_rsa(self) -> bool {
        matches!(self, Self::Only(spec) if matches!(spec.kind(), KeyKind::Rsa { .. }))
    }
}

impl TryFrom<StoredRoleKeys> for RoleKeys {
    type Error = Error;

    fn try_from(words: StoredRoleKeys) -> Result<Self> {
        Self::new(&words.key_type, words.key_bits)
    }
}

impl From<RoleKeys> for StoredRoleKeys {
    fn from(keys: RoleKeys) -> Self {
        Self { key_type: keys.key_type().to_owned(), key_bits: keys.bits() }
    }
}

/// Hash size of signatures by an RSA issuer, in bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct SignatureBits(u32);

impl SignatureBits {
    /// No size is set: the issuer's key determines the hash.
    pub const ISSUER_DEFAULT: Self = Self(0);
    /// SHA-256.
    pub const SHA_256: Self = Self(256);

    /// Validates a hash size in bits.
    ///
    /// # Errors
    /// `Invalid` unless it is 0, 256, 384 or 512.
    pub fn new(bits: u32) -> Result<Self> {
        match bits {
            0 | 256 | 384 | 512 => Ok(Self(bits)),
            _ => Err(Error::invalid("signature_bits: unsupported hash size: must be 0, 256, 384 or 512")),
        }
    }

    /// Returns the hash size in bits: 0, 256, 384 or 512.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for SignatureBits {
    type Error = Error;

    fn try_from(bits: u32) -> Result<Self> {
        Self::new(bits)
    }
}

impl From<SignatureBits> for u32 {
    fn from(bits: SignatureBits) -> Self {
        bits.0
    }
}

/// Rule for `not_before` in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotBeforeBound {
    /// Requests may set any `not_before`.
    Permit,
    /// Requests must not set `not_before` earlier than the role's own backdating.
    Duration,
    /// Requests must not set `not_before`.
    Forbid,
}

impl Keyword for NotBeforeBound {
    const FIELD: &'static str = "not_before_bound";
    const KEYWORDS: &'static [(Self, &'static str)] =
        &[(Self::Permit, "permit"), (Self::Duration, "duration"), (Self::Forbid, "forbid")];
}

/// Rule for `not_after` in requests; [`Self::Until`] also limits certificates of requests that set no `not_after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NotAfterBound {
    /// Requests may set any `not_after`.
    Permit,
    /// Requests must not set `not_after`.
    Forbid,
    /// Requests must not set `not_after` later than the role's lifetime allows.
    TtlLimited,
    /// Requests may set any `not_after`, but no certificate ends later than this time.
    Until(Rfc3339Text),
}

impl NotAfterBound {
    /// Parses the setting: a keyword or a time.
    ///
    /// # Errors
    /// `Invalid` for any other text.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "permit" => Ok(Self::Permit),
            "forbid" => Ok(Self::Forbid),
            "ttl-limited" => Ok(Self::TtlLimited),
            other => Rfc3339Text::new("not_after_bound", other).map(Self::Until).map_err(|_| {
                Error::invalid("not_after_bound: must be permit, forbid, ttl-limited or an RFC 3339 time")
            }),
        }
    }

    /// Returns the setting as text; a time is returned as written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Permit => "permit",
            Self::Forbid => "forbid",
            Self::TtlLimited => "ttl-limited",
            Self::Until(latest) => latest.as_str(),
        }
    }
}

impl TryFrom<String> for NotAfterBound {
    type Error = Error;

    fn try_from(word: String) -> Result<Self> {
        Self::parse(&word)
    }
}

impl From<NotAfterBound> for String {
    fn from(bound: NotAfterBound) -> Self {
        bound.as_str().to_owned()
    }
}

/// Source of the subject's serialNumber attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SerialNumberSource {
    /// The request body, or else the CSR.
    JsonCsr,
    /// The request body only.
    Json,
}

impl Keyword for SerialNumberSource {
    const FIELD: &'static str = "serial_number_source";
    const KEYWORDS: &'static [(Self, &'static str)] = &[(Self::JsonCsr, "json-csr"), (Self::Json, "json")];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::algorithm::Curve;

    #[test]
    fn key_types_and_sizes_are_stored_or_rejected() {
        for (kind, bits, stored) in [
            ("rsa", 0, 2048),
            ("rsa", 8192, 8192),
            ("ec", 0, 256),
            ("ec", 521, 521),
            ("ed25519", 256, 0),
            ("any", 4096, 0),
        ] {
            let keys = RoleKeys::new(kind, bits).unwrap();
            assert_eq!((keys.key_type(), keys.bits()), (kind, stored), "{kind} {bits}");
        }
        for (kind, bits, rule) in [
            ("rsa", 1024, "key_bits: RSA keys below"),
            ("rsa", 2049, "key_bits: unsupported bit length"),
            ("ec", 2048, "key_bits: unsupported curve size"),
            ("", 0, "key_type: "),
            ("RSA", 1, "key_type: "),
        ] {
            let error = RoleKeys::new(kind, bits).unwrap_err();
            assert!(error.text().starts_with(rule), "{kind} {bits}: {error}");
        }
        let p521 = RoleKeys::new("ec", 521).unwrap();
        assert!(matches!(p521, RoleKeys::Only(spec) if spec.kind() == KeyKind::Ec(Curve::P521)));
    }

    #[test]
    fn role_keywords_keep_their_spelling() {
        for word in ["permit", "duration", "forbid"] {
            let bound = NotBeforeBound::parse(word).unwrap();
            assert_eq!((serde_json::to_value(bound).unwrap(), bound.as_str()), (word.into(), word));
        }
        for word in ["permit", "forbid", "ttl-limited", "2030-01-01T01:00:00+01:00"] {
            let bound = NotAfterBound::parse(word).unwrap();
            assert_eq!((serde_json::to_value(&bound).unwrap(), bound.as_str()), (word.into(), word));
        }
        for word in ["json-csr", "json"] {
            let source = SerialNumberSource::parse(word).unwrap();
            assert_eq!((serde_json::to_value(source).unwrap(), source.as_str()), (word.into(), word));
        }
        assert!(NotBeforeBound::parse("").is_err() && NotAfterBound::parse("maybe").is_err());
        assert!(SerialNumberSource::parse("csr").is_err());
    }
}
