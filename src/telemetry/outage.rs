//! A store that fails, told once, and once more when it is over.
//!
//! While the store is away every request that needs it fails, and so does whatever the server does by itself now and
//! then. All of them have the same to say. [`STORE`] lets the first say it and counts the others; when the store has
//! answered for a while without a failure it says that the outage is over. An outage that comes back soon has to stay
//! away for longer before it counts as over, so that a store that comes and goes does not fill the log either.
//!
//! Whatever else is out of reach, such as a device or a provider, is told by [`OTHERS`] in the same way.

mod one;
mod others;

use std::time::Instant;

pub(crate) use self::one::QUIET;
use self::one::{Outage, Over};
pub use self::others::OTHERS;
use self::others::Others;
use crate::error::{Error, Kind};

/// How the texts of the store's failures begin, wherever they are quoted.
const OF_THE_STORE: &str = "storage: ";
/// What it says once the server stops.
const STOPPED: &str = "storage: stopped";

/// The store of this process.
pub static STORE: Store = Store(Outage::new());

/// Whether a store fails at present, and what was said of it.
pub struct Store(Outage);

impl Store {
    /// Whether it fails.
    pub fn is_on(&self) -> bool {
        self.0.is_on()
    }

    /// To be called with every failure, and why.
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

    /// To be called now and then while the store answers.
    pub fn answers(&self) {
        if let Some(Over { seconds, failures, .. }) = self.0.over(Instant::now()) {
            tracing::warn!(seconds, failures, "the store answers again: the outage is over");
        }
    }
}

/// Warns that something was not done which the server does by itself.
pub fn not_done(what: &str, error: &Error) {
    if let Some(why) = told(error) {
        tracing::warn!("{what}: {why}");
    }
}

/// Warns that something is not done which is tried again and again: once, and once more when it has not failed for a
/// while.
pub fn keeps_failing(what: &str, error: &Error) {
    if let Some(why) = told_under(&OTHERS, what, error) {
        tracing::warn!("{why}");
    }
}

fn told_under(others: &Others, what: &str, error: &Error) -> Option<String> {
    others.told(what, format!("{what}: {}", words(error.text(), error)))
}

/// What is to be logged of an error: its text, and its cause where that says more. Nothing of a failure of the store,
/// which is told by itself, nor of something else that is out of reach and was told before.
pub fn told(error: &Error) -> Option<String> {
    told_of(error.kind(), error.text(), error)
}

/// As [`told`], of an error whose text stands elsewhere.
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

/// An error's text, and its cause where that says more.
fn words(text: &str, error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match cause.filter(|cause| !cause.is_empty() && !text.contains(cause.as_str())) {
        Some(cause) => format!("{} ({cause})", if text.is_empty() { error.to_string() } else { text.to_owned() }),
        None if text.is_empty() => error.to_string(),
        None => text.to_owned(),
    }
}

/// Whether an error says no more than that something took too long while the store is away.
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
