//! How commands ask a server.
//!
//! The token goes to the server that was named and to no other: redirects are not followed, and plain http leads no
//! further than this machine. A server that is busy is asked again when it says so, for as long as the caller's
//! patience lasts ([`Caller::ask`]); one that does not listen is not. Each request ends within `--timeout`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use signet::clock::parse_duration;
use signet::error::{Error, Kind, Result};
use signet::random;
use signet::secret::{PartlySecret, Secret};
use url::{Host, Url};

use super::output::one_line;
use super::token;

/// The name of this machine in addresses.
const LOCALHOST: &str = "localhost";
/// How much of an address that a server points to is shown, characters.
const LONGEST_SHOWN: usize = 200;
/// Longest answer that is read, octets.
const LONGEST_ANSWER: usize = 4 << 20;
/// Longest time that a server is believed when it says when to come back: it may be a mistake, and must not put off what
/// is due.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// The first pause before a question is asked again whose answer was lost, and the longest of all.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The flag and variable of the file of the authorities to trust.
const CACERT: &str = "--cacert or SIGNET_CACERT";

/// Where a server explains decisions of policies.
const EXPLAIN: &str = "sys/internal/explain";
/// Where it explains them to the token itself.
const EXPLAIN_SELF: &str = "sys/internal/explain-self";

/// Longest time for a connection, of what `--timeout` allows for the whole request.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(10);

/// Which server is asked.
#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Server {
    /// Address of the server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    address: String,
    /// PEM file of the authorities to trust for the server's own certificate.
    #[arg(long, value_name = "FILE", env = "SIGNET_CACERT")]
    cacert: Option<PathBuf>,
    /// How long the server may take for a request, with the connection: at most 10 seconds of it.
    #[arg(long, value_name = "DURATION", env = "SIGNET_TIMEOUT", default_value = "30s", value_parser = timeout)]
    timeout: Duration,
}

/// A server, and who asks it.
#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Caller {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    token: token::Source,
    /// How long to go on asking a server that is busy, such as 30s.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    patience: Duration,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(super) struct Question<'q> {
    /// GET, LIST, POST or DELETE.
    pub(super) method: &'static str,
    /// Below `/v1`.
    pub(super) path: &'q str,
    /// The body of a POST.
    pub(super) body: Option<&'q Value>,
    /// The key by which the server knows that it is asked again; without one it is not when an answer was lost.
    pub(super) key: Option<&'q str>,
}

impl<'q> Question<'q> {
    /// A GET.
    pub(super) fn get(path: &'q str) -> Self {
        Self { method: "GET", path, body: None, key: None }
    }

    /// A LIST.
    pub(super) fn list(path: &'q str) -> Self {
        Self { method: "LIST", ..Self::get(path) }
    }

    /// A POST.
    pub(super) fn post(path: &'q str, body: &'q Value) -> Self {
        Self { method: "POST", body: Some(body), ..Self::get(path) }
    }

    /// Whether asking twice is the same as asking once.
    fn may_be_repeated(&self) -> bool {
        self.method != "POST" || self.key.is_some()
    }
}

/// What a server answered.
pub(super) struct Reply {
    url: String,
    /// The status.
    pub(super) status: u16,
    /// When to ask again, where the server says so; an hour at most.
    pub(super) retry_after: Option<Duration>,
    /// The certificate that the server showed, DER.
    pub(super) peer: Option<Vec<u8>>,
    /// The body, of which a private key may be a part.
    pub(super) body: PartlySecret,
    /// Why it denies the request (403), where the server explains that.
    denial: Option<String>,
}

/// The body of an answer, with the members of `data` that matter to who asks.
#[derive(Default, Deserialize)]
#[serde(default, bound = "D: Default + Deserialize<'de>")]
pub(super) struct Answer<D> {
    /// What was made.
    pub(super) data: D,
    /// What there is to say of it.
    pub(super) warnings: Option<Vec<String>>,
    /// Why nothing was made.
    pub(super) errors: Vec<String>,
}

