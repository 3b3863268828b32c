//! The PostgreSQL engine: any number of nodes on one database, all of them active for writes.
//!
//! One connection writes, driven by the commit actor's own runtime; a small pool reads, driven by the
//! runtime that opened the store. Batches of certificates and revocations are single statements over
//! UNNEST, which stands in the select list: in FROM the server would first fill a store of its own with
//! every column.
//!
//! Nodes agree by locks inside their transactions: a shared advisory lock per mount keeps it from being
//! dropped under a batch, the mount's row gives out revocation numbers, a token's row keeps its children
//! from outliving it. They follow each other's changes by a log (`changes`), and whoever does has a lock as long as it
//! runs, by which others know that a node is there. Every connection has statement
//! and lock timeouts, and every use of one has a deadline, so that a server that is gone or hangs is
//! `Unavailable` and never a wait without end; the next write or read connects again.
//!
//! Floors, each naming only what is below: `writer` → `batch` → the domains (`pki`, `auth`, `projects`, `nodes`:
//! each its store trait and the match over its writes) → `transaction` → `gathered`, `reader`, and the tables, a
//! file for each → `query`, `connect` → `url` → `tls`, `passfile`.
//!
//! A URL may name several hosts: every connection goes to the one that takes writes, and one that finds its server
//! read-only is replaced, so that a failover is an outage of seconds. What was answered is on the standby too when
//! that is a synchronous one: the server lets no timeout of ours end the wait for it as if it were done.
//!
//! Refuses: a server whose durability is off, a read-only one, a schema of a newer program, a server whose
//! certificate does not stand the check that the URL asks for, and an unencrypted connection off this machine that
//! was not asked for.

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

/// Longest look for a server at a start: an attempt to become a session, and what it is asked then.
const REACH: Duration = Duration::from_secs(8);

/// Checks the server, brings its schema up to date, and returns the database's writer and its readers.
/// Reads are driven by the runtime that this is called on.
pub(super) async fn open(url: PostgresUrl) -> Result<(Writer, Pool)> {
    let mut session = connect::dedicated_session(&url).await?;
    schema::migrate(&mut session).await?;
    let dropped_mounts = mounts::any_dropped(&session).await.map_err(|e| e.of_read())?;
    let node = node_id();
    let reader = Pool::new(&url, node)?;
    Ok((Writer::new(url, node, dropped_mounts), reader))
}

/// That a server is to be had that takes writes and is fit for them.
pub(super) async fn reach(url: &PostgresUrl) -> Result<()> {
    let reached = tokio::time::timeout(REACH, connect::session(url)).await;
    reached.map_err(|late| Error::unavailable("storage: the database takes too long", late))?.map(drop)
}

/// That no node runs on a database, and that the schema may be brought up to date by its user.
pub(super) async fn require_alone(url: &PostgresUrl) -> Result<()> {
    let session = connect::session(url).await?;
    changes::require_no_node(&session).await?;
    schema::require_right(&session).await
}

/// That the user of a database may bring its schema up to date.
pub(super) async fn require_right(url: &PostgresUrl) -> Result<()> {
    schema::require_right(&connect::session(url).await?).await
}

/// Opens a database that nobody works on, for reading only.
pub(super) async fn open_to_read(url: PostgresUrl) -> Result<Pool> {
    let session = connect::session(&url).await?;
    schema::require_equal(&session).await?;
    Pool::new(&url, node_id())
}

/// Whether a database has a store.
pub(super) async fn is_there(url: &PostgresUrl) -> Result<bool> {
    Ok(schema::known(&connect::session(url).await?).await?.is_some())
}

/// Looks at a database: the version of its schema, the newest that there is, and what reads it; `None` when it is empty.
/// Its user must have the right to bring it up to date.
pub(super) async fn look(url: PostgresUrl) -> Result<Option<(usize, usize, Pool)>> {
    let session = connect::dedicated_session(&url).await?;
    let known = schema::known(&session).await?;
    schema::require_right(&session).await?;
    let Some((schema, newest)) = known else { return Ok(None) };
    Ok(Some((schema, newest, Pool::new(&url, node_id())?)))
}

/// Another number for every process that opens a database, never 0: the change log names writers by it.
fn node_id() -> i64 {
    (i64::from_le_bytes(crate::random::bytes()) & i64::MAX).max(1)
}
