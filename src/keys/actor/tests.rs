//! Tests of the actor's limits, with backends that sleep and count concurrent calls.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use super::*;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::signer::{SigningInput, SigningInputKind};
use crate::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

const P256: SignatureAlgorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);
/// Duration of a call of the backend double.
const CALL_DURATION: Duration = Duration::from_millis(2);

/// A backend that sleeps before it signs and counts its calls.
struct BackendDouble {
    key: PrivateKey,
    call_duration: Duration,
    concurrent: AtomicUsize,
    peak: AtomicUsize,
    calls: AtomicUsize,
    open_sessions: AtomicUsize,
    fault: AtomicU8,
    /// While the gate is closed, calls block in the backend.
    gate: (Mutex<bool>, Condvar),
}

fn identity(public: &PublicKey) -> KeyIdentity {
    public.clone().into()
}

const FAULT_WRONG_SIGNATURE: u8 = 1;
const FAULT_OTHER_KEY: u8 = 2;
const FAULT_PANIC: u8 = 3;

impl BackendDouble {
    fn new(call_duration: Duration) -> Arc<Self> {
        let key = PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap();
        let zero = AtomicUsize::default;
        Arc::new(Self {
            key,
            call_duration,
            concurrent: zero(),
            peak: zero(),
            calls: zero(),
            open_sessions: zero(),
            fault: AtomicU8::new(0),
            gate: (Mutex::new(false), Condvar::new()),
        })
    }

    fn set_gate_closed(&self, closed: bool) {
        *self.gate.0.lock().unwrap() = closed;
        self.gate.1.notify_all();
    }