/// A question without an answer.
struct Lost {
    error: Error,
    /// Whether it may have been heard: then another try is of use.
    sent: bool,
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self { error, sent: false }
    }
}

impl Caller {
    /// Asks, and asks again for as long as the patience lasts: a server that says when to come back (429, 503), and,
    /// where asking twice is the same as asking once, one whose answer was lost on the way.
    ///
    /// # Errors
    /// Those of [`Server::post`]; `Invalid` without a token.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Reply> {
        let (begun, mut pause) = (Instant::now(), PAUSES.0);
        loop {
            let token = self.token.token()?;
            let token = token.expose_text().unwrap_or_default();
            let answer = self.server.send(question, token).await;
            let wait = match &answer {
                Ok(reply) if matches!(reply.status, 429 | 503) => reply.retry_after.map(|wait| wait.max(pause)),
                Err(lost) if lost.sent && question.may_be_repeated() => Some(pause),
                _ => None,
            };
            match wait.map(later).filter(|wait| begun.elapsed() + *wait <= self.patience) {
                Some(wait) => {
                    tracing::info!(seconds = wait.as_secs(), "the server is busy or out of reach; it is asked again");
                    tokio::time::sleep(wait).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                None => return answer.map_err(|lost| lost.error),
            }
        }
    }

    /// Asks once, however busy the server is.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub(super) async fn ask_once(&self, question: Question<'_>) -> Result<Reply> {
        let token = self.token.token()?;
        let answer = self.server.send(question, token.expose_text().unwrap_or_default()).await;
        answer.map_err(|lost| lost.error)
    }

    /// Posts a body without a token, to log in.
    ///
    /// # Errors
    /// Those of [`Server::post`].
    pub(super) async fn ask_without_token(&self, path: &str, body: &Value) -> Result<Reply> {
        self.server.post(path, "", body).await
    }

    /// Uses the token of a login from now on.
    pub(super) fn use_token(&self, token: Secret) {
        self.token.use_login(token);
    }

    /// `true` after a login.
    pub(super) fn has_token(&self) -> bool {
        self.token.has_login()
    }

    /// Where the token is from, as messages name it.
    pub(super) fn token_place(&self) -> String {
        self.token.shown()
    }

    /// The address of the server.
    pub(super) fn address(&self) -> &str {
        self.server.address()
    }

    /// The `data` of an answer that is to be 200.
    ///
    /// # Errors
    /// Those of [`Caller::ask`], and what the server refuses.
    pub(super) async fn data(&self, question: Question<'_>) -> Result<Value> {
        let reply = self.ask(question).await?;
        if reply.status != 200 {
            return Err(reply.refusal(""));
        }
        let mut answer: Value = serde_json::from_slice(reply.body.expose()).unwrap_or_default();
        Ok(answer["data"].take())
    }
}

/// Up to a fifth later: callers that were turned away together do not come back together.
pub(super) fn later(wait: Duration) -> Duration {
    wait.saturating_add(wait / (5 * 255) * u32::from(random::bytes::<1>()[0]))
}

/// A duration among the arguments.
pub(super) fn duration(text: &str) -> std::result::Result<Duration, &'static str> {
    parse_duration(text).ok_or("must be a duration such as 90s, 24h or 7d")
}

/// A time limit among the arguments.
fn timeout(text: &str) -> std::result::Result<Duration, &'static str> {
    parse_duration(text).filter(|time| !time.is_zero()).ok_or("must be a duration above 0, such as 30s")
}

impl Server {
    /// Posts a body to a path below `/v1`.
    ///
    /// # Errors
    /// `Invalid` for an address that a token is not sent to, `Unavailable` without an answer, `BadGateway` for one
    /// that points elsewhere or is longer than any.
    pub(super) async fn post(&self, path: &str, token: &str, body: &Value) -> Result<Reply> {
        self.send(Question::post(path, body), token).await.map_err(|lost| lost.error)
    }

