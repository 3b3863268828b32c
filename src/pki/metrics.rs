//! Figures of the engine, with their handles made once so that recording costs next to nothing.

use std::time::Instant;

use metrics::{Histogram, Unit, describe_counter, describe_gauge, describe_histogram, histogram};

/// Names, units and help of the engine's metrics.
pub fn describe() {
    describe_histogram!(
        "signet_pki_stage_seconds",
        Unit::Seconds,
        "Time of one stage of issuing: rules, key (generation), sign, store (until durable)"
    );
    describe_counter!("signet_pki_certificates_total", Unit::Count, "Certificates issued, by operation");
    describe_counter!("signet_pki_refusals_total", Unit::Count, "Requests to issue that were refused, by operation");
    describe_counter!("signet_pki_panics_total", Unit::Count, "Panics caught in a mount's actors");
    describe_counter!("signet_pki_revocations_total", Unit::Count, "Revocations recorded");
    describe_histogram!("signet_pki_crl_build_seconds", Unit::Seconds, "Time of one build of a mount's CRLs");
    describe_counter!("signet_pki_crl_builds_total", Unit::Count, "Builds of a mount's CRLs, by result");
    describe_gauge!("signet_pki_crl_entries", Unit::Count, "Entries of the largest CRL built last");
    describe_gauge!("signet_key_pool_queue", Unit::Count, "RSA keys waiting to be generated");
}

/// Handles of the issuing stages for one kind of request.
#[derive(Clone)]
pub struct Stages {
    rules: Histogram,
    key: Histogram,
    sign: Histogram,
    store: Histogram,
}

impl Stages {
    /// Registers the handles of `operation` (`issue` or `sign`).
    pub fn new(operation: &'static str) -> Self {
        let stage =
            |stage: &'static str| histogram!("signet_pki_stage_seconds", "operation" => operation, "stage" => stage);
        Self { rules: stage("rules"), key: stage("key"), sign: stage("sign"), store: stage("store") }
    }

    pub(super) fn rules(&self, started: Instant) -> Instant {
        record(&self.rules, started)
    }

    pub(super) fn key(&self, started: Instant) -> Instant {
        record(&self.key, started)
    }

    pub(super) fn sign(&self, started: Instant) -> Instant {
        record(&self.sign, started)
    }

    pub(super) fn store(&self, started: Instant) -> Instant {
        record(&self.store, started)
    }
}

/// Records the time since `started` and starts the next stage.
fn record(stage: &Histogram, started: Instant) -> Instant {
    let now = Instant::now();
    stage.record((now - started).as_secs_f64());
    now
}
