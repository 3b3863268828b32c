//! Background tasks of a running server.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::login::cloudb::SecretRotationTask;
use crate::auth::token::MAX_TOKENS_PER_SWEEP;
use crate::http::state::ServerState;
use crate::telemetry;

/// Interval between two removals of expired tokens, or of the data of deleted organizations, and before the first
/// removal.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Pause before the next removal of expired tokens if the last one reached its maximum number of tokens.
const NEXT_BATCH_DELAY: Duration = Duration::from_secs(1);
/// Interval between two checks whether a step of a secret rotation is due.
const ROTATION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two aggregations of metrics and checks for ended outages.
const METRICS_UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Removes expired tokens periodically. An expired token is rejected even before its removal, but its child tokens
/// become invalid only with the removal.
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

/// Runs the due steps of secret rotations of the authentication method `cloudb`.
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

/// Periodically aggregates the recorded metrics, and logs outages that have ended.
pub(super) async fn run_metrics_upkeep() {
    loop {
        tokio::time::sleep(METRICS_UPKEEP_INTERVAL).await;
        telemetry::run_metrics_upkeep();
        telemetry::outage::OUTAGES.log_ended();
    }
}
