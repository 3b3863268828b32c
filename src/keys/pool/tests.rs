use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use futures_util::FutureExt;

use super::*;
use crate::error::Kind;

fn rsa(bits: i64) -> KeySpec {
    KeySpec::new("rsa", bits).unwrap()
}

/// Returns a cheap key instead of the requested one.
fn generate_cheap_key(_: KeySpec) -> Result<PrivateKey> {
    PrivateKey::generate(KeySpec::new("ec", 256).unwrap())
}

type Call<'p> = Pin<Box<dyn Future<Output = Result<PrivateKey>> + 'p>>;

/// Returns a queued call, or the error of a rejected one.
fn call(pool: &KeyPool, bits: i64) -> std::result::Result<Call<'_>, Error> {
    static CALLERS: AtomicU64 = AtomicU64::new(0);
    call_as(CALLERS.fetch_add(1, Ordering::Relaxed), pool, bits)
}

/// As `call`, but for the given caller; `call` uses a new caller each time.
fn call_as(caller: u64, pool: &KeyPool, bits: i64) -> std::result::Result<Call<'_>, Error> {
    const ALWAYS: &CallerWatch = &CallerWatch::ALWAYS;
    let caller = QueueCaller::with_token(&caller);
    let mut call: Call<'_> = Box::pin(caller.scope(pool.generate(rsa(bits), ALWAYS)));
    match (&mut call).now_or_never() {
        Some(Err(error)) => Err(error),
        Some(Ok(key)) => Ok(Box::pin(std::future::ready(Ok(key)))),
        None => Ok(call),
    }
}

fn queued(pool: &KeyPool, lane: PoolLane) -> usize {
    pool.0.0.lock().queues[lane as usize].waiting()
}

/// Creates a pool without threads.
fn pool_without_threads() -> KeyPool {
    KeyPool::without_threads(traffic::idle_time)
}

/// Removes the next job of a lane. The caller of the job gets an error.
fn take_next_job(pool: &KeyPool, lane: PoolLane) -> Option<KeyGenerationJob> {
    pool.0.0.lock().next_job(lane)
}

async fn complete(call: Call<'_>) -> Result<PrivateKey> {
    tokio::time::timeout(Duration::from_secs(60), call).await.expect("held up")
}

#[tokio::test]
async fn pool_generates_rsa_and_other_keys_are_generated_in_place() {
    let pool = KeyPool::start();
    let (a, b) = tokio::join!(complete(call(&pool, 2048).unwrap()), complete(call(&pool, 2048).unwrap()));
    assert!(a.unwrap().public() != b.unwrap().public());
    let pool = pool_without_threads();
    for (key_type, bits) in [("ec", 224), ("ec", 256), ("ed25519", 0)] {
        let spec = KeySpec::new(key_type, bits).unwrap();
        let key = pool.generate(spec, &CallerWatch::default()).await.unwrap();
        assert_eq!(key.kind().name(), key_type);
    }
}

/// Large keys never finish; small ones finish immediately.
#[tokio::test]
async fn abandoned_large_keys_do_not_delay_small_ones() {
    let pool = pool_without_threads();
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    pool.start_threads(move |spec| {
        if spec.kind().bits() > 2048 {
            begin.send(()).unwrap();
            let _ = ended.lock().unwrap().recv();
        }
        generate_cheap_key(spec)
    });
    let first = call(&pool, 8192).unwrap();
    begun.recv().unwrap();
    let calls = PoolLane::Large.max_queued() + 7;
    let rest: Vec<_> = [3072, 4096, 8192].into_iter().cycle().take(calls).map(|bits| call(&pool, bits)).collect();
    let busy: Vec<_> = rest.iter().filter_map(|call| call.as_ref().err()).collect();
    assert_eq!(busy.len(), 7);
    assert!(busy.iter().all(|error| error.kind() == Kind::Busy && error.text().contains("retry")));
    for _ in 0..5 {
        complete(call(&pool, 2048).unwrap()).await.unwrap();
    }
    drop((first, rest));
    // Callers that left occupy no slot, and the other thread has not started their jobs.
    assert!(call(&pool, 8192).is_ok());
    assert_eq!(queued(&pool, PoolLane::Large), 1);
    assert!(begun.try_recv().is_err());
    drop(end);
}

