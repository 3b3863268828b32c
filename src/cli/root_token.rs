//! `signet operator new-root-token`: creates another root token, for an operator with the seal key.

use std::path::PathBuf;

use serde_json::{Value, json};
use signet::auth::Auth;
use signet::clock::Clock;
use signet::config::Config;
use signet::error::Result;
use signet::server::operator;
use signet::storage::Storage;

use super::handover;

const COMMAND: &str = "new-root-token";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

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

pub(super) fn print(object: &Value, text: &str) -> Result<()> {
    handover::print(object, text, COMMAND)
}

/// Creates a root token and shows it; revokes it if it cannot be shown. The audit record has this `path`.
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
