//! Background tasks of a running server.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::login::cloudb::Rotations;
use crate::auth::token::MOST_SWEPT;
use crate::http::state::Shared;
use crate::telemetry;

/// Interval between two sweeps of expired tokens or of deleted organizations, and before the first.
const SWEEP: Duration = Duration::from_secs(30);
/// Interval to the next sweep if one reached its batch limit.
const GO_ON: Duration = Duration::from_secs(1);
/// Interval between two checks for rotated secrets.
const ROTATE: Duration = Duration::from_secs(1);
/// Interval of metrics upkeep and of outage checks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Removes expired tokens periodically. Requests with them are rejected anyway; their descendants end with the removal.
pub(super) async fn sweep(shared: Arc<Shared>) {
    let mut pause = SWEEP;
    loop {
        tokio::time::sleep(pause).await;
        pause = match shared.auth.sweep().await {
            Ok(swept) => {
                metrics::counter!(telemetry::TOKENS_SWEPT).increment(u64::from(swept));
                if swept > 0 {
                    shared.mounts.tokens_ended();
                }
                if swept < MOST_SWEPT { SWEEP } else { GO_ON }
            }
            Err(error) => {
                telemetry::not_done("ended tokens were not swept", &error);
                SWEEP
            }
        };
    }
}

pub(super) async fn end_organizations(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if let Err(error) = shared.projects.sweep().await {
            telemetry::not_done("what a deleted organization had was not removed", &error);
        }
    }
}

/// Completes rotations of the secrets of authentication methods.
pub(super) async fn rotate(shared: Arc<Shared>) {
    let mut rotations = Rotations::new(Arc::clone(shared.auth.logins().cloudb()));
    loop {
        rotations.step(&shared.auth).await;
        tokio::time::sleep(ROTATE).await;
    }
}

pub(super) async fn keep_keys(shared: Arc<Shared>) {
    shared.keyring.run().await;
}

pub(super) async fn follow(shared: Arc<Shared>) {
    shared.nodes.follow().await;
}

/// Aggregates recorded metrics, and logs the end of outages.
pub(super) async fn metrics() {
    loop {
        tokio::time::sleep(UPKEEP).await;
        telemetry::metrics_upkeep();
        telemetry::outage::OTHERS.look();
    }
}
