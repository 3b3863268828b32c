use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use futures_util::FutureExt;

use super::*;
use crate::error::Kind;

const HERE: MountId = MountId(1);
const THERE: MountId = MountId(2);

fn rsa(bits: i64) -> KeySpec {
    KeySpec::new("rsa", bits).unwrap()
}

/// Returns a cheap key instead of the requested one.
fn cheap(_: KeySpec) -> Result<PrivateKey> {
    PrivateKey::generate(KeySpec::new("ec", 256).unwrap())
}

type Call<'p> = Pin<Box<dyn Future<Output = Result<PrivateKey>> + 'p>>;

/// Returns a queued call, or the error of a rejected one.
fn call(pool: &KeyPool, bits: i64, mount: MountId) -> std::result::Result<Call<'_>, Error> {
    static CALLERS: AtomicU64 = AtomicU64::new(0);
    call_of(CALLERS.fetch_add(1, Ordering::Relaxed), pool, bits, mount)
}

/// As `call`, for this caller; `call` uses a new caller each time.
fn call_of(caller: u64, pool: &KeyPool, bits: i64, mount: MountId) -> std::result::Result<Call<'_>, Error> {
    const ALWAYS: &CallerWatch = &CallerWatch::ALWAYS;
    let caller = QueueCaller::with_token(&caller);
    let mut call: Call<'_> = Box::pin(caller.scope(pool.generate(rsa(bits), mount, ALWAYS)));
    match (&mut call).now_or_never() {
        Some(Err(error)) => Err(error),
        Some(Ok(key)) => Ok(Box::pin(std::future::ready(Ok(key)))),
        None => Ok(call),
    }
}

fn queued(pool: &KeyPool, lane: PoolLane) -> usize {
    pool.0.0.lock().lines[lane as usize].len()
}

/// Removes the next job of a lane and returns its mount. The caller of the job gets an error.
fn next(pool: &KeyPool, lane: PoolLane) -> Option<MountId> {
    pool.0.0.lock().lines[lane as usize].next().map(|job| job.mount)
}

async fn soon(call: Call<'_>) -> Result<PrivateKey> {
    tokio::time::timeout(Duration::from_secs(60), call).await.expect("held up")
}

#[test]
fn working_thread_has_cpu_time() {
    let before = processor_time();
    while processor_time() == before {
        std::hint::black_box(before);
    }
}

#[tokio::test]
async fn rsa_comes_from_the_pool_and_other_keys_from_here() {
    let pool = KeyPool::start();
    let (a, b) = tokio::join!(soon(call(&pool, 2048, HERE).unwrap()), soon(call(&pool, 2048, HERE).unwrap()));
    assert!(a.unwrap().public() != b.unwrap().public());
    let idle = KeyPool::idle();
    for (key_type, bits) in [("ec", 224), ("ec", 256), ("ed25519", 0)] {
        let spec = KeySpec::new(key_type, bits).unwrap();
        let key = idle.generate(spec, HERE, &CallerWatch::default()).await.unwrap();
        assert_eq!(key.kind().name(), key_type);
    }
}

/// Large keys never finish; all others finish immediately.
#[tokio::test]
async fn forty_abandoned_rsa_8192_calls_do_not_delay_other_keys() {
    let pool = KeyPool::idle();
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    pool.start_threads(move |spec| {
        if spec.kind().bits() == 8192 {
            begin.send(()).unwrap();
            let _ = ended.lock().unwrap().recv();
        }
        cheap(spec)
    });
    let first = call(&pool, 8192, HERE).unwrap();
    begun.recv().unwrap();
    let rest: Vec<_> = (1..40).map(|_| call(&pool, 8192, HERE)).collect();
    let busy: Vec<_> = rest.iter().filter_map(|call| call.as_ref().err()).collect();
    assert_eq!(busy.len(), 39 - PoolLane::Large.max_queued());
    assert!(busy.iter().all(|error| error.kind() == Kind::Busy && error.text().contains("retry")));
    for bits in [2048, 3072, 4096] {
        for _ in 0..5 {
            soon(call(&pool, bits, HERE).unwrap()).await.unwrap();
        }
    }
    drop((first, rest));
    // Callers that left occupy no slot, and no other thread has started their jobs.
    assert!(call(&pool, 8192, HERE).is_ok());
    assert_eq!(queued(&pool, PoolLane::Large), 1);
    assert!(begun.try_recv().is_err());
    drop(end);
}

