//! Creates a token for a client that proves possession of the seal key, and sends it to the client.
//!
//! The server sends a challenge ([`SealChallenge`](crate::storage::seal::SealChallenge)), and the client responds with
//! `{"proof": …}`, the sealed value in base64. A client that can do this could also open the store without the server.
//! The server then sends the token, and revokes it unless the client confirms it with `{"taken": true}`. The audit
//! devices record the creation or rejection like a request; if they cannot, the client gets no token.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::context::OperatorContext;
use super::wire::OperatorConnection;
use crate::audit::{
    Audit, AuditCaller, AuditDeviceSettings, AuditOutcome, AuditRecorder, AuditRefusal, AuditRequest, AuditResponse,
};
use crate::auth::store::AuthStore;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::http::secrets::render::status;
use crate::secret::Secret;

/// Time limit for the whole command. It is long, because the client's seal key may be in a slow device.
pub(super) const TOKEN_ISSUE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for each audit record, and for the client's confirmation of the token.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a challenge to the client and checks its response. Returns `true` if the client has the seal key.
pub(super) async fn verify_proof(context: &OperatorContext, conversation: &mut OperatorConnection) -> Result<bool> {
    let (question, answer) = context.storage.seal_challenge().await?;
    conversation.send(&json!({ "result": { "question": question } })).await?;
    let line = conversation.receive().await?;
    let proof = line["proof"].as_str().and_then(|proof| BASE64_STANDARD.decode(proof).ok()).map(Secret::new);
    Ok(proof.is_some_and(|proof| proof == answer))
}

/// Sends the token to the client, and runs `revoke` unless the client confirms the token in time.
pub(super) async fn hand_out_token(
    conversation: &mut OperatorConnection,
    token: &str,
    revoke: impl AsyncFnOnce() -> Result<()>,
) -> Result<Value> {
    let taken = async {
        conversation.send(&json!({ "result": { "token": token } })).await?;
        conversation.receive().await
    };
    let taken = matches!(tokio::time::timeout(STEP_TIMEOUT, taken).await, Ok(Ok(line)) if line["taken"] == true);
    if !taken {
        revoke().await?;
        tracing::warn!("the new token was revoked, because its receipt was not confirmed");
    }
    Ok(json!({ "taken": taken }))
}

/// Creates a token, if the caller has `proved` possession of the seal key. The audit devices record this like a request
/// for `path`. `command` is the name of the command, for logs and errors.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when no audit device records the creation, after which the token is
/// revoked; the errors of `create_token`.
pub(super) async fn create_audited<T>(
    audit: &Audit,
    (command, path): (&str, &str),
    proved: bool,
    create_token: impl AsyncFnOnce() -> Result<T>,
    audit_response: impl for<'t> FnOnce(&'t T) -> AuditResponse<'t>,
    revoke: impl AsyncFnOnce(&T) -> Result<()>,
) -> Result<T> {
    let id = crate::random::uuid();
    let mut record = audit.recorder();
    if !proved {
        let text = format!("{command}: the seal key does not belong to this store");
        tracing::warn!(command, "token request rejected: no proof of the seal key");
        return record_refusal(&mut record, &audit_request(&id, path), Error::new(Kind::Forbidden, text)).await;
    }
    record.record_intent(|| Some(audit_request(&id, path)), Instant::now() + STEP_TIMEOUT).await?;
    let made = match create_token().await {
        Ok(made) => made,
        Err(error) => return record_refusal(&mut record, &audit_request(&id, path), error).await,
    };
    let outcome = AuditOutcome { status: 200, answer: Ok(audit_response(&made)) };
    if let Err(error) = record.record_outcome(&audit_request(&id, path), &outcome, Instant::now() + STEP_TIMEOUT).await
    {
        // The creation is not recorded, so the client must not get the token.
        revoke(&made).await?;
        return Err(error);
    }
    Ok(made)
}

async fn record_refusal<T>(record: &mut AuditRecorder<'_>, request: &AuditRequest<'_>, error: Error) -> Result<T> {
    let answer = Err(AuditRefusal { kind: error.kind(), texts: vec![error.text()] });
    let outcome = AuditOutcome { status: status(error.kind()), answer };
    record.record_outcome(request, &outcome, Instant::now() + STEP_TIMEOUT).await?;
    Err(error)
}

/// Opens the configured audit devices, for commands that open the store without a server.
///
/// # Errors
/// `Invalid` when a device cannot be opened; the errors of the store.
pub async fn open_audit(store: &dyn AuthStore, declared: Vec<AuditDeviceSettings>, clock: Clock) -> Result<Audit> {
    let writers = crate::server::audit::open_writers(store, declared, &clock).await?;
    Ok(Audit::new(writers, Vec::new(), clock))
}

fn audit_request<'a>(id: &'a str, path: &'a str) -> AuditRequest<'a> {
    let caller = Some(AuditCaller::named("operator"));
    AuditRequest { id, operation: "update", path, caller, ..AuditRequest::default() }
}
