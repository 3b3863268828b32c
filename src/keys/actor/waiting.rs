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
/// What a call takes counts this much less than what calls took before.
const WEIGHT: u32 = 8;

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
        let before = if goes_last { self.len() } else { self.first.len() + self.first.len().min(self.last.len()) / 4 };
        let calls = u32::try_from(before + running).unwrap_or(u32::MAX);
        self.pace.saturating_mul(calls) / u32::try_from(places.max(1)).unwrap_or(u32::MAX)
    }

    /// A call took so long; of one that hung nothing is learned.
    pub(super) fn learn(&mut self, took: Duration, hung: Duration) {
        if took < hung {
            self.pace = if self.pace.is_zero() { took } else { (self.pace * (WEIGHT - 1) + took) / WEIGHT };
        }
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
        waiting.learn(Duration::from_millis(300), LONG);
        assert!(waiting.is_vain(&late, Instant::now()) && !waiting.is_vain(&soon, Instant::now()));
        (0..10).for_each(|_| waiting.push(job(false, LONG).0));
        assert_eq!(waiting.wait(false, 2, 2), Duration::from_millis(1_800));
        assert!(waiting.has_vain(false, Instant::now()), "nobody waits for them");
        assert_eq!((waiting.drop_vain(Instant::now()).len(), waiting.len()), (10, 0));
        waiting.learn(Duration::from_secs(40), LONG);
        assert!(!waiting.is_vain(&soon, Instant::now()), "of a call that hung nothing is learned");
    }
}
