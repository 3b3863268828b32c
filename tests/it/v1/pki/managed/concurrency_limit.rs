//! Concurrency limit of managed keys: every signature occupies a slot of its key, and each key has a maximum number of
//! slots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;
use signet::documents::MountId;
use signet::error::{Error, Result};
use signet::keys::actor::{BackendRequest, BackendResponse, BackendSession, BlockingBackend, KeyMetrics};
use signet::keys::{
    KeyBackend, KeyIdentity, KeySpec, ManagedKey, ManagedKeyLookup, ManagedKeyRef, PrivateKey, RemoteSigner,
    SignerActor, SignerLimits, Signers, SigningInput, SigningInputKind,
};
use signet::x509::algorithm::{KeyKind, SignatureAlgorithm};
use signet::x509::pem;

use super::device::REFUSAL;
use super::{accepted, issued, until, well};
use crate::support::App;
use crate::v1::pki::foreign::csr;
use crate::v1::pki::mount::{FAR, Pki, text};
use crate::v1::pki::ocsp::about;

const CALL: Duration = Duration::from_millis(5);

/// Managed keys that every mount may use; the UUID of a key is its name.
pub struct Actors(BTreeMap<String, SignerActor>);

impl Actors {
    pub fn new(actors: impl IntoIterator<Item = SignerActor>) -> Arc<Self> {
        Arc::new(Self(actors.into_iter().map(|actor| (actor.name().to_owned(), actor)).collect()))
    }

    fn find(&self, name: &str) -> Result<SignerActor> {
        self.0.get(name).cloned().ok_or_else(|| Error::invalid(REFUSAL))
    }
}

impl Signers for Actors {
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        Ok(self.find(&key.uuid)?.signer(key.identity()))
    }

    fn start_use(&self, mount: MountId, named: ManagedKeyRef) -> Result<ManagedKeyLookup> {
        let (ManagedKeyRef::Name(name) | ManagedKeyRef::Uuid(name)) = named;
        let actor = self.find(&name)?;
        let taking = async move {
            let KeyIdentity { public, locator } = actor.find_key(true).await?;
            Ok(ManagedKey { mount, uuid: name.clone(), name, public, locator })
        };
        Ok(taking.boxed())
    }
}

/// Signs after a delay, and counts.
struct Counting {
    key: PrivateKey,
    time: Duration,
    signed: AtomicUsize,
    running: AtomicUsize,
    peak: AtomicUsize,
    /// No signature completes before this many are running.
    together: AtomicUsize,
}

