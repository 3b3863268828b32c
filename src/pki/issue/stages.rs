//! Durations of the stages of issuing a certificate. The metric handles are created once, so that recording is cheap.

use std::time::Instant;

use metrics::{Histogram, histogram};

use crate::telemetry;

/// Metric handles for the stages of one issuing operation.
#[derive(Clone)]
pub struct IssuanceStages {
    rules: Histogram,
    key: Histogram,
    sign: Histogram,
    store: Histogram,
}

impl IssuanceStages {
    /// Registers the metric handles of `operation` (`issue` or `sign`).
    pub fn new(operation: &'static str) -> Self {
        let stage =
            |stage: &'static str| histogram!(telemetry::PKI_STAGE_SECONDS, "operation" => operation, "stage" => stage);
        Self { rules: stage("rules"), key: stage("key"), sign: stage("sign"), store: stage("store") }
    }

    pub(crate) fn record_rules_stage(&self, started: Instant) -> Instant {
        record_stage(&self.rules, started)
    }

    pub(crate) fn record_key_stage(&self, started: Instant) -> Instant {
        record_stage(&self.key, started)
    }

    pub(crate) fn record_sign_stage(&self, started: Instant) -> Instant {
        record_stage(&self.sign, started)
    }

    pub(crate) fn record_store_stage(&self, started: Instant) -> Instant {
        record_stage(&self.store, started)
    }
}

/// Records the time since `started` as the duration of `stage`; returns the start of the next stage.
fn record_stage(stage: &Histogram, started: Instant) -> Instant {
    let now = Instant::now();
    stage.record((now - started).as_secs_f64());
    now
}
