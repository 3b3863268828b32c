//! Metrics of one managed key. Their label is the key's name, which comes from an operator and not from a request.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, Histogram, counter, gauge, histogram};

use crate::error::Kind;
use crate::telemetry;

/// Handles to the metrics of one key, which are registered once.
#[derive(Clone)]
pub struct KeyMetrics {
    key: String,
    queue: Gauge,
    running: Gauge,
    idle_sessions: Gauge,
    busy_sessions: Gauge,
    stuck_sessions: Gauge,
    wait: Histogram,
    call: Histogram,
    _exported: Arc<telemetry::ExportedKey>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct SignQueueCounts {
    pub(super) waiting: usize,
    pub(super) workers: usize,
    pub(super) running: usize,
    pub(super) stuck: usize,
}

impl KeyMetrics {
    pub(super) fn new(key: &str) -> Self {
        let label = || key.to_owned();
        let sessions = |state| gauge!(telemetry::SIGNER_SESSIONS, "key" => key.to_owned(), "state" => state);
        let key_metrics = Self {
            key: label(),
            queue: gauge!(telemetry::SIGNER_QUEUE, "key" => label()),
            running: gauge!(telemetry::SIGNER_RUNNING, "key" => label()),
            idle_sessions: sessions("idle"),
            busy_sessions: sessions("busy"),
            stuck_sessions: sessions("stuck"),
            wait: histogram!(telemetry::SIGNER_WAIT_SECONDS, "key" => label()),
            call: histogram!(telemetry::SIGNER_CALL_SECONDS, "key" => label()),
            _exported: Arc::new(telemetry::ExportedKey::new(key)),
        };
        for kind in ["busy", "unavailable", "refused", "invalid", "wrong", "changed", "internal"] {
            counter!(telemetry::SIGNER_ERRORS, "key" => label(), "kind" => kind).increment(0);
        }
        for cause in ["session", "login", "token", "module", "device"] {
            counter!(telemetry::SIGNER_RECOVERIES, "key" => label(), "cause" => cause).increment(0);
        }
        key_metrics.set_gauges(SignQueueCounts::default());
        key_metrics
    }

    pub(super) fn set_gauges(&self, counts: SignQueueCounts) {
        let SignQueueCounts { waiting, workers, running, stuck } = counts;
        self.queue.set(waiting as f64);
        self.running.set(running as f64);
        self.idle_sessions.set(workers.saturating_sub(running) as f64);
        self.busy_sessions.set(running.saturating_sub(stuck) as f64);
        self.stuck_sessions.set(stuck as f64);
    }

    pub(super) fn record_wait(&self, time: Duration) {
        self.wait.record(time);
    }

    pub(super) fn record_call_time(&self, time: Duration) {
        self.call.record(time);
    }

    pub(super) fn count_failure(&self, kind: Kind) {
        self.count_error(match kind {
            Kind::Busy => "busy",
            Kind::Unavailable => "unavailable",
            Kind::BadGateway => "refused",
            Kind::Internal => "internal",
            _ => "invalid",
        });
    }

    pub(super) fn count_wrong_signature(&self) {
        self.count_error("wrong");
    }

    /// Counts a request for which the backend has another key than the expected one.
    pub(super) fn count_changed_key(&self) {
        self.count_error("changed");
    }

    fn count_error(&self, kind: &'static str) {
        counter!(telemetry::SIGNER_ERRORS, "key" => self.key.clone(), "kind" => kind).increment(1);
    }

    /// Counts a recovery of the backend after a failure. `cause` is one of a fixed set of words.
    pub fn count_recovery(&self, cause: &'static str) {
        counter!(telemetry::SIGNER_RECOVERIES, "key" => self.key.clone(), "cause" => cause).increment(1);
    }
}
