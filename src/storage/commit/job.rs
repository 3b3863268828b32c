//! A unit on its way through the queue: from its admission to its answer.

use std::time::Instant;

use metrics::{Gauge, counter};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::{Kind, Result};
use crate::pki::store::PkiOutcome;
use crate::storage::backend::{Outcomes, Unit};
use crate::telemetry;

/// Why a unit is not stored that the store does not take.
const UNAVAILABLE: &str = "unavailable";

/// An admitted unit on its way.
pub(super) struct Job {
    pub(super) unit: Unit,
    pub(super) arrived: Instant,
    pub(super) reply: oneshot::Sender<Result<Outcomes>>,
    pub(super) place: Place,
}

/// A unit's place in the queue, counted from its admission to its answer: the actor's thread cannot
/// count while the store hangs.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    admitted: Gauge,
}

impl Place {
    pub(super) fn take(permit: OwnedSemaphorePermit, admitted: &Gauge) -> Self {
        admitted.increment(1);
        Self { _permit: permit, admitted: admitted.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admitted.decrement(1);
    }
}

/// Counts an answer that says that nothing was stored; whether that is the store's doing.
pub(super) fn count_failure(answer: &Result<Outcomes>) -> bool {
    let reason = match answer {
        Ok(Outcomes::Pki(outcomes)) if outcomes.contains(&PkiOutcome::SerialTaken) => "serial_taken",
        Ok(_) => return false,
        Err(error) => match error.kind() {
            Kind::Conflict => "conflict",
            Kind::Internal => "internal",
            _ => UNAVAILABLE,
        },
    };
    counter!(telemetry::COMMIT_FAILURES, "reason" => reason).increment(1);
    reason == UNAVAILABLE
}
