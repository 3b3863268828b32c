//! Creates a token for an operator who has the seal key.
//!
//! If a server runs on the embedded store, this process asks it for the token over its operator socket, and proves that
//! it has the seal key. Otherwise this process opens the store, which needs the seal key as well.

use std::path::Path;

use crate::clock::Clock;
use crate::config::{Config, StoreLocation};
use crate::error::{Error, Kind, Result};
use crate::server::operator::OperatorClient;
use crate::storage::{self, IfMissing, Storage};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::installation::{close_store, load_as_owner, seal_key, storage_options};
use super::output::{self, stdout_error};

/// Creates a token and shows it. If a server runs on the embedded store, sends `command` to it and passes the token to
/// `show`. Otherwise opens the store and runs `without_server`.
pub(super) fn run(
    file: &Path,
    command: &Value,
    show: impl FnOnce(&str) -> Result<()>,
    without_server: impl AsyncFnOnce(&Storage, &Config) -> Result<()>,
) -> Result<()> {
    let config = load_as_owner(file)?;
    let server = match &config.store {
        StoreLocation::Embedded(folder) => OperatorClient::connect(folder)?,
        StoreLocation::Database(_) => None,
    };
    actix_rt::System::new().block_on(async {
        if let Some(server) = server {
            return issue_through_server(server, &config, command, show).await;
        }
        let storage = storage::open(storage_options(&config, Clock::system(), IfMissing::Fail)?).await?;
        close_store(&storage, without_server(&storage, &config).await).await
    })
}

/// Prints a result that contains a new token. If this fails, the caller must revoke the token; the error says so and
/// names `command`, which creates another one.
pub(super) fn print_token(object: &Value, text: &str, command: &str) -> Result<()> {
    output::write_result(object, text).map_err(|e| {
        let error = stdout_error(e);
        let text = format!("{error}: the token was revoked; create another one with signet operator {command}");
        Error::new(error.kind(), text)
    })
}

/// Requests a token from the running server and passes it to `show`. If `show` fails, the server revokes the token.
async fn issue_through_server(
    mut server: OperatorClient,
    config: &Config,
    command: &Value,
    show: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let mut reply = server.request(command)?;
    let question = serde_json::from_value(reply["question"].take()).map_err(Error::internal)?;
    // Without the seal key, an empty proof is sent, so that the server records the failed attempt.
    let (proof, failed) = match seal_key(config)?.answer(&question).await {
        Ok(answer) => (BASE64_STANDARD.encode(answer.expose()), None),
        Err(error) => (String::new(), Some(error)),
    };
    let issued = match (server.request(&json!({ "proof": proof })), failed) {
        (_, Some(error)) | (Err(error), None) => return Err(error),
        (Ok(issued), None) => issued,
    };
    let token =
        issued["token"].as_str().ok_or_else(|| Error::internal("the response on the operator socket has no token"))?;
    let shown = show(token);
    // The server revokes the token unless this message confirms that the token was shown.
    let reply = server.request(&json!({ "taken": shown.is_ok() }));
    shown?;
    match reply?["taken"] == true {
        true => Ok(()),
        false => Err(Error::new(
            Kind::Unavailable,
            "the server got no confirmation of the new token in time, and revoked it; try again",
        )),
    }
}
