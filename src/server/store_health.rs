//! Probes the store periodically, so that an outage is noticed, logged and ended without requests.

use std::sync::Arc;
use std::time::Duration;

use crate::http::state::ServerState;
use crate::telemetry::STORE_UP;
use crate::telemetry::outage::STORE_OUTAGE;

/// Factor by which probes are more frequent during an outage.
const OUTAGE_PROBE_FACTOR: u32 = 5;

/// Probes the store until dropped, every `usual` interval while nothing fails.
pub(super) async fn watch_store(shared: Arc<ServerState>, usual: Duration) {
    // The store was just opened, but writes were not tried yet.
    let mut answers = true;
    shared.reach.try_writing();
    loop {
        metrics::gauge!(STORE_UP).set(if answers { 1.0 } else { 0.0 });
        let failing = STORE_OUTAGE.is_on() || !answers;
        tokio::time::sleep(if failing { usual / OUTAGE_PROBE_FACTOR } else { usual }).await;
        answers = shared.reach.is_within().await;
        if answers {
            STORE_OUTAGE.answers();
        } else {
            STORE_OUTAGE.fails("it does not answer");
        }
    }
}
