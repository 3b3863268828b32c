//! `signet bootstrap`: creates the first user of the projects API, once, in the store that the configuration names.
//!
//! A server on the embedded store must not run. The user's token can create organizations and invite other users.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use serde_json::json;
use signet::clock::Clock;
use signet::config::Config;
use signet::error::{Error, Result};
use signet::projects::store::ITSELF;
use signet::projects::{Access, Projects, token, user};
use signet::storage::{self, Absent, Storage};

use super::installation::{prepared, storage_options};
use super::output::unwritten;
use super::{output, owner};

/// Provides the token of the first user where no screen is available, such as in a container.
const TOKEN: &str = "SIGNET_BOOTSTRAP_TOKEN";
/// Minimum length of such a token, in characters.
const SHORTEST: usize = 32;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Name of the first user.
    #[arg(long, value_name = "NAME")]
    username: String,
    /// E-mail address of the first user.
    #[arg(long, value_name = "ADDRESS")]
    email: String,
}

/// Creates the first user and prints the token, unless the token came from the environment.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let config = prepared(&arguments.config)?;
    owner::require(&config)?;
    actix_rt::System::new().block_on(bootstrap(&config, arguments))
}

async fn bootstrap(config: &Config, arguments: &Arguments) -> Result<()> {
    let given = given_token()?;
    let clock = Clock::system();
    let storage = storage::open(storage_options(config, clock.clone(), Absent::Missed)?).await?;
    let made = first_user(&storage, clock, arguments, given.clone()).await;
    storage.shutdown().await?;
    let token = made?;
    let (shown, text) = match given {
        Some(_) => (None, format!("the first user's token is the one in {TOKEN}: take it out of there")),
        None => {
            let advice = "This token is shown once. Make others with it, then revoke it.";
            (Some(&token), format!("token: {token}\n{advice}"))
        }
    };
    output::write(&json!({ "username": arguments.username, "token": shown }), text).map_err(unwritten)
}

async fn first_user(storage: &Storage, clock: Clock, arguments: &Arguments, given: Option<String>) -> Result<String> {
    let token = match given {
        Some(text) => token::given(&text).ok_or_else(|| Error::invalid(format!("{TOKEN}: is too long")))?,
        None => token::draw(),
    };
    let text = String::from_utf8_lossy(token.text.expose()).into_owned();
    let (username, email) = (arguments.username.clone(), arguments.email.clone());
    let projects = Projects::start(storage.projects(), storage.token_seal(), clock);
    let made = projects.run("bootstrap", Access::Write(ITSELF), move |mut tx| {
        let (username, email, token) = (username.clone(), email.clone(), token.clone());
        async move { user::bootstrap(&mut tx, &username, &email, &token).await }.boxed_local()
    });
    made.await?;
    Ok(text)
}

fn given_token() -> Result<Option<String>> {
    let Ok(text) = std::env::var(TOKEN) else { return Ok(None) };
    if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let rule = format!("{TOKEN}: must be at least {SHORTEST} printable characters without blanks");
        return Err(Error::invalid(rule));
    }
    Ok(Some(text))
}
