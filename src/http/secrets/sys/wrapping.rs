//! Wrapped responses (`sys/wrapping/`): wrap, look up, unwrap, rewrap.

use serde_json::Value;

use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::request::RequestToken;
use super::super::route::Call;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// `POST sys/wrapping/wrap`: wraps the fields of the request body.
pub(super) async fn wrap(call: Call) -> Result<HandlerResponse> {
    if call.wrap_ttl.is_none() {
        return Err(Error::invalid("endpoint requires response wrapping to be used"));
    }
    Ok(HandlerResponse::data(Value::Object(call.fields.into_members())))
}

/// `POST sys/wrapping/lookup`: describes a wrapped response. The wrapping token is the only credential needed.
pub(super) async fn lookup(call: Call) -> Result<HandlerResponse> {
    let token = wrapping_token(&call)?;
    Ok(HandlerResponse::data(call.state.auth.wrapping_lookup(token_text(&token)).await?))
}

/// `POST sys/wrapping/unwrap`: returns the wrapped response once. The wrapping token is the only credential needed.
pub(super) async fn unwrap(call: Call) -> Result<HandlerResponse> {
    if call.wrap_ttl.is_some() {
        // Wrapping the response again could fail after the first wrapping token is used up.
        return Err(Error::invalid("wrap-ttl: cannot be used with unwrap; use sys/wrapping/rewrap"));
    }
    let token = wrapping_token(&call)?;
    Ok(ResponseBody::Unwrapped(call.state.auth.unwrap_response(token_text(&token)).await?).into())
}

/// `POST sys/wrapping/rewrap`: replaces the wrapping token by a new one with the original lifetime.
pub(super) async fn rewrap(call: Call) -> Result<HandlerResponse> {
    let token = token_field(&call)?.ok_or_else(missing_token)?;
    Ok(ResponseBody::Wrapped(Box::new(call.state.auth.rewrap(token_text(&token)).await?)).into())
}

/// Returns the wrapping token: the one in the body, or else the token of the request.
fn wrapping_token(call: &Call) -> Result<Secret> {
    let own = || call.token.as_ref().map(|token: &RequestToken| Secret::new(token.expose()));
    token_field(call)?.or_else(own).ok_or_else(missing_token)
}

fn token_field(call: &Call) -> Result<Option<Secret>> {
    Ok(call.fields.nonempty_text("token")?.map(Secret::new))
}

fn missing_token() -> Error {
    Error::invalid("token: must be given")
}

fn token_text(token: &Secret) -> &str {
    token.expose_text().unwrap_or_default()
}