/// Medium keys never finish.
#[tokio::test]
async fn keys_of_4096_bits_hold_up_no_smaller_one() {
    let pool = KeyPool::idle();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let (begin, begun) = mpsc::channel();
    pool.start_threads(move |spec| {
        if spec.kind().bits() == 4096 {
            begin.send(()).unwrap();
            let _ = ended.lock().unwrap().recv();
        }
        cheap(spec)
    });
    let calls: Vec<_> = (0..40).map(|_| call(&pool, 4096, HERE).unwrap()).collect();
    begun.recv().unwrap();
    begun.recv().unwrap();
    for _ in 0..5 {
        soon(call(&pool, 2048, HERE).unwrap()).await.unwrap();
    }
    assert_eq!(queued(&pool, PoolLane::Medium), 38);
    drop((calls, end));
}

#[test]
fn every_lane_has_a_thread_that_alternates_its_lanes() {
    assert_eq!(THREAD_LANES[0], [PoolLane::Small]);
    assert!(!THREAD_LANES[1].contains(&PoolLane::Large));
    assert_eq!(THREAD_LANES.iter().filter(|lanes| lanes.contains(&PoolLane::Large)).count(), 1);
    assert_eq!(THREAD_LANES.iter().filter(|lanes| lanes.contains(&PoolLane::Small)).count(), 2);
    let pool = KeyPool::idle();
    let calls = [2048, 2048, 2048, 3072, 4096].map(|bits| call(&pool, bits, HERE).unwrap());
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let queue = Arc::clone(&pool.0.0);
    let make = move |spec: KeySpec| {
        let mut seen = seen.lock().unwrap();
        seen.push(spec.kind().bits());
        queue.lock().closed = seen.len() == 5;
        cheap(spec)
    };
    pool.0.0.work(THREAD_LANES[1], &[], make, false);
    assert_eq!(*order.lock().unwrap(), [2048, 3072, 2048, 4096, 2048]);
    assert!(calls.into_iter().all(|call| call.now_or_never().unwrap().is_ok()));
}

#[test]
fn mounts_alternate_in_a_lane() {
    let pool = KeyPool::idle();
    let mounts = [HERE, HERE, HERE, THERE, MountId(3), THERE];
    let _calls = mounts.map(|mount| call(&pool, 2048, mount).unwrap());
    let order: Vec<i64> = std::iter::from_fn(|| next(&pool, PoolLane::Small)).map(|mount| mount.0).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 1]);
}

#[test]
fn callers_of_a_mount_alternate_with_short_queues() {
    let pool = KeyPool::idle();
    let max = PoolLane::Small.max_queued_per_caller();
    let mut calls: Vec<_> = (0..max).map(|_| call_of(1, &pool, 2048, HERE).unwrap()).collect();
    assert_eq!(call_of(1, &pool, 2048, HERE).err().unwrap().kind(), Kind::Busy);
    let other = call_of(2, &pool, 2048, HERE).unwrap();
    let next_caller = || pool.0.0.lock().lines[PoolLane::Small as usize].next().map(|job| job.caller_id);
    let [one, two] = [1_u64, 2].map(|caller| Some(QueueCaller::with_token(&caller).caller_id()));
    assert_eq!([next_caller(), next_caller(), next_caller()], [one, two, one]);
    calls.truncate(3);
    assert_eq!((next_caller(), next_caller()), (one, None), "callers that have left get no key");
    drop(other);
}

