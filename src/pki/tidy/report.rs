//! What a run of tidy has done, as it is stored beside its turn and shown by `tidy-status`.

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::pki::engine::tidying::micros;
use crate::pki::mount::settings::tidy::Config;
use crate::pki::store::TidyRow;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// There was none yet.
    Inactive,
    /// Under way.
    Running,
    /// Done.
    Finished,
    /// It failed.
    Error,
    /// Under way, and asked to end.
    Cancelling,
    /// It ended because it was asked to.
    Cancelled,
}

/// What was removed, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Certificates that went because they had expired or could not be read.
    pub certificates: u64,
    /// Revocations that went.
    pub revocations: u64,
    /// Revocations whose issuer the mount did not have.
    pub missing_issuers: u64,
    /// Attachments that went.
    pub metadata: u64,
    /// Issuers that went.
    pub issuers: u64,
}

/// A run. Times are epoch microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What it is to do.
    pub config: Config,
    /// How far it is, as it knew itself.
    pub state: State,
    /// Why it failed.
    pub error: Option<String>,
    /// What it is doing.
    pub message: Option<String>,
    /// When it began.
    pub started: i64,
    /// When it ended.
    pub finished: Option<i64>,
    /// When the last successful run ended, this one or an earlier one.
    pub last_success: Option<i64>,
    /// What it has done.
    pub counts: Counts,
}

impl Report {
    /// A run that begins now.
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

    /// The report of a stored run, in the state that it is in at `now`.
    ///
    /// # Errors
    /// `Internal` when it cannot be read.
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

    /// Whether it is under way.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::Running | State::Cancelling)
    }

    /// From when on the next automatic run is reckoned: the begin of the last one, or a successful end.
    pub fn reckoned_from(&self) -> i64 {
        self.last_success.unwrap_or(i64::MIN).max(self.started)
    }

    /// As it is stored.
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
