//! An HTTP request and its response, with retries.
//!
//! The time of an attempt and the size of a response are limited. Connection failures and temporary errors are retried
//! as often as the caller's [`RetryPolicy`] permits. The body of an error response is not passed on, because it may
//! repeat secrets of the request; only its short error code is logged, at debug level.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::error::{Error, Kind, Result};
use crate::rationing::QueueCaller;
use crate::secret::Secret;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum length of an error code, in bytes.
const MAX_ERROR_CODE_BYTES: usize = 40;

const FORM_MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// The retry policy of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// Maximum number of attempts after the first one.
    pub(crate) max_retries: u32,
    /// Delay before the second attempt; doubled for each further one.
    pub(crate) first_delay: Duration,
    pub(crate) max_delay: Duration,
    /// Longest `Retry-After` after which the request is retried. After a response with a longer one the request fails
    /// immediately, and its error carries the value.
    pub(crate) max_retry_after: Duration,
}

impl RetryPolicy {
    /// A single attempt, for requests that must not be repeated or must not take longer.
    pub(crate) const SINGLE_ATTEMPT: Self = Self {
        max_retries: 0,
        first_delay: Duration::ZERO,
        max_delay: Duration::ZERO,
        max_retry_after: Duration::ZERO,
    };
    pub(crate) const FOUR_ATTEMPTS: Self = Self {
        max_retries: 3,
        first_delay: Duration::from_millis(200),
        max_delay: Duration::from_secs(5),
        max_retry_after: Duration::from_secs(1),
    };
}

/// A request that can be sent repeatedly.
pub(crate) struct OutboundRequest(RequestBuilder);

impl OutboundRequest {
    pub(super) fn new(request: RequestBuilder) -> Self {
        Self(request)
    }

    /// Adds a header, which must not be secret.
    pub(crate) fn header(self, name: &'static str, value: &str) -> Self {
        Self(self.0.header(name, value))
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        Self(self.0.json(body))
    }

    pub(crate) fn form(self, form: impl Into<Bytes>) -> Self {
        self.body(FORM_MEDIA_TYPE, form)
    }

    pub(crate) fn body(self, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self(self.0.header(CONTENT_TYPE, media_type).body(body.into()))
    }

    /// Returns a copy of the request with an access token in the `Authorization` header (RFC 6750, 2.1).
    pub(super) fn with_bearer_token(&self, token: &Secret) -> Result<Self> {
        let text = Zeroizing::new([b"Bearer ", token.expose()].concat());
        let mut value = HeaderValue::from_bytes(&text).map_err(Error::internal)?;
        value.set_sensitive(true);
        Ok(Self(self.try_clone()?.header(AUTHORIZATION, value)))
    }

    fn try_clone(&self) -> Result<RequestBuilder> {
        self.0.try_clone().ok_or_else(|| Error::internal("outbound request: its body cannot be sent twice"))
    }

    /// Sends the request and returns the response, which may have any status; errors begin with `service`.
    ///
    /// # Errors
    /// `Unavailable` when the last attempt got no response or a temporary error.
    pub(crate) async fn send(&self, retries: RetryPolicy, service: &str) -> Result<OutboundResponse> {
        let temporary_error = |reply: &OutboundResponse| {
            let text = format!("{service}: answered with status {}", reply.status());
            is_temporary(reply.status()).then(|| Error::new(Kind::Unavailable, text))
        };
        self.send_retrying(retries, service, temporary_error).await
    }

    /// As [`OutboundRequest::send`], but a response is retried if `temporary_error` returns an error for it.
    ///
    /// # Errors
    /// `Unavailable` when the last attempt got no response; that of `temporary_error`.
    pub(crate) async fn send_retrying(
        &self,
        retries: RetryPolicy,
        service: &str,
        temporary_error: impl Fn(&OutboundResponse) -> Option<Error>,
    ) -> Result<OutboundResponse> {
        let mut wait = retries.first_delay;
        for left in (0..=retries.max_retries).rev() {
            let (failure, requested_pause) = match with_trace_context(self.try_clone()?).send().await {
                Ok(response) => {
                    let requested_pause = retry_after(response.headers());
                    match read_response(response, service).await {
                        Ok(reply) => match temporary_error(&reply) {
                            Some(failure) => (failure, requested_pause),
                            None => return Ok(reply),
                        },
                        Err(error) => (error, requested_pause),
                    }
                }
                Err(error) => (connection_error(error, service), None),
            };
            let failure = requested_pause.into_iter().fold(failure, Error::with_retry_after);
            if left == 0 || requested_pause.is_some_and(|pause| pause > retries.max_retry_after) {
                return Err(failure);
            }
            tracing::debug!(error = %failure, left, "retrying an outbound request");
            tokio::time::sleep(add_jitter(wait).max(requested_pause.unwrap_or_default()).min(retries.max_delay)).await;
            wait = wait.saturating_mul(2).min(retries.max_delay);
        }
        Err(Error::internal("outbound request: no attempt was made"))
    }
}

/// Adds the trace context of the API request that is being processed, if it has one.
pub(crate) fn with_trace_context(request: RequestBuilder) -> RequestBuilder {
    match render_traceparent() {
        Some(value) => request.header("traceparent", value),
        None => request,
    }
}

