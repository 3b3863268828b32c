//! The metrics of a mount. A mount holds its meter, so a request neither looks up a path nor hashes labels.
//!
//! The label `mount` is the path. At most [`MAX_LABELLED_MOUNTS`] mounts have their own label; the others
//! share `other`. The exporter keeps each series for the life of the process, so the metrics page omits the
//! series of deleted mounts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use metrics::{Counter, Label, SharedString};

use super::catalogue::{ISSUING_OPERATIONS, PKI_CERTIFICATES, PKI_REFUSALS};
use super::response_counters::{ResponseCounters, ResponseCountersByRoute};

/// Maximum number of mounts with their own label at the same time.
const MAX_LABELLED_MOUNTS: usize = 200;
/// Maximum number of labels that a process ever creates, so that creating and deleting mounts repeatedly does not fill
/// the exporter.
const MAX_LABELS_PER_PROCESS: usize = 2000;

/// The label of requests whose path belongs to no mount. It cannot be a mount path, because these contain a `/`.
pub const NO_MOUNT: &str = "none";
/// The label that all mounts beyond [`MAX_LABELLED_MOUNTS`] share.
const OTHER_MOUNTS: &str = "other";

static MOUNT_LABELS: MountLabels = MountLabels(Mutex::new(BTreeMap::new()));
static OTHER_MOUNTS_METER: LazyLock<Arc<MountCounters>> = LazyLock::new(|| Arc::new(MountCounters::new(OTHER_MOUNTS)));

/// The label values with the meters of their mounts. A meter lives as long as a mount holds it.
struct MountLabels(Mutex<BTreeMap<String, Weak<MountCounters>>>);

impl MountLabels {
    fn meter(&self, path: &str) -> Arc<MountCounters> {
        let mut labels = self.lock();
        if let Some(meter) = labels.get(path).and_then(Weak::upgrade) {
            return meter;
        }
        let in_use = labels.values().filter(|meter| meter.strong_count() > 0).count();
        let is_new = !labels.contains_key(path);
        if in_use >= MAX_LABELLED_MOUNTS || (is_new && labels.len() >= MAX_LABELS_PER_PROCESS) {
            return Arc::clone(&OTHER_MOUNTS_METER);
        }
        let meter = Arc::new(MountCounters::new(path));
        labels.insert(path.to_owned(), Arc::downgrade(&meter));
        meter
    }

    /// `true` for the label of an existing mount, and for `none` and `other`.
    fn is_exported(&self, label: &str) -> bool {
        let exists = || self.lock().get(label).is_some_and(|meter| meter.strong_count() > 0);
        matches!(label, NO_MOUNT | OTHER_MOUNTS) || exists()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<MountCounters>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The metrics of a mount. Clones share their counters.
#[derive(Clone)]
pub struct MountMeter(Arc<MountCounters>);

struct MountCounters {
    label: SharedString,
    answers: ResponseCountersByRoute,
    issuing: OnceLock<IssuingCounters>,
}

/// Counters of issued certificates and refusals, in the order of [`ISSUING_OPERATIONS`].
struct IssuingCounters {
    certificates: [Counter; ISSUING_OPERATIONS.len()],
    refusals: [Counter; ISSUING_OPERATIONS.len()],
}

impl MountCounters {
    fn new(label: &str) -> Self {
        Self { label: label.to_owned().into(), answers: ResponseCountersByRoute::new(), issuing: OnceLock::new() }
    }

    fn issuing(&self) -> &IssuingCounters {
        let counters = |metric: &'static str| {
            ISSUING_OPERATIONS
                .map(|operation| metrics::counter!(metric, "mount" => self.label.clone(), "operation" => operation))
        };
        self.issuing.get_or_init(|| IssuingCounters {
            certificates: counters(PKI_CERTIFICATES),
            refusals: counters(PKI_REFUSALS),
        })
    }
}

impl MountMeter {
    /// Returns the meter of the mount with this path.
    pub fn of(path: &str) -> Self {
        Self(MOUNT_LABELS.meter(path))
    }

    /// Returns the value of the label `mount`.
    pub fn label(&self) -> SharedString {
        self.0.label.clone()
    }

    /// Creates the issuing counters at zero, so that an alert notices the first event.
    pub fn create_issuing_counters(&self) {
        self.0.issuing();
    }

    /// Counts an issued certificate; `operation` is an index into [`ISSUING_OPERATIONS`].
    pub fn count_issued(&self, operation: usize) {
        self.0.issuing().certificates[operation].increment(1);
    }

    /// Counts an issuing request that was rejected or failed; `operation` as in [`MountMeter::count_issued`].
    pub fn count_refused(&self, operation: usize) {
        self.0.issuing().refusals[operation].increment(1);
    }

    pub(super) fn count_response(&self, route: usize, labels: &[Label], status: u16) {
        match self.0.answers.get(route) {
            Some(answers) => answers.count(&self.0.label, labels, status),
            None => ResponseCounters::new().count(&self.0.label, labels, status),
        }
    }
}

impl fmt::Debug for MountMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MountMeter").field(&self.0.label).finish()
    }
}

/// The meter of a mount, resolved on first use. Clones resolve their own meter, because a copy of a
/// mount may get another path.
#[derive(Default)]
pub struct LazyMountMeter(OnceLock<MountMeter>);

impl LazyMountMeter {
    /// Returns the meter of the mount with this path. All calls must pass the same path.
    pub fn of(&self, path: &str) -> &MountMeter {
        self.0.get_or_init(|| MountMeter::of(path))
    }
}

impl Clone for LazyMountMeter {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for LazyMountMeter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for LazyMountMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyMountMeter")
    }
}

pub(super) fn is_exported(label: &str) -> bool {
    MOUNT_LABELS.is_exported(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_beyond_the_limit_share_a_label_until_a_mount_is_gone() {
        let labels = MountLabels(Mutex::default());
        let kept: Vec<Arc<MountCounters>> =
            (0..MAX_LABELLED_MOUNTS).map(|n| labels.meter(&format!("limit-{n:03}/"))).collect();
        assert_eq!(&*kept[MAX_LABELLED_MOUNTS - 1].label, "limit-199/");
        assert_eq!(&*labels.meter("beyond/").label, OTHER_MOUNTS);
        assert_eq!(&*labels.meter("limit-000/").label, "limit-000/", "a mount keeps its label");
        for exported in ["limit-000/", OTHER_MOUNTS, NO_MOUNT] {
            assert!(labels.is_exported(exported));
        }
        drop(kept);
        assert!(!labels.is_exported("limit-000/") && !labels.is_exported("beyond/"));
        assert_eq!(&*labels.meter("beyond/").label, "beyond/");
    }

    #[test]
    fn number_of_mount_labels_per_process_is_limited() {
        let labels = MountLabels(Mutex::default());
        for n in 0..MAX_LABELS_PER_PROCESS {
            assert_ne!(&*labels.meter(&format!("ever-{n}/")).label, OTHER_MOUNTS);
        }
        assert_eq!(&*labels.meter("one-more/").label, OTHER_MOUNTS);
        assert_eq!(&*labels.meter("ever-0/").label, "ever-0/", "a path that had a label has it again");
    }

    #[test]
    fn cloned_mount_resolves_its_own_meter() {
        let lazy = LazyMountMeter::default();
        for _ in 0..2 {
            assert_eq!(&*lazy.of("copied/").label(), "copied/");
            assert_eq!(&*lazy.clone().of("moved/").label(), "moved/");
        }
    }
}
