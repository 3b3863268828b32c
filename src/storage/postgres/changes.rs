//! SQL of the change log, and the connection that listens for changes of other nodes.
//!
//! A transaction that changes documents, revokes certificates or publishes a CRL marks the row of the mount with its
//! transaction id. A read returns all rows whose transaction was not finished at the last read, so that it misses no
//! late commit. After a crash or failover, a server may reuse ids of uncommitted transactions; so a node with a new
//! connection reads the whole log again. NOTIFY makes nodes read the log immediately. It serializes commits, so it is
//! not sent for certificates and CRLs.

use std::future::poll_fn;
use std::sync::Weak;
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::connect;
use super::query::{PostgresClient, PostgresError, execute, read_time, row, rows};
use super::url::PostgresUrl;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::nodes::store::{ChangeLogResponse, LogPosition, LoggedMountChange, Timeline};
use crate::telemetry;

/// SQL assignments that mark the row of a mount as changed by this transaction at the current time.
macro_rules! marked {
    () => {
        "changed_by = pg_current_xact_id()::text::bigint,
        changed_at_micros = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
pub(super) use marked;

/// Records changes of mount `$1`: `$2` is 1 if documents were changed, `$3` is 1 if a CRL was published, `$4` is the
/// node.
const MARK_MOUNT: &str = concat!(
    "UPDATE mount SET version = version + $2,
        writer_from = CASE WHEN $2 = 0 OR writer = $4 THEN writer_from ELSE version + 1 END,
        writer = CASE WHEN $2 = 0 THEN writer ELSE $4 END,
        crl_seq = crl_seq + $3, ",
    marked!(),
    " WHERE id = $1"
);
const SELECT_CHANGES: &str =
    "SELECT asked.point, asked.at, id, version, writer, writer_from, rev_seq, crl_seq, changed_at_micros
    FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS point,
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) AS asked
    LEFT JOIN mount ON changed_by >= $1";
/// Selects the database system and its current timeline. `pg_control_checkpoint()` would report a new timeline too
/// late.
const SELECT_TIMELINE: &str = "SELECT system_identifier,
        ('x' || lpad(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::bigint
    FROM pg_control_system()";
const NOTIFY: &str = "NOTIFY signet_change";
/// Starts to listen for notifications and takes a shared advisory lock, which shows other processes that this node
/// runs.
const LISTEN: &str = "LISTEN signet_change; SELECT pg_advisory_lock_shared(1936287598, 2)";
/// Counts the sessions that hold the lock of a running node, and lists their process ids.
const SELECT_NODES: &str = "SELECT COUNT(*), COALESCE(string_agg(pid::text, ', ' ORDER BY pid), '') FROM pg_locks
    WHERE locktype = 'advisory' AND classid = 1936287598 AND objid = 2 AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Delay before another attempt to connect and listen.
const LISTEN_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Kinds of changes that a transaction made to a mount. Revocations are marked by their own statement.
#[derive(Clone, Copy, Default)]
pub(super) struct ChangeMarks {
    pub(super) documents: bool,
    pub(super) crls: bool,
}

/// Marks the row of a mount as changed; no effect if the mount was removed.
pub(super) async fn mark_mount(
    db: &PostgresClient,
    mount: MountId,
    marks: ChangeMarks,
    node: i64,
) -> Result<(), PostgresError> {
    let documents = i64::from(marks.documents);
    let crls = i64::from(marks.crls);
    execute(db, MARK_MOUNT, &[&mount.0, &documents, &crls, &node]).await.map(drop)
}

/// Notifies the other nodes. The server sends the notification when the transaction is committed.
pub(super) async fn notify(db: &PostgresClient) -> Result<(), PostgresError> {
    Ok(db.batch_execute(NOTIFY).await?)
}

/// Reads the changes since `position`. `node` is this node's id. If the connection was opened after `position` was read
/// (`opened_at`), reads the whole log.
pub(super) async fn read_changes(
    db: &PostgresClient,
    opened_at: Instant,
    position: LogPosition,
    node: i64,
) -> Result<ChangeLogResponse, PostgresError> {
    let queried_at = Instant::now();
    let known = position.read_at.is_some_and(|read_at| read_at >= opened_at);
    let from = if known { i64::try_from(position.sequence).unwrap_or(i64::MAX) } else { 0 };
    let timeline = if known { position.timeline } else { read_timeline(db).await? };
    let is_other_timeline =
        !known && position.read_at.is_some() && (timeline.is_none() || timeline != position.timeline);
    let found = rows(db, SELECT_CHANGES, &[&from]).await?;
    let first = found.first().ok_or(PostgresError::Unreadable("the query for the change log returned no row"))?;
    let position = LogPosition { sequence: first.try_get::<_, i64>(0)? as u64, read_at: Some(queried_at), timeline };
    let database_time = read_time(first.try_get(1)?)?;
    let mut mounts = Vec::with_capacity(found.len());
    for row in &found {
        let Some(id) = row.try_get::<_, Option<i64>>(2)? else { continue };
        let number = |at: usize| row.try_get::<_, i64>(at).map(|number| number as u64);
        let own = row.try_get::<_, i64>(4)? == node;
        mounts.push(LoggedMountChange {
            mount: MountId(id),
            version: number(3)?,
            own_from: if own { Some(number(5)?) } else { None },
            revocations: number(6)?,
            crls: number(7)?,
            changed_at: read_time(row.try_get(8)?)?,
        });
    }
    Ok(ChangeLogResponse { position, database_time, mounts, is_other_timeline })
}

/// Reads the database system and timeline of a server; `None` if the server does not report them.
async fn read_timeline(db: &PostgresClient) -> Result<Option<Timeline>, PostgresError> {
    match row(db, SELECT_TIMELINE, &[]).await {
        Ok(Some(row)) => Ok(Some(Timeline { system: row.try_get(0)?, timeline: row.try_get(1)? })),
        Ok(None) => Ok(None),
        Err(failure) if failure.is_connection_lost() => Err(failure),
        // The servers of some hosting providers lack these functions.
        Err(_) => Ok(None),
    }
}

/// Checks that no node uses the database.
///
/// # Errors
/// `Conflict` when a node uses it; `Unavailable` from the server.
pub(super) async fn require_no_node(db: &PostgresClient) -> Result<()> {
    let failed =
        |e: PostgresError| e.into_public_error("storage: the nodes that run on the database cannot be counted");
    let found = row(db, SELECT_NODES, &[]).await.map_err(failed)?;
    let found = found.ok_or_else(|| Error::internal("the query for running nodes returned no row"))?;
    let count: i64 = found.try_get(0).map_err(|e| failed(e.into()))?;
    let sessions: String = found.try_get(1).map_err(|e| failed(e.into()))?;
    let run = match count {
        0 => return Ok(()),
        1 => "a node runs".to_owned(),
        count => format!("{count} nodes run"),
    };
    Err(Error::new(
        Kind::Conflict,
        format!(
            "storage: {run} on the database (pid {sessions} in pg_stat_activity): stop every node first; end sessions \
             of lost machines with pg_terminate_backend"
        ),
    ))
}

/// Listens for notifications on its own connection until the receiver of `signal` is dropped. Replaces a lost
/// connection.
pub(super) async fn listen(url: PostgresUrl, signal: Weak<Notify>) {
    while signal.strong_count() > 0 {
        if let Err(error) = listen_once(&url, &signal).await {
            telemetry::warn_task_failed(
                "cannot listen for changes of other nodes; this node polls for them every second",
                &error,
            );
        }
        tokio::time::sleep(LISTEN_RETRY_DELAY).await;
    }
}

async fn listen_once(url: &PostgresUrl, signal: &Weak<Notify>) -> Result<()> {
    let (client, mut connection) = connect::connect(url).await?;
    let wake_receiver = || {
        if let Some(signal) = Weak::upgrade(signal) {
            signal.notify_one();
        }
    };
    let messages = async {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message.map_err(connect::connection_error)? {
                counter!(telemetry::CHANGES_NOTIFICATIONS).increment(1);
                wake_receiver();
            }
        }
        Ok(())
    };
    let listening = async {
        client.batch_execute(LISTEN).await.map_err(connect::connection_error)?;
        // The receiver reads the log now, because other nodes may have made changes before this connection listened.
        wake_receiver();
        std::future::pending::<Result<()>>().await
    };
    tokio::select! {
        ended = messages => ended,
        failed = listening => failed,
    }
}
