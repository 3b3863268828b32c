//! A managed key over HTTP, with a backend that sleeps two milliseconds: its utilization, rejections when the queue is
//! full, and the effect of overload and of a hanging device on another mount.
//!
//! Server and callers share this process and its cores. All figures of a part come from one run: the limits are
//! relative to the latency that the backend measured, and to the other mount's own baseline.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::clock::Clock;
use signet::documents::MountId;
use signet::error::Result;
use signet::fields::Fields;
use signet::http::settings::HttpSettings;
use signet::keys::actor::{BackendRequest, BackendResponse, BackendSession, BlockingBackend, KeyMetrics};
use signet::keys::{
    CloudSettings, KeyBackend, KeyIdentity, KeySpec, Libraries, ManagedKey, ManagedKeyLookup, ManagedKeyRef,
    PrivateKey, RemoteSigner, SignerActor, SignerLimits, Signers, SigningInput, SigningInputKind, StockSizes,
};
use signet::nodes::SKEW_LIMIT;
use signet::server::{ConnectionLimits, RunningServer, Server, ServerOptions};
use signet::storage::seal::SealKey;
use signet::storage::{self, Database};
use signet::x509::algorithm::{KeyKind, SignatureAlgorithm};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of a call of the backend.
const CALL_DURATION: Duration = Duration::from_millis(2);
/// Duration of each part.
const PART_DURATION: Duration = Duration::from_secs(20);
/// Callers per concurrent call, and queue slots per concurrent call: enough for the first part, but not for the flood
/// with its tenfold number of callers.
const CALLERS_PER_CONCURRENT_CALL: usize = 4;
/// Pause between two requests of a caller in the flood.
const FLOOD_PAUSE: Duration = Duration::from_millis(50);
const OTHER_MOUNT_CALLERS: usize = 4;
/// Pause between two requests of a caller of the other mount.
const OTHER_MOUNT_PAUSE: Duration = Duration::from_millis(5);
/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Sleeps, then signs.
struct Sleeper {
    key: PrivateKey,
    hangs: AtomicBool,
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
        let BackendRequest::Sign { algorithm, input, .. } = request else {
            return Ok(BackendResponse::Key(self.0.key.public().clone().into()));
        };
        let (SigningInput::Digest(message) | SigningInput::Message(message)) = &**input;
        let since = Instant::now();
        let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.peak.fetch_max(inside, Ordering::SeqCst);
        std::thread::sleep(CALL_DURATION);
        while self.0.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let signature = self.0.key.sign(*algorithm, message);
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.0.nanos.fetch_add(since.elapsed().as_nanos() as u64, Ordering::SeqCst);
        signature.map(BackendResponse::Signature)
    }
}

/// Provides the only key, for every mount.
struct SingleKeySigners(SignerActor);

impl Signers for SingleKeySigners {
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        Ok(self.0.signer(key.identity()))
    }

    fn start_use(&self, mount: MountId, _: ManagedKeyRef) -> Result<ManagedKeyLookup> {
        let actor = self.0.clone();
        let taking = async move {
            let KeyIdentity { public, locator } = actor.find_key(true).await?;
            Ok(ManagedKey { mount, uuid: "bench".to_owned(), name: "bench".to_owned(), public, locator })
        };
        Ok(taking.boxed())
    }
}

/// A server whose mount `pki` signs with the managed key, and whose mount `well` has its own key.
struct BenchServer {
    sleeper: Arc<Sleeper>,
    actor: SignerActor,
    running: RunningServer,
    token: String,
    _folder: tempfile::TempDir,
}

