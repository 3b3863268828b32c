//! Connections: the URL, what a session is set to, and what a server must be.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls, SimpleQueryMessage, Socket};

use super::query::Session;
use crate::error::{Error, Result};

/// Longest time to reach one address of the server.
const CONNECT: Duration = Duration::from_secs(3);
/// Oldest server that is tested: 13.
const OLDEST: u32 = 130_000;

/// What every session is set to, whatever the server's and the role's defaults are. The lock timeout is
/// the shorter one: who waits for another node's lock holds locks of its own. A node that stands still in
/// the middle of a transaction loses it and its locks before those who wait for them give up; it begins
/// again when it goes on.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '3s';
    SET idle_in_transaction_session_timeout = '2s'; SET default_transaction_isolation = 'read committed';
    SET client_min_messages = 'warning'; SET jit = off; SET DateStyle = 'ISO'";
/// What durability depends on, and whether the server takes writes at all.
const FACTS: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('transaction_read_only'),
    current_setting('server_encoding'), current_setting('server_version_num')";

/// Where a database is, and who we are there. May hold a password, so it has no `Debug`.
#[derive(Clone)]
pub struct PostgresUrl(Arc<Config>);

impl PostgresUrl {
    /// Reads `postgres://user:password@host:port/database?option=value`, or the same as
    /// `key=value` pairs. A folder as host (`?host=/run/postgresql`) is a unix socket.
    ///
    /// # Errors
    /// `Invalid` when it does not read, asks for TLS, or names a host off this machine without saying
    /// `sslmode=disable`. The text never quotes the URL.
    pub fn parse(text: &str) -> Result<Self> {
        if ["require", "verify-ca", "verify-full"].iter().any(|mode| text.contains(&format!("sslmode={mode}"))) {
            return Err(Error::invalid(
                "database URL: sslmode asks for TLS, which is unsupported; use a unix socket or the loopback",
            ));
        }
        let mut config: Config = text.parse().map_err(|_| {
            Error::invalid("database URL: must be of the form postgres://user:password@host:port/database")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::invalid("database URL: must name a host, or the folder of a unix socket"));
        }
        if config.get_ssl_mode() != SslMode::Disable && !stays_here(&config) {
            return Err(Error::invalid(
                "database URL: TLS to the database is unsupported; a host that is not on the loopback needs \
                 sslmode=disable, on a network that you trust",
            ));
        }
        config.ssl_mode(SslMode::Disable).connect_timeout(CONNECT);
        if config.get_application_name().is_none() {
            config.application_name("signet");
        }
        Ok(Self(Arc::new(config)))
    }
}

/// Whether every address is a unix socket or on the loopback.
fn stays_here(config: &Config) -> bool {
    let local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
    };
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(local),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

/// A connection that nobody drives yet.
pub(super) async fn connect(
    url: &PostgresUrl,
) -> Result<(Client, Connection<Socket, NoTlsStream>), tokio_postgres::Error> {
    url.0.connect(NoTls).await
}

/// A connection set up as every one of ours, and the task that drives it on the current runtime.
pub(super) async fn client(url: &PostgresUrl) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let (client, connection) = connect(url).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(%error, "connection to the database lost");
        }
    });
    client.batch_execute(SETTINGS).await?;
    Ok((client, driver))
}

/// A connection for writes, to a server that is fit for them.
///
/// # Errors
/// `Unavailable` when the server cannot be reached; `Invalid` when it would lose what was answered as
/// written, or takes no writes.
pub(super) async fn session(url: &PostgresUrl) -> Result<Session> {
    let (client, driver) = client(url).await.map_err(out_of_reach)?;
    let session = Session::new(client, driver);
    let answer = session.simple_query(FACTS).await.map_err(out_of_reach)?;
    let fact = |n: usize| {
        answer.iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { row.get(n) } else { None }).unwrap_or("")
    };
    require_fit([0, 1, 2, 3, 4, 5].map(fact))?;
    Ok(session)
}

