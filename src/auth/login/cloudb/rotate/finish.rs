//! The background task that completes rotations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::config::Config;
use super::super::graph::Graph;
use super::super::method::Cloudb;
use super::super::provider::Provider;
use super::super::rotation::Due;
use super::super::settings::Services;
use super::begin::change;
use crate::auth::Auth;
use crate::auth::login::open::Open;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::telemetry;

/// Time until a mount is tried again after a failure.
const AGAIN: Duration = Duration::from_secs(30);
/// Maximum time for one step.
const DEADLINE: Duration = Duration::from_secs(60);

/// The rotations of all mounts. Every node runs this task: each step happens once, or twice without harm.
pub(crate) struct Rotations {
    services: Arc<Services>,
    failed: HashMap<MountId, Instant>,
}

impl Rotations {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services, failed: HashMap::new() }
    }

    /// Runs the steps that are due. Called periodically.
    pub(crate) async fn step(&mut self, auth: &Auth) {
        self.failed.retain(|_, at| at.elapsed() < AGAIN);
        let mounts: Vec<MountId> = auth.mounts().iter().map(|mount| mount.id).collect();
        for mount in mounts.into_iter().filter(|mount| !self.failed.contains_key(mount)).collect::<Vec<_>>() {
            let Some(open) = auth.logins().of::<Cloudb>(mount) else { continue };
            let late = |_| Error::new(Kind::Unavailable, "cloudb: the directory did not answer in time");
            let done = tokio::time::timeout(DEADLINE, one(&self.services, &open)).await.map_err(late);
            if let Err(error) = done.and_then(|done| done) {
                telemetry::not_done("a rotated secret of cloudb is not in place yet", &error);
                self.failed.insert(mount, Instant::now());
            }
        }
    }
}

/// Runs one step of one mount, if one is due.
async fn one(services: &Arc<Services>, open: &Open<Cloudb>) -> Result<()> {
    let view = open.view();
    let Some(config) = view.config() else { return Ok(()) };
    let Some(due) = config.rotation.due(services.clock.now()) else { return Ok(()) };
    let at = Config::effective(Some(config), &services.fallback)?;
    let provider = Provider::new(Arc::clone(services), at);
    match due {
        Due::Abandoned(name) => {
            let graph = Graph::new(&provider, &provider.at.client_secret);
            let application = graph.application(&provider.at.client_id).await?;
            for key_id in application.keys_named(&name) {
                graph.remove_password(&application, &key_id).await?;
                tracing::warn!(key_id, "a secret of cloudb that nobody kept was removed at the directory");
            }
            change(open, |rotation| {
                if rotation.asks_for(&name) {
                    rotation.next = None;
                }
                Ok(())
            })
            .await
        }
        Due::Promote(secret, key_id) => {
            Graph::new(&provider, &secret).check().await?;
            promote(open, &key_id).await
        }
        Due::Retire(key_id) => {
            let graph = Graph::new(&provider, &provider.at.client_secret);
            let application = graph.application(&provider.at.client_id).await?;
            graph.remove_password(&application, &key_id).await?;
            change(open, |rotation| {
                rotation.retired.retain(|retired| *retired != key_id);
                Ok(())
            })
            .await
        }
    }
}

async fn promote(open: &Open<Cloudb>, made: &str) -> Result<()> {
    let merge = |standing: Option<&Config>| -> Result<(Config, Warnings)> {
        let mut config = standing.cloned().ok_or_else(|| Error::invalid("config is nil"))?;
        // Another node may have done it.
        if let Some(secret) = config.rotation.promote(made) {
            config.client_secret = secret;
        }
        Ok((config, Warnings::default()))
    };
    open.write_config(merge).await?;
    if open.view().config().is_some_and(|config| config.rotation.retired.is_empty()) {
        tracing::warn!("the secret of cloudb before its first rotation was made by hand: it stays at the directory");
    }
    tracing::info!("a rotated secret of cloudb is in place");
    Ok(())
}
