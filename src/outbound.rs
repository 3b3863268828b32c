//! HTTP to elsewhere: cloud services, directories, whoever publishes keys.
//!
//! | part | owns |
//! |---|---|
//! | `exchange` | one exchange: bounded in time, size and repetitions |
//! | `reach` | which addresses are called when a caller says where to |
//! | `token` | an access token, fetched once for all who need it |
//! | `cloudb` | the clouds of one provider, and access tokens for their APIs |
//! | `trust` | the authorities that a server's certificate is held against |
//!
//! Redirects are never followed and proxies of the environment not used: a request may have a credential in it, and
//! an answer decides who somebody is. TLS is 1.2 and 1.3, by rustls. Where a call goes is said by the server's
//! configuration ([`Outbound::configured`]) or by a caller who may configure something ([`Outbound::given`]), never
//! by an answer; addresses of callers are held to the rules of `reach`.

pub(crate) mod cloudb;
mod exchange;
mod reach;
mod token;
mod trust;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use reqwest::Method;
use reqwest::{Client, ClientBuilder, redirect, retry};
use serde::de::DeserializeOwned;
use url::Url;

pub(crate) use self::exchange::{Call, Reply, Tries, traced};
pub use self::reach::Reach;
pub(crate) use self::reach::{Guarded, base_url};
#[cfg(feature = "keys-aws")]
pub(crate) use self::token::Shared;
pub(crate) use self::token::{Token, Tokens};
use self::trust::certificates;
use crate::error::{Error, Kind, Result};

/// Longest time of one attempt, and of that for the connection.
const ATTEMPT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);
/// How long a connection without a request is kept.
const IDLE: Duration = Duration::from_secs(30);

/// A client, and where it may go. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Outbound {
    /// Made for the first call where the system's authorities are the ones to trust: to read them takes longer than
    /// all else that a start does for the calls that it may never make.
    client: Arc<OnceLock<Client>>,
    /// The rules for addresses of callers; `None` where the server's configuration says them.
    reach: Option<Reach>,
}

impl Outbound {
    /// For addresses of the server's configuration, which is checked with [`base_url`]. `ca_pem` takes the place of
    /// the system's authorities; `""` for those.
    ///
    /// # Errors
    /// `Invalid` for authorities that cannot be used, naming `field`.
    pub(crate) fn configured(field: &str, ca_pem: &str) -> Result<Self> {
        Ok(Self { client: begun(field, ca_pem, None)?.into(), reach: None })
    }

    /// For addresses that callers give. `ca_pem` as in [`Outbound::configured`].
    ///
    /// # Errors
    /// As [`Outbound::configured`].
    pub(crate) fn given(reach: Reach, field: &str, ca_pem: &str) -> Result<Self> {
        Ok(Self { client: begun(field, ca_pem, Some(reach))?.into(), reach: Some(reach) })
    }

    /// A call to begin with.
    ///
    /// # Errors
    /// `Invalid` for what is no URL, or one that must not be called; `Internal` when TLS cannot be set up.
    pub(crate) fn call(&self, method: Method, url: &str) -> Result<Call> {
        let url = match self.reach {
            Some(reach) => reach.url("url", url)?,
            None => Url::parse(url).map_err(|_| Error::invalid("url: is not a URL"))?,
        };
        Ok(Call::new(self.client()?.request(method, url)))
    }

    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let made = usual(self.reach).build().map_err(|e| Error::internal(e.without_url()))?;
        Ok(self.client.get_or_init(|| made))
    }

    /// What is published at an address; `who` is the subject of errors.
    ///
    /// # Errors
    /// `Unavailable` for anything but a JSON text of that form: nobody who waits for it has done anything wrong.
    pub(crate) async fn published<T: DeserializeOwned>(&self, url: &str, tries: Tries, who: &str) -> Result<T> {
        let unavailable = |error: Error| match error.kind() {
            Kind::Unavailable => error,
            _ => Error::new(Kind::Unavailable, error.text().to_owned()),
        };
        let call = self.call(Method::GET, url).map_err(|error| unavailable(error.within(who)))?;
        let reply = call.header("Accept", "application/json").send(tries, who).await.map_err(unavailable)?;
        if reply.status() != 200 {
            return Err(Error::new(Kind::Unavailable, format!("{who}: answered with status {}", reply.status())));
        }
        reply.read(who).map_err(unavailable)
    }
}

/// What holds for every client.
fn usual(reach: Option<Reach>) -> ClientBuilder {
    let usual = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .connect_timeout(CONNECT)
        .timeout(ATTEMPT)
        .pool_idle_timeout(IDLE);
    match reach {
        Some(reach) => usual.dns_resolver(Arc::new(Guarded(reach))),
        None => usual,
    }
}

/// The client that trusts the authorities in `ca_pem`; none yet where these are the system's.
fn begun(field: &str, ca_pem: &str, reach: Option<Reach>) -> Result<OnceLock<Client>> {
    let certificates = certificates(field, ca_pem)?;
    if certificates.is_empty() {
        return Ok(OnceLock::new());
    }
    let built = usual(reach).tls_certs_only(certificates).build();
    let unusable = |_| Error::invalid(format!("{field}: a certificate cannot be used as an authority"));
    built.map(OnceLock::from).map_err(unusable)
}
