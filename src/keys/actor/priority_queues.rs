//! Queued jobs, in three queues by [`JobPriority`]. Signatures for writes or authenticated callers go first. Lookups
//! and unauthenticated requests alternately get at least one call in four, so that no queue starves.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::backend::{BackendRequest, BackendResponse};
use crate::error::Result;
use crate::fair_queue::QueueCaller;

/// Calls of the first queue per call of another queue.
const FIRST_QUEUE_CALLS_PER_OTHER: u8 = 3;
/// Capacity of the first queue, divided by that of each other queue.
const OTHER_QUEUE_CAPACITY_DIVISOR: usize = 8;
/// Maximum of the first estimate of a call's duration.
const MAX_FIRST_ESTIMATE: Duration = Duration::from_millis(200);

/// The queue of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPriority {
    First,
    /// Lookups of the key, which may hang while signatures do not.
    Lookup,
    /// Requests that need no authentication.
    Last,
}

pub(super) struct SigningJob {
    pub(super) request: BackendRequest,
    pub(super) rank: JobPriority,
    pub(super) queued_at: Instant,
    pub(super) deadline: Instant,
    pub(super) caller: QueueCaller,
    pub(super) answer: oneshot::Sender<Result<BackendResponse>>,
}

#[derive(Default)]
pub(super) struct PriorityQueues {
    first: VecDeque<SigningJob>,
    look: VecDeque<SigningJob>,
    last: VecDeque<SigningJob>,
    /// Calls of the first queue since the last call of another.
    passed: u8,
    /// `true` if the last call of another queue was a lookup.
    last_was_lookup: bool,
    pace: Duration,
}

