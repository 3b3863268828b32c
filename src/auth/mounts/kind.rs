//! The kinds of mounts: what may stand in `type`.
//!
//! The one list that a new kind joins. What a kind opens stands in [`mounts`](crate::mounts), its routes in
//! `http::secrets`; both match on [`MountKind`] without a rest, so a kind that lacks one of them does not
//! compile.

use serde::{Deserialize, Serialize};

/// A kind of mount, by the word that `type` and the stored mount have for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum MountKind {
    /// `pki`: a certificate authority.
    Pki,
    /// `approle`: an authentication method for machines, which show a role id and a secret id.
    AppRole,
    /// `jwt`: an authentication method for whoever has a signed token of another system.
    Jwt,
    /// `cloudb`: an authentication method for identities of that cloud.
    Cloudb,
    /// `token`: credentials of this server itself.
    Token,
    /// `system`: what is below `sys/`.
    System,
    /// `identity`: who logs in.
    Identity,
    /// `cubbyhole`: keeps its path free.
    Cubbyhole,
    /// One that this program does not know: a newer one, on another node, mounted it. It is shown nowhere and
    /// answers nothing, and stays stored as it is.
    Unknown(Box<str>),
}

/// How mounts of a kind come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Always there, once.
    BuiltIn,
    /// Mounted as secret engines (`sys/mounts`).
    Secrets,
    /// Mounted as authentication methods (`sys/auth`).
    Methods,
    /// Not at all.
    Unknown,
}

impl MountKind {
    /// Every kind that this program knows.
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

    /// Its word.
    pub fn word(&self) -> &str {
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

    /// How its mounts come to be.
    pub fn family(&self) -> Family {
        match self {
            Self::Pki => Family::Secrets,
            Self::AppRole | Self::Jwt | Self::Cloudb => Family::Methods,
            Self::Token | Self::System | Self::Identity | Self::Cubbyhole => Family::BuiltIn,
            Self::Unknown(_) => Family::Unknown,
        }
    }
}

impl From<String> for MountKind {
    fn from(word: String) -> Self {
        let known = Self::ALL.iter().find(|kind| kind.word() == word);
        known.cloned().unwrap_or_else(|| Self::Unknown(word.into()))
    }
}

impl From<MountKind> for String {
    fn from(kind: MountKind) -> Self {
        kind.word().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_stored_as_its_word_and_an_unknown_one_is_kept() {
        for kind in MountKind::ALL.iter().cloned().chain([MountKind::Unknown("kv".into())]) {
            let stored = serde_json::to_string(&kind).unwrap();
            assert_eq!(stored, format!("{:?}", kind.word()));
            assert_eq!(serde_json::from_str::<MountKind>(&stored).unwrap(), kind);
        }
    }
}
