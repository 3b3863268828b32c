//! Creates connections, sets their session settings, and checks that the server is suitable.
//!
//! All hosts of a URL are tried concurrently, and the first that accepts writes is used. So an unreachable host, or a
//! host that has become a standby, causes no delay. Reads use the same server, because they must see all committed
//! writes.

use std::io;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Connection, SimpleQueryMessage, Socket};

use super::query::PostgresClient;
use super::tls::{self, PostgresTlsConnector, PostgresTlsStream};
use super::url::{ERROR_PREFIX, PostgresServer, PostgresUrl, SESSION_TIMEOUT};
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// The oldest supported server version, as in `server_version_num`: 13.
const MIN_SERVER_VERSION: u32 = 130_000;

/// Settings of every session, independent of the defaults of server and role. The lock timeout is shorter than the
/// statement timeout, because a waiting transaction holds other locks. If a node stalls inside a transaction, the
/// server ends the transaction, and with it the locks, before other nodes time out. The node repeats the transaction
/// when it continues.
const SESSION_SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '3s';
    SET idle_in_transaction_session_timeout = '2s'; SET default_transaction_isolation = 'read committed';
    SET client_min_messages = 'warning'; SET jit = off; SET DateStyle = 'ISO'";
/// Selects the server settings that [`open_session`] checks.
const SELECT_SERVER_SETTINGS: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('server_encoding'), current_setting('server_version_num')";

/// Selects a value that identifies the server process of this session.
const SELECT_BACKEND: &str = "SELECT pid || ' ' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// Number of checks for a connection pooler. A single check may miss a busy pooler, because such a pooler may use
/// another server connection.
const POOLER_PROBES: usize = 3;
const POOLER_REJECTED: &str = "storage: the database is behind a pooler in transaction or statement mode, which loses LISTEN, \
    advisory locks and prepared statements between transactions: set pool_mode = session, or connect to the server itself";

/// Connects to the server that accepts writes. The caller must drive the returned connection.
///
/// # Errors
/// `Invalid` when a file in the URL cannot be used; `Unavailable` when no server is reachable, with all reasons.
pub(super) async fn connect(url: &PostgresUrl) -> Result<(Client, Connection<Socket, PostgresTlsStream>)> {
    let (servers, connector) = prepare_servers(url).await?;
    let alone = servers.len() == 1;
    let attempt = |(at, server): (usize, PostgresServer)| {
        let connector = connector.clone();
        async move {
            let refusal = match tokio::time::timeout(SESSION_TIMEOUT, server.config.connect(connector)).await {
                Ok(Ok(made)) => return Ok(made),
                Ok(Err(error)) => describe_failure(&error, server.shows_certificate),
                Err(_) => format!("no answer within {} s", SESSION_TIMEOUT.as_secs()),
            };
            Err((at, if alone { refusal } else { format!("{}: {refusal}", server.name) }))
        }
    };
    let mut attempts: FuturesUnordered<_> = servers.into_iter().enumerate().map(attempt).collect();
    let mut refusals = Vec::new();
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(made) => return Ok(made),
            Err(refusal) => refusals.push(refusal),
        }
    }
    refusals.sort();
    let reasons: Vec<String> = refusals.into_iter().map(|(_, reason)| reason).collect();
    Err(Error::new(Kind::Unavailable, format!("storage: the database is unreachable ({})", reasons.join("; "))))
}

/// Reads the password file and the TLS files, on a blocking thread. Returns the servers with passwords, and the TLS
/// connector.
async fn prepare_servers(url: &PostgresUrl) -> Result<(Vec<PostgresServer>, PostgresTlsConnector)> {
    let url = url.clone();
    let prepare = move || {
        let connector = url.tls().map_or_else(|| Ok(PostgresTlsConnector::none()), |files| files.connector());
        Ok((url.servers()?, connector.map_err(|error| error.within(ERROR_PREFIX))?))
    };
    tokio::task::spawn_blocking(prepare).await.map_err(Error::internal)?
}

/// Connects with [`SESSION_SETTINGS`]. A task on the current runtime drives the connection.
pub(super) async fn open_client(url: &PostgresUrl) -> Result<(Client, JoinHandle<()>)> {
    let (client, connection) = connect(url).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            let why = format!("a connection to the database was lost: {}", describe_failure(&error, false));
            telemetry::outage::STORE_OUTAGE.record_failure(&why);
        }
    });
    client.batch_execute(SESSION_SETTINGS).await.map_err(connection_error)?;
    Ok((client, driver))
}

/// Connects, and checks that the server is suitable for a store.
///
/// # Errors
/// `Unavailable` when the server is unreachable or accepts no writes; `Invalid` when it could lose committed writes, is
/// too old, or has another encoding than UTF-8.
pub(super) async fn open_session(url: &PostgresUrl) -> Result<PostgresClient> {
    let (client, driver) = open_client(url).await?;
    let session = PostgresClient::new(client, driver);
    let answer = session.simple_query(SELECT_SERVER_SETTINGS).await.map_err(connection_error)?;
    require_suitable([0, 1, 2, 3, 4].map(|n| column(&answer, n)))?;
    Ok(session)
}

