//! What an error of the SDK is to whoever asked. What the service writes beside its code is for nobody: it names
//! accounts and keys.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use aws_sdk_kms::config::http::HttpResponse;
use aws_sdk_kms::error::{ProvideErrorMetadata, SdkError};

use super::config::NAME;
use crate::error::{Error, Kind};

/// Begins of codes that the service gives while it is overloaded or broken.
const PASSING: [&str; 9] = [
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

/// Begins of codes, and what they say.
const REFUSALS: [(&str, &str); 12] = [
    ("NotFound", "there is no such key"),
    ("Disabled", "the key is disabled"),
    ("KMSInvalidState", "the key is in a state that does not allow it"),
    ("InvalidKeyUsage", "the key is not for this use"),
    ("AlreadyExists", "the alias is taken"),
    ("AccessDenied", "the credential is refused"),
    ("UnrecognizedClient", "the credential is refused"),
    ("InvalidClientTokenId", "the credential is refused"),
    ("InvalidSignature", "the credential is refused"),
    ("SignatureDoesNotMatch", "the credential is refused"),
    ("IncompleteSignature", "the credential is refused"),
    ("ExpiredToken", "the credential is refused"),
];

/// The error of a call.
pub(super) fn failed<E>(error: SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    let unavailable = |what: &str, error| Error::unavailable(format!("{NAME}: {what}"), error);
    match error {
        SdkError::ServiceError(refusal) => {
            let status = refusal.raw().status().as_u16();
            let code = refusal.err().code().unwrap_or_default();
            tracing::debug!(status, ?code, "a call of the key service failed");
            let error = refused(status, code);
            let pause = refusal.raw().headers().get("retry-after").and_then(|text| text.trim().parse().ok());
            match pause.filter(|_| error.kind() == Kind::Unavailable) {
                Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
                None => error,
            }
        }
        SdkError::TimeoutError(_) => unavailable("the service did not answer in time", error),
        SdkError::DispatchFailure(ref failure) if failure.is_timeout() => {
            unavailable("the service did not answer in time", error)
        }
        SdkError::DispatchFailure(ref failure) if failure.is_other() => {
            unavailable("the connection ended before an answer, or there is no credential in the environment", error)
        }
        SdkError::DispatchFailure(_) => {
            unavailable("the service cannot be reached, or its TLS certificate is not trusted", error)
        }
        SdkError::ResponseError(_) if was_cut_off(&error) => {
            unavailable("the connection ended before an answer", error)
        }
        _ => {
            let cause = error.source().map(ToString::to_string);
            tracing::debug!(?cause, "an answer of the key service was not read");
            Error::new(Kind::BadGateway, format!("{NAME}: the answer of the service is not understood"))
        }
    }
}

/// Whether the connection failed while an answer was read.
fn was_cut_off(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source()).any(|error| error.is::<io::Error>())
}

/// The error of a refusal by its status and code.
fn refused(status: u16, code: &str) -> Error {
    if status < 400 {
        return Error::new(Kind::BadGateway, format!("{NAME}: the answer of the service is not understood"));
    }
    if status >= 500 || status == 429 || PASSING.iter().any(|begin| code.starts_with(begin)) {
        return Error::new(Kind::Unavailable, format!("{NAME}: the service is overloaded, or fails"));
    }
    let known = REFUSALS.iter().find(|(begin, _)| code.starts_with(begin));
    let what = known.map_or("the service refuses the request", |(_, what)| what);
    // A code is one word; whatever else stands in its place is not passed on.
    if code.is_empty() || code.len() > 64 || !code.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Error::new(Kind::BadGateway, format!("{NAME}: {what}"));
    }
    Error::new(Kind::BadGateway, format!("{NAME}: {what} ({code})"))
}

#[cfg(test)]
mod tests {
    use aws_sdk_kms::operation::describe_key::DescribeKeyError;
    use aws_smithy_types::body::SdkBody;

    use super::*;

    #[test]
    fn codes_are_told_apart_by_who_has_to_do_something() {
        for (status, code, kind, text) in [
            (400, "DisabledException", Kind::BadGateway, "cloudakms: the key is disabled (DisabledException)"),
            (
                400,
                "AccessDeniedException",
                Kind::BadGateway,
                "cloudakms: the credential is refused (AccessDeniedException)",
            ),
            (400, "ThrottlingException", Kind::Unavailable, "cloudakms: the service is overloaded, or fails"),
            (500, "KMSInternalException", Kind::Unavailable, "cloudakms: the service is overloaded, or fails"),
            (503, "", Kind::Unavailable, "cloudakms: the service is overloaded, or fails"),
            (200, "", Kind::BadGateway, "cloudakms: the answer of the service is not understood"),
            (400, "Unheard", Kind::BadGateway, "cloudakms: the service refuses the request (Unheard)"),
            (400, "a text\nof two lines", Kind::BadGateway, "cloudakms: the service refuses the request"),
        ] {
            let error = refused(status, code);
            assert_eq!((error.kind(), error.text()), (kind, text));
        }
    }

    #[test]
    fn an_answer_that_was_cut_off_is_not_one_that_is_not_understood() {
        let answer = || HttpResponse::new(200.try_into().unwrap(), SdkBody::empty());
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let wrapped = io::Error::other(reset);
        for (error, kind, text) in [
            (
                SdkError::response_error(wrapped, answer()),
                Kind::Unavailable,
                "cloudakms: the connection ended before an answer",
            ),
            (
                SdkError::response_error("no JSON", answer()),
                Kind::BadGateway,
                "cloudakms: the answer of the service is not understood",
            ),
        ] {
            let error = failed::<DescribeKeyError>(error);
            assert_eq!((error.kind(), error.text()), (kind, text));
        }
    }
}
