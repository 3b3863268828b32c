//! Hands out a token to a caller that proves possession of the seal key.
//!
//! The server sends a challenge ([`Question`](crate::storage::seal::Question)), and the caller responds with `{"proof":
//! …}`, the sealed value in base64. A caller that can do this could also open the store without the server. The server
//! then sends the token, and revokes it unless the caller confirms with `{"taken": true}`. The audit devices record
//! this like a request, rejections included; if they cannot, no token is handed out.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::context::Context;
use super::wire::Conversation;
use crate::audit::{Audit, Caller, Data, DeviceSettings, Outcome, Record, Refused, Request, Response};
use crate::auth::store::AuthStore;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::http::secrets::render::status;
use crate::secret::Secret;

/// Time limit for the whole exchange; the key may be in a slow device.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// Time limit for the audit, and for the caller's confirmation.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a challenge; `true` if the caller has the seal key.
pub(super) async fn proved(context: &Context, conversation: &mut Conversation) -> Result<bool> {
    let (question, answer) = context.storage.seal_question().await?;
    conversation.say(&json!({ "result": { "question": question } })).await?;
    let line = conversation.hear().await?;
    let proof = line["proof"].as_str().and_then(|proof| BASE64_STANDARD.decode(proof).ok()).map(Secret::new);
    Ok(proof.is_some_and(|proof| proof == answer))
}

/// Sends the token to the caller, and revokes it unless the caller confirms it.
pub(super) async fn given(
    conversation: &mut Conversation,
    token: &str,
    revoke: impl AsyncFnOnce() -> Result<()>,
) -> Result<Value> {
    let taken = async {
        conversation.say(&json!({ "result": { "token": token } })).await?;
        conversation.hear().await
    };
    let taken = matches!(tokio::time::timeout(PATIENCE, taken).await, Ok(Ok(line)) if line["taken"] == true);
    if !taken {
        revoke().await?;
        tracing::warn!("the new token was revoked: nobody has taken it");
    }
    Ok(json!({ "taken": taken }))
}

/// Creates a token if `proved`, and records `command` in the audit like a request on `path`.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when the audit fails, which revokes the token; the errors of `make`.
pub(super) async fn recorded<T>(
    audit: &Audit,
    (command, path): (&str, &str),
    proved: bool,
    make: impl AsyncFnOnce() -> Result<T>,
    shown: impl for<'t> FnOnce(&'t T) -> Response<'t>,
    revoke: impl AsyncFnOnce(&T) -> Result<()>,
) -> Result<T> {
    let id = crate::random::uuid();
    let mut record = audit.record();
    if !proved {
        let text = format!("{command}: the seal key is not the one of this store");
        tracing::warn!(command, "a token was asked for without the seal key");
        return refused(&mut record, &request(&id, path), Error::new(Kind::Forbidden, text)).await;
    }
    record.intent(|| Some(request(&id, path)), Instant::now() + PATIENCE).await?;
    let made = match make().await {
        Ok(made) => made,
        Err(error) => return refused(&mut record, &request(&id, path), error).await,
    };
    let outcome = Outcome { status: 200, answer: Ok(shown(&made)) };
    if let Err(error) = record.outcome(&request(&id, path), &outcome, Instant::now() + PATIENCE).await {
        // The token has not been handed out yet.
        revoke(&made).await?;
        return Err(error);
    }
    Ok(made)
}

async fn refused<T>(record: &mut Record<'_>, request: &Request<'_>, error: Error) -> Result<T> {
    let answer = Err(Refused { kind: error.kind(), texts: vec![error.text()] });
    let outcome = Outcome { status: status(error.kind()), answer };
    record.outcome(request, &outcome, Instant::now() + PATIENCE).await?;
    Err(error)
}

/// Opens the configured audit devices, for commands that open the store themselves.
///
/// # Errors
/// `Invalid` when a device cannot be opened; the errors of the store.
pub async fn audit(store: &dyn AuthStore, declared: Vec<DeviceSettings>, clock: Clock) -> Result<Audit> {
    let writers = crate::server::audit::open(store, declared, &clock).await?;
    Ok(Audit::new(writers, Vec::new(), clock))
}

fn request<'a>(id: &'a str, path: &'a str) -> Request<'a> {
    Request {
        id,
        trace_id: None,
        operation: "update",
        path,
        mount: None,
        remote_address: None,
        token: None,
        caller: Some(Caller::named("operator")),
        data: Data::None,
    }
}
