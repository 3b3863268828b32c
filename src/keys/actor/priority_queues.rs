//! The queued jobs of one key, in three fair queues by [`JobPriority`]. Signatures for writes or authenticated callers
//! go first. Lookups and unauthenticated requests alternately get at least one call in four, so that no queue starves.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::backend::{BackendRequest, BackendResponse};
use crate::error::Result;
use crate::rationing::{CallerId, DisplacedJobs, FairQueue, QueueCaller};

/// After this number of jobs from the first queue, one job of another queue is taken, if another queue has jobs.
const FIRST_QUEUE_CALLS_PER_OTHER: usize = 3;
/// Ratio of the capacity of the first queue to that of each other queue.
const OTHER_QUEUE_CAPACITY_DIVISOR: usize = 8;
/// Cap on the first measured duration of a call, when there is no estimate yet.
const MAX_FIRST_ESTIMATE: Duration = Duration::from_millis(200);

/// The priority of a job. Each priority has its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPriority {
    First,
    /// Lookups and tests of the key. They may hang while signatures do not.
    Lookup,
    /// Signatures for requests that need no authentication.
    Last,
}

pub(super) struct SigningJob {
    pub(super) request: BackendRequest,
    pub(super) priority: JobPriority,
    pub(super) queued_at: Instant,
    pub(super) deadline: Instant,
    pub(super) caller: QueueCaller,
    pub(super) answer: oneshot::Sender<Result<BackendResponse>>,
}

/// The queues of one key, and the estimated duration of a call.
pub(super) struct PriorityQueues {
    /// One queue per priority, in the order of [`JobPriority`].
    queues: [FairQueue<SigningJob>; 3],
    /// Number of jobs taken from the first queue since the last job of another queue; counted only while other queues
    /// have jobs.
    first_queue_calls: usize,
    /// `true` if the last job from a queue other than the first one was a lookup.
    last_was_lookup: bool,
    call_estimate: Duration,
}

impl PriorityQueues {
    pub(super) fn new() -> Self {
        // The queues only order their jobs, so their limits on running jobs do not matter: the number of workers limits
        // the calls.
        let queues = std::array::from_fn(|_| FairQueue::new(1, 1));
        Self { queues, first_queue_calls: 0, last_was_lookup: false, call_estimate: Duration::ZERO }
    }

