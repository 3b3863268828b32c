//! Probes the store periodically, so that the beginning and the end of an outage are detected and logged even without
//! requests.

use std::sync::Arc;
use std::time::Duration;

use crate::http::state::ServerState;
use crate::telemetry::STORE_UP;
use crate::telemetry::outage::STORE_OUTAGE;

/// During an outage, the interval between two probes is divided by this.
const OUTAGE_PROBE_FACTOR: u32 = 5;

/// Probes the store until the future is dropped, every `interval` while the store responds.
pub(super) async fn watch_store(shared: Arc<ServerState>, interval: Duration) {
    // The store has responded to reads when it was opened, but no write was tried yet.
    let mut responds = true;
    shared.store_probe.try_writing();
    loop {
        metrics::gauge!(STORE_UP).set(if responds { 1.0 } else { 0.0 });
        let failing = STORE_OUTAGE.is_ongoing() || !responds;
        tokio::time::sleep(if failing { interval / OUTAGE_PROBE_FACTOR } else { interval }).await;
        responds = shared.store_probe.is_available().await;
        if responds {
            STORE_OUTAGE.record_response();
        } else {
            STORE_OUTAGE.record_failure("the probe got no response");
        }
    }
}
