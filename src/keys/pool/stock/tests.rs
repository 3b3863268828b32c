use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use super::*;
use crate::error::{Error, Result};
use crate::keys::pool::{CallerWatch, KeyPool, KeyPoolTask};
use crate::telemetry;

const LONG_IDLE_TIME: Duration = Duration::from_secs(3600);

fn sizes(rsa_2048: usize, rsa_3072: usize, rsa_4096: usize) -> StockSizes {
    StockSizes { rsa_2048, rsa_3072, rsa_4096 }
}

/// Returns a cheap key instead of the requested one.
fn generate_cheap_key(_: KeySpec) -> Result<PrivateKey> {
    PrivateKey::generate(KeySpec::new("ec", 256)?)
}

/// Returns a pool without threads. For this pool the server always counts as idle, so the stock may be filled.
fn idle_pool() -> KeyPool {
    KeyPool::without_threads(|| LONG_IDLE_TIME)
}

/// Returns the numbers of ready keys of 2048, 3072 and 4096 bits.
fn ready_keys(pool: &KeyPool) -> [usize; 3] {
    pool.0.0.lock().stock.0.each_ref().map(|size_stock| size_stock.ready.len())
}

/// Polls until `done` returns `true`; returns `false` after one minute.
fn eventually(mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..12_000 {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Returns a key if the pool has one immediately.
fn generate_immediately(pool: &KeyPool, spec: KeySpec) -> Option<PrivateKey> {
    pool.generate(spec, &CallerWatch::ALWAYS).now_or_never().map(|key| key.unwrap())
}

#[test]
fn idle_pool_fills_its_stock_and_refills_it() {
    let pool = idle_pool();
    pool.start_threads(generate_cheap_key);
    assert_eq!(ready_keys(&pool), [0, 0, 0]);
    pool.resize_stock(sizes(5, 2, 1));
    assert!(eventually(|| ready_keys(&pool) == [5, 2, 1]));
    for spec in [KeySpec::RSA_2048, KeySpec::RSA_2048, KeySpec::RSA_4096] {
        assert!(generate_immediately(&pool, spec).is_some());
    }
    assert!(eventually(|| ready_keys(&pool) == [5, 2, 1]));
    // The stock does not exceed its size, even later.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(ready_keys(&pool), [5, 2, 1]);
    pool.resize_stock(sizes(1, 0, 1));
    assert_eq!(ready_keys(&pool), [1, 0, 1]);
    // Does not use `generate`, which would return a newly generated key immediately.
    assert!(pool.0.0.take_stocked(KeySpec::RSA_3072, PoolLane::Large).is_none());
}

#[test]
fn disabled_or_busy_pool_generates_no_stock() {
    static GENERATED_KEYS: AtomicUsize = AtomicUsize::new(0);
    fn counted(spec: KeySpec) -> Result<PrivateKey> {
        GENERATED_KEYS.fetch_add(1, Ordering::Relaxed);
        generate_cheap_key(spec)
    }
    let off = idle_pool();
    off.start_threads(counted);
    let busy = KeyPool::without_threads(|| Duration::from_millis(1));
    busy.start_threads(counted);
    busy.resize_stock(sizes(3, 3, 3));
    thread::sleep(Duration::from_millis(200));
    assert_eq!(GENERATED_KEYS.load(Ordering::Relaxed), 0);
    assert_eq!((ready_keys(&off), ready_keys(&busy)), ([0; 3], [0; 3]));
}

#[tokio::test]
async fn every_stocked_key_goes_to_exactly_one_caller() {
    let pool = idle_pool();
    pool.start_threads(generate_cheap_key);
    pool.resize_stock(sizes(64, 0, 0));
    assert!(eventually(|| ready_keys(&pool) == [64, 0, 0]));
    let callers = 16;
    let each = 25;
    let taken = Arc::new(Mutex::new(Vec::new()));
    let threads = (0..callers).map(|_| {
        let pool = pool.clone();
        let taken = Arc::clone(&taken);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for _ in 0..each {
                let key = runtime.block_on(pool.generate(KeySpec::RSA_2048, &CallerWatch::ALWAYS)).unwrap();
                taken.lock().unwrap().push(key.public().bits().to_vec());
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let taken = taken.lock().unwrap();
    assert_eq!((taken.len(), taken.iter().collect::<BTreeSet<_>>().len()), (callers * each, callers * each));
}

/// Starts threads that report each key that they begin. Each of the first four keys waits for a message of the test.
fn start_stepped_threads(pool: &KeyPool) -> (mpsc::Receiver<KeySpec>, Vec<mpsc::Sender<()>>) {
    let (begin, begun) = mpsc::channel();
    let (ends, waits): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<()>()).unzip();
    let waits: Vec<_> = waits.into_iter().map(Mutex::new).collect();
    let shared = Arc::new((waits, AtomicUsize::new(0)));
    pool.start_threads(move |spec| {
        let (waits, made) = &*shared;
        let n = made.fetch_add(1, Ordering::SeqCst);
        // Sending fails if the test has ended.
        let _ = begin.send(spec);
        let wait = waits.get(n).ok_or_else(|| Error::internal("the test expects at most four keys"))?;
        wait.lock().unwrap().recv().map_err(Error::internal)?;
        generate_cheap_key(spec)
    });
    (begun, ends)
}

#[tokio::test]
async fn unfinished_stock_key_goes_to_a_caller_waiting_for_its_size() {
    let pool = idle_pool();
    let (begun, ends) = start_stepped_threads(&pool);
    pool.resize_stock(sizes(1, 0, 0));
    assert!(begun.recv().unwrap() == KeySpec::RSA_2048);
    let mut call = Box::pin(pool.generate(KeySpec::RSA_2048, &CallerWatch::ALWAYS));
    assert!((&mut call).now_or_never().is_none());
    ends[0].send(()).unwrap();
    let handed = tokio::time::timeout(Duration::from_secs(20), call).await;
    assert!(handed.expect("the key lies in the stock").is_ok());
}

#[test]
fn taken_key_is_replaced_while_a_larger_one_is_generated() {
    let pool = idle_pool();
    let (begun, ends) = start_stepped_threads(&pool);
    pool.resize_stock(sizes(1, 0, 0));
    assert!(begun.recv().unwrap() == KeySpec::RSA_2048);
    ends[0].send(()).unwrap();
    assert!(eventually(|| ready_keys(&pool) == [1, 0, 0]));
    // The thread of the large lane generates a key of 3072 bits. The thread of the small lane is idle.
    pool.resize_stock(sizes(1, 1, 0));
    assert!(begun.recv().unwrap() == KeySpec::RSA_3072);
    thread::sleep(Duration::from_millis(100));
    assert!(generate_immediately(&pool, KeySpec::RSA_2048).is_some());
    let next = begun.recv_timeout(Duration::from_secs(60));
    assert!(next.expect("no request reports the missing key") == KeySpec::RSA_2048);
    ends[2].send(()).unwrap();
    assert!(eventually(|| ready_keys(&pool) == [1, 0, 0]));
}

#[test]
fn stock_wait_of_a_queued_caller_is_measured() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let pool = idle_pool();
        pool.resize_stock(sizes(1, 0, 0));
        let queue = &pool.0.0;
        assert!(matches!(queue.next_task(PoolLane::Small), Some(KeyPoolTask::FillStock(_))));
        let mut call = Box::pin(pool.generate(KeySpec::RSA_2048, &CallerWatch::ALWAYS));
        assert!((&mut call).now_or_never().is_none());
        queue.store_stock_key(KeySpec::RSA_2048, generate_cheap_key(KeySpec::RSA_2048));
        // The waiting caller got the key, so the next task generates another one.
        assert!(matches!(queue.next_task(PoolLane::Small), Some(KeyPoolTask::FillStock(_))));
        assert!(call.now_or_never().unwrap().is_ok());
    });
    let page = recorder.handle().render();
    let counted = format!("{}_count{{lane=\"small\"}} 1", telemetry::KEY_GENERATION_WAIT_SECONDS);
    assert!(page.contains(&counted), "{page}");
}

#[test]
fn filling_thread_serves_callers_after_each_key() {
    let pool = idle_pool();
    let queue = &pool.0.0;
    pool.resize_stock(sizes(3, 0, 0));
    let fills =
        |task: Option<KeyPoolTask>| matches!(task, Some(KeyPoolTask::FillStock(spec)) if spec == KeySpec::RSA_2048);
    assert!(fills(queue.next_task(PoolLane::Small)));
    let mut calls = [(); 2].map(|()| Box::pin(pool.generate(KeySpec::RSA_2048, &CallerWatch::ALWAYS)));
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    queue.store_stock_key(KeySpec::RSA_2048, generate_cheap_key(KeySpec::RSA_2048));
    let Some(KeyPoolTask::RunJob(job)) = queue.next_task(PoolLane::Small) else { panic!("the second caller is first") };
    let _ = job.answer.send(generate_cheap_key(job.spec));
    assert!(fills(queue.next_task(PoolLane::Small)));
    assert!(calls.into_iter().all(|call| call.now_or_never().unwrap().is_ok()));
}

#[test]
fn each_lane_stocks_its_own_sizes_small_keys_first() {
    let mut stock = RsaKeyStock::default();
    drop(stock.resize(sizes(1, 1, 1)));
    let mut missing = |lane| {
        let spec = stock.next_missing(lane)?;
        drop(stock.add(spec, generate_cheap_key(spec).unwrap()));
        Some(spec.kind().bits())
    };
    assert_eq!([missing(PoolLane::Small), missing(PoolLane::Small)], [Some(2048), None]);
    assert_eq!([(); 3].map(|()| missing(PoolLane::Large)), [Some(3072), Some(4096), None]);
    drop(stock.resize(sizes(0, 1, 1)));
    assert!(
        stock.add(KeySpec::RSA_2048, generate_cheap_key(KeySpec::RSA_2048).unwrap()).is_some(),
        "not wanted any more"
    );
    assert!(stock.take_key(KeySpec::new("rsa", 8192).unwrap()).is_none());
}

#[test]
fn failed_key_generation_is_retried_later_by_the_same_thread() {
    let pool = idle_pool();
    let tried = Arc::new(AtomicUsize::new(0));
    let also = Arc::clone(&tried);
    pool.start_threads(move |spec| match (also.fetch_add(1, Ordering::Relaxed), spec) {
        (0, _) => panic!("in the library"),
        (1, _) => Err(Error::internal("no randomness")),
        (_, spec) => generate_cheap_key(spec),
    });
    pool.resize_stock(sizes(1, 0, 0));
    assert!(eventually(|| tried.load(Ordering::Relaxed) > 0));
    thread::sleep(Duration::from_millis(200));
    assert!(tried.load(Ordering::Relaxed) <= 2, "again and again");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut ask = || runtime.block_on(pool.generate(KeySpec::RSA_2048, &CallerWatch::ALWAYS)).is_ok();
    assert!(eventually(&mut ask) && ask());
    pool.0.0.lock().stock_resumes_at = None;
    pool.resize_stock(sizes(1, 0, 0));
    assert!(eventually(|| ready_keys(&pool) == [1, 0, 0]));
}

/// A shutdown does not wait for keys in progress.
#[test]
fn last_handle_drops_the_stock_during_generation() {
    let pool = idle_pool();
    let (begun, ends) = start_stepped_threads(&pool);
    pool.resize_stock(sizes(2, 0, 0));
    begun.recv().unwrap();
    ends[0].send(()).unwrap();
    begun.recv().unwrap();
    let queue = Arc::clone(&pool.0.0);
    assert_eq!(ready_keys(&pool), [1, 0, 0]);
    let ended = Instant::now();
    drop(pool);
    assert!(ended.elapsed() < Duration::from_secs(20), "it waited for a key that is never made");
    assert_eq!(queue.lock().stock.0[0].ready.len(), 0);
    ends[1].send(()).unwrap();
    assert!(eventually(|| Arc::strong_count(&queue) == 1), "a thread lives on");
    assert_eq!(queue.lock().stock.0[0].ready.len(), 0, "the key that came late");
}

/// No key is handed out twice. Keys have no `Debug`, so that they cannot be logged.
#[test]
fn stocked_keys_have_their_size_and_are_distinct() {
    let pool = idle_pool();
    pool.start_threads(PrivateKey::generate);
    pool.resize_stock(sizes(2, 0, 0));
    assert!(eventually(|| ready_keys(&pool) == [2, 0, 0]));
    let keys = [(); 2].map(|()| generate_immediately(&pool, KeySpec::RSA_2048).unwrap());
    assert!(keys.iter().all(|key| key.kind() == KeySpec::RSA_2048.kind()));
    assert!(keys[0].public() != keys[1].public());
    let again = PrivateKey::from_pkcs8(keys[0].to_pkcs8().unwrap().expose()).unwrap();
    assert!(again.public() == keys[0].public());
}

/// Returns the first prime of an RSA key as the crypto library stores it: as 64-bit words, least significant first. The
/// words are complemented, so that the search does not find this copy.
#[cfg(target_os = "linux")]
fn complemented_prime(key: &PrivateKey) -> Vec<u64> {
    let (_, der) = key.to_traditional_form().unwrap();
    let mut rest = der_contents(der.expose());
    let mut number = || {
        let body = der_contents(rest);
        let length = match rest[1] {
            0x81 => usize::from(rest[2]),
            0x82 => usize::from(rest[2]) << 8 | usize::from(rest[3]),
            short => usize::from(short),
        };
        let (number, after) = body.split_at(length);
        rest = after;
        number
    };
    // RFC 8017, A.1.2: version, modulus, both exponents, the first prime.
    let prime = [(); 5].map(|()| number())[4].strip_prefix(&[0]).unwrap();
    prime.rchunks_exact(8).map(|word| !u64::from_be_bytes(word.try_into().unwrap())).collect()
}

/// A DER value without its tag and length.
#[cfg(target_os = "linux")]
fn der_contents(der: &[u8]) -> &[u8] {
    &der[if der[1] < 0x80 { 2 } else { 2 + usize::from(der[1] & 0x7F) }..]
}

/// Counts the occurrences of a complemented number in the writable memory of this process.
#[cfg(target_os = "linux")]
fn count_copies_in_memory(hidden: &[u64]) -> usize {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut buffer = vec![0_u8; 1 << 16];
    let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + (1 << 16);
    let mut found = 0;
    let mut matched = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        // Another thread may have unmapped its memory.
        if memory.seek(SeekFrom::Start(from)).is_err() {
            continue;
        }
        let mut at = from;
        while at < to {
            let wanted = usize::try_from(to - at).unwrap().min(buffer.len());
            let Ok(()) = memory.read_exact(&mut buffer[..wanted]) else { break };
            for (n, word) in buffer[..wanted].chunks_exact(8).enumerate() {
                let is_own = own.contains(&(at + n as u64 * 8));
                let next = !u64::from_le_bytes(word.try_into().unwrap()) == hidden[matched];
                matched = if next && !is_own { matched + 1 } else { 0 };
                if matched == hidden.len() {
                    (found, matched) = (found + 1, 0);
                }
            }
            at += wanted as u64;
        }
        matched = 0;
    }
    buffer.fill(0);
    found
}

#[cfg(target_os = "linux")]
#[test]
fn unused_stock_keys_are_zeroized() {
    let pool = idle_pool();
    pool.start_threads(PrivateKey::generate);
    pool.resize_stock(sizes(1, 0, 0));
    assert!(eventually(|| ready_keys(&pool) == [1, 0, 0]));
    let hidden = complemented_prime(&pool.0.0.lock().stock.0[0].ready[0]);
    assert_eq!(hidden.len(), 16);
    assert!(count_copies_in_memory(&hidden) > 0, "it is looked for in a form that it does not have");
    pool.resize_stock(StockSizes::default());
    assert_eq!(count_copies_in_memory(&hidden), 0);
}
