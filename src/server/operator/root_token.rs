//! Creates another root token for an operator who has the seal key. Existing root tokens stay valid.
//!
//! The command is `{"command": "new-root-token"}`; [`token_issue`](super::token_issue) describes the messages. `signet
//! operator init` also uses [`new_root_token`], with the path [`FIRST_ROOT_TOKEN_PATH`].

use serde_json::Value;

use super::context::OperatorContext;
use super::token_issue::{create_audited, hand_out_token, verify_proof};
use super::wire::OperatorConnection;
use crate::audit::{Audit, AuditResponse};
use crate::auth::Auth;
use crate::error::Result;
use crate::secret::Secret;

/// Display name of root tokens.
pub const ROOT_TOKEN_NAME: &str = "root";
/// Request path in the audit log for the creation of an additional root token.
pub const NEW_ROOT_TOKEN_PATH: &str = "sys/operator/new-root-token";
/// Request path in the audit log for the creation of the first root token.
pub const FIRST_ROOT_TOKEN_PATH: &str = "sys/operator/init";

pub(super) async fn run(context: &OperatorContext, conversation: &mut OperatorConnection) -> Result<Value> {
    let proved = verify_proof(context, conversation).await?;
    let auth = &context.shared.auth;
    let token = new_root_token(auth, &context.shared.audit, NEW_ROOT_TOKEN_PATH, proved).await?;
    tracing::warn!("root token created for a holder of the seal key");
    let token = token.expose_text().unwrap_or_default();
    let answer = hand_out_token(conversation, token, async || auth.revoke(token).await.map(|_| ())).await?;
    if answer["taken"] == true {
        context.shared.store_probe.note_initialized();
    }
    Ok(answer)
}

/// Creates a root token, if the caller has `proved` possession of the seal key. `path` is the request path in the audit
/// log.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when no audit device records the creation; the errors of the store.
pub async fn new_root_token(auth: &Auth, audit: &Audit, path: &'static str, proved: bool) -> Result<Secret> {
    let token = create_audited(
        audit,
        ("new-root-token", path),
        proved,
        async || auth.additional_root_token(ROOT_TOKEN_NAME).await,
        |token| AuditResponse { auth: Some(token), ..AuditResponse::default() },
        async |created| auth.revoke(created.token.expose_text().unwrap_or_default()).await.map(|_| ()),
    );
    Ok(token.await?.token)
}
