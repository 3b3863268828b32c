//! How many frames a client may send that carry nothing (CVE-2019-9512, CVE-2019-9515 and their like).
//!
//! A frame of a few octets is read, understood, and often answered. What a client has to say beside its requests is in
//! proportion to them and to what it is sent: windows that it opens, answers that it takes back, a ping now and then. So
//! each frame but the pieces of bodies costs something, and requests, octets that left and time earn it. Who has nothing
//! left is told to calm down.

use std::cell::Cell;

/// What a frame costs: as many octets that left earn one.
const FRAME: u64 = 512;
/// What a request earns: its own frame and some about it.
pub(super) const REQUEST: u64 = 10 * FRAME;
/// What a millisecond earns: two hundred frames a second.
const MILLISECOND: u64 = FRAME / 5;
/// Most that can be had, and what there is at first.
const MOST: u64 = 2000 * FRAME;

/// What a client may still send.
pub(super) struct Allowance {
    left: Cell<u64>,
    at: Cell<u64>,
    spent: Cell<bool>,
}

impl Allowance {
    /// Of a client that has sent nothing; times are milliseconds.
    pub(super) fn new(now: u64) -> Self {
        Self { left: Cell::new(MOST), at: Cell::new(now), spent: Cell::new(false) }
    }

    /// Adds something.
    pub(super) fn earn(&self, more: u64) {
        self.left.set(self.left.get().saturating_add(more).min(MOST));
    }

    /// So many frames came.
    pub(super) fn spend(&self, frames: usize, now: u64) {
        let since = now.saturating_sub(self.at.replace(now));
        self.earn(since.saturating_mul(MILLISECOND));
        match self.left.get().checked_sub(FRAME * frames as u64) {
            Some(left) => self.left.set(left),
            None => self.spent.set(true),
        }
    }

    /// Whether more came than was allowed.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_allowed_at_first_and_then_as_time_requests_and_what_is_sent_earn_them() {
        let allowance = Allowance::new(5);
        allowance.spend(2000, 5);
        allowance.spend(199, 1005);
        for _ in 0..10 {
            allowance.earn(REQUEST);
        }
        allowance.spend(100, 1005);
        allowance.earn(16 << 10);
        allowance.spend(32, 1005);
        assert!(!allowance.is_spent());
        allowance.spend(1, 1005);
        assert!(allowance.is_spent());
    }

    #[test]
    fn a_long_silence_earns_no_more_than_there_is_at_first() {
        let allowance = Allowance::new(0);
        allowance.spend(2000, 1 << 40);
        assert!(!allowance.is_spent());
        allowance.spend(1, 1 << 40);
        assert!(allowance.is_spent());
    }
}
