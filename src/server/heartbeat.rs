//! Worker heartbeats, read by the systemd watchdog in [`notify`](super::notify).
//!
//! Each worker records a heartbeat while its event loop runs. If its thread is blocked, it serves no requests and
//! records none. An unreachable store or key device does not stop the heartbeats: requests wait for it asynchronously,
//! and a restart would not help.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The last heartbeat of each worker. Clones share the values.
#[derive(Clone)]
pub(super) struct Heartbeats(Arc<HeartbeatsState>);

struct HeartbeatsState {
    workers: usize,
    last_beats: Mutex<HashMap<ThreadId, Instant>>,
}

impl Heartbeats {
    pub(super) fn new(workers: usize) -> Self {
        Self(Arc::new(HeartbeatsState { workers, last_beats: Mutex::default() }))
    }

    /// Starts the heartbeat of the worker on this thread. It ends with the worker's event loop.
    pub(super) fn begin(&self) {
        let heartbeats = self.clone();
        tokio::task::spawn_local(async move {
            let _ends = HeartbeatGuard(&heartbeats);
            loop {
                heartbeats.lock_beats().insert(std::thread::current().id(), Instant::now());
                tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            }
        });
    }

    /// `true` if all workers have started and recorded a heartbeat less than `within` ago.
    pub(super) fn all_alive(&self, within: Duration) -> bool {
        let last = self.lock_beats();
        last.len() >= self.0.workers && last.values().all(|at| at.elapsed() < within)
    }

    fn lock_beats(&self) -> MutexGuard<'_, HashMap<ThreadId, Instant>> {
        self.0.last_beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the entry of a worker that ends. A worker that replaces it adds its own entry.
struct HeartbeatGuard<'p>(&'p Heartbeats);

impl Drop for HeartbeatGuard<'_> {
    fn drop(&mut self) {
        self.0.lock_beats().remove(&std::thread::current().id());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::LocalSet;

    use super::*;

    /// Starts a worker on its own thread. The worker blocks its event loop for each duration that is sent to it, and
    /// ends when the sender is dropped.
    fn worker(heartbeats: &Heartbeats) -> (mpsc::Sender<Duration>, std::thread::JoinHandle<()>) {
        let (block, blocked) = mpsc::channel::<Duration>();
        let heartbeats = heartbeats.clone();
        let run = async move {
            heartbeats.begin();
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
    fn heartbeats_fail_if_any_worker_hangs_or_has_ended() {
        let within = 3 * HEARTBEAT_INTERVAL;
        let heartbeats = Heartbeats::new(2);
        assert!(!heartbeats.all_alive(within), "no worker has begun");
        let (_first, _thread) = worker(&heartbeats);
        wait_until("the first begins", || heartbeats.lock_beats().len() == 1);
        assert!(!heartbeats.all_alive(within), "the second has not begun");
        let (second, thread) = worker(&heartbeats);
        wait_until("both beat", || heartbeats.all_alive(within));
        second.send(2 * within).unwrap();
        wait_until("the second hangs", || !heartbeats.all_alive(within));
        assert_eq!(heartbeats.lock_beats().len(), 2);
        wait_until("the second goes on", || heartbeats.all_alive(within));
        drop(second);
        thread.join().unwrap();
        assert!(!heartbeats.all_alive(within), "the second has ended");
        let (_third, _thread) = worker(&heartbeats);
        wait_until("another one has taken its place", || heartbeats.all_alive(within));
    }
}
