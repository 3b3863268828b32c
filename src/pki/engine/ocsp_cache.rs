//! Cache of signed OCSP responses, used by [`ocsp`](crate::pki::revocation::ocsp).
//!
//! A cached response is sent without reading the certificate's row again for at most one second, and only if this
//! server recorded no revocation since the row was read. After that second, the row is read, and the signed response is
//! reused if the row is unchanged, for a fraction of the response's lifetime. Only single requests without a nonce
//! about known certificates are cached, so that made-up serials cannot fill the cache. Each shard has two halves; the
//! older half is dropped when the younger one is full.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Time;
use crate::documents::MountId;
use crate::pki::mount::view::MountView;
use crate::x509::ocsp::OcspCertStatus;

/// Maximum age of a certificate's row in the cache; an older row is read again.
const MAX_ROW_AGE: Duration = Duration::from_secs(1);
/// A signed response is reused for its lifetime divided by this.
const REUSE_DIVISOR: u32 = 12;
const CACHE_SHARDS: usize = 16;
/// Maximum number of responses in one half of a shard; each takes at most a few kilobytes.
const MAX_RESPONSES_PER_HALF: usize = 1_024;

/// Times in an OCSP response, epoch seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OcspTimes {
    /// Time at which the response was created.
    pub made_at: i64,
    /// thisUpdate, backdated for clients whose clocks are behind.
    pub this_update: i64,
    /// nextUpdate; `None` means that newer information is always available.
    pub next_update: Option<i64>,
}

/// Cache of signed OCSP responses, in shards.
pub struct OcspCache {
    shards: [Mutex<OcspCacheShard>; CACHE_SHARDS],
    /// Number of revocations that this server has recorded; a cached row from an earlier epoch must be read again.
    epoch: AtomicU64,
}

impl Default for OcspCache {
    fn default() -> Self {
        Self { shards: Default::default(), epoch: AtomicU64::new(0) }
    }
}

#[derive(Default)]
struct OcspCacheShard {
    young: HashMap<OcspCacheKey, OcspCacheEntry>,
    old: HashMap<OcspCacheKey, OcspCacheEntry>,
}

/// Cache key: the mount and the encoded CertID.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct OcspCacheKey(MountId, Box<[u8]>);

impl OcspCacheKey {
    pub(crate) fn new(mount: MountId, cert_id: &[u8]) -> Self {
        Self(mount, cert_id.into())
    }
}

/// A signed OCSP response with its certificate status and times.
#[derive(Clone)]
pub(crate) struct SignedOcspResponse {
    pub(crate) der: Bytes,
    pub(crate) status: OcspCertStatus,
    pub(crate) times: OcspTimes,
}

struct OcspCacheEntry {
    signed: SignedOcspResponse,
    /// The mount view that the response was built from. The weak reference keeps the allocation, so that equal
    /// addresses mean equal views.
    view: Weak<MountView>,
    read: RowRead,
}

/// The time and the revocation epoch at which the read of a certificate's row began.
#[derive(Clone, Copy)]
pub(crate) struct RowRead {
    at: Time,
    epoch: u64,
}

/// Result of a cache look-up.
pub(crate) enum OcspLookup {
    /// The response can be sent without reading the certificate's row.
    Fresh(SignedOcspResponse),
    /// The response can be sent if the certificate's row is unchanged.
    Stale(SignedOcspResponse),
    /// The cache has no usable response.
    Miss,
}

