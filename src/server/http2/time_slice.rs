//! Limits how much work a worker does for one HTTP/2 connection before it serves other connections.
//!
//! A busy connection wakes its own task whenever a handler completes or a response continues. If such a wake began the
//! next time slice, the limit would have no effect. So a pause follows a used-up time slice: wakes of the task have no
//! effect until the other ready tasks have run and the sockets were polled.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

use crate::server::stream::wake_after_yield;

/// Maximum number of bytes that are read in a time slice. Also the limit on the decompressed header fields of requests
/// that begin in it, which may be hundreds of times larger than the received bytes.
pub(super) const BYTES_PER_TIME_SLICE: usize = 64 << 10;

pub(super) struct TimeSlice {
    bytes_left: Cell<usize>,
    pause: Arc<TimeSlicePause>,
}

impl TimeSlice {
    pub(super) fn new() -> Self {
        let pause = TimeSlicePause { is_over: AtomicBool::new(true), task: AtomicWaker::new() };
        Self { bytes_left: Cell::new(BYTES_PER_TIME_SLICE), pause: Arc::new(pause) }
    }

    /// Begins the next time slice. Returns `false` during a pause, at the end of which the task is woken.
    pub(super) fn begin(&self, cx: &Context<'_>) -> bool {
        self.pause.task.register(cx.waker());
        if !self.pause.is_over.load(Ordering::Acquire) {
            return false;
        }
        self.bytes_left.set(BYTES_PER_TIME_SLICE);
        true
    }

    pub(super) fn charge(&self, bytes: usize) {
        self.bytes_left.set(self.bytes_left.get().saturating_sub(bytes));
    }

    /// `true` if the bytes of this time slice are used up, so that no more may be read.
    pub(super) fn is_over(&self) -> bool {
        self.bytes_left.get() == 0
    }

    /// Ends the time slice although there is more work, and begins a pause.
    pub(super) fn end(&self, cx: &Context<'_>) {
        if self.pause.is_over.swap(false, Ordering::AcqRel) {
            self.pause.task.register(cx.waker());
            wake_after_yield(&Context::from_waker(&Waker::from(Arc::clone(&self.pause))));
        }
    }
}

/// The pause between two time slices. Waking it ends the pause and wakes the connection's task.
struct TimeSlicePause {
    is_over: AtomicBool,
    task: AtomicWaker,
}

impl Wake for TimeSlicePause {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.task.wake();
    }
}
