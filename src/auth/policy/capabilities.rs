//! Capabilities: what a rule grants, and what an operation needs.

use super::Operation;

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

/// The words of a policy, in the order in which they are shown.
const WORDS: [(&str, Capabilities); 9] = [
    ("create", Capabilities::CREATE),
    ("delete", Capabilities::DELETE),
    ("deny", Capabilities::DENY),
    ("list", Capabilities::LIST),
    ("patch", Capabilities::PATCH),
    ("read", Capabilities::READ),
    ("scan", Capabilities::SCAN),
    ("sudo", Capabilities::SUDO),
    ("update", Capabilities::UPDATE),
];

impl Capabilities {
    /// `create`.
    pub const CREATE: Self = Self(1);
    /// `read`.
    pub const READ: Self = Self(2);
    /// `update`.
    pub const UPDATE: Self = Self(4);
    /// `patch`.
    pub const PATCH: Self = Self(8);
    /// `delete`.
    pub const DELETE: Self = Self(16);
    /// `list`.
    pub const LIST: Self = Self(32);
    /// `scan`: read, but no request needs it.
    pub const SCAN: Self = Self(64);
    /// `sudo`.
    pub const SUDO: Self = Self(128);
    /// `deny`.
    pub const DENY: Self = Self(256);

    /// Both sets together; `deny` in either leaves only `deny`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let both = Self(self.0 | other.0);
        if both.has(Self::DENY) { Self::DENY } else { both }
    }

    /// Whether everything of `other` is in this set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is granted.
    pub fn is_empty(self) -> bool {
        self.0 & !Self::DENY.0 == 0
    }

    /// The one capability that an operation needs.
    pub fn needed(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::READ,
            Operation::List => Self::LIST,
            Operation::Create => Self::CREATE,
            Operation::Update => Self::UPDATE,
            Operation::Patch => Self::PATCH,
            Operation::Delete => Self::DELETE,
        }
    }

    /// The words of the set, sorted.
    pub fn words(self) -> Vec<&'static str> {
        WORDS.iter().filter(|(_, one)| self.has(*one)).map(|(word, _)| *word).collect()
    }

    /// The capability of a word.
    pub(super) fn word(text: &str) -> Option<Self> {
        WORDS.iter().find(|(word, _)| *word == text).map(|(_, one)| *one)
    }

    /// The old single word `policy = "…"`.
    pub(super) fn old_word(text: &str) -> Option<Self> {
        let read = Self::READ.or(Self::LIST);
        let write = read.or(Self::CREATE).or(Self::UPDATE).or(Self::DELETE);
        match text {
            "deny" => Some(Self::DENY),
            "read" => Some(read),
            "write" => Some(write),
            "sudo" => Some(write.or(Self::SUDO)),
            _ => None,
        }
    }
}
