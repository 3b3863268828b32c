//! Permanent identifiers of the keys to which the configured name of a managed key has referred.

use std::sync::Arc;

use crate::keys::signer::KeyIdentity;

/// Maximum number of remembered keys, and of remembered refused locators. A name rarely changes its key.
const MAX_PINNED_KEYS: usize = 16;

#[derive(Default)]
pub(super) struct PinnedKeys {
    keys: Vec<Arc<KeyIdentity>>,
    /// Locators with which the service refused to sign. The name is resolved again before such a locator is used.
    refused: Vec<String>,
}

impl PinnedKeys {
    /// Returns the identity with which the service signs for a key in use. Before the first lookup of that key, this is
    /// its recorded identity, unless the service refused it.
    pub(super) fn signing_identity(&mut self, key: &KeyIdentity) -> Option<Arc<KeyIdentity>> {
        match self.keys.iter().find(|known| known.public == key.public) {
            Some(known) => Some(Arc::clone(known)),
            None if self.refused.contains(&key.locator) => None,
            None => self.use_recorded_locator(key),
        }
    }

    /// Returns the recorded identity of a key in use, and forgets that the service refused it; `None` without a
    /// locator.
    pub(super) fn use_recorded_locator(&mut self, key: &KeyIdentity) -> Option<Arc<KeyIdentity>> {
        let known = Arc::new(Some(key).filter(|key| !key.locator.is_empty())?.clone());
        self.refused.retain(|locator| *locator != known.locator);
        self.insert(Arc::clone(&known));
        Some(known)
    }

    /// Stores the key to which the name refers now. Returns `true` if the name referred only to other keys until now.
    pub(super) fn record_lookup(&mut self, found: Arc<KeyIdentity>) -> bool {
        let is_another = !self.keys.is_empty() && self.keys.iter().all(|known| known.public != found.public);
        self.keys.retain(|known| known.public != found.public);
        self.refused.retain(|locator| *locator != found.locator);
        self.insert(found);
        is_another
    }

    /// Removes a key with which the service refused to sign, and remembers its locator as refused.
    pub(super) fn remove_refused(&mut self, known: &KeyIdentity) {
        self.keys.retain(|kept| kept.public != known.public || kept.locator != known.locator);
        if !self.refused.contains(&known.locator) {
            self.refused.truncate(MAX_PINNED_KEYS - 1);
            self.refused.insert(0, known.locator.clone());
        }
    }

    fn insert(&mut self, known: Arc<KeyIdentity>) {
        self.keys.truncate(MAX_PINNED_KEYS - 1);
        self.keys.insert(0, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::local::{KeySpec, PrivateKey};

    fn identity_with_locator(locator: &str) -> KeyIdentity {
        let key = PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap();
        KeyIdentity { public: key.public().clone(), locator: locator.to_owned() }
    }

    #[test]
    fn key_stays_pinned_until_the_service_refuses_to_sign_with_it() {
        let mut pins = PinnedKeys::default();
        let first = identity_with_locator("1");
        let second = identity_with_locator("2");
        assert!(!pins.record_lookup(Arc::new(first.clone())) && !pins.record_lookup(Arc::new(first.clone())));
        assert!(pins.record_lookup(Arc::new(second.clone())), "the name leads to another one");
        for key in [&first, &second] {
            assert_eq!(pins.signing_identity(key).unwrap().locator, key.locator);
        }
        pins.remove_refused(&first);
        assert!(pins.signing_identity(&first).is_none() && pins.signing_identity(&second).is_some());
        assert!(pins.use_recorded_locator(&first).is_some() && pins.signing_identity(&first).is_some(), "tried again");
        pins.remove_refused(&first);
        pins.record_lookup(Arc::new(first.clone()));
        assert!(pins.signing_identity(&first).is_some(), "it is back");
    }

    #[test]
    fn after_a_start_the_recorded_locator_wins_over_the_name() {
        let mut pins = PinnedKeys::default();
        let recorded = identity_with_locator("1");
        let older = identity_with_locator("");
        assert_eq!(pins.signing_identity(&recorded).unwrap().locator, "1");
        assert!(pins.signing_identity(&older).is_none());
        let found = KeyIdentity { locator: "3".to_owned(), ..older.clone() };
        pins.record_lookup(Arc::new(found));
        assert_eq!(pins.signing_identity(&older).unwrap().locator, "3");
    }

    #[test]
    fn pinned_and_refused_keys_are_bounded() {
        let mut pins = PinnedKeys::default();
        let keys: Vec<KeyIdentity> = (0..MAX_PINNED_KEYS + 4).map(|n| identity_with_locator(&n.to_string())).collect();
        let others = keys.iter().filter(|key| pins.record_lookup(Arc::new(KeyIdentity::clone(key)))).count();
        assert_eq!(others, keys.len() - 1);
        assert_eq!((pins.keys.len(), &pins.keys[0].locator), (MAX_PINNED_KEYS, &keys[MAX_PINNED_KEYS + 3].locator));
        keys.iter().for_each(|key| pins.remove_refused(key));
        assert_eq!((pins.keys.len(), pins.refused.len()), (0, MAX_PINNED_KEYS));
    }
}
