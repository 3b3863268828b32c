//! Jobs that wait, in two lines: what changes something or was asked for by somebody who is known goes first, and what
//! anybody may ask for takes one call in four beside it, so that neither can starve the other.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::backend::{Answer, Request};
use crate::error::Result;

/// Calls of the first line beside one of the last.
const BESIDE_ONE: u8 = 3;
/// The part of the room that the last line has, besides that of the first.
const SHARE_OF_LAST: usize = 8;
/// What is learned from a call at most where nothing is known.
const SOME: Duration = Duration::from_millis(200);

/// One request on its way.
pub(super) struct Job {
    pub(super) request: Request,
    /// Whether others go before it.
    pub(super) goes_last: bool,
    pub(super) queued_at: Instant,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Result<Answer>>,
}

/// The two lines, and how fast they go.
#[derive(Default)]
pub(super) struct Waiting {
    first: VecDeque<Job>,
    last: VecDeque<Job>,
    /// Calls of the first line since the last one of the last.
    passed: u8,
    /// What a call takes, by the calls before.
    pace: Duration,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.last.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.last.is_empty()
    }

    pub(super) fn push(&mut self, job: Job) {
        if job.goes_last { self.last.push_back(job) } else { self.first.push_back(job) }
    }

    /// The next one, whether or not somebody waits for it still.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let of_last = self.first.is_empty() || (self.passed >= BESIDE_ONE && !self.last.is_empty());
        if of_last {
            self.passed = 0;
            return self.last.pop_front();
        }
        self.passed = if self.last.is_empty() { 0 } else { self.passed + 1 };
        self.first.pop_front()
    }

    /// Whether there is room for one more job of this kind among `most`.
    pub(super) fn has_room(&self, goes_last: bool, most: usize) -> bool {
        if goes_last { self.last.len() < (most / SHARE_OF_LAST).max(1) } else { self.first.len() < most }
    }

    /// How long one more job would wait, with so many calls under way at so many places.
    pub(super) fn wait(&self, goes_last: bool, running: usize, places: usize) -> Duration {
        let beside = self.first.len().min(self.last.len()) / usize::from(BESIDE_ONE);
        let before = running + if goes_last { self.len() } else { self.first.len() + beside };
        if before < places {
            return Duration::ZERO;
        }
        let [calls, places] = [before, places.max(1)].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        self.pace.saturating_mul(calls) / places
    }

    /// Whether a job that waits so long is done within its `time`, and has half of it left for what comes between.
    pub(super) fn is_in_time(&self, wait: Duration, time: Duration) -> bool {
        wait <= time / 2 && wait + self.pace <= time
    }

    /// A signature took so long. One that took very much longer than those before counts as a part of that: it may have
    /// had a session to open. No pace is so slow that a job that comes first would not be begun.
    pub(super) fn learn(&mut self, took: Duration, time: Duration) {
        let took = took.min(self.pace * 4 + SOME);
        self.pace = if took < self.pace { (self.pace * 3 + took) / 4 } else { (self.pace * 7 + took) / 8 };
        self.pace = self.pace.min(time / 2);
    }

    /// Nothing is known any more: another configuration.
    pub(super) fn forget(&mut self) {
        self.pace = Duration::ZERO;
    }

    /// Whether there is no use in beginning a job: nobody waits for it, or its time ends before a call would.
    pub(super) fn is_vain(&self, job: &Job, now: Instant) -> bool {
        job.answer.is_closed() || now + self.pace >= job.deadline
    }

    /// Whether there is such a job of this kind.
    pub(super) fn has_vain(&self, goes_last: bool, now: Instant) -> bool {
        let line = if goes_last { &self.last } else { &self.first };
        line.iter().any(|job| self.is_vain(job, now))
    }

    /// Takes them out.
    pub(super) fn drop_vain(&mut self, now: Instant) -> Vec<Job> {
        let all: Vec<Job> = self.first.drain(..).chain(self.last.drain(..)).collect();
        let (vain, kept): (Vec<Job>, Vec<Job>) = all.into_iter().partition(|job| self.is_vain(job, now));
        kept.into_iter().for_each(|job| self.push(job));
        vain
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        self.first.drain(..).chain(self.last.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A job whose time ends after `left`, and what keeps it alive.
    fn job(goes_last: bool, left: Duration) -> (Job, oneshot::Receiver<Result<Answer>>) {
        let (answer, answered) = oneshot::channel();
        let now = Instant::now();
        let request = Request::Find { create: false };
        (Job { request, goes_last, queued_at: now, deadline: now + left, answer }, answered)
    }

    #[test]
    fn one_call_in_four_is_for_who_goes_last() {
        let (mut waiting, mut kept) = (Waiting::default(), Vec::new());
        for goes_last in [true, true, false, false, false, false, false] {
            let (job, answered) = job(goes_last, LONG);
            waiting.push(job);
            kept.push(answered);
        }
        let order: Vec<bool> = std::iter::from_fn(|| waiting.pop()).map(|job| job.goes_last).collect();
        assert_eq!(order, [false, false, false, true, false, false, true]);
    }

    #[test]
    fn who_goes_last_has_room_of_its_own() {
        let (mut waiting, mut kept) = (Waiting::default(), Vec::new());
        for _ in 0..2 {
            assert!(waiting.has_room(true, 16));
            let (job, answered) = job(true, LONG);
            waiting.push(job);
            kept.push(answered);
        }
        assert!(!waiting.has_room(true, 16) && waiting.has_room(false, 1));
    }

    #[test]
    fn what_would_be_answered_too_late_is_not_begun() {
        let mut waiting = Waiting::default();
        let (soon, _soon) = job(false, Duration::from_secs(1));
        let (late, _late) = job(false, Duration::from_millis(200));
        assert!(!waiting.is_vain(&late, Instant::now()));
        waiting.pace = Duration::from_millis(300);
        assert!(waiting.is_vain(&late, Instant::now()) && !waiting.is_vain(&soon, Instant::now()));
        (0..10).for_each(|_| waiting.push(job(false, LONG).0));
        assert_eq!(waiting.wait(false, 2, 2), Duration::from_millis(1_800));
        assert!(waiting.has_vain(false, Instant::now()), "nobody waits for them");
        assert_eq!((waiting.drop_vain(Instant::now()).len(), waiting.len()), (10, 0));
    }

    #[test]
    fn nobody_waits_where_a_place_is_free_and_no_pace_keeps_the_first_from_being_begun() {
        let mut waiting = Waiting::default();
        (0..100).for_each(|_| waiting.learn(Duration::from_secs(29), LONG));
        assert_eq!(waiting.pace, LONG / 2);
        assert_eq!(waiting.wait(false, 3, 4), Duration::ZERO);
        assert!(waiting.is_in_time(Duration::ZERO, LONG) && !waiting.is_in_time(LONG / 2 + SOME, LONG));
        let (fresh, _fresh) = job(false, LONG);
        assert!(!waiting.is_vain(&fresh, Instant::now()));
        waiting.forget();
        assert_eq!(waiting.wait(false, 50, 4), Duration::ZERO);
    }

    #[test]
    fn a_pace_is_learned_within_some_calls_and_not_from_one() {
        let mut waiting = Waiting::default();
        waiting.learn(Duration::from_secs(3), LONG);
        assert!(waiting.pace <= SOME, "{:?}", waiting.pace);
        (0..30).for_each(|_| waiting.learn(Duration::from_millis(300), LONG));
        assert!((250..=300).contains(&waiting.pace.as_millis()), "{:?}", waiting.pace);
        (0..20).for_each(|_| waiting.learn(Duration::from_millis(5), LONG));
        assert!(waiting.pace.as_millis() < 10, "{:?}", waiting.pace);
    }
}
