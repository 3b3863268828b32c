//! A unit in the commit queue, from its admission to its result.

use std::time::Instant;

use metrics::{Gauge, counter};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::{Kind, Result};
use crate::pki::store::PkiOutcome;
use crate::storage::backend::{UnitOutcomes, WriteUnit};
use crate::telemetry;

/// Metric label of units that the store could not write.
const STORE_UNAVAILABLE: &str = "unavailable";

pub(super) struct CommitJob {
    pub(super) unit: WriteUnit,
    pub(super) arrived: Instant,
    pub(super) reply: oneshot::Sender<Result<UnitOutcomes>>,
    pub(super) permit: CommitPermit,
}

/// A slot in the commit queue, held until the result is sent. It updates the gauge of admitted units itself, because
/// the actor's thread cannot do so while the store hangs.
pub(super) struct CommitPermit {
    _permit: OwnedSemaphorePermit,
    admitted: Gauge,
}

impl CommitPermit {
    pub(super) fn new(permit: OwnedSemaphorePermit, admitted: &Gauge) -> Self {
        admitted.increment(1);
        Self { _permit: permit, admitted: admitted.clone() }
    }
}

impl Drop for CommitPermit {
    fn drop(&mut self) {
        self.admitted.decrement(1);
    }
}

/// Counts a failed result in the metrics. Returns `true` if the store could not write the unit.
pub(super) fn count_failure(answer: &Result<UnitOutcomes>) -> bool {
    let reason = match answer {
        Ok(UnitOutcomes::Pki(outcomes)) if outcomes.contains(&PkiOutcome::SerialTaken) => "serial_taken",
        Ok(_) => return false,
        Err(error) => match error.kind() {
            Kind::Conflict => "conflict",
            Kind::Internal => "internal",
            _ => STORE_UNAVAILABLE,
        },
    };
    counter!(telemetry::COMMIT_FAILURES, "reason" => reason).increment(1);
    reason == STORE_UNAVAILABLE
}
