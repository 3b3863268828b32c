//! The request that starts a rotation.

use std::sync::Arc;
use std::time::Duration;

use super::super::config::Config;
use super::super::graph::{Application, Graph, Password};
use super::super::method::Cloudb;
use super::super::provider::Provider;
use super::super::rotation::{Next, Rotation};
use super::super::settings::Services;
use super::super::shapes::is_subscription as is_guid;
use crate::auth::login::open::Open;
use crate::clock::Time;
use crate::error::{Error, Kind, Result, Warnings};
use crate::secret::Secret;
use crate::telemetry;

/// Maximum time for starting a rotation.
const DEADLINE: Duration = Duration::from_secs(60);

/// Has the directory create a new secret, and stores it next to the current one. A background task replaces the current
/// secret at least a minute later. The caller must poll this to completion, even if its client disconnects.
///
/// # Errors
/// `Invalid` without a configuration or an application, or while a rotation is in progress; `BadGateway` when the
/// directory rejects a call; `Unavailable` when it does not respond; store errors.
pub(crate) async fn rotate_root(services: &Arc<Services>, open: &Open<Cloudb>) -> Result<()> {
    let late = |_| Error::new(Kind::Unavailable, "cloudb: the directory did not answer in time");
    tokio::time::timeout(DEADLINE, begin(services, open)).await.map_err(late)?
}

async fn begin(services: &Arc<Services>, open: &Open<Cloudb>) -> Result<()> {
    let view = open.view();
    let config = view.config().ok_or_else(not_configured)?;
    is_free(&config.rotation)?;
    let at = Config::effective(Some(config), &services.fallback)?;
    if !is_guid(&at.client_id) {
        return Err(Error::invalid("client_id: is required, and must be a GUID"));
    }
    if at.client_secret.expose().is_empty() {
        return Err(Error::invalid("client_secret is required"));
    }
    let provider = Provider::new(Arc::clone(services), at);
    let graph = Graph::new(&provider, &provider.at.client_secret);
    let application = graph.application(&provider.at.client_id).await?;
    let now = services.clock.now();
    let name = format!("signet-{}", crate::random::uuid());
    ask(open, &name, now).await?;
    let expires = now + config.root_password_ttl;
    let made = match graph.add_password(&application, &name, expires).await {
        Ok(made) => made,
        Err(error) => {
            // A rejected request created no secret. Without a response one may exist, and is removed later by its name.
            if error.kind() != Kind::Unavailable {
                forget(open, &name).await;
            }
            return Err(error);
        }
    };
    let kept = keep(open, &name, &made, expires, services.clock.now()).await;
    // After any other error the secret may be stored. The background task decides by the stored state.
    if kept.as_ref().is_err_and(|error| error.kind() == Kind::Invalid) {
        undo(&graph, &application, &made.key_id).await;
    }
    kept
}

fn not_configured() -> Error {
    Error::invalid("config is nil")
}

fn is_free(rotation: &Rotation) -> Result<()> {
    match rotation.next {
        None => Ok(()),
        Some(_) => Err(Error::invalid("rotation already in progress")),
    }
}

/// Records a rotation in progress; rejects a second one.
async fn ask(open: &Open<Cloudb>, name: &str, at: Time) -> Result<()> {
    change(open, |rotation| {
        is_free(rotation)?;
        rotation.next = Some(Next::Asked { name: name.to_owned(), at });
        Ok(())
    })
    .await
}

/// Removes the record of a rotation, if possible. It expires in any case.
async fn forget(open: &Open<Cloudb>, name: &str) {
    let forgotten = change(open, |rotation| {
        if rotation.asks_for(name) {
            rotation.next = None;
        }
        Ok(())
    });
    if let Err(error) = forgotten.await {
        telemetry::not_done("a rotation of the secret of cloudb that was refused is still noted", &error);
    }
}

async fn keep(open: &Open<Cloudb>, name: &str, made: &Password, expires: Time, at: Time) -> Result<()> {
    let Password { secret_text, key_id } = made;
    change(open, |rotation| {
        if !rotation.asks_for(name) {
            return Err(Error::invalid("the configuration was changed while the secret was rotated"));
        }
        let (secret, key_id) = (Secret::clone(secret_text), key_id.clone());
        rotation.next = Some(Next::Made { secret, key_id, expires, at });
        Ok(())
    })
    .await
}

/// Removes a secret that could not be stored. If that fails, the background task removes it by its name.
async fn undo(graph: &Graph<'_>, application: &Application, key_id: &str) {
    if let Err(error) = graph.remove_password(application, key_id).await {
        tracing::warn!(%error, key_id, "a secret of cloudb that could not be kept is still at the directory");
    }
}

pub(super) async fn change(open: &Open<Cloudb>, edit: impl Fn(&mut Rotation) -> Result<()>) -> Result<()> {
    let merge = |standing: Option<&Config>| -> Result<(Config, Warnings)> {
        let mut config = standing.ok_or_else(not_configured)?.clone();
        edit(&mut config.rotation)?;
        Ok((config, Warnings::default()))
    };
    open.write_config(merge).await.map(drop)
}