    /// Deletes what is at a path below `/v1`.
    ///
    /// # Errors
    /// Those of [`Server::post`].
    pub(super) async fn delete(&self, path: &str, token: &str) -> Result<Reply> {
        let question = Question { method: "DELETE", path, body: None, key: None };
        self.send(question, token).await.map_err(|lost| lost.error)
    }

    /// The server at an address.
    pub(super) fn at(address: String, timeout: Duration) -> Self {
        Self { address, cacert: None, timeout }
    }

    /// The time limit of a request.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Its address, without the beginning of the paths of its API, as the addresses of other clients have it.
    pub(super) fn address(&self) -> &str {
        let address = self.address.trim_end_matches('/');
        let server = address.strip_suffix("/v1").map(|server| server.trim_end_matches('/'));
        // A machine may be called that, too.
        server.filter(|server| !server.ends_with(':')).unwrap_or(address)
    }

    /// GETs a path below `/v1` without a token; the status, and the body as JSON. A `trusting` caller takes any
    /// certificate: it says nothing, and acts on nothing but whether there is an answer.
    ///
    /// # Errors
    /// Those of [`Server::post`].
    pub(super) async fn probe(&self, path: &str, trusting: bool) -> Result<(u16, Value)> {
        let base = self.address();
        if !trusting {
            check_address(base)?;
        }
        let client = self.builder()?.tls_danger_accept_invalid_certs(trusting);
        let client = client.build().map_err(Error::internal)?;
        let answer = client.get(format!("{base}/v1/{path}")).send().await.map_err(|e| self.no_answer(e))?;
        let status = answer.status().as_u16();
        let body = self.read(answer).await?;
        Ok((status, serde_json::from_slice(body.expose()).unwrap_or_default()))
    }

    /// Sends a request. Where the server denies it, it is asked why.
    async fn send(&self, question: Question<'_>, token: &str) -> std::result::Result<Reply, Lost> {
        let mut reply = self.send_only(question, token).await?;
        if reply.status == 403 && !token.is_empty() && !question.path.starts_with(EXPLAIN) {
            reply.denial = self.denial(question.method, question.path, token).await;
        }
        Ok(reply)
    }

    /// Why the server denies a request to a token: it does not know the token, or the rule that decides.
    async fn denial(&self, method: &str, path: &str, token: &str) -> Option<String> {
        let body = json!({ "method": method, "path": path });
        let reply = self.send_only(Question::post(EXPLAIN_SELF, &body), token).await.ok()?;
        if reply.status == 403 {
            return Some("the token is not known to the server, has ended, or is bound to other networks".to_owned());
        }
        let answer: Value = serde_json::from_slice(reply.body.expose()).ok()?;
        let reason = answer["data"]["reason"].as_str()?;
        Some(format!("{}: see signet explain - {method} {path}", one_line(reason)))
    }

