//! List of compromised keys. No mount in the same storage signs a certificate for a listed key.
//!
//! A key is identified by the SHA-256 of its SubjectPublicKeyInfo. Revocations for keyCompromise or by proof of
//! possession add the key in the commit that stores the revocation; operators can add keys as well. Entries outlive the
//! certificates. The whole list is in memory and is reloaded when another node changes it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use aws_lc_rs::digest;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use serde::{Deserialize, Serialize};

use super::store::{PkiStore, PkiWrite};
use super::values::parse_hex;
use crate::clock::Clock;
use crate::documents::{
    Document, DocumentKey, DocumentWrite, MAX_CHANGE_ATTEMPTS, SYSTEM_MOUNT, backoff, contention_error,
    retry_on_conflict,
};
use crate::error::{Error, Kind, Result};
use crate::rationing::{QueueCaller, cpu};
use crate::x509::certificate::Certificate;
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;

/// Kind of the documents in storage. There is one per key, named by the hexadecimal hash.
const COMPROMISED_KEY_KIND: &str = "compromised-key";
/// Maximum number of keys: the whole list is read when a node starts and when another node changed it.
pub const MAX_COMPROMISED_KEYS: usize = 50_000;

/// SHA-256 of a SubjectPublicKeyInfo, DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &PublicKey) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, key.spki()).as_ref());
        Self(hash)
    }

    /// Parses 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Invalid` naming the field `hash`.
    pub fn parse(text: &str) -> Result<Self> {
        let hash = parse_hex(text.as_bytes()).and_then(|bytes| bytes.try_into().ok());
        let rule = "hash: must be SHA-256 of a SubjectPublicKeyInfo, 64 hexadecimal digits";
        hash.map(Self).ok_or_else(|| Error::invalid(rule))
    }

    /// Formats as 64 hexadecimal digits.
    pub fn text(&self) -> String {
        let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }
}

/// Entry of a compromised key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompromisedKeyEntry {
    /// Time of addition, epoch seconds.
    pub added_at: i64,
    /// Origin: `revocation` or `operator`.
    pub source: String,
    /// Serial number of the revoked certificate, or a note of the operator.
    pub note: String,
}

/// A key to add to the list, in the commit of its revocation or in a separate one.
pub(crate) struct NewCompromisedKey {
    hash: KeyHash,
    source: &'static str,
    note: String,
}

impl NewCompromisedKey {
    /// Returns the entry to add for a revoked certificate's key; `None` if `der` does not parse.
    pub(crate) fn of_revoked(serial: Serial, der: &[u8]) -> Option<Self> {
        let certificate = Certificate::parse(der).ok()?;
        Some(Self { hash: KeyHash::of(certificate.key()), source: "revocation", note: serial.to_string() })
    }
}

/// Outcome of a commit with additions.
pub(crate) struct AdditionOutcome<T> {
    /// Result of the commit; `None` if it stored nothing.
    pub(crate) stored: Option<T>,
    /// `true` if keys were left out because the list is full.
    pub(crate) is_full: bool,
}

impl<T> AdditionOutcome<T> {
    /// Returns a warning if keys were left out.
    pub(crate) fn warning(&self) -> Option<String> {
        self.is_full.then(|| {
            format!(
                "sys/compromised-keys: the list is full ({MAX_COMPROMISED_KEYS} keys), so this key was not added and \
                 can be certified again"
            )
        })
    }
}

type VersionedEntry = (u64, Arc<CompromisedKeyEntry>);

type CompromisedKeyMap = BTreeMap<KeyHash, VersionedEntry>;

/// Compromised keys of a store, with an in-memory copy.
pub struct CompromisedKeys {
    store: Arc<dyn PkiStore>,
    clock: Clock,
    /// Locked only briefly: for a look-up, an insertion or a replacement of the whole map.
    entries: RwLock<CompromisedKeyMap>,
    progress: Mutex<CompromisedListProgress>,
    reloading: tokio::sync::Mutex<()>,
    /// `true` if a commit had an unknown outcome, so that the store may hold entries that the list lacks.
    is_outdated: AtomicBool,
}

/// Lets additions, removals and reloads detect that they overlapped.
#[derive(Default)]
struct CompromisedListProgress {
    /// Additions (with their entries) and removals (`None`) since the active reload began. They are applied to its
    /// result, because it may have read storage before them.
    since_reload: Option<Vec<(KeyHash, Option<VersionedEntry>)>>,
    /// Number of additions on this node. If it changes during a removal, the removed key may have been added again.
    additions: u64,
    /// Number of removals on this node. If it changes during an addition, the added key may have been removed again.
    removals: u64,
}

struct PendingAdditions {
    entries: CompromisedKeyMap,
    is_full: bool,
    /// Value of [`CompromisedListProgress::removals`] before the commit.
    removals: u64,
}

impl PendingAdditions {
    fn writes(&self) -> Result<Vec<PkiWrite>> {
        let write = |(hash, (_, listed)): (&KeyHash, &VersionedEntry)| {
            let body = serde_json::to_vec(&**listed).map_err(Error::internal)?;
            Ok(PkiWrite::Document(DocumentWrite { key: document_key(hash), expected: 0, body: Some(body) }))
        };
        self.entries.iter().map(write).collect()
    }
}

