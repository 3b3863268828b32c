//! The types of mounts.
//!
//! A new type is added to [`MountKind`]. [`mounts`](crate::mounts) and the route tables in `http::secrets` match on it
//! without a wildcard, so the compiler reports a type that is missing there.

use serde::{Deserialize, Serialize};

/// The type of a mount; serialized as its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum MountKind {
    /// `pki`: a certificate authority (secret engine).
    Pki,
    /// `approle`: an authentication method for machines, with a role id and a secret id.
    AppRole,
    /// `jwt`: an authentication method for clients with a signed token of another system.
    Jwt,
    /// `cloudb`: an authentication method for clients with an identity at this cloud provider.
    Cloudb,
    /// `token`: the built-in API for tokens.
    Token,
    /// `system`: the built-in API below `sys/`.
    System,
    /// `identity`: the built-in API for entities and aliases.
    Identity,
    /// `cubbyhole`: the built-in private storage of each token.
    Cubbyhole,
    /// A type that this version of Signet does not know, mounted by a newer version on another node. Such a mount is
    /// not listed and serves no requests; its stored document is not changed.
    Unknown(Box<str>),
}

/// The class of a mount type, which determines how a mount of the type is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountClass {
    /// Exactly one mount of the type always exists.
    BuiltIn,
    /// Secret engines, which are mounted through `sys/mounts`.
    Secrets,
    /// Authentication methods, which are mounted through `sys/auth`.
    Methods,
    /// Types that this version of Signet does not know. They cannot be mounted.
    Unknown,
}

impl MountKind {
    /// All mount types that this version of Signet knows.
    pub const ALL: &[Self] = &[
        Self::Pki,
        Self::AppRole,
        Self::Jwt,
        Self::Cloudb,
        Self::Token,
        Self::System,
        Self::Identity,
        Self::Cubbyhole,
    ];

    /// Returns the name of the type in requests and responses.
    pub fn name(&self) -> &str {
        match self {
            Self::Pki => "pki",
            Self::AppRole => "approle",
            Self::Jwt => "jwt",
            Self::Cloudb => "cloudb",
            Self::Token => "token",
            Self::System => "system",
            Self::Identity => "identity",
            Self::Cubbyhole => "cubbyhole",
            Self::Unknown(word) => word,
        }
    }

    /// Returns the class of this mount type.
    pub fn class(&self) -> MountClass {
        match self {
            Self::Pki => MountClass::Secrets,
            Self::AppRole | Self::Jwt | Self::Cloudb => MountClass::Methods,
            Self::Token | Self::System | Self::Identity | Self::Cubbyhole => MountClass::BuiltIn,
            Self::Unknown(_) => MountClass::Unknown,
        }
    }
}

impl From<String> for MountKind {
    fn from(word: String) -> Self {
        let known = Self::ALL.iter().find(|kind| kind.name() == word);
        known.cloned().unwrap_or_else(|| Self::Unknown(word.into()))
    }
}

impl From<MountKind> for String {
    fn from(kind: MountKind) -> Self {
        kind.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_kind_is_stored_by_name_even_if_unknown() {
        for kind in MountKind::ALL.iter().cloned().chain([MountKind::Unknown("kv".into())]) {
            let stored = serde_json::to_string(&kind).unwrap();
            assert_eq!(stored, format!("{:?}", kind.name()));
            assert_eq!(serde_json::from_str::<MountKind>(&stored).unwrap(), kind);
        }
    }
}
