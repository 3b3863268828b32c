//! Whether the store answers: measured while nobody asks, so that an outage is seen, told and over without a request.

use std::sync::Arc;
use std::time::Duration;

use crate::http::state::Shared;
use crate::telemetry::STORE_UP;
use crate::telemetry::outage::STORE;

/// How much more often it looks while something fails.
const FAILING: u32 = 5;

/// Looks for as long as it is polled, in the `usual` intervals while nothing fails.
pub(super) async fn store(shared: Arc<Shared>, usual: Duration) {
    // It was opened a moment ago; whether it takes writes has not shown yet.
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
