//! The order of key generation: a lane for every class of sizes. In a lane mounts take turns, and in a mount its callers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::turns::{Asker, Turns};
use crate::x509::algorithm::KeyKind;

/// A class of sizes of RSA keys. What one key takes grows with about the fourth power of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Up to 2048 bits: tens of milliseconds.
    Small,
    /// Up to 4096 bits: most of a second.
    Medium,
    /// Beyond: ten seconds, often more.
    Large,
}

impl Lane {
    pub(super) const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The lane of a key; none for keys that cost next to nothing.
    pub(super) fn of(kind: KeyKind) -> Option<Self> {
        match kind {
            KeyKind::Rsa { bits: ..=2048 } => Some(Self::Small),
            KeyKind::Rsa { bits: ..=4096 } => Some(Self::Medium),
            KeyKind::Rsa { .. } => Some(Self::Large),
            KeyKind::Ec(_) | KeyKind::Ed25519 => None,
        }
    }

    /// The label of metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// Jobs of one caller that may wait.
    pub(super) fn places_of_caller(self) -> usize {
        match self {
            Self::Small => 64,
            Self::Medium => 32,
            Self::Large => 4,
        }
    }

    /// Jobs that may wait: about as many as are done before their callers give up.
    pub(super) fn places(self) -> usize {
        match self {
            Self::Small => 1024,
            Self::Medium => 128,
            Self::Large => 8,
        }
    }
}

/// Held by whoever waits for an answer that is worked out elsewhere.
#[derive(Default)]
pub struct Presence(Arc<Left>);

/// Whether a [`Presence`] is gone.
#[derive(Debug, Default)]
struct Left {
    gone: AtomicBool,
    told: Notify,
}

impl Presence {
    /// What tells others whether it is still held.
    pub fn watch(&self) -> Watch {
        Watch(Some(Arc::clone(&self.0)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }
}

/// Tells whether somebody still waits; the default is [`Watch::ALWAYS`].
#[derive(Clone, Debug, Default)]
pub struct Watch(Option<Arc<Left>>);

impl Watch {
    /// Of a caller that leaves with the future that waits, and no sooner.
    pub const ALWAYS: Self = Self(None);

    fn has_ended(&self) -> bool {
        self.0.as_ref().is_some_and(|left| left.gone.load(Ordering::Acquire))
    }

    /// Resolves when nobody waits any more.
    pub async fn ended(&self) {
        let Some(left) = &self.0 else { return std::future::pending().await };
        loop {
            // Made before the look, so that who leaves after it is heard.
            let told = left.told.notified();
            if self.has_ended() {
                return;
            }
            told.await;
        }
    }
}

/// A key that was asked for.
pub(super) struct Job {
    pub(super) spec: KeySpec,
    pub(super) mount: MountId,
    pub(super) asker: Asker,
    pub(super) caller: Watch,
    pub(super) queued_at: Instant,
    pub(super) answer: oneshot::Sender<Result<PrivateKey>>,
}

impl Job {
    /// Whether nobody waits for it any more.
    fn is_void(&self) -> bool {
        self.answer.is_closed() || self.caller.has_ended()
    }

    fn refuse(self, kind: Kind, text: &'static str) {
        let _ = self.answer.send(Err(Error::new(kind, text)));
    }

    fn drop_void(self) {
        self.refuse(Kind::Unavailable, "nobody waits for this key any more");
    }

    pub(super) fn turn_away(self) {
        self.refuse(Kind::Busy, "too many RSA keys of this size are being generated, try again shortly");
    }
}

/// The jobs of a lane. Mounts take turns, and the callers of a mount.
#[derive(Default)]
pub(super) struct Line {
    mounts: VecDeque<(MountId, Turns<Job>)>,
}

impl Line {
    /// Jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.mounts.iter().map(|(_, jobs)| jobs.waiting()).sum()
    }

    /// Takes a job in; gives back the one that finds no place among `places`, or among `places_of_caller`. Callers that have
    /// left hold none, and a mount with more jobs than this one's gives up the latest of its busiest caller.
    pub(super) fn push(&mut self, job: Job, places: usize, places_of_caller: usize) -> Option<Job> {
        let is_full = |line: &Self| line.len() >= places || line.waiting_of(&job) >= places_of_caller;
        if is_full(self) {
            self.drop_void();
        }
        if self.waiting_of(&job) >= places_of_caller {
            return Some(job);
        }
        let mut turned_away = None;
        if self.len() >= places {
            turned_away = self.take_excess(&job);
            if turned_away.is_none() {
                return Some(job);
            }
        }
        match self.mounts.iter_mut().find(|(mount, _)| *mount == job.mount) {
            Some((_, jobs)) => jobs.push(job.asker, job),
            None => {
                let mut jobs = Turns::new(1, 1);
                let mount = job.mount;
                jobs.push(job.asker, job);
                self.mounts.push_back((mount, jobs));
            }
        }
        turned_away
    }

    /// The next job of a caller that still waits.
    pub(super) fn next(&mut self) -> Option<Job> {
        while let Some((mount, mut jobs)) = self.mounts.pop_front() {
            let job = jobs.take_next();
            if jobs.waiting() > 0 {
                self.mounts.push_back((mount, jobs));
            }
            match job {
                Some(job) if job.is_void() => job.drop_void(),
                Some(job) => return Some(job),
                None => {}
            }
        }
        None
    }

    fn waiting_of(&self, job: &Job) -> usize {
        self.mounts.iter().find(|(mount, _)| *mount == job.mount).map_or(0, |(_, jobs)| jobs.waiting_of(job.asker))
    }

    /// The job that makes room for another one: of the mount with the most jobs, or of a busier caller of the same mount.
    fn take_excess(&mut self, job: &Job) -> Option<Job> {
        let own = self.mounts.iter().find(|(mount, _)| *mount == job.mount).map_or(0, |(_, jobs)| jobs.waiting());
        let (mount, jobs) = self.mounts.iter_mut().max_by_key(|(_, jobs)| jobs.waiting())?;
        match *mount == job.mount {
            true => jobs.take_excess(job.asker),
            false if jobs.waiting() > own + 1 => jobs.take_latest(),
            false => None,
        }
    }

    fn drop_void(&mut self) {
        for (_, jobs) in &mut self.mounts {
            jobs.drop_unless(|job| !job.is_void()).into_iter().for_each(Job::drop_void);
        }
        self.mounts.retain(|(_, jobs)| jobs.waiting() > 0);
    }
}
