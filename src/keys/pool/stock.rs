//! Keys that are there before anybody asks: of every size as many as are configured, made by the threads of the pool
//! while nobody asks for anything.
//!
//! A key is in memory alone, goes to one caller, and is gone from here then. Whoever finds none waits for one as
//! without a stock. Dropped keys are overwritten by the crypto library, which alone holds their parts.
//!
//! Who decides when: the pool looks whether anybody asks, [`Pace`](super::pace::Pace) whether others need the processors.

use std::collections::VecDeque;

use super::lane::Lane;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::telemetry;

/// What may be in stock. A larger key takes a thread longer than anybody should wait behind it.
const SPECS: [KeySpec; 3] = [KeySpec::RSA_2048, KeySpec::RSA_3072, KeySpec::RSA_4096];
/// Their sizes, as the labels of metrics.
const BITS: [&str; SPECS.len()] = ["2048", "3072", "4096"];

/// How many RSA keys of each size are kept ready; 0 is none. The default is no stock.
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
    /// Most keys of one size. One takes some 10 KB.
    pub const MOST: usize = 4096;

    fn all(self) -> [usize; SPECS.len()] {
        [self.rsa_2048, self.rsa_3072, self.rsa_4096]
    }
}

/// The keys, by size.
#[derive(Default)]
pub(super) struct Stock([Shelf; SPECS.len()]);

/// Keys of one size.
#[derive(Default)]
struct Shelf {
    ready: VecDeque<PrivateKey>,
    /// Those that a thread is making.
    making: usize,
    /// How many there are to be.
    wanted: usize,
}

impl Shelf {
    fn is_full(&self) -> bool {
        self.ready.len() + self.making >= self.wanted
    }
}

impl Stock {
    /// Keeps so many from now on. What is too many is given back, to be dropped where nobody waits.
    #[must_use]
    pub(super) fn keep(&mut self, sizes: StockSizes) -> Vec<PrivateKey> {
        let mut surplus = Vec::new();
        for (shelf, wanted) in self.0.iter_mut().zip(sizes.all()) {
            shelf.wanted = wanted;
            surplus.extend(shelf.ready.drain(wanted.min(shelf.ready.len())..));
        }
        (0..SPECS.len()).for_each(|n| self.measure(n));
        surplus
    }

    /// A key for a caller, who is the only one to get it. Counts whether it was there, if such keys are kept.
    pub(super) fn take(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = SPECS.iter().position(|kept| *kept == spec).filter(|n| self.0[*n].wanted > 0)?;
        let key = self.take_late(spec);
        let counter = if key.is_some() { telemetry::RSA_KEY_STOCK_HITS } else { telemetry::RSA_KEY_STOCK_MISSES };
        metrics::counter!(counter, "bits" => BITS[n]).increment(1);
        key
    }

    /// As [`Stock::take`], for one who found none and waits: counted already.
    pub(super) fn take_late(&mut self, spec: KeySpec) -> Option<PrivateKey> {
        let n = SPECS.iter().position(|kept| *kept == spec)?;
        let key = self.0[n].ready.pop_front()?;
        self.measure(n);
        Some(key)
    }

    /// Whether there are as many keys of this kind as are wanted, those in the making counted.
    pub(super) fn has_all(&self, spec: KeySpec) -> bool {
        SPECS.iter().position(|kept| *kept == spec).is_none_or(|n| self.0[n].is_full())
    }

    /// How many keys are being made.
    pub(super) fn making(&self) -> usize {
        self.0.iter().map(|shelf| shelf.making).sum()
    }

    /// What is to be made next by a thread that fills these lanes, small keys first.
    pub(super) fn missing(&self, lanes: &[Lane]) -> Option<KeySpec> {
        let mut specs = SPECS.into_iter().zip(&self.0);
        let fills = |spec: KeySpec| Lane::of(spec.kind()).is_some_and(|lane| lanes.contains(&lane));
        specs.find(|(spec, shelf)| !shelf.is_full() && fills(*spec)).map(|(spec, _)| spec)
    }

    /// A thread begins to make a key.
    pub(super) fn begin(&mut self, spec: KeySpec) {
        if let Some(n) = SPECS.iter().position(|kept| *kept == spec) {
            self.0[n].making += 1;
        }
    }

    /// The key that was begun, if it could be made. It is given back when it is not wanted any more.
    #[must_use]
    pub(super) fn end(&mut self, spec: KeySpec, key: Option<PrivateKey>) -> Option<PrivateKey> {
        let Some(n) = SPECS.iter().position(|kept| *kept == spec) else { return key };
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
        metrics::gauge!(telemetry::RSA_KEY_STOCK, "bits" => BITS[n]).set(self.0[n].ready.len() as f64);
    }
}

#[cfg(test)]
mod tests;
