//! Another root token, for who has the seal key.
//!
//! The caller asks `{"command": "new-root-token"}`; [`handover`](super::handover) says how the talk goes on. It is made
//! beside the root tokens that there are: what was made by those is theirs and stays. The first one of a store is made in
//! the same way, on [`FIRST`].

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use super::context::Context;
use super::handover::{given, proved, recorded};
use super::wire::Conversation;
use crate::audit::{Audit, Response};
use crate::auth::Auth;
use crate::error::Result;
use crate::secret::Secret;

/// What the first root token is called, and those that are made later.
pub const ROOT_NAME: &str = "root";
/// What the audit calls it when a root token is made beside others.
pub const ANOTHER: &str = "sys/operator/new-root-token";
/// And when the first one is made.
pub const FIRST: &str = "sys/operator/init";

/// Asks for the proof and makes the token.
pub(super) fn run<'a>(
    context: &'a Context,
    _: &'a Value,
    conversation: &'a mut Conversation,
) -> LocalBoxFuture<'a, Result<Value>> {
    async move {
        let proved = proved(context, conversation).await?;
        let auth = &context.shared.auth;
        let token = new_root_token(auth, &context.shared.audit, ANOTHER, proved).await?;
        tracing::warn!("a new root token was made for somebody who has the seal key");
        let token = token.expose_text().unwrap_or_default();
        let answer = given(conversation, token, async || auth.revoke(token).await.map(|_| ())).await?;
        if answer["taken"] == true {
            context.shared.reach.begin();
        }
        Ok(answer)
    }
    .boxed_local()
}

/// Makes a root token for somebody who has proved to have the seal key, or not. `path` is what the audit calls it.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when the audit does not take it; those of the store.
pub async fn new_root_token(auth: &Auth, audit: &Audit, path: &'static str, proved: bool) -> Result<Secret> {
    let token = recorded(
        audit,
        ("new-root-token", path),
        proved,
        async || auth.another_root_token(ROOT_NAME).await,
        |given| Response { auth: Some(given), ..Response::default() },
        async |given| auth.revoke(given.token.expose_text().unwrap_or_default()).await.map(|_| ()),
    );
    Ok(token.await?.token)
}
