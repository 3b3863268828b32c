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

pub use self::one::Outage;
pub use self::others::OTHERS;
use crate::error::{Error, Kind};

/// How the texts of the store's failures begin, wherever they are quoted.
const OF_THE_STORE: &str = "storage: ";
/// What it says once the server stops.
const STOPPED: &str = "storage: stopped";

/// The store of this process.
pub static STORE: Outage = Outage::new();

/// Warns that something was not done which the server does by itself.
pub fn not_done(what: &str, error: &Error) {
    if let Some(why) = told(error) {
        tracing::warn!("{what}: {why}");
    }
}

/// What is to be logged of an error: its text, and its cause where that says more. Nothing of a failure of the store,
/// which is told by itself, nor of something else that is out of reach and was told before.
pub fn told(error: &Error) -> Option<String> {
    told_of(error.kind(), error.text(), error)
}

/// As [`told`], of an error whose text stands elsewhere.
pub fn told_of(kind: Kind, text: &str, error: &Error) -> Option<String> {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let why = match cause.filter(|cause| !cause.is_empty() && !text.contains(cause.as_str())) {
        Some(cause) => format!("{} ({cause})", if text.is_empty() { error.to_string() } else { text.to_owned() }),
        None if text.is_empty() => error.to_string(),
        None => text.to_owned(),
    };
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
        Kind::Unavailable | Kind::BadGateway => OTHERS.told(text, why),
        _ => Some(why),
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
        let told = |error: Error| told(&error).unwrap();
        let cause = || std::io::Error::other("the disk");
        let once = "key: away (the disk); not said again until it is over";
        assert_eq!(told(Error::unavailable("key: away", cause())), once);
        assert_eq!(told(Error::unavailable("key: away (the disk)", cause())), once);
        assert_eq!(told(Error::not_found()), "not found");
    }

    #[test]
    fn what_is_out_of_reach_is_told_once_and_a_defect_each_time() {
        let away = || Error::new(Kind::BadGateway, "provider: refused the credential");
        assert!(told(&away()).is_some() && told(&away()).is_none());
        let defect = || Error::internal("a defect");
        assert!(told(&defect()).is_some() && told(&defect()).is_some());
    }
}
