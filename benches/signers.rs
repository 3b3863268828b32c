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

const CALL: Duration = Duration::from_millis(2);
/// Quick to verify, because the benchmark is about the actor.
const RSA: SignatureAlgorithm = SignatureAlgorithm::RsaPkcs1(Hash::Sha256);
/// Callers per concurrent call, and signatures per caller.
const CALLERS: usize = 4;
const EACH: usize = 100;

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
    fn wants(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
        Ok(SigningInputKind::Message)
    }

    fn lane(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
        Box::new(Place(self))
    }
}

struct Place(Arc<Sleeper>);

impl BackendSession for Place {
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse> {
        let BackendRequest::Sign { .. } = request else { return Err(Error::internal("only signs")) };
        let since = Instant::now();
        let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.peak.fetch_max(inside, Ordering::SeqCst);
        std::thread::sleep(CALL);
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.0.nanos.fetch_add(since.elapsed().as_nanos() as u64, Ordering::SeqCst);
        Ok(BackendResponse::Signature(self.0.signature.clone()))
    }
}

fn message() -> Vec<u8> {
    vec![7; 700]
}

/// Signs concurrently. Returns the fraction of the upper limit that was reached, L, and the most concurrent calls.
async fn share(max_parallel: usize) -> Result<(f64, Duration, usize)> {
    let key = PrivateKey::generate(KeySpec::new("rsa", 2048)?)?;
    let signature = key.sign(RSA, &message())?;
    let (inside, peak, calls, nanos) = Default::default();
    let sleeper = Arc::new(Sleeper { key, signature, inside, peak, calls, nanos });
    let actor =
        SignerActor::start("bench", KeyBackend::Blocking(sleeper.clone()), max_parallel, SignerLimits::default());
    let signer = actor.signer(sleeper.key.public().clone().into());
    let since = Instant::now();
    let callers = (0..CALLERS * max_parallel).map(|_| async {
        for _ in 0..EACH {
            signer.sign(RSA, SigningInput::Message(message())).await?;
        }
        Ok(())
    });
    join_all(callers).await.into_iter().collect::<Result<Vec<()>>>()?;
    let elapsed = since.elapsed();
    actor.stop(Duration::from_secs(5)).await;
    let calls = sleeper.calls.load(Ordering::SeqCst) as f64;
    let each = Duration::from_nanos((sleeper.nanos.load(Ordering::SeqCst) as f64 / calls) as u64);
    let most = max_parallel as f64 / each.as_secs_f64();
    Ok((calls / elapsed.as_secs_f64() / most, each, sleeper.peak.load(Ordering::SeqCst)))
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    for max_parallel in [1, 2, 8, 32] {
        let (share, each, peak) = runtime.block_on(share(max_parallel)).expect("the double signs");
        println!(
            "max_parallel {max_parallel:>2}: {:.1} % of what is possible at {each:.2?} a call, at most {peak} inside",
            share * 100.0
        );
        assert!(peak <= max_parallel, "more calls inside than places");
    }
}
