//! What mounts do by themselves now and then, while the server runs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::Mounts;
use crate::telemetry;

/// Between two looks at whether a write's end is still unknown.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Longest time between two sweeps of leases, of secret ids, and of answered requests.
const SWEEP: Duration = Duration::from_secs(30);
/// Between two looks at what tidy is due.
const TIDY: Duration = Duration::from_secs(1);
/// Between two counts of what is stored.
const COUNTS: Duration = Duration::from_secs(30);
/// How long runs of tidy may take to end.
const TIDY_END: Duration = Duration::from_millis(500);

impl Mounts {
    /// The work in the background; each of these runs until it is dropped.
    pub fn tasks(self: &Arc<Self>) -> Vec<LocalBoxFuture<'static, ()>> {
        vec![
            catch_up(self.clone()).boxed_local(),
            sweep_leases(self.clone()).boxed_local(),
            sweep_secret_ids(self.clone()).boxed_local(),
            sweep_answered(self.clone()).boxed_local(),
            tidy(self.clone()).boxed_local(),
            publish_counts(self.clone()).boxed_local(),
        ]
    }

    /// Ends runs that are under way, as far as that takes no longer than half a second: a run that takes
    /// longer leaves its turn to lapse.
    pub async fn stop(&self) {
        let _ = tokio::time::timeout(TIDY_END, self.pki.stop_tidying()).await;
    }
}

/// After writes whose end was not known: reads what is stored as soon as that can be done.
async fn catch_up(mounts: Arc<Mounts>) {
    loop {
        tokio::time::sleep(CATCH_UP).await;
        match mounts.auth.catch_up().await {
            Ok(false) => {}
            Ok(true) => mounts.close_absent(),
            Err(error) => telemetry::not_done("policies and mounts cannot be read again yet", &error),
        }
        if let Err(error) = mounts.auth.logins().catch_up().await {
            telemetry::not_done("roles of auth methods cannot be read again yet", &error);
        }
        if let Err(error) = mounts.keys.catch_up().await {
            telemetry::not_done("managed keys cannot be read again yet", &error);
        }
        if let Err(error) = mounts.pki.compromised().catch_up().await {
            telemetry::not_done("compromised keys cannot be read again yet", &error);
        }
    }
}

/// Revokes the certificates of leases that were ended, as soon as there are some, and now and then
/// whatever another node or an earlier run left; removes leases that have expired.
async fn sweep_leases(mounts: Arc<Mounts>) {
    loop {
        if let Err(error) = mounts.pki.sweep_leases().await {
            telemetry::not_done("leases were not swept", &error);
        }
        let _ = tokio::time::timeout(SWEEP, mounts.pki.leases_woken()).await;
    }
}

/// Removes secret ids that have ended: now and then, and when somebody asks for it.
async fn sweep_secret_ids(mounts: Arc<Mounts>) {
    loop {
        if let Err(error) = mounts.auth.sweep_secret_ids().await {
            telemetry::not_done("secret ids were not swept", &error);
        }
        let _ = tokio::time::timeout(SWEEP, mounts.auth.logins().sweep_woken()).await;
    }
}

/// Removes what is remembered of requests, a day after.
async fn sweep_answered(mounts: Arc<Mounts>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if let Err(error) = mounts.pki.sweep_answered().await {
            telemetry::not_done("answered requests were not swept", &error);
        }
    }
}

/// Begins the runs of tidy that are due.
async fn tidy(mounts: Arc<Mounts>) {
    loop {
        mounts.pki.tidy_due().await;
        tokio::time::sleep(TIDY).await;
    }
}

/// Publishes how much is stored.
async fn publish_counts(mounts: Arc<Mounts>) {
    loop {
        mounts.pki.publish_counts().await;
        tokio::time::sleep(COUNTS).await;
    }
}
