//! Moving a mount to another path.
//!
//! A moved mount keeps its id, and therefore its data, tokens, leases and CRLs. Policies and the ids of leases contain
//! paths and do not change. The mount stores its former paths, so that its older leases are found by the new path.

use serde::{Deserialize, Serialize};

use super::change::{RESERVED_MOUNT_PATHS, canonical_path, check_path_free, mount_document, mount_key};
use super::{Mount, MountTable};
use crate::auth::Auth;
use crate::auth::store::{AuthWrite, config_document, config_write};
use crate::documents::{DocumentWrite, retry_on_conflict};
use crate::error::{Error, Result};
use crate::telemetry::LazyMountMeter;

const MOUNT_MOVES_DOCUMENT: &str = "mount-moves";
/// Maximum number of completed moves in `MOUNT_MOVES_DOCUMENT`.
const MAX_RECORDED_MOVES: usize = 64;

/// Maximum number of former paths of a mount. A search for the mount's leases tries all of them.
const MAX_FORMER_PATHS: usize = 64;

/// A completed move of a mount to another path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountMove {
    /// Id of the move, by which the client queries its status.
    pub id: String,
    /// Old path of the mount, with a trailing `/`.
    pub from: String,
    /// New path of the mount, with a trailing `/`.
    pub to: String,
}

impl Auth {
    /// Moves a mount from one path to another. The paths of an authentication method include `auth/`, and it cannot
    /// move out of `auth/`.
    ///
    /// # Errors
    /// `Invalid`, naming the rule that one of the paths violates; store errors.
    pub async fn mount_move(&self, from: &str, to: &str) -> Result<MountMove> {
        let canonicalize =
            |name, path| canonical_path(path).map_err(|error| Error::invalid(error.text().replacen("path", name, 1)));
        let from = canonicalize("from", from)?;
        let to = canonicalize("to", to)?;
        check_move_keeps_class(&from, &to)?;
        let _one_writer = self.write_permit().await?;
        let attempt = async || {
            // The order document is read before the table, so that a mount enabled in between makes this attempt fail.
            let order = self.mount_order_write().await?;
            self.reload_mounts().await?;
            let no_mount = || Error::invalid(format!("no matching mount at {from:?}"));
            let (mount, version) = self.stored_mount(&from).await?.ok_or_else(no_mount)?;
            if mount.is_built_in() {
                return Err(Error::invalid(format!("cannot remount {from:?}: built-in mounts cannot be moved")));
            }
            check_path_free(&self.mounts().with_mount(&from, None), &to)?;
            let mut former_paths = mount.former_paths.clone();
            former_paths.retain(|path| *path != to && *path != from);
            former_paths.push(from.clone());
            if former_paths.len() > MAX_FORMER_PATHS {
                return Err(Error::invalid(format!(
                    "to: the mount already has {MAX_FORMER_PATHS} former paths, the maximum; move it to one of them"
                )));
            }
            let moved = Mount { path: to.clone(), former_paths, meter: LazyMountMeter::default(), ..mount };
            let completed = MountMove { id: crate::random::uuid(), from: from.clone(), to: to.clone() };
            let delete = DocumentWrite { key: mount_key(&from), expected: version, body: None };
            let writes = [delete, mount_document(&moved, 0)?, order, self.record_move_write(&completed).await?];
            let unit = writes.into_iter().map(AuthWrite::Document).collect();
            self.commit_table(unit, |table: &MountTable| table.with_mount(&from, None).with_mount(&to, Some(moved)))
                .await?;
            Ok(completed)
        };
        retry_on_conflict(format_args!("path {from}"), attempt).await
    }

    /// Returns a completed move by its id; `None` if the id is unknown or the move is no longer recorded.
    ///
    /// # Errors
    /// Store errors.
    pub async fn completed_move(&self, id: &str) -> Result<Option<MountMove>> {
        Ok(self.recorded_moves().await?.0.into_iter().find(|completed| completed.id == id))
    }

    /// Returns the recorded moves, oldest first, and the version of their document.
    async fn recorded_moves(&self) -> Result<(Vec<MountMove>, u64)> {
        let (moves, version) = config_document(&*self.store, MOUNT_MOVES_DOCUMENT).await?;
        Ok((moves.unwrap_or_default(), version))
    }

    async fn record_move_write(&self, completed: &MountMove) -> Result<DocumentWrite> {
        let (mut moves, expected) = self.recorded_moves().await?;
        moves.push(completed.clone());
        moves.drain(..moves.len().saturating_sub(MAX_RECORDED_MOVES));
        config_write(MOUNT_MOVES_DOCUMENT, expected, Some(&moves))
    }
}

