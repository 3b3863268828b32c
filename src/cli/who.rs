//! `signet who SERIAL`: shows which client requested a certificate, when, and with which role, in every mount
//! that the token may read.
//!
//! It reads the server's record of the certificate (`MOUNT/cert-record/SERIAL`), which exists even without an audit
//! device. The serial number may have the format of openssl, of browsers or of the server; the certificate's file is
//! accepted too.

use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::x509::serial::Serial;
use serde_json::{Value, json};

use super::client::{AuthenticatedClient, ClientRequest};
use super::issue::read_leaf;
use super::output;

/// API path that lists the mounts on which the calling token has rights.
pub(super) const MOUNTS_PATH: &str = "sys/internal/ui/mounts";

#[derive(clap::Args)]
pub(crate) struct WhoArguments {
    /// Serial number, hexadecimal, with or without colons; or the certificate's file.
    #[arg(value_name = "SERIAL")]
    serial: String,
    #[command(flatten)]
    caller: AuthenticatedClient,
}

pub(crate) async fn run(arguments: WhoArguments) -> Result<()> {
    let serial = parse_serial(&arguments.serial)?;
    let mounts = list_authorities(&arguments.caller).await?;
    let mut found = Vec::new();
    let mut unreadable = Vec::new();
    for mount in &mounts {
        let reply = arguments.caller.request(ClientRequest::get(&format!("{mount}cert-record/{serial}"))).await?;
        match reply.status {
            200 => found.push((mount, reply.data())),
            403 => unreadable.push(mount.as_str()),
            404 => {}
            _ => return Err(reply.to_error("")),
        }
    }
    if found.is_empty() {
        return Err(not_found_error(serial, &mounts, &unreadable));
    }
    for (mount, record) in &mut found {
        record["mount"] = json!(mount);
        output::print_result(record, render_record(mount, record).trim_end())?;
    }
    Ok(())
}

/// Returns the paths of the PKI mounts that the token may read.
///
/// # Errors
/// The server's error response.
pub(super) async fn list_authorities(caller: &AuthenticatedClient) -> Result<Vec<String>> {
    Ok(authorities_in(&caller.request_data(ClientRequest::get(MOUNTS_PATH)).await?))
}

/// Returns the paths of the PKI mounts in `mounts`, the `data` of a response from [`MOUNTS_PATH`].
pub(super) fn authorities_in(mounts: &Value) -> Vec<String> {
    let engines = mounts["secret"].as_object().into_iter().flatten();
    engines.filter(|(_, mount)| mount["type"] == "pki").map(|(path, _)| path.clone()).collect()
}

fn not_found_error(serial: Serial, mounts: &[String], unreadable: &[&str]) -> Error {
    let searched: Vec<&str> = mounts.iter().map(String::as_str).filter(|mount| !unreadable.contains(mount)).collect();
    let searched =
        if searched.is_empty() { "no mount was".to_owned() } else { format!("{} were", searched.join(", ")) };
    let unreadable = match unreadable {
        [] => String::new(),
        unreadable => format!("; the token may not read {}cert-record/+", unreadable.join("cert-record/+, ")),
    };
    let text = format!(
        "{serial}: no record found ({searched} searched{unreadable}). Roles with no_store keep no records, and tidy removes \
         those of expired certificates"
    );
    Error::new(Kind::NotFound, text)
}

/// Parses a serial number in any common format, or reads the serial number of the certificate in a file.
///
/// # Errors
/// `Invalid` when the text is neither a serial number nor the name of a file with a certificate.
pub(super) fn parse_serial(text: &str) -> Result<Serial> {
    let file = Path::new(text);
    if file.is_file() {
        return Ok(read_leaf("SERIAL", file)?.certificate.serial());
    }
    if text.contains('/') || text.ends_with(".pem") {
        return Err(Error::of_file("SERIAL", file, "read", std::io::ErrorKind::NotFound.into()));
    }
    // Strips the prefix that `openssl x509 -serial` prints.
    let bare = text.trim().trim_start_matches("serial=");
    Serial::parse(bare).map_err(|_| {
        Error::invalid("SERIAL: must be hexadecimal digits, with or without colons, or a certificate's file")
    })
}

fn render_record(mount: &str, record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let who = &record["requester"];
    let name = text_or(&who["display_name"], "a token whose name was not recorded");
    let entity = who["entity_id"].as_str().filter(|id| !id.is_empty()).map(|id| format!(", entity {id}"));
    let issuer = text_or(&record["issuer_name"], "an issuer without a name");
    let revoked = match record["revocation_time"].as_str() {
        Some(at) => format!("{at} ({})", text("revocation_reason")),
        None => "no".to_owned(),
    };
    let lines = [
        ("certificate", text("serial_number")),
        ("name", text_or(&record["common_name"], "none in the subject")),
        ("requested by", name + &entity.unwrap_or_default()),
        ("at", text("recorded_at")),
        ("by role", text_or(&record["role"], "none")),
        ("of mount", mount.to_owned()),
        ("signed by", format!("{issuer} ({})", text("issuer_id"))),
        ("valid", format!("{} to {}", text("not_before"), text("not_after"))),
        ("revoked", revoked),
        ("token", format!("accessor's SHA-256 {}", who["accessor_hash"].as_str().unwrap_or_default())),
    ];
    lines.iter().map(|(name, text)| format!("{name:<12} {text}\n")).collect()
}

/// Returns the text of a JSON string, or `other` if it is empty or not a string.
fn text_or(value: &Value, other: &str) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(other).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_number_is_parsed_in_every_common_notation() {
        for text in ["0a:0B:ff", "0a-0b-ff", "0A0BFF", "a0bff", "serial=0A0BFF", "0x0a0bff", " 0a 0b ff "] {
            assert_eq!(parse_serial(text).unwrap().to_string(), "0a:0b:ff", "{text}");
        }
        for text in ["", "xyz", "0a:", "no-file.pem"] {
            assert!(parse_serial(text).is_err() || text == "0a:", "{text}");
        }
        assert!(parse_serial(&"0a".repeat(40)).is_err());
    }
}
