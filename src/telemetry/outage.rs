//! Logs an outage once when it begins and once when it is over.
//!
//! While the store is unreachable, all requests and background tasks that need it fail for the same reason.
//! [`STORE_OUTAGE`] logs the first failure and counts the others. The outage is over when the store has responded for a
//! while without a failure. An outage that recurs soon needs a longer quiet time, so that an unstable store does not
//! fill the log. [`OUTAGES`] does the same for everything else, such as devices and providers.

mod state;
mod table;

use std::time::Instant;

pub(crate) use self::state::MIN_QUIET_TIME;
use self::state::{EndedOutage, Outage};
pub use self::table::OUTAGES;
use self::table::OutageTable;
use crate::error::{Error, Kind};

/// Prefix of the store's error messages, also within other messages.
const STORE_ERROR_PREFIX: &str = "storage: ";
/// The store's error message after the server has stopped.
const STORE_STOPPED_ERROR: &str = "storage: the store is closed";

/// The outage of this process's store.
pub static STORE_OUTAGE: StoreOutage = StoreOutage(Outage::new());

/// The outage state of a store.
pub struct StoreOutage(Outage);

impl StoreOutage {
    /// `true` during an outage of the store.
    pub fn is_ongoing(&self) -> bool {
        self.0.is_ongoing()
    }

    /// Records a failure of the store, and logs it if it begins an outage. Call it for every failure.
    pub fn record_failure(&self, why: &str) {
        if self.0.record(Instant::now()) {
            tracing::error!("store unavailable: {why}; requests that need it get 503; not logged again until recovery");
        } else {
            tracing::debug!("store unavailable: {why}");
        }
    }

    /// Records that the store responds, and logs the end of its outage if it is over. Call it periodically.
    pub fn record_response(&self) {
        if let Some(EndedOutage { seconds, failures, .. }) = self.0.take_ended(Instant::now()) {
            tracing::warn!(seconds, failures, "the store answers again: the outage is over");
        }
    }
}

/// Logs a warning that a background task failed, unless the failure belongs to an outage that is already logged.
pub fn warn_task_failed(what: &str, error: &Error) {
    if let Some(why) = describe_for_log(error) {
        tracing::warn!("{what}: {why}");
    }
}

/// Logs one warning when a repeated background task begins to fail, and a second line when it has not failed for a
/// while.
pub fn warn_recurring_failure(what: &str, error: &Error) {
    if let Some(why) = record_recurring_failure(&OUTAGES, what, error) {
        tracing::warn!("{why}");
    }
}

fn record_recurring_failure(table: &OutageTable, what: &str, error: &Error) -> Option<String> {
    table.record_failure(what, format!("{what}: {}", describe_error(error.text(), error)))
}

/// Returns the text to log for an error, with its cause if that adds information. `None` for failures of the store,
/// which [`STORE_OUTAGE`] logs, and for an outage that was logged before.
pub fn describe_for_log(error: &Error) -> Option<String> {
    describe_for_log_as(error.kind(), error.text(), error)
}

/// As [`describe_for_log`], but with another kind and text than those of the error itself.
pub fn describe_for_log_as(kind: Kind, text: &str, error: &Error) -> Option<String> {
    describe_for_log_in(&OUTAGES, kind, text, error)
}

fn describe_for_log_in(table: &OutageTable, kind: Kind, text: &str, error: &Error) -> Option<String> {
    let why = describe_error(text, error);
    if kind == Kind::Unavailable && text.contains(STORE_ERROR_PREFIX) {
        if text.contains(STORE_STOPPED_ERROR) {
            tracing::debug!("{why}")
        } else {
            STORE_OUTAGE.record_failure(&why)
        }
        return None;
    }
    match kind {
        Kind::Unavailable if is_timeout_of_outage(kind, error) => None,
        Kind::Unavailable | Kind::BadGateway => table.record_failure(text, why),
        _ => Some(why),
    }
}

/// Returns the error's text, and its cause if that adds information.
fn describe_error(text: &str, error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match cause.filter(|cause| !cause.is_empty() && !text.contains(cause.as_str())) {
        Some(cause) => format!("{} ({cause})", if text.is_empty() { error.to_string() } else { text.to_owned() }),
        None if text.is_empty() => error.to_string(),
        None => text.to_owned(),
    }
}

/// `true` if an error is only a timeout during an outage of the store.
fn is_timeout_of_outage(kind: Kind, error: &Error) -> bool {
    kind == Kind::Unavailable && std::error::Error::source(error).is_none() && STORE_OUTAGE.is_ongoing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_log_line_includes_the_cause_once() {
        let logged =
            |error: Error| describe_for_log_in(&OutageTable::new(), error.kind(), error.text(), &error).unwrap();
        let cause = || std::io::Error::other("the disk");
        let once = "key: away (the disk); not logged again until recovery";
        assert_eq!(logged(Error::unavailable("key: away", cause())), once);
        assert_eq!(logged(Error::unavailable("key: away (the disk)", cause())), once);
        assert_eq!(logged(Error::not_found()), "not found");
        assert_eq!(logged(Error::internal("no randomness")), "internal error (no randomness)");
    }

    #[test]
    fn recurring_failure_is_logged_once_with_its_cause() {
        let table = OutageTable::new();
        let logged = || record_recurring_failure(&table, "no key", &Error::internal("no randomness"));
        let once = "no key: internal error (no randomness); not logged again until recovery";
        assert_eq!([logged().as_deref(), logged().as_deref()], [Some(once), None]);
    }

    #[test]
    fn unreachable_service_is_logged_once_and_a_defect_each_time() {
        let table = OutageTable::new();
        let logged = |error: Error| describe_for_log_in(&table, error.kind(), error.text(), &error);
        let away = || Error::new(Kind::BadGateway, "provider: refused the credential");
        assert!(logged(away()).is_some() && logged(away()).is_none());
        let defect = || Error::internal("a defect");
        assert!(logged(defect()).is_some() && logged(defect()).is_some());
    }
}