/// Rejects a move of an authentication method out of `auth/`, and of a secret engine to a reserved path.
fn check_move_keeps_class(from: &str, to: &str) -> Result<()> {
    if from == to {
        return Err(Error::invalid("from and to are the same path"));
    }
    match (from.strip_prefix("auth/"), to.strip_prefix("auth/")) {
        (Some(_), None) => Err(Error::invalid(format!("cannot remount auth mount to non-auth mount {to:?}"))),
        (Some(_), Some("")) => Err(Error::invalid(format!(
            "cannot remount to destination {to:?}: the path must name a method below auth/"
        ))),
        (Some(_), Some(_)) => Ok(()),
        (None, _) => match RESERVED_MOUNT_PATHS.iter().find(|reserved| to.starts_with(**reserved)) {
            Some(reserved) => Err(Error::invalid(format!(
                "cannot remount to destination {reserved:?}: reserved for the system; choose another path"
            ))),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;
    use crate::error::Kind;
    use crate::fields::Fields;

    async fn open_auth() -> Arc<Auth> {
        let auth = Auth::open(TestStore::open(&Clock::system()).await, Clock::system()).await.unwrap();
        for path in ["pki", "team/ca"] {
            let fields = json!({ "type": "pki", "description": path });
            auth.mount_enable(path, &Fields::parse(fields.to_string().as_bytes()).unwrap()).await.unwrap();
        }
        auth
    }

    #[tokio::test]
    async fn moved_mount_keeps_id_and_settings() {
        let auth = open_auth().await;
        let before = Mount::clone(auth.mounts().get("pki").unwrap());
        let completed = auth.mount_move("/pki", "pki/below/").await.unwrap();
        assert_eq!((&completed.from[..], &completed.to[..]), ("pki/", "pki/below/"));
        auth.reload().await.unwrap();
        let mounts = auth.mounts();
        assert!(mounts.get("pki").is_none());
        let after = mounts.get("pki/below").unwrap();
        assert_eq!(**after, Mount { path: "pki/below/".to_owned(), former_paths: vec!["pki/".to_owned()], ..before });
        assert_eq!(mounts.by_id(after.id).unwrap().path, "pki/below/");
        assert_eq!(auth.completed_move(&completed.id).await.unwrap(), Some(completed));
        assert_eq!(auth.completed_move("none").await.unwrap(), None);
        auth.mount_move("pki/below", "pki").await.unwrap();
        assert!(auth.mounts().get("pki").is_some());
    }

    #[tokio::test]
    async fn invalid_mount_move_targets_are_refused() {
        let auth = open_auth().await;
        for (from, to, text) in [
            ("pki", "pki", "from and to are the same path"),
            ("absent", "new", "no matching mount at \"absent/\""),
            ("pki", "sys", "cannot remount to destination \"sys/\": reserved for the system; choose another path"),
            (
                "pki",
                "cubbyhole/x",
                "cannot remount to destination \"cubbyhole/\": reserved for the system; choose another path",
            ),
            ("pki", "auth/x", "cannot remount to destination \"auth/\": reserved for the system; choose another path"),
            ("sys", "other", "cannot remount \"sys/\": built-in mounts cannot be moved"),
            ("cubbyhole", "other", "cannot remount \"cubbyhole/\": built-in mounts cannot be moved"),
            ("auth/token", "auth/other", "cannot remount \"auth/token/\": built-in mounts cannot be moved"),
            ("auth/token", "other", "cannot remount auth mount to non-auth mount \"other/\""),
            ("pki", "team/ca", "path is already in use at team/ca/"),
            ("pki", "team/ca/x", "path is already in use at team/ca/"),
            ("pki", "team", "existing mount at team/ca/"),
        ] {
            let error = auth.mount_move(from, to).await.unwrap_err();
            assert_eq!((error.kind(), error.text()), (Kind::Invalid, text), "{from} {to}");
        }
        for (from, to) in [("", "x"), ("pki", ""), ("pki", "a//b"), ("pki", "a b"), ("pki", "../x")] {
            assert_eq!(auth.mount_move(from, to).await.unwrap_err().kind(), Kind::Invalid, "{from} {to}");
        }
    }

    #[tokio::test]
    async fn mount_moves_report_only_the_latest() {
        let auth = open_auth().await;
        let first = auth.mount_move("pki", "b").await.unwrap();
        for _ in 0..MAX_RECORDED_MOVES / 2 {
            auth.mount_move("b", "a").await.unwrap();
            auth.mount_move("a", "b").await.unwrap();
        }
        assert_eq!(auth.completed_move(&first.id).await.unwrap(), None);
        assert_eq!(auth.recorded_moves().await.unwrap().0.len(), MAX_RECORDED_MOVES);
    }
}
