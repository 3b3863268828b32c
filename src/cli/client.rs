//! The HTTP client of the commands that call a running server.
//!
//! The token is sent only to the configured server: redirects are not followed, and plain http is allowed only to this
//! machine. If the server is busy, a request is repeated until `--patience` ends ([`AuthenticatedClient::request`]). If
//! nothing listens at the address, the request fails at once. Each request ends within `--timeout`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::clock::parse_duration;
use crate::error::{Error, Kind, Result};
use crate::random;
use crate::secret::{PartlySecret, Secret};
use crate::tls::NamedFile;
use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use url::{Host, Url};

use super::output::one_line;
use super::token;

const LOCALHOST: &str = "localhost";
/// Maximum number of characters that messages quote from a redirect target or an unexpected response body.
const MAX_QUOTED_CHARACTERS: usize = 200;
/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Upper limit for the server's `Retry-After`. A larger value may be a mistake and must not delay an urgent renewal.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// The pause before the first retry of a request, and the maximum pause before later retries.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

const CACERT_ARGUMENT: &str = "--cacert or SIGNET_CACERT";

/// API path that explains which policy rule allows or denies a request. The request body names the token.
const EXPLAIN_PATH: &str = "sys/internal/explain";
/// API path that explains which policy rule allows or denies a request with the calling token.
const EXPLAIN_SELF_PATH: &str = "sys/internal/explain-self";

/// Maximum time to establish a connection. It is a part of `--timeout`.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(10);

/// The server, and how to connect to it.
#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct ServerEndpoint {
    /// Address of the server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    address: String,
    /// PEM file of the authorities to trust for the server's own certificate.
    #[arg(long, value_name = "FILE", env = "SIGNET_CACERT")]
    cacert: Option<PathBuf>,
    /// Time limit of a request, including at most 10 seconds to connect.
    #[arg(long, value_name = "DURATION", env = "SIGNET_TIMEOUT", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,
}

/// A server and the token for it.
#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct AuthenticatedClient {
    #[command(flatten)]
    server: ServerEndpoint,
    #[command(flatten)]
    token: token::TokenArguments,
    /// How long to retry while the server is busy, such as 30s.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration_value)]
    patience: Duration,
}

#[derive(Clone, Copy)]
pub(super) struct ClientRequest<'q> {
    /// HTTP method: GET, LIST, POST or DELETE.
    pub(super) method: &'static str,
    pub(super) path: &'q str,
    pub(super) body: Option<&'q Value>,
    /// Value of the `Idempotency-Key` header field. A POST without one is not retried after a lost response.
    pub(super) idempotency_key: Option<&'q str>,
}

impl<'q> ClientRequest<'q> {
    pub(super) fn get(path: &'q str) -> Self {
        Self { method: "GET", path, body: None, idempotency_key: None }
    }

    pub(super) fn list(path: &'q str) -> Self {
        Self { method: "LIST", ..Self::get(path) }
    }

    pub(super) fn delete(path: &'q str) -> Self {
        Self { method: "DELETE", ..Self::get(path) }
    }

    pub(super) fn post(path: &'q str, body: &'q Value) -> Self {
        Self { method: "POST", body: Some(body), ..Self::get(path) }
    }

    /// `true` if the request can be sent twice with the same effect as once.
    fn is_idempotent(&self) -> bool {
        self.method != "POST" || self.idempotency_key.is_some()
    }
}

pub(super) struct ClientResponse {
    url: String,
    pub(super) status: u16,
    /// The server's `Retry-After`, at most an hour.
    pub(super) retry_after: Option<Duration>,
    /// The server's TLS certificate in DER; `None` over plain HTTP.
    pub(super) peer_certificate: Option<Vec<u8>>,
    pub(super) body: PartlySecret,
    /// The server's explanation of a denied request (403), if available.
    denial: Option<String>,
}

