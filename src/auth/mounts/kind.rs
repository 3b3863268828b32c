//! The types of mounts.
//!
//! A new type is added to [`MountKind`]. [`mounts`](crate::mounts) and the route tables in `http::secrets` match on it
//! without a wildcard, so the compiler reports a type that is missing there.

use serde::{Deserialize, Serialize};

/// The type of a mount; serialized as its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum MountKind {
    /// `pki`: a certificate authority.
    Pki,
    /// `approle`: authentication of machines by a role id and a secret id.
    AppRole,
    /// `jwt`: authentication by a signed token of another system.
    Jwt,
    /// `cloudb`: authentication by an identity at this cloud provider.
    Cloudb,
    /// `token`: tokens of this server.
    Token,
    /// `system`: the paths below `sys/`.
    System,
    /// `identity`: entities and aliases.
    Identity,
    /// `cubbyhole`: private storage of tokens.
    Cubbyhole,
    /// A type that this version does not know, mounted by a newer version on another node. It is not listed and serves
    /// no requests; its document is kept unchanged.
    Unknown(Box<str>),
}

/// The class of a mount type, which decides how its mounts are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountClass {
    /// Always exists, exactly once.
    BuiltIn,
    /// Mounted as a secret engine (`sys/mounts`).
    Secrets,
    /// Mounted as an authentication method (`sys/auth`).
    Methods,
    /// Cannot be mounted: a type that this version does not know.
    Unknown,
}

impl MountKind {
    /// All types that this version knows.
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

    /// Name of the type.
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

    /// Returns the class of this type.
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
