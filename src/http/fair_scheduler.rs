//! Fair scheduling of a worker's time among senders.
//!
//! The runtime polls ready tasks in order, so a sender with fifty concurrent requests would get fifty times as much
//! time as a sender with one. A worker therefore measures the time that it spends on each sender in a *pass*: the tasks
//! that the runtime polls between two polls of its I/O driver. Before a step that takes time, a request
//! [waits](CpuAccount::wait_for_slice) for the next pass if its sender has used up its time slice. A waiting request
//! holds no locks; it holds the memory of its body, which is limited per sender too.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::web::Payload;
use actix_web::{HttpRequest, dev};
use futures_util::StreamExt as _;
use futures_util::future::poll_fn;
use futures_util::stream;
use tokio::sync::oneshot;

use super::body;
use super::sender::Sender;
use crate::rationing::CurrentCaller;
use crate::telemetry::TraceContext;

/// Time slice of a sender in one pass, long enough to sign about a dozen certificates.
const TIME_SLICE_PER_SENDER: Duration = Duration::from_millis(2);
/// Busy time after which a pass ends even if no request waits, so that accounts of idle senders are removed.
const MAX_PASS_DURATION: Duration = Duration::from_millis(20);

/// Estimated cost of reading or sending one byte: two copies in the process and one in the kernel.
pub(super) const COST_PER_BYTE: Duration = Duration::from_nanos(1);
/// Longest path and query that are parsed without scheduling, in bytes.
const MAX_UNSCHEDULED_TARGET_BYTES: usize = 2 << 10;
/// Largest body that is read without scheduling, in bytes.
const MAX_UNSCHEDULED_BODY_BYTES: u64 = 16 << 10;

/// The scheduler of one worker. It is not `Send`: it stays on the worker's thread.
#[derive(Clone, Default)]
pub struct FairScheduler(Rc<SharedScheduler>);

#[derive(Default)]
struct SharedScheduler {
    sender_hasher: RandomState,
    state: RefCell<SchedulerState>,
}

/// Hash of a sender, the key of its account.
type SenderHash = u64;

#[derive(Default)]
struct SchedulerState {
    accounts: HashMap<SenderHash, SenderAccount>,
    spent: Duration,
    /// `true` while a spawned task waits to begin the next pass.
    is_pass_ending: bool,
}

#[derive(Default)]
struct SenderAccount {
    spent: Duration,
    /// `true` if a waiting request was woken and has not been polled since.
    is_woken: bool,
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl SenderAccount {
    /// Wakes the sender's next waiting request if the sender has time left in this pass.
    fn wake_next(&mut self) {
        while !self.is_woken && self.spent < TIME_SLICE_PER_SENDER {
            let Some(next) = self.waiting.pop_front() else { return };
            // The waiting request may have been dropped.
            self.is_woken = next.send(()).is_ok();
        }
    }
}

/// Charges the processor time of one request to its sender.
#[derive(Clone)]
pub struct CpuAccount {
    scheduler: Rc<SharedScheduler>,
    sender: Rc<Cell<Option<SenderHash>>>,
    caller: CurrentCaller,
}

impl FairScheduler {
    /// Runs a request and charges its processor time to its sender.
    pub async fn run_charged<W: Future>(&self, begin: impl FnOnce(CpuAccount) -> W) -> W::Output {
        let cpu_account =
            CpuAccount { scheduler: Rc::clone(&self.0), sender: Rc::default(), caller: CurrentCaller::default() };
        let mut work = pin!(begin(cpu_account.clone()));
        poll_fn(|context| cpu_account.poll_timed(work.as_mut(), context)).await
    }
}

impl CpuAccount {
    /// Sets the sender that is charged. Jobs of the request then wait in the queues of this sender.
    pub fn set_sender(&self, sender: &Sender) {
        self.sender.set(Some(self.scheduler.sender_hasher.hash_one(sender)));
        self.caller.set(sender.queue_caller());
    }

    /// Sets the trace context of the request's jobs.
    pub fn set_trace(&self, trace: TraceContext) {
        self.caller.set_trace(trace);
    }

    /// Sets the client's address. Jobs of the request wait in the queues of that address until the caller is
    /// identified.
    pub fn set_address(&self, address: Option<IpAddr>) {
        self.caller.set(Sender::of_address(address).queue_caller());
    }

    /// Polls the response body on behalf of the request's caller.
    pub(super) fn scope_of_body<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.caller.scope_of_body(poll)
    }

    /// Lets a request with a long path and query wait for a time slice of its peer address, before it is parsed.
    pub async fn wait_if_target_is_long(&self, request: &HttpRequest) {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        if target > MAX_UNSCHEDULED_TARGET_BYTES {
            self.set_sender(&Sender::of_address(request.peer_addr().map(|peer| peer.ip())));
            self.wait_for_slice().await;
        }
    }

    /// Waits until the sender has time left in the current pass. Returns immediately if the sender is not set yet.
    pub async fn wait_for_slice(&self) {
        if let Some(waiting) = self.join_queue() {
            waiting.await;
        }
    }