/// The JSON body of a response. `D` is the type of its member `data`, with the fields that the caller needs.
#[derive(Default, Deserialize)]
#[serde(default, bound = "D: Default + Deserialize<'de>")]
pub(super) struct ClientResponseBody<D> {
    pub(super) data: D,
    pub(super) warnings: Option<Vec<String>>,
    pub(super) errors: Vec<String>,
}

struct NoResponse {
    error: Error,
    /// `true` if the server may have received the request before the connection failed.
    sent: bool,
}

impl From<Error> for NoResponse {
    fn from(error: Error) -> Self {
        Self { error, sent: false }
    }
}

impl AuthenticatedClient {
    /// Sends a request. Until `--patience` ends, retries it when the server responds with 429 or 503 and a
    /// `Retry-After`, and after a lost response if the request is idempotent.
    ///
    /// # Errors
    /// Those of [`ServerEndpoint::post`]; `Invalid` when no token is given.
    pub(super) async fn request(&self, request: ClientRequest<'_>) -> Result<ClientResponse> {
        let begun = Instant::now();
        let mut pause = RETRY_PAUSES.0;
        loop {
            let token = self.token.token()?;
            let token = token.expose_text().unwrap_or_default();
            let answer = self.server.send(request, token).await;
            let wait = match &answer {
                Ok(reply) if matches!(reply.status, 429 | 503) => reply.retry_after.map(|wait| wait.max(pause)),
                Err(lost) if lost.sent && request.is_idempotent() => Some(pause),
                _ => None,
            };
            match wait.map(with_jitter).filter(|wait| begun.elapsed() + *wait <= self.patience) {
                Some(wait) => {
                    tracing::info!(seconds = wait.as_secs(), "the server is busy or unreachable; retrying");
                    tokio::time::sleep(wait).await;
                    pause = (pause * 2).min(RETRY_PAUSES.1);
                }
                None => return answer.map_err(|lost| lost.error),
            }
        }
    }

    /// Sends a request once, even if the server is busy.
    ///
    /// # Errors
    /// Those of [`AuthenticatedClient::request`].
    pub(super) async fn request_once(&self, request: ClientRequest<'_>) -> Result<ClientResponse> {
        let token = self.token.token()?;
        let answer = self.server.send(request, token.expose_text().unwrap_or_default()).await;
        answer.map_err(|lost| lost.error)
    }

    /// Posts a body without a token, for a login.
    ///
    /// # Errors
    /// Those of [`ServerEndpoint::post`].
    pub(super) async fn post_without_token(&self, path: &str, body: &Value) -> Result<ClientResponse> {
        self.server.post(path, "", body).await
    }

    pub(super) fn use_token(&self, token: Secret) {
        self.token.use_login(token);
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.has_login()
    }

    /// Returns the argument or variable that the token comes from, for messages.
    pub(super) fn token_source(&self) -> String {
        self.token.source_name()
    }

    pub(super) fn address(&self) -> &str {
        self.server.address()
    }

    /// Sends a request and returns the `data` of the response.
    ///
    /// # Errors
    /// Those of [`AuthenticatedClient::request`]; `BadGateway` for any status other than 200.
    pub(super) async fn request_data(&self, request: ClientRequest<'_>) -> Result<Value> {
        let reply = self.request(request).await?;
        if reply.status != 200 {
            return Err(reply.to_error(""));
        }
        Ok(reply.data())
    }
}

/// Iterates over the strings in a JSON array. Yields nothing if the value is not an array.
pub(super) fn texts_in(array: &Value) -> impl DoubleEndedIterator<Item = &str> {
    array.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Lengthens a delay by a random time of up to a fifth, so that clients that were rejected together do not retry
/// together.
pub(super) fn with_jitter(wait: Duration) -> Duration {
    wait.saturating_add(wait / (5 * 255) * u32::from(random::bytes::<1>()[0]))
}

pub(super) fn parse_duration_value(text: &str) -> std::result::Result<Duration, &'static str> {
    parse_duration(text).ok_or("must be a duration such as 90s, 24h or 7d")
}