impl BenchServer {
    async fn start(max_parallel: usize) -> Result<Self> {
        let key = PrivateKey::generate(KeySpec::new("ec", 256)?)?;
        let (hangs, inside, peak, calls, nanos) = Default::default();
        let sleeper = Arc::new(Sleeper { key, hangs, inside, peak, calls, nanos });
        let limits = SignerLimits { queue: CALLERS_PER_CONCURRENT_CALL * max_parallel, ..SignerLimits::default() };
        let actor = SignerActor::start("bench", KeyBackend::Blocking(sleeper.clone()), max_parallel, limits);
        let folder = tempfile::tempdir().expect("a folder");
        let seal_key = SealKey::create_file(&folder.path().join("seal.key"))?;
        let database = Database::Embedded(folder.path().to_owned());
        let clock = Clock::system();
        let server = Server::open(ServerOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            metrics_listen: None,
            public_listen: None,
            workers: 0,
            connections: ConnectionLimits::default(),
            clock: clock.clone(),
            storage: storage::StorageOptions {
                database,
                seal_key,
                clock,
                commit_queue: 4096,
                if_missing: storage::IfMissing::Create,
            },
            pkcs11_libraries: Libraries::default(),
            cloud: CloudSettings::default(),
            logins: signet::auth::LoginSettings::default(),
            signers: Some(Arc::new(SingleKeySigners(actor.clone()))),
            rsa_key_stock: StockSizes::default(),
            settings: HttpSettings { max_duration: REQUEST_TIMEOUT, ..HttpSettings::default() },
            audit: Vec::new(),
            in_process_audit_devices: Vec::new(),
            skew_limit: SKEW_LIMIT,
            store_probe_interval: signet::server::STORE_PROBE_INTERVAL,
        })
        .await?;
        let shared = server.shared().clone();
        let token = shared.auth.root_token(None, "bench").await?;
        for mount in ["pki", "well"] {
            shared.mounts.enable(mount, &Fields::parse(br#"{"type":"pki"}"#)?).await?;
        }
        let running = server.start().await?;
        let server = Self { sleeper, actor, running, token, _folder: folder };
        let mut caller = Caller::to(server.running.address(), server.token.clone()).await;
        let far = "2099-12-31T23:59:59Z";
        let managed = json!({ "common_name": "Managed", "managed_key_name": "bench", "not_after": far });
        caller.post_expecting_success("pki/root/generate/kms", &managed).await;
        let own = json!({ "common_name": "Own", "key_type": "ec", "not_after": far });
        caller.post_expecting_success("well/root/generate/internal", &own).await;
        for mount in ["pki", "well"] {
            let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" });
            caller.post_expecting_success(&format!("{mount}/roles/r"), &role).await;
        }
        Ok(server)
    }

    /// Runs callers of a mount on their own thread, see [`calls`].
    async fn calls(&self, mount: &'static str, callers: usize, pause: Duration) -> Vec<(u16, Duration)> {
        let (address, token) = (self.running.address(), self.token.clone());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name(format!("call-{mount}"))
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                let _ = sender.send(runtime.block_on(calls(address, token, mount, callers, pause)));
            })
            .expect("a thread");
        receiver.await.expect("the callers end")
    }

    async fn others(&self) -> Times {
        let responses = self.calls("well", OTHER_MOUNT_CALLERS, OTHER_MOUNT_PAUSE).await;
        assert!(responses.iter().all(|(status, _)| *status == 200), "the other mount issues");
        Times::of(&responses)
    }

    async fn stop(self) -> Result<()> {
        self.running.stop().await?;
        self.actor.stop(Duration::from_secs(5)).await;
        Ok(())
    }
}

/// A persistent connection.
struct Caller {
    socket: TcpStream,
    address: SocketAddr,
    token: String,
    answer: Vec<u8>,
}

