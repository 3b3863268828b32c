//! Report of a tidy run, stored with its lease and returned by `tidy-status`.

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::pki::engine::tidying::micros;
use crate::pki::mount::settings::tidy::Config;
use crate::pki::store::TidyRow;

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// No run so far.
    Inactive,
    /// Running.
    Running,
    /// Completed.
    Finished,
    /// Failed.
    Error,
    /// Running, with cancellation requested.
    Cancelling,
    /// Cancelled.
    Cancelled,
}

/// Numbers of removed and found objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Removed certificates: expired or unreadable.
    pub certificates: u64,
    /// Removed revocations.
    pub revocations: u64,
    /// Revocations whose issuer was missing in the mount.
    pub missing_issuers: u64,
    /// Removed metadata.
    pub metadata: u64,
    /// Removed issuers.
    pub issuers: u64,
}

/// Report of a run. Times are epoch microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Configuration.
    pub config: Config,
    /// State as last recorded by the run.
    pub state: State,
    /// Error of a failed run.
    pub error: Option<String>,
    /// Current activity.
    pub message: Option<String>,
    /// Start.
    pub started: i64,
    /// End.
    pub finished: Option<i64>,
    /// End of the last successful run, this one or an earlier one.
    pub last_success: Option<i64>,
    /// Numbers so far.
    pub counts: Counts,
}

impl Report {
    /// Creates the report of a run that starts now.
    pub fn begin(config: Config, now: Time, before: Option<&Self>) -> Self {
        Self {
            config,
            state: State::Running,
            error: None,
            message: None,
            started: micros(now),
            finished: None,
            last_success: before.and_then(|report| report.last_success),
            counts: Counts::default(),
        }
    }

    /// Parses a stored report and derives its state at `now`.
    ///
    /// # Errors
    /// `Internal` when it cannot be parsed.
    pub fn read(row: &TidyRow, now: Time) -> Result<Self> {
        let mut report: Self = serde_json::from_slice(&row.report)
            .map_err(|e| Error::internal(format!("stored report of tidy unreadable at octet {}", e.column())))?;
        if report.state == State::Running {
            if row.valid_until <= now.unix_timestamp() {
                report.state = State::Error;
                report.message = None;
                report.error = Some("the server that ran it has stopped; what it removed stays removed".to_owned());
            } else if row.cancelled {
                report.state = State::Cancelling;
            }
        }
        Ok(report)
    }

    /// Returns `true` if the run is active.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::Running | State::Cancelling)
    }

    /// Returns the start of the interval to the next automatic run: the last start, or a later successful end.
    pub fn reckoned_from(&self) -> i64 {
        self.last_success.unwrap_or(i64::MIN).max(self.started)
    }

    /// Serializes the report for storage.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain members always serialise")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::documents::MountId;

    #[test]
    fn a_run_that_nobody_holds_any_more_has_failed() {
        let now = Time::UNIX_EPOCH + Duration::from_secs(1000);
        let report = Report::begin(Config::default(), now, None);
        let row = |valid_until, cancelled| TidyRow {
            mount: MountId(1),
            run: 1,
            valid_until,
            cancelled,
            report: report.bytes(),
        };
        let state = |row| Report::read(&row, now).unwrap().state;
        assert_eq!(state(row(1001, false)), State::Running);
        assert_eq!(state(row(1001, true)), State::Cancelling);
        assert_eq!(state(row(1000, true)), State::Error);
        assert_eq!(state(row(0, false)), State::Error);
    }

    #[test]
    fn the_last_success_outlives_later_runs() {
        let at = |seconds| Time::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut first = Report::begin(Config::default(), at(10), None);
        assert_eq!(first.reckoned_from(), 10_000_000);
        first.last_success = Some(micros(at(20)));
        let second = Report::begin(Config::default(), at(15), Some(&first));
        assert_eq!(second.reckoned_from(), 20_000_000);
        assert_eq!(second.last_success, Some(20_000_000));
    }
}
