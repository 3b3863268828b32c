//! The managed keys whose series are on the metrics page.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of existing `ExportedKey` values by key name.
static EXPORTED_KEY_OWNERS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn lock_owners() -> MutexGuard<'static, BTreeMap<String, usize>> {
    EXPORTED_KEY_OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this value exists, the metrics page contains the series of a managed key.
pub struct ExportedKey(String);

impl ExportedKey {
    /// Adds the series of the key with this name to the metrics page.
    pub fn new(name: &str) -> Self {
        *lock_owners().entry(name.to_owned()).or_default() += 1;
        Self(name.to_owned())
    }
}

impl Drop for ExportedKey {
    fn drop(&mut self) {
        let mut all_owners = lock_owners();
        if let Some(owners) = all_owners.get_mut(&self.0) {
            *owners -= 1;
            if *owners == 0 {
                all_owners.remove(&self.0);
            }
        }
    }
}

pub(super) fn is_exported(name: &str) -> bool {
    lock_owners().contains_key(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_key_is_exported_while_it_has_an_owner() {
        assert!(!is_exported("exported"));
        let one = ExportedKey::new("exported");
        let other = ExportedKey::new("exported");
        drop(one);
        assert!(is_exported("exported"));
        drop(other);
        assert!(!is_exported("exported"));
    }
}
