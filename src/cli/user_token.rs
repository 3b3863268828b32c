//! `signet operator new-user-token`: creates a token of the projects API, for an operator with the seal key. An invited
//! user has no token with which to create the first one.

use std::path::PathBuf;

use serde_json::json;
use signet::clock::Clock;
use signet::config::Config;
use signet::error::Result;
use signet::projects::Projects;
use signet::server::operator;
use signet::storage::Storage;

use super::handover;

const COMMAND: &str = "new-user-token";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Name or e-mail address of the user.
    #[arg(long, value_name = "NAME")]
    user: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let user = &arguments.user;
    let command = json!({ "command": COMMAND, "user": user });
    handover::run(&arguments.config, &command, show, async |storage, config| hand_out(storage, config, user).await)
}

fn show(token: &str) -> Result<()> {
    let advice = "This token is shown once, and ends in two years. With it the user makes others, and ends it.";
    handover::print(&json!({ "token": token }), &format!("token: {token}\n{advice}"), COMMAND)
}

async fn hand_out(storage: &Storage, config: &Config, user: &str) -> Result<()> {
    let audit = operator::audit(&*storage.auth(), config.audit.clone(), Clock::system()).await?;
    let projects = Projects::start(storage.projects(), storage.token_seal(), Clock::system());
    let token = operator::new_user_token(&projects, &audit, user, true).await?;
    let token = token.expose_text().unwrap_or_default();
    let shown = show(token);
    if shown.is_err() {
        operator::end_user_token(&projects, token).await?;
    }
    shown
}
