//! The PostgreSQL engine: any number of nodes on one database, all of which write.
//!
//! The commit actor's runtime drives one connection for writes, and the runtime that opened the store drives a small
//! pool for reads. Another pool contains the connections for SQL sessions, driven by the HTTP workers that opened them.
//! Nodes coordinate with locks in their transactions (`transaction`, `revocations`, `tokens`) and learn of each other's
//! changes from a log (`changes`). All uses of a connection have timeouts. An unreachable server is reported as
//! `Unavailable`, and the next access connects again. If the URL names several hosts, a node uses the server that
//! accepts writes.

mod batch;
mod certificates;
mod changes;
mod collected_rows;
mod connect;
pub(super) mod copy_target;
#[cfg(test)]
mod fixture;
mod leases;
mod nodes;
mod passfile;
mod pool;
mod projects;
mod query;
mod reader;
mod recorded_responses;
mod revocations;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;
mod transaction;
mod url;
mod writer;

use std::time::Duration;

use crate::error::{Error, Result};
use crate::storage::tables::mounts;
#[cfg(test)]
pub(super) use fixture::Postgres;
pub(super) use query::server_message;
use reader::PostgresReaderPool;
pub use url::PostgresUrl;
use writer::PostgresWriter;

/// Maximum duration of [`check_reachable`], which connects and runs a few queries.
const REACHABILITY_TIMEOUT: Duration = Duration::from_secs(8);

/// Checks the server, upgrades the schema, and returns writer and readers. The current runtime will drive the reading
/// connections.
pub(super) async fn open(url: PostgresUrl) -> Result<(PostgresWriter, PostgresReaderPool)> {
    let mut session = connect::open_dedicated_session(&url).await?;
    schema::migrate(&mut session).await?;
    let dropped_mounts = mounts::has_dropped(&session).await.map_err(|e| e.into_read_error())?;
    let node = random_node_id();
    let reader = PostgresReaderPool::new(&url, node)?;
    Ok((PostgresWriter::new(url, node, dropped_mounts), reader))
}

/// Checks that a server is reachable, accepts writes and has suitable settings.
pub(super) async fn check_reachable(url: &PostgresUrl) -> Result<()> {
    let reached = tokio::time::timeout(REACHABILITY_TIMEOUT, connect::open_session(url)).await;
    reached.map_err(|late| Error::unavailable("storage: the database did not respond in time", late))?.map(drop)
}

/// Checks that no node runs on a database, and that its user may upgrade the schema.
pub(super) async fn require_no_other_node(url: &PostgresUrl) -> Result<()> {
    let session = connect::open_session(url).await?;
    changes::require_no_node(&session).await?;
    schema::require_permission(&session).await
}

/// Checks that the user of a database may upgrade its schema.
pub(super) async fn require_schema_permission(url: &PostgresUrl) -> Result<()> {
    schema::require_permission(&connect::open_session(url).await?).await
}

/// Opens a database read-only, for a check of a store that no node uses.
pub(super) async fn open_read_only(url: PostgresUrl) -> Result<PostgresReaderPool> {
    let session = connect::open_session(&url).await?;
    schema::require_current(&session).await?;
    PostgresReaderPool::new(&url, random_node_id())
}

pub(super) async fn store_exists(url: &PostgresUrl) -> Result<bool> {
    Ok(schema::known_version(&connect::open_session(url).await?).await?.is_some())
}

/// Inspects a database. The database user must be allowed to upgrade the schema. Returns its schema version, the newest
/// supported version, and a reader; `None` if the database is empty.
pub(super) async fn inspect(url: PostgresUrl) -> Result<Option<(usize, usize, PostgresReaderPool)>> {
    let session = connect::open_dedicated_session(&url).await?;
    let known = schema::known_version(&session).await?;
    schema::require_permission(&session).await?;
    let Some((schema, newest)) = known else { return Ok(None) };
    Ok(Some((schema, newest, PostgresReaderPool::new(&url, random_node_id())?)))
}

/// Returns a random id, by which this process appears in the change log; never 0.
fn random_node_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
}
