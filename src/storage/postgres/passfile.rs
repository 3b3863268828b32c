//! Passwords in libpq's file format (`.pgpass`): lines `host:port:database:user:password`, with `*` as a wildcard and
//! `\` before a literal colon or backslash. The first line that matches the server is used.

use std::path::Path;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error::{Error, Kind, Result};
use crate::secret::{PRIVATE_FILE_RULE, Secret};

/// Default folders of unix sockets. As in libpq, the host `localhost` in a password file also matches sockets in these
/// folders.
const SOCKET_FOLDERS: [&str; 3] = ["/run/postgresql", "/var/run/postgresql", "/tmp"];

/// Reads a password file, which other users must not be able to read.
///
/// # Errors
/// `Invalid` with the name of the file and the violated rule.
pub(super) fn read_file(path: &Path) -> Result<Secret> {
    let unreadable = |error| Error::of_file("passfile", path, "read", error).with_kind(Kind::Invalid);
    let content = Secret::read_private_file(path, u64::MAX).map_err(unreadable)?;
    content.ok_or_else(|| Error::invalid(format!("passfile: {}: {PRIVATE_FILE_RULE}", path.display())))
}

/// Finds the password for the server, user and database of `config`, which has a single server.
pub(super) fn find_password(content: &Secret, config: &Config) -> Option<Secret> {
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(folder)), _) => folder.display().to_string(),
        (None, number) => number.map(ToString::to_string).unwrap_or_default(),
    };
    let is_host = |field: &str| {
        matches_field(field, &host) || (SOCKET_FOLDERS.contains(&host.as_str()) && matches_field(field, "localhost"))
    };
    content.expose().split(|byte| *byte == b'\n').find_map(|line| {
        let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
        if line.starts_with('#') {
            return None;
        }
        let (first, rest) = split_field(line)?;
        let (second, rest) = split_field(rest)?;
        let (third, rest) = split_field(rest)?;
        let (fourth, password) = split_field(rest)?;
        let fits = is_host(first)
            && matches_field(second, &port)
            && matches_field(third, database)
            && matches_field(fourth, user);
        fits.then(|| unescape(password)).filter(|password| !password.expose().is_empty())
    })
}

/// Splits a text at the first unescaped colon.
fn split_field(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b':' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn matches_field(field: &str, value: &str) -> bool {
    field == "*" || unescape(field).expose() == value.as_bytes()
}

fn unescape(text: &str) -> Secret {
    let mut plain = Vec::with_capacity(text.len());
    let mut escaped = false;
    for byte in text.bytes() {
        if byte == b'\\' && !escaped {
            escaped = true;
        } else {
            plain.push(byte);
            escaped = false;
        }
    }
    Secret::new(plain)
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn found(content: &str, url: &str) -> Option<String> {
        let config: Config = url.parse().unwrap();
        let password = find_password(&Secret::new(content), &config);
        password.map(|password| password.expose_text().unwrap().to_owned())
    }

    #[test]
    fn first_matching_passfile_line_wins() {
        let content = "# db:5432:signet:signet:comment\nother:*:*:*:wrong\ndb:5433:signet:signet:port\r\n\
            db:5432:signet:signet:se\\:cr\\\\et\n*:*:*:*:any\n";
        assert_eq!(found(content, "postgres://signet@db/signet").as_deref(), Some("se:cr\\et"));
        assert_eq!(found(content, "postgres://signet@db:5433/signet").as_deref(), Some("port"));
        assert_eq!(found(content, "postgres://else@db/signet").as_deref(), Some("any"));
        assert_eq!(found("db:5432:signet:signet", "postgres://signet@db/signet"), None);
        assert_eq!(found("db:5432:signet:signet:", "postgres://signet@db/signet"), None);
        assert_eq!(found("a\\:b:*:*:*:x", "host=a:b user=u").as_deref(), Some("x"));
        // If the URL has no database name, the database has the user's name.
        assert_eq!(found("*:*:u:u:x", "postgres://u@db").as_deref(), Some("x"));
        for (line, fits) in [("localhost", true), ("/run/postgresql", true), ("/elsewhere", false)] {
            let found = found(&format!("{line}:*:*:*:x"), "host=/run/postgresql user=u");
            assert_eq!(found.is_some(), fits, "{line}");
        }
    }

    #[test]
    fn passfile_readable_by_other_users_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass");
        assert!(read_file(&path).err().unwrap().text().starts_with("passfile: file does not exist: "));
        std::fs::write(&path, "*:*:*:*:hunter2").unwrap();
        for (mode, good) in [(0o620, false), (0o604, false), (0o600, true), (0o400, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = read_file(&path);
            assert_eq!(read.is_ok(), good, "{mode:o}");
            assert!(read.err().is_none_or(|error| error.text().contains("0600") && !error.text().contains("hunter2")));
        }
    }

    proptest! {
        #[test]
        fn passfile_of_any_content_does_not_panic(content in "[a-z*:\\\\#\n]{0,60}") {
            let _ = found(&content, "postgres://u@db/d");
        }
    }
}
