//! The managed keys whose series are exported: those that there are. The exporter keeps every series for as long as the
//! process lives, so those of deleted keys are left out of the page.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::catalogue::CATALOGUE;

/// How many own the series of each name.
static NAMES: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn names() -> MutexGuard<'static, BTreeMap<String, usize>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exports the series of a managed key until it is dropped.
pub struct ExportedKey(String);

impl ExportedKey {
    /// For the key of this name.
    pub fn new(name: &str) -> Self {
        *names().entry(name.to_owned()).or_default() += 1;
        Self(name.to_owned())
    }
}

impl Drop for ExportedKey {
    fn drop(&mut self) {
        let mut names = names();
        if let Some(owners) = names.get_mut(&self.0) {
            *owners -= 1;
            if *owners == 0 {
                names.remove(&self.0);
            }
        }
    }
}

/// The page without the series of keys that are not there any more.
pub(super) fn without_deleted(page: &str) -> String {
    let names = names();
    let of_keys =
        |line: &&str| CATALOGUE.iter().any(|metric| metric.labels.contains(&"key") && line.starts_with(metric.name));
    let is_there = |line: &str| match Some(line).filter(of_keys).and_then(|line| line.split_once("{key=\"")) {
        Some((_, rest)) => rest.split_once('"').is_none_or(|(name, _)| names.contains_key(name)),
        None => true,
    };
    page.split_inclusive('\n').filter(|line| is_there(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_key_are_exported_while_somebody_owns_them() {
        let page = "# HELP signet_signer_queue q\nsignet_signer_queue{key=\"exported\"} 1\n\
            signet_signer_wait_seconds_bucket{key=\"exported\",le=\"1\"} 1\nsignet_other{key=\"exported\"} 1\n";
        let lines = || without_deleted(page).lines().count();
        assert_eq!(lines(), 2);
        let (one, other) = (ExportedKey::new("exported"), ExportedKey::new("exported"));
        assert_eq!(without_deleted(page), page);
        drop(one);
        assert_eq!(lines(), 4);
        drop(other);
        assert_eq!(lines(), 2);
    }
}
