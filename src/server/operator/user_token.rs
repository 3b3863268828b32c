//! Creates a projects API token for a user, at the request of an operator who has the seal key. Invited users need it,
//! and users who have lost their token.
//!
//! The command is `{"command": "new-user-token", "user": NAME}`, with a username or an email address;
//! [`token_issue`](super::token_issue) describes the messages.

use futures_util::FutureExt as _;
use serde_json::Value;

use super::context::OperatorContext;
use super::token_issue::{create_audited, hand_out_token, verify_proof};
use super::wire::OperatorConnection;
use crate::audit::{Audit, AuditResponse};
use crate::error::{Error, Result};
use crate::projects::store::SERVER_CALLER;
use crate::projects::{Projects, SessionAccess, token, user};
use crate::secret::Secret;

/// Request path in the audit log; the name of the user follows.
const NEW_USER_TOKEN_PATH: &str = "sys/operator/new-user-token/";

pub(super) async fn run(
    context: &OperatorContext,
    line: &Value,
    conversation: &mut OperatorConnection,
) -> Result<Value> {
    let user = line["user"].as_str().ok_or_else(|| Error::malformed("user: is missing"))?;
    let proved = verify_proof(context, conversation).await?;
    let projects = &context.shared.projects;
    let token = new_user_token(projects, &context.shared.audit, user, proved).await?;
    let text = token.expose_text().unwrap_or_default();
    hand_out_token(conversation, text, async || delete_user_token(projects, text).await).await
}

/// Creates a token for the user with this name or email address, if the caller has `proved` possession of the seal key.
/// The token expires after two years, the default of the projects API.
///
/// # Errors
/// `NotFound` when there is no such user; `Forbidden` without the proof; `Unavailable` when no audit device records the
/// creation; the errors of the store.
pub async fn new_user_token(projects: &Projects, audit: &Audit, user: &str, proved: bool) -> Result<Secret> {
    let path = format!("{NEW_USER_TOKEN_PATH}{user}");
    let token = create_audited(
        audit,
        ("new-user-token", &path),
        proved,
        async || create_token(projects, user).await,
        |_| AuditResponse::default(),
        async |token| delete_user_token(projects, token.expose_text().unwrap_or_default()).await,
    );
    token.await
}

async fn create_token(projects: &Projects, name: &str) -> Result<Secret> {
    let token = token::generate();
    let name = name.to_owned();
    let new_token = token.clone();
    let stored = projects.run("new-user-token", SessionAccess::Write(SERVER_CALLER), move |mut tx| {
        let name = name.clone();
        let token = new_token.clone();
        async move { user::issue_token(&mut tx, &name, &token).await }.boxed_local()
    });
    stored.await?;
    Ok(token.text)
}

/// Deletes a user's token that the operator did not receive. `text` is the token.
///
/// # Errors
/// Those of the store.
pub async fn delete_user_token(projects: &Projects, text: &str) -> Result<()> {
    let Some((lookup, _)) = token::split(text) else { return Ok(()) };
    let ended = projects.run("new-user-token", SessionAccess::Write(SERVER_CALLER), move |mut tx| {
        let lookup = lookup.clone();
        async move { user::delete_token(&mut tx, &lookup).await }.boxed_local()
    });
    Ok(ended.await?)
}
