//! How much is done for a connection before the others of its worker have their turn.
//!
//! A connection in full flow wakes itself: a handler that ends, an answer that goes on. What it may do in a turn would
//! hold nothing if that began the next one. So a turn that ended because it had its share is followed by a rest, until
//! those that are ready have had their turn and the sockets were looked at, whatever wakes the connection meanwhile.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

use crate::server::stream::yielding;

/// How much is read in a turn, octets; and how much the heads that begin requests in one may be unpacked to: that may
/// be hundreds of times what came.
pub(super) const SHARE: usize = 64 << 10;

/// The turns of a connection.
pub(super) struct Turn {
    left: Cell<usize>,
    rest: Arc<Rest>,
}

impl Turn {
    /// The first one, which has begun.
    pub(super) fn new() -> Self {
        let rest = Rest { is_over: AtomicBool::new(true), task: AtomicWaker::new() };
        Self { left: Cell::new(SHARE), rest: Arc::new(rest) }
    }

    /// Begins the next one, unless it is still the turn of others: then the task of the connection is woken after it.
    pub(super) fn begin(&self, cx: &Context<'_>) -> bool {
        self.rest.task.register(cx.waker());
        if !self.rest.is_over.load(Ordering::Acquire) {
            return false;
        }
        self.left.set(SHARE);
        true
    }

    /// So many octets were read.
    pub(super) fn take(&self, octets: usize) {
        self.left.set(self.left.get().saturating_sub(octets));
    }

    /// Whether more may be read in this turn.
    pub(super) fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    /// Ends it, with more to be done: others have their turn.
    pub(super) fn end(&self, cx: &Context<'_>) {
        if self.rest.is_over.swap(false, Ordering::AcqRel) {
            self.rest.task.register(cx.waker());
            yielding(&Context::from_waker(&Waker::from(Arc::clone(&self.rest))));
        }
    }
}

/// The turn of others.
struct Rest {
    is_over: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Rest {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.task.wake();
    }
}