/// With the reason, for whoever starts the program: what the server says (no such user or database, a
/// wrong password), or what the system says. Neither quotes a password.
fn out_of_reach(error: tokio_postgres::Error) -> Error {
    let reason = match (error.as_db_error(), std::error::Error::source(&error)) {
        (Some(answer), _) => answer.message().to_owned(),
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    };
    Error::unavailable(format!("storage: the database is out of reach ({reason})"), error)
}

/// What every read connection is made from.
pub(super) fn config(url: &PostgresUrl) -> Config {
    (*url.0).clone()
}

fn require_fit(facts: [&str; 6]) -> Result<()> {
    let [fsync, full_page_writes, synchronous_commit, read_only, encoding, version] = facts;
    let refused = |text: String| Err(Error::invalid(format!("storage: the database {text}")));
    let durable = [("fsync", fsync), ("full_page_writes", full_page_writes)];
    if let Some((name, value)) = durable.iter().find(|(_, value)| *value != "on") {
        return refused(format!("has {name} = {value}: a crash would lose or damage data; needed: on"));
    }
    if !matches!(synchronous_commit, "on" | "remote_apply") {
        return refused(format!(
            "has synchronous_commit = {synchronous_commit} for this user: what is answered as stored could be lost; \
             needed: on or remote_apply"
        ));
    }
    if read_only != "off" {
        return refused("takes no writes (a standby, or default_transaction_read_only is on)".to_owned());
    }
    if encoding != "UTF8" {
        return refused(format!("has the encoding {encoding}; needed: UTF8"));
    }
    if version.parse::<u32>().is_ok_and(|version| version < OLDEST) {
        return refused(format!("is older than version {}", OLDEST / 10_000));
    }
    Ok(())
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sockets_and_the_loopback_need_no_word_on_tls() {
        for text in [
            "postgres://signet@localhost/signet",
            "postgresql://signet:pw@127.0.0.1:5433/signet?connect_timeout=1",
            "postgres://signet@[::1]/signet",
            "postgres:///signet?host=/run/postgresql&user=signet",
            "host=/run/postgresql user=signet dbname=signet",
            "postgres://signet@db.internal/signet?sslmode=disable",
        ] {
            assert!(PostgresUrl::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn tls_and_unencrypted_hosts_elsewhere_are_refused_without_quoting_the_url() {
        for (text, says) in [
            ("postgres://signet:hunter2@localhost/signet?sslmode=require", "unsupported"),
            ("postgres://signet:hunter2@localhost/signet?sslmode=verify-full", "unsupported"),
            ("host=localhost sslmode=verify-ca password=hunter2", "unsupported"),
            ("postgres://signet:hunter2@db.internal/signet", "sslmode=disable"),
            ("postgres://signet:hunter2@localhost,db.internal/signet", "sslmode=disable"),
            ("postgres://signet:hunter2@10.0.0.7/signet?sslmode=prefer", "sslmode=disable"),
            ("postgres://signet:hunter2@/signet", "must name a host"),
            ("mysql://signet:hunter2@localhost/signet", "of the form"),
            ("hunter2", "of the form"),
        ] {
            let error = PostgresUrl::parse(text).err().unwrap();
            assert!(error.text().contains(says), "{text}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_server_that_would_lose_data_is_refused_by_name() {
        let good = ["on", "on", "on", "off", "UTF8", "150004"];
        assert!(require_fit(good).is_ok());
        for (at, value, says) in [
            (0, "off", "fsync = off"),
            (1, "off", "full_page_writes = off"),
            (2, "off", "synchronous_commit = off"),
            (2, "local", "synchronous_commit = local"),
            (2, "remote_write", "synchronous_commit = remote_write"),
            (3, "on", "takes no writes"),
            (4, "SQL_ASCII", "needed: UTF8"),
            (5, "120019", "older than version 13"),
        ] {
            let mut facts = good;
            facts[at] = value;
            let error = require_fit(facts).unwrap_err();
            assert!(error.text().contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_never_asks_for_tls(text in "(postgres://)?\\PC{0,60}") {
            if let Ok(url) = PostgresUrl::parse(&text) {
                prop_assert_eq!(url.0.get_ssl_mode(), SslMode::Disable);
            }
        }
    }
}
