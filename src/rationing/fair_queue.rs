//! Fair queues: at most `max_running` jobs run concurrently, and at most `max_running_per_caller` of one caller.

use std::collections::VecDeque;

use super::caller::CallerId;

/// Jobs of one caller that may wait in a bounded queue.
pub const MAX_WAITING_PER_CALLER: usize = 64;

/// A fair queue of jobs.
pub struct FairQueue<T> {
    /// Callers with waiting jobs, in round-robin order, and their jobs.
    waiting_by_caller: VecDeque<(CallerId, VecDeque<T>)>,
    waiting: usize,
    /// Callers of the running jobs, one entry per job.
    running: Vec<CallerId>,
    /// Maximum number of running jobs, in total and per caller.
    max_running: usize,
    max_running_per_caller: usize,
}

impl<T> FairQueue<T> {
    /// An empty queue that runs at most `max_running` jobs concurrently, and `max_running_per_caller` per caller.
    pub fn new(max_running: usize, max_running_per_caller: usize) -> Self {
        Self {
            waiting_by_caller: VecDeque::new(),
            waiting: 0,
            running: Vec::new(),
            max_running,
            max_running_per_caller,
        }
    }

    /// Changes the limits on running jobs.
    pub fn set_limits(&mut self, max_running: usize, max_running_per_caller: usize) {
        (self.max_running, self.max_running_per_caller) = (max_running, max_running_per_caller);
    }

    /// Number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Appends a job to the queue of its caller.
    pub fn push(&mut self, caller_id: CallerId, job: T) {
        self.waiting += 1;
        match self.waiting_by_caller.iter_mut().find(|(other, _)| *other == caller_id) {
            Some((_, waiting)) => waiting.push_back(job),
            None => self.waiting_by_caller.push_back((caller_id, VecDeque::from([job]))),
        }
    }

    /// Number of waiting jobs of a caller.
    pub fn waiting_of(&self, caller_id: CallerId) -> usize {
        self.waiting_by_caller.iter().find(|(other, _)| *other == caller_id).map_or(0, |(_, waiting)| waiting.len())
    }

    /// Removes and returns the waiting jobs for which `keep` is false.
    pub fn remove_unless(&mut self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let mut dropped = Vec::new();
        for (_, waiting) in &mut self.waiting_by_caller {
            let jobs = std::mem::take(waiting);
            let (kept, gone): (VecDeque<T>, VecDeque<T>) = jobs.into_iter().partition(&keep);
            *waiting = kept;
            dropped.extend(gone);
        }
        self.waiting_by_caller.retain(|(_, waiting)| !waiting.is_empty());
        self.waiting -= dropped.len();
        dropped
    }

    /// Appends a job to the queue of its caller. At most `max_per_caller` jobs of a caller wait, and `max` of all
    /// callers. In a full queue, jobs of disconnected callers (`is_abandoned`) are removed first. If the queue is still
    /// full, the newest job of the caller with the most waiting jobs is refused, provided that this caller has at least
    /// two waiting jobs more than the caller `caller_id`. Otherwise, the job itself is refused.
    pub fn push_bounded(
        &mut self,
        caller_id: CallerId,
        job: T,
        max: usize,
        max_per_caller: usize,
        is_abandoned: impl Fn(&T) -> bool,
    ) -> DisplacedJobs<T> {
        let is_full = |queue: &Self| queue.waiting_of(caller_id) >= max_per_caller || queue.waiting() >= max;
        let mut displaced = DisplacedJobs { abandoned: Vec::new(), refused: None };
        if is_full(self) {
            displaced.abandoned = self.remove_unless(|job| !is_abandoned(job));
        }
        if is_full(self) && self.waiting_of(caller_id) < max_per_caller {
            displaced.refused = self.remove_excess_job(caller_id);
        }
        if is_full(self) {
            displaced.refused = Some(job);
        } else {
            self.push(caller_id, job);
        }
        displaced
    }

    /// `true` if [`FairQueue::push_bounded`] would accept a job, apart from the limit per caller.
    pub fn has_room(&self, caller_id: CallerId, max: usize, is_abandoned: impl Fn(&T) -> bool) -> bool {
        self.waiting < max
            || self.has_excess_job(caller_id)
            || self.waiting_by_caller.iter().any(|(_, waiting)| waiting.iter().any(&is_abandoned))
    }

    /// Number of waiting jobs that would start before a job that this caller appends now.
    pub fn waiting_before(&self, caller_id: CallerId) -> usize {
        let rounds = self.waiting_of(caller_id) + 1;
        self.waiting_by_caller.iter().map(|(_, waiting)| waiting.len().min(rounds)).sum()
    }