impl Counting {
    /// Waits for ten seconds at most, so that a test that expects too many slots fails instead of hanging.
    fn gather(&self) {
        let since = Instant::now();
        let few = || self.peak.load(Ordering::SeqCst) < self.together.load(Ordering::SeqCst);
        while few() && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl BlockingBackend for Counting {
    fn input_kind(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
        Ok(SigningInputKind::Message)
    }

    fn new_session(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
        Box::new(Place(self))
    }
}

struct Place(Arc<Counting>);

impl BackendSession for Place {
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse> {
        let BackendRequest::Sign { algorithm, input, .. } = request else {
            return Ok(BackendResponse::Key(self.0.key.public().clone().into()));
        };
        let SigningInput::Message(message) = &**input else { panic!("a message was wanted") };
        let running = self.0.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.peak.fetch_max(running, Ordering::SeqCst);
        std::thread::sleep(self.0.time);
        self.0.gather();
        let signature = self.0.key.sign(*algorithm, message);
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.signed.fetch_add(1, Ordering::SeqCst);
        signature.map(BackendResponse::Signature)
    }
}

/// Starts a server whose mount has a root with a key of `max_parallel` slots; a signature takes `time`.
async fn with_root(max_parallel: usize, time: Duration) -> (Arc<Counting>, SignerActor, Pki) {
    with_limits(max_parallel, time, SignerLimits::default()).await
}

async fn with_limits(max_parallel: usize, time: Duration, limits: SignerLimits) -> (Arc<Counting>, SignerActor, Pki) {
    let key = PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap();
    let zero = AtomicUsize::default;
    let backend = Arc::new(Counting { key, time, signed: zero(), running: zero(), peak: zero(), together: zero() });
    let actor = SignerActor::start("token", KeyBackend::Blocking(backend.clone()), max_parallel, limits);
    let app = App::builder().signers(Actors::new([actor.clone()])).start().await;
    let pki = Pki { app };
    let root = json!({ "common_name": "Root", "issuer_name": "root", "managed_key_name": "token", "not_after": FAR });
    pki.post("root/generate/kms", root).await;
    pki.role(&json!({ "allow_any_name": true })).await;
    (backend, actor, pki)
}

#[actix_web::test]
async fn stuck_key_answers_503_with_retry_after_at_once() {
    let limits = SignerLimits { call_timeout: Duration::from_secs(1), ..SignerLimits::default() };
    let (backend, actor, pki) = with_limits(2, Duration::ZERO, limits).await;
    let client = &pki.app.client;
    let issue = || client.post("pki/issue/r", json!({ "common_name": "a.test" }));
    backend.together.store(usize::MAX, Ordering::SeqCst);
    for answer in join_all([issue(), issue()]).await {
        assert_eq!(answer.status, 503);
        assert!(answer.error().contains("no response of the backend within 1 s"), "{}", answer.text);
    }
    // Both sessions hang, so no request waits.
    let rotated = client.get("pki/crl/rotate").await;
    for answer in join_all((0..50).map(|_| issue())).await.into_iter().chain([rotated]) {
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{}", answer.text);
        assert!(answer.error().contains("does not respond in any session"), "{}", answer.text);
    }
    backend.together.store(0, Ordering::SeqCst);
    until(|| backend.running.load(Ordering::SeqCst) == 0).await;
    accepted(issue().await);
    pki.stop().await;
    actor.stop(Duration::from_secs(5)).await;
}

/// Returns a CSR with an invalid signature.
fn with_wrong_signature() -> String {
    let (label, mut der) = pem::parse_first_block(&csr("ec-256", "/CN=a.test", "")).unwrap().unwrap();
    *der.last_mut().unwrap() ^= 1;
    pem::encode(&label, &der)
}

#[actix_web::test]
async fn crls_and_ocsp_responses_use_permits_like_certificates() {
    for max_parallel in [1, 3] {
        let (backend, actor, pki) = with_root(max_parallel, CALL).await;
        let client = &pki.app.client;
        pki.post("config/crl", json!({ "ocsp_expiry": "1h" })).await;
        let mut questions = Vec::new();
        for _ in 0..8 {
            let leaf = pki.ask("issue/r", json!({ "common_name": "a.test" })).await;
            questions.push(about(text(leaf.data(), "issuing_ca"), &leaf));
        }
        // No response for these certificates is cached, so each needs a signature.
        let signed = backend.signed.load(Ordering::SeqCst);
        let asking = join_all(questions.iter().map(|about| pki.ocsp(about)));
        let issuing = join_all((0..8).map(|_| client.post("pki/issue/r", json!({ "common_name": "b.test" }))));
        let listing = join_all(
            (0..8).map(|number| client.post("pki/issuer/root/sign-revocation-list", json!({ "crl_number": number }))),
        );
        let rotating = async { client.get("pki/crl/rotate").await };
        let (asked, issued, listed, rotated) = tokio::join!(asking, issuing, listing, rotating);
        asked.iter().for_each(|reply| assert_eq!(reply.statuses(), ["good"]));
        issued.into_iter().chain(listed).chain([rotated]).for_each(|answer| drop(accepted(answer)));
        // A complete CRL and its delta.
        assert_eq!(backend.signed.load(Ordering::SeqCst) - signed, 8 + 8 + 8 + 2);
        assert_eq!(backend.peak.load(Ordering::SeqCst), max_parallel);
        pki.stop().await;
        actor.stop(Duration::from_secs(5)).await;
    }
}

#[actix_web::test]
async fn concurrent_signatures_use_all_permits_and_no_more() {
    for (max_parallel, asked) in [(1, 50), (8, 128)] {
        let (backend, actor, pki) = with_root(max_parallel, CALL).await;
        let client = &pki.app.client;
        let signed = backend.signed.load(Ordering::SeqCst);
        backend.together.store(max_parallel, Ordering::SeqCst);
        let body = json!({ "common_name": "a.test" });
        let all = join_all((0..asked).map(|_| client.post("pki/issue/r", body.clone()))).await;
        all.into_iter().for_each(|answer| drop(accepted(answer)));
        assert_eq!(backend.signed.load(Ordering::SeqCst) - signed, asked);
        assert_eq!(backend.peak.load(Ordering::SeqCst), max_parallel);
        pki.stop().await;
        actor.stop(Duration::from_secs(5)).await;
    }
}

#[actix_web::test]
async fn full_signing_queue_is_503_immediately_and_stores_nothing() {
    const ASKED: usize = 40;
    const LINE: usize = 4;
    for max_parallel in [1, 8] {
        let limits = SignerLimits { queue: LINE, ..SignerLimits::default() };
        let (backend, actor, pki) = with_limits(max_parallel, CALL, limits).await;
        let client = &pki.app.client;
        well(client).await;
        let certs = pki.list("certs").await.len();
        let request = with_wrong_signature();
        let unsound = async || {
            let body = json!({ "csr": request, "common_name": "a.test" });
            let paths = ["pki/sign/r", "pki/sign-verbatim", "pki/sign-verbatim/r", "pki/root/sign-intermediate"];
            join_all(paths.map(|path| client.post(path, body.clone()))).await
        };
        // The device completes no signature until all surplus requests are rejected.
        backend.together.store(usize::MAX, Ordering::SeqCst);
        let refused = AtomicUsize::new(0);
        // Slots are filled one by one: a request that arrives while a thread starts may find the queue full.
        let backend = &backend;
        let refused = &refused;
        let flood = join_all((0..ASKED).map(|n| async move {
            until(|| backend.running.load(Ordering::SeqCst) >= n.min(max_parallel)).await;
            let answer = client.post("pki/issue/r", json!({ "common_name": "a.test" })).await;
            refused.fetch_add(usize::from(answer.status == 503), Ordering::SeqCst);
            answer
        }));
        let meanwhile = async {
            until(|| refused.load(Ordering::SeqCst) == ASKED - LINE - max_parallel).await;
            issued(client, "well").await;
            // Without capacity, requests are rejected before they are validated.
            for answer in unsound().await {
                assert_eq!(answer.status, 503, "{}", answer.text);
                assert!(answer.error().contains("the signing queue is full"), "{}", answer.text);
            }
            backend.together.store(0, Ordering::SeqCst);
        };
        let (answers, ()) = tokio::join!(flood, meanwhile);
        let (busy, done): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 503);
        for answer in busy {
            assert_eq!(answer.header("retry-after"), "1");
            assert!(answer.error().contains("the signing queue is full"), "{}", answer.text);
        }
        assert_eq!(done.len(), LINE + max_parallel);
        done.into_iter().for_each(|answer| drop(accepted(answer)));
        assert_eq!(pki.list("certs").await.len(), certs + LINE + max_parallel);
        for answer in unsound().await {
            assert!(answer.error().contains("request signature invalid"), "{}", answer.text);
        }
        assert_eq!(backend.peak.load(Ordering::SeqCst), max_parallel);
        pki.stop().await;
        actor.stop(Duration::from_secs(5)).await;
    }
}
