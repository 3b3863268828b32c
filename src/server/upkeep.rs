//! Background tasks of a running server.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::login::cloudb::SecretRotationTask;
use crate::auth::token::MAX_TOKENS_PER_SWEEP;
use crate::http::state::ServerState;
use crate::telemetry;

/// Interval between two sweeps of expired tokens or of deleted organizations, and before the first.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Interval to the next sweep if one reached its batch limit.
const NEXT_BATCH_DELAY: Duration = Duration::from_secs(1);
/// Interval between two checks for rotated secrets.
const ROTATION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of metrics upkeep and of outage checks.
const METRICS_UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Removes expired tokens periodically. Expired tokens are rejected in any case, but tokens created with them end only
/// with the removal.
pub(super) async fn sweep_tokens(shared: Arc<ServerState>) {
    let mut pause = SWEEP_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        pause = match shared.auth.sweep().await {
            Ok(swept) => {
                metrics::counter!(telemetry::TOKENS_SWEPT).increment(u64::from(swept));
                if swept > 0 {
                    shared.mounts.notify_tokens_ended();
                }
                if swept < MAX_TOKENS_PER_SWEEP { SWEEP_INTERVAL } else { NEXT_BATCH_DELAY }
            }
            Err(error) => {
                telemetry::warn_task_failed("expired tokens were not removed", &error);
                SWEEP_INTERVAL
            }
        };
    }
}

pub(super) async fn sweep_organizations(shared: Arc<ServerState>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        if let Err(error) = shared.projects.sweep().await {
            telemetry::warn_task_failed("the data of a deleted organization could not be removed", &error);
        }
    }
}

/// Completes rotations of the secrets of authentication methods.
pub(super) async fn rotate_secrets(shared: Arc<ServerState>) {
    let mut rotations = SecretRotationTask::new(Arc::clone(shared.auth.logins().cloudb()));
    loop {
        rotations.run_due_steps(&shared.auth).await;
        tokio::time::sleep(ROTATION_CHECK_INTERVAL).await;
    }
}

pub(super) async fn run_keyring(shared: Arc<ServerState>) {
    shared.keyring.run().await;
}

pub(super) async fn follow_changes(shared: Arc<ServerState>) {
    shared.nodes.follow_changes().await;
}

/// Aggregates recorded metrics, and logs the end of outages.
pub(super) async fn run_metrics_upkeep() {
    loop {
        tokio::time::sleep(METRICS_UPKEEP_INTERVAL).await;
        telemetry::run_metrics_upkeep();
        telemetry::outage::OUTAGES.log_ended();
    }
}
