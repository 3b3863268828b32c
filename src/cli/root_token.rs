//! `signet operator new-root-token`: another root token, for who has the seal key.
//!
//! Beside a server that runs on the embedded store the server makes it, asked over its socket; it has the caller prove
//! that they have the seal. In any other case the store is opened here, which needs the seal as well.

use std::io::Write as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use signet::auth::Auth;
use signet::clock::Clock;
use signet::config::{Config, Store};
use signet::error::{Error, Kind, Result};
use signet::server::operator::{self, Client};
use signet::storage::{self, Absent, Storage};

use super::installation::{closed, prepared, seal_key, storage_options};
use super::output::unwritten;
use super::owner;

/// The arguments of `signet operator new-root-token`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Makes the token and prints it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let config = prepared(&arguments.config)?;
    owner::require(&config)?;
    let server = match &config.store {
        Store::Embedded(folder) => Client::connect(folder)?,
        Store::Database(_) => None,
    };
    actix_rt::System::new().block_on(async {
        match server {
            Some(server) => beside(server, &config, &json!({ "command": "new-root-token" }), show).await,
            None => alone(&config).await,
        }
    })
}

/// Prints a token, which nobody has when this fails: all of the text is written at once.
fn show(token: &str) -> Result<()> {
    let advice = "This root token is shown once. Revoke it when its work is done: auth/token/revoke-self.";
    print(&format!("token: {token}\n{advice}\n"))
}

/// Prints a text with a token in it, which is revoked when this fails.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| {
        let error = unwritten(e);
        Error::new(error.kind(), format!("{error}: the token is revoked again, and the command makes another"))
    })
}

/// Asks the server that runs for a token, which needs the seal, and shows it; the server revokes it again where it cannot
/// be shown.
pub(super) async fn beside(
    mut server: Client,
    config: &Config,
    command: &Value,
    show: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let mut asked = server.ask(command)?;
    let question = serde_json::from_value(asked["question"].take()).map_err(Error::internal)?;
    // Who cannot answer says so all the same: the server records that somebody tried.
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
    // The server revokes it unless it hears that somebody has it.
    let heard = server.ask(&json!({ "taken": shown.is_ok() }));
    shown?;
    match heard?["taken"] == true {
        true => Ok(()),
        false => Err(Error::new(Kind::Unavailable, "the token was not taken in time, and is revoked again")),
    }
}

async fn alone(config: &Config) -> Result<()> {
    let storage = storage::open(storage_options(config, Clock::system(), Absent::Missed)?).await?;
    let made = async {
        let auth = Auth::open(storage.auth(), Clock::system()).await?;
        hand_out(&storage, &auth, config, operator::ANOTHER, show).await
    };
    closed(&storage, made.await).await
}

/// Makes a root token, of which the audit hears on `path`, and shows it; revokes it again where it cannot be shown.
pub(super) async fn hand_out(
    storage: &Storage,
    auth: &Auth,
    config: &Config,
    path: &'static str,
    show: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let audit = operator::audit(&*storage.auth(), config.audit.clone(), Clock::system()).await?;
    let token = operator::new_root_token(auth, &audit, path, true).await?;
    let token = token.expose_text().unwrap_or_default();
    let shown = show(token);
    if shown.is_err() {
        auth.revoke(token).await?;
    }
    shown
}
