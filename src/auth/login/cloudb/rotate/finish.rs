//! The background task that completes rotations of this service's client secrets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::config::CloudbConfig;
use super::super::graph::GraphClient;
use super::super::method::CloudbMethod;
use super::super::provider::CloudbProvider;
use super::super::rotation::DueRotationStep;
use super::super::settings::CloudbServices;
use super::begin::update_rotation;
use crate::auth::Auth;
use crate::auth::login::method_mount::MethodMount;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::telemetry;

/// Time until the rotation of a mount's secret is tried again after a failure.
const FAILURE_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Maximum time for one step of a rotation.
const ROTATION_STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The rotation task for all mounts. It runs on every node, so two nodes may run the same step; running a step twice
/// does no harm.
pub(crate) struct SecretRotationTask {
    services: Arc<CloudbServices>,
    failed: HashMap<MountId, Instant>,
}

impl SecretRotationTask {
    pub(crate) fn new(services: Arc<CloudbServices>) -> Self {
        Self { services, failed: HashMap::new() }
    }

    /// Runs the rotation step that is due for each mount. Called periodically.
    pub(crate) async fn run_due_steps(&mut self, auth: &Auth) {
        self.failed.retain(|_, at| at.elapsed() < FAILURE_RETRY_DELAY);
        let mounts: Vec<MountId> = auth.mounts().iter().map(|mount| mount.id).collect();
        for mount in mounts.into_iter().filter(|mount| !self.failed.contains_key(mount)).collect::<Vec<_>>() {
            let Some(open) = auth.logins().method_mount::<CloudbMethod>(mount) else { continue };
            let late = |_| Error::new(Kind::Unavailable, "cloudb: the directory did not answer in time");
            let done = tokio::time::timeout(ROTATION_STEP_TIMEOUT, run_step(&self.services, &open)).await.map_err(late);
            if let Err(error) = done.and_then(|done| done) {
                telemetry::warn_task_failed("cloudb: a step of the secret rotation failed; it is retried", &error);
                self.failed.insert(mount, Instant::now());
            }
        }
    }
}

/// Runs the next rotation step of one mount, if a step is due.
async fn run_step(services: &Arc<CloudbServices>, open: &MethodMount<CloudbMethod>) -> Result<()> {
    let view = open.view();
    let Some(config) = view.config() else { return Ok(()) };
    let Some(due) = config.rotation.due_step(services.clock.now()) else { return Ok(()) };
    let effective = CloudbConfig::effective(Some(config), &services.fallback)?;
    let provider = CloudbProvider::new(Arc::clone(services), effective);
    match due {
        DueRotationStep::RemoveAbandoned(name) => {
            let graph = GraphClient::new(&provider, &provider.config.client_secret);
            let application = graph.find_application(&provider.config.client_id).await?;
            for key_id in application.key_ids_named(&name) {
                graph.remove_password(&application, &key_id).await?;
                tracing::warn!(key_id, "cloudb: an abandoned secret was removed at the directory");
            }
            update_rotation(open, |rotation| {
                if rotation.is_requesting(&name) {
                    rotation.next = None;
                }
                Ok(())
            })
            .await
        }
        DueRotationStep::Promote(secret, key_id) => {
            GraphClient::new(&provider, &secret).check().await?;
            promote(open, &key_id).await
        }
        DueRotationStep::RemoveReplaced(key_id) => {
            let graph = GraphClient::new(&provider, &provider.config.client_secret);
            let application = graph.find_application(&provider.config.client_id).await?;
            graph.remove_password(&application, &key_id).await?;
            update_rotation(open, |rotation| {
                rotation.retired.retain(|retired| *retired != key_id);
                Ok(())
            })
            .await
        }
    }
}

async fn promote(open: &MethodMount<CloudbMethod>, created_key_id: &str) -> Result<()> {
    let merge = |current: Option<&CloudbConfig>| -> Result<(CloudbConfig, Warnings)> {
        let mut config = current.cloned().ok_or_else(|| Error::invalid("config is nil"))?;
        // Another node may have replaced the current secret already.
        if let Some(secret) = config.rotation.promote(created_key_id) {
            config.client_secret = secret;
        }
        Ok((config, Warnings::default()))
    };
    open.write_config(merge).await?;
    if open.view().config().is_some_and(|config| config.rotation.retired.is_empty()) {
        tracing::warn!("cloudb: the previous secret was not created by this server; remove it at the directory");
    }
    tracing::info!("cloudb: the new client secret replaced the previous one");
    Ok(())
}
