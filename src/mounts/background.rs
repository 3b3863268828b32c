//! Periodic background tasks for all mounts.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::Mounts;
use crate::telemetry;

/// Interval at which a task checks for writes with an unknown outcome.
const UNKNOWN_WRITE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum interval between two sweeps of leases, of secret ids, and of responses recorded for idempotency keys.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which a task checks if automatic tidy runs are due.
const TIDY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which stored objects are counted for metrics.
const OBJECT_COUNT_INTERVAL: Duration = Duration::from_secs(30);
/// Time that tidy runs in progress have to stop at shutdown.
const TIDY_STOP_TIMEOUT: Duration = Duration::from_millis(500);

impl Mounts {
    /// Returns the background tasks as futures; each runs until it is dropped.
    pub fn tasks(self: &Arc<Self>) -> Vec<LocalBoxFuture<'static, ()>> {
        vec![
            reload_after_unknown_writes(self.clone()).boxed_local(),
            sweep_leases(self.clone()).boxed_local(),
            sweep_secret_ids(self.clone()).boxed_local(),
            sweep_recorded_responses(self.clone()).boxed_local(),
            run_due_tidies(self.clone()).boxed_local(),
            publish_counts(self.clone()).boxed_local(),
        ]
    }

    /// Stops tidy runs in progress, and waits at most half a second for them. If a run takes longer, its cluster-wide
    /// lease expires by itself.
    pub async fn stop(&self) {
        let _ = tokio::time::timeout(TIDY_STOP_TIMEOUT, self.pki.stop_tidy_runs()).await;
    }
}

/// Reloads policies, mounts, roles and keys after a write failed with an unknown outcome.
async fn reload_after_unknown_writes(mounts: Arc<Mounts>) {
    loop {
        tokio::time::sleep(UNKNOWN_WRITE_CHECK_INTERVAL).await;
        match mounts.auth.reload_after_unknown_write().await {
            Ok(false) => {}
            Ok(true) => mounts.close_unmounted(),
            Err(error) => telemetry::warn_task_failed("reload of policies and mounts failed; it is retried", &error),
        }
        if let Err(error) = mounts.auth.logins().reload_after_unknown_write().await {
            telemetry::warn_task_failed("reload of the roles of auth methods failed; it is retried", &error);
        }
        if let Err(error) = mounts.keys.catch_up().await {
            telemetry::warn_task_failed("reload of managed keys failed; it is retried", &error);
        }
        if let Err(error) = mounts.pki.compromised().catch_up().await {
            telemetry::warn_task_failed("reload of compromised keys failed; it is retried", &error);
        }
    }
}

/// Revokes the certificates of leases whose token has ended, when notified and periodically. Deletes expired leases.
async fn sweep_leases(mounts: Arc<Mounts>) {
    loop {
        if let Err(error) = mounts.pki.sweep_leases().await {
            telemetry::warn_task_failed("revocation and deletion of ended leases failed; it is retried", &error);
        }
        let _ = tokio::time::timeout(MAX_SWEEP_INTERVAL, mounts.pki.wait_for_leases_to_revoke()).await;
    }
}

/// Deletes expired secret ids periodically and on request.
async fn sweep_secret_ids(mounts: Arc<Mounts>) {
    loop {
        if let Err(error) = mounts.auth.sweep_secret_ids().await {
            telemetry::warn_task_failed("deletion of expired secret ids failed; it is retried", &error);
        }
        let _ = tokio::time::timeout(MAX_SWEEP_INTERVAL, mounts.auth.logins().wait_for_sweep()).await;
    }
}

/// Deletes expired responses that are recorded for idempotency keys.
async fn sweep_recorded_responses(mounts: Arc<Mounts>) {
    loop {
        tokio::time::sleep(MAX_SWEEP_INTERVAL).await;
        if let Err(error) = mounts.pki.sweep_recorded_responses().await {
            telemetry::warn_task_failed(
                "deletion of expired responses recorded for idempotency keys failed; it is retried",
                &error,
            );
        }
    }
}

async fn run_due_tidies(mounts: Arc<Mounts>) {
    loop {
        mounts.pki.start_due_tidy_runs().await;
        tokio::time::sleep(TIDY_CHECK_INTERVAL).await;
    }
}

async fn publish_counts(mounts: Arc<Mounts>) {
    loop {
        mounts.pki.publish_row_counts().await;
        tokio::time::sleep(OBJECT_COUNT_INTERVAL).await;
    }
}
