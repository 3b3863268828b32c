//! RSA keys that are generated before they are requested. The pool's threads fill the stock to its configured sizes
//! while no requests arrive.
//!
//! A key is in memory only and goes to one caller. A caller that finds no key waits for a new one. The crypto library,
//! which alone holds the key material, zeroizes dropped keys.

use std::collections::VecDeque;

use super::lane::PoolLane;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::telemetry;

/// Keys that may be in stock. Larger ones would occupy a thread for too long.
const STOCKED_SPECS: [KeySpec; 3] = [KeySpec::RSA_2048, KeySpec::RSA_3072, KeySpec::RSA_4096];
/// The sizes of `STOCKED_SPECS` in bits, as metric labels.
const STOCKED_SIZE_LABELS: [&str; STOCKED_SPECS.len()] = ["2048", "3072", "4096"];

/// Number of RSA keys of each size to keep in stock; 0, the default, disables the stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockSizes {
    /// Keys of 2048 bits.
    pub rsa_2048: usize,
    /// Keys of 3072 bits.
    pub rsa_3072: usize,
    /// Keys of 4096 bits.
    pub rsa_4096: usize,
}

impl StockSizes {
    /// Maximum number of keys of one size. A key takes about 10 KB.
    pub const MAX_KEYS_PER_SIZE: usize = 4096;

    fn to_array(self) -> [usize; STOCKED_SPECS.len()] {
        [self.rsa_2048, self.rsa_3072, self.rsa_4096]
    }
}

#[derive(Default)]
pub(super) struct RsaKeyStock([KeySizeStock; STOCKED_SPECS.len()]);

/// The ready keys of one size, and how many of them to keep.
#[derive(Default)]
struct KeySizeStock {
    ready: VecDeque<PrivateKey>,
    target: usize,
}

impl RsaKeyStock {
    /// Sets how many keys of each size to keep. Returns surplus keys, which the caller drops outside the lock.
    #[must_use]
    pub(super) fn resize(&mut self, sizes: StockSizes) -> Vec<PrivateKey> {
        let mut surplus = Vec::new();
        for (size_stock, target) in self.0.iter_mut().zip(sizes.to_array()) {
            size_stock.target = target;
            surplus.extend(size_stock.ready.drain(target.min(size_stock.ready.len())..));
        }
        (0..STOCKED_SPECS.len()).for_each(|n| self.update_gauge(n));
        surplus
    }

    /// Takes a key for a caller. Counts a hit or a miss if keys of this size are configured.
    pub(super) fn take_key(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = STOCKED_SPECS.iter().position(|stocked| *stocked == spec).filter(|n| self.0[*n].target > 0)?;
        let key = self.take_uncounted(spec);
        let counter = if key.is_some() { telemetry::RSA_KEY_STOCK_HITS } else { telemetry::RSA_KEY_STOCK_MISSES };
        metrics::counter!(counter, "bits" => STOCKED_SIZE_LABELS[n]).increment(1);
        key
    }

    /// As [`RsaKeyStock::take_key`], but counts nothing: the caller has queued, so it was counted as a miss already.
    pub(super) fn take_uncounted(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = STOCKED_SPECS.iter().position(|stocked| *stocked == spec)?;
        let key = self.0[n].ready.pop_front()?;
        self.update_gauge(n);
        Some(key)
    }

    /// Returns the smallest size of a lane of which the stock has too few keys; `None` if there is none.
    pub(super) fn next_missing(&self, lane: PoolLane) -> Option<KeySpec> {
        let mut specs = STOCKED_SPECS.into_iter().zip(&self.0);
        let is_missing = |(spec, size_stock): &(KeySpec, &KeySizeStock)| {
            size_stock.ready.len() < size_stock.target && PoolLane::of(spec.kind()) == Some(lane)
        };
        specs.find(is_missing).map(|(spec, _)| spec)
    }

    /// Stores a key. Returns a surplus key, which the caller drops outside the lock.
    #[must_use]
    pub(super) fn add(&mut self, spec: KeySpec, key: PrivateKey) -> Option<PrivateKey> {
        let Some(n) = STOCKED_SPECS.iter().position(|stocked| *stocked == spec) else { return Some(key) };
        let size_stock = &mut self.0[n];
        if size_stock.ready.len() >= size_stock.target {
            return Some(key);
        }
        size_stock.ready.push_back(key);
        self.update_gauge(n);
        None
    }

    fn update_gauge(&self, n: usize) {
        metrics::gauge!(telemetry::RSA_KEY_STOCK, "bits" => STOCKED_SIZE_LABELS[n]).set(self.0[n].ready.len() as f64);
    }
}

#[cfg(test)]
mod tests;
