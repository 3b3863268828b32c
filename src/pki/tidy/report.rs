//! What a run of tidy has done, as it is stored beside its turn and shown by `tidy-status`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::config::Config;
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Result};
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
            .map_err(|e| Error::internal(format!("stored report of tidy unreadable: {:?}", e.classify())))?;
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

/// The members of `tidy-status`; without a run those of one that is null throughout.
pub fn status(report: Option<&Report>) -> Map<String, Value> {
    let time = |micros: i64| Time::from_unix_timestamp_nanos(i128::from(micros) * 1000).map(rfc3339).ok();
    let counts = report.map(|report| &report.counts);
    let count = |of: fn(&Counts) -> u64| json!(counts.map(of));
    let nothing = json!(counts.map(|_| 0));
    let mut members = match report {
        Some(report) => report.config.to_json(),
        None => Config::default().to_json().into_iter().map(|(name, _)| (name, Value::Null)).collect(),
    };
    let own = [
        ("state", json!(report.map_or(State::Inactive, |report| report.state))),
        ("error", json!(report.and_then(|report| report.error.as_deref()))),
        ("message", json!(report.and_then(|report| report.message.as_deref()))),
        ("time_started", json!(report.and_then(|report| time(report.started)))),
        ("time_finished", json!(report.and_then(|report| report.finished).and_then(time))),
        ("cert_store_deleted_count", count(|counts| counts.certificates)),
        ("revoked_cert_deleted_count", count(|counts| counts.revocations)),
        ("missing_issuer_cert_count", count(|counts| counts.missing_issuers)),
        ("cert_metadata_deleted_count", count(|counts| counts.metadata)),
        ("expired_issuer_deleted_count", count(|counts| counts.issuers)),
        ("revocation_queue_deleted_count", nothing.clone()),
        ("cross_revoked_cert_deleted_count", nothing.clone()),
        ("total_acme_account_count", nothing.clone()),
        ("acme_account_deleted_count", nothing.clone()),
        ("acme_account_revoked_count", nothing.clone()),
        ("acme_orders_deleted_count", nothing),
    ];
    members.extend(own.map(|(name, value)| (name.to_owned(), value)));
    if let Some(end) = report.and_then(|report| report.last_success).and_then(time) {
        members.insert("last_auto_tidy_finished".to_owned(), json!(end));
    }
    members
}

/// Epoch microseconds, rounded down.
pub fn micros(at: Time) -> i64 {
    // Years up to 9999 are 2.6e17 µs: far inside the range.
    at.unix_timestamp_nanos().div_euclid(1000) as i64
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
        assert!(!status(Some(&first)).contains_key("last_auto_tidy_finished"));
        first.last_success = Some(micros(at(20)));
        let second = Report::begin(Config::default(), at(15), Some(&first));
        assert_eq!(second.reckoned_from(), 20_000_000);
        assert_eq!(status(Some(&second))["last_auto_tidy_finished"], "1970-01-01T00:00:20Z");
    }

    #[test]
    fn before_the_first_run_all_is_null_but_the_state() {
        for (name, value) in status(None) {
            assert_eq!(value, if name == "state" { json!("Inactive") } else { Value::Null }, "{name}");
        }
    }
}
