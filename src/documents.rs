//! Cold configuration as versioned documents: mounts, policies, roles, issuers, keys, settings.
//!
//! A document is a body (JSON) under (mount, kind, name) with a version. Writes are compare-and-set
//! on the version, so two writers never overwrite each other unseen. The storage layer seals every
//! body with (mount, kind, name, version) as associated data: that keeps private keys secret and
//! proves that no row was altered, moved or rolled to another version.

use std::fmt::Display;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::{Error, Kind, Result};

/// A mount in storage: a random positive number, never used again. [`SYSTEM`] is the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub i64);

/// The scope of documents that belong to no mount: the mount table, policies.
pub const SYSTEM: MountId = MountId(0);

impl MountId {
    /// A new random id.
    pub fn random() -> Self {
        Self(i64::from_le_bytes(crate::random::bytes()) & i64::MAX)
    }
}

/// One place where things lie that were made at or below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathScope {
    /// Only what belongs to this mount; `None` for any.
    pub mount: Option<MountId>,
    /// The path under which they are stored, without a trailing `/`.
    pub stored: String,
    /// Where the stored path lies today, relative to the path that was asked for; `""` at that path.
    pub shown: String,
}

impl PathScope {
    /// The part of a stored path that follows the path that was asked for, as it is today, without a leading `/`; `None`
    /// for a path outside.
    pub fn relative(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.stored)?;
        let rest = match rest.strip_prefix('/') {
            Some(rest) => rest,
            None if rest.is_empty() || self.stored.is_empty() => rest,
            None => return None,
        };
        Some(match (&self.shown[..], rest) {
            ("", rest) | (rest, "") => rest.to_owned(),
            (shown, rest) => format!("{shown}/{rest}"),
        })
    }
}

/// Where a document lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The mount, or [`SYSTEM`].
    pub mount: MountId,
    /// What it is, from a closed set of words: `mount`, `policy`, `role`, `role-id`, `issuer`, `key`,
    /// `config`.
    pub kind: &'static str,
    /// Its name within the kind.
    pub name: String,
}

/// A stored document, opened.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// Where it lives.
    pub key: DocumentKey,
    /// 1 for a new document, one more with every write.
    pub version: u64,
    /// The body; may hold secrets, so this type has no `Debug`.
    pub body: Vec<u8>,
}

impl Document {
    /// The body as the value that it is.
    ///
    /// # Errors
    /// [`Document::unreadable`] with the position in the body; never its text, which may be secret.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        let position =
            |error: serde_json::Error| format!("unexpected at line {} column {}", error.line(), error.column());
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(position(error)))
    }

    /// The error of a document whose body means nothing to this program. It names the document, and nothing of the body.
    pub fn unreadable(&self, cause: impl Display) -> Error {
        let Self { key: DocumentKey { mount, kind, name }, .. } = self;
        unreadable(*mount, kind, name, &cause.to_string())
    }
}

/// The error of a stored document that cannot be used; callers of requests hear nothing of it.
pub(crate) fn unreadable(mount: MountId, kind: &str, name: &str, cause: &str) -> Error {
    let of = if mount == SYSTEM { String::new() } else { format!(" of the mount with the id {}", mount.0) };
    Error::new(Kind::Internal, format!("storage: the document {kind} {name:?}{of} cannot be read: {cause}"))
}

/// A change of one document.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentWrite {
    /// Where it lives.
    pub key: DocumentKey,
    /// The version that must be stored now; 0 when there must be none.
    pub expected: u64,
    /// The new body (stored as version `expected + 1`), or `None` to delete.
    pub body: Option<Vec<u8>>,
}

/// Times that a change is tried before its caller is told that others were always first.
pub const TRIES: usize = 8;

/// The longest wait before the second try, some commits long, and how often it doubles.
const ASIDE: Duration = Duration::from_millis(8);
const MOST_DOUBLINGS: usize = 5;

/// Tries a change of `what` again while others change the same at that moment; each attempt reads anew.
///
/// # Errors
/// Those of the attempts; `Busy` for the last `Conflict`: the same request may be sent again.
pub async fn repeated<T>(what: impl Display, attempt: impl AsyncFn() -> Result<T>) -> Result<T> {
    for tried in 0..TRIES {
        step_aside(tried).await;
        match attempt().await {
            Err(error) if error.kind() == Kind::Conflict => {}
            done => return done,
        }
    }
    Err(overtaken(what))
}

/// Leaves others the time to be done, who were first so many times: a random part of what doubles with each time, so
/// that those who met once do not go on meeting.
pub async fn step_aside(times: usize) {
    if times > 0 {
        let part = f64::from(u16::from_be_bytes(crate::random::unlike())) / f64::from(u16::MAX);
        tokio::time::sleep(ASIDE.saturating_mul(1 << (times - 1).min(MOST_DOUBLINGS)).mul_f64(part)).await;
    }
}

/// What a caller hears when others were always first.
pub fn overtaken(what: impl Display) -> Error {
    Error::new(Kind::Busy, format!("{what}: others change the same at this moment; try again"))
}
