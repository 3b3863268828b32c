//! Errors of AWS KMS by error code. Messages of the service are not passed on, because they name accounts and keys.

use serde_json::Value;

use super::config::TYPE_NAME;
use crate::error::{Error, Kind};
use crate::outbound::OutboundResponse;

const TRANSIENT_CODES: [&str; 9] = [
    "Throttl",
    "TooManyRequests",
    "RequestLimitExceeded",
    "LimitExceeded",
    "KMSInternal",
    "DependencyTimeout",
    "InternalFailure",
    "InternalError",
    "ServiceUnavailable",
];

/// Prefixes of error codes for rejected requests, each with its text in the error message.
const REJECTION_MEANINGS: [(&str, &str); 12] = [
    ("NotFound", "there is no such key"),
    ("Disabled", "the key is disabled"),
    ("KMSInvalidState", "the state of the key does not allow the operation"),
    ("InvalidKeyUsage", "the usage of the key does not allow the operation"),
    ("AlreadyExists", "the alias already exists"),
    ("AccessDenied", "the credential lacks a permission"),
    ("UnrecognizedClient", "the service rejected the credential"),
    ("InvalidClientTokenId", "the service rejected the credential"),
    ("InvalidSignature", "the service rejected the credential"),
    ("SignatureDoesNotMatch", "the service rejected the credential"),
    ("IncompleteSignature", "the service rejected the credential"),
    ("ExpiredToken", "the service rejected the credential"),
];
/// Maximum length of an error code, in bytes.
const MAX_CODE_LENGTH: usize = 64;

#[derive(Debug)]
pub(super) struct AkmsFailure {
    /// The error code in the response of AWS KMS; empty if there is none.
    code: String,
    pub(super) error: Error,
}

impl AkmsFailure {
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.code == code
    }
}

impl From<Error> for AkmsFailure {
    fn from(error: Error) -> Self {
        Self { code: String::new(), error }
    }
}

impl From<AkmsFailure> for Error {
    fn from(failure: AkmsFailure) -> Self {
        failure.error
    }
}

pub(super) fn parse_failure(reply: &OutboundResponse) -> AkmsFailure {
    let body: Value = reply.read("").unwrap_or_default();
    // A namespace may precede the code, and a URL may follow it.
    let code = body["__type"].as_str().unwrap_or_default();
    let code = code.rsplit('#').next().and_then(|code| code.split(':').next()).unwrap_or_default();
    tracing::debug!(status = reply.status(), ?code, "a call of the key service failed");
    AkmsFailure { code: code.to_owned(), error: to_error(reply.status(), code) }
}

pub(super) fn unexpected_response() -> Error {
    Error::new(Kind::BadGateway, format!("{TYPE_NAME}: the response of the service has an unexpected form"))
}

fn to_error(status: u16, code: &str) -> Error {
    if status < 400 {
        return unexpected_response();
    }
    if status >= 500 || status == 429 || TRANSIENT_CODES.iter().any(|begin| code.starts_with(begin)) {
        return Error::new(Kind::Unavailable, format!("{TYPE_NAME}: the service is overloaded or failing"));
    }
    let known = REJECTION_MEANINGS.iter().find(|(begin, _)| code.starts_with(begin));
    let what = known.map_or("the service rejected the request", |(_, what)| what);
    // A code is a single word. Any other text is not passed on.
    if code.is_empty() || code.len() > MAX_CODE_LENGTH || !code.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Error::new(Kind::BadGateway, format!("{TYPE_NAME}: {what}"));
    }
    Error::new(Kind::BadGateway, format!("{TYPE_NAME}: {what} ({code})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_code_decides_the_error_kind_and_text() {
        let denied = "cloudakms: the credential lacks a permission (AccessDeniedException)";
        for (status, code, kind, text) in [
            (400, "DisabledException", Kind::BadGateway, "cloudakms: the key is disabled (DisabledException)"),
            (400, "AccessDeniedException", Kind::BadGateway, denied),
            (400, "com.amazonaws.kms#AccessDeniedException:http://x", Kind::BadGateway, denied),
            (400, "ThrottlingException", Kind::Unavailable, "cloudakms: the service is overloaded or failing"),
            (500, "KMSInternalException", Kind::Unavailable, "cloudakms: the service is overloaded or failing"),
            (503, "", Kind::Unavailable, "cloudakms: the service is overloaded or failing"),
            (200, "", Kind::BadGateway, "cloudakms: the response of the service has an unexpected form"),
            (400, "Unheard", Kind::BadGateway, "cloudakms: the service rejected the request (Unheard)"),
            (400, "a text\nof two lines", Kind::BadGateway, "cloudakms: the service rejected the request"),
        ] {
            let reply = OutboundResponse::new(status, serde_json::json!({ "__type": code }).to_string());
            let error = parse_failure(&reply).error;
            assert_eq!((error.kind(), error.text()), (kind, text));
        }
    }
}
