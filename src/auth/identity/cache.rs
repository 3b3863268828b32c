//! A bounded cache of entities.
//!
//! The cache returns an entity for half a second after it was read. A cached caller refers to its entity and is valid
//! for a second after that read. A change of an entity on this node takes effect immediately: it marks the cached
//! entity as changed, and callers that refer to it are read from the store again.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::entity::Entity;
use crate::clock::Time;

/// Maximum age of an entity that the cache returns, counted from the time at which it was read from the store.
const MAX_CACHED_ENTITY_AGE: Duration = Duration::from_millis(500);
/// Maximum time for which callers use an entity after it was read. The cache keeps the entity for that time, so that a
/// change can mark it as changed.
const MAX_USED_ENTITY_AGE: Duration = Duration::from_secs(1);
const MAX_CACHED_ENTITIES: usize = 65_536;

/// An entity as read from the store, and a flag that is set when the entity changes. All callers of the entity share
/// the flag.
#[derive(Clone)]
pub struct EntityRef {
    entity: Arc<Entity>,
    read_at: Time,
    changed: Arc<AtomicBool>,
}

impl EntityRef {
    /// `true` if the entity was changed on this node since it was read.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Returns the time at which the read of the entity from the store began.
    pub(crate) fn read_at(&self) -> Time {
        self.read_at
    }

    /// Returns the entity itself.
    pub fn entity(&self) -> Arc<Entity> {
        Arc::clone(&self.entity)
    }
}

impl Deref for EntityRef {
    type Target = Entity;

    fn deref(&self) -> &Entity {
        &self.entity
    }
}

#[derive(Default)]
pub(crate) struct EntityCache(Mutex<EntityCacheState>);

#[derive(Default)]
struct EntityCacheState {
    by_id: HashMap<Box<str>, EntityRef>,
    /// Entity ids by `accessor/name` of each alias. An accessor contains no `/`.
    by_alias: HashMap<String, Box<str>>,
    /// Incremented when an entity changes, so that [`EntityCache::put`] detects entities read before the change.
    epoch: u64,
}

impl EntityCache {
    /// Returns the cached entity with this id; `None` if it must be read from the store.
    pub(super) fn by_id(&self, id: &str, now: Time) -> Option<EntityRef> {
        self.lock().by_id.get(id).filter(|known| is_younger(known, now, MAX_CACHED_ENTITY_AGE)).cloned()
    }

    /// Returns the cached entity with this alias; `None` if it must be read from the store.
    pub(super) fn by_alias(&self, accessor: &str, name: &str, now: Time) -> Option<EntityRef> {
        let inner = self.lock();
        let id = inner.by_alias.get(&alias_key(accessor, name))?;
        let known = inner.by_id.get(id).filter(|known| is_younger(known, now, MAX_CACHED_ENTITY_AGE))?;
        known.alias_at(accessor).is_some_and(|alias| alias.name == name).then(|| known.clone())
    }

    /// Returns the current epoch. The caller takes it before it reads an entity, and passes it to [`EntityCache::put`].
    pub(super) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Caches an entity that was read at `read_at`. If any entity changed after `epoch` was taken, or the cache is
    /// full, the entity is not cached, and the returned reference is marked as changed.
    pub(super) fn put(&self, entity: Entity, read_at: Time, epoch: u64) -> EntityRef {
        let mut inner = self.lock();
        if inner.by_id.len() >= MAX_CACHED_ENTITIES {
            inner.prune(read_at);
        }
        let full = inner.by_id.len() >= MAX_CACHED_ENTITIES && !inner.by_id.contains_key(&entity.id[..]);
        if inner.epoch != epoch || full {
            return EntityRef { entity: Arc::new(entity), read_at, changed: Arc::new(AtomicBool::new(true)) };
        }
        // The flag is shared with callers that hold an earlier read of the same entity.
        let changed = inner.by_id.get(&entity.id[..]).map(|known| Arc::clone(&known.changed)).unwrap_or_default();
        for alias in &entity.aliases {
            inner.by_alias.insert(alias_key(&alias.accessor, &alias.name), entity.id.as_str().into());
        }
        let known = EntityRef { entity: Arc::new(entity), read_at, changed };
        inner.by_id.insert(known.id.as_str().into(), known.clone());
        known
    }

    /// Removes an entity that has changed, or may have changed, and marks it as changed for the callers that hold it.
    pub(super) fn mark_changed(&self, id: &str) {
        let mut inner = self.lock();
        inner.epoch += 1;
        if let Some(known) = inner.by_id.remove(id) {
            known.changed.store(true, Ordering::Release);
        }
    }

    pub(super) fn prune(&self, now: Time) {
        self.lock().prune(now);
    }

    fn lock(&self) -> MutexGuard<'_, EntityCacheState> {
        // A poisoned lock can be used: no code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EntityCacheState {
    fn prune(&mut self, now: Time) {
        let Self { by_id, by_alias, .. } = self;
        by_id.retain(|_, known| is_younger(known, now, MAX_USED_ENTITY_AGE));
        by_alias.retain(|_, id| by_id.contains_key(id));
    }
}

fn alias_key(accessor: &str, name: &str) -> String {
    format!("{accessor}/{name}")
}

fn is_younger(known: &EntityRef, now: Time, than: Duration) -> bool {
    let age = now - known.read_at;
    !age.is_negative() && age < than
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::UNIX_EPOCH;

    fn entity_named(name: &str) -> Entity {
        let mut entity = Entity::new(START);
        entity.id = "id".to_owned();
        entity.name = name.to_owned();
        entity.aliases.push(super::super::entity::Alias::new("jwt_1", "bob", "id", START));
        entity
    }

    #[test]
    fn entity_cache_returns_an_entity_for_half_a_second() {
        let entities = EntityCache::default();
        entities.put(entity_named("a"), START, entities.epoch());
        let at = |ms| START + Duration::from_millis(ms);
        assert_eq!(entities.by_id("id", at(499)).unwrap().name, "a");
        assert_eq!(entities.by_alias("jwt_1", "bob", at(499)).unwrap().name, "a");
        assert!(entities.by_alias("jwt_2", "bob", at(0)).is_none());
        assert!(entities.by_id("id", at(500)).is_none());
        assert!(entities.by_id("id", START - Duration::from_secs(1)).is_none(), "a clock that was set back");
        entities.prune(at(999));
        assert_eq!(entities.lock().by_id.len(), 1);
        entities.prune(at(1000));
        assert!(entities.lock().by_id.is_empty() && entities.lock().by_alias.is_empty());
    }

    #[test]
    fn entity_change_marks_every_cached_copy() {
        let entities = EntityCache::default();
        let first = entities.put(entity_named("a"), START, entities.epoch());
        let second = entities.put(entity_named("a"), START + Duration::from_millis(600), entities.epoch());
        let epoch = entities.epoch();
        entities.mark_changed("id");
        assert!(first.is_changed() && second.is_changed());
        assert!(entities.by_id("id", START).is_none());
        // This read of the entity began before the change and ended after it.
        assert!(entities.put(entity_named("a"), START, epoch).is_changed());
        assert!(entities.by_id("id", START).is_none());
        let third = entities.put(entity_named("b"), START, entities.epoch());
        assert!(!third.is_changed());
    }
}
