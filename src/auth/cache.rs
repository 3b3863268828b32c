//! Callers of tokens that were looked up a moment ago.
//!
//! An entry is believed for one second at most, so a token that another node revoked works on for no
//! longer than that; on this node a revocation takes effect at once. From half that age on, one request
//! reads the row again while the others go on with what is there, so a busy token costs two reads a
//! second and never a stampede. The table is bounded, and its keys are hashes: it holds no token.
//!
//! Who read the metrics is kept beside them for a day, for a store that cannot be asked any more. What removes an entry
//! removes that as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::Caller;
use super::store::TokenHash;
use crate::clock::Time;

const MAX_AGE: Duration = Duration::from_secs(1);
const REFRESH_AGE: Duration = Duration::from_millis(500);
const SHARDS: usize = 16;
const MAX_PER_SHARD: usize = 4_096;
const MAX_KEPT: time::Duration = time::Duration::DAY;
const MAX_KEPT_PER_SHARD: usize = 16;

#[derive(Default)]
pub(super) struct TokenCache {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    entries: HashMap<TokenHash, Entry>,
    /// Who is believed while the store cannot be asked, and since when.
    kept: HashMap<TokenHash, (Arc<Caller>, Time)>,
    /// Moves on with every removal; see [`TokenCache::put`].
    epoch: u64,
}

struct Entry {
    caller: Arc<Caller>,
    /// When the read of its row began.
    read_at: Time,
    /// Somebody is reading it again.
    refreshing: bool,
}

impl TokenCache {
    /// The caller of a token, unless the row has to be read (again).
    pub(super) fn get(&self, hash: &TokenHash, now: Time) -> Option<Arc<Caller>> {
        let mut shard = self.shard(hash);
        let entry = shard.entries.get_mut(hash)?;
        let age = now - entry.read_at;
        // A clock that was set back makes the age negative: read again.
        if age.is_negative() || age >= MAX_AGE {
            return None;
        }
        if age >= REFRESH_AGE && !entry.refreshing {
            entry.refreshing = true;
            return None;
        }
        Some(Arc::clone(&entry.caller))
    }

    /// To be asked for before the row is read, and given to [`TokenCache::put`] after.
    pub(super) fn epoch(&self, hash: &TokenHash) -> u64 {
        self.shard(hash).epoch
    }

    /// Keeps a caller whose row was read at `read_at`, unless a token was removed since `epoch`: the
    /// row may be older than the removal.
    pub(super) fn put(&self, hash: TokenHash, caller: Arc<Caller>, read_at: Time, epoch: u64) {
        let mut shard = self.shard(&hash);
        if shard.epoch != epoch {
            return;
        }
        if shard.entries.len() >= MAX_PER_SHARD {
            shard.entries.retain(|_, entry| is_fresh(entry, read_at));
        }
        if shard.entries.len() < MAX_PER_SHARD {
            shard.entries.insert(hash, Entry { caller, read_at, refreshing: false });
        }
    }

    /// Forgets tokens; no row of theirs that was read before this call is kept after it.
    pub(super) fn remove(&self, hashes: &[TokenHash]) {
        for hash in hashes {
            let mut shard = self.shard(hash);
            shard.epoch += 1;
            shard.entries.remove(hash);
            shard.kept.remove(hash);
        }
    }

    /// Forgets every token, as [`TokenCache::remove`] does.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.epoch += 1;
            shard.entries.clear();
            shard.kept.clear();
        }
    }

    /// Keeps a caller for a store that cannot be asked, unless the token was removed since it was read.
    pub(super) fn keep(&self, hash: TokenHash, now: Time) {
        let mut shard = self.shard(&hash);
        let Some(caller) = shard.entries.get(&hash).map(|entry| Arc::clone(&entry.caller)) else { return };
        shard.kept.retain(|_, (_, since)| is_kept(*since, now));
        if shard.kept.len() < MAX_KEPT_PER_SHARD || shard.kept.contains_key(&hash) {
            shard.kept.insert(hash, (caller, now));
        }
    }

    /// A caller that was kept within the last day.
    pub(super) fn kept(&self, hash: &TokenHash, now: Time) -> Option<Arc<Caller>> {
        let shard = self.shard(hash);
        shard.kept.get(hash).filter(|(_, since)| is_kept(*since, now)).map(|(caller, _)| Arc::clone(caller))
    }

    /// Drops what nobody may use any more.
    pub(super) fn prune(&self, now: Time) {
        for shard in &self.shards {
            lock(shard).entries.retain(|_, entry| is_fresh(entry, now));
        }
    }

    fn shard(&self, hash: &TokenHash) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(hash[hash.len() - 1]) % SHARDS])
    }
}

fn is_fresh(entry: &Entry, now: Time) -> bool {
    let age = now - entry.read_at;
    !age.is_negative() && age < MAX_AGE
}

fn is_kept(since: Time, now: Time) -> bool {
    let age = now - since;
    !age.is_negative() && age < MAX_KEPT
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No code panics while it holds the lock, and a half-made entry cannot exist.
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
