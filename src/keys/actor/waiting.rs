//! Jobs that wait, in three lines by [`Rank`]: signatures that change something or were asked for by somebody who is known
//! go first; look-ups and what anybody may ask for take one call in four beside them, in turn, so that none can starve the
//! others.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::backend::{Answer, Request};
use crate::error::Result;
use crate::turns::Caller;

/// Calls of the first line beside one of the last.
const BESIDE_ONE: u8 = 3;
/// The part of the room that each other line has, besides that of the first.
const SHARE_OF_OTHERS: usize = 8;
/// What is learned from a call at most where nothing is known.
const SOME: Duration = Duration::from_millis(200);

/// In which line a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    First,
    /// What looks the key up, which may hang while signatures do not.
    Look,
    /// What anybody may ask for.
    Last,
}

/// One request on its way.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) rank: Rank,
    pub(super) queued_at: Instant,
    pub(super) deadline: Instant,
    /// The caller that the job is for.
    pub(super) caller: Caller,
    pub(super) answer: oneshot::Sender<Result<Answer>>,
}

/// The lines, and how fast they go.
#[derive(Default)]
pub(super) struct Waiting {
    first: VecDeque<Job>,
    look: VecDeque<Job>,
    last: VecDeque<Job>,
    /// Calls of the first line since one of another.
    passed: u8,
    /// Whether the last one of another line was a look-up.
    looked: bool,
    /// What a call takes, by the calls before.
    pace: Duration,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.look.len() + self.last.len()
    }

    /// How many could begin at once, where so many look-ups may.
    pub(super) fn ready(&self, looks: usize) -> usize {
        self.first.len() + self.last.len() + self.look.len().min(looks)
    }

    fn line(&mut self, rank: Rank) -> &mut VecDeque<Job> {
        match rank {
            Rank::First => &mut self.first,
            Rank::Look => &mut self.look,
            Rank::Last => &mut self.last,
        }
    }

    pub(super) fn push(&mut self, job: Job) {
        self.line(job.rank).push_back(job);
    }

    /// The next one, whether or not somebody waits for it still; a look-up where so many more may begin.
    pub(super) fn pop(&mut self, looks: usize) -> Option<Job> {
        let (may_look, may_last) = (looks > 0 && !self.look.is_empty(), !self.last.is_empty());
        let others = may_look || may_last;
        let is_turn_of_others = others && self.passed >= BESIDE_ONE;
        if !self.first.is_empty() && !is_turn_of_others {
            self.passed = if others { self.passed + 1 } else { 0 };
            return self.first.pop_front();
        }
        self.passed = 0;
        self.looked = may_look && !(may_last && self.looked);
        if self.looked { self.look.pop_front() } else { self.last.pop_front() }
    }

    /// Whether there is room for one more job of this rank among `most`.
    pub(super) fn has_room(&self, rank: Rank, most: usize) -> bool {
        let share = (most / SHARE_OF_OTHERS).max(1);
        match rank {
            Rank::First => self.first.len() < most,
            Rank::Look => self.look.len() < share,
            Rank::Last => self.last.len() < share,
        }
    }

    /// How long one more job would wait, with so many calls under way at so many places; of look-ups those that are
    /// theirs. A call takes `least` or longer, by what those under way have taken.
    pub(super) fn wait(&self, rank: Rank, running: usize, places: usize, least: Duration) -> Duration {
        let beside = self.first.len().min(self.look.len() + self.last.len()) / usize::from(BESIDE_ONE);
        let before = match rank {
            Rank::First => self.first.len() + beside,
            Rank::Look => self.look.len(),
            // No more than one look-up goes before each of them.
            Rank::Last => self.first.len() + self.last.len() + self.look.len().min(self.last.len() + 1),
        };
        let before = running + before;
        if before < places {
            return Duration::ZERO;
        }
        let [calls, places] = [before, places.max(1)].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        self.pace.max(least).saturating_mul(calls) / places
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

    /// Whether there is such a job of this rank.
    pub(super) fn has_vain(&self, rank: Rank, now: Instant) -> bool {
        self.all().any(|job| job.rank == rank && self.is_vain(job, now))
    }

    fn all(&self) -> impl Iterator<Item = &Job> {
        self.first.iter().chain(&self.look).chain(&self.last)
    }

    /// Takes them out.
    pub(super) fn drop_vain(&mut self, now: Instant) -> Vec<Job> {
        let (vain, kept): (Vec<Job>, Vec<Job>) = self.take_all().into_iter().partition(|job| self.is_vain(job, now));
        kept.into_iter().for_each(|job| self.push(job));
        vain
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        self.first.drain(..).chain(self.look.drain(..)).chain(self.last.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Rank::First;
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A job whose time ends after `left`, and what keeps it alive.
    fn job(rank: Rank, left: Duration) -> (Job, oneshot::Receiver<Result<Answer>>) {
        let (answer, answered) = oneshot::channel();
        let now = Instant::now();
        let request = Request::Find { create: false };
        (Job { request, rank, queued_at: now, deadline: now + left, caller: Caller::SERVER, answer }, answered)
    }

    #[test]
    fn one_call_in_four_is_for_the_other_lines_in_turn() {
        let (mut waiting, mut kept) = (Waiting::default(), Vec::new());
        for rank in [Rank::Last, Rank::Last, First, First, First, First, First, Rank::Look, Rank::Look] {
            let (job, answered) = job(rank, LONG);
            waiting.push(job);
            kept.push(answered);
        }
        let order: Vec<Rank> = std::iter::from_fn(|| waiting.pop(1)).map(|job| job.rank).collect();
        assert_eq!(order, [First, First, First, Rank::Look, First, First, Rank::Last, Rank::Look, Rank::Last]);
    }

    #[test]
    fn a_look_up_waits_while_no_more_may_begin_and_holds_nobody_up() {
        let mut waiting = Waiting::default();
        let (look, _look) = job(Rank::Look, LONG);
        let (last, _last) = job(Rank::Last, LONG);
        waiting.push(look);
        assert_eq!((waiting.ready(0), waiting.ready(1), waiting.len()), (0, 1, 1));
        assert!(waiting.pop(0).is_none());
        waiting.push(last);
        assert_eq!(waiting.pop(0).unwrap().rank, Rank::Last);
        assert_eq!(waiting.pop(1).unwrap().rank, Rank::Look);
    }

    #[test]
    fn each_line_has_room_of_its_own() {
        let (mut waiting, mut kept) = (Waiting::default(), Vec::new());
        for _ in 0..2 {
            assert!(waiting.has_room(Rank::Last, 16));
            let (job, answered) = job(Rank::Last, LONG);
            waiting.push(job);
            kept.push(answered);
        }
        assert!(!waiting.has_room(Rank::Last, 16) && waiting.has_room(Rank::Look, 16) && waiting.has_room(First, 1));
    }

    #[test]
    fn what_would_be_answered_too_late_is_not_begun() {
        let mut waiting = Waiting::default();
        let (soon, _soon) = job(First, Duration::from_secs(1));
        let (late, _late) = job(First, Duration::from_millis(200));
        assert!(!waiting.is_vain(&late, Instant::now()));
        waiting.pace = Duration::from_millis(300);
        assert!(waiting.is_vain(&late, Instant::now()) && !waiting.is_vain(&soon, Instant::now()));
        (0..10).for_each(|_| waiting.push(job(First, LONG).0));
        assert_eq!(waiting.wait(First, 2, 2, Duration::ZERO), Duration::from_millis(1_800));
        assert!(waiting.has_vain(First, Instant::now()), "nobody waits for them");
        assert_eq!((waiting.drop_vain(Instant::now()).len(), waiting.len()), (10, 0));
    }

    #[test]
    fn nobody_waits_where_a_place_is_free_and_no_pace_keeps_the_first_from_being_begun() {
        let mut waiting = Waiting::default();
        (0..100).for_each(|_| waiting.learn(Duration::from_secs(29), LONG));
        assert_eq!(waiting.pace, LONG / 2);
        assert_eq!(waiting.wait(First, 3, 4, LONG), Duration::ZERO);
        assert!(waiting.is_in_time(Duration::ZERO, LONG) && !waiting.is_in_time(LONG / 2 + SOME, LONG));
        let (fresh, _fresh) = job(First, LONG);
        assert!(!waiting.is_vain(&fresh, Instant::now()));
        waiting.forget();
        assert_eq!(waiting.wait(First, 50, 4, Duration::ZERO), Duration::ZERO);
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
