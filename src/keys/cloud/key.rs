//! One key at a cloud service, as the backend of its actor.
//!
//! A name or alias may later refer to another key or version. A key in use keeps signing under its permanent identifier
//! ([`KeyIdentity::locator`]) as long as the service accepts that, also after a restart or a change of the
//! configuration. The name is resolved when a mount starts to use the key, for a test signature, for a key without a
//! locator, and after the service refuses to sign. Concurrent lookups share one request, and signatures do not wait for
//! them.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use super::pinned_keys::PinnedKeys;
use crate::error::{Error, Kind, Result};
use crate::keys::actor::{AsyncBackend, BackendRequest, BackendResponse};
use crate::keys::signer::{KeyIdentity, SigningInput, SigningInputKind};
use crate::keys::store::PendingKeys;
use crate::keys::test_sign::TestSign;
use crate::rationing::QueueCaller;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};

/// Size of the random message of a test signature, in bytes.
const TEST_MESSAGE_BYTES: usize = 64;

const MIN_RSA_BITS: u32 = 2048;

/// Maximum time for which a newly generated key is looked up until it is found. The services are eventually consistent.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_LOOKUP_PAUSE: Duration = Duration::from_millis(100);
const MAX_LOOKUP_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that a service can request (`Retry-After`); longer ones are capped.
const MAX_SERVICE_PAUSE: Duration = Duration::from_secs(300);