fn parse_timeout(text: &str) -> std::result::Result<Duration, &'static str> {
    parse_duration(text).filter(|time| !time.is_zero()).ok_or("must be a duration above 0, such as 30s")
}

impl ServerEndpoint {
    /// Posts a body to a path below `/v1`.
    ///
    /// # Errors
    /// `Invalid` for an address to which no token may be sent, `Unavailable` without a response, `BadGateway` for a
    /// redirect or an oversized response.
    pub(super) async fn post(&self, path: &str, token: &str, body: &Value) -> Result<ClientResponse> {
        self.request(ClientRequest::post(path, body), token).await
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// Those of [`ServerEndpoint::post`].
    pub(super) async fn request(&self, request: ClientRequest<'_>, token: &str) -> Result<ClientResponse> {
        self.send(request, token).await.map_err(|lost| lost.error)
    }

    pub(super) fn at_address(address: String, timeout: Duration) -> Self {
        Self { address, cacert: None, timeout }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the server address without a trailing `/v1`. Users may add it, because other clients expect it.
    pub(super) fn address(&self) -> &str {
        let address = self.address.trim_end_matches('/');
        let server = address.strip_suffix("/v1").map(|server| server.trim_end_matches('/'));
        // In `https://v1`, `v1` is the host name and must stay.
        server.filter(|server| !server.ends_with(':')).unwrap_or(address)
    }

    /// Sends a GET request for a path below `/v1`, without a token. Returns the status and the JSON body.
    /// `accepts_any_certificate` turns off the verification of the server's certificate, for callers that only need to
    /// know whether a server responds.
    ///
    /// # Errors
    /// Those of [`ServerEndpoint::post`].
    pub(super) async fn probe(&self, path: &str, accepts_any_certificate: bool) -> Result<(u16, Value)> {
        let base = self.address();
        if !accepts_any_certificate {
            check_address(base)?;
        }
        let client = self.builder()?.tls_danger_accept_invalid_certs(accepts_any_certificate);
        let client = client.build().map_err(Error::internal)?;
        let answer = client.get(format!("{base}/v1/{path}")).send().await.map_err(|e| self.connection_error(e))?;
        let status = answer.status().as_u16();
        let body = self.read(answer).await?;
        Ok((status, serde_json::from_slice(body.expose()).unwrap_or_default()))
    }

    /// Sends a request. If the response is 403, also requests an explanation from the server.
    async fn send(&self, request: ClientRequest<'_>, token: &str) -> std::result::Result<ClientResponse, NoResponse> {
        let mut reply = self.send_without_explanation(request, token).await?;
        if reply.status == 403 && !token.is_empty() && !request.path.starts_with(EXPLAIN_PATH) {
            reply.denial = self.explain_denial(request.method, request.path, token).await;
        }
        Ok(reply)
    }

    /// Asks the server why it denied a request of this token. The result says that the token is not valid, or which
    /// policy rule denies the request. `None` if the server gives no explanation.
    async fn explain_denial(&self, method: &str, path: &str, token: &str) -> Option<String> {
        let body = json!({ "method": method, "path": path });
        let reply = self.send_without_explanation(ClientRequest::post(EXPLAIN_SELF_PATH, &body), token).await.ok()?;
        if reply.status == 403 {
            return Some("the token is not known to the server, has expired, or is bound to other networks".to_owned());
        }
        let data = reply.data();
        Some(format!("{}: see signet explain - {method} {path}", one_line(data["reason"].as_str()?)))
    }

    async fn send_without_explanation(
        &self,
        api_request: ClientRequest<'_>,
        token: &str,
    ) -> std::result::Result<ClientResponse, NoResponse> {
        let base = self.address();
        check_address(base)?;
        let method = reqwest::Method::from_bytes(api_request.method.as_bytes()).map_err(Error::internal)?;
        let mut request = self.client()?.request(method, format!("{base}/v1/{}", api_request.path));
        if !token.is_empty() {
            request = request.header("X-Service-Token", token_header(token)?);
        }
        if let Some(key) = api_request.idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = api_request.body {
            request = request.json(body);
        }
        self.send_request(request).await
    }

    /// As [`ServerEndpoint::post`], with a binary body of the given media type.
    ///
    /// # Errors
    /// Those of [`ServerEndpoint::post`].
    pub(super) async fn post_bytes(
        &self,
        path: &str,
        token: &str,
        media_type: &str,
        bytes: Vec<u8>,
    ) -> Result<ClientResponse> {
        let base = self.address();
        check_address(base)?;
        let request = self.client()?.post(format!("{base}/v1/{path}")).header("X-Service-Token", token_header(token)?);
        let request = request.header(CONTENT_TYPE, media_type).body(bytes);
        let mut reply = self.send_request(request).await.map_err(|lost| lost.error)?;
        if reply.status == 403 {
            reply.denial = self.explain_denial("POST", path, token).await;
        }
        Ok(reply)
    }

    fn client(&self) -> Result<reqwest::Client> {
        self.builder()?.build().map_err(Error::internal)
    }

    fn builder(&self) -> Result<reqwest::ClientBuilder> {
        let mut client = reqwest::Client::builder()
            .timeout(self.timeout)
            .connect_timeout(self.timeout.min(MAX_CONNECT_TIME))
            .tls_info(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Resolves `localhost` without DNS. Port 0 stands for the port of the URL.
            .resolve_to_addrs(LOCALHOST, &[(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]);
        if let Some(file) = &self.cacert {
            let certificates = NamedFile { setting: CACERT_ARGUMENT, path: file }.read_certificates()?;
            let parsed =
                certificates.iter().map(|der| reqwest::Certificate::from_der(der)).collect::<Result<Vec<_>, _>>();
            client = client.tls_certs_only(parsed.map_err(Error::internal)?);
        }
        Ok(client)
    }

    async fn send_request(&self, request: reqwest::RequestBuilder) -> std::result::Result<ClientResponse, NoResponse> {
        let lost = |e: reqwest::Error| {
            let sent = !e.is_connect() && !e.is_builder();
            NoResponse { error: self.connection_error(e), sent }
        };
        let answer = request.send().await.map_err(lost)?;
        let url = answer.url().to_string();
        let status = answer.status().as_u16();
        if answer.status().is_redirection() {
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to: String = to.chars().take(MAX_QUOTED_CHARACTERS).collect();
            let text = format!("{url}: status {status}: redirect to {to:?} not followed (check SIGNET_ADDR)");
            return Err(Error::new(Kind::BadGateway, text).into());
        }
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|after| parse_retry_after(after.to_str().ok()?));
        let info = answer.extensions().get::<reqwest::tls::TlsInfo>();
        let peer_certificate = info.and_then(|info| info.peer_certificate()).map(<[u8]>::to_vec);
        let body = self.read(answer).await;
        let body = body.map_err(|error| NoResponse { sent: error.kind() == Kind::Unavailable, error })?;
        Ok(ClientResponse { url, status, retry_after, peer_certificate, body, denial: None })
    }

    /// Reads the body of a response.
    ///
    /// # Errors
    /// `Unavailable` when the connection ends within the body, `BadGateway` when the body is too large.
    async fn read(&self, mut answer: reqwest::Response) -> Result<PartlySecret> {
        let base = self.address();
        let mut body = PartlySecret::default();
        let broken = |e: reqwest::Error| match e.is_timeout() {
            true => self.connection_error(e),
            false => Error::unavailable(format!("{base}: the response ended early ({})", root_cause(&e)), e),
        };
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(Error::new(
                    Kind::BadGateway,
                    format!("{base}: the response is larger than the limit of 4 MiB"),
                ));
            }
            body.push_secret(&chunk);
        }
        Ok(body)
    }

    fn connection_error(&self, error: reqwest::Error) -> Error {
        let base = self.address();
        if error.is_timeout() {
            let text = match error.is_connect() {
                true => format!("no connection within {:?}", self.timeout.min(MAX_CONNECT_TIME)),
                false => format!("no response within {:?} (--timeout or SIGNET_TIMEOUT)", self.timeout),
            };
            return Error::unavailable(format!("{base}: {text}"), error);
        }
        let step = match find_tls_error(&error) {
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                "; if that port speaks plain HTTP, SIGNET_ADDR must begin with http://"
            }
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
                "; set SIGNET_CACERT to the file of the authority to trust"
            }
            _ => "",
        };
        Error::unavailable(format!("{base}: no response ({}{step})", root_cause(&error)), error)
    }
}

