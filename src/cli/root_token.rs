//! `signet operator new-root-token`: another root token, for who has the seal key.

use std::path::PathBuf;

use serde_json::{Value, json};
use signet::auth::Auth;
use signet::clock::Clock;
use signet::config::Config;
use signet::error::Result;
use signet::server::operator;
use signet::storage::Storage;

use super::handover;

/// The name of the command.
const COMMAND: &str = "new-root-token";

/// The arguments of `signet operator new-root-token`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Makes the token and prints it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    handover::run(&arguments.config, &json!({ "command": COMMAND }), show, async |storage, config| {
        let auth = Auth::open(storage.auth(), Clock::system()).await?;
        hand_out(storage, &auth, config, operator::ANOTHER, show).await
    })
}

fn show(token: &str) -> Result<()> {
    let advice = "This root token is shown once. Revoke it when its work is done: auth/token/revoke-self.";
    print(&json!({ "token": token }), &format!("token: {token}\n{advice}"))
}

/// Prints a result with a root token in it.
pub(super) fn print(object: &Value, text: &str) -> Result<()> {
    handover::print(object, text, COMMAND)
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