#[test]
fn full_lane_drops_the_latest_job_of_its_largest_caller() {
    let pool = KeyPool::idle();
    let of_caller = PoolLane::Large.max_queued_per_caller();
    let of = |caller| (0..of_caller).map(|_| call_of(caller, &pool, 8192, HERE).unwrap()).collect::<Vec<_>>();
    let mut first = of(1);
    let mut second = of(2);
    assert_eq!(queued(&pool, PoolLane::Large), PoolLane::Large.max_queued());
    let _third = call_of(3, &pool, 8192, HERE).unwrap();
    let refused = first.iter_mut().chain(&mut second).filter_map(|call| call.now_or_never()).count();
    assert_eq!((refused, queued(&pool, PoolLane::Large)), (1, PoolLane::Large.max_queued()));
}

#[test]
fn full_lane_drops_the_latest_jobs_of_its_largest_mount() {
    let pool = KeyPool::idle();
    let max_queued = PoolLane::Large.max_queued();
    let mut first: Vec<_> = (0..max_queued).map(|_| call(&pool, 8192, HERE).unwrap()).collect();
    assert_eq!(call(&pool, 8192, HERE).err().unwrap().kind(), Kind::Busy);
    let others: Vec<_> = (0..max_queued / 2).map(|_| call(&pool, 8192, THERE).unwrap()).collect();
    assert_eq!(call(&pool, 8192, THERE).err().unwrap().kind(), Kind::Busy);
    assert_eq!((queued(&pool, PoolLane::Large), others.len()), (max_queued, max_queued / 2));
    for (n, call) in first.iter_mut().enumerate() {
        let refused = call.now_or_never().map(|outcome| outcome.err().unwrap().kind());
        assert_eq!(refused, (n >= max_queued / 2).then_some(Kind::Busy), "{n}");
    }
}

#[test]
fn full_lane_is_busy_immediately_and_others_stay_open() {
    let pool = KeyPool::idle();
    for (lane, bits) in [(PoolLane::Small, 2048), (PoolLane::Medium, 3072), (PoolLane::Large, 8192)] {
        let mut calls: Vec<_> = (0..lane.max_queued()).map(|_| call(&pool, bits, HERE).unwrap()).collect();
        assert_eq!(call(&pool, bits, HERE).err().unwrap().kind(), Kind::Busy);
        calls.truncate(lane.max_queued() - 2);
        let again = [call(&pool, bits, HERE), call(&pool, bits, HERE)];
        assert!(again.iter().all(std::result::Result::is_ok), "callers that left hold no slot");
        assert!(call(&pool, bits, HERE).is_err());
    }
}

#[test]
fn job_of_a_disconnected_caller_is_not_started() {
    let pool = KeyPool::idle();
    let presence = CallerGuard::default();
    let watch = presence.watch();
    let mut watched = Box::pin(pool.generate(rsa(2048), HERE, &watch));
    assert!((&mut watched).now_or_never().is_none());
    let left = call(&pool, 2048, HERE).unwrap();
    let stays = call(&pool, 2048, THERE).unwrap();
    drop(left);
    // The caller has left, although the future that waits for the key still exists.
    drop(presence);
    assert_eq!(next(&pool, PoolLane::Small), Some(THERE));
    assert_eq!(next(&pool, PoolLane::Small), None);
    assert_eq!(watched.now_or_never().unwrap().err().unwrap().kind(), Kind::Unavailable);
    drop(stays);
}

#[cfg(target_os = "linux")]
#[test]
fn pool_threads_have_low_priority_and_end_with_last_handle() {
    let pool = KeyPool::start();
    let queue = Arc::downgrade(&pool.0.0);
    let nice = thread::spawn(|| {
        lower_priority(NICE);
        rustix::process::getpriority_process(None).unwrap()
    });
    assert_eq!(nice.join().unwrap(), NICE);
    assert!(rustix::process::getpriority_process(None).unwrap() < NICE, "this thread is not");
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