/// Renders a `traceparent` header with a new span id, if the current request has a trace.
fn render_traceparent() -> Option<String> {
    let trace = QueueCaller::current().trace()?;
    let mut span: [u8; 8] = crate::random::bytes();
    // A span id must not be zero.
    span[0] |= 1;
    Some(trace.child_traceparent(span))
}

/// A response with any status.
pub(crate) struct OutboundResponse {
    status: u16,
    /// The body; `None` if it was longer than [`MAX_RESPONSE_BYTES`].
    body: Option<Zeroizing<Vec<u8>>>,
}

impl OutboundResponse {
    #[cfg(test)]
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: Some(Zeroizing::new(body.into())) }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Returns the error code for the log at debug level; empty if there is none. An OAuth server sends it as `error`
    /// (RFC 6749, 5.2), other APIs as the `code` or `status` of the object `error`. Anything but a short word of
    /// letters is discarded.
    pub(crate) fn error_code(&self) -> String {
        let body: Value = self.read("").unwrap_or_default();
        let error = &body["error"];
        let is_word = |text: &&str| {
            (1..=MAX_ERROR_CODE_BYTES).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
        };
        let mut words = [error, &error["code"], &error["status"]].into_iter().filter_map(Value::as_str);
        words.find(is_word).unwrap_or_default().to_owned()
    }

    /// Parses the body of the response as JSON; errors begin with `service`.
    ///
    /// # Errors
    /// `BadGateway` when the body does not have the form of `T` or was too long.
    pub(crate) fn read<'r, T: Deserialize<'r>>(&'r self, service: &str) -> Result<T> {
        let wrong = |what: &str| Error::new(Kind::BadGateway, format!("{service}: its response {what}"));
        let body = self.body.as_ref().ok_or_else(|| wrong("is larger than 1 MiB"))?;
        serde_json::from_slice(body).map_err(|_| wrong("has an unexpected form"))
    }
}

/// `true` for statuses after which a retry may succeed.
fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Varies a delay by up to a fifth, so that servers whose requests failed together do not retry together.
fn add_jitter(wait: Duration) -> Duration {
    let [random] = crate::random::bytes::<1>();
    wait.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
}

async fn read_response(mut response: Response, service: &str) -> Result<OutboundResponse> {
    let status = response.status().as_u16();
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(|error| connection_error(error, service))? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Ok(OutboundResponse { status, body: None });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(OutboundResponse { status, body: Some(body) })
}

fn connection_error(error: reqwest::Error, service: &str) -> Error {
    let text = if error.is_timeout() {
        format!("{service}: did not answer in time")
    } else if error.is_connect() {
        format!("{service}: cannot be reached, or its TLS certificate is not trusted")
    } else {
        format!("{service}: the connection failed")
    };
    Error::unavailable(text, error.without_url())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::outbound::{Method, Outbound};

    #[test]
    fn rejection_log_has_the_error_code_and_no_request_data() {
        for (body, reason) in [
            (r#"{"error": "invalid_client", "error_description": "hunter2"}"#, "invalid_client"),
            (r#"{"error": {"code": "KeyNotFound", "message": "hunter2"}}"#, "KeyNotFound"),
            (r#"{"error": {"code": 403, "status": "PERMISSION_DENIED"}}"#, "PERMISSION_DENIED"),
            (r#"{"error": "hunter2"}"#, ""),
            (r#"{"error": "denied\n\u001b[31mhunter"}"#, ""),
            (r#"{"error": {"code": "two words", "status": ["a"]}}"#, ""),
            ("grant_type=client_credentials&client_secret=hunter2", ""),
            ("[]", ""),
            ("", ""),
        ] {
            assert_eq!(OutboundResponse::new(400, body).error_code(), reason, "{body}");
        }
        let long = format!(r#"{{"error": "{}"}}"#, "a".repeat(MAX_ERROR_CODE_BYTES + 1));
        assert_eq!(OutboundResponse::new(400, long).error_code(), "");
    }

    #[tokio::test]
    async fn oversized_response_has_a_status_and_no_body() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            for bytes in [MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES + 1] {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
                let answer = [head.as_bytes(), b"\"", &vec![b'x'; bytes - 2], b"\""].concat();
                // Writing fails once the client has read enough and closes the connection.
                let _ = stream.write_all(&answer).await;
            }
        });
        let outbound = Outbound::for_configured_urls("", "").unwrap();
        let call = || outbound.request(Method::GET, &url).unwrap();
        let fits = call().send(RetryPolicy::SINGLE_ATTEMPT, "service").await.unwrap();
        assert!(fits.read::<String>("service").is_ok_and(|text| text.len() == MAX_RESPONSE_BYTES - 2));
        let larger = call().send(RetryPolicy::SINGLE_ATTEMPT, "service").await.unwrap();
        let error = larger.read::<String>("service").unwrap_err();
        assert_eq!((larger.status(), error.kind()), (200, Kind::BadGateway));
        assert_eq!(error.text(), "service: its response is larger than 1 MiB");
        served.await.unwrap();
    }
}
