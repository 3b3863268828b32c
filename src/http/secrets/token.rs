//! Tokens: new ones, look-ups, renewals, revocations (`auth/token/`).

use std::time::Duration;

use serde_json::Value;

use super::answer::Answer;
use super::route::Operation::{Read, Update};
use super::route::{Call, Route};
use crate::error::{Error, Result, Warnings};

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

/// The older name of a field beside its own.
const OLDER: &[(&str, &str)] = &[("lease", "ttl")];

const INCREMENT: &[&str] = &["increment", "token", "accessor"];

/// The routes of the token mount.
pub static ROUTES: &[Route] = &[
    Route::token(Update, "create", CREATE, |call| Box::pin(create(call))).with_synonyms(OLDER),
    Route::token(Update, "create-orphan", CREATE, |call| Box::pin(create_orphan(call))).with_synonyms(OLDER),
    Route::token(Read, "lookup-self", &[], |call| Box::pin(lookup_self(call))),
    Route::token(Update, "lookup-self", &["token"], |call| Box::pin(lookup_self(call))),
    Route::token(Read, "lookup", &["token"], |call| Box::pin(lookup(call))),
    Route::token(Update, "lookup", &["token"], |call| Box::pin(lookup(call))),
    Route::token(Update, "lookup-accessor", &["accessor"], |call| Box::pin(lookup_accessor(call))),
    Route::token(Update, "renew-self", INCREMENT, |call| Box::pin(renew_self(call))),
    Route::token(Update, "renew", INCREMENT, |call| Box::pin(renew(call))),
    Route::token(Update, "renew-accessor", INCREMENT, |call| Box::pin(renew_accessor(call))),
    Route::token(Update, "revoke-self", &["token"], |call| Box::pin(revoke_self(call))),
    Route::token(Update, "revoke", &["token"], |call| Box::pin(revoke(call))),
    Route::token(Update, "revoke-accessor", &["accessor"], |call| Box::pin(revoke_accessor(call))),
];

async fn create(call: Call) -> Result<Answer> {
    let (auth, warnings) = call.state.auth.create_token(call.caller()?, call.sudo, &call.fields).await?;
    Ok(Answer::auth(auth).with_warnings(warnings))
}

/// An orphan, whatever `no_parent` says. Nothing else is lifted for callers whose policies grant this path.
async fn create_orphan(call: Call) -> Result<Answer> {
    let (auth, warnings) = call.state.auth.create_orphan_token(call.caller()?, call.sudo, &call.fields).await?;
    Ok(Answer::auth(auth).with_warnings(warnings))
}

async fn lookup_self(call: Call) -> Result<Answer> {
    Ok(Answer::data(call.state.auth.lookup_self(call.caller()?, call.token()?).await?))
}

/// Any token by its text; without one, the caller's own.
async fn lookup(call: Call) -> Result<Answer> {
    match given(&call, "token")? {
        Some(token) => Ok(Answer::data(call.state.auth.lookup(&token).await?)),
        None => lookup_self(call).await,
    }
}

async fn lookup_accessor(call: Call) -> Result<Answer> {
    Ok(Answer::data(call.state.auth.lookup_accessor(&accessor(&call)?).await?))
}

async fn renew_self(call: Call) -> Result<Answer> {
    Ok(renewed(call.state.auth.renew_self(call.caller()?, call.token()?, increment(&call)?).await?))
}

async fn renew(call: Call) -> Result<Answer> {
    let token = given(&call, "token")?.ok_or_else(missing_token)?;
    Ok(renewed(call.state.auth.renew(&token, increment(&call)?).await?))
}

async fn renew_accessor(call: Call) -> Result<Answer> {
    Ok(renewed(call.state.auth.renew_accessor(&accessor(&call)?, increment(&call)?).await?))
}

fn renewed((auth, warnings): (Value, Warnings)) -> Answer {
    Answer::auth(auth).with_warnings(warnings)
}

/// A hint; 0 and the empty text, which clients always send, mean none.
fn increment(call: &Call) -> Result<Option<Duration>> {
    Ok(call.fields.duration("increment")?.filter(|d| !d.is_zero()))
}

async fn revoke_self(call: Call) -> Result<Answer> {
    call.state.auth.revoke(call.token()?).await?;
    call.state.mounts.tokens_ended();
    Ok(Answer::empty())
}

/// Any token by its text; one that is not known is answered like one that was.
async fn revoke(call: Call) -> Result<Answer> {
    let token = given(&call, "token")?.ok_or_else(missing_token)?;
    call.state.auth.revoke(&token).await?;
    call.state.mounts.tokens_ended();
    Ok(Answer::empty())
}

async fn revoke_accessor(call: Call) -> Result<Answer> {
    let known = call.state.auth.revoke_accessor(&accessor(&call)?).await?;
    call.state.mounts.tokens_ended();
    let warning = (!known).then(|| "No token found with this accessor".to_owned());
    Ok(Answer::empty().with_warnings(warning))
}

fn given(call: &Call, name: &str) -> Result<Option<String>> {
    Ok(call.fields.text(name)?.filter(|text| !text.is_empty()))
}

fn missing_token() -> Error {
    Error::invalid("missing token ID")
}

fn accessor(call: &Call) -> Result<String> {
    given(call, "accessor")?.ok_or_else(|| Error::invalid("missing accessor"))
}