impl OcspCache {
    /// Starts a new revocation epoch, so that cached rows are read again. Called when a revocation is stored, before
    /// the caller that requested it gets its response.
    pub fn record_revocation(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Captures the current time and the revocation epoch. Must be called before the row is read.
    pub(crate) fn begin_row_read(&self, now: Time) -> RowRead {
        RowRead { at: now, epoch: self.epoch.load(Ordering::SeqCst) }
    }

    pub(crate) fn find(&self, key: &OcspCacheKey, view: &Arc<MountView>, now: RowRead) -> OcspLookup {
        let shard = &mut *self.shard(key);
        let Some(entry) = shard.young.get(key).or_else(|| shard.old.get(key)) else {
            return OcspLookup::Miss;
        };
        let SignedOcspResponse { times, .. } = entry.signed;
        let second = now.at.unix_timestamp();
        // A response from the future, which exists if the clock was set back, is not used.
        let usable = times.next_update.is_some_and(|next| {
            let part = (next - times.made_at) / i64::from(REUSE_DIVISOR);
            (times.made_at..times.made_at + part).contains(&second)
        });
        if !usable || !std::ptr::eq(entry.view.as_ptr(), Arc::as_ptr(view)) {
            return OcspLookup::Miss;
        }
        let age = now.at - entry.read.at;
        let fresh = entry.read.epoch == now.epoch && !age.is_negative() && age < MAX_ROW_AGE;
        let signed = entry.signed.clone();
        if fresh { OcspLookup::Fresh(signed) } else { OcspLookup::Stale(signed) }
    }

    /// Caches a response that was built from a row read at `read`.
    pub(crate) fn insert(&self, key: OcspCacheKey, signed: SignedOcspResponse, view: &Arc<MountView>, read: RowRead) {
        let shard = &mut *self.shard(&key);
        if shard.young.len() >= MAX_RESPONSES_PER_HALF && !shard.young.contains_key(&key) {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(key, OcspCacheEntry { signed, view: Arc::downgrade(view), read });
    }

    fn shard(&self, key: &OcspCacheKey) -> MutexGuard<'_, OcspCacheShard> {
        // The CertID ends with the serial number, whose bytes are random.
        let last = key.1.last().copied().unwrap_or_default();
        // No code panics while it holds the lock, and each entry is inserted in one call.
        self.shards[usize::from(last) % CACHE_SHARDS].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000;

    fn time_at(seconds: f64) -> Time {
        Time::from_unix_timestamp(START).unwrap() + Duration::from_secs_f64(seconds)
    }

    fn signed(status: OcspCertStatus) -> SignedOcspResponse {
        let times = OcspTimes { made_at: START, this_update: START, next_update: Some(START + 12 * 3600) };
        SignedOcspResponse { der: Bytes::from_static(b"an answer"), status, times }
    }

    fn cache_key(n: u16) -> OcspCacheKey {
        OcspCacheKey::new(MountId(1), &n.to_be_bytes())
    }

    fn describe(found: &OcspLookup) -> &'static str {
        match found {
            OcspLookup::Fresh(_) => "fresh",
            OcspLookup::Stale(_) => "stale",
            OcspLookup::Miss => "miss",
        }
    }

    #[test]
    fn ocsp_cache_status_lasts_a_second_and_signature_longer() {
        let ocsp_cache = OcspCache::default();
        let view = Arc::new(MountView::empty(MountId(1)));
        ocsp_cache.insert(cache_key(1), signed(OcspCertStatus::Good), &view, ocsp_cache.begin_row_read(time_at(0.0)));
        let find =
            |seconds| describe(&ocsp_cache.find(&cache_key(1), &view, ocsp_cache.begin_row_read(time_at(seconds))));
        for (seconds, expected) in [(0.0, "fresh"), (0.9, "fresh"), (1.0, "stale"), (3599.0, "stale"), (3600.0, "miss")]
        {
            assert_eq!(find(seconds), expected, "{seconds}");
        }
        let before = ocsp_cache.begin_row_read(time_at(0.0) - Duration::from_secs(5));
        assert_eq!(describe(&ocsp_cache.find(&cache_key(1), &view, before)), "miss", "a clock that was set back");
        assert_eq!(describe(&ocsp_cache.find(&cache_key(2), &view, ocsp_cache.begin_row_read(time_at(0.0)))), "miss");
    }

    #[test]
    fn revocation_or_new_view_invalidates_the_ocsp_cache() {
        let ocsp_cache = OcspCache::default();
        let view = Arc::new(MountView::empty(MountId(1)));
        let before = ocsp_cache.begin_row_read(time_at(0.0));
        ocsp_cache.record_revocation();
        // The row was read before the revocation; the response is cached after it.
        ocsp_cache.insert(cache_key(1), signed(OcspCertStatus::Good), &view, before);
        assert_eq!(describe(&ocsp_cache.find(&cache_key(1), &view, ocsp_cache.begin_row_read(time_at(0.0)))), "stale");
        let next = Arc::new(MountView::clone(&view));
        drop(view);
        assert_eq!(describe(&ocsp_cache.find(&cache_key(1), &next, ocsp_cache.begin_row_read(time_at(0.0)))), "miss");
    }

    #[test]
    fn ocsp_cache_is_bounded_and_drops_the_oldest_entry() {
        let ocsp_cache = OcspCache::default();
        let view = Arc::new(MountView::empty(MountId(1)));
        let read = ocsp_cache.begin_row_read(time_at(0.0));
        for n in 0..u16::MAX {
            ocsp_cache.insert(cache_key(n), signed(OcspCertStatus::Good), &view, read);
        }
        let count: usize =
            ocsp_cache.shards.iter().map(|s| s.lock().unwrap()).map(|s| s.young.len() + s.old.len()).sum();
        assert!(count <= 2 * MAX_RESPONSES_PER_HALF * CACHE_SHARDS, "{count}");
        assert_eq!(describe(&ocsp_cache.find(&cache_key(u16::MAX - 1), &view, read)), "fresh");
        assert_eq!(describe(&ocsp_cache.find(&cache_key(0), &view, read)), "miss");
    }

    #[test]
    fn response_without_next_update_is_not_cached() {
        let ocsp_cache = OcspCache::default();
        let view = Arc::new(MountView::empty(MountId(1)));
        let mut endless = signed(OcspCertStatus::Good);
        endless.times.next_update = None;
        ocsp_cache.insert(cache_key(1), endless, &view, ocsp_cache.begin_row_read(time_at(0.0)));
        assert_eq!(describe(&ocsp_cache.find(&cache_key(1), &view, ocsp_cache.begin_row_read(time_at(0.0)))), "miss");
    }
}
