//! `signet revoke SERIAL`: revokes a certificate, given by its serial number or its file.
//!
//! For a file, the command sends the certificate itself (the first PEM block), so that the server can revoke it even if
//! it has not stored it. The server responds after it has published the new CRL, unless the mount builds CRLs only on a
//! timer.

use std::path::Path;

use crate::error::{Error, Kind, Result};
use serde_json::{Value, json};

use super::client::{AuthenticatedClient, ClientRequest, ClientResponse, ClientResponseBody};
use super::issue::read_leaf;
use super::{output, path, who};

#[derive(clap::Args)]
pub(crate) struct RevokeArguments {
    /// Serial number, hexadecimal, with or without colons; or the certificate's file.
    #[arg(value_name = "SERIAL")]
    serial: String,
    /// Reason of RFC 5280: keyCompromise, affiliationChanged, superseded, cessationOfOperation or privilegeWithdrawn;
    /// default: unspecified.
    #[arg(long)]
    reason: Option<String>,
    /// Mount of the certificate authority.
    #[arg(long, env = "SIGNET_MOUNT", default_value = "pki", value_parser = path::parse_mount)]
    mount: String,
    #[command(flatten)]
    caller: AuthenticatedClient,
}

pub(crate) async fn run(arguments: RevokeArguments) -> Result<()> {
    let file = Path::new(&arguments.serial);
    let (serial, mut body) = if file.is_file() {
        let leaf = read_leaf("SERIAL", file)?;
        (leaf.certificate.serial(), json!({ "certificate": leaf.text }))
    } else {
        let serial = who::parse_serial(&arguments.serial)?;
        (serial, json!({ "serial_number": serial.to_string() }))
    };
    if let Some(reason) = &arguments.reason {
        body["reason"] = reason.as_str().into();
    }
    let path = format!("{}/revoke", arguments.mount);
    let reply = arguments.caller.request(ClientRequest::post(&path, &body)).await?;
    let ClientResponseBody { data, warnings, errors } = reply.json::<ClientResponseBody<Value>>();
    if !(200..300).contains(&reply.status) {
        return Err(reply.to_error(&rejection_hint(&reply, &errors, &arguments.caller)));
    }
    let warnings = warnings.unwrap_or_default();
    let Some(at) = data["revocation_time_rfc3339"].as_str() else {
        return Err(Error::new(Kind::Conflict, format!("{serial}: not revoked ({})", warnings.join("; "))));
    };
    let object = json!({
        "serial_number": serial.to_string(),
        "mount": arguments.mount,
        "revocation_time": at,
        "warnings": warnings,
    });
    output::print_result_with_warnings(&object, format!("{serial}: revoked at {at}"), &warnings)
}

fn rejection_hint(reply: &ClientResponse, errors: &[String], caller: &AuthenticatedClient) -> String {
    let says = |word: &str| errors.iter().any(|text| text.contains(word));
    match reply.status {
        403 => reply.denial_hint(&caller.token_source()),
        404 => " (check --mount)".to_owned(),
        400 if says("not found") || says("not signed by an issuer of this mount") => {
            " (check --mount: signet who finds the mount of a certificate)".to_owned()
        }
        _ => String::new(),
    }
}
