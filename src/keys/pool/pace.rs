//! How much of the machine the threads of the pool may have. They run at low priority; one that had to wait for a
//! processor all the same was in the way of others, whom this process does not see.
//!
//! A thread that made a key for a caller rests for itself ([`rest`]). Those that make keys for the stock share a
//! [`Pace`]: as many at the same time as there are processors while nobody else wants them, then one, then one now and
//! then.

use std::time::{Duration, Instant};

/// How many keys for the stock are made at the same time, at most.
const ABREAST: usize = 2;
/// A thread that was kept from a processor for this part of its work is in the way of others.
const CROWDED: f64 = 0.1;
/// How long threads for the stock may have been kept from one beyond that: a machine has something to do by itself now
/// and then, which is over when one would step back.
const BLIP: Duration = Duration::from_millis(20);
/// After so many keys that nobody was in the way of, one more is made at the same time; after twice as many each time
/// when it was soon in the way, and at most.
const EASY: u32 = 2;
const MOST_EASY: u32 = 32;
/// What is in the way after so many keys is something new.
const NEW: u32 = 8;
/// How long a thread rests that was in the way: times what the key took, and at most.
const REST: f64 = 3.0;
pub(super) const LONGEST_REST: Duration = Duration::from_secs(1);
/// How long no key is begun after one that could not be made.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(3);

/// What a key took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// From its begin to its end.
    pub(super) took: Duration,
    /// Of that, on a processor.
    pub(super) at_work: Duration,
}

impl Spent {
    fn waited(self) -> Duration {
        self.took.saturating_sub(self.at_work)
    }

    fn usual_wait(self) -> Duration {
        self.took.mul_f64(CROWDED)
    }
}

/// How long a thread rests after a key for a caller.
pub(super) fn rest(spent: Spent) -> Duration {
    if spent.waited() > spent.usual_wait() { full_rest(spent) } else { Duration::ZERO }
}

fn full_rest(spent: Spent) -> Duration {
    spent.took.mul_f64(REST).min(LONGEST_REST)
}

/// How many keys for the stock are made at the same time, and from when on.
pub(super) struct Pace {
    /// Keys at the same time, at most: no more than there are processors.
    limit: usize,
    /// Keys at the same time, for now.
    abreast: usize,
    /// Keys in a row that nobody was in the way of.
    easy: u32,
    /// How many of them it takes for one more at the same time.
    needed: u32,
    /// How long threads were kept from processors beyond what is usual, at most [`BLIP`]. Keys that did not wait work it
    /// off.
    waited: Duration,
    /// When the next may begin.
    from: Option<Instant>,
}

impl Pace {
    /// On so many processors.
    pub(super) fn on(processors: usize) -> Self {
        let limit = processors.clamp(1, ABREAST);
        Self { limit, abreast: limit, easy: 0, needed: EASY, waited: Duration::ZERO, from: None }
    }

    /// How many keys may be in the making at the same time.
    pub(super) fn abreast(&self) -> usize {
        self.abreast
    }

    /// How long no key may be begun yet.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.from.map(|from| from.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// A key is done that was begun while `abreast` of them could be. Whether more may be begun at the same time now.
    pub(super) fn done(&mut self, abreast: usize, spent: Spent, now: Instant) -> bool {
        let waited = (self.waited + spent.waited()).saturating_sub(spent.usual_wait());
        self.waited = waited.min(BLIP);
        if waited <= BLIP {
            self.easy = self.easy.saturating_add(1);
            let more = self.easy >= self.needed && self.abreast < self.limit;
            if more {
                (self.abreast, self.easy) = (self.abreast + 1, 0);
            }
            return more;
        }
        let easy = std::mem::take(&mut self.easy);
        if abreast <= 1 {
            self.from = self.from.max(Some(now + full_rest(spent)));
        } else if self.abreast >= abreast {
            // They may have been in each other's way, and nobody else's.
            self.abreast = abreast - 1;
            self.needed = if easy < NEW { (self.needed * 2).min(MOST_EASY) } else { EASY };
        }
        false
    }

