//! How commands ask a server.
//!
//! The token goes to the server that was named and to no other: redirects are not followed, and plain http leads no
//! further than this machine.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use serde_json::Value;
use signet::error::{Error, Kind, Result};
use signet::secret::PartlySecret;
use url::{Host, Url};

/// The name of this machine in addresses.
const LOCALHOST: &str = "localhost";
/// How much of an address that a server points to is shown, characters.
const LONGEST_SHOWN: usize = 200;
/// Longest answer that is read, octets.
const LONGEST_ANSWER: usize = 4 << 20;

/// How long a request with many octets may take.
const LONG: Duration = Duration::from_secs(600);

/// Which server is asked.
#[derive(clap::Args)]
pub(super) struct Server {
    /// Address of the server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    address: String,
    /// PEM file of the authorities to trust for the server's own certificate.
    #[arg(long, value_name = "FILE", env = "SIGNET_CACERT")]
    cacert: Option<PathBuf>,
}

/// What a server answered.
pub(super) struct Reply {
    url: String,
    /// The status.
    pub(super) status: u16,
    /// The body, of which a private key may be a part.
    pub(super) body: PartlySecret,
}

impl Server {
    /// Posts a body to a path below `/v1`.
    ///
    /// # Errors
    /// `Invalid` for an address that a token is not sent to, `Unavailable` without an answer, `BadGateway` for one
    /// that points elsewhere or is longer than any.
    pub(super) async fn post(&self, path: &str, token: &str, body: &Value) -> Result<Reply> {
        let base = self.address.trim_end_matches('/');
        check_address(base)?;
        let url = format!("{base}/v1/{path}");
        let request = self.client()?.post(&url).header("X-Service-Token", header(token)?).json(body);
        self.answer(base, url, request).await
    }

    /// As [`Server::post`], of octets of this media type, which may be many: the answer may take ten minutes.
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
        let base = self.address.trim_end_matches('/');
        check_address(base)?;
        let url = format!("{base}/v1/{path}");
        let request = self.client()?.post(&url).header("X-Service-Token", header(token)?).timeout(LONG);
        self.answer(base, url, request.header(CONTENT_TYPE, media_type).body(octets)).await
    }

    async fn answer(&self, base: &str, url: String, request: reqwest::RequestBuilder) -> Result<Reply> {
        let answer =
            request.send().await.map_err(|e| Error::unavailable(format!("{base}: no answer ({})", cause(&e)), e))?;
        let status = answer.status().as_u16();
        if answer.status().is_redirection() {
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to: String = to.chars().take(LONGEST_SHOWN).collect();
            let text =
                format!("{url}: status {status}: points to {to:?}, which is not followed (is SIGNET_ADDR right?)");
            return Err(Error::new(Kind::BadGateway, text));
        }
        Ok(Reply { url, status, body: read(answer, base).await? })
    }

    fn client(&self) -> Result<reqwest::Client> {
        let mut client = reqwest::Client::builder()
            .timeout(Duration::from_secs(60))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Whatever a resolver says; port 0 stands for the one of the address.
            .resolve_to_addrs(LOCALHOST, &[(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]);
        if let Some(file) = &self.cacert {
            let unreadable =
                || Error::invalid(format!("SIGNET_CACERT: {} holds no readable certificates", file.display()));
            let pem = std::fs::read(file).map_err(|_| unreadable())?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| unreadable())?;
            client = client.tls_certs_only(certificates);
        }
        client.build().map_err(Error::internal)
    }
}

/// A token as a header.
fn header(token: &str) -> Result<HeaderValue> {
    let mut token =
        HeaderValue::from_str(token).map_err(|_| Error::invalid("SIGNET_TOKEN: has characters that no token has"))?;
    token.set_sensitive(true);
    Ok(token)
}

impl Reply {
    /// The refusal that it is, with what the caller might do about it.
    pub(super) fn refusal(&self, errors: &[String], hint: &str) -> Error {
        Error::new(Kind::BadGateway, format!("{}: status {}: {}{hint}", self.url, self.status, errors.join("; ")))
    }
}

/// The body of an answer.
///
/// # Errors
/// `Unavailable` when it ends early, `BadGateway` when it is longer than any answer.
async fn read(mut answer: reqwest::Response, base: &str) -> Result<PartlySecret> {
    let mut body = PartlySecret::default();
    let broken = |e: reqwest::Error| Error::unavailable(format!("{base}: the answer ended early ({})", cause(&e)), e);
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Err(Error::new(Kind::BadGateway, format!("{base}: the answer is longer than 4 MiB")));
        }
        body.push_secret(&chunk);
    }
    Ok(body)
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

/// The innermost cause, which names the problem (refused, unknown authority …).
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
