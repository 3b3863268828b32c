//! Compiled unions of policies, kept per set of names inside the view they belong to: most callers share theirs.
//!
//! A table has so many unions and so many bytes, about; one that is full begins anew. What takes long to compile is
//! compiled beside the workers, one union at a time, and nobody else waits for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Policies, WRAPPING, WRAPPING_POLICY};
use crate::auth::Large;
use crate::auth::policy::Acl;
use crate::clock::{Clock, Time};
use crate::error::Result;
use crate::templates::Identity;

/// Most unions that one view keeps: of sets of policies, and of entities.
const MAX_COMPILED: usize = 1_024;
const MAX_FILLED: usize = 8_192;
/// Most bytes of each, about.
const MAX_WEIGHT: usize = 64 << 20;
/// Policies with longer texts together, in bytes, are looked through beside the workers: these take a millisecond or so.
const AT_ONCE: usize = 64 << 10;

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

/// What a union is made of: the names of the policies, and the [stamp](Filler::stamp) of who fills their templates.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    names: Box<[String]>,
    stamp: Box<str>,
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

impl Policies {
    /// The compiled union of the named policies, with their templates filled by `filler`; names without a policy
    /// add nothing.
    ///
    /// # Errors
    /// `Internal` when compiling it panics.
    pub(in crate::auth) async fn acl(
        self: &Arc<Self>,
        names: &[String],
        filler: Option<Arc<dyn Filler + Send + Sync>>,
        clock: &Clock,
        large: &Large,
    ) -> Result<Arc<Acl>> {
        let now = clock.now();
        let has_templates = |name: &String| self.live(name, now).is_some_and(|entry| entry.policy.has_templates());
        let filler = filler.filter(|_| names.iter().any(has_templates));
        let table = if filler.is_some() { &self.unions.filled } else { &self.unions.plain };
        let stamp = filler.as_ref().map(|filler| filler.stamp()).unwrap_or_default().into();
        let key = Key { names: names.into(), stamp };
        if let Some(acl) = table.get(&key, now) {
            return Ok(acl);
        }
        let (policies, at, clock) = (Arc::clone(self), key, clock.clone());
        // It may have been compiled while this one waited for its turn.
        let compile = move || {
            let (unions, now) = (&policies.unions, clock.now());
            let table = if filler.is_some() { &unions.filled } else { &unions.plain };
            table.get(&at, now).unwrap_or_else(|| {
                let acl = policies.compile(&at.names, filler.as_deref(), now);
                policies.kept(table, at, acl)
            })
        };
        large.work(self.are_long(names, now), compile).await
    }

    fn kept(&self, table: &Table, key: Key, acl: Acl) -> Arc<Acl> {
        let (acl, anew) = table.keep(key, acl);
        if anew {
            self.unions.began_anew.store(true, Ordering::Relaxed);
        }
        acl
    }

    /// Whether a table has begun anew since this was asked last: then callers that nobody needs any more should let go
    /// of unions that are in no table.
    pub(in crate::auth) fn began_anew(&self) -> bool {
        self.unions.began_anew.load(Ordering::Relaxed) && self.unions.began_anew.swap(false, Ordering::Relaxed)
    }

    /// Whether their texts together are long.
    pub(in crate::auth) fn are_long(&self, names: &[String], now: Time) -> bool {
        let texts = names.iter().filter_map(|name| self.live(name, now)).map(|entry| entry.stored.text.len());
        texts.sum::<usize>() > AT_ONCE
    }

    fn compile(&self, names: &[String], filler: Option<&(dyn Filler + Send + Sync)>, now: Time) -> Acl {
        let found = names.iter().filter_map(|name| self.live(name, now));
        let ends = found.clone().filter_map(|entry| entry.stored.expiration).min();
        let wrapping = names.iter().filter(|name| *name == WRAPPING).map(|_| &*WRAPPING_POLICY);
        let identity = filler.map(|filler| filler as &dyn Identity);
        Acl::compile(found.map(|entry| &entry.policy).chain(wrapping), identity, now).until(ends)
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
        128 + self.stamp.len() + self.names.iter().map(|name| 24 + name.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::policy::Policy;
    use time::macros::datetime;

    const NOW: Time = datetime!(2030-01-01 0:00 UTC);

    fn key(n: usize) -> Key {
        Key { names: [format!("p{n}")].into(), stamp: "".into() }
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
