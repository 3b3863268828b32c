//! `signet bootstrap`: creates the first user of the projects API, once, in the store that the configuration names.
//!
//! With the embedded store, the server must be stopped. The user's token can create organizations and invite other
//! users.

use crate::clock::Clock;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::projects::store::SERVER_CALLER;
use crate::projects::{Projects, SessionAccess, token, user};
use crate::storage::{self, IfMissing, Storage};
use futures_util::FutureExt as _;
use serde_json::json;

use super::installation::{ConfigFileArgument, load_as_owner, storage_options};
use super::output::{self, stdout_error};

/// Environment variable that predefines the first user's token, for environments such as containers, whose output is
/// not read. The token is not printed then.
const TOKEN_VARIABLE: &str = "SIGNET_BOOTSTRAP_TOKEN";
/// Minimum length of the token in [`TOKEN_VARIABLE`], in characters.
const MIN_TOKEN_LENGTH: usize = 32;

#[derive(clap::Args)]
pub(crate) struct BootstrapArguments {
    #[command(flatten)]
    config: ConfigFileArgument,
    /// Name of the first user.
    #[arg(long, value_name = "NAME")]
    username: String,
    /// E-mail address of the first user.
    #[arg(long, value_name = "ADDRESS")]
    email: String,
}

/// Creates the first user. Prints the user's token, unless it was given in [`TOKEN_VARIABLE`].
pub(crate) fn run(arguments: &BootstrapArguments) -> Result<()> {
    let config = load_as_owner(&arguments.config.file)?;
    actix_rt::System::new().block_on(bootstrap(&config, arguments))
}

async fn bootstrap(config: &Config, arguments: &BootstrapArguments) -> Result<()> {
    let given_token = token_from_environment()?;
    let clock = Clock::system();
    let storage = storage::open(storage_options(config, clock.clone(), IfMissing::Fail)?).await?;
    let created = create_first_user(&storage, clock, arguments, given_token.clone()).await;
    storage.shutdown().await?;
    let token = created?;
    let (shown, text) = match given_token {
        Some(_) => (None, format!("the first user's token is the one in {TOKEN_VARIABLE}; unset the variable now")),
        None => {
            let advice = "This token is shown only once. Create other tokens with it, then revoke it.";
            (Some(&token), format!("token: {token}\n{advice}"))
        }
    };
    output::write_result(&json!({ "username": arguments.username, "token": shown }), text).map_err(stdout_error)
}

async fn create_first_user(
    storage: &Storage,
    clock: Clock,
    arguments: &BootstrapArguments,
    given_token: Option<String>,
) -> Result<String> {
    let token = match given_token {
        Some(text) => {
            token::from_text(&text).ok_or_else(|| Error::invalid(format!("{TOKEN_VARIABLE}: is too long")))?
        }
        None => token::generate(),
    };
    let text = String::from_utf8_lossy(token.text.expose()).into_owned();
    let username = arguments.username.clone();
    let email = arguments.email.clone();
    let projects = Projects::start(storage.projects(), storage.token_seal(), clock);
    let stored = projects.run("bootstrap", SessionAccess::Write(SERVER_CALLER), move |mut tx| {
        let username = username.clone();
        let email = email.clone();
        let token = token.clone();
        async move { user::bootstrap(&mut tx, &username, &email, &token).await }.boxed_local()
    });
    stored.await?;
    Ok(text)
}

fn token_from_environment() -> Result<Option<String>> {
    let Ok(text) = std::env::var(TOKEN_VARIABLE) else { return Ok(None) };
    if text.len() < MIN_TOKEN_LENGTH || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let rule = format!("{TOKEN_VARIABLE}: must be at least {MIN_TOKEN_LENGTH} printable characters without blanks");
        return Err(Error::invalid(rule));
    }
    Ok(Some(text))
}