    async fn send_only(&self, question: Question<'_>, token: &str) -> std::result::Result<Reply, Lost> {
        let base = self.address();
        check_address(base)?;
        let method = reqwest::Method::from_bytes(question.method.as_bytes()).map_err(Error::internal)?;
        let mut request = self.client()?.request(method, format!("{base}/v1/{}", question.path));
        if !token.is_empty() {
            request = request.header("X-Service-Token", header(token)?);
        }
        if let Some(key) = question.key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = question.body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    /// As [`Server::post`], with a body of bytes of this media type.
    ///
    /// # Errors
    /// As [`Server::post`].
    pub(super) async fn post_octets(
        &self,
        path: &str,
        token: &str,
        media_type: &str,
        octets: Vec<u8>,
    ) -> Result<Reply> {
        let base = self.address();
        check_address(base)?;
        let request = self.client()?.post(format!("{base}/v1/{path}")).header("X-Service-Token", header(token)?);
        let request = request.header(CONTENT_TYPE, media_type).body(octets);
        let mut reply = self.answer(request).await.map_err(|lost| lost.error)?;
        if reply.status == 403 {
            reply.denial = self.denial("POST", path, token).await;
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
            // Whatever a resolver says; port 0 stands for the one of the address.
            .resolve_to_addrs(LOCALHOST, &[(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]);
        if let Some(file) = &self.cacert {
            let pem =
                std::fs::read(file).map_err(|e| Error::of_file(CACERT, file, "read", e).as_kind(Kind::Invalid))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
            let none = || Error::invalid(format!("{CACERT}: {}: must hold PEM certificates", file.display()));
            client = client.tls_certs_only(certificates.ok_or_else(none)?);
        }
        Ok(client)
    }

    /// Sends a request and reads the answer.
    async fn answer(&self, request: reqwest::RequestBuilder) -> std::result::Result<Reply, Lost> {
        let lost = |e: reqwest::Error| {
            let sent = !e.is_connect() && !e.is_builder();
            Lost { error: self.no_answer(e), sent }
        };
        let answer = request.send().await.map_err(lost)?;
        let url = answer.url().to_string();
        let status = answer.status().as_u16();
        if answer.status().is_redirection() {
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to: String = to.chars().take(LONGEST_SHOWN).collect();
            let text =
                format!("{url}: status {status}: points to {to:?}, which is not followed (is SIGNET_ADDR right?)");
            return Err(Error::new(Kind::BadGateway, text).into());
        }
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|after| seconds(after.to_str().ok()?));
        let info = answer.extensions().get::<reqwest::tls::TlsInfo>();
        let peer = info.and_then(|info| info.peer_certificate()).map(<[u8]>::to_vec);
        let body = self.read(answer).await;
        let body = body.map_err(|error| Lost { sent: error.kind() == Kind::Unavailable, error })?;
        Ok(Reply { url, status, retry_after, peer, body, denial: None })
    }

    /// The body of an answer.
    ///
    /// # Errors
    /// `Unavailable` when it ends early, `BadGateway` when it is longer than any answer.
    async fn read(&self, mut answer: reqwest::Response) -> Result<PartlySecret> {
        let base = self.address();
        let mut body = PartlySecret::default();
        let broken = |e: reqwest::Error| match e.is_timeout() {
            true => self.no_answer(e),
            false => Error::unavailable(format!("{base}: the answer ended early ({})", cause(&e)), e),
        };
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(Error::new(Kind::BadGateway, format!("{base}: the answer is longer than 4 MiB")));
            }
            body.push_secret(&chunk);
        }
        Ok(body)
    }

    /// The error for a missing answer: why, and what to do about it where that is known.
    fn no_answer(&self, error: reqwest::Error) -> Error {
        let base = self.address();
        if error.is_timeout() {
            let text = match error.is_connect() {
                true => format!("no connection within {:?}", self.timeout.min(MAX_CONNECT_TIME)),
                false => format!("no answer within {:?} (--timeout or SIGNET_TIMEOUT)", self.timeout),
            };
            return Error::unavailable(format!("{base}: {text}"), error);
        }
        let step = match tls_error(&error) {
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                "; if that port speaks plain HTTP, SIGNET_ADDR begins with http://"
            }
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
                "; SIGNET_CACERT names the file of the authority to trust"
            }
            _ => "",
        };
        Error::unavailable(format!("{base}: no answer ({}{step})", cause(&error)), error)
    }
}

/// When to come back, of what a server says (RFC 9110 10.2.3); a date is not read.
fn seconds(after: &str) -> Option<Duration> {
    let digits = Some(after.trim()).filter(|text| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()))?;
    // More digits than any number has are a long time, too.
    Some(Duration::from_secs(digits.parse().unwrap_or(u64::MAX)).min(LONGEST_WAIT))
}

/// A token as a header.
fn header(token: &str) -> Result<HeaderValue> {
    let mut token =
        HeaderValue::from_str(token).map_err(|_| Error::invalid("token: has characters that no token has"))?;
    token.set_sensitive(true);
    Ok(token)
}

