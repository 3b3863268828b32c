//! Another root token, for who has the seal key.
//!
//! The caller asks `{"command": "new-root-token"}`, is answered a question ([`Question`](crate::storage::seal::Question))
//! and says `{"proof": …}`, what it seals in base64. Whoever can answer could open the store without this server. It is
//! answered the token, and says `{"taken": true}` when somebody has it; else it is revoked again.
//!
//! The audit hears of it as of a request on [`ANOTHER`], of refusals too; what cannot be recorded is not done. It is made
//! beside the root tokens that there are: what was made by those is theirs and stays. The first one of a store is made in
//! the same way, on [`FIRST`].

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use super::context::Context;
use super::wire::Conversation;
use crate::audit::{Audit, Caller, Data, DeviceSettings, Outcome, Refused, Request, Response};
use crate::auth::Auth;
use crate::auth::store::AuthStore;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// What the first root token is called, and those that are made later.
pub const ROOT_NAME: &str = "root";
/// Longest time; the key may be in a device that is slow.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// What the audit calls it when a root token is made beside others.
pub const ANOTHER: &str = "sys/operator/new-root-token";
/// And when the first one is made.
pub const FIRST: &str = "sys/operator/init";
/// How long the audit may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for the proof and makes the token.
pub(super) fn run<'a>(
    context: &'a Context,
    _: &'a Value,
    conversation: &'a mut Conversation,
) -> LocalBoxFuture<'a, Result<Value>> {
    async move {
        let (question, answer) = context.storage.seal_question().await?;
        conversation.say(&json!({ "result": { "question": question } })).await?;
        let line = conversation.hear().await?;
        let proof = line["proof"].as_str().and_then(|proof| BASE64_STANDARD.decode(proof).ok()).map(Secret::new);
        let proved = proof.is_some_and(|proof| proof == answer);
        let token = new_root_token(&context.shared.auth, &context.shared.audit, ANOTHER, proved).await?;
        tracing::warn!("a new root token was made for somebody who has the seal key");
        let token = token.expose_text().unwrap_or_default();
        let taken = async {
            conversation.say(&json!({ "result": { "token": token } })).await?;
            conversation.hear().await
        };
        let taken = tokio::time::timeout(PATIENCE, taken).await;
        if matches!(taken, Ok(Ok(line)) if line["taken"] == true) {
            return Ok(json!({ "taken": true }));
        }
        context.shared.auth.revoke(token).await?;
        tracing::warn!("the new root token was revoked: nobody has taken it");
        Ok(json!({ "taken": false }))
    }
    .boxed_local()
}

/// Makes a root token for somebody who has proved to have the seal key, or not. `path` is what the audit calls it.
///
/// # Errors
/// `Forbidden` without the proof; `Unavailable` when the audit does not take it; those of the store.
pub async fn new_root_token(auth: &Auth, audit: &Audit, path: &'static str, proved: bool) -> Result<Secret> {
    let id = crate::random::uuid();
    let request = request(&id, path);
    let mut record = audit.record();
    if !proved {
        let error = Error::new(Kind::Forbidden, "new-root-token: the seal key is not the one of this store");
        let refused = Refused { kind: error.kind(), texts: vec![error.text()] };
        let outcome = Outcome { status: 403, answer: Err(refused) };
        record.outcome(&request, &outcome, Instant::now() + PATIENCE).await?;
        tracing::warn!("a root token was asked for without the seal key");
        return Err(error);
    }
    record.intent(|| Some(self::request(&id, path)), Instant::now() + PATIENCE).await?;
    let given = auth.another_root_token(ROOT_NAME).await?;
    let answer = Response { auth: Some(&given), ..Response::default() };
    let outcome = Outcome { status: 200, answer: Ok(answer) };
    if let Err(error) = record.outcome(&request, &outcome, Instant::now() + PATIENCE).await {
        // Nobody has it.
        auth.revoke(given.token.expose_text().unwrap_or_default()).await?;
        return Err(error);
    }
    Ok(given.token)
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
        operation: "update",
        path,
        mount: None,
        remote_address: None,
        token: None,
        caller: Some(Caller::named("operator")),
        data: Data::None,
    }
}
