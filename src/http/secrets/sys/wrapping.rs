//! Wrapped answers (`sys/wrapping/`): wrapping something, what is told of it, fetching it, another token for it.

use serde_json::Value;

use super::super::answer::{Answer, Body};
use super::super::request::Token;
use super::super::route::Call;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// `POST sys/wrapping/wrap`: what was sent is what will be fetched.
pub(super) async fn wrap(call: Call) -> Result<Answer> {
    if call.wrap_ttl.is_none() {
        return Err(Error::invalid("endpoint requires response wrapping to be used"));
    }
    Ok(Answer::data(Value::Object(call.fields.into_members())))
}

/// `POST sys/wrapping/lookup`: for whoever has the token.
pub(super) async fn lookup(call: Call) -> Result<Answer> {
    let token = wrapping_token(&call)?;
    Ok(Answer::data(call.state.auth.wrapping_lookup(text(&token)).await?))
}

/// `POST sys/wrapping/unwrap`: the answer as it would have been sent, once, for whoever has the token.
pub(super) async fn unwrap(call: Call) -> Result<Answer> {
    if call.wrap_ttl.is_some() {
        // It could turn out not to fit when the first token is gone.
        return Err(Error::invalid("wrap-ttl: what is unwrapped is not wrapped again; sys/wrapping/rewrap does that"));
    }
    let token = wrapping_token(&call)?;
    Ok(Body::Unwrapped(call.state.auth.unwrap_answer(text(&token)).await?).into())
}

/// `POST sys/wrapping/rewrap`: the same answer, for as long as at first, behind another token.
pub(super) async fn rewrap(call: Call) -> Result<Answer> {
    let token = given(&call)?.ok_or_else(missing)?;
    Ok(Body::Wrapped(Box::new(call.state.auth.rewrap(text(&token)).await?)).into())
}

/// The token in the body, else the one that the request was sent with.
fn wrapping_token(call: &Call) -> Result<Secret> {
    let own = || call.token.as_ref().map(|token: &Token| Secret::new(token.expose()));
    given(call)?.or_else(own).ok_or_else(missing)
}

fn given(call: &Call) -> Result<Option<Secret>> {
    Ok(call.fields.text("token")?.filter(|text| !text.is_empty()).map(Secret::new))
}

fn missing() -> Error {
    Error::invalid("token: must be given")
}

fn text(token: &Secret) -> &str {
    token.expose_text().unwrap_or_default()
}
