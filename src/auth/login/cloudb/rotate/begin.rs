//! The request that starts the rotation of this service's client secret.

use std::sync::Arc;
use std::time::Duration;

use super::super::config::CloudbConfig;
use super::super::graph::{Application, GraphClient, NewPassword};
use super::super::method::CloudbMethod;
use super::super::provider::CloudbProvider;
use super::super::request::is_guid;
use super::super::rotation::{PendingSecret, SecretRotation};
use super::super::settings::CloudbServices;
use crate::auth::login::method_mount::MethodMount;
use crate::clock::Time;
use crate::error::{Error, Kind, Result, Warnings};
use crate::secret::Secret;
use crate::telemetry;

/// Maximum time for a request to start a rotation, including its calls to the directory.
const ROTATION_START_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests a new client secret from the directory, and stores it next to the current one. A background task replaces
/// the current secret at least a minute later. The caller must poll the future to completion, even if its HTTP client
/// disconnects; otherwise the new secret may be lost.
///
/// # Errors
/// `Invalid` without a configuration or an application, or while a rotation is in progress; `BadGateway` when the
/// directory rejects a call; `Unavailable` when the directory does not respond; store errors.
pub(crate) async fn rotate_root(services: &Arc<CloudbServices>, open: &MethodMount<CloudbMethod>) -> Result<()> {
    let late = |_| Error::new(Kind::Unavailable, "cloudb: the directory did not answer in time");
    tokio::time::timeout(ROTATION_START_TIMEOUT, start_rotation(services, open)).await.map_err(late)?
}

async fn start_rotation(services: &Arc<CloudbServices>, open: &MethodMount<CloudbMethod>) -> Result<()> {
    let view = open.view();
    let config = view.config().ok_or_else(not_configured)?;
    require_no_rotation(&config.rotation)?;
    let effective = CloudbConfig::effective(Some(config), &services.fallback)?;
    if !is_guid(&effective.client_id) {
        return Err(Error::invalid("client_id: is required, and must be a GUID"));
    }
    if effective.client_secret.expose().is_empty() {
        return Err(Error::invalid("client_secret is required"));
    }
    let provider = CloudbProvider::new(Arc::clone(services), effective);
    let graph = GraphClient::new(&provider, &provider.config.client_secret);
    let application = graph.find_application(&provider.config.client_id).await?;
    let now = services.clock.now();
    let name = format!("signet-{}", crate::random::uuid());
    record_rotation_request(open, &name, now).await?;
    let expires = now + config.root_password_ttl;
    let created = match graph.add_password(&application, &name, expires).await {
        Ok(created) => created,
        Err(error) => {
            // If the directory rejected the request, it created no secret. If it did not respond, a secret may exist,
            // and the background task removes the secret by its name.
            if error.kind() != Kind::Unavailable {
                clear_rotation_request(open, &name).await;
            }
            return Err(error);
        }
    };
    let stored = store_secret(open, &name, &created, expires, services.clock.now()).await;
    // `Invalid` means that the secret is not stored. After any other error the secret may be stored, and the background
    // task acts on the stored state.
    if stored.as_ref().is_err_and(|error| error.kind() == Kind::Invalid) {
        remove_secret(&graph, &application, &created.key_id).await;
    }
    stored
}

fn not_configured() -> Error {
    Error::invalid("config is nil")
}

fn require_no_rotation(rotation: &SecretRotation) -> Result<()> {
    match rotation.next {
        None => Ok(()),
        Some(_) => Err(Error::invalid("rotation already in progress")),
    }
}

/// Records that a rotation is in progress; rejects a second rotation.
async fn record_rotation_request(open: &MethodMount<CloudbMethod>, name: &str, at: Time) -> Result<()> {
    update_rotation(open, |rotation| {
        require_no_rotation(rotation)?;
        rotation.next = Some(PendingSecret::Requested { name: name.to_owned(), at });
        Ok(())
    })
    .await
}

/// Tries to remove the record that a rotation is in progress. If that fails, the record expires after five minutes.
async fn clear_rotation_request(open: &MethodMount<CloudbMethod>, name: &str) {
    let forgotten = update_rotation(open, |rotation| {
        if rotation.is_requesting(name) {
            rotation.next = None;
        }
        Ok(())
    });
    if let Err(error) = forgotten.await {
        telemetry::warn_task_failed(
            "cloudb: the record of a failed secret rotation was not removed; it expires in 5 minutes",
            &error,
        );
    }
}

async fn store_secret(
    open: &MethodMount<CloudbMethod>,
    name: &str,
    created: &NewPassword,
    expires: Time,
    at: Time,
) -> Result<()> {
    let NewPassword { secret_text, key_id } = created;
    update_rotation(open, |rotation| {
        if !rotation.is_requesting(name) {
            return Err(Error::invalid(
                "cloudb: the configuration changed during the secret rotation; start the rotation again",
            ));
        }
        let secret = Secret::clone(secret_text);
        let key_id = key_id.clone();
        rotation.next = Some(PendingSecret::Created { secret, key_id, expires, at });
        Ok(())
    })
    .await
}

/// Removes from the directory a secret that could not be stored. If that fails, the background task removes the secret
/// by its name.
async fn remove_secret(graph: &GraphClient<'_>, application: &Application, key_id: &str) {
    if let Err(error) = graph.remove_password(application, key_id).await {
        tracing::warn!(%error, key_id, "cloudb: an unused secret remains at the directory; its removal is retried");
    }
}

pub(super) async fn update_rotation(
    open: &MethodMount<CloudbMethod>,
    edit: impl Fn(&mut SecretRotation) -> Result<()>,
) -> Result<()> {
    let merge = |current: Option<&CloudbConfig>| -> Result<(CloudbConfig, Warnings)> {
        let mut config = current.ok_or_else(not_configured)?.clone();
        edit(&mut config.rotation)?;
        Ok((config, Warnings::default()))
    };
    open.write_config(merge).await.map(drop)
}
