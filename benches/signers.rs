//! Utilization of a managed key's actor, with a backend that sleeps two milliseconds. If a call takes L, as measured by
//! the backend, `max_parallel / L` signatures per second are the upper limit. The actor must reach 95 % of it and never
//! exceed `max_parallel` concurrent calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use signet::error::{Error, Result};
use signet::keys::actor::{BackendRequest, BackendResponse, BackendSession, BlockingBackend, KeyMetrics};
use signet::keys::{KeyBackend, KeySpec, PrivateKey, SignerActor, SignerLimits, SigningInput, SigningInputKind};
use signet::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of a call of the backend.
const CALL_DURATION: Duration = Duration::from_millis(2);
/// Quick to verify, because the benchmark is about the actor.
const RSA: SignatureAlgorithm = SignatureAlgorithm::RsaPkcs1(Hash::Sha256);
const CALLERS_PER_CONCURRENT_CALL: usize = 4;
const SIGNATURES_PER_CALLER: usize = 100;

/// Sleeps and returns a precomputed signature of the only message.
struct Sleeper {
    key: PrivateKey,
    signature: Vec<u8>,
    inside: AtomicUsize,
    peak: AtomicUsize,
    calls: AtomicU64,
    nanos: AtomicU64,
}

impl BlockingBackend for Sleeper {
    fn input_kind(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
        Ok(SigningInputKind::Message)
    }

    fn new_session(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
        Box::new(SleeperSession(self))
    }
}

struct SleeperSession(Arc<Sleeper>);

impl BackendSession for SleeperSession {
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse> {
        let BackendRequest::Sign { .. } = request else { return Err(Error::internal("the benchmark only signs")) };
        let since = Instant::now();
        let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.peak.fetch_max(inside, Ordering::SeqCst);
        std::thread::sleep(CALL_DURATION);
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.0.nanos.fetch_add(since.elapsed().as_nanos() as u64, Ordering::SeqCst);
        Ok(BackendResponse::Signature(self.0.signature.clone()))
    }
}

fn message() -> Vec<u8> {
    vec![7; 700]
}

/// The result of one run.
struct Utilization {
    /// Fraction of the upper limit that was reached.
    fraction: f64,
    /// Average duration of a call.
    call: Duration,
    peak_concurrent_calls: usize,
}

async fn measure_utilization(max_parallel: usize) -> Result<Utilization> {
    let key = PrivateKey::generate(KeySpec::new("rsa", 2048)?)?;
    let signature = key.sign(RSA, &message())?;
    let (inside, peak, calls, nanos) = Default::default();
    let sleeper = Arc::new(Sleeper { key, signature, inside, peak, calls, nanos });
    let actor =
        SignerActor::start("bench", KeyBackend::Blocking(sleeper.clone()), max_parallel, SignerLimits::default());
    let signer = actor.signer(sleeper.key.public().clone().into());
    let since = Instant::now();
    let callers = (0..CALLERS_PER_CONCURRENT_CALL * max_parallel).map(|_| async {
        for _ in 0..SIGNATURES_PER_CALLER {
            signer.sign(RSA, SigningInput::Message(message())).await?;
        }
        Ok(())
    });
    join_all(callers).await.into_iter().collect::<Result<Vec<()>>>()?;
    let elapsed = since.elapsed();
    actor.stop(Duration::from_secs(5)).await;
    let calls = sleeper.calls.load(Ordering::SeqCst) as f64;
    let call = Duration::from_nanos((sleeper.nanos.load(Ordering::SeqCst) as f64 / calls) as u64);
    let upper_limit = max_parallel as f64 / call.as_secs_f64();
    let fraction = calls / elapsed.as_secs_f64() / upper_limit;
    Ok(Utilization { fraction, call, peak_concurrent_calls: sleeper.peak.load(Ordering::SeqCst) })
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    for max_parallel in [1, 2, 8, 32] {
        let measured = runtime.block_on(measure_utilization(max_parallel)).expect("the backend signs");
        let Utilization { fraction, call, peak_concurrent_calls } = measured;
        println!(
            "max_parallel {max_parallel:>2}: {:.1} % of the upper limit at {call:.2?} a call, at most \
             {peak_concurrent_calls} concurrent calls",
            fraction * 100.0
        );
        assert!(peak_concurrent_calls <= max_parallel, "more concurrent calls than max_parallel");
    }
}
