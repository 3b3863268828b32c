//! What following other nodes needs of storage. Implemented by `storage`, for databases that nodes share.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::clock::Time;
use crate::documents::MountId;
use crate::error::Result;

/// A place in the log: everything before it was seen. The default is its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The place, as the log counts.
    pub place: u64,
    /// When the log was asked for it: a log whose way was interrupted since then may count anew.
    pub read_at: Option<Instant>,
    /// The course of events that it is a place of; `None` when the database does not tell.
    pub course: Option<Course>,
}

/// One course of events of a database. A server that takes over as an asynchronous standby begins another one, without
/// the last that happened in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// The database system: its standbys share it, a copy that was put back does not.
    pub system: i64,
    /// Its timeline.
    pub timeline: i64,
}

/// What stands in the log for one mount; `SYSTEM` is the one of policies and the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The mount.
    pub mount: MountId,
    /// Commits that changed its documents.
    pub version: u64,
    /// The version from which on all commits are this node's own; `None` when the last one is another's.
    pub own_from: Option<u64>,
    /// The last number of its revocation sequence.
    pub revocations: u64,
    /// CRLs published.
    pub crls: u64,
    /// When the last of these changed, by the database's clock.
    pub changed_at: Time,
}

impl Change {
    /// Whether another node changed documents since version `seen`, or what was seen is not there any more.
    pub fn is_news(&self, seen: u64) -> bool {
        self.version < seen || (self.version != seen && self.own_from.is_none_or(|from| from > seen + 1))
    }
}

/// An answer of the log.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Where to ask from the next time.
    pub point: Point,
    /// The time of the answer, by the database's clock.
    pub at: Time,
    /// Every mount that changed since; some that did not may be among them.
    pub mounts: Vec<Change>,
    /// Of another course of events than the point that was asked from: whatever was seen may never have been, and the
    /// numbers of what was lost are given out again. Then all mounts are here, and each is news.
    pub is_other_course: bool,
}

/// The log of what the nodes of a database change.
pub trait ChangeLog: Send + Sync {
    /// What changed since `point`. No change is passed over, in whatever order commits become visible.
    ///
    /// The future fails with `Unavailable` or `Busy`.
    fn since(&self, point: Point) -> BoxFuture<'static, Result<Changes>>;

    /// Starts to listen for other nodes, once; what it returns is told when there may be something new.
    /// Only a hint: it may come late, twice or not at all.
    fn listen(&self) -> Arc<Notify>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_own_commits_is_no_news_and_one_of_another_node_in_between_is() {
        let change = |version, own_from| Change {
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
            // Another's 6, then own ones.
            (9, Some(7), 5, true),
            (7, Some(7), 5, true),
            // What was seen was lost, of whomever it was.
            (4, None, 5, true),
            (4, Some(2), 5, true),
        ] {
            assert_eq!(change(version, own_from).is_news(seen), news, "{version} {own_from:?} {seen}");
        }
    }
}
