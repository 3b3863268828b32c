//! ACME (RFC 8555), which this server does not speak: `config/acme` says that it is off, and what an ACME
//! client asks, which has no token, is told so.

use serde_json::json;

use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;

/// Most octets of a body that are read, and left alone.
pub(super) const MAX_BODY: usize = 64 << 10;
/// RFC 9457.
const PROBLEM: &str = "application/problem+json";
const DISABLED: &str = "ACME is not enabled in this mount";
/// 90 days, in seconds.
const MAX_TTL: u64 = 90 * 24 * 3600;

/// `GET config/acme`: off, with the settings that it has where nobody has written any.
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

/// Any path of an ACME directory: 404 in the form that ACME clients read (RFC 8555 6.7), with the text where
/// other clients of this wire look for it, too.
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
