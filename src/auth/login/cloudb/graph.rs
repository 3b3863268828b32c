//! Client of the directory's application API, which creates and removes the client secrets of an application.

use serde::Deserialize;
use serde_json::json;

use super::arm_id::percent_encode;
use super::provider::{CloudbProvider, invalid_response};
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Kind, Result};
use crate::outbound::{AccessTokenCache, Method, OutboundResponse, RetryPolicy};
use crate::secret::{Secret, sealed};

const GRAPH_API_NAME: &str = "cloudb: the directory API";

/// Calls the application API and authenticates with one of the application's client secrets.
pub(super) struct GraphClient<'p> {
    provider: &'p CloudbProvider,
    client_secret: &'p Secret,
    tokens: AccessTokenCache,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Application {
    id: String,
    #[serde(default)]
    password_credentials: Vec<PasswordCredential>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PasswordCredential {
    key_id: String,
    display_name: Option<String>,
}

#[derive(Deserialize)]
struct Applications {
    value: Vec<Application>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewPassword {
    #[serde(with = "sealed")]
    pub(super) secret_text: Secret,
    pub(super) key_id: String,
}

impl Application {
    pub(super) fn key_ids_named(&self, name: &str) -> Vec<String> {
        let named = self.password_credentials.iter().filter(|secret| secret.display_name.as_deref() == Some(name));
        named.map(|secret| secret.key_id.clone()).collect()
    }
}

impl<'p> GraphClient<'p> {
    pub(super) fn new(provider: &'p CloudbProvider, client_secret: &'p Secret) -> Self {
        Self { provider, client_secret, tokens: AccessTokenCache::default() }
    }

    /// Checks that the directory accepts the client secret.
    ///
    /// # Errors
    /// `BadGateway` when the directory rejects it; `Unavailable` when the directory does not respond.
    pub(super) async fn check(&self) -> Result<()> {
        self.provider.token(self.provider.graph_url(), self.client_secret).await.map(drop)
    }

    /// Finds the application with this client id, a GUID.
    ///
    /// # Errors
    /// `Invalid` unless exactly one application has the id; `BadGateway` when the directory rejects this service's
    /// credential; `Unavailable` when the directory does not respond.
    pub(super) async fn find_application(&self, client_id: &str) -> Result<Application> {
        let filter = percent_encode(&format!("appId eq '{client_id}'"));
        let path = format!("/v1.0/applications?$filter={filter}");
        let reply = self.send(Method::GET, &path, None, self.provider.config.retry_policy).await?;
        let mut found: Applications = reply.read(GRAPH_API_NAME).map_err(|error| invalid_response(error.text()))?;
        match (found.value.pop(), found.value.is_empty()) {
            (Some(application), true) => Ok(application),
            (None, _) => Err(Error::invalid("no application found")),
            (Some(_), false) => Err(Error::invalid("multiple applications found - double check your client_id")),
        }
    }

    /// Creates a client secret. The request is sent only once, because a retry could create a second secret.
    ///
    /// # Errors
    /// As [`GraphClient::find_application`]. After `Unavailable` the secret may exist.
    pub(super) async fn add_password(&self, application: &Application, name: &str, until: Time) -> Result<NewPassword> {
        let path = format!("/v1.0/applications/{}/addPassword", percent_encode(&application.id));
        let body = json!({"passwordCredential": {"displayName": name, "endDateTime": format_rfc3339(until)}});
        let reply = self.send(Method::POST, &path, Some(&body), RetryPolicy::SINGLE_ATTEMPT).await?;
        let created: NewPassword = reply.read(GRAPH_API_NAME).map_err(|error| invalid_response(error.text()))?;
        match created.secret_text.expose().is_empty() || created.key_id.is_empty() {
            true => Err(invalid_response(format!("{GRAPH_API_NAME}: the response contains no secret"))),
            false => Ok(created),
        }
    }

    /// Removes the client secret with this key id. Succeeds if the secret no longer exists.
    ///
    /// # Errors
    /// As [`GraphClient::find_application`].
    pub(super) async fn remove_password(&self, application: &Application, key_id: &str) -> Result<()> {
        let path = format!("/v1.0/applications/{}/removePassword", percent_encode(&application.id));
        let body = json!({ "keyId": key_id });
        let is_known = application.password_credentials.iter().any(|secret| secret.key_id == key_id);
        match self.send(Method::POST, &path, Some(&body), self.provider.config.retry_policy).await {
            Err(error) if error.kind() == Kind::NotFound || (error.kind() == Kind::Invalid && !is_known) => Ok(()),
            done => done.map(drop),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        tries: RetryPolicy,
    ) -> Result<OutboundResponse> {
        let call = self.provider.services.outbound.request(method, &format!("{}{path}", self.provider.graph_url()))?;
        let call = if let Some(body) = body { call.json(body) } else { call };
        let fetch = || self.provider.token(self.provider.graph_url(), self.client_secret);
        let reply = self.tokens.send(call, tries, GRAPH_API_NAME, fetch).await?;
        let status = reply.status();
        if matches!(status, 200 | 201 | 204) {
            return Ok(reply);
        }
        tracing::debug!(status, reason = reply.error_code(), "the directory rejected a request for an application");
        Err(match status {
            401 | 403 => Error::new(Kind::BadGateway, format!("{GRAPH_API_NAME}: refused the service's credential")),
            404 => {
                Error::new(Kind::NotFound, format!("{GRAPH_API_NAME}: the application or its secret no longer exists"))
            }
            400 => Error::invalid(format!("{GRAPH_API_NAME}: rejected the request (status 400)")),
            _ => invalid_response(format!("{GRAPH_API_NAME}: answered with status {status}")),
        })
    }
}
