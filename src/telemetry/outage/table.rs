//! Outages other than the store's: devices, providers, key services. Each error text has its own [`Outage`].
//!
//! The first failure is logged as the caller reports it; further ones are counted and logged at `debug`. The end of
//! an outage is logged once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::state::{EndedOutage, Outage};

/// Maximum number of outages that are logged separately. Further ones share an entry, so that a total outage takes less
/// than twenty lines.
const MAX_SEPARATE_OUTAGES: usize = 7;
const SHARED_OUTAGE_NAME: &str = "other outages";

/// All outages of this process except the store's.
pub static OUTAGES: OutageTable = OutageTable::new();

/// Current and recent outages.
pub struct OutageTable {
    /// `true` if the table has current or recent outages.
    has_outages: AtomicBool,
    outages: Mutex<BTreeMap<String, Outage>>,
}

impl OutageTable {
    pub(super) const fn new() -> Self {
        Self { has_outages: AtomicBool::new(false), outages: Mutex::new(BTreeMap::new()) }
    }

    /// Records a failure of `what` with its reason. Returns the message to log, if any. Call it for every failure.
    pub fn record_failure(&self, what: &str, why: String) -> Option<String> {
        match self.record(what, Instant::now()) {
            Some(OutageEntryKind::Separate) => Some(format!("{why}; not logged again until recovery")),
            Some(OutageEntryKind::Shared) => Some(format!(
                "{SHARED_OUTAGE_NAME}: {why}; too many outages to log each, further ones are not logged until recovery"
            )),
            None => {
                tracing::debug!("{why}");
                None
            }
        }
    }

    /// Logs the end of outages. Call it every few seconds.
    pub fn log_ended(&self) {
        for (what, over) in self.take_ended(Instant::now()) {
            let EndedOutage { seconds, failures, .. } = over;
            tracing::warn!(seconds, failures, "{}", describe_end(&what, over));
        }
    }

    /// Counts a failure. If it is the first of an outage, returns the kind of entry that the outage has.
    fn record(&self, what: &str, now: Instant) -> Option<OutageEntryKind> {
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_outages.store(true, Ordering::Relaxed);
        if let Some(outage) = outages.get(what) {
            return outage.record(now).then_some(OutageEntryKind::Separate);
        }
        let (what, kind) = if outages.len() < MAX_SEPARATE_OUTAGES {
            (what, OutageEntryKind::Separate)
        } else {
            (SHARED_OUTAGE_NAME, OutageEntryKind::Shared)
        };
        outages.entry(what.to_owned()).or_insert_with(Outage::new).record(now).then_some(kind)
    }

    /// Ends the outages that are over, and returns them. An ended outage stays in the table until a new failure would
    /// not count as a recurrence.
    fn take_ended(&self, now: Instant) -> Vec<(String, EndedOutage)> {
        if !self.has_outages.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        let over = outages.iter().filter_map(|(what, outage)| Some((what.clone(), outage.take_ended(now)?))).collect();
        outages.retain(|_, outage| !outage.is_expired(now));
        self.has_outages.store(!outages.is_empty(), Ordering::Relaxed);
        over
    }
}

/// The kind of an entry: for one outage, or the entry that all outages above [`MAX_SEPARATE_OUTAGES`] share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutageEntryKind {
    Separate,
    Shared,
}

/// Returns the message for the end of an outage. It does not claim a recovery, because possibly no request has used the
/// device since.
fn describe_end(what: &str, ended: EndedOutage) -> String {
    format!("{what}: no failure for {} s", ended.quiet)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Simulates ten minutes. In each second, the objects that `failing` returns for this second fail. Returns the log
    /// lines until all outages are over.
    fn log_lines(failing: impl Fn(u64) -> Vec<String>) -> Vec<String> {
        let others = OutageTable::new();
        let start = Instant::now();
        let mut lines = Vec::new();
        for second in 0..800 {
            let now = start + Duration::from_secs(second);
            if second < 600 {
                lines.extend(failing(second).into_iter().filter(|what| others.record(what, now).is_some()));
            }
            if second % 5 == 0 {
                lines.extend(others.take_ended(now).into_iter().map(|(what, over)| format!("{what}: over {over:?}")));
            }
        }
        assert!(others.take_ended(start + Duration::from_secs(900)).is_empty());
        assert!(!others.has_outages.load(Ordering::Relaxed), "ended outages are removed from the table");
        lines
    }

    #[test]
    fn long_outage_logs_one_begin_and_one_end_line() {
        let logged = log_lines(|_| vec!["key: away".to_owned(); 100]);
        assert_eq!(
            logged,
            [
                "key: away".to_owned(),
                "key: away: over EndedOutage { seconds: 599, failures: 60000, quiet: 6 }".to_owned()
            ]
        );
    }

    #[test]
    fn outages_of_many_devices_log_under_twenty_lines() {
        let logged = log_lines(|second| (0..40).map(|number| format!("part {}", number * (second % 3 + 1))).collect());
        assert!(logged.len() > 4 && logged.len() < 18, "{logged:?}");
        assert!(
            logged.contains(&"part 0".to_owned()) && logged.iter().any(|line| line.starts_with(SHARED_OUTAGE_NAME)),
            "{logged:?}"
        );
    }

    #[test]
    fn outage_of_a_flapping_device_logs_under_twenty_lines() {
        for every in [6, 10, 20, 30, 59] {
            let logged = log_lines(|second| if second % every == 0 { vec!["key".to_owned()] } else { Vec::new() });
            assert!(logged.len() > 1 && logged.len() < 20, "{every}: {logged:?}");
        }
    }

    #[test]
    fn outages_above_the_limit_share_a_begin_and_an_end_line() {
        let others = OutageTable::new();
        let start = Instant::now();
        let logged = |part: usize| others.record_failure(&format!("part {part}"), format!("part {part} (away)"));
        for part in 0..MAX_SEPARATE_OUTAGES {
            assert_eq!(logged(part).unwrap(), format!("part {part} (away); not logged again until recovery"));
        }
        let first = logged(MAX_SEPARATE_OUTAGES).unwrap();
        assert!(
            first.starts_with(&format!(
                "{SHARED_OUTAGE_NAME}: part {MAX_SEPARATE_OUTAGES} (away); too many outages to log each"
            )),
            "{first}"
        );
        assert_eq!((logged(MAX_SEPARATE_OUTAGES), logged(MAX_SEPARATE_OUTAGES + 1), logged(0)), (None, None, None));
        let ends: Vec<String> = others
            .take_ended(start + Duration::from_secs(9))
            .into_iter()
            .map(|(what, over)| describe_end(&what, over))
            .collect();
        assert_eq!(ends.len(), MAX_SEPARATE_OUTAGES + 1);
        let rest = ends.iter().find(|end| end.starts_with(SHARED_OUTAGE_NAME)).unwrap();
        // The message does not claim that the object works again.
        let seconds = rest.strip_prefix("other outages: no failure for ").and_then(|end| end.strip_suffix(" s"));
        assert!(["8", "9"].contains(&seconds.unwrap()), "{rest}");
    }

    #[test]
    fn different_failure_is_logged_during_an_outage() {
        let others = OutageTable::new();
        assert_eq!(
            others.record_failure("key: away", "key: away (the disk)".to_owned()).unwrap(),
            "key: away (the disk); not logged again until recovery"
        );
        assert_eq!(others.record_failure("key: away", "key: away (the net)".to_owned()), None);
        assert!(others.record_failure("key: PIN refused", "key: PIN refused".to_owned()).is_some());
    }
}
