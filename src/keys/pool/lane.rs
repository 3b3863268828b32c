//! Who gets the next key: a lane for every class of sizes, and in a lane the mounts take turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::keys::local::{KeySpec, PrivateKey};
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

/// The jobs of a lane. Of the mounts that have some, the first in line is next, and goes to its end.
#[derive(Default)]
pub(super) struct Line {
    turns: VecDeque<Turn>,
}

struct Turn {
    mount: MountId,
    /// Never empty between two calls.
    jobs: VecDeque<Job>,
}

impl Line {
    /// Jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.turns.iter().map(|turn| turn.jobs.len()).sum()
    }

    /// Takes a job in; gives back the one that finds no place among `places`. Callers that have left hold
    /// none, and a mount with more jobs than this one's gives up its latest.
    pub(super) fn push(&mut self, job: Job, places: usize) -> Option<Job> {
        if self.len() >= places {
            self.drop_void();
        }
        let mut turned_away = None;
        if self.len() >= places {
            let own = self.turns.iter().find(|turn| turn.mount == job.mount).map_or(0, |turn| turn.jobs.len());
            let longest = self.turns.iter_mut().max_by_key(|turn| turn.jobs.len());
            turned_away = longest.filter(|turn| turn.jobs.len() > own + 1).and_then(|turn| turn.jobs.pop_back());
            if turned_away.is_none() {
                return Some(job);
            }
        }
        match self.turns.iter_mut().find(|turn| turn.mount == job.mount) {
            Some(turn) => turn.jobs.push_back(job),
            None => self.turns.push_back(Turn { mount: job.mount, jobs: VecDeque::from([job]) }),
        }
        turned_away
    }

    /// The next job of a caller that still waits.
    pub(super) fn next(&mut self) -> Option<Job> {
        while let Some(mut turn) = self.turns.pop_front() {
            let job = turn.jobs.pop_front();
            if !turn.jobs.is_empty() {
                self.turns.push_back(turn);
            }
            match job {
                Some(job) if job.is_void() => job.drop_void(),
                Some(job) => return Some(job),
                None => {}
            }
        }
        None
    }

    fn drop_void(&mut self) {
        for turn in &mut self.turns {
            let jobs = std::mem::take(&mut turn.jobs).into_iter();
            let (void, kept): (VecDeque<Job>, VecDeque<Job>) = jobs.partition(Job::is_void);
            turn.jobs = kept;
            void.into_iter().for_each(Job::drop_void);
        }
        self.turns.retain(|turn| !turn.jobs.is_empty());
    }
}
