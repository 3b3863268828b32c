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
const SIZE_LABELS: [&str; STOCKED_SPECS.len()] = ["2048", "3072", "4096"];

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

    fn all(self) -> [usize; STOCKED_SPECS.len()] {
        [self.rsa_2048, self.rsa_3072, self.rsa_4096]
    }
}

#[derive(Default)]
pub(super) struct Stock([KeySizeStock; STOCKED_SPECS.len()]);

/// Keys of one size.
#[derive(Default)]
struct KeySizeStock {
    ready: VecDeque<PrivateKey>,
    wanted: usize,
}

impl Stock {
    /// Sets the configured numbers. Returns surplus keys, which the caller drops outside the lock.
    #[must_use]
    pub(super) fn keep(&mut self, sizes: StockSizes) -> Vec<PrivateKey> {
        let mut surplus = Vec::new();
        for (shelf, wanted) in self.0.iter_mut().zip(sizes.all()) {
            shelf.wanted = wanted;
            surplus.extend(shelf.ready.drain(wanted.min(shelf.ready.len())..));
        }
        (0..STOCKED_SPECS.len()).for_each(|n| self.measure(n));
        surplus
    }

    /// Takes a key for a caller. Counts a hit or a miss if keys of this size are configured.
    pub(super) fn take(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = STOCKED_SPECS.iter().position(|stocked| *stocked == spec).filter(|n| self.0[*n].wanted > 0)?;
        let key = self.take_queued(spec);
        let counter = if key.is_some() { telemetry::RSA_KEY_STOCK_HITS } else { telemetry::RSA_KEY_STOCK_MISSES };
        metrics::counter!(counter, "bits" => SIZE_LABELS[n]).increment(1);
        key
    }

    /// As [`Stock::take`], but counts nothing: the caller has queued, so it was counted as a miss already.
    pub(super) fn take_queued(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = STOCKED_SPECS.iter().position(|stocked| *stocked == spec)?;
        let key = self.0[n].ready.pop_front()?;
        self.measure(n);
        Some(key)
    }

    /// Returns the next missing key of a lane, small keys first.
    pub(super) fn missing(&self, lane: PoolLane) -> Option<KeySpec> {
        let mut specs = STOCKED_SPECS.into_iter().zip(&self.0);
        let is_missing = |(spec, shelf): &(KeySpec, &KeySizeStock)| {
            shelf.ready.len() < shelf.wanted && PoolLane::of(spec.kind()) == Some(lane)
        };
        specs.find(is_missing).map(|(spec, _)| spec)
    }

    /// Stores a key. Returns a surplus key, which the caller drops outside the lock.
    #[must_use]
    pub(super) fn put(&mut self, spec: KeySpec, key: PrivateKey) -> Option<PrivateKey> {
        let Some(n) = STOCKED_SPECS.iter().position(|stocked| *stocked == spec) else { return Some(key) };
        let shelf = &mut self.0[n];
        if shelf.ready.len() >= shelf.wanted {
            return Some(key);
        }
        shelf.ready.push_back(key);
        self.measure(n);
        None
    }

    fn measure(&self, n: usize) {
        metrics::gauge!(telemetry::RSA_KEY_STOCK, "bits" => SIZE_LABELS[n]).set(self.0[n].ready.len() as f64);
    }
}

#[cfg(test)]
mod tests;
