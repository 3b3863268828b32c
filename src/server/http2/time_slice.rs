//! Limits the work for a connection before its worker serves other connections.
//!
//! A busy connection wakes itself whenever a handler completes or a response continues. If such a wake began the next
//! time slice, the limit would have no effect. So a used-up slice is followed by a rest: wakes of the connection do
//! nothing until the other ready tasks have run and the sockets were polled.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

use crate::server::stream::wake_after_yield;

/// Bytes that may be read in a time slice. Also the limit on decompressed header fields of the requests that begin in
/// it, which may be hundreds of times the received bytes.
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

    /// Begins the next time slice. Returns `false` during a rest, after which the task is woken.
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

    /// `true` if no more may be read in this time slice.
    pub(super) fn is_over(&self) -> bool {
        self.bytes_left.get() == 0
    }

    /// Ends the time slice although there is more to do, and begins a rest.
    pub(super) fn end(&self, cx: &Context<'_>) {
        if self.pause.is_over.swap(false, Ordering::AcqRel) {
            self.pause.task.register(cx.waker());
            wake_after_yield(&Context::from_waker(&Waker::from(Arc::clone(&self.pause))));
        }
    }
}

/// The rest between two time slices.
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
