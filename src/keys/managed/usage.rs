//! What a managed key may be used for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// One use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Usage {
    Encrypt,
    Decrypt,
    Sign,
    Verify,
    Wrap,
    Unwrap,
    Mac,
    Random,
}

const WORDS: [(Usage, &str); 8] = [
    (Usage::Encrypt, "encrypt"),
    (Usage::Decrypt, "decrypt"),
    (Usage::Sign, "sign"),
    (Usage::Verify, "verify"),
    (Usage::Wrap, "wrap"),
    (Usage::Unwrap, "unwrap"),
    (Usage::Mac, "mac"),
    (Usage::Random, "random"),
];

/// Another word that clients know for `random`.
const RANDOM_TOO: &str = "generate_random";

/// Characters of a wrong word that an error repeats.
const LONGEST: usize = 64;

impl Usage {
    /// Reads a word, in any letter case.
    ///
    /// # Errors
    /// `Invalid`, naming the word.
    pub fn parse(word: &str) -> Result<Self> {
        let is = |known: &str| known.eq_ignore_ascii_case(word);
        let found = WORDS.iter().find(|(_, known)| is(known)).map(|(usage, _)| *usage);
        found.or_else(|| is(RANDOM_TOO).then_some(Self::Random)).ok_or_else(|| {
            let word: String = word.chars().take(LONGEST).collect();
            Error::invalid(format!("invalid usage {word:?}"))
        })
    }

    /// The word of requests and answers.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(usage, _)| *usage == self).map_or("", |(_, word)| word)
    }
}

/// The uses of a key; `sign` and `verify` unless it is said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usages(BTreeSet<Usage>);

impl Usages {
    /// Reads the words of a list; an empty one is the default.
    ///
    /// # Errors
    /// `Invalid`, naming the word that is none.
    pub fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self> {
        let usages = words.into_iter().map(Usage::parse).collect::<Result<BTreeSet<_>>>()?;
        Ok(if usages.is_empty() { Self::default() } else { Self(usages) })
    }

    /// Whether the key may be used like this.
    pub fn contains(&self, usage: Usage) -> bool {
        self.0.contains(&usage)
    }

    /// The words, always in the same order.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|usage| usage.word())
    }
}

impl Default for Usages {
    fn default() -> Self {
        Self([Usage::Sign, Usage::Verify].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<&'static str> {
        Usages::parse(list.iter().copied()).unwrap().words().collect()
    }

    #[test]
    fn usages_are_words_in_any_case_and_an_empty_list_is_the_default() {
        assert_eq!(words(&[]), ["sign", "verify"]);
        assert_eq!(words(&["MAC", "Sign", "sign"]), ["sign", "mac"]);
        assert_eq!(words(&["generate_random"]), ["random"]);
        assert_eq!(words(&WORDS.map(|(_, word)| word)), WORDS.map(|(_, word)| word));
        assert_eq!(Usages::parse(["sign", "sig"]).unwrap_err().text(), "invalid usage \"sig\"");
        assert!(Usages::parse(["x".repeat(100_000).as_str()]).unwrap_err().text().len() < 100);
    }
}
