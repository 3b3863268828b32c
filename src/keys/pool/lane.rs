//! Lanes of key generation: a queue and a thread per class of key sizes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::error::{Error, Kind, Result};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::x509::algorithm::KeyKind;

/// A class of RSA key sizes. Generation time grows with about the fourth power of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolLane {
    /// Up to 2048 bits: tens of milliseconds.
    Small,
    /// Larger sizes: most of a second for 4096 bits, ten seconds and more for 8192.
    Large,
}

impl PoolLane {
    pub(super) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// The lane of a key; `None` for keys that are cheap to generate.
    pub(super) fn of(kind: KeyKind) -> Option<Self> {
        match kind {
            KeyKind::Rsa { bits: ..=2048 } => Some(Self::Small),
            KeyKind::Rsa { .. } => Some(Self::Large),
            KeyKind::Ec(_) | KeyKind::Ed25519 => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    /// Maximum number of queued jobs: about as many as can be completed before their callers time out.
    pub(super) fn max_queued(self) -> usize {
        match self {
            Self::Small => 1024,
            Self::Large => 64,
        }
    }

    /// Maximum number of queued jobs of one caller.
    pub(super) fn max_queued_per_caller(self) -> usize {
        match self {
            Self::Small => 64,
            Self::Large => 16,
        }
    }
}

/// A guard that a caller holds while another task works for that caller. Dropping the guard means that the caller has
/// left.
#[derive(Default)]
pub struct CallerGuard(Arc<CallerState>);

/// State shared by a [`CallerGuard`] and its watches.
#[derive(Debug, Default)]
struct CallerState {
    has_left: AtomicBool,
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
        self.0.has_left.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

/// Observes whether a caller still waits; the default is [`CallerWatch::ALWAYS`].
#[derive(Clone, Debug, Default)]
pub struct CallerWatch(Option<Arc<CallerState>>);

impl CallerWatch {
    /// A watch of a caller that never counts as having left: such a caller cancels the work by dropping its future.
    pub const ALWAYS: Self = Self(None);

    fn has_caller_left(&self) -> bool {
        self.0.as_ref().is_some_and(|left| left.has_left.load(Ordering::Acquire))
    }

    /// Resolves when the caller has left.
    pub async fn caller_left(&self) {
        let Some(left) = &self.0 else { return std::future::pending().await };
        loop {
            // Registered before the check, so that a caller that leaves after the check is noticed.
            let notified = left.notify.notified();
            if self.has_caller_left() {
                return;
            }
            notified.await;
        }
    }
}

pub(super) struct KeyGenerationJob {
    pub(super) spec: KeySpec,
    pub(super) caller: CallerWatch,
    pub(super) queued_at: Instant,
    pub(super) answer: oneshot::Sender<Result<PrivateKey>>,
}

impl KeyGenerationJob {
    /// `true` if the caller no longer waits for the key.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed() || self.caller.has_caller_left()
    }

    pub(super) fn cancel(self) {
        self.refuse(Kind::Unavailable, "key generation cancelled: the caller has disconnected");
    }

    pub(super) fn reject_busy(self) {
        self.refuse(Kind::Busy, "too many RSA keys of this size are being generated; retry shortly");
    }

    fn refuse(self, kind: Kind, text: &'static str) {
        let _ = self.answer.send(Err(Error::new(kind, text)));
    }
}