impl Reply {
    /// The hint of a denied request: why, and where the token is from.
    pub(super) fn denial_hint(&self, token_place: &str) -> String {
        match &self.denial {
            Some(denial) => format!(" ({denial}; the token is from {token_place})"),
            None => format!(" (does the token in {token_place} grant it?)"),
        }
    }

    /// The refusal that it is: why, what the server says that may be done about it, and what the caller might do. Of an
    /// answer in other words than a server's own, such as a proxy's, its beginning is shown.
    pub(super) fn refusal(&self, hint: &str) -> Error {
        let denial = self.denial.as_ref().filter(|_| hint.is_empty()).map(|denial| format!(" ({denial})"));
        let hint = denial.as_deref().unwrap_or(hint);
        let said = match serde_json::from_slice::<Answer<IgnoredAny>>(self.body.expose()) {
            Ok(Answer { errors, warnings, .. }) => match warnings.unwrap_or_default() {
                warnings if warnings.is_empty() => one_line(&errors.join("; ")).into_owned(),
                warnings => one_line(&format!("{} ({})", errors.join("; "), warnings.join("; "))).into_owned(),
            },
            Err(_) => beginning(self.body.expose()),
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Error::new(Kind::BadGateway, format!("{}: status {}{said}{hint}", self.url, self.status))
    }
}

/// The beginning of a text that a stranger wrote, in quotes when there is any. No octet of it acts on a terminal.
fn beginning(text: &[u8]) -> String {
    // A character has four octets at most.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * LONGEST_SHOWN)]);
    let shown: String = text.trim().chars().take(LONGEST_SHOWN).collect();
    if shown.is_empty() { shown } else { format!("{shown:?}") }
}

/// The token must not be read on the way: TLS, or no way at all.
///
/// # Errors
/// `Invalid` for plain http to another machine, and for what is no address of a server.
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

/// What TLS found wrong, wherever it is among the causes.
fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        // An error of input and output passes over the one in it when it is asked for its source.
        let within = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = within.map(|within| -> &(dyn std::error::Error + 'static) { within }).or_else(|| cause.source());
    }
    None
}

/// The innermost cause, which names the problem (refused, unknown authority …).
fn cause(error: &reqwest::Error) -> String {
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
        let reply = Reply { url: "u".to_owned(), status: 400, retry_after: None, peer: None, body: kept, denial: None };
        reply.refusal(" (next)").to_string()
    }

    #[test]
    fn a_server_says_in_seconds_when_to_come_back_and_is_believed_for_an_hour() {
        let cases = [("0", 0), (" 7 ", 7), ("3601", 3600), ("31536000", 3600), ("18446744073709551615", 3600)];
        for (text, wait) in cases.into_iter().chain([("99999999999999999999999", 3600)]) {
            assert_eq!(seconds(text), Some(Duration::from_secs(wait)), "{text}");
        }
        for text in ["", "-1", "+1", "1.5", "soon", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_is_that_of_the_server_with_or_without_the_begin_of_its_paths() {
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
            assert_eq!(Server::at(given.to_owned(), PAUSES.0).address(), address, "{given}");
        }
    }

    #[test]
    fn a_pause_is_up_to_a_fifth_longer_however_long_it_is() {
        for wait in [Duration::ZERO, Duration::from_secs(10), Duration::MAX] {
            let (least, most) = (wait, wait.saturating_add(wait / 5));
            assert!((least..=most).contains(&later(wait)), "{wait:?}");
        }
    }

    #[test]
    fn a_refusal_shows_what_the_server_says_and_the_beginning_of_what_is_no_answer_of_one() {
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
        // However long, and wherever a character is cut.
        let long = "\u{20ac}".repeat(1 << 20);
        assert_eq!(refused(long.as_bytes()).chars().count(), LONGEST_SHOWN + "u: status 400: \"\" (next)".len());
    }
}
