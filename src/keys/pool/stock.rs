//! RSA keys that are generated before they are requested. The pool's threads fill the stock to its configured sizes
//! while no requests arrive and [`Pace`](super::stock_throttle::StockThrottle) allows it.
//!
//! A key is in memory only and goes to one caller. A caller that finds no key waits for a new one. The crypto library,
//! which alone holds the key material, zeroizes dropped keys.

use std::collections::VecDeque;

use super::lane::PoolLane;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::telemetry;

/// Keys that may be in stock. Larger ones would occupy a thread for too long.
const STOCKED_SPECS: [KeySpec; 3] = [KeySpec::RSA_2048, KeySpec::RSA_3072, KeySpec::RSA_4096];
/// Their sizes in bits, as metric labels.
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

#[derive(Default)]
struct KeySizeStock {
    ready: VecDeque<PrivateKey>,
    /// Keys that threads are generating.
    making: usize,
    wanted: usize,
}

impl KeySizeStock {
    fn is_full(&self) -> bool {
        self.ready.len() + self.making >= self.wanted
    }
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
        let n = STOCKED_SPECS.iter().position(|kept| *kept == spec).filter(|n| self.0[*n].wanted > 0)?;
        let key = self.take_queued(spec);
        let counter = if key.is_some() { telemetry::RSA_KEY_STOCK_HITS } else { telemetry::RSA_KEY_STOCK_MISSES };
        metrics::counter!(counter, "bits" => SIZE_LABELS[n]).increment(1);
        key
    }

    /// As [`Stock::take`], for a queued caller that was counted as a miss.
    pub(super) fn take_queued(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = STOCKED_SPECS.iter().position(|kept| *kept == spec)?;
        let key = self.0[n].ready.pop_front()?;
        self.measure(n);
        Some(key)
    }

    /// `true` if ready keys and keys in progress reach the configured number.
    pub(super) fn has_all(&self, spec: KeySpec) -> bool {
        STOCKED_SPECS.iter().position(|kept| *kept == spec).is_none_or(|n| self.0[n].is_full())
    }

    pub(super) fn generating(&self) -> usize {
        self.0.iter().map(|shelf| shelf.making).sum()
    }

    /// Returns the next key for a thread that fills these lanes, small keys first.
    pub(super) fn missing(&self, lanes: &[PoolLane]) -> Option<KeySpec> {
        let mut specs = STOCKED_SPECS.into_iter().zip(&self.0);
        let fills = |spec: KeySpec| PoolLane::of(spec.kind()).is_some_and(|lane| lanes.contains(&lane));
        specs.find(|(spec, shelf)| !shelf.is_full() && fills(*spec)).map(|(spec, _)| spec)
    }

    pub(super) fn begin(&mut self, spec: KeySpec) {
        if let Some(n) = STOCKED_SPECS.iter().position(|kept| *kept == spec) {
            self.0[n].making += 1;
        }
    }

    /// Ends a generation and stores its key, if it succeeded. Returns a surplus key.
    #[must_use]
    pub(super) fn end(&mut self, spec: KeySpec, key: Option<PrivateKey>) -> Option<PrivateKey> {
        let Some(n) = STOCKED_SPECS.iter().position(|kept| *kept == spec) else { return key };
        let shelf = &mut self.0[n];
        shelf.making = shelf.making.saturating_sub(1);
        if shelf.ready.len() >= shelf.wanted {
            return key;
        }
        shelf.ready.extend(key);
        self.measure(n);
        None
    }

    fn measure(&self, n: usize) {
        metrics::gauge!(telemetry::RSA_KEY_STOCK, "bits" => SIZE_LABELS[n]).set(self.0[n].ready.len() as f64);
    }
}

#[cfg(test)]
mod tests;
