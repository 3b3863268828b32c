//! Compiled unions of policies, kept per set of names inside the view they belong to: most callers share theirs.
//!
//! A table has so many unions and so many bytes, about; one that is full begins anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::policy::Acl;
use crate::clock::Time;
use crate::templates::Identity;

/// Most unions that one view keeps: of sets of policies, and of entities.
const MAX_COMPILED: usize = 1_024;
const MAX_FILLED: usize = 8_192;
/// Most bytes of each, about.
const MAX_WEIGHT: usize = 64 << 20;

/// Who fills the templates of policies.
pub(in crate::auth) trait Filler: Identity {
    /// What tells its values from those of everybody else, and from those that it had before.
    fn stamp(&self) -> String;
}

/// The unions of one view.
pub(super) struct Unions {
    plain: Table,
    /// Of policies with templates.
    filled: Table,
    /// Whether a table has begun anew.
    began_anew: AtomicBool,
}

impl Default for Unions {
    fn default() -> Self {
        let (plain, filled) = (Table::new(MAX_COMPILED), Table::new(MAX_FILLED));
        Self { plain, filled, began_anew: AtomicBool::new(false) }
    }
}

/// What a union is made of.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The names of the policies.
    pub names: Box<[String]>,
    /// The [stamp](Filler::stamp) of who fills their templates.
    pub stamp: Option<Box<str>>,
}

/// Unions up to a number and a weight.
struct Table {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    unions: HashMap<Key, Arc<Acl>>,
    weight: usize,
}

impl Unions {
    fn table(&self, key: &Key) -> &Table {
        if key.stamp.is_some() { &self.filled } else { &self.plain }
    }

    /// What is kept and is still valid.
    pub(super) fn get(&self, key: &Key, now: Time) -> Option<Arc<Acl>> {
        self.table(key).get(key, now)
    }

    /// Keeps a union, where there is room for it.
    pub(super) fn keep(&self, key: Key, acl: Acl) -> Arc<Acl> {
        let (acl, anew) = self.table(&key).keep(key, acl);
        if anew {
            self.began_anew.store(true, Ordering::Relaxed);
        }
        acl
    }

    /// Whether a table has begun anew since this was asked last.
    pub(super) fn began_anew(&self) -> bool {
        self.began_anew.load(Ordering::Relaxed) && self.began_anew.swap(false, Ordering::Relaxed)
    }
}

impl Table {
    fn new(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept and is still valid.
    fn get(&self, key: &Key, now: Time) -> Option<Arc<Acl>> {
        let held = self.lock();
        held.unions.get(key).filter(|acl| acl.valid_until().is_none_or(|end| now < end)).map(Arc::clone)
    }

    /// Keeps a union; whether the table begins anew with it.
    fn keep(&self, key: Key, acl: Acl) -> (Arc<Acl>, bool) {
        let (acl, weight) = (Arc::new(acl), |key: &Key, acl: &Acl| acl.weight() + key.weight());
        let mut held = self.lock();
        if let Some((key, before)) = held.unions.remove_entry(&key) {
            held.weight -= weight(&key, &before);
        }
        let more = weight(&key, &acl);
        if more > MAX_WEIGHT / 4 {
            // It would leave no room for others.
            return (acl, false);
        }
        let full = held.unions.len() >= self.most || held.weight + more > MAX_WEIGHT;
        if full {
            *held = Held::default();
        }
        held.weight += more;
        held.unions.insert(key, Arc::clone(&acl));
        (acl, full)
    }
}

impl Key {
    fn weight(&self) -> usize {
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

    fn key(n: usize) -> Key {
        Key { names: [format!("p{n}")].into(), stamp: None }
    }

    /// A union of about this many bytes.
    fn weighing(bytes: usize) -> Acl {
        let texts = ["allowed", "denied"].map(|list| {
            let text = format!("path \"a\" {{ {list}_parameters = {{ \"a\" = [\"{}\"] }} }}", "x".repeat(bytes / 2));
            Policy::parse(&text).unwrap()
        });
        Acl::compile(&texts, None, NOW)
    }

    #[test]
    fn a_table_has_so_many_unions_and_so_many_bytes() {
        let table = Table::new(3);
        for n in 0..3 {
            assert!(!table.keep(key(n), weighing(10)).1);
            assert!(!table.keep(key(n), weighing(10)).1, "in its own place");
        }
        assert!((0..3).all(|n| table.get(&key(n), NOW).is_some()));
        assert!(table.keep(key(3), weighing(10)).1);
        assert_eq!((0..4).map(|n| table.get(&key(n), NOW).is_some()).collect::<Vec<_>>(), [false, false, false, true]);
        let table = Table::new(usize::MAX);
        let large = || weighing(400_000);
        let fit = MAX_WEIGHT / (large().weight() + key(0).weight());
        for n in 0..fit {
            table.keep(key(n), large());
        }
        assert_eq!(table.lock().unions.len(), fit);
        table.keep(key(fit), large());
        let held = table.lock();
        assert_eq!((held.unions.len(), held.weight), (1, large().weight() + key(fit).weight()));
    }
}
