//! Outbound HTTP calls: to cloud services, directories and publishers of key sets.
//!
//! Redirects are not followed and proxy variables are ignored, because a request may contain a credential, and a
//! response may decide if a login succeeds. Connections use TLS 1.2 or 1.3 (rustls). The destination comes from the
//! server's configuration ([`Outbound::for_configured_urls`]) or from an API caller with permission to configure it
//! ([`Outbound::for_caller_urls`]), never from a response. An [`EgressPolicy`] restricts the addresses that callers may
//! give.

pub(crate) mod cloudb;
mod egress_policy;
mod exchange;
mod token;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use reqwest::Method;
use reqwest::{Certificate, Client, ClientBuilder, redirect, retry};
use serde::de::DeserializeOwned;
use url::Url;

pub use self::egress_policy::EgressPolicy;
pub(crate) use self::egress_policy::{EgressResolver, validate_base_url};
pub(crate) use self::exchange::{OutboundRequest, OutboundResponse, RetryPolicy, with_trace_context};
#[cfg(feature = "keys-aws")]
pub(crate) use self::token::SharedCredential;
pub(crate) use self::token::{AccessToken, AccessTokenCache};
use crate::error::{Error, Kind, Result};
use crate::tls;

/// Time limit for one attempt of a call, from connecting to the end of the response.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Idle timeout of connections.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP client with its rules for destinations. Clones share connections.
#[derive(Clone)]
pub(crate) struct Outbound {
    /// The client. A client that trusts the system's CAs is created for the first call: loading these CAs would
    /// dominate the startup time, and the call may never be made.
    client: Arc<OnceLock<Client>>,
    /// The rules for addresses that API callers give; `None` if addresses come from the server's configuration.
    egress: Option<EgressPolicy>,
}

impl Outbound {
    /// Creates a client for addresses in the server's configuration, which [`validate_base_url`] must have checked. It
    /// trusts the CAs in `ca_pem`; if that is empty, those of the system.
    ///
    /// # Errors
    /// `Invalid` with `field` for unusable CA certificates.
    pub(crate) fn for_configured_urls(field: &str, ca_pem: &str) -> Result<Self> {
        Ok(Self { client: prepare_client(field, ca_pem, None)?.into(), egress: None })
    }

    /// Creates a client for addresses that API callers give. `ca_pem` is as in [`Outbound::for_configured_urls`].
    ///
    /// # Errors
    /// As [`Outbound::for_configured_urls`].
    pub(crate) fn for_caller_urls(egress: EgressPolicy, field: &str, ca_pem: &str) -> Result<Self> {
        Ok(Self { client: prepare_client(field, ca_pem, Some(egress))?.into(), egress: Some(egress) })
    }

    /// Creates a request, which is not sent yet.
    ///
    /// # Errors
    /// `Invalid` for an invalid or forbidden URL; `Internal` when TLS cannot be set up.
    pub(crate) fn request(&self, method: Method, url: &str) -> Result<OutboundRequest> {
        let url = match self.egress {
            Some(egress) => egress.validate_url("url", url)?,
            None => Url::parse(url).map_err(|_| Error::invalid("url: is not a URL"))?,
        };
        Ok(OutboundRequest::new(self.client()?.request(method, url)))
    }

    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = client_builder(self.egress).build().map_err(|e| Error::internal(e.without_url()))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Fetches a JSON document that is published without authentication, such as a key set; errors begin with
    /// `service`.
    ///
    /// # Errors
    /// `Unavailable` for any failure, because the caller that waits for the document did not cause it.
    pub(crate) async fn fetch_published<T: DeserializeOwned>(
        &self,
        url: &str,
        retries: RetryPolicy,
        service: &str,
    ) -> Result<T> {
        let unavailable = |error: Error| match error.kind() {
            Kind::Unavailable => error,
            _ => Error::new(Kind::Unavailable, error.text().to_owned()),
        };
        let call = self.request(Method::GET, url).map_err(|error| unavailable(error.within(service)))?;
        let reply = call.header("Accept", "application/json").send(retries, service).await.map_err(unavailable)?;
        if reply.status() != 200 {
            return Err(Error::new(Kind::Unavailable, format!("{service}: answered with status {}", reply.status())));
        }
        reply.read(service).map_err(unavailable)
    }
}

fn client_builder(egress: Option<EgressPolicy>) -> ClientBuilder {
    let builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ATTEMPT_TIMEOUT)
        .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT);
    match egress {
        Some(egress) => builder.dns_resolver(Arc::new(EgressResolver(egress))),
        None => builder,
    }
}

/// Creates the client that trusts the CAs in `ca_pem`. Without CAs it creates none: the first call creates a client
/// that trusts the system's CAs.
fn prepare_client(field: &str, ca_pem: &str, egress: Option<EgressPolicy>) -> Result<OnceLock<Client>> {
    let certificates = tls::parse_certificates(field, ca_pem)?;
    if certificates.is_empty() {
        return Ok(OnceLock::new());
    }
    let parsed = certificates.iter().map(|der| Certificate::from_der(der)).collect::<reqwest::Result<Vec<_>>>();
    let built = parsed.and_then(|certificates| client_builder(egress).tls_certs_only(certificates).build());
    let unusable = |_| Error::invalid(format!("{field}: a certificate cannot be used as a trusted CA"));
    built.map(OnceLock::from).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::{pem, testing};

    #[test]
    fn ca_certificate_is_used_and_a_broken_one_refused() {
        let (_, certificate) = testing::root("ec", 256);
        assert!(Outbound::for_configured_urls("ca_pem", &pem::encode("CERTIFICATE", certificate.der())).is_ok());
        let broken = pem::encode("CERTIFICATE", b"hunter2");
        let error = Outbound::for_configured_urls("ca_pem", &broken).map(drop).unwrap_err();
        assert_eq!(error.text(), "ca_pem: a certificate cannot be used as a trusted CA");
    }
}
