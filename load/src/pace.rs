//! Open-loop pacing: requests are due at a given rate, independent of the responses. Latency counts from the due time,
//! so that a slow response also counts for the requests that had to wait for it.
//!
//! A separate thread releases the requests, because the timers of the connections' runtime are too coarse.

use std::num::ParseIntError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Maximum time that the thread sleeps before it checks for the end of the run.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// The pace of requests. The fields are options of the command line and fields of plan files.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq)]
#[group(skip)]
pub(crate) struct Pace {
    /// Requests per second, independent of the responses; latency counts from the time at which a request is due.
    // Without a rate, each connection sends the next request after the last response.
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Seconds during which the rate grows from 0, or the connections start.
    #[arg(long, alias = "ramp-seconds", value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    pub(crate) ramp: Duration,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    let range = 0.001..=1_000_000.0;
    if range.contains(&rate) { Ok(rate) } else { Err(format!("must be from {} to {}", range.start(), range.end())) }
}

fn parse_seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// Due times of requests at a rate, relative to the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    rate: f64,
    ramp: f64,
    /// No request is due at this time (in seconds) or later.
    end: f64,
    max: u64,
}

impl Schedule {
    pub(crate) fn new(rate: f64, ramp: Duration, time: Duration, max: u64) -> Self {
        Self { rate, ramp: ramp.as_secs_f64(), end: time.as_secs_f64(), max }
    }

    /// Returns the due time of a request, relative to the start: the time at which the area below the rate curve equals
    /// the number of the request.
    pub(crate) fn due(&self, number: u64) -> Duration {
        let number = number as f64;
        let in_ramp = self.rate * self.ramp / 2.0;
        Duration::from_secs_f64(if number < in_ramp {
            (2.0 * number * self.ramp / self.rate).sqrt()
        } else {
            self.ramp + (number - in_ramp) / self.rate
        })
    }

    /// Returns the number of requests that are due before a time.
    pub(crate) fn due_before(&self, since: f64) -> u64 {
        let since = since.min(self.end);
        let area = if since < self.ramp {
            self.rate * since * since / (2.0 * self.ramp)
        } else {
            self.rate * (since - self.ramp / 2.0)
        };
        (area.ceil() as u64).min(self.max)
    }

    /// Returns the total number of requests.
    pub(crate) fn all(&self) -> u64 {
        self.due_before(self.end)
    }
}

/// Releases requests when they are due.
pub(crate) struct Pacer {
    pub(crate) schedule: Schedule,
    pub(crate) begun: Instant,
    go: Arc<Semaphore>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the schedule now.
    pub(crate) fn start(schedule: Schedule) -> Self {
        let go = Arc::new(Semaphore::new(0));
        let over = Arc::<AtomicBool>::default();
        let begun = Instant::now();
        let thread = {
            let go = Arc::clone(&go);
            let over = Arc::clone(&over);
            std::thread::spawn(move || release(schedule, begun, &go, &over))
        };
        Self { schedule, begun, go, over, thread: Some(thread) }
    }

    /// Waits until another request is due. Returns `false` at the end.
    pub(crate) async fn wait(&self) -> bool {
        match self.go.acquire().await {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Ends the schedule and all waits.
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
        // No request starts after the end; requests that were not sent by then are counted.
        let end = Duration::from_secs_f64(schedule.end);
        if since >= end {
            return go.close();
        }
        let next = if released == schedule.max { end } else { schedule.due(released).min(end) };
        std::thread::sleep(next.saturating_sub(begun.elapsed()).min(MAX_SLEEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rate: f64, ramp: u64, time: u64, max: u64) -> Schedule {
        Schedule::new(rate, Duration::from_secs(ramp), Duration::from_secs(time), max)
    }

    #[test]
    fn due_times_are_even_and_accelerate_in_a_ramp() {
        let even = of(100.0, 0, 10, u64::MAX);
        assert_eq!([0, 1, 250].map(|n| even.due(n).as_millis()), [0, 10, 2500]);
        assert_eq!(even.all(), 1000);
        let ramp = of(100.0, 4, 10, u64::MAX);
        // During the ramp, half as many requests are due as without it: 200. A quarter of them is due in its first
        // half.
        assert_eq!([0, 50, 200, 300].map(|n| ramp.due(n).as_millis()), [0, 2000, 4000, 5000]);
        assert_eq!((ramp.due_before(2.0), ramp.due_before(4.0), ramp.all()), (50, 200, 800));
        assert_eq!(of(100.0, 4, 10, 70).all(), 70);
        // `due_before` agrees with `due`.
        for n in 1..800 {
            let at = ramp.due(n).as_secs_f64();
            assert!(ramp.due_before(at - 1e-6) <= n && ramp.due_before(at + 1e-6) > n, "{n}");
        }
    }

    #[tokio::test]
    async fn pacer_releases_due_requests_and_then_ends() {
        let schedule = Schedule::new(1000.0, Duration::ZERO, Duration::from_millis(200), u64::MAX);
        let pacer = Pacer::start(schedule);
        let mut gone = 0;
        while pacer.wait().await {
            assert!(pacer.begun.elapsed() >= schedule.due(gone), "{gone} went too early");
            gone += 1;
        }
        // Requests that were released at the very end may not have been taken.
        assert!((150..=200).contains(&gone), "{gone}");
    }
}
