//! Logs an outage once when it begins and once when it is over.
//!
//! While the store is unreachable, all requests and background tasks that need it fail for the same reason. [`STORE`]
//! logs the first failure and counts the others. The outage is over when the store has responded for a while without a
//! failure. An outage that recurs soon needs a longer quiet time, so that an unstable store does not fill the log.
//! [`OTHERS`] does the same for everything else, such as devices and providers.

mod one;
mod others;

use std::time::Instant;

pub(crate) use self::one::QUIET;
use self::one::{Outage, Over};
pub use self::others::OTHERS;
use self::others::Others;
use crate::error::{Error, Kind};

/// Prefix of the store's error messages, also within other messages.
const OF_THE_STORE: &str = "storage: ";
/// The store's error message after the server has stopped.
const STOPPED: &str = "storage: stopped";

/// The outage of this process's store.
pub static STORE: Store = Store(Outage::new());

/// The outage state of a store.
pub struct Store(Outage);

impl Store {
    /// `true` during an outage.
    pub fn is_on(&self) -> bool {
        self.0.is_on()
    }

    /// Records a failure with its reason. Call it for every failure.
    pub fn fails(&self, why: &str) {
        if self.0.note(Instant::now()) {
            tracing::error!(
                "the store fails: {why}; what needs it is answered 503 meanwhile, and this is not said again until it \
                 is over"
            );
        } else {
            tracing::debug!("the store fails: {why}");
        }
    }

    /// Call it periodically while the store responds. Logs the end of an outage.
    pub fn answers(&self) {
        if let Some(Over { seconds, failures, .. }) = self.0.over(Instant::now()) {
            tracing::warn!(seconds, failures, "the store answers again: the outage is over");
        }
    }
}

/// Warns that a background task failed.
pub fn not_done(what: &str, error: &Error) {
    if let Some(why) = told(error) {
        tracing::warn!("{what}: {why}");
    }
}

/// Warns that a repeated background task fails: once, and once more when it has not failed for a while.
pub fn keeps_failing(what: &str, error: &Error) {
    if let Some(why) = told_under(&OTHERS, what, error) {
        tracing::warn!("{why}");
    }
}

fn told_under(others: &Others, what: &str, error: &Error) -> Option<String> {
    others.told(what, format!("{what}: {}", words(error.text(), error)))
}

/// Returns what to log about an error: its text, and its cause if that adds information. `None` for failures of the
/// store, which are logged here, and for an outage that was logged before.
pub fn told(error: &Error) -> Option<String> {
    told_of(error.kind(), error.text(), error)
}

/// As [`told`], with the kind and text under which the error is reported.
pub fn told_of(kind: Kind, text: &str, error: &Error) -> Option<String> {
    told_among(&OTHERS, kind, text, error)
}

fn told_among(others: &Others, kind: Kind, text: &str, error: &Error) -> Option<String> {
    let why = words(text, error);
    if kind == Kind::Unavailable && text.contains(OF_THE_STORE) {
        if text.contains(STOPPED) {
            tracing::debug!("{why}")
        } else {
            STORE.fails(&why)
        }
        return None;
    }
    match kind {
        Kind::Unavailable if is_late(kind, error) => None,
        Kind::Unavailable | Kind::BadGateway => others.told(text, why),
        _ => Some(why),
    }
}

/// Returns the error's text, and its cause if that adds information.
fn words(text: &str, error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match cause.filter(|cause| !cause.is_empty() && !text.contains(cause.as_str())) {
        Some(cause) => format!("{} ({cause})", if text.is_empty() { error.to_string() } else { text.to_owned() }),
        None if text.is_empty() => error.to_string(),
        None => text.to_owned(),
    }
}

/// `true` if an error is only a timeout during an outage of the store.
fn is_late(kind: Kind, error: &Error) -> bool {
    kind == Kind::Unavailable && std::error::Error::source(error).is_none() && STORE.is_on()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_told_beside_the_text_and_once() {
        let told = |error: Error| told_among(&Others::new(), error.kind(), error.text(), &error).unwrap();
        let cause = || std::io::Error::other("the disk");
        let once = "key: away (the disk); not said again until it is over";
        assert_eq!(told(Error::unavailable("key: away", cause())), once);
        assert_eq!(told(Error::unavailable("key: away (the disk)", cause())), once);
        assert_eq!(told(Error::not_found()), "not found");
        assert_eq!(told(Error::internal("no randomness")), "internal error (no randomness)");
    }

    #[test]
    fn what_is_tried_again_and_again_is_told_once_with_its_cause() {
        let others = Others::new();
        let told = || told_under(&others, "no key", &Error::internal("no randomness"));
        let once = "no key: internal error (no randomness); not said again until it is over";
        assert_eq!([told().as_deref(), told().as_deref()], [Some(once), None]);
    }

    #[test]
    fn what_is_out_of_reach_is_told_once_and_a_defect_each_time() {
        let others = Others::new();
        let told = |error: Error| told_among(&others, error.kind(), error.text(), &error);
        let away = || Error::new(Kind::BadGateway, "provider: refused the credential");
        assert!(told(away()).is_some() && told(away()).is_none());
        let defect = || Error::internal("a defect");
        assert!(told(defect()).is_some() && told(defect()).is_some());
    }
}
