//! Configuration stored as versioned documents: mounts, policies, roles, issuers, keys, settings.
//!
//! A document is a JSON body under (mount, kind, name) with a version. Writes are compare-and-set on the version, so
//! concurrent writers never overwrite each other unnoticed. The storage layer seals (encrypts) every body, with mount,
//! kind, name and version as associated data. So private keys stay secret, and a body does not decrypt if its row was
//! altered or moved.

use std::fmt::Display;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::error::{Error, Kind, Result};

/// Id of a mount in storage: a random positive number, never reused. [`SYSTEM_MOUNT`] is 0 and stands for no mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub i64);

/// Id in the keys of documents that belong to no mount: the mount table and the policies.
pub const SYSTEM_MOUNT: MountId = MountId(0);

impl MountId {
    /// Returns a new random id.
    pub fn random() -> Self {
        Self(i64::from_le_bytes(crate::random::bytes()) & i64::MAX)
    }
}

/// Selects stored leases by their mount (a certain mount, or any), and by a prefix of their stored path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathScope {
    /// The mount that must have created the leases. `None` accepts the leases of all mounts, except those that
    /// `left_out` excludes.
    pub mount: Option<MountId>,
    /// The stored path prefix of the leases, without a trailing `/`.
    pub stored: String,
    /// Prefix of the paths under which these leases are listed: the current path of their mount, relative to the
    /// requested path. Empty if the listed paths need no prefix.
    pub shown: String,
    /// Mounts that were moved, each with a path at which it created leases. The leases of such a mount at or below this
    /// path are excluded, even if the path is at or below `stored`, because they are listed at the new path of the
    /// mount.
    pub left_out: Vec<(MountId, String)>,
}

impl PathScope {
    /// Returns the scope of all leases at or below a stored path.
    pub fn of(stored: &str) -> Self {
        Self { mount: None, stored: stored.to_owned(), shown: String::new(), left_out: Vec::new() }
    }

    /// Returns `true` if a lease that was created at `path` by a request to `mount` is in the scope.
    pub fn includes(&self, mount: Option<MountId>, path: &str) -> bool {
        let is_left_out =
            |(moved, former): &(MountId, String)| mount == Some(*moved) && path_below(former, path).is_some();
        self.mount.is_none_or(|own| mount == Some(own))
            && path_below(&self.stored, path).is_some()
            && !self.left_out.iter().any(is_left_out)
    }

    /// Converts the stored path of a lease to the path under which the lease is listed. This path starts with the
    /// prefix `shown`, is relative to the requested path, and has no leading `/`. Returns `None` for a path that is not
    /// at or below `stored`.
    pub fn to_listed_path(&self, path: &str) -> Option<String> {
        Some(match (&self.shown[..], path_below(&self.stored, path)?) {
            ("", rest) | (rest, "") => rest.to_owned(),
            (shown, rest) => format!("{shown}/{rest}"),
        })
    }
}

/// Returns the part of `path` after `prefix`, without a leading `/`, or `None` when `path` is not at or below `prefix`.
/// A prefix matches whole segments only.
pub fn path_below<'p>(prefix: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest),
        None if rest.is_empty() || prefix.is_empty() => Some(rest),
        None => None,
    }
}

/// The key of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The mount of the document, or [`SYSTEM_MOUNT`].
    pub mount: MountId,
    /// The kind, from a closed set of words such as `mount`, `policy`, `role`, `issuer`, `key`, `config`.
    pub kind: &'static str,
    /// The name, unique within mount and kind.
    pub name: String,
}

/// A stored document with its decrypted body.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// The key under which the document is stored.
    pub key: DocumentKey,
    /// The version: 1 for a new document, incremented by every write.
    pub version: u64,
    /// The body; may hold secrets, so this type has no `Debug`.
    pub body: Vec<u8>,
}

impl Document {
    /// Deserializes the JSON body.
    ///
    /// # Errors
    /// [`Document::unreadable_error`].
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable_error(error))
    }

    /// Returns the error for a document with an unusable body. Its text names the document and quotes nothing of the
    /// body.
    pub fn unreadable_error(&self, problem: impl Into<BodyProblem>) -> Error {
        let Self { key: DocumentKey { mount, kind, name }, .. } = self;
        unreadable_document(*mount, kind, name, &problem.into().0)
    }
}

/// The problem with the body of a stored document. Quotes no value of the body, which may be secret.
pub struct BodyProblem(String);

impl From<serde_json::Error> for BodyProblem {
    /// Keeps only the category and position of a JSON error, because its own text quotes values of the body.
    fn from(error: serde_json::Error) -> Self {
        Self::of_json(&error)
    }
}

