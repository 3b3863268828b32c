//! Client of the directory's application API, which creates and removes an application's secrets.

use serde::Deserialize;
use serde_json::json;

use super::arm_id::encoded;
use super::provider::{Provider, nonsense};
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Kind, Result};
use crate::outbound::{Method, Reply, Tokens, Tries};
use crate::secret::{Secret, sealed};

const GRAPH: &str = "cloudb: the directory's applications";

/// The API, authenticated with one of the application's secrets.
pub(super) struct Graph<'p> {
    provider: &'p Provider,
    client_secret: &'p Secret,
    tokens: Tokens,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Application {
    id: String,
    #[serde(default)]
    password_credentials: Vec<Credential>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    key_id: String,
    display_name: Option<String>,
}

#[derive(Deserialize)]
struct Applications {
    value: Vec<Application>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Password {
    #[serde(with = "sealed")]
    pub(super) secret_text: Secret,
    pub(super) key_id: String,
}

impl Application {
    pub(super) fn keys_named(&self, name: &str) -> Vec<String> {
        let own = self.password_credentials.iter().filter(|secret| secret.display_name.as_deref() == Some(name));
        own.map(|secret| secret.key_id.clone()).collect()
    }
}

impl<'p> Graph<'p> {
    pub(super) fn new(provider: &'p Provider, client_secret: &'p Secret) -> Self {
        Self { provider, client_secret, tokens: Tokens::default() }
    }

    /// Checks that the directory accepts the secret.
    ///
    /// # Errors
    /// `BadGateway` when it does not; `Unavailable` when it does not respond.
    pub(super) async fn check(&self) -> Result<()> {
        self.provider.token(self.provider.graph(), self.client_secret).await.map(drop)
    }

    /// Finds the application with this client id, a GUID.
    ///
    /// # Errors
    /// `Invalid` unless there is exactly one; `BadGateway` for a rejected credential; `Unavailable` without a response.
    pub(super) async fn application(&self, client_id: &str) -> Result<Application> {
        let filter = encoded(&format!("appId eq '{client_id}'"));
        let path = format!("/v1.0/applications?$filter={filter}");
        let reply = self.send(Method::GET, &path, None, self.provider.at.tries).await?;
        let mut found: Applications = reply.read(GRAPH).map_err(|error| nonsense(error.text()))?;
        match (found.value.pop(), found.value.is_empty()) {
            (Some(application), true) => Ok(application),
            (None, _) => Err(Error::invalid("no application found")),
            (Some(_), false) => Err(Error::invalid("multiple applications found - double check your client_id")),
        }
    }

    /// Creates a secret. Sent once, because a retry would create another one.
    ///
    /// # Errors
    /// As [`Graph::application`]. After `Unavailable` the secret may exist.
    pub(super) async fn add_password(&self, application: &Application, name: &str, until: Time) -> Result<Password> {
        let path = format!("/v1.0/applications/{}/addPassword", encoded(&application.id));
        let body = json!({"passwordCredential": {"displayName": name, "endDateTime": rfc3339(until)}});
        let reply = self.send(Method::POST, &path, Some(&body), Tries::ONE).await?;
        let made: Password = reply.read(GRAPH).map_err(|error| nonsense(error.text()))?;
        match made.secret_text.expose().is_empty() || made.key_id.is_empty() {
            true => Err(nonsense(format!("{GRAPH}: the new secret is empty"))),
            false => Ok(made),
        }
    }

    /// Removes a secret; succeeds if it does not exist any more.
    ///
    /// # Errors
    /// As [`Graph::application`].
    pub(super) async fn remove_password(&self, application: &Application, key_id: &str) -> Result<()> {
        let path = format!("/v1.0/applications/{}/removePassword", encoded(&application.id));
        let body = json!({ "keyId": key_id });
        let is_known = application.password_credentials.iter().any(|secret| secret.key_id == key_id);
        match self.send(Method::POST, &path, Some(&body), self.provider.at.tries).await {
            Err(error) if error.kind() == Kind::NotFound || (error.kind() == Kind::Invalid && !is_known) => Ok(()),
            done => done.map(drop),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&serde_json::Value>, tries: Tries) -> Result<Reply> {
        let call = self.provider.services.outbound.call(method, &format!("{}{path}", self.provider.graph()))?;
        let call = if let Some(body) = body { call.json(body) } else { call };
        let fetch = || self.provider.token(self.provider.graph(), self.client_secret);
        let reply = self.tokens.send(call, tries, GRAPH, fetch).await?;
        let status = reply.status();
        if matches!(status, 200 | 201 | 204) {
            return Ok(reply);
        }
        tracing::debug!(status, reason = reply.reason(), "the directory refused a call about an application");
        Err(match status {
            401 | 403 => Error::new(Kind::BadGateway, format!("{GRAPH}: refused the service's credential")),
            404 => Error::new(Kind::NotFound, format!("{GRAPH}: the application or its secret is not there any more")),
            400 => Error::invalid(format!("{GRAPH}: refused the request")),
            _ => nonsense(format!("{GRAPH}: answered with status {status}")),
        })
    }
}