/// Parses a `Retry-After` value (RFC 9110, 10.2.3). Supports seconds only; returns `None` for a date.
fn parse_retry_after(after: &str) -> Option<Duration> {
    let digits = Some(after.trim()).filter(|text| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()))?;
    // A number that does not fit into 64 bits counts as the maximum.
    Some(Duration::from_secs(digits.parse().unwrap_or(u64::MAX)).min(MAX_RETRY_AFTER))
}

fn token_header(token: &str) -> Result<HeaderValue> {
    let mut token = HeaderValue::from_str(token).map_err(|_| Error::invalid("token: invalid characters"))?;
    token.set_sensitive(true);
    Ok(token)
}

impl ClientResponse {
    /// Parses the body as JSON. Returns the default of `T` if the body is not JSON of that type.
    pub(super) fn json<T: Default + DeserializeOwned>(&self) -> T {
        serde_json::from_slice(self.body.expose()).unwrap_or_default()
    }

    /// Returns the member `data` of the JSON body; null if it is missing.
    pub(super) fn data(&self) -> Value {
        self.json::<Value>().get_mut("data").map(Value::take).unwrap_or_default()
    }

    pub(super) fn denial_hint(&self, token_place: &str) -> String {
        match &self.denial {
            Some(denial) => format!(" ({denial}; the token is from {token_place})"),
            None => format!(" (does the token from {token_place} have this permission?)"),
        }
    }

