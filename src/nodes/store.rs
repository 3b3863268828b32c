//! Storage interface for the changes of other nodes. Implemented by `storage`, for shared databases.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::clock::Time;
use crate::documents::MountId;
use crate::error::Result;

/// A position in the change log, up to which this node has read all changes. The default is the start of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the position: for PostgreSQL, a transaction id.
    pub sequence: u64,
    /// Time at which this position was read. If the connection was opened later, the next read starts from the
    /// beginning of the log.
    pub read_at: Option<Instant>,
    /// The timeline that the position belongs to; `None` if the database does not report one.
    pub timeline: Option<Timeline>,
}

/// Identifies one history of a database. A standby that takes over starts a new history, perhaps without the last
/// commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Identifier of the database system: standbys share it, a restored copy has another one.
    pub system: i64,
    /// The timeline of PostgreSQL, which changes when a standby is promoted.
    pub timeline: i64,
}

/// The change log entry of a mount. The entry of `SYSTEM_MOUNT` covers the policies and the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedMountChange {
    /// The mount that was changed.
    pub mount: MountId,
    /// Number of commits that changed documents of the mount.
    pub version: u64,
    /// The lowest version such that this node made the commit of this version and all later commits. `None` if another
    /// node made the last commit.
    pub own_from: Option<u64>,
    /// Highest sequence number of the mount's revocations.
    pub revocations: u64,
    /// Number of CRLs that the mount has published.
    pub crls: u64,
    /// Time of the last change of the mount, by the database's clock.
    pub changed_at: Time,
}

impl LoggedMountChange {
    /// Returns `true` if another node changed documents of the mount after version `seen`, or if commits were lost (the
    /// version is lower).
    pub fn is_unseen(&self, seen: u64) -> bool {
        self.version < seen || (self.version != seen && self.own_from.is_none_or(|from| from > seen + 1))
    }
}

/// The changes that a read of the change log returns.
#[derive(Clone, Debug)]
pub struct ChangeLogResponse {
    /// The position at which the next read starts.
    pub position: LogPosition,
    /// Time at which the database answered, by the database's clock.
    pub database_time: Time,
    /// Every mount that changed after the start position of the read; may include unchanged mounts.
    pub mounts: Vec<LoggedMountChange>,
    /// `true` if the database may have lost changes that this node has applied, and may reuse their numbers. This is
    /// assumed in two cases: the database is on another timeline than at the last read (after a failover, or in a
    /// restored copy), or the connection was replaced and the database reports no timeline. Then `mounts` contains all
    /// mounts, and the node must reload each of them.
    pub is_other_timeline: bool,
}

/// The log in which all nodes of a database record their changes.
pub trait ChangeLog: Send + Sync {
    /// Returns the changes since `position`. No change is skipped, whatever the order in which commits become visible.
    ///
    /// The future fails with `Unavailable` or `Busy`.
    fn since(&self, position: LogPosition) -> BoxFuture<'static, Result<ChangeLogResponse>>;

    /// Starts to listen for notifications by other nodes; called once. The returned object is notified when there may
    /// be changes. A notification is only a hint: it may come late, repeatedly or never.
    fn listen(&self) -> Arc<Notify>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_change_is_unseen_only_if_another_node_wrote_it() {
        let change = |version, own_from| LoggedMountChange {
            mount: MountId(1),
            version,
            own_from,
            revocations: 0,
            crls: 0,
            changed_at: Time::UNIX_EPOCH,
        };
        for (version, own_from, seen, news) in [
            (0, None, 0, false),
            (5, None, 5, false),
            (5, Some(5), 5, false),
            (6, Some(6), 5, false),
            (9, Some(6), 5, false),
            (9, Some(3), 5, false),
            (6, None, 5, true),
            // Another node wrote version 6, and this node wrote all later ones.
            (9, Some(7), 5, true),
            (7, Some(7), 5, true),
            // The version is lower than before: versions that this node has seen were lost.
            (4, None, 5, true),
            (4, Some(2), 5, true),
        ] {
            assert_eq!(change(version, own_from).is_unseen(seen), news, "{version} {own_from:?} {seen}");
        }
    }
}