impl PriorityQueues {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.look.len() + self.last.len()
    }

    /// Number of jobs that may start now if `looks` lookups may.
    pub(super) fn ready(&self, looks: usize) -> usize {
        self.first.len() + self.last.len() + self.look.len().min(looks)
    }

    fn line(&mut self, rank: JobPriority) -> &mut VecDeque<SigningJob> {
        match rank {
            JobPriority::First => &mut self.first,
            JobPriority::Lookup => &mut self.look,
            JobPriority::Last => &mut self.last,
        }
    }

    pub(super) fn push(&mut self, job: SigningJob) {
        self.line(job.rank).push_back(job);
    }

    /// Removes the next job, even if its caller has left. A lookup only if `looks` is not 0.
    pub(super) fn pop(&mut self, looks: usize) -> Option<SigningJob> {
        let may_look = looks > 0 && !self.look.is_empty();
        let may_last = !self.last.is_empty();
        let others = may_look || may_last;
        let is_turn_of_others = others && self.passed >= FIRST_QUEUE_CALLS_PER_OTHER;
        if !self.first.is_empty() && !is_turn_of_others {
            self.passed = if others { self.passed + 1 } else { 0 };
            return self.first.pop_front();
        }
        self.passed = 0;
        self.last_was_lookup = may_look && !(may_last && self.last_was_lookup);
        if self.last_was_lookup { self.look.pop_front() } else { self.last.pop_front() }
    }

    /// `true` if the queue of `rank` has capacity for one more job. `max` is the capacity of the first queue.
    pub(super) fn has_capacity(&self, rank: JobPriority, max: usize) -> bool {
        let share = (max / OTHER_QUEUE_CAPACITY_DIVISOR).max(1);
        match rank {
            JobPriority::First => self.first.len() < max,
            JobPriority::Lookup => self.look.len() < share,
            JobPriority::Last => self.last.len() < share,
        }
    }

    /// Estimates the wait of one more job. `running` and `max_calls` are the running and maximum calls of its rank. A
    /// call takes at least `least`, the elapsed time of the calls in progress.
    pub(super) fn wait(&self, rank: JobPriority, running: usize, max_calls: usize, least: Duration) -> Duration {
        let interleaved =
            self.first.len().min(self.look.len() + self.last.len()) / usize::from(FIRST_QUEUE_CALLS_PER_OTHER);
        let before = match rank {
            JobPriority::First => self.first.len() + interleaved,
            JobPriority::Lookup => self.look.len(),
            // At most one lookup goes before each of them.
            JobPriority::Last => self.first.len() + self.last.len() + self.look.len().min(self.last.len() + 1),
        };
        let before = running + before;
        if before < max_calls {
            return Duration::ZERO;
        }
        let [calls, max_calls] = [before, max_calls.max(1)].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        self.pace.max(least).saturating_mul(calls) / max_calls
    }

    /// `true` if a job with this wait ends within `time` and waits for at most half of it.
    pub(super) fn is_in_time(&self, wait: Duration, time: Duration) -> bool {
        wait <= time / 2 && wait + self.pace <= time
    }

    /// Updates the estimate with the duration of a signature. An outlier is capped, because the call may have opened a
    /// session. The estimate is at most half of the time limit, so that a job in an empty queue always starts.
    pub(super) fn learn(&mut self, took: Duration, time: Duration) {
        let took = took.min(self.pace * 4 + MAX_FIRST_ESTIMATE);
        self.pace = if took < self.pace { (self.pace * 3 + took) / 4 } else { (self.pace * 7 + took) / 8 };
        self.pace = self.pace.min(time / 2);
    }

    pub(super) fn forget(&mut self) {
        self.pace = Duration::ZERO;
    }

    /// `true` if a call is useless: the job's caller has left, or its deadline is within the estimated duration.
    pub(super) fn is_expired(&self, job: &SigningJob, now: Instant) -> bool {
        job.answer.is_closed() || now + self.pace >= job.deadline
    }

    /// `true` if a job of this rank is useless in this sense.
    pub(super) fn has_expired(&self, rank: JobPriority, now: Instant) -> bool {
        self.all().any(|job| job.rank == rank && self.is_expired(job, now))
    }

    fn all(&self) -> impl Iterator<Item = &SigningJob> {
        self.first.iter().chain(&self.look).chain(&self.last)
    }

    pub(super) fn remove_expired(&mut self, now: Instant) -> Vec<SigningJob> {
        let (vain, kept): (Vec<SigningJob>, Vec<SigningJob>) =
            self.take_all().into_iter().partition(|job| self.is_expired(job, now));
        kept.into_iter().for_each(|job| self.push(job));
        vain
    }

    pub(super) fn take_all(&mut self) -> Vec<SigningJob> {
        self.first.drain(..).chain(self.look.drain(..)).chain(self.last.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::JobPriority::First;
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A job with a deadline `left` from now, and the receiver that keeps it alive.
    fn job(rank: JobPriority, left: Duration) -> (SigningJob, oneshot::Receiver<Result<BackendResponse>>) {
        let (answer, answered) = oneshot::channel();
        let now = Instant::now();
        let request = BackendRequest::Find { create: false };
        (
            SigningJob { request, rank, queued_at: now, deadline: now + left, caller: QueueCaller::SERVER, answer },
            answered,
        )
    }

    #[test]
    fn every_fourth_call_serves_the_other_queues_alternately() {
        let mut waiting = PriorityQueues::default();
        let mut kept = Vec::new();
        for rank in [
            JobPriority::Last,
            JobPriority::Last,
            First,
            First,
            First,
            First,
            First,
            JobPriority::Lookup,
            JobPriority::Lookup,
        ] {
            let (job, answered) = job(rank, LONG);
            waiting.push(job);
            kept.push(answered);
        }
        let order: Vec<JobPriority> = std::iter::from_fn(|| waiting.pop(1)).map(|job| job.rank).collect();
        assert_eq!(
            order,
            [
                First,
                First,
                First,
                JobPriority::Lookup,
                First,
                First,
                JobPriority::Last,
                JobPriority::Lookup,
                JobPriority::Last
            ]
        );
    }

    #[test]
    fn lookup_waits_for_its_limit_without_delaying_others() {
        let mut waiting = PriorityQueues::default();
        let (look, _look) = job(JobPriority::Lookup, LONG);
        let (last, _last) = job(JobPriority::Last, LONG);
        waiting.push(look);
        assert_eq!((waiting.ready(0), waiting.ready(1), waiting.len()), (0, 1, 1));
        assert!(waiting.pop(0).is_none());
        waiting.push(last);
        assert_eq!(waiting.pop(0).unwrap().rank, JobPriority::Last);
        assert_eq!(waiting.pop(1).unwrap().rank, JobPriority::Lookup);
    }

    #[test]
    fn each_queue_has_its_own_capacity() {
        let mut waiting = PriorityQueues::default();
        let mut kept = Vec::new();
        for _ in 0..2 {
            assert!(waiting.has_capacity(JobPriority::Last, 16));
            let (job, answered) = job(JobPriority::Last, LONG);
            waiting.push(job);
            kept.push(answered);
        }
        assert!(
            !waiting.has_capacity(JobPriority::Last, 16)
                && waiting.has_capacity(JobPriority::Lookup, 16)
                && waiting.has_capacity(First, 1)
        );
    }

    #[test]
    fn job_that_would_miss_its_deadline_is_not_started() {
        let mut waiting = PriorityQueues::default();
        let (soon, _soon) = job(First, Duration::from_secs(1));
        let (late, _late) = job(First, Duration::from_millis(200));
        assert!(!waiting.is_expired(&late, Instant::now()));
        waiting.pace = Duration::from_millis(300);
        assert!(waiting.is_expired(&late, Instant::now()) && !waiting.is_expired(&soon, Instant::now()));
        (0..10).for_each(|_| waiting.push(job(First, LONG).0));
        assert_eq!(waiting.wait(First, 2, 2, Duration::ZERO), Duration::from_millis(1_800));
        assert!(waiting.has_expired(First, Instant::now()), "the waiting calls have expired");
        assert_eq!((waiting.remove_expired(Instant::now()).len(), waiting.len()), (10, 0));
    }

    #[test]
    fn free_slot_means_no_wait_even_at_a_slow_pace() {
        let mut waiting = PriorityQueues::default();
        (0..100).for_each(|_| waiting.learn(Duration::from_secs(29), LONG));
        assert_eq!(waiting.pace, LONG / 2);
        assert_eq!(waiting.wait(First, 3, 4, LONG), Duration::ZERO);
        assert!(waiting.is_in_time(Duration::ZERO, LONG) && !waiting.is_in_time(LONG / 2 + MAX_FIRST_ESTIMATE, LONG));
        let (fresh, _fresh) = job(First, LONG);
        assert!(!waiting.is_expired(&fresh, Instant::now()));
        waiting.forget();
        assert_eq!(waiting.wait(First, 50, 4, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn pace_is_learned_from_several_calls_not_from_one() {
        let mut waiting = PriorityQueues::default();
        waiting.learn(Duration::from_secs(3), LONG);
        assert!(waiting.pace <= MAX_FIRST_ESTIMATE, "{:?}", waiting.pace);
        (0..30).for_each(|_| waiting.learn(Duration::from_millis(300), LONG));
        assert!((250..=300).contains(&waiting.pace.as_millis()), "{:?}", waiting.pace);
        (0..20).for_each(|_| waiting.learn(Duration::from_millis(5), LONG));
        assert!(waiting.pace.as_millis() < 10, "{:?}", waiting.pace);
    }
}
