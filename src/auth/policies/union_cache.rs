//! A cache of compiled unions of policies, by policy names and identity. Each snapshot of the stored policies has its
//! own cache.
//!
//! Each table of the cache is bounded by number and bytes. A full table is emptied.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::policy::Acl;
use crate::clock::Time;
use crate::templates::TemplateValues;

/// Maximum number of cached unions of policies without templates.
const MAX_PLAIN_UNIONS: usize = 1_024;
/// Maximum number of cached unions of policies with templates.
const MAX_TEMPLATED_UNIONS: usize = 8_192;
/// Approximate maximum size of each table in bytes.
const MAX_TABLE_BYTES: usize = 64 << 20;

/// An identity whose values fill the templates of policies.
pub(in crate::auth) trait VersionedTemplateValues: TemplateValues {
    /// Returns a text that differs between identities, and that changes whenever a value of the identity changes.
    fn version_stamp(&self) -> String;
}

pub(super) struct UnionCache {
    plain: UnionTable,
    /// Unions of policies whose templates are filled with values of an identity.
    filled: UnionTable,
    emptied: AtomicBool,
}

impl Default for UnionCache {
    fn default() -> Self {
        let plain = UnionTable::new(MAX_PLAIN_UNIONS);
        let filled = UnionTable::new(MAX_TEMPLATED_UNIONS);
        Self { plain, filled, emptied: AtomicBool::new(false) }
    }
}

#[derive(PartialEq, Eq, Hash)]
pub(super) struct UnionKey {
    /// Names of the policies in the union.
    pub names: Box<[String]>,
    /// [Version stamp](VersionedTemplateValues::version_stamp) of the identity; `None` if the policies have no
    /// templates.
    pub stamp: Option<Box<str>>,
}

/// A table of unions with a maximum number and a maximum size in bytes.
struct UnionTable {
    max_unions: usize,
    state: Mutex<UnionTableState>,
}

#[derive(Default)]
struct UnionTableState {
    unions: HashMap<UnionKey, Arc<Acl>>,
    weight: usize,
}

impl UnionCache {
    fn table(&self, key: &UnionKey) -> &UnionTable {
        if key.stamp.is_some() { &self.filled } else { &self.plain }
    }

    pub(super) fn get(&self, key: &UnionKey, now: Time) -> Option<Arc<Acl>> {
        self.table(key).get(key, now)
    }

    /// Caches a union unless it is too large, and returns it.
    pub(super) fn insert(&self, key: UnionKey, acl: Acl) -> Arc<Acl> {
        let (acl, emptied) = self.table(&key).insert(key, acl);
        if emptied {
            self.emptied.store(true, Ordering::Relaxed);
        }
        acl
    }

    pub(super) fn take_emptied_flag(&self) -> bool {
        self.emptied.load(Ordering::Relaxed) && self.emptied.swap(false, Ordering::Relaxed)
    }
}

impl UnionTable {
    fn new(max_unions: usize) -> Self {
        Self { max_unions, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, UnionTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &UnionKey, now: Time) -> Option<Arc<Acl>> {
        let state = self.lock();
        state.unions.get(key).filter(|acl| acl.valid_until().is_none_or(|end| now < end)).map(Arc::clone)
    }

    /// Caches a union unless it is too large. Returns the union, and `true` if the table was full and has been emptied.
    fn insert(&self, key: UnionKey, acl: Acl) -> (Arc<Acl>, bool) {
        let (acl, weight) =
            (Arc::new(acl), |key: &UnionKey, acl: &Acl| acl.approximate_bytes() + key.approximate_bytes());
        let mut state = self.lock();
        if let Some((key, before)) = state.unions.remove_entry(&key) {
            state.weight -= weight(&key, &before);
        }
        let more = weight(&key, &acl);
        if more > MAX_TABLE_BYTES / 4 {
            // The union would take more than a quarter of the table.
            return (acl, false);
        }
        let full = state.unions.len() >= self.max_unions || state.weight + more > MAX_TABLE_BYTES;
        if full {
            *state = UnionTableState::default();
        }
        state.weight += more;
        state.unions.insert(key, Arc::clone(&acl));
        (acl, full)
    }
}

impl UnionKey {
    fn approximate_bytes(&self) -> usize {
        128 + self.stamp.as_ref().map_or(0, |stamp| stamp.len())
            + self.names.iter().map(|name| 24 + name.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::policy::Policy;
    use time::macros::datetime;

    const NOW: Time = datetime!(2030-01-01 0:00 UTC);

    fn key(n: usize) -> UnionKey {
        UnionKey { names: [format!("p{n}")].into(), stamp: None }
    }

    fn acl_of_size(bytes: usize) -> Acl {
        let texts = ["allowed", "denied"].map(|list| {
            let text = format!("path \"a\" {{ {list}_parameters = {{ \"a\" = [\"{}\"] }} }}", "x".repeat(bytes / 2));
            Policy::parse(&text).unwrap()
        });
        Acl::compile(&texts, None, NOW)
    }

    #[test]
    fn union_table_limits_its_entries_and_bytes() {
        let table = UnionTable::new(3);
        for n in 0..3 {
            assert!(!table.insert(key(n), acl_of_size(10)).1);
            assert!(!table.insert(key(n), acl_of_size(10)).1, "in its own place");
        }
        assert!((0..3).all(|n| table.get(&key(n), NOW).is_some()));
        assert!(table.insert(key(3), acl_of_size(10)).1);
        assert_eq!((0..4).map(|n| table.get(&key(n), NOW).is_some()).collect::<Vec<_>>(), [false, false, false, true]);
        let table = UnionTable::new(usize::MAX);
        let large = || acl_of_size(400_000);
        let fit = MAX_TABLE_BYTES / (large().approximate_bytes() + key(0).approximate_bytes());
        for n in 0..fit {
            table.insert(key(n), large());
        }
        assert_eq!(table.lock().unions.len(), fit);
        table.insert(key(fit), large());
        let state = table.lock();
        assert_eq!((state.unions.len(), state.weight), (1, large().approximate_bytes() + key(fit).approximate_bytes()));
    }
}
