//! What else is out of reach: a device, a provider, a key service. Each has an [`Outage`] under what callers are told.
//!
//! Every request that needs it fails, and all of them have the same cause. The first says it; the others are counted and
//! at `debug`. What has not failed for a while is over, which is said once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::one::{Outage, Over};

/// Most that are told one by one. Whatever fails beside them is one: so an outage of everything is told in fewer than
/// twenty lines, those of the store included.
const MOST: usize = 7;
/// What the rest is called.
const REST: &str = "something else";

/// Everything of this process but the store.
pub static OTHERS: Others = Others::new();

/// Whatever fails at present, or did a short while ago.
pub struct Others {
    /// Whether there is anything to look after.
    any: AtomicBool,
    outages: Mutex<BTreeMap<String, Outage>>,
}

impl Others {
    pub(super) const fn new() -> Self {
        Self { any: AtomicBool::new(false), outages: Mutex::new(BTreeMap::new()) }
    }

    /// To be called with every failure of `what`, and why: what is to be said of it, if anything.
    pub fn told(&self, what: &str, why: String) -> Option<String> {
        match self.note(what, Instant::now()) {
            Some(Named::Itself) => Some(format!("{why}; not said again until it is over")),
            Some(Named::Rest) => Some(format!(
                "{REST} fails: {why}; neither that nor what else fails beside what was \
                 told is said until it is over"
            )),
            None => {
                tracing::debug!("{why}");
                None
            }
        }
    }

    /// To be called every few seconds.
    pub fn look(&self) {
        for (what, over) in self.over(Instant::now()) {
            let Over { seconds, failures, .. } = over;
            tracing::warn!(seconds, failures, "{}", end(&what, over));
        }
    }

    /// Counts a failure; of the first, under what name its end will be told.
    fn note(&self, what: &str, now: Instant) -> Option<Named> {
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(true, Ordering::Relaxed);
        if let Some(outage) = outages.get(what) {
            return outage.note(now).then_some(Named::Itself);
        }
        let (what, named) = if outages.len() < MOST { (what, Named::Itself) } else { (REST, Named::Rest) };
        outages.entry(what.to_owned()).or_insert_with(Outage::new).note(now).then_some(named)
    }

    /// Those that are over by now. They are remembered until they would no longer count as the same.
    fn over(&self, now: Instant) -> Vec<(String, Over)> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        let over = outages.iter().filter_map(|(what, outage)| Some((what.clone(), outage.over(now)?))).collect();
        outages.retain(|_, outage| !outage.is_forgotten(now));
        self.any.store(!outages.is_empty(), Ordering::Relaxed);
        over
    }
}

/// What an outage is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// By its own text.
    Itself,
    /// As one of the [`REST`].
    Rest,
}

/// What is said in the end. Perhaps nobody has asked for it either.
fn end(what: &str, over: Over) -> String {
    format!("{what}: has not failed for {} s", over.quiet)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lines in ten minutes in which each second all of these fail that are `failing` then, and until all is over.
    fn lines(failing: impl Fn(u64) -> Vec<String>) -> Vec<String> {
        let (others, start, mut lines) = (Others::new(), Instant::now(), Vec::new());
        for second in 0..800 {
            let now = start + Duration::from_secs(second);
            if second < 600 {
                lines.extend(failing(second).into_iter().filter(|what| others.note(what, now).is_some()));
            }
            if second % 5 == 0 {
                lines.extend(others.over(now).into_iter().map(|(what, over)| format!("{what}: over {over:?}")));
            }
        }
        assert!(others.over(start + Duration::from_secs(900)).is_empty());
        assert!(!others.any.load(Ordering::Relaxed), "nothing is remembered for ever");
        lines
    }

    #[test]
    fn ten_minutes_of_failures_are_one_line_and_one_that_says_that_they_are_over() {
        let told = lines(|_| vec!["key: away".to_owned(); 100]);
        assert_eq!(
            told,
            ["key: away".to_owned(), "key: away: over Over { seconds: 599, failures: 60000, quiet: 6 }".to_owned()]
        );
    }

    #[test]
    fn ten_minutes_in_which_everything_fails_are_fewer_than_twenty_lines() {
        let told = lines(|second| (0..40).map(|number| format!("part {}", number * (second % 3 + 1))).collect());
        assert!(told.len() > 4 && told.len() < 18, "{told:?}");
        assert!(told.contains(&"part 0".to_owned()) && told.iter().any(|line| line.starts_with(REST)), "{told:?}");
    }

    #[test]
    fn what_comes_and_goes_for_ten_minutes_is_told_in_fewer_than_twenty_lines() {
        for every in [6, 10, 20, 30, 59] {
            let told = lines(|second| if second % every == 0 { vec!["key".to_owned()] } else { Vec::new() });
            assert!(told.len() > 1 && told.len() < 20, "{every}: {told:?}");
        }
    }

    #[test]
    fn one_that_is_told_among_the_rest_is_called_that_at_its_begin_and_at_its_end() {
        let (others, start) = (Others::new(), Instant::now());
        let told = |part: usize| others.told(&format!("part {part}"), format!("part {part} (away)"));
        for part in 0..MOST {
            assert_eq!(told(part).unwrap(), format!("part {part} (away); not said again until it is over"));
        }
        let first = told(MOST).unwrap();
        assert!(first.starts_with(&format!("{REST} fails: part {MOST} (away); neither that nor")), "{first}");
        assert_eq!((told(MOST), told(MOST + 1), told(0)), (None, None, None));
        let ends: Vec<String> =
            others.over(start + Duration::from_secs(9)).into_iter().map(|(what, over)| end(&what, over)).collect();
        assert_eq!(ends.len(), MOST + 1);
        let rest = ends.iter().find(|end| end.starts_with(REST)).unwrap();
        // Whether it would fail now is not known.
        let seconds = rest.strip_prefix("something else: has not failed for ").and_then(|end| end.strip_suffix(" s"));
        assert!(["8", "9"].contains(&seconds.unwrap()), "{rest}");
    }

    #[test]
    fn another_failure_is_told_beside_the_first() {
        let others = Others::new();
        assert_eq!(
            others.told("key: away", "key: away (the disk)".to_owned()).unwrap(),
            "key: away (the disk); not said again until it is over"
        );
        assert_eq!(others.told("key: away", "key: away (the net)".to_owned()), None);
        assert!(others.told("key: PIN refused", "key: PIN refused".to_owned()).is_some());
    }
}