    fn waiting_jobs(&self, priority: JobPriority) -> usize {
        self.queues[priority as usize].waiting()
    }

    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(FairQueue::waiting).sum()
    }

    /// Number of jobs that may start now, of which at most `max_lookups` are lookups.
    pub(super) fn ready_jobs(&self, max_lookups: usize) -> usize {
        self.waiting_jobs(JobPriority::First)
            + self.waiting_jobs(JobPriority::Last)
            + self.waiting_jobs(JobPriority::Lookup).min(max_lookups)
    }

    /// Removes and returns the next job, even if its caller has left. Takes a lookup only if `max_lookups` is not 0.
    pub(super) fn pop(&mut self, max_lookups: usize) -> Option<SigningJob> {
        let has_lookup = max_lookups > 0 && self.waiting_jobs(JobPriority::Lookup) > 0;
        let has_last = self.waiting_jobs(JobPriority::Last) > 0;
        let has_other = has_lookup || has_last;
        let is_turn_of_others = has_other && self.first_queue_calls >= FIRST_QUEUE_CALLS_PER_OTHER;
        let priority = if self.waiting_jobs(JobPriority::First) > 0 && !is_turn_of_others {
            self.first_queue_calls = if has_other { self.first_queue_calls + 1 } else { 0 };
            JobPriority::First
        } else {
            self.first_queue_calls = 0;
            self.last_was_lookup = has_lookup && !(has_last && self.last_was_lookup);
            if self.last_was_lookup { JobPriority::Lookup } else { JobPriority::Last }
        };
        self.queues[priority as usize].pop_next()
    }

    fn capacity(priority: JobPriority, max: usize) -> usize {
        if priority == JobPriority::First { max } else { (max / OTHER_QUEUE_CAPACITY_DIVISOR).max(1) }
    }

    /// Queues a job: see [`FairQueue::push_bounded`]. `max` is the capacity of the first queue; the others have an
    /// eighth of it.
    pub(super) fn push(&mut self, job: SigningJob, max: usize) -> DisplacedJobs<SigningJob> {
        let is_expired = is_expired(Instant::now(), self.call_estimate);
        let capacity = Self::capacity(job.priority, max);
        self.queues[job.priority as usize].push_bounded(job.caller.caller_id(), job, capacity, usize::MAX, is_expired)
    }

    /// `true` if [`PriorityQueues::push`] would accept a job.
    pub(super) fn has_capacity(&self, priority: JobPriority, caller_id: CallerId, max: usize) -> bool {
        let is_expired = is_expired(Instant::now(), self.call_estimate);
        self.queues[priority as usize].has_room(caller_id, Self::capacity(priority, max), is_expired)
    }

    /// Estimates how long one more job would wait. `running` and `max_calls` are the current and the maximum number of
    /// concurrent calls of its priority. A call takes at least `min_elapsed`, the elapsed time of the calls in
    /// progress.
    pub(super) fn expected_wait(
        &self,
        priority: JobPriority,
        caller_id: CallerId,
        running: usize,
        max_calls: usize,
        min_elapsed: Duration,
    ) -> Duration {
        let own_queue = self.queues[priority as usize].waiting_before(caller_id);
        let lookups = self.waiting_jobs(JobPriority::Lookup);
        let before = match priority {
            JobPriority::First => {
                own_queue + own_queue.min(lookups + self.waiting_jobs(JobPriority::Last)) / FIRST_QUEUE_CALLS_PER_OTHER
            }
            JobPriority::Lookup => own_queue,
            // At most one lookup starts before each job of the last queue.
            JobPriority::Last => self.waiting_jobs(JobPriority::First) + own_queue + lookups.min(own_queue + 1),
        };
        let before = running + before;
        if before < max_calls {
            return Duration::ZERO;
        }
        let [calls, max_calls] = [before, max_calls.max(1)].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        self.call_estimate.max(min_elapsed).saturating_mul(calls) / max_calls
    }

    /// `true` if a job that waits for the duration `wait` ends within `call_timeout`, and `wait` is at most half of it.
    pub(super) fn starts_in_time(&self, wait: Duration, call_timeout: Duration) -> bool {
        wait <= call_timeout / 2 && wait + self.call_estimate <= call_timeout
    }

    /// Updates the estimate with the duration of a signature. An outlier is capped, because the call may have opened a
    /// session. The estimate is at most half of the time limit, so that a job in an empty queue always starts.
    pub(super) fn update_call_estimate(&mut self, took: Duration, call_timeout: Duration) {
        let took = took.min(self.call_estimate * 4 + MAX_FIRST_ESTIMATE);
        self.call_estimate = ((self.call_estimate * 3 + took) / 4).min(call_timeout / 2);
    }

    pub(super) fn forget_estimate(&mut self) {
        self.call_estimate = Duration::ZERO;
    }

    /// `true` if a call is useless: the job's caller has left, or its deadline is within the estimated duration.
    pub(super) fn is_expired(&self, job: &SigningJob) -> bool {
        is_expired(Instant::now(), self.call_estimate)(job)
    }

    pub(super) fn take_all(&mut self) -> Vec<SigningJob> {
        self.queues.iter_mut().flat_map(FairQueue::clear).flatten().collect()
    }
}

fn is_expired(now: Instant, call_estimate: Duration) -> impl Fn(&SigningJob) -> bool {
    move |job| job.answer.is_closed() || now + call_estimate >= job.deadline
}

#[cfg(test)]
mod tests {
    use super::JobPriority::First;
    use super::*;

    const LONG_TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns a job with a deadline `left` from now, and its receiver. The job expires when the receiver is dropped.
    fn job(priority: JobPriority, left: Duration) -> (SigningJob, oneshot::Receiver<Result<BackendResponse>>) {
        let (answer, receiver) = oneshot::channel();
        let now = Instant::now();
        let request = BackendRequest::Find { create: false };
        (
            SigningJob { request, priority, queued_at: now, deadline: now + left, caller: QueueCaller::SERVER, answer },
            receiver,
        )
    }

    #[test]
    fn every_fourth_call_serves_the_other_queues_alternately() {
        let mut queues = PriorityQueues::new();
        let mut receivers = Vec::new();
        for priority in [
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
            let (job, receiver) = job(priority, LONG_TIMEOUT);
            drop(queues.push(job, 100));
            receivers.push(receiver);
        }
        let order: Vec<JobPriority> = std::iter::from_fn(|| queues.pop(1)).map(|job| job.priority).collect();
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
        let mut queues = PriorityQueues::new();
        let (lookup, _lookup_receiver) = job(JobPriority::Lookup, LONG_TIMEOUT);
        let (last, _last_receiver) = job(JobPriority::Last, LONG_TIMEOUT);
        drop(queues.push(lookup, 100));
        assert_eq!((queues.ready_jobs(0), queues.ready_jobs(1), queues.len()), (0, 1, 1));
        assert!(queues.pop(0).is_none());
        drop(queues.push(last, 100));
        assert_eq!(queues.pop(0).unwrap().priority, JobPriority::Last);
        assert_eq!(queues.pop(1).unwrap().priority, JobPriority::Lookup);
    }

