//! How somebody who has the seal key is given a token.
//!
//! What the caller asked for is answered by a question ([`Question`](crate::storage::seal::Question)), and the caller says
//! `{"proof": …}`, what it seals in base64. Whoever can answer could open the store without this server. It is answered the
//! token, and says `{"taken": true}` when somebody has it; else it is revoked again.
//!
//! The audit hears of it as of a request, of refusals too; what cannot be recorded is not done.

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

/// Longest time of such a talk; the key may be in a device that is slow.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// How long the audit may take, and the caller to say that somebody has the token.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the caller has the seal key.
pub(super) async fn proved(context: &Context, conversation: &mut Conversation) -> Result<bool> {
    let (question, answer) = context.storage.seal_question().await?;
    conversation.say(&json!({ "result": { "question": question } })).await?;
    let line = conversation.hear().await?;
    let proof = line["proof"].as_str().and_then(|proof| BASE64_STANDARD.decode(proof).ok()).map(Secret::new);
    Ok(proof.is_some_and(|proof| proof == answer))
}

/// Gives the caller the token, which is revoked unless somebody takes it.
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

/// Makes a token for somebody who has proved to have the seal key, or not, and has the audit hear of `command` as of a
/// request on `path`.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when the audit does not take it, and the token is revoked then; those of
/// its making.
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
        // Nobody has it.
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

/// The devices of a configuration, for a command that has the store open itself.
///
/// # Errors
/// `Invalid` when one of them does not open; those of the store.
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