/// Marks the list as outdated unless `finish` is called: a request may be dropped while it waits.
struct MarkOutdatedOnDrop<'a>(Option<&'a AtomicBool>);

impl MarkOutdatedOnDrop<'_> {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for MarkOutdatedOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(is_outdated) = self.0 {
            is_outdated.store(true, Ordering::Relaxed);
        }
    }
}

impl CompromisedKeys {
    /// Creates an empty list, to be filled by [`CompromisedKeys::reload`].
    pub(crate) fn new(store: Arc<dyn PkiStore>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            entries: RwLock::default(),
            progress: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// Rejects a listed key; `field` names the input.
    ///
    /// # Errors
    /// `Invalid` naming the field.
    pub fn refuse(&self, field: &str, key: &PublicKey) -> Result<()> {
        // Most lists are empty; then nothing is hashed.
        if self.with_entries(CompromisedKeyMap::is_empty) {
            return Ok(());
        }
        let hash = KeyHash::of(key);
        if !self.with_entries(|entries| entries.contains_key(&hash)) {
            return Ok(());
        }
        Err(Error::invalid(format!("{field}: this key is known to be compromised (sys/compromised-keys)")))
    }

    /// Returns the entry of a key.
    pub fn get(&self, hash: &KeyHash) -> Option<Arc<CompromisedKeyEntry>> {
        self.with_entries(|entries| entries.get(hash).map(|(_, listed)| Arc::clone(listed)))
    }

    /// Returns all hashes, ascending.
    pub fn hashes(&self) -> Vec<KeyHash> {
        self.with_entries(|entries| entries.keys().copied().collect())
    }

    /// Reads the list from storage.
    ///
    /// # Errors
    /// `Unavailable` from storage; `Internal` when an entry cannot be read. The list then remains unchanged.
    pub async fn reload(&self) -> Result<()> {
        let _one_at_a_time = self.reloading.lock().await;
        // A commit with unknown outcome during the reload sets the flag again.
        self.is_outdated.store(false, Ordering::Relaxed);
        let unfinished = MarkOutdatedOnDrop(Some(&self.is_outdated));
        self.progress().since_reload = Some(Vec::new());
        let documents = self.store.documents_of_kind(SYSTEM_MOUNT, COMPROMISED_KEY_KIND).await?;
        let read = move || documents.iter().map(parse_entry).collect::<Result<CompromisedKeyMap>>();
        let mut entries = cpu::run_as(QueueCaller::server(COMPROMISED_KEY_KIND), read).await??;
        let mut progress = self.progress();
        for (hash, added) in progress.since_reload.take().unwrap_or_default() {
            match added {
                Some(entry) => entries.insert(hash, entry),
                None => entries.remove(&hash),
            };
        }
        let before = std::mem::replace(&mut *self.entries_mut(), entries);
        drop(progress);
        // Dropping tens of thousands of entries takes milliseconds, so it happens outside the locks.
        drop(before);
        unfinished.finish();
        Ok(())
    }

    /// Reloads the list if a commit had an unknown outcome; called periodically.
    ///
    /// # Errors
    /// As [`CompromisedKeys::reload`].
    pub async fn catch_up(&self) -> Result<()> {
        if self.is_outdated.load(Ordering::Relaxed) { self.reload().await } else { Ok(()) }
    }

    /// Adds a key; an existing entry remains. Returns `false` if the list is full.
    ///
    /// # Errors
    /// `Unavailable` or `Busy` from storage.
    pub async fn add(&self, hash: KeyHash, source: &'static str, note: String) -> Result<bool> {
        self.add_in_own_commit(NewCompromisedKey { hash, source, note }).await.map(|added| !added.is_full)
    }

    /// Adds a key in a separate commit.
    ///
    /// # Errors
    /// As [`CompromisedKeys::add`].
    pub(crate) async fn add_in_own_commit(&self, key: NewCompromisedKey) -> Result<AdditionOutcome<()>> {
        let commit = |writes: Vec<PkiWrite>| match writes.is_empty() {
            true => ready(Ok(Some(()))).boxed(),
            false => self.store.commit(writes).map(|stored| stored.map(|_| Some(()))).boxed(),
        };
        self.add_with(&[key], commit).await
    }

    /// Adds keys in the caller's commit. `commit` stores the given writes atomically with those of the caller. It
    /// returns `None` if it stored nothing, and runs again if another node lists one of the keys first.
    ///
    /// # Errors
    /// Those of `commit`; `Busy` when every attempt conflicts with another node.
    pub(crate) async fn add_with<'a, T>(
        &self,
        keys: &[NewCompromisedKey],
        commit: impl Fn(Vec<PkiWrite>) -> BoxFuture<'a, Result<Option<T>>>,
    ) -> Result<AdditionOutcome<T>> {
        for tried in 0..MAX_CHANGE_ATTEMPTS {
            backoff(tried).await;
            if !keys.is_empty() {
                // If an entry is stored but missing in memory, the whole commit would fail.
                self.catch_up().await?;
            }
            let additions = self.additions(keys);
            let is_full = additions.is_full;
            if additions.entries.is_empty() {
                return Ok(AdditionOutcome { stored: commit(Vec::new()).await?, is_full });
            }
            let unfinished = MarkOutdatedOnDrop(Some(&self.is_outdated));
            match commit(additions.writes()?).await {
                Ok(stored) => {
                    unfinished.finish();
                    if stored.is_some() {
                        self.publish_additions(additions).await;
                    }
                    return Ok(AdditionOutcome { stored, is_full });
                }
                // Storage was too busy and stored nothing.
                Err(error) if error.kind() == Kind::Busy => {
                    unfinished.finish();
                    return Err(error);
                }
                // Another node added one of the keys, or the outcome is unknown: continue with the list that storage
                // holds.
                Err(error) => {
                    let reloaded = self.reload().await.is_ok();
                    if reloaded {
                        unfinished.finish();
                    }
                    // The other node's entry may have been removed again, so every conflict is retried.
                    if error.kind() != Kind::Conflict || !reloaded {
                        return Err(error);
                    }
                }
            }
        }
        Err(contention_error("sys/compromised-keys"))
    }