    #[test]
    fn each_queue_has_its_own_capacity() {
        let mut queues = PriorityQueues::new();
        let mut receivers = Vec::new();
        for _ in 0..2 {
            assert!(queues.has_capacity(JobPriority::Last, 0, 16));
            let (job, receiver) = job(JobPriority::Last, LONG_TIMEOUT);
            drop(queues.push(job, 100));
            receivers.push(receiver);
        }
        assert!(
            !queues.has_capacity(JobPriority::Last, 0, 16)
                && queues.has_capacity(JobPriority::Lookup, 0, 16)
                && queues.has_capacity(First, 0, 1)
        );
    }

    #[test]
    fn callers_of_a_priority_alternate_and_share_its_capacity() {
        let mut queues = PriorityQueues::new();
        let mut receivers = Vec::new();
        let [busy, other] = ["busy", "other"].map(QueueCaller::with_token);
        for caller in [busy, busy, busy, busy, other] {
            let (job, receiver) = job(First, LONG_TIMEOUT);
            drop(queues.push(SigningJob { caller, ..job }, 100));
            receivers.push(receiver);
        }
        assert!(!queues.has_capacity(First, busy.caller_id(), 5) && queues.has_capacity(First, other.caller_id(), 5));
        let (job, _receiver) = job(First, LONG_TIMEOUT);
        let displaced = queues.push(SigningJob { caller: other, ..job }, 5);
        assert!(displaced.abandoned.is_empty() && displaced.refused.is_some_and(|job| job.caller == busy));
        queues.call_estimate = Duration::from_millis(100);
        let wait = |caller: QueueCaller| queues.expected_wait(First, caller.caller_id(), 1, 1, Duration::ZERO);
        assert_eq!((wait(busy).as_millis(), wait(other).as_millis()), (600, 600));
        let order: Vec<bool> = std::iter::from_fn(|| queues.pop(1)).map(|job| job.caller == other).collect();
        assert_eq!(order, [false, true, false, true, false]);
    }

    #[test]
    fn job_that_would_miss_its_deadline_is_not_started() {
        let mut queues = PriorityQueues::new();
        let (soon, _soon_receiver) = job(First, Duration::from_secs(1));
        let (late, _late_receiver) = job(First, Duration::from_millis(200));
        assert!(!queues.is_expired(&late));
        queues.call_estimate = Duration::from_millis(300);
        assert!(queues.is_expired(&late) && !queues.is_expired(&soon));
        (0..10).for_each(|_| drop(queues.push(job(First, LONG_TIMEOUT).0, 100)));
        assert_eq!(queues.expected_wait(First, 0, 2, 2, Duration::ZERO), Duration::from_millis(1_800));
        assert!(queues.has_capacity(First, 0, 10), "the callers of the waiting jobs have left");
        assert_eq!((queues.push(soon, 10).abandoned.len(), queues.len()), (10, 1));
    }

    #[test]
    fn expected_wait_is_zero_while_a_call_may_start() {
        let mut queues = PriorityQueues::new();
        (0..100).for_each(|_| queues.update_call_estimate(Duration::from_secs(29), LONG_TIMEOUT));
        assert_eq!(queues.call_estimate, LONG_TIMEOUT / 2);
        assert_eq!(queues.expected_wait(First, 0, 3, 4, LONG_TIMEOUT), Duration::ZERO);
        assert!(
            queues.starts_in_time(Duration::ZERO, LONG_TIMEOUT)
                && !queues.starts_in_time(LONG_TIMEOUT / 2 + MAX_FIRST_ESTIMATE, LONG_TIMEOUT)
        );
        let (fresh, _fresh_receiver) = job(First, LONG_TIMEOUT);
        assert!(!queues.is_expired(&fresh));
        queues.forget_estimate();
        assert_eq!(queues.expected_wait(First, 0, 50, 4, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn call_estimate_follows_several_calls_not_one() {
        let mut queues = PriorityQueues::new();
        queues.update_call_estimate(Duration::from_secs(3), LONG_TIMEOUT);
        assert!(queues.call_estimate <= MAX_FIRST_ESTIMATE, "{:?}", queues.call_estimate);
        (0..30).for_each(|_| queues.update_call_estimate(Duration::from_millis(300), LONG_TIMEOUT));
        assert!((250..=300).contains(&queues.call_estimate.as_millis()), "{:?}", queues.call_estimate);
        (0..20).for_each(|_| queues.update_call_estimate(Duration::from_millis(5), LONG_TIMEOUT));
        assert!(queues.call_estimate.as_millis() < 10, "{:?}", queues.call_estimate);
    }
}
