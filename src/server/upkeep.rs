//! What a server does besides answering, for as long as it runs.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::login::cloudb::Rotations;
use crate::auth::token::MOST_SWEPT;
use crate::http::state::Shared;
use crate::telemetry;

/// Between two sweeps, of ended tokens or of deleted organizations, and before the first.
const SWEEP: Duration = Duration::from_secs(30);
/// Before a sweep that goes on where the last one stopped.
const GO_ON: Duration = Duration::from_secs(1);
/// Between two looks at which rotated secrets are due.
const ROTATE: Duration = Duration::from_secs(1);
/// Between two upkeeps of the metrics, and two looks at what failed.
const UPKEEP: Duration = Duration::from_secs(5);

/// Removes ended tokens now and then. They are refused from the moment they end, and their descendants from the moment
/// their rows go.
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

/// Removes what deleted organizations had.
pub(super) async fn end_organizations(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if let Err(error) = shared.projects.sweep().await {
            telemetry::not_done("what a deleted organization had was not removed", &error);
        }
    }
}

/// Brings rotated secrets of authentication methods into their places.
pub(super) async fn rotate(shared: Arc<Shared>) {
    let mut rotations = Rotations::new(Arc::clone(shared.auth.logins().cloudb()));
    loop {
        rotations.step(&shared.auth).await;
        tokio::time::sleep(ROTATE).await;
    }
}

/// Looks after the data keys of the store.
pub(super) async fn keep_keys(shared: Arc<Shared>) {
    shared.keyring.run().await;
}

/// Follows the other nodes of the database.
pub(super) async fn follow(shared: Arc<Shared>) {
    shared.nodes.follow().await;
}

/// Moves what was measured into its place, and tells what is out of reach no more.
pub(super) async fn metrics() {
    loop {
        tokio::time::sleep(UPKEEP).await;
        telemetry::metrics_upkeep();
        telemetry::outage::OTHERS.look();
    }
}
