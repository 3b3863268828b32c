//! The provider, as one write of a mount's configuration sees it: where it is, the service's own access token, and
//! the calls of its resource API.
//!
//! An answer counts when it is one: whoever is refused, does not find or gets nonsense is told apart here, and what
//! the provider says in words goes to nobody. Redirects and links to other places are not followed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use metrics::histogram;
use serde::de::DeserializeOwned;
use url::Url;

use super::config::Effective;
use super::settings::Services;
use crate::error::{Error, Kind, Result};
use crate::outbound::cloudb::{Credential, IMDS};
use crate::outbound::{Method, Reply, Token, Tokens};
use crate::secret::Secret;
use crate::telemetry;

/// The subject of errors.
pub(super) const NAME: &str = "cloudb";
const ARM: &str = "cloudb: the provider";

/// Most types of resources whose version of the interface is remembered.
const MOST_VERSIONS: usize = 1000;

/// Where the calls of one write of a configuration go, and what they keep.
pub(super) struct Provider {
    pub(super) services: Arc<Services>,
    pub(super) at: Effective,
    tokens: Tokens,
    /// By the type of a resource, in lower case: the version of the interface that it is read in.
    versions: Mutex<HashMap<String, String>>,
}

impl Provider {
    pub(super) fn new(services: Arc<Services>, at: Effective) -> Self {
        Self { services, at, tokens: Tokens::default(), versions: Mutex::default() }
    }

    /// Base URL of the directory.
    pub(super) fn authority(&self) -> &str {
        base(&self.services.urls.authority, self.at.cloud.authority)
    }

    /// Base URL of the resource API.
    pub(super) fn arm(&self) -> &str {
        base(&self.services.urls.arm, self.at.cloud.arm)
    }

    /// Base URL of the API of the directory's applications.
    pub(super) fn graph(&self) -> &str {
        base(&self.services.urls.graph, self.at.cloud.graph)
    }

    /// An access token for an API at this base URL, of the application with this secret or of the machine.
    ///
    /// # Errors
    /// As [`Credential::fetch`].
    pub(super) async fn token(&self, resource: &str, client_secret: &Secret) -> Result<Token> {
        let begun = Instant::now();
        let credential = Credential {
            outbound: &self.services.outbound,
            authority: self.authority(),
            imds: base(&self.services.urls.imds, IMDS),
            tenant: &self.at.tenant,
            client_id: &self.at.client_id,
            client_secret,
            resource,
            tries: self.at.tries,
            who: NAME,
        };
        let token = credential.fetch().await;
        measure("token", begun, outcome(&token.as_ref().map(|_| 200).map_err(Error::kind)));
        token
    }

    /// Reads what the resource API has at a path; `call` names the call for the metrics.
    ///
    /// # Errors
    /// As [`Provider::get_url`].
    pub(super) async fn get<T: DeserializeOwned>(&self, call: &'static str, path: &str) -> Result<T> {
        self.get_url(call, &format!("{}{path}", self.arm())).await
    }

    /// Reads what the resource API has at a URL.
    ///
    /// # Errors
    /// `Forbidden` for what is not there, `BadGateway` when the service's credential is refused, `Unavailable` for
    /// whatever else is no answer.
    async fn get_url<T: DeserializeOwned>(&self, call: &'static str, url: &str) -> Result<T> {
        let begun = Instant::now();
        let request = self.services.outbound.call(Method::GET, url)?;
        let fetch = || self.token(self.arm(), &self.at.client_secret);
        let reply = self.tokens.send(request, self.at.tries, ARM, fetch).await;
        measure(call, begun, outcome(&reply.as_ref().map(Reply::status).map_err(Error::kind)));
        let reply = reply?;
        match reply.status() {
            200 => reply.read(ARM).map_err(|error| nonsense(error.text())),
            status => {
                tracing::debug!(call, status, reason = reply.reason(), "the provider refused a call");
                Err(refusal(status))
            }
        }
    }

    /// Follows the link to the next page of an answer, which has to be at the resource API.
    ///
    /// # Errors
    /// `Unavailable` for one that is not; as [`Provider::get_url`].
    pub(super) async fn next<T: DeserializeOwned>(&self, call: &'static str, link: &str) -> Result<T> {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        let own = origin(self.arm()).filter(|own| own.is_tuple());
        if own.is_none() || origin(link) != own {
            return Err(nonsense("cloudb: the provider: the link to its next page leads elsewhere"));
        }
        self.get_url(call, link).await
    }

    /// The version of the interface that a type of resources is read in, if it is known.
    pub(super) fn version(&self, kind: &str) -> Option<String> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&kind.to_lowercase()).cloned()
    }

    /// Remembers it, as far as there is room.
    pub(super) fn remember(&self, kind: &str, version: &str) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() < MOST_VERSIONS {
            versions.insert(kind.to_lowercase(), version.to_owned());
        }
    }
}

/// A base URL of the server's configuration, or the cloud's.
fn base<'u>(configured: &'u Option<String>, of_cloud: &'u str) -> &'u str {
    configured.as_deref().unwrap_or(of_cloud).trim_end_matches('/')
}

/// The error of an answer that is none; whoever logs in has done nothing wrong.
pub(super) fn nonsense(text: impl Into<String>) -> Error {
    Error::new(Kind::Unavailable, text.into())
}

fn refusal(status: u16) -> Error {
    match status {
        401 | 403 => Error::new(Kind::BadGateway, "cloudb: the provider refused the service's credential"),
        404 => Error::new(Kind::Forbidden, "resource not found"),
        _ => nonsense(format!("{ARM}: answered with status {status}")),
    }
}

fn measure(call: &'static str, begun: Instant, status: &'static str) {
    let seconds = begun.elapsed().as_secs_f64();
    histogram!(telemetry::CLOUDB_PROVIDER_CALL_SECONDS, "call" => call, "status" => status).record(seconds);
}

/// The outcome of a call for the metrics, from a closed set.
fn outcome(answer: &Result<u16, Kind>) -> &'static str {
    match answer {
        Ok(200) => "ok",
        Ok(401 | 403) | Err(Kind::BadGateway) => "refused",
        Ok(404) => "not_found",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l28_statuses_are_told_apart() {
        for (status, kind) in [
            (401, Kind::BadGateway),
            (403, Kind::BadGateway),
            (404, Kind::Forbidden),
            (302, Kind::Unavailable),
            (400, Kind::Unavailable),
        ] {
            assert_eq!(refusal(status).kind(), kind, "{status}");
        }
    }

    #[test]
    fn a_configured_place_wins_and_has_no_slash_at_its_end() {
        assert_eq!(base(&None, "https://a.example"), "https://a.example");
        assert_eq!(base(&Some("http://127.0.0.1:1/".to_owned()), "https://a.example"), "http://127.0.0.1:1");
    }
}