    fn begin_call(&self) {
        let concurrent = self.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(concurrent, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    fn end_call(&self) {
        self.concurrent.fetch_sub(1, Ordering::SeqCst);
    }

    fn respond(&self, request: &BackendRequest) -> Result<BackendResponse> {
        let fault = self.fault.load(Ordering::SeqCst);
        assert!(fault != FAULT_PANIC, "the test requests a panic");
        match request {
            BackendRequest::Find { .. } if fault == FAULT_OTHER_KEY => {
                let other = PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap();
                Ok(BackendResponse::Key(identity(other.public())))
            }
            BackendRequest::Find { .. } => Ok(BackendResponse::Key(identity(self.key.public()))),
            BackendRequest::Sign { algorithm, input, .. } => {
                let SigningInput::Message(message) = &**input else { return Err(Error::internal("wants messages")) };
                let message = if fault == 0 { message.clone() } else { vec![0; 7] };
                self.key.sign(*algorithm, &message).map(BackendResponse::Signature)
            }
            BackendRequest::TestSign(_) => Ok(if fault == FAULT_WRONG_SIGNATURE {
                BackendResponse::TestFailed
            } else {
                BackendResponse::TestPassed
            }),
        }
    }

    fn take_peak(&self) -> usize {
        self.peak.swap(0, Ordering::SeqCst)
    }

    fn take_calls(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

struct BackendDoubleSession(Arc<BackendDouble>);

impl Drop for BackendDoubleSession {
    fn drop(&mut self) {
        self.0.open_sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BlockingBackend for BackendDouble {
    fn input_kind(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
        Ok(SigningInputKind::Message)
    }

    fn new_session(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
        self.open_sessions.fetch_add(1, Ordering::SeqCst);
        Box::new(BackendDoubleSession(self))
    }
}

impl BackendSession for BackendDoubleSession {
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse> {
        self.0.begin_call();
        std::thread::sleep(self.0.call_duration);
        let mut closed = self.0.gate.0.lock().unwrap();
        while *closed {
            closed = self.0.gate.1.wait(closed).unwrap();
        }
        drop(closed);
        self.0.end_call();
        self.0.respond(request)
    }
}

impl AsyncBackend for BackendDouble {
    fn input_kind(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
        Ok(SigningInputKind::Message)
    }

    fn call(self: Arc<Self>, request: BackendRequest) -> BoxFuture<'static, Result<BackendResponse>> {
        struct RunningCallGuard(Arc<BackendDouble>);
        impl Drop for RunningCallGuard {
            fn drop(&mut self) {
                self.0.end_call();
            }
        }
        async move {
            self.begin_call();
            let concurrent = RunningCallGuard(self);
            tokio::time::sleep(concurrent.0.call_duration).await;
            while *concurrent.0.gate.0.lock().unwrap() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            concurrent.0.respond(&request)
        }
        .boxed()
    }
}

/// Returns a blocking and an asynchronous backend, each with the double that it calls.
fn both_backends(call_duration: Duration) -> [(Arc<BackendDouble>, KeyBackend); 2] {
    let threads = BackendDouble::new(call_duration);
    let tasks = BackendDouble::new(call_duration);
    [(threads.clone(), KeyBackend::Blocking(threads)), (tasks.clone(), KeyBackend::Async(tasks))]
}

fn message() -> SigningInput {
    SigningInput::Message(vec![42; 100])
}

fn limits(queue: usize, call_timeout: u64) -> SignerLimits {
    SignerLimits { queue, call_timeout: Duration::from_millis(call_timeout), ..SignerLimits::default() }
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(10), "the condition is not met within ten seconds");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn concurrent_calls_reach_but_never_exceed_the_cap() {
    for max_parallel in [1, 2, 8, 32] {
        for (double, backend) in both_backends(CALL_DURATION) {
            let actor = SignerActor::start("cap", backend, max_parallel, SignerLimits::default());
            let signer = actor.signer(identity(double.key.public()));
            // No call may end before all workers are busy.
            double.set_gate_closed(true);
            let all: Vec<_> = (0..8 * max_parallel).map(|_| tokio::spawn(signer.sign(P256, message()))).collect();
            eventually(|| double.concurrent.load(Ordering::SeqCst) == max_parallel).await;
            double.set_gate_closed(false);
            assert!(
                join_all(all).await.iter().all(|signed| signed.as_ref().is_ok_and(Result::is_ok)),
                "{max_parallel}"
            );
            assert_eq!((double.take_peak(), double.take_calls()), (max_parallel, 8 * max_parallel));
        }
    }
}

#[tokio::test]
async fn changed_cap_applies_to_later_calls() {
    for (double, backend) in both_backends(CALL_DURATION) {
        let actor = SignerActor::start("lowered", backend.clone(), 4, SignerLimits::default());
        let signer = actor.signer(identity(double.key.public()));
        let run = |n| join_all((0..n).map(|_| signer.sign(P256, message())));
        let all = run(64);
        let lowered = async {
            eventually(|| double.take_peak() == 4).await;
            actor.configure(backend.clone(), 1).unwrap();
            tokio::time::sleep(10 * CALL_DURATION).await;
            double.take_peak();
            tokio::time::sleep(10 * CALL_DURATION).await;
            assert_eq!(double.take_peak(), 1);
            actor.configure(backend.clone(), 8).unwrap();
        };
        let (signatures, ()) = tokio::join!(all, lowered);
        assert!(signatures.iter().all(|signature| signature.is_ok()));
        run(64).await;
        assert_eq!(double.take_peak(), 8);
    }
}

#[tokio::test]
async fn full_queue_is_busy_and_cancelled_jobs_free_their_slots() {
    for (double, backend) in both_backends(Duration::ZERO) {
        double.set_gate_closed(true);
        let actor = SignerActor::start("full", backend, 1, limits(4, 10_000));
        let signer = actor.signer(identity(double.key.public()));
        let first = tokio::spawn(signer.sign(P256, message()));
        eventually(|| double.concurrent.load(Ordering::SeqCst) == 1).await;
        let jobs: Vec<_> = (0..4).map(|_| tokio::spawn(signer.sign(P256, message()))).collect();
        signer.require_capacity().unwrap();
        tokio::task::yield_now().await;
        for busy in [signer.require_capacity().unwrap_err(), signer.sign(P256, message()).await.unwrap_err()] {
            assert_eq!(busy.kind(), Kind::Busy);
            assert!(busy.text().contains("\"full\"") && busy.text().contains("retry"), "{busy}");
        }
        jobs.iter().for_each(|job| job.abort());
        tokio::task::yield_now().await;
        signer.require_capacity().unwrap();
        let later = tokio::spawn(signer.sign(P256, message()));
        tokio::task::yield_now().await;
        double.set_gate_closed(false);
        first.await.unwrap().unwrap();
        later.await.unwrap().unwrap();
        assert_eq!(double.take_calls(), 2, "no call for callers that have left");
    }
}

/// The load is twice the capacity, for three times the time limit of a job. The backend must run at full capacity, and
/// excess requests must fail immediately.
#[tokio::test]
async fn overloaded_backend_works_at_full_capacity() {
    let time = Duration::from_millis(20);
    for (double, backend) in both_backends(time) {
        let actor = SignerActor::start("overload", backend, 2, limits(1024, 1_500));
        let signer = actor.signer(identity(double.key.public()));
        let begun = Instant::now();
        let mut jobs = Vec::new();
        while begun.elapsed() < Duration::from_millis(5_000) {
            // Submits one job for every 5 ms, even if the sleep takes longer on a busy machine.
            let due = usize::try_from(begun.elapsed().as_millis() / 5).unwrap();
            while jobs.len() <= due {
                let signature = signer.sign(P256, message());
                jobs.push(tokio::spawn(async move {
                    signature.await.map(drop).map_err(|error| (error.kind(), Instant::now()))
                }));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let half = begun + Duration::from_millis(2_500);
        let mut done = 0;
        let mut late = 0;
        let mut refused = 0;
        for outcome in join_all(jobs).await {
            match outcome.unwrap() {
                Ok(()) => done += 1,
                Err((Kind::Busy, _)) => refused += 1,
                Err((_, at)) => late += usize::from(at > half),
            }
        }
        // Nearly all calls were useful: they did not sign for callers that had left.
        let calls = double.take_calls();
        assert!(done * 10 >= calls * 9, "{done} of {calls} calls");
        assert!(done > 50 && refused > 0 && late * 10 <= done, "{done} {refused} {late}");
    }
}

#[tokio::test]
async fn low_priority_jobs_do_not_delay_other_jobs() {
    for (double, backend) in both_backends(Duration::ZERO) {
        double.set_gate_closed(true);
        let actor = SignerActor::start("priorities", backend, 1, limits(1024, 10_000));
        let signer = actor.signer(identity(double.key.public()));
        let order = Arc::new(Mutex::new(Vec::new()));
        let ask = |low_priority: bool| {
            let signature = if low_priority {
                signer.sign_with_low_priority(P256, message())
            } else {
                signer.sign(P256, message())
            };
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                signature.await.unwrap();
                order.lock().unwrap().push(low_priority);
            })
        };
        let mut jobs: Vec<_> = (0..100).map(|_| ask(true)).collect();
        eventually(|| double.concurrent.load(Ordering::SeqCst) == 1).await;
        jobs.extend((0..5).map(|_| ask(false)));
        tokio::task::yield_now().await;
        double.set_gate_closed(false);
        assert!(join_all(jobs).await.into_iter().all(|job| job.is_ok()));
        // The expected order: the job that was running, then one low-priority job after every three others.
        let order = order.lock().unwrap();
        assert_eq!(order[..8], [true, false, false, false, true, false, false, true]);
        assert_eq!(order.len(), 105);
    }
}

#[tokio::test]
async fn hanging_call_times_out_and_occupies_its_slot() {
    for (n, (double, backend)) in both_backends(Duration::ZERO).into_iter().enumerate() {
        double.set_gate_closed(true);
        let actor = SignerActor::start("hangs", backend, 2, limits(64, 200));
        let signer = actor.signer(identity(double.key.public()));
        let since = Instant::now();
        let outcomes = join_all((0..6).map(|_| signer.sign(P256, message()))).await;
        assert!(since.elapsed() < Duration::from_secs(10));
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable);
            assert!(error.text().contains("no response of the backend within 0.2 s"), "{error}");
        }
        if n == 0 {
            // Both threads are still blocked in the backend, so no other call has started.
            assert_eq!((double.concurrent.load(Ordering::SeqCst), double.take_calls()), (2, 2));
            let error = signer.sign(P256, message()).await.unwrap_err();
            assert_eq!((error.kind(), double.take_calls()), (Kind::Unavailable, 0));
        } else {
            eventually(|| double.concurrent.load(Ordering::SeqCst) == 0).await;
        }
        double.set_gate_closed(false);
        eventually(|| double.concurrent.load(Ordering::SeqCst) == 0).await;
        double.take_calls();
        signer.sign(P256, message()).await.unwrap();
        assert_eq!(double.take_calls(), 1, "no call for callers whose time was up");
    }
}

#[tokio::test]
async fn stuck_key_refuses_new_jobs_at_once() {
    let double = BackendDouble::new(Duration::ZERO);
    double.set_gate_closed(true);
    let actor = SignerActor::start("stuck", KeyBackend::Blocking(double.clone()), 2, limits(1024, 2_000));
    let signer = actor.signer(identity(double.key.public()));
    let sign = || tokio::spawn(signer.sign(P256, message()));
    let hung = [sign(), sign()];
    eventually(|| double.concurrent.load(Ordering::SeqCst) == 2).await;
    // The calls have used a fifth of the time limit. A fifth queued job would wait for more than half of the time
    // limit.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let flood: Vec<_> = (0..100).map(|_| sign()).collect();
    let outcomes = join_all(hung.into_iter().chain(flood)).await;
    let kinds: Vec<Kind> = outcomes.into_iter().map(|outcome| outcome.unwrap().unwrap_err().kind()).collect();
    let waited = kinds.iter().filter(|kind| **kind == Kind::Unavailable).count();
    assert!((2..10).contains(&waited), "{waited} waited, {} in all", kinds.len());
    // Both calls count as hung now, so new signatures and lookups are rejected immediately.
    for refused in [signer.require_capacity().unwrap_err(), actor.find_key(false).await.unwrap_err()] {
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.text().contains("does not respond in any session"), "{refused}");
    }
    assert_eq!(double.take_calls(), 2);
    double.set_gate_closed(false);
    eventually(|| double.concurrent.load(Ordering::SeqCst) == 0).await;
    eventually(|| signer.require_capacity().is_ok()).await;
    signer.sign(P256, message()).await.unwrap();
}

#[tokio::test]
async fn new_configuration_applies_from_the_next_call() {
    let old = BackendDouble::new(Duration::ZERO);
    let new = BackendDouble::new(Duration::ZERO);
    old.set_gate_closed(true);
    let actor = SignerActor::start("reconfigured", KeyBackend::Blocking(old.clone()), 2, SignerLimits::default());
    let under_way = tokio::spawn(actor.signer(identity(old.key.public())).sign(P256, message()));
    eventually(|| old.concurrent.load(Ordering::SeqCst) == 1).await;
    actor.configure(KeyBackend::Blocking(new.clone()), 2).unwrap();
    actor.signer(identity(new.key.public())).sign(P256, message()).await.unwrap();
    old.set_gate_closed(false);
    under_way.await.unwrap().unwrap();
    // The old session ends without another call.
    eventually(|| old.open_sessions.load(Ordering::SeqCst) == 0).await;
    assert_eq!((old.take_calls(), new.take_calls()), (1, 1));
    assert!(actor.configure(KeyBackend::Async(new), 1).is_err());
}

#[tokio::test]
async fn sessions_without_work_end() {
    let double = BackendDouble::new(Duration::ZERO);
    let limits = SignerLimits { idle: Duration::from_millis(50), ..SignerLimits::default() };
    let actor = SignerActor::start("idle", KeyBackend::Blocking(double.clone()), 4, limits);
    let signer = actor.signer(identity(double.key.public()));
    join_all((0..16).map(|_| signer.sign(P256, message()))).await;
    assert!(double.open_sessions.load(Ordering::SeqCst) > 0);
    eventually(|| double.open_sessions.load(Ordering::SeqCst) == 0).await;
    signer.sign(P256, message()).await.unwrap();
}

#[tokio::test]
async fn stop_completes_queued_jobs_and_rejects_new_ones() {
    for (double, backend) in both_backends(CALL_DURATION) {
        let actor = SignerActor::start("stops", backend, 1, SignerLimits::default());
        let signer = actor.signer(identity(double.key.public()));
        let jobs: Vec<_> = (0..8).map(|_| tokio::spawn(signer.sign(P256, message()))).collect();
        eventually(|| double.calls.load(Ordering::SeqCst) > 0).await;
        actor.stop(Duration::from_secs(5)).await;
        assert_eq!((double.take_calls(), double.open_sessions.load(Ordering::SeqCst)), (8, 0));
        for outcome in join_all(jobs).await {
            outcome.unwrap().unwrap();
        }
        assert_eq!(signer.sign(P256, message()).await.unwrap_err().kind(), Kind::Unavailable);
    }
}

#[tokio::test]
async fn stop_wait_is_limited() {
    for (double, backend) in both_backends(Duration::ZERO) {
        double.set_gate_closed(true);
        let actor = SignerActor::start("stuck", backend, 1, SignerLimits::default());
        let signer = actor.signer(identity(double.key.public()));
        let jobs: Vec<_> = (0..3).map(|_| tokio::spawn(signer.sign(P256, message()))).collect();
        eventually(|| double.concurrent.load(Ordering::SeqCst) == 1).await;
        actor.stop(Duration::from_millis(50)).await;
        double.set_gate_closed(false);
        let outcomes: Vec<_> = join_all(jobs).await.into_iter().map(Result::unwrap).collect();
        assert!(outcomes[0].is_ok());
        assert!(outcomes[1..].iter().all(|outcome| outcome.as_ref().unwrap_err().text().contains("stopping")));
    }
}

#[tokio::test]
async fn wrong_signature_is_never_returned() {
    for (double, backend) in both_backends(Duration::ZERO) {
        let actor = SignerActor::start("faulty", backend, 1, SignerLimits::default());
        let signer = actor.signer(identity(double.key.public()));
        double.fault.store(FAULT_WRONG_SIGNATURE, Ordering::SeqCst);
        let error = signer.sign(P256, message()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::BadGateway);
        assert!(error.text().contains("wrong signature"), "{error}");
        let error = actor.test_sign(TestSign::default()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.text().starts_with("verification: "), "{error}");
        double.fault.store(FAULT_OTHER_KEY, Ordering::SeqCst);
        let error = signer.sign(P256, message()).await.unwrap_err();
        assert_eq!((error.kind(), error.text()), (Kind::BadGateway, "managed key changed in backend"));
        double.fault.store(0, Ordering::SeqCst);
        signer.sign(P256, message()).await.unwrap();
        actor.test_sign(TestSign::default()).await.unwrap();
    }
}

#[tokio::test]
async fn backend_panic_fails_one_call() {
    for (double, backend) in both_backends(Duration::ZERO) {
        let actor = SignerActor::start("panics", backend, 1, SignerLimits::default());
        let signer = actor.signer(identity(double.key.public()));
        double.fault.store(FAULT_PANIC, Ordering::SeqCst);
        assert_eq!(signer.sign(P256, message()).await.unwrap_err().kind(), Kind::Internal);
        double.fault.store(0, Ordering::SeqCst);
        signer.sign(P256, message()).await.unwrap();
    }
}

#[tokio::test]
async fn input_that_does_not_fit_the_key_reaches_no_backend() {
    for (double, backend) in both_backends(Duration::ZERO) {
        let actor = SignerActor::start("fits", backend, 1, SignerLimits::default());
        let signer = actor.signer(identity(double.key.public()));
        assert_eq!(signer.input_kind(P256).unwrap(), SigningInputKind::Message);
        assert!(signer.input_kind(SignatureAlgorithm::RsaPss(Hash::Sha256)).is_err());
        for (algorithm, input) in [
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha256), message()),
            (SignatureAlgorithm::Ed25519, message()),
            (P256, SigningInput::Digest(vec![0; 32])),
        ] {
            assert_eq!(signer.sign(algorithm, input).await.unwrap_err().kind(), Kind::Invalid);
        }
        assert_eq!(double.take_calls(), 0);
    }
}

#[test]
fn digest_of_another_length_is_refused() {
    for (bytes, fits) in [(20, false), (31, false), (32, true), (33, false), (48, false), (0, false)] {
        let outcome =
            verifying_signer::check_input(SigningInputKind::Digest, P256, &SigningInput::Digest(vec![0; bytes]));
        assert_eq!(outcome.is_ok(), fits, "{bytes}");
    }
    assert!(verifying_signer::check_input(SigningInputKind::Digest, P256, &message()).is_err());
}
