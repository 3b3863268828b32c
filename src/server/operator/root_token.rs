//! Creates another root token for a caller that has the seal key; existing root tokens stay valid.
//!
//! The command is `{"command": "new-root-token"}`; [`handover`](super::handover) describes the exchange. The first root
//! token of a store is created in the same way, with the path [`FIRST`].

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

/// Display name of root tokens.
pub const ROOT_NAME: &str = "root";
/// Audit path for the creation of an additional root token.
pub const ANOTHER: &str = "sys/operator/new-root-token";
/// Audit path for the creation of the first root token.
pub const FIRST: &str = "sys/operator/init";

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

/// Creates a root token if the caller has `proved` possession of the seal key. `path` is the audit path.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when the audit fails; the errors of the store.
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