#[test]
fn callers_of_a_lane_alternate_with_short_queues() {
    let pool = pool_without_threads();
    let max = PoolLane::Large.max_queued_per_caller();
    let mut calls: Vec<_> = (0..max).map(|_| call_as(1, &pool, 8192).unwrap()).collect();
    assert_eq!(call_as(1, &pool, 8192).err().unwrap().kind(), Kind::Busy);
    let other = call_as(2, &pool, 3072).unwrap();
    let next_bits = || take_next_job(&pool, PoolLane::Large).map(|job| job.spec.kind().bits());
    assert_eq!([next_bits(), next_bits(), next_bits()], [8192, 3072, 8192].map(Some));
    calls.truncate(3);
    assert_eq!((next_bits(), next_bits()), (Some(8192), None), "callers that have left get no key");
    drop(other);
}

#[test]
fn full_lane_drops_the_latest_job_of_its_largest_caller() {
    let pool = pool_without_threads();
    let of_caller = PoolLane::Large.max_queued_per_caller();
    let of = |caller| (0..of_caller).map(|_| call_as(caller, &pool, 8192).unwrap()).collect::<Vec<_>>();
    let mut all: Vec<_> = (0..PoolLane::Large.max_queued() / of_caller).flat_map(|caller| of(caller as u64)).collect();
    assert_eq!(queued(&pool, PoolLane::Large), PoolLane::Large.max_queued());
    let _late = call_as(99, &pool, 8192).unwrap();
    let refused = all.iter_mut().filter_map(|call| call.now_or_never()).count();
    assert_eq!((refused, queued(&pool, PoolLane::Large)), (1, PoolLane::Large.max_queued()));
}

#[test]
fn full_lane_is_busy_at_once_and_other_lanes_accept_jobs() {
    let pool = pool_without_threads();
    for (lane, bits) in [(PoolLane::Small, 2048), (PoolLane::Large, 8192)] {
        let mut calls: Vec<_> = (0..lane.max_queued()).map(|_| call(&pool, bits).unwrap()).collect();
        assert_eq!(call(&pool, bits).err().unwrap().kind(), Kind::Busy);
        calls.truncate(lane.max_queued() - 2);
        let again = [call(&pool, bits), call(&pool, bits)];
        assert!(again.iter().all(std::result::Result::is_ok), "callers that left hold no slot");
        assert!(call(&pool, bits).is_err());
    }
}

#[test]
fn job_of_a_disconnected_caller_is_not_started() {
    let pool = pool_without_threads();
    let guard = CallerGuard::default();
    let watch = guard.watch();
    let mut watched = Box::pin(pool.generate(rsa(2048), &watch));
    assert!((&mut watched).now_or_never().is_none());
    let left = call(&pool, 2048).unwrap();
    let stays = call(&pool, 2048).unwrap();
    drop(left);
    // The caller has left, although the future that waits for the key still exists.
    drop(guard);
    assert!(take_next_job(&pool, PoolLane::Small).is_some());
    assert!(take_next_job(&pool, PoolLane::Small).is_none());
    assert_eq!(watched.now_or_never().unwrap().err().unwrap().kind(), Kind::Unavailable);
    drop(stays);
}

#[cfg(target_os = "linux")]
#[test]
fn pool_threads_have_low_priority_and_end_with_last_handle() {
    let pool = KeyPool::start();
    let queue = Arc::downgrade(&pool.0.0);
    let nice = thread::spawn(|| {
        lower_priority(THREAD_NICENESS);
        rustix::process::getpriority_process(None).unwrap()
    });
    assert_eq!(nice.join().unwrap(), THREAD_NICENESS);
    assert!(rustix::process::getpriority_process(None).unwrap() < THREAD_NICENESS, "this thread is not");
    drop(pool.clone());
    drop(pool);
    for _ in 0..500 {
        if queue.strong_count() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the thread still runs");
}
