//! `signet operator new-root-token`: creates another root token, for an operator with the seal key.

use std::path::PathBuf;

use serde_json::{Value, json};
use signet::auth::Auth;
use signet::clock::Clock;
use signet::config::Config;
use signet::error::Result;
use signet::server::operator;
use signet::storage::Storage;

use super::token_issue;

const COMMAND: &str = "new-root-token";

#[derive(clap::Args)]
pub(crate) struct RootTokenArguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(arguments: &RootTokenArguments) -> Result<()> {
    token_issue::run(&arguments.config, &json!({ "command": COMMAND }), show, async |storage, config| {
        let auth = Auth::open(storage.auth(), Clock::system()).await?;
        issue_and_show(storage, &auth, config, operator::NEW_ROOT_TOKEN_PATH, show).await
    })
}

fn show(token: &str) -> Result<()> {
    let advice = "This root token is shown once. Revoke it when its work is done: auth/token/revoke-self.";
    print_root_token(&json!({ "token": token }), &format!("token: {token}\n{advice}"))
}

pub(super) fn print_root_token(object: &Value, text: &str) -> Result<()> {
    token_issue::print_token(object, text, COMMAND)
}

/// Creates a root token and shows it; revokes it if it cannot be shown. The audit record has this `path`.
pub(super) async fn issue_and_show(
    storage: &Storage,
    auth: &Auth,
    config: &Config,
    path: &'static str,
    show: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let audit = operator::open_audit(&*storage.auth(), config.audit.clone(), Clock::system()).await?;
    let token = operator::new_root_token(auth, &audit, path, true).await?;
    let token = token.expose_text().unwrap_or_default();
    let shown = show(token);
    if shown.is_err() {
        auth.revoke(token).await?;
    }
    shown
}
