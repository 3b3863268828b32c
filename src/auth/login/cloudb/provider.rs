//! Client of the cloud provider's resource API, authenticated with this service's access token. Each written
//! configuration has its own client.
//!
//! Error texts of the provider are logged and not returned. Redirects and links to other hosts are not followed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use metrics::histogram;
use serde::de::DeserializeOwned;
use url::Url;

use super::config::EffectiveCloudbConfig;
use super::settings::CloudbServices;
use crate::error::{Error, Kind, Result};
use crate::outbound::cloudb::{CloudbTokenRequest, IMDS_URL};
use crate::outbound::{AccessToken, AccessTokenCache, Method, OutboundResponse};
use crate::secret::Secret;
use crate::telemetry;

/// Name of the method, used as prefix of error messages.
pub(super) const METHOD_NAME: &str = "cloudb";
const ARM_API_NAME: &str = "cloudb: the provider";

/// Maximum number of resource types whose API version is cached.
const MAX_CACHED_API_VERSIONS: usize = 1000;

/// The provider's endpoints, and caches of access tokens and API versions, for one written configuration.
pub(super) struct CloudbProvider {
    pub(super) services: Arc<CloudbServices>,
    pub(super) config: EffectiveCloudbConfig,
    tokens: AccessTokenCache,
    /// API versions by resource type, in lower case.
    versions: Mutex<HashMap<String, String>>,
}

impl CloudbProvider {
    pub(super) fn new(services: Arc<CloudbServices>, config: EffectiveCloudbConfig) -> Self {
        Self { services, config, tokens: AccessTokenCache::default(), versions: Mutex::default() }
    }

    pub(super) fn authority_url(&self) -> &str {
        api_base_url(&self.services.urls.authority, self.config.cloud.authority)
    }

    /// Base URL of the resource API.
    pub(super) fn arm_url(&self) -> &str {
        api_base_url(&self.services.urls.arm, self.config.cloud.arm)
    }

    pub(super) fn graph_url(&self) -> &str {
        api_base_url(&self.services.urls.graph, self.config.cloud.graph)
    }

    /// Fetches an access token for the API at `resource`. Authenticates with the application's client secret or, if it
    /// is empty, with the identity of the machine on which this server runs.
    ///
    /// # Errors
    /// As [`CloudbTokenRequest::fetch`].
    pub(super) async fn token(&self, resource: &str, client_secret: &Secret) -> Result<AccessToken> {
        let begun = Instant::now();
        let credential = CloudbTokenRequest {
            outbound: &self.services.outbound,
            authority: self.authority_url(),
            imds: api_base_url(&self.services.urls.imds, IMDS_URL),
            tenant: &self.config.tenant,
            client_id: &self.config.client_id,
            client_secret,
            resource,
            tries: self.config.retry_policy,
            error_prefix: METHOD_NAME,
        };
        let token = credential.fetch().await;
        record_call("token", begun, result_label(&token.as_ref().map(|_| 200).map_err(Error::kind)));
        token
    }

    /// Fetches a path of the resource API; `call` is a metrics label.
    ///
    /// # Errors
    /// As [`CloudbProvider::get_url`].
    pub(super) async fn get<T: DeserializeOwned>(&self, call: &'static str, path: &str) -> Result<T> {
        self.get_url(call, &format!("{}{path}", self.arm_url())).await
    }

    /// Fetches a URL of the resource API; `call` is a metrics label.
    ///
    /// # Errors
    /// `Forbidden` when the resource does not exist; `BadGateway` when the provider rejects this service's credential;
    /// `Unavailable` otherwise.
    async fn get_url<T: DeserializeOwned>(&self, call: &'static str, url: &str) -> Result<T> {
        let begun = Instant::now();
        let request = self.services.outbound.request(Method::GET, url)?;
        let fetch = || self.token(self.arm_url(), &self.config.client_secret);
        let reply = self.tokens.send(request, self.config.retry_policy, ARM_API_NAME, fetch).await;
        record_call(call, begun, result_label(&reply.as_ref().map(OutboundResponse::status).map_err(Error::kind)));
        let reply = reply?;
        match reply.status() {
            200 => reply.read(ARM_API_NAME).map_err(|error| invalid_response(error.text())),
            status => {
                tracing::debug!(call, status, reason = reply.error_code(), "the provider refused a call");
                Err(rejected_call(status))
            }
        }
    }

    /// Fetches the next page of a list from `link`, which must have the origin of the resource API.
    ///
    /// # Errors
    /// `Unavailable` for a link to another origin; the errors of [`CloudbProvider::get_url`].
    pub(super) async fn get_next_page<T: DeserializeOwned>(&self, call: &'static str, link: &str) -> Result<T> {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        let api_origin = origin(self.arm_url()).filter(|api_origin| api_origin.is_tuple());
        if api_origin.is_none() || origin(link) != api_origin {
            return Err(invalid_response(
                "cloudb: the provider: the next-page link in the response has another origin than the API",
            ));
        }
        self.get_url(call, link).await
    }

    pub(super) fn cached_api_version(&self, kind: &str) -> Option<String> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&kind.to_lowercase()).cloned()
    }

    /// Caches the API version of a resource type, unless the cache is full.
    pub(super) fn cache_api_version(&self, kind: &str, version: &str) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() < MAX_CACHED_API_VERSIONS {
            versions.insert(kind.to_lowercase(), version.to_owned());
        }
    }
}

fn api_base_url<'u>(configured: &'u Option<String>, of_cloud: &'u str) -> &'u str {
    configured.as_deref().unwrap_or(of_cloud).trim_end_matches('/')
}

/// The error for an invalid response of the provider. It is `Unavailable`, because the client's request is not the
/// cause.
pub(super) fn invalid_response(text: impl Into<String>) -> Error {
    Error::new(Kind::Unavailable, text.into())
}

fn rejected_call(status: u16) -> Error {
    match status {
        401 | 403 => Error::new(Kind::BadGateway, "cloudb: the provider refused the service's credential"),
        404 => Error::new(Kind::Forbidden, "resource not found"),
        _ => invalid_response(format!("{ARM_API_NAME}: answered with status {status}")),
    }
}

fn record_call(call: &'static str, begun: Instant, status: &'static str) {
    let seconds = begun.elapsed().as_secs_f64();
    histogram!(telemetry::CLOUDB_PROVIDER_CALL_SECONDS, "call" => call, "status" => status).record(seconds);
}

/// Returns the metrics label for the result of a call.
fn result_label(answer: &Result<u16, Kind>) -> &'static str {
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
    fn rejected_call_status_decides_the_error_kind() {
        for (status, kind) in [
            (401, Kind::BadGateway),
            (403, Kind::BadGateway),
            (404, Kind::Forbidden),
            (302, Kind::Unavailable),
            (400, Kind::Unavailable),
        ] {
            assert_eq!(rejected_call(status).kind(), kind, "{status}");
        }
    }

    #[test]
    fn configured_api_url_wins_and_loses_its_trailing_slash() {
        assert_eq!(api_base_url(&None, "https://a.example"), "https://a.example");
        assert_eq!(api_base_url(&Some("http://127.0.0.1:1/".to_owned()), "https://a.example"), "http://127.0.0.1:1");
    }
}
