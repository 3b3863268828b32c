//! When requests are to be sent, where that is not when the one before was answered (open loop): so many a second,
//! whatever the server does. Latency then counts from the intended time, so that a server that hesitates is charged for
//! all who would have come meanwhile.
//!
//! A thread of its own lets the requests go when they are due: the timers of the connections' runtime are too coarse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Longest sleep of the thread before it looks whether the run has ended.
const LOOK: Duration = Duration::from_millis(50);

/// How requests follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Requests a second; without it each connection sends the next one when the last was answered.
    pub(crate) rate: Option<f64>,
    /// For so long the rate grows from nothing, or connections begin one after the other.
    pub(crate) ramp: Duration,
}

/// The intended times of requests at a rate, as times since the begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    rate: f64,
    ramp: f64,
    /// No request is due at this time or later.
    end: f64,
    /// No more requests than this.
    most: u64,
}

impl Schedule {
    pub(crate) fn new(rate: f64, ramp: Duration, time: Duration, most: u64) -> Self {
        Self { rate, ramp: ramp.as_secs_f64(), end: time.as_secs_f64(), most }
    }

    /// When a request is due: so much is the area below the rate then.
    pub(crate) fn due(&self, number: u64) -> Duration {
        let (number, in_ramp) = (number as f64, self.rate * self.ramp / 2.0);
        Duration::from_secs_f64(if number < in_ramp {
            (2.0 * number * self.ramp / self.rate).sqrt()
        } else {
            self.ramp + (number - in_ramp) / self.rate
        })
    }

    /// How many requests are due before a time.
    pub(crate) fn due_before(&self, since: f64) -> u64 {
        let since = since.min(self.end);
        let area = if since < self.ramp {
            self.rate * since * since / (2.0 * self.ramp)
        } else {
            self.rate * (since - self.ramp / 2.0)
        };
        (area.ceil() as u64).min(self.most)
    }

    /// How many there are in all.
    pub(crate) fn all(&self) -> u64 {
        self.due_before(self.end)
    }
}

/// Lets requests go when they are due.
pub(crate) struct Pacer {
    pub(crate) schedule: Schedule,
    pub(crate) begun: Instant,
    go: Arc<Semaphore>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Begins now.
    pub(crate) fn start(schedule: Schedule) -> Self {
        let (go, over, begun) = (Arc::new(Semaphore::new(0)), Arc::<AtomicBool>::default(), Instant::now());
        let thread = {
            let (go, over) = (Arc::clone(&go), Arc::clone(&over));
            std::thread::spawn(move || release(schedule, begun, &go, &over))
        };
        Self { schedule, begun, go, over, thread: Some(thread) }
    }

    /// Waits until another request is due; `false`: there will be none.
    pub(crate) async fn wait(&self) -> bool {
        match self.go.acquire().await {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Nobody waits any longer.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.go.close();
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn release(schedule: Schedule, begun: Instant, go: &Semaphore, over: &AtomicBool) {
    let mut released = 0;
    while !over.load(Ordering::Relaxed) {
        let since = begun.elapsed();
        let due = schedule.due_before(since.as_secs_f64());
        go.add_permits((due - released) as usize);
        released = due;
        // At the end nobody begins another request; what was not sent by then is counted.
        let end = Duration::from_secs_f64(schedule.end);
        if since >= end {
            return go.close();
        }
        let next = if released == schedule.most { end } else { schedule.due(released).min(end) };
        std::thread::sleep(next.saturating_sub(begun.elapsed()).min(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rate: f64, ramp: u64, time: u64, most: u64) -> Schedule {
        Schedule::new(rate, Duration::from_secs(ramp), Duration::from_secs(time), most)
    }

    #[test]
    fn requests_are_due_evenly_and_in_a_ramp_ever_faster() {
        let even = of(100.0, 0, 10, u64::MAX);
        assert_eq!([0, 1, 250].map(|n| even.due(n).as_millis()), [0, 10, 2500]);
        assert_eq!(even.all(), 1000);
        let ramp = of(100.0, 4, 10, u64::MAX);
        // Half as many as without the ramp in its time: 200; a quarter of them in the first half.
        assert_eq!([0, 50, 200, 300].map(|n| ramp.due(n).as_millis()), [0, 2000, 4000, 5000]);
        assert_eq!((ramp.due_before(2.0), ramp.due_before(4.0), ramp.all()), (50, 200, 800));
        assert_eq!(of(100.0, 4, 10, 70).all(), 70);
        // As many are due before a time as have a due time before it.
        for n in 1..800 {
            let at = ramp.due(n).as_secs_f64();
            assert!(ramp.due_before(at - 1e-6) <= n && ramp.due_before(at + 1e-6) > n, "{n}");
        }
    }

    #[tokio::test]
    async fn a_pacer_lets_as_many_go_as_are_due_and_then_ends() {
        let schedule = Schedule::new(1000.0, Duration::ZERO, Duration::from_millis(200), u64::MAX);
        let pacer = Pacer::start(schedule);
        let mut gone = 0;
        while pacer.wait().await {
            assert!(pacer.begun.elapsed() >= schedule.due(gone), "{gone} went too early");
            gone += 1;
        }
        // What was released at the very end may not have been taken.
        assert!((150..=200).contains(&gone), "{gone}");
    }
}
