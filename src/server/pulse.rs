//! Whether the workers of a listener turn: each beats as long as its event loop does.
//!
//! What a worker does for a request it does on its own thread. One that hangs answers nobody, and beats no more. The
//! store or a device that is out of reach stops no beat: such requests are awaited, and a new start would not help them.
//! Asked by the watchdog in [`notify`](super::notify).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Between two beats.
const BEAT: Duration = Duration::from_millis(500);

/// The beats of all workers. Clones are the same one.
#[derive(Clone)]
pub(super) struct Pulse(Arc<Beats>);

struct Beats {
    workers: usize,
    last: Mutex<HashMap<ThreadId, Instant>>,
}

impl Pulse {
    /// Of so many workers, none of which has begun.
    pub(super) fn new(workers: usize) -> Self {
        Self(Arc::new(Beats { workers, last: Mutex::default() }))
    }

    /// Lets the worker of this thread beat from now on, until its event loop ends.
    pub(super) fn begin(&self) {
        let pulse = self.clone();
        tokio::task::spawn_local(async move {
            let _ends = Beating(&pulse);
            loop {
                pulse.last().insert(std::thread::current().id(), Instant::now());
                tokio::time::sleep(BEAT).await;
            }
        });
    }

    /// Whether every worker has begun and beat since then.
    pub(super) fn is_steady(&self, within: Duration) -> bool {
        let last = self.last();
        last.len() >= self.0.workers && last.values().all(|at| at.elapsed() < within)
    }

    fn last(&self) -> MutexGuard<'_, HashMap<ThreadId, Instant>> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a worker that ends out of the count: another one is started in its place.
struct Beating<'p>(&'p Pulse);

impl Drop for Beating<'_> {
    fn drop(&mut self) {
        self.0.last().remove(&std::thread::current().id());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::LocalSet;

    use super::*;

    /// A worker of its own thread, which blocks its event loop when it is sent a time, and ends with the sender.
    fn worker(pulse: &Pulse) -> (mpsc::Sender<Duration>, std::thread::JoinHandle<()>) {
        let (block, blocked) = mpsc::channel::<Duration>();
        let pulse = pulse.clone();
        let run = async move {
            pulse.begin();
            loop {
                match blocked.try_recv() {
                    Ok(time) => std::thread::sleep(time),
                    Err(mpsc::TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(10)).await,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
        };
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(LocalSet::new().run_until(run));
        });
        (block, thread)
    }

    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn one_worker_that_hangs_is_enough_and_one_that_has_ended_is_missing() {
        let within = 3 * BEAT;
        let pulse = Pulse::new(2);
        assert!(!pulse.is_steady(within), "nobody has begun");
        let (_first, _thread) = worker(&pulse);
        wait_until("the first begins", || pulse.last().len() == 1);
        assert!(!pulse.is_steady(within), "the second has not begun");
        let (second, thread) = worker(&pulse);
        wait_until("both beat", || pulse.is_steady(within));
        second.send(2 * within).unwrap();
        wait_until("the second hangs", || !pulse.is_steady(within));
        assert_eq!(pulse.last().len(), 2);
        wait_until("the second goes on", || pulse.is_steady(within));
        drop(second);
        thread.join().unwrap();
        assert!(!pulse.is_steady(within), "the second has ended");
        let (_third, _thread) = worker(&pulse);
        wait_until("another one has taken its place", || pulse.is_steady(within));
    }
}
