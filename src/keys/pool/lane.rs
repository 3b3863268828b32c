//! Queues for key generation: a lane per class of key sizes, served round-robin by mount and then by caller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::fair_queue::{CallerId, FairQueue};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::x509::algorithm::KeyKind;

/// A class of RSA key sizes. Generation time grows with about the fourth power of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolLane {
    /// Up to 2048 bits: tens of milliseconds.
    Small,
    /// Up to 4096 bits: most of a second.
    Medium,
    /// Beyond: ten seconds, often more.
    Large,
}

impl PoolLane {
    pub(super) const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The lane of a key; `None` for keys that are cheap to generate.
    pub(super) fn of(kind: KeyKind) -> Option<Self> {
        match kind {
            KeyKind::Rsa { bits: ..=2048 } => Some(Self::Small),
            KeyKind::Rsa { bits: ..=4096 } => Some(Self::Medium),
            KeyKind::Rsa { .. } => Some(Self::Large),
            KeyKind::Ec(_) | KeyKind::Ed25519 => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// Maximum number of queued jobs of one caller.
    pub(super) fn max_queued_per_caller(self) -> usize {
        match self {
            Self::Small => 64,
            Self::Medium => 32,
            Self::Large => 4,
        }
    }

    /// Maximum number of queued jobs: about as many as are done before their callers time out.
    pub(super) fn max_queued(self) -> usize {
        match self {
            Self::Small => 1024,
            Self::Medium => 128,
            Self::Large => 8,
        }
    }
}

/// A guard that a caller holds while another task produces its response.
#[derive(Default)]
pub struct CallerGuard(Arc<CallerState>);

/// State shared by a [`CallerGuard`] and its watches.
#[derive(Debug, Default)]
struct CallerState {
    gone: AtomicBool,
    notify: Notify,
}

impl CallerGuard {
    /// Returns a watch of this guard.
    pub fn watch(&self) -> CallerWatch {
        CallerWatch(Some(Arc::clone(&self.0)))
    }
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

/// Observes whether a caller still waits; the default is [`CallerWatch::ALWAYS`].
#[derive(Clone, Debug, Default)]
pub struct CallerWatch(Option<Arc<CallerState>>);

impl CallerWatch {
    /// For a caller that leaves only by dropping the future that waits.
    pub const ALWAYS: Self = Self(None);

    fn has_ended(&self) -> bool {
        self.0.as_ref().is_some_and(|left| left.gone.load(Ordering::Acquire))
    }

    /// Resolves when the caller has left.
    pub async fn ended(&self) {
        let Some(left) = &self.0 else { return std::future::pending().await };
        loop {
            // Registered before the check, so that a caller that leaves after the check is noticed.
            let notified = left.notify.notified();
            if self.has_ended() {
                return;
            }
            notified.await;
        }
    }
}

pub(super) struct KeyGenerationJob {
    pub(super) spec: KeySpec,
    pub(super) mount: MountId,
    pub(super) caller_id: CallerId,
    pub(super) caller: CallerWatch,
    pub(super) queued_at: Instant,
    pub(super) answer: oneshot::Sender<Result<PrivateKey>>,
}

impl KeyGenerationJob {
    fn is_void(&self) -> bool {
        self.answer.is_closed() || self.caller.has_ended()
    }

    fn refuse(self, kind: Kind, text: &'static str) {
        let _ = self.answer.send(Err(Error::new(kind, text)));
    }

    fn cancel(self) {
        self.refuse(Kind::Unavailable, "key generation cancelled: the caller has disconnected");
    }

    pub(super) fn reject_busy(self) {
        self.refuse(Kind::Busy, "too many RSA keys of this size are being generated; retry shortly");
    }
}

/// The jobs of a lane, served round-robin by mount and, within a mount, by caller.
#[derive(Default)]
pub(super) struct LaneQueue {
    mounts: VecDeque<(MountId, FairQueue<KeyGenerationJob>)>,
}

impl LaneQueue {
    pub(super) fn len(&self) -> usize {
        self.mounts.iter().map(|(_, jobs)| jobs.waiting()).sum()
    }

    /// Queues a job. If the lane holds `max_queued` jobs, or `max_queued_per_caller` of this caller, returns the job
    /// that is rejected. Jobs whose caller has left are removed first. In a full lane, a mount or caller with fewer
    /// jobs displaces the latest job of the busiest.
    pub(super) fn push(
        &mut self,
        job: KeyGenerationJob,
        max_queued: usize,
        max_queued_per_caller: usize,
    ) -> Option<KeyGenerationJob> {
        let is_full = |line: &Self| line.len() >= max_queued || line.waiting_of(&job) >= max_queued_per_caller;
        if is_full(self) {
            self.cancel_disconnected();
        }
        if self.waiting_of(&job) >= max_queued_per_caller {
            return Some(job);
        }
        let mut rejected = None;
        if self.len() >= max_queued {
            rejected = self.take_excess(&job);
            if rejected.is_none() {
                return Some(job);
            }
        }
        match self.mounts.iter_mut().find(|(mount, _)| *mount == job.mount) {
            Some((_, jobs)) => jobs.push(job.caller_id, job),
            None => {
                let mut jobs = FairQueue::new(1, 1);
                let mount = job.mount;
                jobs.push(job.caller_id, job);
                self.mounts.push_back((mount, jobs));
            }
        }
        rejected
    }

    pub(super) fn next(&mut self) -> Option<KeyGenerationJob> {
        while let Some((mount, mut jobs)) = self.mounts.pop_front() {
            let job = jobs.take_next();
            if jobs.waiting() > 0 {
                self.mounts.push_back((mount, jobs));
            }
            match job {
                Some(job) if job.is_void() => job.cancel(),
                Some(job) => return Some(job),
                None => {}
            }
        }
        None
    }

    fn waiting_of(&self, job: &KeyGenerationJob) -> usize {
        self.mounts.iter().find(|(mount, _)| *mount == job.mount).map_or(0, |(_, jobs)| jobs.waiting_of(job.caller_id))
    }

    /// Removes a job in favor of `job`: one of a busier caller of the same mount if that mount has the most jobs,
    /// otherwise one of the mount with the most jobs.
    fn take_excess(&mut self, job: &KeyGenerationJob) -> Option<KeyGenerationJob> {
        let own = self.mounts.iter().find(|(mount, _)| *mount == job.mount).map_or(0, |(_, jobs)| jobs.waiting());
        let (mount, jobs) = self.mounts.iter_mut().max_by_key(|(_, jobs)| jobs.waiting())?;
        match *mount == job.mount {
            true => jobs.take_excess(job.caller_id),
            false if jobs.waiting() > own + 1 => jobs.evict_newest(),
            false => None,
        }
    }

    fn cancel_disconnected(&mut self) {
        for (_, jobs) in &mut self.mounts {
            jobs.remove_unless(|job| !job.is_void()).into_iter().for_each(KeyGenerationJob::cancel);
        }
        self.mounts.retain(|(_, jobs)| jobs.waiting() > 0);
    }
}
