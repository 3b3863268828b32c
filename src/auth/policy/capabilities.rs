//! Capabilities: the rights that a rule grants and that an operation needs.

use super::Operation;

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

/// Names of the capabilities, in the order in which responses list them.
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
    /// The capability `create`.
    pub const CREATE: Self = Self(1);
    /// The capability `read`.
    pub const READ: Self = Self(2);
    /// The capability `update`.
    pub const UPDATE: Self = Self(4);
    /// The capability `patch`.
    pub const PATCH: Self = Self(8);
    /// The capability `delete`.
    pub const DELETE: Self = Self(16);
    /// The capability `list`.
    pub const LIST: Self = Self(32);
    /// The capability `scan`: accepted in policies, but no request needs it.
    pub const SCAN: Self = Self(64);
    /// The capability `sudo`, which some paths require in addition to the capability that the operation needs.
    pub const SUDO: Self = Self(128);
    /// The capability `deny`, which removes all others.
    pub const DENY: Self = Self(256);

    /// Returns the union of two sets; `deny` in either set removes everything else.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let both = Self(self.0 | other.0);
        if both.has(Self::DENY) { Self::DENY } else { both }
    }

    /// `true` if the set contains all capabilities of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// `true` if the set grants nothing.
    pub fn is_empty(self) -> bool {
        self.0 & !Self::DENY.0 == 0
    }

    /// Returns the capability that an operation needs.
    pub fn required_for(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::READ,
            Operation::List => Self::LIST,
            Operation::Create => Self::CREATE,
            Operation::Update => Self::UPDATE,
            Operation::Patch => Self::PATCH,
            Operation::Delete => Self::DELETE,
        }
    }

    /// Returns the names of the capabilities in the set, sorted.
    pub fn names(self) -> Vec<&'static str> {
        CAPABILITY_NAMES.iter().filter(|(_, one)| self.has(*one)).map(|(word, _)| *word).collect()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        CAPABILITY_NAMES.iter().find(|(word, _)| *word == text).map(|(_, one)| *one)
    }

    /// Parses the value of the deprecated key `policy` of a rule, such as `read` or `write`, which stands for several
    /// capabilities.
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
