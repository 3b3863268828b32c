//! The audit step: called before a handler runs and before its answer leaves.
//!
//! There is no device yet, so nothing is recorded; the two calls stand where a device will refuse a
//! request or hold back an answer. A handler never runs without the first, no answer of a handler
//! leaves without the second.

use super::answer::Answer;
use super::route::{Call, RequestId};
use crate::error::{Error, Result};

/// The audit devices of a server.
#[derive(Default)]
pub struct Audit {
    _private: (),
}

/// A request whose intent was recorded; only it can record the outcome.
#[must_use]
pub struct Recorded {
    /// The request.
    pub request_id: RequestId,
}

impl Audit {
    /// Records that an authorised request is about to run.
    ///
    /// # Errors
    /// `Unavailable` when devices exist and none takes the entry.
    pub fn intent(&self, call: &Call) -> Result<Recorded> {
        Ok(Recorded { request_id: call.request_id })
    }

    /// Records what became of it.
    ///
    /// # Errors
    /// `Unavailable` when devices exist and none takes the entry; the answer must not leave then.
    pub fn outcome(&self, request: Recorded, outcome: std::result::Result<&Answer, &Error>) -> Result<()> {
        let _ = (request, outcome);
        Ok(())
    }
}