    /// Joins the queue of the sender; `None` if the request may run now.
    pub(super) fn join_queue(&self) -> Option<SliceWait> {
        SharedScheduler::join(&self.scheduler, self.sender.get()?)
    }

    /// Charges the sender for work outside the polling of the request itself.
    pub(super) fn charge(&self, time: Duration) {
        if let Some(key) = self.sender.get() {
            SharedScheduler::charge(&self.scheduler, key, time);
        }
    }

    /// Wraps a request body so that reading its chunks is scheduled, unless its `Content-Length` is small.
    pub fn pace_body(&self, request: &HttpRequest, body: Payload) -> Payload {
        let body = body.into_inner();
        if matches!(body, dev::Payload::None)
            || body::content_length(request.headers()).is_some_and(|length| length <= MAX_UNSCHEDULED_BODY_BYTES)
        {
            return body::payload_for_request(request, body);
        }
        let pieces = stream::unfold((self.clone(), body), |(cpu_account, mut body)| async {
            cpu_account.wait_for_slice().await;
            let piece = body.next().await?;
            if let Ok(piece) = &piece {
                cpu_account.charge(COST_PER_BYTE * u32::try_from(piece.len()).unwrap_or(u32::MAX));
            }
            Some((piece, (cpu_account, body)))
        });
        body::payload_from_stream(request, pieces)
    }

    fn poll_timed<W: Future>(&self, work: Pin<&mut W>, context: &mut Context<'_>) -> Poll<W::Output> {
        let begun = Instant::now();
        let outcome = self.caller.scope(|| work.poll(context));
        self.charge(begun.elapsed());
        outcome
    }
}

impl SharedScheduler {
    /// Joins the queue of a sender that has no time left or has other requests waiting.
    fn join(this: &Rc<Self>, key: SenderHash) -> Option<SliceWait> {
        let mut state = this.state.borrow_mut();
        let account = state.accounts.entry(key).or_default();
        if account.spent < TIME_SLICE_PER_SENDER && account.waiting.is_empty() && !account.is_woken {
            return None;
        }
        let (wake, woken) = oneshot::channel();
        account.waiting.push_back(wake);
        this.schedule_next_pass(&mut state);
        Some(SliceWait { scheduler: Rc::clone(this), key, woken, is_wake_polled: false })
    }

    fn charge(this: &Rc<Self>, key: SenderHash, time: Duration) {
        let mut state = this.state.borrow_mut();
        state.spent += time;
        let account = state.accounts.entry(key).or_default();
        account.spent += time;
        account.wake_next();
        if state.spent > MAX_PASS_DURATION {
            this.schedule_next_pass(&mut state);
        }
    }

    /// Begins the next pass after the runtime has polled all tasks that are ready now. Begins another pass as long as
    /// some woken request has not been polled yet.
    fn schedule_next_pass(self: &Rc<Self>, state: &mut SchedulerState) {
        if std::mem::replace(&mut state.is_pass_ending, true) {
            return;
        }
        let scheduler = Rc::clone(self);
        tokio::task::spawn_local(async move {
            loop {
                tokio::task::yield_now().await;
                if !scheduler.begin_pass() {
                    return;
                }
            }
        });
    }

    /// Begins a pass and wakes waiting requests of all senders. Returns `true` if some woken request has not been
    /// polled yet.
    fn begin_pass(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.spent = Duration::ZERO;
        state.accounts.retain(|_, account| {
            account.spent = Duration::ZERO;
            account.wake_next();
            account.is_woken
        });
        state.is_pass_ending = !state.accounts.is_empty();
        state.is_pass_ending
    }
}

/// A request that waits in the queue of its sender. It resolves when the request may run.
pub(super) struct SliceWait {
    scheduler: Rc<SharedScheduler>,
    key: SenderHash,
    woken: oneshot::Receiver<()>,
    is_wake_polled: bool,
}

impl Future for SliceWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let wake = Pin::new(&mut self.woken).poll(context);
        wake.map(|_| self.is_wake_polled = true)
    }
}