    /// Returns the member `data` of the JSON body; null if the path does not exist (404) or the token may not read it
    /// (403).
    ///
    /// # Errors
    /// The server's error for every other status.
    pub(super) fn visible_data(&self) -> Result<Value> {
        match self.status {
            200 => Ok(self.data()),
            403 | 404 => Ok(Value::Null),
            _ => Err(self.to_error("")),
        }
    }

    /// Converts a response with an error status to an error with the server's errors and warnings, `hint`, and the time
    /// of `Retry-After`. If the body is not in the server's format, for example because a proxy responded, the error
    /// quotes its beginning.
    pub(super) fn to_error(&self, hint: &str) -> Error {
        let denial = self.denial.as_ref().filter(|_| hint.is_empty()).map(|denial| format!(" ({denial})"));
        let hint = denial.as_deref().unwrap_or(hint);
        let said = match serde_json::from_slice::<ClientResponseBody<IgnoredAny>>(self.body.expose()) {
            Ok(ClientResponseBody { errors, warnings, .. }) => match warnings.unwrap_or_default() {
                warnings if warnings.is_empty() => one_line(&errors.join("; ")).into_owned(),
                warnings => one_line(&format!("{} ({})", errors.join("; "), warnings.join("; "))).into_owned(),
            },
            Err(_) => quote_beginning(self.body.expose()),
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let error = Error::new(Kind::BadGateway, format!("{}: status {}{said}{hint}", self.url, self.status));
        match self.retry_after {
            Some(pause) => error.with_retry_after(pause),
            None => error,
        }
    }
}

/// Quotes the beginning of an untrusted text, and escapes control characters so that it is safe to print on a terminal.
fn quote_beginning(text: &[u8]) -> String {
    // A UTF-8 character has at most four bytes.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MAX_QUOTED_CHARACTERS)]);
    let shown: String = text.trim().chars().take(MAX_QUOTED_CHARACTERS).collect();
    if shown.is_empty() { shown } else { format!("{shown:?}") }
}

/// Rejects a server address to which a token would be sent unprotected: it must use https or a loopback address.
///
/// # Errors
/// `Invalid` for plain http to another machine, and for an invalid URL.
fn check_address(base: &str) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("SIGNET_ADDR: {rule}")));
    let Ok(url) = Url::parse(base) else { return refuse("is not a URL, such as https://signet.example") };
    let here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == LOCALHOST,
        None => false,
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if here => Ok(()),
        "http" => refuse("plain http is for this machine only (localhost, 127.0.0.0/8, ::1): use https"),
        _ => refuse("must begin with https://"),
    }
}

