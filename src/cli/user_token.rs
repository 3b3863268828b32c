//! `signet operator new-user-token`: a token of the projects API for a user, for who has the seal key.
//!
//! Whoever is invited has no token to make the first one with. As with a new root token a server on the embedded store
//! makes it, asked over its socket; in any other case the store is opened here.

use std::path::PathBuf;

use serde_json::json;
use signet::clock::Clock;
use signet::config::{Config, Store};
use signet::error::Result;
use signet::projects::Projects;
use signet::server::operator::{self, Client};
use signet::storage::{self, Absent, Storage};

use super::installation::{closed, prepared, storage_options};
use super::owner;
use super::root_token::{beside, print};

/// The arguments of `signet operator new-user-token`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// What the user is called, or their e-mail address.
    #[arg(long, value_name = "NAME")]
    user: String,
}

/// Makes the token and prints it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let config = prepared(&arguments.config)?;
    owner::require(&config)?;
    let server = match &config.store {
        Store::Embedded(folder) => Client::connect(folder)?,
        Store::Database(_) => None,
    };
    let command = json!({ "command": "new-user-token", "user": arguments.user });
    actix_rt::System::new().block_on(async {
        match server {
            Some(server) => beside(server, &config, &command, show).await,
            None => alone(&config, &arguments.user).await,
        }
    })
}

fn show(token: &str) -> Result<()> {
    let advice = "This token is shown once, and ends in two years. With it the user makes others, and ends it.";
    print(&format!("token: {token}\n{advice}\n"))
}

async fn alone(config: &Config, user: &str) -> Result<()> {
    let storage = storage::open(storage_options(config, Clock::system(), Absent::Missed)?).await?;
    closed(&storage, hand_out(&storage, config, user).await).await
}

async fn hand_out(storage: &Storage, config: &Config, user: &str) -> Result<()> {
    let audit = operator::audit(&*storage.auth(), config.audit.clone(), Clock::system()).await?;
    let projects = Projects::start(storage.projects(), Clock::system());
    let token = operator::new_user_token(&projects, &audit, user, true).await?;
    let token = token.expose_text().unwrap_or_default();
    let shown = show(token);
    if shown.is_err() {
        operator::end_user_token(&projects, token).await?;
    }
    shown
}