/// Runs concurrent callers that issue certificates in a mount for the time of a part, with a pause after each request.
/// Returns status and duration of each request.
async fn calls(
    address: SocketAddr,
    token: String,
    mount: &str,
    callers: usize,
    pause: Duration,
) -> Vec<(u16, Duration)> {
    // The starts are spread over one pause, so that callers do not begin simultaneously.
    let token = &token;
    let one = |n: usize| async move {
        tokio::time::sleep(pause.mul_f64(n as f64 / callers as f64)).await;
        let (mut caller, mut responses) = (Caller::to(address, token.clone()).await, Vec::new());
        let (path, body) = (format!("{mount}/issue/r"), json!({ "common_name": "a.test" }));
        let until = Instant::now() + PART_DURATION;
        while Instant::now() < until {
            let since = Instant::now();
            responses.push((caller.post(&path, &body).await, since.elapsed()));
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        responses
    };
    join_all((0..callers).map(one)).await.concat()
}

impl Caller {
    async fn to(address: SocketAddr, token: String) -> Self {
        let socket = TcpStream::connect(address).await.expect("the server takes connections");
        socket.set_nodelay(true).expect("no delay");
        Self { socket, address, token, answer: Vec::new() }
    }

    /// Sends a POST request, reads the whole response and returns its status.
    async fn post(&mut self, path: &str, body: &Value) -> u16 {
        let (body, address, token) = (body.to_string(), self.address, &self.token);
        let length = body.len();
        let request = format!(
            "POST /v1/{path} HTTP/1.1\r\nHost: {address}\r\nX-Service-Token: {token}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.socket.write_all(request.as_bytes()).await.expect("the request is sent");
        self.answer.clear();
        loop {
            assert!(self.socket.read_buf(&mut self.answer).await.expect("the answer is read") > 0, "the server left");
            if let Some(status) = complete_response_status(&self.answer) {
                return status;
            }
        }
    }

    async fn post_expecting_success(&mut self, path: &str, body: &Value) {
        let status = self.post(path, body).await;
        assert!(matches!(status, 200 | 204), "{path}: {status}: {}", String::from_utf8_lossy(&self.answer));
    }
}

/// Returns the status once a response is complete; the responses of this server have a length.
fn complete_response_status(answer: &[u8]) -> Option<u16> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    (status == 204 || answer.len() >= end + length.unwrap_or(0)).then_some(status)
}

/// Sorted response times.
struct Times(Vec<Duration>);

impl Times {
    fn of(responses: &[(u16, Duration)]) -> Self {
        let mut times: Vec<Duration> = responses.iter().map(|(_, time)| *time).collect();
        times.sort_unstable();
        Self(times)
    }

    fn percentile(&self, percent: usize) -> Duration {
        self.0.get(self.0.len() * percent / 100).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [half, most, nearly] = [50, 95, 99].map(|percent| self.percentile(percent));
        write!(f, "p50 {half:.1?}, p95 {most:.1?}, p99 {nearly:.1?}")
    }
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}

async fn throughput(server: &BenchServer, max_parallel: usize) -> f64 {
    let figures = || (server.sleeper.calls.load(Ordering::SeqCst), server.sleeper.nanos.load(Ordering::SeqCst));
    let ((calls, nanos), since) = (figures(), Instant::now());
    let responses = server.calls("pki", CALLERS_PER_CONCURRENT_CALL * max_parallel, Duration::ZERO).await;
    let (elapsed, (more, longer)) = (since.elapsed(), figures());
    assert!(responses.iter().all(|(status, _)| *status == 200), "all requests succeed");
    let each = (longer - nanos) as f64 / (more - calls) as f64 / 1e9;
    let share = (more - calls) as f64 / elapsed.as_secs_f64() / (max_parallel as f64 / each);
    println!(
        "max_parallel {max_parallel}: {:.0} signatures/s, {:.1} % of N/L at L = {:.2} ms, at most {} concurrent calls: {}",
        (more - calls) as f64 / elapsed.as_secs_f64(),
        share * 100.0,
        each * 1e3,
        server.sleeper.peak.load(Ordering::SeqCst),
        verdict(share >= 0.95)
    );
    share
}

/// Runs ten times as many callers as before, next to another mount. First measures that mount alone, and next to as
/// many callers as fit, to separate the effect of the key's use from that of the flood.
async fn flood(server: &BenchServer, max_parallel: usize) {
    let alone = server.others().await;
    let (_, used) =
        tokio::join!(server.calls("pki", CALLERS_PER_CONCURRENT_CALL * max_parallel, Duration::ZERO), server.others());
    let flood = server.calls("pki", 10 * CALLERS_PER_CONCURRENT_CALL * max_parallel, FLOOD_PAUSE);
    let (responses, during) = tokio::join!(flood, server.others());
    let busy: Vec<_> = responses.iter().copied().filter(|(status, _)| *status == 503).collect();
    let late = Times::of(&busy).percentile(99);
    println!(
        "  flood: {:.0} requests/s, {} signed, {} busy, p99 of busy {late:.1?}: {}",
        responses.len() as f64 / PART_DURATION.as_secs_f64(),
        responses.len() - busy.len(),
        busy.len(),
        verdict(!busy.is_empty() && late < Duration::from_millis(50)),
    );
    println!("  other mount during full use {used}");
    compare(&alone, &during);
}

fn compare(alone: &Times, during: &Times) {
    let holds = during.percentile(99) <= alone.percentile(99) * 2;
    println!("  other mount alone {alone}, during {during}: {}", verdict(holds));
}

/// Runs callers of a hanging device, next to another mount.
async fn hanging(server: &BenchServer, max_parallel: usize) {
    let alone = server.others().await;
    server.sleeper.hangs.store(true, Ordering::SeqCst);
    let hanging_calls = server.calls("pki", CALLERS_PER_CONCURRENT_CALL * max_parallel, FLOOD_PAUSE);
    let (responses, during) = tokio::join!(hanging_calls, server.others());
    server.sleeper.hangs.store(false, Ordering::SeqCst);
    let longest = responses.iter().map(|(_, time)| *time).max().unwrap_or_default();
    let refused = responses.iter().all(|(status, _)| *status == 503);
    println!(
        "  hanging: {} refused, the last after {longest:.2?} of {REQUEST_TIMEOUT:?}: {}",
        responses.len(),
        verdict(refused && longest < REQUEST_TIMEOUT + Duration::from_millis(500)),
    );
    compare(&alone, &during);
}

fn main() {
    actix_rt::System::new().block_on(async {
        for max_parallel in [1, 8] {
            let server = BenchServer::start(max_parallel).await.expect("a server starts");
            throughput(&server, max_parallel).await;
            flood(&server, max_parallel).await;
            hanging(&server, max_parallel).await;
            let peak = server.sleeper.peak.load(Ordering::SeqCst);
            assert!(peak <= max_parallel, "more concurrent calls than max_parallel");
            server.stop().await.expect("the server stops");
        }
    });
}
