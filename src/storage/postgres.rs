//! The PostgreSQL engine: any number of nodes on one database, all of which write.
//!
//! One connection writes, on the commit actor's runtime; a small pool reads, on the runtime that opened the store.
//! Nodes coordinate with locks in their transactions (`mounts`, `revocations`, `tokens`) and follow changes through a
//! log (`changes`). All uses of a connection have timeouts: an unreachable server is `Unavailable`, and the next access
//! connects again. With several hosts in the URL, the server that takes writes is used.

mod answered;
mod auth;
mod batch;
mod certificates;
mod changes;
mod connect;
mod crls;
mod cubbyhole;
mod documents;
mod entities;
pub(super) mod filling;
#[cfg(test)]
mod fixture;
mod gathered;
mod leases;
mod meta;
mod metadata;
mod mounts;
mod nodes;
mod passfile;
mod pki;
mod projects;
mod query;
mod reader;
mod revocations;
mod schema;
mod secret_ids;
mod session;
#[cfg(test)]
mod tests;
mod tidy;
mod tls;
mod tokens;
mod transaction;
mod url;
mod writer;

use std::time::Duration;

use crate::error::{Error, Result};
#[cfg(test)]
pub(super) use fixture::Postgres;
pub(super) use query::said;
use reader::Pool;
pub use url::PostgresUrl;
use writer::Writer;

/// Maximum duration of the check of a server at a start: a connection attempt and its queries.
const REACH: Duration = Duration::from_secs(8);

/// Checks the server, upgrades its schema, and returns writer and readers. The readers run on the current runtime.
pub(super) async fn open(url: PostgresUrl) -> Result<(Writer, Pool)> {
    let mut session = connect::dedicated_session(&url).await?;
    schema::migrate(&mut session).await?;
    let dropped_mounts = mounts::any_dropped(&session).await.map_err(|e| e.of_read())?;
    let node = node_id();
    let reader = Pool::new(&url, node)?;
    Ok((Writer::new(url, node, dropped_mounts), reader))
}

/// Checks that a suitable server that takes writes is reachable.
pub(super) async fn reach(url: &PostgresUrl) -> Result<()> {
    let reached = tokio::time::timeout(REACH, connect::session(url)).await;
    reached.map_err(|late| Error::unavailable("storage: the database takes too long", late))?.map(drop)
}

/// Checks that no node runs on a database, and that its user may upgrade the schema.
pub(super) async fn require_alone(url: &PostgresUrl) -> Result<()> {
    let session = connect::session(url).await?;
    changes::require_no_node(&session).await?;
    schema::require_right(&session).await
}

/// Checks that the user of a database may upgrade its schema.
pub(super) async fn require_right(url: &PostgresUrl) -> Result<()> {
    schema::require_right(&connect::session(url).await?).await
}

/// Opens an unused database read-only.
pub(super) async fn open_to_read(url: PostgresUrl) -> Result<Pool> {
    let session = connect::session(&url).await?;
    schema::require_equal(&session).await?;
    Pool::new(&url, node_id())
}

pub(super) async fn is_there(url: &PostgresUrl) -> Result<bool> {
    Ok(schema::known(&connect::session(url).await?).await?.is_some())
}

/// Inspects a database: its schema version, the newest supported one, and a reader; `None` if it is empty. Its user
/// must be allowed to upgrade the schema.
pub(super) async fn look(url: PostgresUrl) -> Result<Option<(usize, usize, Pool)>> {
    let session = connect::dedicated_session(&url).await?;
    let known = schema::known(&session).await?;
    schema::require_right(&session).await?;
    let Some((schema, newest)) = known else { return Ok(None) };
    Ok(Some((schema, newest, Pool::new(&url, node_id())?)))
}

/// A random id of this process in the change log, never 0.
fn node_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
}
