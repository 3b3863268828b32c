//! A cache of compiled unions of policies, by policy names and identity. It belongs to one view.
//!
//! Each table is bounded by number and bytes. A full table is emptied.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::policy::Acl;
use crate::clock::Time;
use crate::templates::Identity;

/// Maximum number of unions without and with templates.
const MAX_COMPILED: usize = 1_024;
const MAX_FILLED: usize = 8_192;
/// Approximate maximum size of each table in bytes.
const MAX_WEIGHT: usize = 64 << 20;

/// An identity that fills the templates of policies.
pub(in crate::auth) trait Filler: Identity {
    /// A text that differs between identities, and changes when the identity changes.
    fn stamp(&self) -> String;
}

pub(super) struct Unions {
    plain: Table,
    /// Unions of policies with templates.
    filled: Table,
    began_anew: AtomicBool,
}

impl Default for Unions {
    fn default() -> Self {
        let (plain, filled) = (Table::new(MAX_COMPILED), Table::new(MAX_FILLED));
        Self { plain, filled, began_anew: AtomicBool::new(false) }
    }
}

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Names of the policies.
    pub names: Box<[String]>,
    /// [Stamp](Filler::stamp) of the identity, if the policies have templates.
    pub stamp: Option<Box<str>>,
}

/// A table with a maximum number and weight.
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

    pub(super) fn get(&self, key: &Key, now: Time) -> Option<Arc<Acl>> {
        self.table(key).get(key, now)
    }

    /// Caches a union if it is not too large.
    pub(super) fn keep(&self, key: Key, acl: Acl) -> Arc<Acl> {
        let (acl, anew) = self.table(&key).keep(key, acl);
        if anew {
            self.began_anew.store(true, Ordering::Relaxed);
        }
        acl
    }

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

    fn get(&self, key: &Key, now: Time) -> Option<Arc<Acl>> {
        let held = self.lock();
        held.unions.get(key).filter(|acl| acl.valid_until().is_none_or(|end| now < end)).map(Arc::clone)
    }

    /// Caches a union. Returns `true` if this emptied the table.
    fn keep(&self, key: Key, acl: Acl) -> (Arc<Acl>, bool) {
        let (acl, weight) = (Arc::new(acl), |key: &Key, acl: &Acl| acl.weight() + key.weight());
        let mut held = self.lock();
        if let Some((key, before)) = held.unions.remove_entry(&key) {
            held.weight -= weight(&key, &before);
        }
        let more = weight(&key, &acl);
        if more > MAX_WEIGHT / 4 {
            // It would use too much of the table.
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