/// Calls to a service for one key, in one version of its configuration.
///
/// Errors: `Invalid` when the key does not match the configuration; `BadGateway` when the service refuses or its
/// response is not plausible; `Unavailable` when it is unreachable or overloaded.
pub(in crate::keys) trait CloudKeyService: Send + Sync + 'static {
    /// Name of the service in messages.
    const NAME: &'static str;
    /// Checks that a key of this kind signs with an algorithm. Makes no request.
    ///
    /// # Errors
    /// `Invalid`, with the reason.
    fn check_algorithm(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<()>;

    /// The default algorithm of a test signature with a key of this kind.
    ///
    /// # Errors
    /// `Invalid` for a key that signs nothing.
    fn default_test_algorithm(&self, kind: KeyKind) -> Result<SignatureAlgorithm> {
        SignatureAlgorithm::for_issuer(kind, 0, false)
    }

    fn find_key(&self) -> impl Future<Output = Result<Option<KeyIdentity>>> + Send;

    /// Generates the key after a lookup did not find it. A key that exists by now is not changed.
    fn create_key(&self) -> impl Future<Output = Result<()>> + Send;

    /// Signs a digest with the key that `locator` identifies. Returns the signature in the encoding of X.509.
    fn sign(
        &self,
        locator: &str,
        algorithm: SignatureAlgorithm,
        digest: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// A lookup that concurrent callers share.
type SharedLookup = BoxFuture<'static, Result<Option<Arc<KeyIdentity>>>>;

pub(in crate::keys) struct CloudKey<S: CloudKeyService> {
    service: S,
    /// `true` if a missing key may be generated.
    may_generate: bool,
    pinned_keys: Mutex<PinnedKeys>,
    running_lookup: Mutex<Option<WeakShared<SharedLookup>>>,
    /// Held while a key is generated.
    generation_lock: tokio::sync::Mutex<()>,
    /// The record of generated keys that the service does not list yet, and the location of this key in it. While this
    /// is unset, other nodes and configurations do not know of the generated key.
    pending: OnceLock<(Arc<dyn PendingKeys>, String)>,
    /// `true` if this key was generated and the service may not list it yet.
    is_pending: AtomicBool,
    paused_until: Mutex<Option<Instant>>,
}

impl<S: CloudKeyService> CloudKey<S> {
    pub(in crate::keys) fn backend(service: S, generate: bool) -> Arc<dyn AsyncBackend> {
        Arc::new(Self {
            service,
            may_generate: generate,
            pinned_keys: Mutex::default(),
            running_lookup: Mutex::default(),
            generation_lock: tokio::sync::Mutex::default(),
            pending: OnceLock::new(),
            is_pending: AtomicBool::new(false),
            paused_until: Mutex::default(),
        })
    }

    fn pinned_keys(&self) -> MutexGuard<'_, PinnedKeys> {
        self.pinned_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the key to which the configured name refers now.
    async fn resolve_name(&self) -> Result<Option<Arc<KeyIdentity>>> {
        let Some(found) = self.service.find_key().await?.map(Arc::new) else { return Ok(None) };
        if let KeyKind::Rsa { bits: bits @ ..MIN_RSA_BITS } = found.public.kind() {
            let text = format!("{}: the key has {bits} bits, but must have at least {MIN_RSA_BITS}", S::NAME);
            return Err(Error::invalid(text));
        }
        if self.pinned_keys().record_lookup(Arc::clone(&found)) {
            let text = "the name of a managed key now refers to another key; mounts keep using the previous key";
            tracing::warn!(service = S::NAME, "{text}");
        }
        Ok(Some(found))
    }

    /// As [`CloudKey::resolve_name`], but joins a lookup in progress. The shared lookup is dropped when no caller waits
    /// for it.
    async fn find_shared(self: &Arc<Self>) -> Result<Option<Arc<KeyIdentity>>> {
        self.shared_lookup().await
    }

    fn shared_lookup(self: &Arc<Self>) -> Shared<SharedLookup> {
        let mut running_lookup = self.running_lookup.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = running_lookup.as_ref().and_then(WeakShared::upgrade).filter(|lookup| lookup.peek().is_none());
        under_way.unwrap_or_else(|| {
            let this = Arc::clone(self);
            // Without `catch_unwind`, a panic would affect all callers that share the lookup, and all later ones.
            let lookup = AssertUnwindSafe(async move { this.resolve_name().await }).catch_unwind();
            let lookup = lookup
                .map(|found| found.unwrap_or_else(|_| Err(Error::internal("the lookup of a managed key panicked"))));
            let lookup = lookup.boxed().shared();
            *running_lookup = lookup.downgrade();
            lookup
        })
    }

    /// Returns the key to which the name refers now; generates a missing key. The generation continues if the caller
    /// leaves, because an interrupted one would leave a key of unknown state.
    async fn find_or_generate(self: &Arc<Self>) -> Result<Arc<KeyIdentity>> {
        if let Some(found) = self.find_shared().await? {
            if self.is_pending.load(Ordering::Relaxed) {
                self.remove_pending().await;
            }
            return Ok(found);
        }
        if !self.may_generate {
            return Err(Error::invalid("key does not exist in backend and allow_generate_key is false"));
        }
        let this = Arc::clone(self);
        let caller = QueueCaller::current().must_run();
        tokio::spawn(caller.scope(async move { this.generate_key().await })).await.map_err(Error::internal)?
    }

    async fn generate_key(&self) -> Result<Arc<KeyIdentity>> {
        let _one_at_a_time = self.generation_lock.lock().await;
        if let Some(found) = self.resolve_name().await? {
            self.remove_pending().await;
            return Ok(found);
        }
        if !self.record_pending().await? {
            return Err(not_visible_error::<S>());
        }
        if let Err(error) = self.service.create_key().await {
            self.remove_pending().await;
            return Err(error);
        }
        tracing::info!(service = S::NAME, "a key was generated at a cloud service");
        let found = self.wait_until_visible().await?;
        self.remove_pending().await;
        Ok(found)
    }

    /// Records that the key is being generated. Returns `false` if some node or configuration has generated it already
    /// and the service does not list it yet.
    async fn record_pending(&self) -> Result<bool> {
        let was_pending = self.is_pending.swap(true, Ordering::Relaxed);
        match self.pending.get() {
            Some((pending, location)) => pending.record_generation(location).await,
            None => Ok(!was_pending),
        }
    }

    async fn remove_pending(&self) {
        self.is_pending.store(false, Ordering::Relaxed);
        if let Some((pending, location)) = self.pending.get() {
            pending.remove_record(location).await;
        }
    }

    async fn wait_until_visible(&self) -> Result<Arc<KeyIdentity>> {
        let begun = Instant::now();
        let mut pause = FIRST_LOOKUP_PAUSE;
        loop {
            let failure = match self.resolve_name().await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => not_visible_error::<S>(),
                Err(error) if error.kind() == Kind::Unavailable => error,
                Err(error) => return Err(error),
            };
            if begun.elapsed() + pause > VISIBILITY_TIMEOUT
                || failure.retry_after().is_some_and(|pause| pause > MAX_LOOKUP_PAUSE)
            {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_LOOKUP_PAUSE);
        }
    }

    /// Rejects a call during the pause that the service requested.
    ///
    /// # Errors
    /// `Unavailable`, with the remaining pause.
    fn check_pause(&self) -> Result<()> {
        let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
        if left.is_zero() {
            return Ok(());
        }
        let seconds = left.as_millis().div_ceil(1000);
        let text = format!("{}: the service requested a pause; retry in {seconds} s", S::NAME);
        Err(Error::new(Kind::Unavailable, text).with_retry_after(left))
    }

    /// Stores the pause that the service requested with an error.
    fn store_pause(&self, error: &Error) {
        if let Some(pause) = error.retry_after() {
            let until = Instant::now().checked_add(pause.min(MAX_SERVICE_PAUSE));
            let mut paused_until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
            *paused_until = (*paused_until).max(until);
        }
    }

    /// Returns the identity with which the service signs for `key`. The flag is `true` if the name now refers to
    /// another key and the recorded locator of `key` is used. Returns `None` if the name refers to another key and
    /// `key` has no locator.
    async fn resolve_signing_key(self: &Arc<Self>, key: &KeyIdentity) -> Result<Option<(Arc<KeyIdentity>, bool)>> {
        if let Some(pinned) = self.pinned_keys().signing_identity(key) {
            return Ok(Some((pinned, false)));
        }
        let gone = || Error::new(Kind::BadGateway, "the managed key no longer exists in its backend");
        let found = self.find_shared().await?.ok_or_else(gone)?;
        if found.public == key.public {
            return Ok(Some((found, false)));
        }
        Ok(self.pinned_keys().use_recorded_locator(key).map(|recorded| (recorded, true)))
    }

    async fn sign(
        self: &Arc<Self>,
        algorithm: SignatureAlgorithm,
        input: &SigningInput,
        key: &KeyIdentity,
    ) -> Result<BackendResponse> {
        let SigningInput::Digest(digest) = input else {
            return Err(Error::internal("a cloud service signs digests, not messages"));
        };
        let resolved = self.resolve_signing_key(key).await.map_err(to_gateway_error)?;
        let Some((known, is_replaced)) = resolved else { return Ok(BackendResponse::KeyChanged) };
        match self.service.sign(&known.locator, algorithm, digest).await.map_err(to_gateway_error) {
            Err(error) if error.kind() == Kind::BadGateway => {
                self.pinned_keys().remove_refused(&known);
                if is_replaced {
                    return Ok(BackendResponse::KeyChanged);
                }
                // The service refused the known locator, but the name may lead to the same key under another locator.
                match self.find_shared().await {
                    Ok(Some(found)) if found.public == key.public && found.locator != known.locator => self
                        .service
                        .sign(&found.locator, algorithm, digest)
                        .await
                        .map_err(to_gateway_error)
                        .map(BackendResponse::Signature),
                    _ => Err(error),
                }
            }
            outcome => outcome.map(BackendResponse::Signature),
        }
    }

    async fn make_test_signature(self: &Arc<Self>, test: TestSign) -> Result<BackendResponse> {
        let found = self.find_or_generate().await?;
        let algorithm = self.test_algorithm(found.public.kind(), test)?;
        let hash = algorithm.hash().ok_or_else(|| Error::internal("a cloud service signs digests, not messages"))?;
        let digest = hash.digest(&crate::random::bytes::<TEST_MESSAGE_BYTES>());
        let signature = self.service.sign(&found.locator, algorithm, digest.as_ref()).await?;
        let verified = found.public.verify_digest(algorithm, digest.as_ref(), &signature);
        Ok(if verified.is_ok() { BackendResponse::TestPassed } else { BackendResponse::TestFailed })
    }

    /// Returns the algorithm of a test signature. The key determines whatever the request omits.
    fn test_algorithm(&self, kind: KeyKind, test: TestSign) -> Result<SignatureAlgorithm> {
        use SignatureAlgorithm::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
        let usual = self.service.default_test_algorithm(kind)?;
        let unsupported = || Error::invalid(format!("hash algorithm not supported by {}", S::NAME));
        let hash = match test.hash {
            Some(hash) => hash.as_signature_hash(),
            None => usual.hash(),
        }
        .ok_or_else(unsupported)?;
        let algorithm = match (usual, test.use_pss) {
            (RsaPkcs1(_), None) | (RsaPkcs1(_) | RsaPss(_), Some(false)) => RsaPkcs1(hash),
            (RsaPss(_), None) | (RsaPkcs1(_) | RsaPss(_), Some(true)) => RsaPss(hash),
            (Ecdsa(_), None | Some(false)) => Ecdsa(hash),
            (Ecdsa(_) | Ed25519, _) => return Err(Error::invalid("use_pss: only for RSA keys")),
        };
        self.service.check_algorithm(kind, algorithm)?;
        Ok(algorithm)
    }
}

fn not_visible_error<S: CloudKeyService>() -> Error {
    Error::new(Kind::Unavailable, format!("{}: the generated key is not visible yet; retry shortly", S::NAME))
}

fn missing_key_error() -> Error {
    Error::invalid("key does not exist in backend")
}

/// Converts `Invalid` to `BadGateway`, because a caller that requests a signature cannot fix the configuration of the
/// key.
fn to_gateway_error(error: Error) -> Error {
    if error.kind() == Kind::Invalid { Error::new(Kind::BadGateway, error.text().to_owned()) } else { error }
}

impl<S: CloudKeyService> AsyncBackend for CloudKey<S> {
    fn share_pending(&self, pending: Arc<dyn PendingKeys>, location: String) {
        let _ = self.pending.set((pending, location));
    }

    fn input_kind(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<SigningInputKind> {
        self.service.check_algorithm(kind, algorithm).map(|()| SigningInputKind::Digest)
    }

    fn call(self: Arc<Self>, request: BackendRequest) -> BoxFuture<'static, Result<BackendResponse>> {
        async move {
            self.check_pause()?;
            let answer = self.process(request).await;
            answer.inspect_err(|error| self.store_pause(error))
        }
        .boxed()
    }
}

impl<S: CloudKeyService> CloudKey<S> {
    async fn process(self: &Arc<Self>, request: BackendRequest) -> Result<BackendResponse> {
        match request {
            BackendRequest::Find { create: false } => {
                let found = self.find_shared().await?.ok_or_else(missing_key_error)?;
                Ok(BackendResponse::Key(KeyIdentity::clone(&found)))
            }
            BackendRequest::Find { create: true } => {
                self.find_or_generate().await.map(|found| BackendResponse::Key(KeyIdentity::clone(&found)))
            }
            BackendRequest::Sign { algorithm, input, key } => self.sign(algorithm, &input, &key).await,
            BackendRequest::TestSign(test) => self.make_test_signature(test).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use aws_lc_rs::digest::{Digest, SHA256};
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::keys::actor::{KeyBackend, SignerActor, SignerLimits};
    use crate::keys::local::{KeySpec, PrivateKey};
    use crate::x509::algorithm::Hash;

    /// A service that signs immediately, and answers lookups when the test allows it.
    struct SlowCloudService {
        key: PrivateKey,
        answers: Arc<Semaphore>,
        lookups: Arc<AtomicUsize>,
    }

    impl CloudKeyService for SlowCloudService {
        const NAME: &'static str = "slow";

        fn check_algorithm(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<()> {
            Ok(())
        }

        async fn find_key(&self) -> Result<Option<KeyIdentity>> {
            self.lookups.fetch_add(1, Ordering::SeqCst);
            let answer = self.answers.acquire().await.unwrap();
            answer.forget();
            Ok(Some(self.key.public().clone().into()))
        }

        async fn create_key(&self) -> Result<()> {
            unreachable!("the key is there")
        }

        async fn sign(&self, _: &str, _: SignatureAlgorithm, digest: &[u8]) -> Result<Vec<u8>> {
            let pair =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, self.key.to_pkcs8()?.expose()).unwrap();
            let digest = Digest::import_less_safe(digest, &SHA256).unwrap();
            Ok(pair.sign_digest(&digest).unwrap().as_ref().to_vec())
        }
    }

    const P256: SignatureAlgorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);

    #[tokio::test]
    async fn signing_never_waits_for_lookups_and_lookups_are_shared() {
        let key = PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap();
        let answers = Arc::new(Semaphore::new(1));
        let lookups = Arc::new(AtomicUsize::new(0));
        let slow = SlowCloudService { key, answers: Arc::clone(&answers), lookups: Arc::clone(&lookups) };
        let backend = KeyBackend::Async(CloudKey::backend(slow, true));
        let actor = SignerActor::start("key", backend, 4, SignerLimits::default());
        let signer = actor.signer(actor.find_key(true).await.unwrap());
        let tests: Vec<_> = (0..30)
            .map(|_| {
                let actor = actor.clone();
                tokio::spawn(async move { actor.test_sign(TestSign::default()).await })
            })
            .collect();
        while lookups.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            let input = SigningInput::Digest(vec![7; 32]);
            let signed = tokio::time::timeout(Duration::from_secs(10), signer.sign(P256, input)).await;
            assert!(signed.unwrap().is_ok());
        }
        assert_eq!(lookups.load(Ordering::SeqCst), 2, "concurrent requests share a lookup");
        answers.add_permits(100);
        for test in tests {
            test.await.unwrap().unwrap();
        }
    }
}
