//! Tokens about themselves, and new ones (`auth/token/`).

use super::answer::Answer;
use super::route::{Call, Operation, Route};
use crate::error::{Error, Result};

/// What a new token may be given.
const CREATE: &[&str] = &[
    "policies",
    "meta",
    "no_parent",
    "no_default_policy",
    "renewable",
    "ttl",
    "lease",
    "type",
    "explicit_max_ttl",
    "period",
    "num_uses",
    "display_name",
    "entity_alias",
    "id",
];

/// The routes of the token mount.
pub static ROUTES: &[Route] = &[
    Route::token(Operation::Update, "create", CREATE, |call| Box::pin(create(call))),
    Route::token(Operation::Update, "create-orphan", CREATE, |call| Box::pin(create_orphan(call))),
    Route::token(Operation::Read, "lookup-self", &[], |call| Box::pin(lookup_self(call))),
    Route::token(Operation::Update, "lookup-self", &["token"], |call| Box::pin(lookup_self(call))),
    Route::token(Operation::Update, "renew-self", &["increment", "token"], |call| Box::pin(renew_self(call))),
    Route::token(Operation::Update, "revoke-self", &["token"], |call| Box::pin(revoke_self(call))),
    Route::token(Operation::Update, "revoke", &["token"], |call| Box::pin(revoke(call))),
];

async fn create(call: Call) -> Result<Answer> {
    let (auth, warnings) = call.state.auth.create_token(call.caller()?, call.sudo, &call.fields).await?;
    Ok(Answer::auth(auth).with_warnings(warnings))
}

/// An orphan for callers whose policies grant this path: that grant stands in for `sudo`.
async fn create_orphan(mut call: Call) -> Result<Answer> {
    call.fields.set("no_parent", true);
    call.sudo = true;
    create(call).await
}

async fn lookup_self(call: Call) -> Result<Answer> {
    Ok(Answer::data(call.state.auth.lookup_self(call.caller()?, call.token()?).await?))
}

/// `increment` is a hint; 0 and the empty text, which clients always send, mean none.
async fn renew_self(call: Call) -> Result<Answer> {
    let increment = call.fields.duration("increment")?.filter(|d| !d.is_zero());
    let (auth, warnings) = call.state.auth.renew_self(call.caller()?, call.token()?, increment).await?;
    Ok(Answer::auth(auth).with_warnings(warnings))
}

async fn revoke_self(call: Call) -> Result<Answer> {
    call.state.auth.revoke(call.token()?).await?;
    Ok(Answer::empty())
}

/// Any token by its text; one that is not known is answered like one that was.
async fn revoke(call: Call) -> Result<Answer> {
    let token = call.fields.text("token")?.filter(|t| !t.is_empty());
    call.state.auth.revoke(&token.ok_or_else(|| Error::invalid("missing token ID"))?).await?;
    Ok(Answer::empty())
}