fn find_tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        // `std::io::Error::source` skips the error that the I/O error wraps; `get_ref` returns the wrapped error.
        let within = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = within.map(|within| -> &(dyn std::error::Error + 'static) { within }).or_else(|| cause.source());
    }
    None
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &[u8]) -> String {
        let mut kept = PartlySecret::default();
        kept.push_secret(body);
        let reply = ClientResponse {
            url: "u".to_owned(),
            status: 400,
            retry_after: None,
            peer_certificate: None,
            body: kept,
            denial: None,
        };
        reply.to_error(" (next)").to_string()
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_capped_at_an_hour() {
        let cases = [("0", 0), (" 7 ", 7), ("3601", 3600), ("31536000", 3600), ("18446744073709551615", 3600)];
        for (text, wait) in cases.into_iter().chain([("99999999999999999999999", 3600)]) {
            assert_eq!(parse_retry_after(text), Some(Duration::from_secs(wait)), "{text}");
        }
        for text in ["", "-1", "+1", "1.5", "soon", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(parse_retry_after(text), None, "{text}");
        }
    }

    #[test]
    fn server_address_loses_a_trailing_api_prefix() {
        for (given, address) in [
            ("https://a.test", "https://a.test"),
            ("https://a.test//", "https://a.test"),
            ("https://a.test/v1", "https://a.test"),
            ("https://a.test:8200/v1/", "https://a.test:8200"),
            ("https://a.test/below/v1", "https://a.test/below"),
            ("https://a.test/v11", "https://a.test/v11"),
            ("https://v1", "https://v1"),
            ("https://v1/v1", "https://v1"),
        ] {
            assert_eq!(ServerEndpoint::at_address(given.to_owned(), RETRY_PAUSES.0).address(), address, "{given}");
        }
    }

    #[test]
    fn jitter_adds_at_most_a_fifth() {
        for wait in [Duration::ZERO, Duration::from_secs(10), Duration::MAX] {
            let least = wait;
            let max = wait.saturating_add(wait / 5);
            assert!((least..=max).contains(&with_jitter(wait)), "{wait:?}");
        }
    }

    #[test]
    fn refusal_shows_server_errors_or_the_start_of_the_body() {
        for (body, said) in [
            (&br#"{"errors":["a","b"]}"#[..], "u: status 400: a; b (next)"),
            (br#"{"errors":["a"],"warnings":["w","x"],"data":{"k":[1]}}"#, "u: status 400: a (w; x) (next)"),
            (br#"{"errors":["a"],"warnings":null}"#, "u: status 400: a (next)"),
            (b"{}", "u: status 400 (next)"),
            (b" \n", "u: status 400 (next)"),
            (b"use https://\n", "u: status 400: \"use https://\" (next)"),
            (b"\x1b[2J\xff<p>", "u: status 400: \"\\u{1b}[2J\u{fffd}<p>\" (next)"),
        ] {
            assert_eq!(refused(body), said);
        }
        // The text is long, and the limit falls within a multi-byte character.
        let long = "\u{20ac}".repeat(1 << 20);
        assert_eq!(
            refused(long.as_bytes()).chars().count(),
            MAX_QUOTED_CHARACTERS + "u: status 400: \"\" (next)".len()
        );
    }
}
