//! Capabilities: what a rule grants, and what an operation needs.

use super::Operation;

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

/// Names of the capabilities, in the order in which they are listed.
const CAPABILITY_NAMES: [(&str, Capabilities); 9] = [
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
    /// `scan`: accepted in policies, but no request needs it.
    pub const SCAN: Self = Self(64);
    /// `sudo`.
    pub const SUDO: Self = Self(128);
    /// `deny`.
    pub const DENY: Self = Self(256);

    /// Returns the union; `deny` in either set removes everything else.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let both = Self(self.0 | other.0);
        if both.has(Self::DENY) { Self::DENY } else { both }
    }

    /// `true` if the set contains all of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// `true` if nothing is granted.
    pub fn is_empty(self) -> bool {
        self.0 & !Self::DENY.0 == 0
    }

    /// Returns the capability that an operation needs.
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

    /// Returns the names of the set, sorted.
    pub fn names(self) -> Vec<&'static str> {
        CAPABILITY_NAMES.iter().filter(|(_, one)| self.has(*one)).map(|(word, _)| *word).collect()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        CAPABILITY_NAMES.iter().find(|(word, _)| *word == text).map(|(_, one)| *one)
    }

    /// Parses a value of the deprecated key `policy`.
    pub(super) fn parse_legacy(text: &str) -> Option<Self> {
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
