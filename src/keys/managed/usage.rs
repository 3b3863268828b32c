//! The operations for which managed keys may be used.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// An operation for which a managed key may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ManagedKeyUsage {
    Encrypt,
    Decrypt,
    Sign,
    Verify,
    Wrap,
    Unwrap,
    Mac,
    Random,
}

const USAGE_NAMES: [(ManagedKeyUsage, &str); 8] = [
    (ManagedKeyUsage::Encrypt, "encrypt"),
    (ManagedKeyUsage::Decrypt, "decrypt"),
    (ManagedKeyUsage::Sign, "sign"),
    (ManagedKeyUsage::Verify, "verify"),
    (ManagedKeyUsage::Wrap, "wrap"),
    (ManagedKeyUsage::Unwrap, "unwrap"),
    (ManagedKeyUsage::Mac, "mac"),
    (ManagedKeyUsage::Random, "random"),
];

/// Another name of the usage `random` that requests may contain.
const RANDOM_ALIAS: &str = "generate_random";

/// Maximum characters of an unknown name that an error quotes.
const MAX_QUOTED_CHARACTERS: usize = 64;

impl ManagedKeyUsage {
    /// Parses the name of a usage, ignoring case.
    ///
    /// # Errors
    /// `Invalid`, with the unknown name.
    pub fn parse(word: &str) -> Result<Self> {
        let is = |known: &str| known.eq_ignore_ascii_case(word);
        let found = USAGE_NAMES.iter().find(|(_, known)| is(known)).map(|(usage, _)| *usage);
        found.or_else(|| is(RANDOM_ALIAS).then_some(Self::Random)).ok_or_else(|| {
            let word: String = word.chars().take(MAX_QUOTED_CHARACTERS).collect();
            Error::invalid(format!("invalid usage {word:?}"))
        })
    }

    /// The name of the usage in requests and responses.
    pub fn name(self) -> &'static str {
        USAGE_NAMES.iter().find(|(usage, _)| *usage == self).map_or("", |(_, word)| word)
    }
}

/// The allowed usages of a key; by default `sign` and `verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedKeyUsages(BTreeSet<ManagedKeyUsage>);

impl ManagedKeyUsages {
    /// Parses a list of usage names; an empty list stands for the default.
    ///
    /// # Errors
    /// `Invalid`, with the unknown name.
    pub fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self> {
        let usages = words.into_iter().map(ManagedKeyUsage::parse).collect::<Result<BTreeSet<_>>>()?;
        Ok(if usages.is_empty() { Self::default() } else { Self(usages) })
    }

    /// `true` if the usage is allowed.
    pub fn contains(&self, usage: ManagedKeyUsage) -> bool {
        self.0.contains(&usage)
    }

    /// The names of the allowed usages, always in the same order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|usage| usage.name())
    }
}

impl Default for ManagedKeyUsages {
    fn default() -> Self {
        Self([ManagedKeyUsage::Sign, ManagedKeyUsage::Verify].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<&'static str> {
        ManagedKeyUsages::parse(list.iter().copied()).unwrap().names().collect()
    }

    #[test]
    fn usages_parse_in_any_case_and_an_empty_list_is_default() {
        assert_eq!(words(&[]), ["sign", "verify"]);
        assert_eq!(words(&["MAC", "Sign", "sign"]), ["sign", "mac"]);
        assert_eq!(words(&["generate_random"]), ["random"]);
        assert_eq!(words(&USAGE_NAMES.map(|(_, word)| word)), USAGE_NAMES.map(|(_, word)| word));
        assert_eq!(ManagedKeyUsages::parse(["sign", "sig"]).unwrap_err().text(), "invalid usage \"sig\"");
        assert!(ManagedKeyUsages::parse(["x".repeat(100_000).as_str()]).unwrap_err().text().len() < 100);
    }
}
