//! A bounded cache of callers, keyed by the hash of their token. It contains no token in clear text.
//!
//! An entry is valid for one second, so a token that another node revoked is accepted for at most one second more. A
//! revocation on this node takes effect immediately. When an entry is half a second old, one request reads the token's
//! row again, and other requests still use the entry. So a busy token causes two reads per second and never a stampede.
//!
//! A caller that reads the metrics is remembered for a day, unless its token is revoked. So it can still read the
//! metrics while the store is unavailable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::Caller;
use super::store::TokenHash;
use crate::clock::Time;

const MAX_CALLER_AGE: Duration = Duration::from_secs(1);
const CALLER_REFRESH_AGE: Duration = Duration::from_millis(500);
const TOKEN_CACHE_SHARDS: usize = 16;
const MAX_CALLERS_PER_SHARD: usize = 4_096;
const MAX_REMEMBERED_AGE: time::Duration = time::Duration::DAY;
const MAX_REMEMBERED_PER_SHARD: usize = 16;

#[derive(Default)]
pub(super) struct TokenCache {
    shards: [Mutex<TokenCacheShard>; TOKEN_CACHE_SHARDS],
}

#[derive(Default)]
struct TokenCacheShard {
    entries: HashMap<TokenHash, CachedCaller>,
    /// Callers accepted while the store is unavailable, by token hash, each with the time at which it was last
    /// remembered.
    remembered: HashMap<TokenHash, (Arc<Caller>, Time)>,
    /// Incremented when tokens are removed, so that [`TokenCache::put`] detects rows read before the removal.
    epoch: u64,
}

struct CachedCaller {
    caller: Arc<Caller>,
    read_at: Time,
    refreshing: bool,
}

impl TokenCache {
    /// Returns the cached caller of a token; `None` if the token's row must be read first.
    pub(super) fn get(&self, hash: &TokenHash, now: Time) -> Option<Arc<Caller>> {
        let mut shard = self.shard(hash);
        let entry = shard.entries.get_mut(hash)?;
        let age = now - entry.read_at;
        // A clock that was set back makes the age negative: the row must be read again.
        if age.is_negative() || age >= MAX_CALLER_AGE {
            return None;
        }
        if age >= CALLER_REFRESH_AGE && !entry.refreshing {
            entry.refreshing = true;
            return None;
        }
        Some(Arc::clone(&entry.caller))
    }

    /// Returns the current epoch. The caller takes it before it reads a token's row, and passes it to
    /// [`TokenCache::put`].
    pub(super) fn epoch(&self, hash: &TokenHash) -> u64 {
        self.shard(hash).epoch
    }

    /// Caches a caller whose row was read at `read_at`. Does nothing if any token of this shard was removed after
    /// `epoch` was taken, because the row may have been read before the removal.
    pub(super) fn put(&self, hash: TokenHash, caller: Arc<Caller>, read_at: Time, epoch: u64) {
        let mut shard = self.shard(&hash);
        if shard.epoch != epoch {
            return;
        }
        if shard.entries.len() >= MAX_CALLERS_PER_SHARD {
            shard.entries.retain(|_, entry| is_fresh(entry, read_at));
        }
        if shard.entries.len() < MAX_CALLERS_PER_SHARD {
            shard.entries.insert(hash, CachedCaller { caller, read_at, refreshing: false });
        }
    }

    /// Removes the entries of tokens. A row that was read before this call is not cached after it.
    pub(super) fn remove(&self, hashes: &[TokenHash]) {
        for hash in hashes {
            let mut shard = self.shard(hash);
            shard.epoch += 1;
            shard.entries.remove(hash);
            shard.remembered.remove(hash);
        }
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.epoch += 1;
            shard.entries.clear();
            shard.remembered.clear();
        }
    }

    /// Remembers the cached caller of a token for times when the store is unavailable. Does nothing if the token is not
    /// in the cache, such as after its removal.
    pub(super) fn remember(&self, hash: TokenHash, now: Time) {
        let mut shard = self.shard(&hash);
        let Some(caller) = shard.entries.get(&hash).map(|entry| Arc::clone(&entry.caller)) else { return };
        shard.remembered.retain(|_, (_, since)| is_remembered_entry_fresh(*since, now));
        if shard.remembered.len() < MAX_REMEMBERED_PER_SHARD || shard.remembered.contains_key(&hash) {
            shard.remembered.insert(hash, (caller, now));
        }
    }

    pub(super) fn remembered_caller(&self, hash: &TokenHash, now: Time) -> Option<Arc<Caller>> {
        let shard = self.shard(hash);
        shard
            .remembered
            .get(hash)
            .filter(|(_, since)| is_remembered_entry_fresh(*since, now))
            .map(|(caller, _)| Arc::clone(caller))
    }

    pub(super) fn prune(&self, now: Time) {
        for shard in &self.shards {
            lock(shard).entries.retain(|_, entry| is_fresh(entry, now));
        }
    }

    fn shard(&self, hash: &TokenHash) -> MutexGuard<'_, TokenCacheShard> {
        lock(&self.shards[usize::from(hash[hash.len() - 1]) % TOKEN_CACHE_SHARDS])
    }
}

fn is_fresh(entry: &CachedCaller, now: Time) -> bool {
    let age = now - entry.read_at;
    !age.is_negative() && age < MAX_CALLER_AGE
}

fn is_remembered_entry_fresh(since: Time, now: Time) -> bool {
    let age = now - since;
    !age.is_negative() && age < MAX_REMEMBERED_AGE
}

fn lock(shard: &Mutex<TokenCacheShard>) -> MutexGuard<'_, TokenCacheShard> {
    // A poisoned lock can be used: no code panics while it holds the lock.
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
