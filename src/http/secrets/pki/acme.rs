//! ACME (RFC 8555) is not supported: `config/acme` reports that it is off, and ACME requests get a 404 for ACME
//! clients.

use serde_json::json;

use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;

/// Maximum size of an ACME request body, in bytes. It is not parsed.
pub(super) const MAX_BODY: usize = 64 << 10;
/// RFC 9457.
const PROBLEM: &str = "application/problem+json";
const DISABLED: &str = "ACME is not enabled in this mount";
/// 90 days, in seconds.
const MAX_TTL: u64 = 90 * 24 * 3600;

/// `GET config/acme`: disabled, with the default settings.
pub(super) async fn config(_: Call) -> Result<Answer> {
    Ok(Answer::data(json!({
        "enabled": false,
        "allowed_issuers": ["*"],
        "allowed_roles": ["*"],
        "allow_role_ext_key_usage": false,
        "default_directory_policy": "sign-verbatim",
        "dns_resolver": "",
        "eab_policy": "not-required",
        "max_ttl": MAX_TTL,
    })))
}

/// Rejects a request to an ACME directory with a 404 in the form of RFC 8555 6.7, with the text also in `errors` for
/// other clients.
pub(super) async fn disabled(_: Call) -> Result<Answer> {
    let problem = json!({
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": DISABLED,
        "errors": [DISABLED],
    });
    Ok(Answer::raw(PROBLEM, problem.to_string()).with_status(404))
}
