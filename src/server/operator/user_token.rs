//! Creates a projects API token for a user, if the caller has the seal key: for invited users, and
//! for those who lost theirs.
//!
//! The command is `{"command": "new-user-token", "user": NAME}`, with a username or an email address;
//! [`handover`](super::handover) describes the exchange.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use super::context::Context;
use super::handover::{given, proved, recorded};
use super::wire::Conversation;
use crate::audit::{Audit, Response};
use crate::error::{Error, Result};
use crate::projects::store::ITSELF;
use crate::projects::{Access, Projects, token, user};
use crate::secret::Secret;

/// Audit path, followed by the name of the user.
const PATH: &str = "sys/operator/new-user-token/";

pub(super) fn run<'a>(
    context: &'a Context,
    line: &'a Value,
    conversation: &'a mut Conversation,
) -> LocalBoxFuture<'a, Result<Value>> {
    async move {
        let user = line["user"].as_str().ok_or_else(|| Error::malformed("user: is missing"))?;
        let proved = proved(context, conversation).await?;
        let projects = &context.shared.projects;
        let token = new_user_token(projects, &context.shared.audit, user, proved).await?;
        let text = token.expose_text().unwrap_or_default();
        given(conversation, text, async || end_user_token(projects, text).await).await
    }
    .boxed_local()
}

/// Creates a token for the user with this name or email address, if the caller has `proved` possession of the seal key.
/// It expires after two years, the default of the projects API.
///
/// # Errors
/// `NotFound` when there is no such user; `Forbidden` without the proof; `Unavailable` when the audit
/// fails; the errors of the store.
pub async fn new_user_token(projects: &Projects, audit: &Audit, user: &str, proved: bool) -> Result<Secret> {
    let path = format!("{PATH}{user}");
    let made = recorded(
        audit,
        ("new-user-token", &path),
        proved,
        async || make(projects, user).await,
        |_| Response::default(),
        async |token| end_user_token(projects, token.expose_text().unwrap_or_default()).await,
    );
    made.await
}

async fn make(projects: &Projects, name: &str) -> Result<Secret> {
    let token = token::draw();
    let (name, drawn) = (name.to_owned(), token.clone());
    let made = projects.run("new-user-token", Access::Write(ITSELF), move |mut tx| {
        let (name, token) = (name.clone(), drawn.clone());
        async move { user::give_another(&mut tx, &name, &token).await }.boxed_local()
    });
    made.await?;
    Ok(token.text)
}

/// Deletes a token that was not handed out.
///
/// # Errors
/// Those of the store.
pub async fn end_user_token(projects: &Projects, text: &str) -> Result<()> {
    let Some((lookup, _)) = token::split(text) else { return Ok(()) };
    let ended = projects.run("new-user-token", Access::Write(ITSELF), move |mut tx| {
        let lookup = lookup.clone();
        async move { user::take_back(&mut tx, &lookup).await }.boxed_local()
    });
    Ok(ended.await?)
}