impl Drop for SliceWait {
    fn drop(&mut self) {
        // A request that was woken but dropped before it was polled passes its time slice on to the next request.
        if !self.is_wake_polled && self.woken.try_recv().is_err() {
            return;
        }
        let mut state = self.scheduler.state.borrow_mut();
        if let Some(account) = state.accounts.get_mut(&self.key) {
            account.is_woken = false;
            if !self.is_wake_polled {
                account.wake_next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::FromRequest as _;
    use actix_web::test::TestRequest;
    use bytes::Bytes;
    use futures_util::future::join_all;

    use super::*;

    /// Runs a request that works for `time` without yielding, and appends its sender to `done` when it ends.
    async fn run_request(scheduler: FairScheduler, sender: i64, time: Duration, done: Rc<RefCell<Vec<i64>>>) {
        let work = async |cpu_account: CpuAccount| {
            cpu_account.set_sender(&Sender::User(sender));
            cpu_account.wait_for_slice().await;
            let begun = Instant::now();
            while begun.elapsed() < time {
                std::hint::spin_loop();
            }
            done.borrow_mut().push(sender);
        };
        scheduler.run_charged(work).await;
    }

    async fn completion_order(senders: impl IntoIterator<Item = i64>, time: Duration) -> Vec<i64> {
        let scheduler = FairScheduler::default();
        let done = Rc::default();
        let all = senders
            .into_iter()
            .map(|sender| tokio::task::spawn_local(run_request(scheduler.clone(), sender, time, Rc::clone(&done))));
        join_all(all.collect::<Vec<_>>()).await;
        tokio::task::yield_now().await;
        assert!(!scheduler.0.state.borrow().is_pass_ending, "no request may wait at the end");
        done.take()
    }

    #[actix_web::test]
    async fn scheduler_starts_one_request_per_sender_in_each_pass() {
        let done = completion_order([1; 20].into_iter().chain([2, 3]), 2 * TIME_SLICE_PER_SENDER).await;
        assert_eq!((done.len(), &done[..3]), (22, &[1, 2, 3][..]), "{done:?}");
    }

    #[actix_web::test]
    async fn sender_waits_only_after_its_time_slice_is_spent() {
        let scheduler = FairScheduler::default();
        let join = |key| SharedScheduler::join(&scheduler.0, key);
        for _ in 0..2 {
            assert!(join(1).is_none());
            SharedScheduler::charge(&scheduler.0, 1, TIME_SLICE_PER_SENDER / 2);
            assert!(join(1).is_none());
            SharedScheduler::charge(&scheduler.0, 1, TIME_SLICE_PER_SENDER / 2);
            assert!(join(1).is_some() && join(2).is_none());
            scheduler.0.begin_pass();
        }
    }

    #[actix_web::test]
    async fn scheduler_pass_ends_without_waiters() {
        let scheduler = FairScheduler::default();
        (0..=MAX_PASS_DURATION.as_millis() as u64)
            .for_each(|key| SharedScheduler::charge(&scheduler.0, key, Duration::from_millis(1)));
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert!(scheduler.0.state.borrow().accounts.is_empty());
    }

    #[actix_web::test]
    async fn scheduler_never_delays_an_unknown_sender() {
        let scheduler = FairScheduler::default();
        let time = scheduler.run_charged(async |cpu_account| {
            std::thread::sleep(2 * TIME_SLICE_PER_SENDER);
            cpu_account.wait_for_slice().await;
            tokio::task::yield_now().await;
            cpu_account.set_sender(&Sender::User(1));
            SharedScheduler::join(&cpu_account.scheduler, cpu_account.sender.get().unwrap()).is_some()
        });
        assert!(!time.await, "time spent before the sender is known is charged only after this poll");
    }

    #[actix_web::test]
    async fn dropped_waiter_passes_its_wakeup_to_the_next() {
        let scheduler = FairScheduler::default();
        let key = scheduler.0.sender_hasher.hash_one(Sender::User(1));
        SharedScheduler::charge(&scheduler.0, key, TIME_SLICE_PER_SENDER);
        let [first, gone, last] =
            [(); 3].map(|()| SharedScheduler::join(&scheduler.0, key).expect("the time slice is spent"));
        drop(gone);
        assert!(scheduler.0.begin_pass());
        assert!(scheduler.0.state.borrow().accounts[&key].is_woken);
        drop(first);
        tokio::time::timeout(Duration::from_secs(10), last).await.expect("the last waiter is woken");
        assert!(!scheduler.0.begin_pass());
    }

    #[actix_web::test]
    async fn body_above_the_unscheduled_size_is_paced() {
        for length in [0, 1, MAX_UNSCHEDULED_BODY_BYTES, MAX_UNSCHEDULED_BODY_BYTES + 1, 3_000_000] {
            let scheduler = FairScheduler::default();
            let sent = vec![7; usize::try_from(length).unwrap()];
            let request = TestRequest::default().insert_header(("content-length", length.to_string()));
            let (request, mut inner) = request.set_payload(sent.clone()).to_http_parts();
            let body = Payload::from_request(&request, &mut inner).await.unwrap();
            let work = async |cpu_account: CpuAccount| {
                cpu_account.set_sender(&Sender::User(1));
                SharedScheduler::charge(
                    &cpu_account.scheduler,
                    cpu_account.sender.get().unwrap(),
                    TIME_SLICE_PER_SENDER,
                );
                let mut pieces = pin!(cpu_account.pace_body(&request, body).collect::<Vec<_>>());
                let waits = futures_util::poll!(pieces.as_mut());
                assert_eq!(waits.is_pending(), length > MAX_UNSCHEDULED_BODY_BYTES, "{length}");
                let pieces = match waits {
                    Poll::Ready(pieces) => pieces,
                    Poll::Pending => pieces.await,
                };
                pieces.into_iter().map(|piece| piece.unwrap()).collect::<Vec<Bytes>>().concat()
            };
            assert_eq!(scheduler.run_charged(work).await, sent);
        }
    }
}
