//! The random choices of a case, and its length.

use std::time::Duration;

use crate::model::random::Random;

pub fn is_long() -> bool {
    match std::env::var("SIGNET_FAULTS") {
        Err(_) => false,
        Ok(text) => {
            assert_eq!(text, "long", "SIGNET_FAULTS: may be long");
            true
        }
    }
}

/// Selects the number of rounds for the short or the long form.
pub fn rounds(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// The random choices of a case. Its number is printed, so that a failed case can be repeated.
pub struct Seed(Random);

impl Seed {
    /// Reads the seed from the environment, or draws one.
    pub fn new() -> Self {
        let seed = match std::env::var("SIGNET_FAULTS_SEED") {
            Ok(text) => text.parse().expect("SIGNET_FAULTS_SEED: a number"),
            Err(_) => u64::from_le_bytes(signet::random::bytes()) >> 16,
        };
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        println!("SIGNET_FAULTS_SEED={seed} ({test})");
        Self(Random::new(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.of(0..end as u64) as usize
    }

    pub fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.0.of(range))
    }

    pub fn coin(&mut self) -> bool {
        self.0.once_in(2)
    }

    pub fn order<T: Copy>(&mut self, all: &[T], count: usize) -> Vec<T> {
        let mut order = Vec::new();
        while order.len() < count {
            let mut left = all.to_vec();
            while !left.is_empty() {
                order.push(left.swap_remove(self.below(left.len())));
            }
        }
        order.truncate(count);
        order
    }
}