    /// `true` if another caller has at least two more waiting jobs than `caller_id`.
    fn has_excess_job(&self, caller_id: CallerId) -> bool {
        let own = self.waiting_of(caller_id);
        self.waiting_by_caller.iter().any(|(_, waiting)| waiting.len() > own + 1)
    }

    /// Removes the newest job of the caller with the most waiting jobs, if that caller has at least two more than
    /// `caller_id`.
    fn remove_excess_job(&mut self, caller_id: CallerId) -> Option<T> {
        if !self.has_excess_job(caller_id) {
            return None;
        }
        let (_, waiting) = self.waiting_by_caller.iter_mut().max_by_key(|(_, waiting)| waiting.len())?;
        self.waiting -= 1;
        waiting.pop_back()
    }

    /// Takes the next job without counting it as running, for users that need only the order and not the limits.
    pub fn pop_next(&mut self) -> Option<T> {
        let (caller_id, job) = self.start_next()?;
        self.end_job(caller_id);
        Some(job)
    }

    /// `true` if a job may start.
    pub fn has_startable_job(&self) -> bool {
        self.next_caller_index().is_some()
    }

    /// Returns the index of the caller whose job starts next: the first of those with the fewest running jobs.
    fn next_caller_index(&self) -> Option<usize> {
        if self.running.len() >= self.max_running {
            return None;
        }
        let running =
            |(caller_id, _): &(CallerId, _)| self.running.iter().filter(|running| *running == caller_id).count();
        let (at, fewest) =
            self.waiting_by_caller.iter().map(running).enumerate().min_by_key(|(_, running)| *running)?;
        (fewest < self.max_running_per_caller).then_some(at)
    }

    /// Starts the next job. Its caller moves to the end of the round-robin order.
    pub fn start_next(&mut self) -> Option<(CallerId, T)> {
        let (caller_id, mut waiting) = self.waiting_by_caller.remove(self.next_caller_index()?)?;
        let job = waiting.pop_front()?;
        if !waiting.is_empty() {
            self.waiting_by_caller.push_back((caller_id, waiting));
        }
        self.waiting -= 1;
        self.running.push(caller_id);
        Some((caller_id, job))
    }

    /// Ends a running job of a caller, so that another job can start.
    pub fn end_job(&mut self, caller_id: CallerId) {
        if let Some(at) = self.running.iter().position(|running| *running == caller_id) {
            self.running.swap_remove(at);
        }
    }

    /// Removes and returns all waiting jobs, by caller.
    pub fn clear(&mut self) -> Vec<VecDeque<T>> {
        self.waiting = 0;
        self.waiting_by_caller.drain(..).map(|(_, waiting)| waiting).collect()
    }
}

/// Jobs that [`FairQueue::push_bounded`] removed from a full queue or did not accept.
pub struct DisplacedJobs<T> {
    /// Jobs of disconnected callers. Drop them outside of locks: a job may own large data.
    pub abandoned: Vec<T>,
    /// A job to be refused: the newest one of the longest queue, or the new job itself.
    pub refused: Option<T>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fair_queue_alternates_callers_and_caps_jobs_per_caller() {
        let mut queue = FairQueue::new(4, 3);
        (0..10).for_each(|n| queue.push(1, n));
        let first: Vec<_> = std::iter::from_fn(|| queue.start_next()).collect();
        assert_eq!(first, [(1, 0), (1, 1), (1, 2)], "one slot is left to others");
        assert!(!queue.has_startable_job());
        (100..103).for_each(|n| queue.push(2, n));
        assert_eq!(queue.start_next(), Some((2, 100)));
        assert_eq!((queue.start_next(), queue.waiting()), (None, 9), "all slots are taken");
        queue.end_job(1);
        assert_eq!(queue.start_next(), Some((2, 101)), "the caller with fewer running jobs comes first");
        queue.end_job(1);
        // Each caller has one running job, so the caller that was served last comes second.
        queue.end_job(2);
        assert_eq!((queue.start_next(), queue.start_next()), (Some((1, 3)), Some((2, 102))));
        assert_eq!(queue.clear().iter().map(VecDeque::len).sum::<usize>(), 6);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn fair_queue_drops_the_excess_job_of_the_longest_queue() {
        let mut queue = FairQueue::new(1, 1);
        (0..3).for_each(|n| queue.push(1, n));
        queue.push(2, 9);
        assert_eq!(
            (queue.remove_excess_job(1), queue.remove_excess_job(2), queue.remove_excess_job(2)),
            (None, Some(2), None)
        );
        assert_eq!((queue.remove_unless(|n| *n > 0), queue.waiting(), queue.waiting_of(1)), (vec![0], 2, 1));
    }
}
