//! `signet operator new-user-token`: creates a projects API token for a user. The operator needs the seal key. The
//! command is the only way to a first token for an invited user, because the API requires a token to create one.

use crate::clock::Clock;
use crate::config::Config;
use crate::error::Result;
use crate::projects::Projects;
use crate::server::operator;
use crate::storage::Storage;
use serde_json::json;

use super::installation::ConfigFileArgument;
use super::token_issue;

const NEW_USER_TOKEN_COMMAND: &str = "new-user-token";

#[derive(clap::Args)]
pub(crate) struct UserTokenArguments {
    #[command(flatten)]
    config: ConfigFileArgument,
    /// Name or e-mail address of the user.
    #[arg(long, value_name = "NAME")]
    user: String,
}

pub(super) fn run(arguments: &UserTokenArguments) -> Result<()> {
    let user = &arguments.user;
    let command = json!({ "command": NEW_USER_TOKEN_COMMAND, "user": user });
    token_issue::run(&arguments.config.file, &command, show, async |storage, config| {
        issue_and_show(storage, config, user).await
    })
}

fn show(token: &str) -> Result<()> {
    let advice = "This token is shown only once and expires in two years. The user creates other tokens with it, then \
                  deletes it.";
    let again = format!("{NEW_USER_TOKEN_COMMAND} --config FILE --user NAME");
    token_issue::print_token(&json!({ "token": token }), &format!("token: {token}\n{advice}"), &again)
}

async fn issue_and_show(storage: &Storage, config: &Config, user: &str) -> Result<()> {
    let audit = operator::open_audit(&*storage.auth(), config.audit.clone(), Clock::system()).await?;
    let projects = Projects::start(storage.projects(), storage.token_seal(), Clock::system());
    let token = operator::new_user_token(&projects, &audit, user, true).await?;
    let token = token.expose_text().unwrap_or_default();
    let shown = show(token);
    if shown.is_err() {
        operator::delete_user_token(&projects, token).await?;
    }
    shown
}
