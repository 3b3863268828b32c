//! Response wrapping: a response is stored, and the caller gets a wrapping token instead
//! ([`auth::wrapping`](crate::auth::wrapping)).
//!
//! The stored response is the complete body, raw bodies included. Errors, responses without a body and health checks
//! are not wrapped. If the response cannot be stored, the caller gets an error and no part of the response. A change
//! that the request made then remains in effect, and its secrets are lost.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use super::handler_response::{HandlerResponse, ResponseBody};
use super::render::{self, RenderContext};
use crate::auth::Caller;
use crate::auth::wrapping::{MAX_WRAPPED_RESPONSE_BYTES, WrapParameters, WrappedResponse};
use crate::error::{Error, Result};
use crate::http::request_id::RequestId;
use crate::http::sender::Sender;
use crate::http::state::WorkerState;
use crate::secret::Secret;

/// Maximum size of a response that is wrapped for an unauthenticated caller, in bytes.
const MAX_UNAUTHENTICATED_WRAP_BYTES: usize = 64 << 10;
/// Maximum lifetime of a response that is wrapped for an unauthenticated caller. It does not apply to logins.
const MAX_UNAUTHENTICATED_WRAP_TTL: Duration = Duration::from_secs(300);

pub(super) struct ResponseWrapRequest {
    ttl: Duration,
    path: String,
    display_name: String,
    /// `true` if the caller is not authenticated.
    is_unauthenticated: bool,
    sender: Sender,
}

impl ResponseWrapRequest {
    /// Checks the sender's limit on wrapped responses before the request is handled.
    ///
    /// # Errors
    /// `Quota` when the sender has stored too many bytes of wrapped responses.
    pub(super) fn of(
        state: &WorkerState,
        ttl: Duration,
        path: &str,
        caller: Option<&Caller>,
        address: Option<IpAddr>,
    ) -> Result<Self> {
        let sender = Sender::of_token(caller, address);
        state.wrap_quota.check(&sender)?;
        let display_name = caller.map(|caller| caller.display_name.clone()).unwrap_or_default();
        Ok(Self { ttl, path: path.to_owned(), display_name, is_unauthenticated: caller.is_none(), sender })
    }
}

pub(super) fn is_wrappable(answer: &HandlerResponse) -> bool {
    render::status_of(answer, None) == 200 && !matches!(answer.body, ResponseBody::Wrapped(_))
}

/// Stores a response, and returns the response with a wrapping token that replaces it.
///
/// # Errors
/// `Invalid` when the response is too long, or its lifetime too long for an unauthenticated caller; errors of the
/// store.
pub(super) async fn wrap_response(
    state: &WorkerState,
    answer: HandlerResponse,
    wanted: ResponseWrapRequest,
    id: &RequestId,
    context: RenderContext<'_>,
) -> Result<HandlerResponse> {
    let ResponseWrapRequest { ttl, path, display_name, is_unauthenticated, sender } = wanted;
    if is_unauthenticated && ttl > MAX_UNAUTHENTICATED_WRAP_TTL && !matches!(answer.body, ResponseBody::Auth(_)) {
        let rule = format!(
            "wrap-ttl: must be at most {}s for requests without a token",
            MAX_UNAUTHENTICATED_WRAP_TTL.as_secs()
        );
        return Err(Error::invalid(rule));
    }
    let max_bytes = if is_unauthenticated { MAX_UNAUTHENTICATED_WRAP_BYTES } else { MAX_WRAPPED_RESPONSE_BYTES };
    let wrapped_accessor = find_accessor(&answer.body, context.mount_type);
    let (media_type, body) = render::render_into_memory(answer, id, context, max_bytes).await?;
    let kept = WrappedResponse { media_type, body: Secret::new(body.into_bytes()) };
    state.wrap_quota.charge(sender, kept.body.expose().len());
    let wrapping = state.auth.wrap(&kept, WrapParameters { ttl, path, display_name, wrapped_accessor }).await?;
    Ok(ResponseBody::Wrapped(Box::new(wrapping)).into())
}

/// Returns the accessor of the token or secret id that a response contains.
fn find_accessor(body: &ResponseBody, mount_type: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct SecretIdResponse {
        secret_id_accessor: String,
    }
    let accessor = match body {
        ResponseBody::Auth(given) => Some(given.accessor.clone()),
        ResponseBody::Rendered(json) if mount_type == "approle" => {
            serde_json::from_slice(json.expose()).ok().map(|id: SecretIdResponse| id.secret_id_accessor)
        }
        _ => None,
    };
    accessor.filter(|text| !text.is_empty())
}