/// As [`open_session`], and checks that the session has its own server connection. LISTEN, advisory locks, prepared
/// statements and settings belong to that connection. A pooler that shares server connections between transactions
/// would lose them.
///
/// # Errors
/// As [`open_session`]; `Invalid` behind such a pooler.
pub(super) async fn open_dedicated_session(url: &PostgresUrl) -> Result<PostgresClient> {
    let session = open_session(url).await?;
    let (other, driver) = open_client(url).await?;
    for _ in 0..POOLER_PROBES {
        let before = backend_id(&session).await?;
        // A pooler would use the server connection that it used last, which is the one that it used for `session`.
        other.batch_execute("BEGIN").await.map_err(|error| match error.code() {
            Some(code) if is_transaction_rejected(code) => Error::invalid(POOLER_REJECTED),
            _ => connection_error(error),
        })?;
        let lent = backend_id(&other).await?;
        let after = backend_id(&session).await?;
        other.batch_execute("ROLLBACK").await.map_err(connection_error)?;
        if before == lent || before != after {
            return Err(Error::invalid(POOLER_REJECTED));
        }
    }
    drop(other);
    // The driver task ends together with its client.
    let _ = driver.await;
    Ok(session)
}

/// Returns `true` if a BEGIN that failed with this code shows a pooler in statement mode, which rejects transactions
/// (PgBouncer: 08P01). Other errors come from the server and may be temporary, such as a shutdown or a lack of memory.
fn is_transaction_rejected(code: &SqlState) -> bool {
    [&SqlState::PROTOCOL_VIOLATION, &SqlState::FEATURE_NOT_SUPPORTED, &SqlState::SYNTAX_ERROR].contains(&code)
}

/// Returns a value that identifies the server process of a client.
async fn backend_id(client: &Client) -> Result<String> {
    let answer = client.simple_query(SELECT_BACKEND).await.map_err(connection_error)?;
    Ok(column(&answer, 0).to_owned())
}

fn column(answer: &[SimpleQueryMessage], n: usize) -> &str {
    answer.iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { row.get(n) } else { None }).unwrap_or_default()
}

/// Returns the error for a connection that failed during its setup.
pub(super) fn connection_error(error: tokio_postgres::Error) -> Error {
    Error::unavailable(format!("storage: the database is unreachable ({})", describe_failure(&error, false)), error)
}

/// Describes for the operator why a connection failed: the message of the server (such as an unknown user or a wrong
/// password), of TLS, or of the system. It never contains a password.
fn describe_failure(error: &tokio_postgres::Error, shows_certificate: bool) -> String {
    if let Some(answer) = error.as_db_error() {
        return answer.message().to_owned();
    }
    let Some(cause) = std::error::Error::source(error) else { return error.to_string() };
    let Some(cause) = cause.downcast_ref::<io::Error>() else { return cause.to_string() };
    match cause.kind() {
        // tokio-postgres reports a server that accepts no writes only with this text.
        io::ErrorKind::PermissionDenied if cause.to_string() == "database does not allow writes" => {
            "the server accepts no writes: it is a standby, or default_transaction_read_only is on".to_owned()
        }
        // A server that rejects a client certificate may close the connection before this node has read the server's
        // alert.
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
            if shows_certificate =>
        {
            format!("{cause}; the server may have rejected the client certificate")
        }
        _ => tls::tls_failure_reason(cause).unwrap_or_else(|| cause.to_string()),
    }
}

fn require_suitable(facts: [&str; 5]) -> Result<()> {
    let [fsync, full_page_writes, synchronous_commit, encoding, version] = facts;
    let refused = |text: String| Err(Error::invalid(format!("storage: the database {text}")));
    let durable = [("fsync", fsync), ("full_page_writes", full_page_writes)];
    if let Some((name, value)) = durable.iter().find(|(_, value)| *value != "on") {
        return refused(format!("has {name} = {value}: a crash would lose or damage data; required: on"));
    }
    if !matches!(synchronous_commit, "on" | "remote_apply") {
        return refused(format!(
            "has synchronous_commit = {synchronous_commit} for this user: committed writes could be lost; required: on \
             or remote_apply"
        ));
    }
    if encoding != "UTF8" {
        return refused(format!("has the encoding {encoding}; required: UTF8"));
    }
    if version.parse::<u32>().is_ok_and(|version| version < MIN_SERVER_VERSION) {
        return refused(format!("is older than version {}", MIN_SERVER_VERSION / 10_000));
    }
    Ok(())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn only_rejected_transactions_are_reported_as_a_pooler() {
        for (code, is) in [("08P01", true), ("0A000", true), ("42601", true), ("57P01", false), ("53200", false)] {
            assert_eq!(is_transaction_rejected(&SqlState::from_code(code)), is, "{code}");
        }
    }

    #[test]
    fn server_with_unsafe_settings_is_rejected_by_name() {
        let good = ["on", "on", "on", "UTF8", "150004"];
        assert!(require_suitable(good).is_ok());
        for (at, value, says) in [
            (0, "off", "fsync = off"),
            (1, "off", "full_page_writes = off"),
            (2, "off", "synchronous_commit = off"),
            (2, "local", "synchronous_commit = local"),
            (2, "remote_write", "synchronous_commit = remote_write"),
            (3, "SQL_ASCII", "required: UTF8"),
            (4, "120019", "older than version 13"),
        ] {
            let mut facts = good;
            facts[at] = value;
            let error = require_suitable(facts).unwrap_err();
            assert!(error.text().contains(says), "{error}");
        }
    }
}