    /// Removes a key; returns `true` if it was listed.
    ///
    /// # Errors
    /// `Unavailable` or `Busy` from storage.
    pub async fn remove(&self, hash: KeyHash) -> Result<bool> {
        retry_on_conflict("sys/compromised-keys", async || {
            let version = || self.with_entries(|entries| entries.get(&hash).map(|(version, _)| *version));
            let mut expected = version();
            if expected.is_none() {
                // Another node may have just added the key.
                self.reload().await?;
                expected = version();
            }
            let Some(expected) = expected else { return Ok(false) };
            let additions = self.progress().additions;
            let write = DocumentWrite { key: document_key(&hash), expected, body: None };
            let unfinished = MarkOutdatedOnDrop(Some(&self.is_outdated));
            let committed = self.store.commit(vec![PkiWrite::Document(write)]).await;
            if committed.is_err() {
                self.reload().await?;
            } else if !self.apply_removal(&hash, additions) {
                let _ = self.reload().await;
            }
            unfinished.finish();
            committed.map(|_| true)
        })
        .await
    }

    /// Removes a key from memory; returns `false` if it may have been added again in the meantime.
    fn apply_removal(&self, hash: &KeyHash, additions: u64) -> bool {
        let mut progress = self.progress();
        progress.removals += 1;
        if progress.additions != additions {
            return false;
        }
        self.entries_mut().remove(hash);
        if let Some(since) = &mut progress.since_reload {
            since.push((*hash, None));
        }
        true
    }

    /// Returns the entries to add. Concurrent requests may exceed the limit by one entry each.
    fn additions(&self, keys: &[NewCompromisedKey]) -> PendingAdditions {
        // Read before the entries, so that a removal in between is noticed.
        let removals = self.progress().removals;
        let added_at = self.clock.now().unix_timestamp();
        let mut entries = CompromisedKeyMap::new();
        let mut is_full = false;
        self.with_entries(|listed| {
            for new in keys.iter().filter(|new| !listed.contains_key(&new.hash)) {
                let has_capacity = listed.len() + entries.len() < MAX_COMPROMISED_KEYS;
                match entries.entry(new.hash) {
                    Entry::Vacant(vacant) if has_capacity => {
                        let source = new.source.to_owned();
                        let note = new.note.clone();
                        vacant.insert((1, Arc::new(CompromisedKeyEntry { added_at, source, note })));
                    }
                    Entry::Vacant(_) => is_full = true,
                    Entry::Occupied(_) => {}
                }
            }
        });
        PendingAdditions { entries, is_full, removals }
    }

    /// Adds stored entries to the list in memory.
    async fn publish_additions(&self, additions: PendingAdditions) {
        let is_current = {
            let mut progress = self.progress();
            let is_current = progress.removals == additions.removals;
            progress.additions += 1;
            if is_current {
                if let Some(since) = &mut progress.since_reload {
                    since.extend(additions.entries.iter().map(|(hash, entry)| (*hash, Some(entry.clone()))));
                }
                self.entries_mut().extend(additions.entries);
            }
            is_current
        };
        if !is_current {
            // One of the keys may have been removed since. If this reload fails, it is retried in the background.
            let _ = self.reload().await;
        }
    }

    fn with_entries<T>(&self, read: impl FnOnce(&CompromisedKeyMap) -> T) -> T {
        read(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn entries_mut(&self) -> RwLockWriteGuard<'_, CompromisedKeyMap> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, CompromisedListProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn document_key(hash: &KeyHash) -> DocumentKey {
    DocumentKey { mount: SYSTEM_MOUNT, kind: COMPROMISED_KEY_KIND, name: hash.text() }
}

fn parse_entry(document: &Document) -> Result<(KeyHash, VersionedEntry)> {
    let hash = KeyHash::parse(&document.key.name).map_err(|error| document.unreadable_error(error))?;
    Ok((hash, (document.version, Arc::new(document.parse()?))))
}
