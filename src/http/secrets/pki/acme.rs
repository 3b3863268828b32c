//! ACME (RFC 8555) is not supported: `config/acme` reports it as disabled, and ACME requests get a 404 that ACME
//! clients understand.

use serde_json::json;

use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;

/// Maximum size of the body of an ACME request, in bytes. The body is not parsed.
pub(super) const MAX_BODY_BYTES: usize = 64 << 10;
/// Media type of problem details (RFC 9457).
const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
const DISABLED_ERROR: &str = "ACME is not enabled in this mount";
/// The value of `max_ttl` in `config/acme`: 90 days, in seconds.
const MAX_TTL_SECONDS: u64 = 90 * 24 * 3600;

/// `GET config/acme`: ACME is disabled, with default settings.
pub(super) async fn read_config(_: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(json!({
        "enabled": false,
        "allowed_issuers": ["*"],
        "allowed_roles": ["*"],
        "allow_role_ext_key_usage": false,
        "default_directory_policy": "sign-verbatim",
        "dns_resolver": "",
        "eab_policy": "not-required",
        "max_ttl": MAX_TTL_SECONDS,
    })))
}

/// Rejects a request to an ACME directory with a 404 in the error format of RFC 8555 6.7. For other clients, `errors`
/// repeats the text.
pub(super) async fn reject_as_disabled(_: Call) -> Result<HandlerResponse> {
    let problem = json!({
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": DISABLED_ERROR,
        "errors": [DISABLED_ERROR],
    });
    Ok(HandlerResponse::raw(PROBLEM_MEDIA_TYPE, problem.to_string()).with_status(404))
}
