//! `signet operator new-root-token`: creates another root token, for an operator with the seal key.

use std::path::{Path, PathBuf};

use crate::auth::Auth;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Result;
use crate::server::operator;
use crate::storage::Storage;
use serde_json::{Value, json};

use super::files::{self, FileContent};
use super::installation::ConfigFileArgument;
use super::{output, token_issue};

const NEW_ROOT_TOKEN_COMMAND: &str = "new-root-token";
const REVOCATION_ADVICE: &str = "Revoke it when its work is done: auth/token/revoke-self.";

#[derive(clap::Args)]
pub(crate) struct RootTokenArguments {
    #[command(flatten)]
    config: ConfigFileArgument,
    /// Write the token to this new file, mode 0600, and do not print it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &RootTokenArguments) -> Result<()> {
    let Some(file) = arguments.out.as_deref() else {
        return issue(&arguments.config.file, |token| {
            let text = format!("token: {token}\nThis root token is shown once. {REVOCATION_ADVICE}");
            print_root_token(&json!({ "token": token }), &text)
        });
    };
    if files::path_exists(file) {
        return Err(files::exists_error(file));
    }
    issue(&arguments.config.file, |token| files::write_new(file, &[token.as_bytes(), b"\n"], FileContent::Secret))?;
    let file = file.display().to_string();
    output::try_print(&json!({ "token_file": file }), format!("{file}: a root token. {REVOCATION_ADVICE}"));
    Ok(())
}

fn issue(config: &Path, show: impl Fn(&str) -> Result<()> + Copy) -> Result<()> {
    token_issue::run(config, &json!({ "command": NEW_ROOT_TOKEN_COMMAND }), show, async |storage, config| {
        let auth = Auth::open(storage.auth(), Clock::system()).await?;
        issue_and_show(storage, &auth, config, operator::NEW_ROOT_TOKEN_PATH, show).await
    })
}

pub(super) fn print_root_token(object: &Value, text: &str) -> Result<()> {
    token_issue::print_token(object, text, &format!("{NEW_ROOT_TOKEN_COMMAND} --config FILE"))
}

/// Creates a root token and passes it to `show`, which prints or writes it. Revokes the token if `show` fails. `path`
/// is the request path in the audit record.
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
