//! Report of a tidy run, stored with its lease and returned by `tidy-status`.

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::pki::engine::tidy_controller::epoch_micros;
use crate::pki::mount::settings::tidy::TidyConfig;
use crate::pki::store::TidyRow;

/// State of a tidy run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TidyRunState {
    /// The mount has had no run so far.
    Inactive,
    /// The run is active.
    Running,
    /// The run completed.
    Finished,
    /// The run failed.
    Error,
    /// The run is active and its cancellation was requested.
    Cancelling,
    /// The run was cancelled.
    Cancelled,
}

/// Numbers of objects that a run removed or found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TidyCounts {
    /// Removed certificates, which were expired or unreadable.
    pub certificates: u64,
    /// Removed revocations.
    pub revocations: u64,
    /// Revocations found whose issuer was missing in the mount.
    pub missing_issuers: u64,
    /// Removed metadata rows.
    pub metadata: u64,
    /// Removed issuers.
    pub issuers: u64,
}

/// Report of a tidy run. Times are epoch microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TidyReport {
    /// Tasks and safety buffers of the run.
    pub config: TidyConfig,
    /// State as last recorded by the run.
    pub state: TidyRunState,
    /// Error text of a failed run.
    pub error: Option<String>,
    /// Description of the current step, for `tidy-status`; `None` after the run.
    pub message: Option<String>,
    /// Start of the run.
    pub started: i64,
    /// End of the run; `None` while it is active.
    pub finished: Option<i64>,
    /// End of the last successful run, this one or an earlier one.
    pub last_success: Option<i64>,
    /// Numbers of objects removed and found so far.
    pub counts: TidyCounts,
}

impl TidyReport {
    /// Creates the report of a run that starts now; `before` is the report of the last run.
    pub fn begin(config: TidyConfig, now: Time, before: Option<&Self>) -> Self {
        Self {
            config,
            state: TidyRunState::Running,
            error: None,
            message: None,
            started: epoch_micros(now),
            finished: None,
            last_success: before.and_then(|report| report.last_success),
            counts: TidyCounts::default(),
        }
    }

    /// Parses a stored report and derives the state of the run at `now`.
    ///
    /// # Errors
    /// `Internal` when it cannot be parsed.
    pub fn read(row: &TidyRow, now: Time) -> Result<Self> {
        let mut report: Self = serde_json::from_slice(&row.report)
            .map_err(|e| Error::internal(format!("stored report of a tidy run: invalid at byte {}", e.column())))?;
        if report.state == TidyRunState::Running {
            if row.valid_until <= now.unix_timestamp() {
                report.state = TidyRunState::Error;
                report.message = None;
                report.error = Some("the server stopped during the run; removed rows are not restored".to_owned());
            } else if row.cancelled {
                report.state = TidyRunState::Cancelling;
            }
        }
        Ok(report)
    }

    /// Returns `true` if the run is active.
    pub fn is_running(&self) -> bool {
        matches!(self.state, TidyRunState::Running | TidyRunState::Cancelling)
    }

    /// Returns the start of the interval after which the next automatic run is due: the start of this run, or the end
    /// of the last successful run if that is later.
    pub fn interval_start(&self) -> i64 {
        self.last_success.unwrap_or(i64::MIN).max(self.started)
    }

    /// Serializes the report for storage.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a tidy report always serialises")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::documents::MountId;

    #[test]
    fn tidy_run_with_an_expired_lease_has_failed() {
        let now = Time::UNIX_EPOCH + Duration::from_secs(1000);
        let report = TidyReport::begin(TidyConfig::default(), now, None);
        let row = |valid_until, cancelled| TidyRow {
            mount: MountId(1),
            run: 1,
            valid_until,
            cancelled,
            report: report.bytes(),
        };
        let state = |row| TidyReport::read(&row, now).unwrap().state;
        assert_eq!(state(row(1001, false)), TidyRunState::Running);
        assert_eq!(state(row(1001, true)), TidyRunState::Cancelling);
        assert_eq!(state(row(1000, true)), TidyRunState::Error);
        assert_eq!(state(row(0, false)), TidyRunState::Error);
    }

    #[test]
    fn last_success_is_kept_by_later_runs() {
        let at = |seconds| Time::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut first = TidyReport::begin(TidyConfig::default(), at(10), None);
        assert_eq!(first.interval_start(), 10_000_000);
        first.last_success = Some(epoch_micros(at(20)));
        let second = TidyReport::begin(TidyConfig::default(), at(15), Some(&first));
        assert_eq!(second.interval_start(), 20_000_000);
        assert_eq!(second.last_success, Some(20_000_000));
    }
}
