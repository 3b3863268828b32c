//! Probes the store periodically, so that an outage is noticed, logged and ended without requests.

use std::sync::Arc;
use std::time::Duration;

use crate::http::state::Shared;
use crate::telemetry::STORE_UP;
use crate::telemetry::outage::STORE;

/// Factor by which probes are more frequent during an outage.
const FAILING: u32 = 5;

/// Probes the store until dropped, every `usual` interval while nothing fails.
pub(super) async fn store(shared: Arc<Shared>, usual: Duration) {
    // The store was just opened, but writes were not tried yet.
    let mut answers = true;
    shared.reach.try_writing();
    loop {
        metrics::gauge!(STORE_UP).set(if answers { 1.0 } else { 0.0 });
        let failing = STORE.is_on() || !answers;
        tokio::time::sleep(if failing { usual / FAILING } else { usual }).await;
        answers = shared.reach.is_within().await;
        if answers {
            STORE.answers();
        } else {
            STORE.fails("it does not answer");
        }
    }
}