impl From<Error> for BodyProblem {
    /// Keeps the text of the error's cause, or the error's own text if it has no cause. If the cause is a JSON error,
    /// keeps only its category and position.
    fn from(error: Error) -> Self {
        match std::error::Error::source(&error) {
            None => Self(error.to_string()),
            Some(source) => {
                source.downcast_ref::<serde_json::Error>().map_or_else(|| Self(source.to_string()), Self::of_json)
            }
        }
    }
}

impl BodyProblem {
    fn of_json(error: &serde_json::Error) -> Self {
        let category = match error.classify() {
            Category::Io => "input error",
            Category::Syntax => "invalid JSON",
            Category::Data => "a member is missing, unknown or has the wrong type",
            Category::Eof => "the JSON ends too early",
        };
        Self(format!("{category}, at line {} column {}", error.line(), error.column()))
    }
}

/// Returns the error for an unusable stored document. Its kind is `Internal`, so the text does not reach callers of
/// requests.
pub(crate) fn unreadable_document(mount: MountId, kind: &str, name: &str, problem: &str) -> Error {
    let location = if mount == SYSTEM_MOUNT { String::new() } else { format!(" of the mount with the id {}", mount.0) };
    Error::new(Kind::Internal, format!("storage: the document {kind} {name:?}{location} cannot be read: {problem}"))
}

/// A write of one document on the condition that its stored version is the expected one (compare-and-set).
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentWrite {
    /// The key under which the document is stored.
    pub key: DocumentKey,
    /// The version that the stored document must have; 0 if no document may exist under the key.
    pub expected: u64,
    /// The new body, stored as version `expected + 1`, or `None` to delete.
    pub body: Option<Vec<u8>>,
}

/// Maximum number of attempts at a change that conflicts with concurrent changes.
pub const MAX_CHANGE_ATTEMPTS: usize = 8;

/// Error message for a caller that has too many queued changes.
pub const TOO_MANY_CHANGES: &str = "too many queued changes of this caller; retry";

/// Maximum delay before the second attempt at a conflicting change: about the duration of a few commits.
const INITIAL_BACKOFF: Duration = Duration::from_millis(8);
/// Maximum number of times that the delay is doubled, starting at `INITIAL_BACKOFF`.
const MAX_BACKOFF_DOUBLINGS: usize = 5;

/// Runs `attempt` again after each version conflict, up to [`MAX_CHANGE_ATTEMPTS`] times. `what` names the changed
/// object in the error. Each attempt must read the stored state again.
///
/// # Errors
/// The errors of the attempts, except `Conflict`; `Busy` when the last attempt also conflicts.
pub async fn retry_on_conflict<T>(what: impl Display, attempt: impl AsyncFn() -> Result<T>) -> Result<T> {
    for tried in 0..MAX_CHANGE_ATTEMPTS {
        backoff(tried).await;
        match attempt().await {
            Err(error) if error.kind() == Kind::Conflict => {}
            done => return done,
        }
    }
    Err(contention_error(what))
}

/// Waits after `times` conflicting attempts; does not wait if `times` is 0. The maximum delay doubles with each
/// attempt, and the actual delay is random, so that two conflicting changes do not collide again.
pub async fn backoff(times: usize) {
    if times > 0 {
        let part = f64::from(u16::from_be_bytes(crate::random::unique_bytes())) / f64::from(u16::MAX);
        tokio::time::sleep(INITIAL_BACKOFF.saturating_mul(1 << (times - 1).min(MAX_BACKOFF_DOUBLINGS)).mul_f64(part))
            .await;
    }
}

/// Returns the `Busy` error for a change of `what`, after its last attempt conflicted with concurrent changes.
pub fn contention_error(what: impl Display) -> Error {
    Error::new(Kind::Busy, format!("{what}: concurrent modification; retry"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_error_does_not_quote_the_body() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "lowercase", deny_unknown_fields)]
        enum Kind {
            Known {
                #[allow(dead_code)]
                number: u32,
            },
        }
        let key = DocumentKey { mount: MountId(7), kind: "role", name: "web".to_owned() };
        for (body, position) in [
            ("{\"known\": {\"number\": \"hunter2\"}}", "at line 1 column 30"),
            ("{\"hunter2\": 1}", "at line 1 column 10"),
            ("{\"known\":\n {\"hunter2\": 1}}", "at line 2 column 11"),
            ("hunter2", "invalid JSON, at line 1 column 1"),
            ("{\"known\"", "the JSON ends too early, at line 1 column 8"),
        ] {
            let document = Document { key: key.clone(), version: 1, body: body.into() };
            let cause = || serde_json::from_slice::<Kind>(&document.body).unwrap_err();
            for error in [document.unreadable_error(cause()), document.unreadable_error(Error::internal(cause()))] {
                let text = error.text();
                assert!(
                    text.starts_with("storage: the document role \"web\" of the mount with the id 7 cannot be read: ")
                );
                assert!(text.ends_with(position) && !text.contains("hunter2"), "{text}");
            }
        }
    }
}
