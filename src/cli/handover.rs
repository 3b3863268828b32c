//! Hands a token to an operator who has the seal key.
//!
//! If a server runs on the embedded store, the server creates the token, requested over its socket, and the caller
//! proves the possession of the seal. Otherwise the store is opened here, which needs the seal as well.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use signet::clock::Clock;
use signet::config::{Config, Store};
use signet::error::{Error, Kind, Result};
use signet::server::operator::Client;
use signet::storage::{self, Absent, Storage};

use super::installation::{closed, prepared, seal_key, storage_options};
use super::output::unwritten;
use super::{output, owner};

/// Creates and shows a token: through the running server with `command`, or otherwise with `alone` in the store.
pub(super) fn run(
    file: &Path,
    command: &Value,
    show: impl FnOnce(&str) -> Result<()>,
    alone: impl AsyncFnOnce(&Storage, &Config) -> Result<()>,
) -> Result<()> {
    let config = prepared(file)?;
    owner::require(&config)?;
    let server = match &config.store {
        Store::Embedded(folder) => Client::connect(folder)?,
        Store::Database(_) => None,
    };
    actix_rt::System::new().block_on(async {
        if let Some(server) = server {
            return beside(server, &config, command, show).await;
        }
        let storage = storage::open(storage_options(&config, Clock::system(), Absent::Missed)?).await?;
        closed(&storage, alone(&storage, &config).await).await
    })
}

/// Prints a result with a token in it. When this fails, the token is revoked, and `command` creates another.
pub(super) fn print(object: &Value, text: &str, command: &str) -> Result<()> {
    output::write(object, text).map_err(|e| {
        let error = unwritten(e);
        let text = format!("{error}: the token is revoked again, and signet operator {command} makes another");
        Error::new(error.kind(), text)
    })
}

/// Requests a token from the running server, and shows it. The server revokes the token if it cannot be shown.
async fn beside(
    mut server: Client,
    config: &Config,
    command: &Value,
    show: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let mut asked = server.ask(command)?;
    let question = serde_json::from_value(asked["question"].take()).map_err(Error::internal)?;
    // A caller without the seal replies anyway, so that the server records the attempt.
    let (proof, failed) = match seal_key(config)?.answer(&question).await {
        Ok(answer) => (BASE64_STANDARD.encode(answer.expose()), None),
        Err(error) => (String::new(), Some(error)),
    };
    let made = match (server.ask(&json!({ "proof": proof })), failed) {
        (_, Some(error)) | (Err(error), None) => return Err(error),
        (Ok(made), None) => made,
    };
    let token = made["token"].as_str().ok_or_else(|| Error::internal("the server answered something else"))?;
    let shown = show(token);
    // The server revokes the token unless this confirms its receipt.
    let heard = server.ask(&json!({ "taken": shown.is_ok() }));
    shown?;
    match heard?["taken"] == true {
        true => Ok(()),
        false => Err(Error::new(Kind::Unavailable, "the token was not taken in time, and is revoked again")),
    }
}
