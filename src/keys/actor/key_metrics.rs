//! Metrics of one managed key. Their label is the name of the key, which an operator chose.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, Histogram, counter, gauge, histogram};

use crate::error::Kind;
use crate::telemetry;

/// Metrics of one key, registered once.
#[derive(Clone)]
pub struct KeyMetrics {
    key: String,
    queue: Gauge,
    running: Gauge,
    sessions: [(Gauge, SessionMetricState); 3],
    wait: Histogram,
    call: Histogram,
    _exported: Arc<telemetry::ExportedKey>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionMetricState {
    Idle,
    Busy,
    Stuck,
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
        let sessions = [
            ("idle", SessionMetricState::Idle),
            ("busy", SessionMetricState::Busy),
            ("stuck", SessionMetricState::Stuck),
        ];
        let meter = Self {
            key: label(),
            queue: gauge!(telemetry::SIGNER_QUEUE, "key" => label()),
            running: gauge!(telemetry::SIGNER_RUNNING, "key" => label()),
            sessions: sessions
                .map(|(word, state)| (gauge!(telemetry::SIGNER_SESSIONS, "key" => label(), "state" => word), state)),
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
        meter.show(SignQueueCounts::default());
        meter
    }

    pub(super) fn show(&self, counts: SignQueueCounts) {
        let SignQueueCounts { waiting, workers, running, stuck } = counts;
        self.queue.set(waiting as f64);
        self.running.set(running as f64);
        for (gauge, state) in &self.sessions {
            gauge.set(match state {
                SessionMetricState::Idle => workers.saturating_sub(running),
                SessionMetricState::Busy => running.saturating_sub(stuck),
                SessionMetricState::Stuck => stuck,
            } as f64);
        }
    }

    pub(super) fn record_wait(&self, time: Duration) {
        self.wait.record(time);
    }

    pub(super) fn record_call_time(&self, time: Duration) {
        self.call.record(time);
    }

    pub(super) fn count_failure(&self, kind: Kind) {
        self.count(match kind {
            Kind::Busy => "busy",
            Kind::Unavailable => "unavailable",
            Kind::BadGateway => "refused",
            Kind::Internal => "internal",
            _ => "invalid",
        });
    }

    pub(super) fn count_wrong_signature(&self) {
        self.count("wrong");
    }

    /// Counts a request that found another key in the backend.
    pub(super) fn count_changed_key(&self) {
        self.count("changed");
    }

    fn count(&self, kind: &'static str) {
        counter!(telemetry::SIGNER_ERRORS, "key" => self.key.clone(), "kind" => kind).increment(1);
    }

    /// Counts a recovery in the backend. `cause` is one of a fixed set of words.
    pub fn count_recovery(&self, cause: &'static str) {
        counter!(telemetry::SIGNER_RECOVERIES, "key" => self.key.clone(), "cause" => cause).increment(1);
    }
}