    /// A key could not be made.
    pub(super) fn failed(&mut self, now: Instant) {
        self.from = self.from.max(Some(now + AFTER_FAILURE));
    }

    /// The next key may be begun at once.
    #[cfg(test)]
    pub(super) fn start_now(&mut self) {
        self.from = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: Spent = spent(70, 35);
    const FREE: Spent = spent(60, 59);

    const fn spent(took: u64, at_work: u64) -> Spent {
        Spent { took: Duration::from_millis(took), at_work: Duration::from_millis(at_work) }
    }

    /// Keys that nobody was in the way of, until one more may be made at the same time.
    fn climb(pace: &mut Pace, now: Instant) -> u32 {
        (1..100).find(|_| pace.done(1, FREE, now)).expect("never")
    }

    #[test]
    fn a_thread_rests_only_after_it_was_in_the_way_and_never_for_long() {
        assert_eq!(rest(spent(60, 58)), Duration::ZERO);
        assert_eq!(rest(spent(100, 60)), Duration::from_millis(300));
        assert_eq!(rest(spent(9000, 60)), LONGEST_REST);
    }

    #[test]
    fn filling_keeps_to_what_others_leave() {
        let now = Instant::now();
        let mut pace = Pace::on(8);
        assert_eq!((pace.abreast(), pace.pause(now)), (2, None));
        assert_eq!((Pace::on(1).abreast(), Pace::on(0).abreast()), (1, 1));
        // Both were in the way of somebody, perhaps of each other: one is left.
        pace.done(2, CROWD, now);
        pace.done(2, CROWD, now);
        assert_eq!((pace.abreast(), pace.pause(now)), (1, None));
        // Alone and still in the way: none for a while.
        pace.done(1, CROWD, now);
        let rest = full_rest(CROWD);
        assert_eq!(pace.pause(now + rest / 2), Some(rest - rest / 2));
        assert_eq!(pace.pause(now + rest), None);
        climb(&mut pace, now);
        assert_eq!(pace.abreast(), 2);
        (0..100).for_each(|_| assert!(!pace.done(2, FREE, now)));
        assert_eq!(pace.abreast(), 2, "no more than the limit");
    }

    #[test]
    fn a_machine_that_has_something_to_do_now_and_then_keeps_nobody_from_filling() {
        let now = Instant::now();
        let mut pace = Pace::on(2);
        for _ in 0..100 {
            pace.done(2, spent(72, 56), now);
            pace.done(2, FREE, now);
            pace.done(2, FREE, now);
            assert_eq!((pace.abreast(), pace.pause(now)), (2, None));
        }
        // A little, all the time, is more than now and then.
        let keys = (1..100).find(|_| {
            pace.done(2, spent(70, 58), now);
            pace.abreast() == 1
        });
        assert!(keys.is_some_and(|keys| keys < 10), "{keys:?}");
        assert!(!pace.done(1, spent(70, 58), now));
        assert!(pace.pause(now).is_some(), "it goes on");
    }

    #[test]
    fn whoever_is_in_the_way_again_and_again_comes_back_later_and_later() {
        let now = Instant::now();
        let mut pace = Pace::on(2);
        let mut needed = Vec::new();
        for _ in 0..7 {
            pace.done(2, CROWD, now);
            needed.push(climb(&mut pace, now));
        }
        assert_eq!(needed, [4, 8, 16, 32, 32, 32, 32]);
        // What comes after a while in which nobody was in the way is new.
        (0..NEW).for_each(|_| assert!(!pace.done(2, FREE, now)));
        pace.done(2, spent(120, 60), now);
        assert_eq!((pace.abreast(), climb(&mut pace, now)), (1, EASY));
    }

    #[test]
    fn a_key_that_came_after_a_failure_does_not_end_its_pause() {
        let now = Instant::now();
        let mut pace = Pace::on(1);
        pace.failed(now);
        assert_eq!(pace.pause(now), Some(AFTER_FAILURE));
        pace.done(1, CROWD, now);
        assert_eq!(pace.pause(now), Some(AFTER_FAILURE));
    }
}
