//! One key at a cloud service, as a backend of its actor.
//!
//! The key is looked up when it is first needed, and what it was found as is pinned: a name or an alias that is
//! moved to another key meanwhile changes nothing. It is looked up anew when somebody asks for the public key, for
//! a test signature, and after the service refused to sign.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::keys::actor::{Answer, AsyncBackend, Request};
use crate::keys::signer::{Input, Wants};
use crate::keys::test_sign::TestSign;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// Octets of a message that is signed as a test.
const TEST_OCTETS: usize = 64;

/// Smallest RSA key that signs.
const MIN_RSA_BITS: u32 = 2048;

/// The calls of a service, for one key in one version of its configuration.
///
/// Their errors: `Invalid` when the key is there and is not what the configuration says, `BadGateway` when the
/// service refuses or its answer is not to be believed, `Unavailable` when it is out of reach or too busy.
pub(in crate::keys) trait Service: Send + Sync + 'static {
    /// The service, as it stands in texts.
    const NAME: &'static str;
    /// What names the key that was found, for ever.
    type Pinned: Send + Sync + 'static;

    /// Whether a key of this kind signs with an algorithm here. Asks nobody.
    ///
    /// # Errors
    /// `Invalid`, saying why not.
    fn check(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<()>;

    /// What a key of this kind signs a test with where nothing else is asked for.
    ///
    /// # Errors
    /// `Invalid` for a key that signs nothing.
    fn usual(&self, kind: KeyKind) -> Result<SignatureAlgorithm> {
        SignatureAlgorithm::for_issuer(kind, 0, false)
    }

    /// Looks the key up; `None` when there is none.
    fn find(&self) -> impl Future<Output = Result<Option<Found<Self::Pinned>>>> + Send;

    /// Makes the key, which was not there a moment ago. One that somebody else made meanwhile is left as it is.
    fn create(&self) -> impl Future<Output = Result<()>> + Send;

    /// Signs a digest; gives the signature in the form of X.509.
    fn sign(
        &self,
        pinned: &Self::Pinned,
        algorithm: SignatureAlgorithm,
        digest: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// A key that was found.
pub(in crate::keys) struct Found<P> {
    pub(in crate::keys) pinned: P,
    pub(in crate::keys) public: PublicKey,
}

/// A key at a service, in one version of its configuration.
pub(in crate::keys) struct CloudKey<S: Service> {
    service: S,
    /// Whether it may be made.
    generate: bool,
    found: Mutex<Option<Arc<Found<S::Pinned>>>>,
    /// Held by whoever looks it up or makes it.
    turn: tokio::sync::Mutex<()>,
}

impl<S: Service> CloudKey<S> {
    pub(in crate::keys) fn backend(service: S, generate: bool) -> Arc<dyn AsyncBackend> {
        Arc::new(Self { service, generate, found: Mutex::new(None), turn: tokio::sync::Mutex::new(()) })
    }

    fn pin(&self, found: Option<Arc<Found<S::Pinned>>>) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    fn pinned(&self) -> Option<Arc<Found<S::Pinned>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn find(&self) -> Result<Option<Found<S::Pinned>>> {
        let found = self.service.find().await?;
        match found.as_ref().map(|found| found.public.kind()) {
            Some(KeyKind::Rsa { bits }) if bits < MIN_RSA_BITS => {
                let text = format!("{}: the key has {bits} bits, and has to have at least {MIN_RSA_BITS}", S::NAME);
                Err(Error::invalid(text))
            }
            _ => Ok(found),
        }
    }

    /// Looks the key up now.
    async fn look(&self, create: bool) -> Result<Arc<Found<S::Pinned>>> {
        let _turn = self.turn.lock().await;
        self.pin(None);
        let mut found = self.find().await?;
        if found.is_none() && create {
            if !self.generate {
                return Err(Error::invalid("key does not exist in backend and allow_generate_key is false"));
            }
            self.service.create().await?;
            tracing::info!(service = S::NAME, "a key was generated at a cloud service");
            found = self.find().await?;
        }
        let found = Arc::new(found.ok_or_else(|| Error::invalid("key does not exist in backend"))?);
        self.pin(Some(Arc::clone(&found)));
        Ok(found)
    }

    /// As [`CloudKey::look`], making the key where it is not there. That goes on when nobody waits for it any more:
    /// a key that is half made would be nobody's.
    async fn made(self: &Arc<Self>) -> Result<Arc<Found<S::Pinned>>> {
        let own = Arc::clone(self);
        tokio::spawn(async move { own.look(true).await }).await.map_err(Error::internal)?
    }

    /// The key that signs, looked up where that has not been done. Who comes meanwhile waits for the same answer.
    async fn known(&self) -> Result<Arc<Found<S::Pinned>>> {
        if let Some(found) = self.pinned() {
            return Ok(found);
        }
        let _turn = self.turn.lock().await;
        if let Some(found) = self.pinned() {
            return Ok(found);
        }
        let missing = || Error::new(Kind::BadGateway, "the managed key is not in its backend any more");
        let found = Arc::new(self.find().await?.ok_or_else(missing)?);
        self.pin(Some(Arc::clone(&found)));
        Ok(found)
    }

    async fn sign(&self, algorithm: SignatureAlgorithm, input: &Input, key: &PublicKey) -> Result<Answer> {
        let Input::Digest(digest) = input else { return Err(Error::internal("a cloud service is given digests")) };
        let found = self.known().await.map_err(in_use)?;
        if found.public != *key {
            self.pin(None);
            return Ok(Answer::Changed);
        }
        let outcome = self.service.sign(&found.pinned, algorithm, digest).await.map_err(in_use);
        if outcome.as_ref().is_err_and(|error| error.kind() == Kind::BadGateway) {
            self.pin(None);
        }
        outcome.map(Answer::Signature)
    }

    async fn test(self: &Arc<Self>, test: TestSign) -> Result<Answer> {
        let found = self.made().await?;
        let algorithm = self.test_algorithm(found.public.kind(), test)?;
        let hash = algorithm.hash().ok_or_else(|| Error::internal("a cloud service signs digests"))?;
        let digest = hash.digest(&crate::random::bytes::<TEST_OCTETS>());
        let signature = self.service.sign(&found.pinned, algorithm, digest.as_ref()).await?;
        let verified = found.public.verify_digest(algorithm, digest.as_ref(), &signature);
        Ok(if verified.is_ok() { Answer::Tested } else { Answer::Wrong })
    }

    /// What is asked for, and what the key dictates where nothing is.
    fn test_algorithm(&self, kind: KeyKind, test: TestSign) -> Result<SignatureAlgorithm> {
        use SignatureAlgorithm::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
        let usual = self.service.usual(kind)?;
        let unsupported = || Error::invalid(format!("hash algorithm not supported by {}", S::NAME));
        let hash = match test.hash {
            Some(hash) => hash.usual(),
            None => usual.hash(),
        }
        .ok_or_else(unsupported)?;
        let algorithm = match (usual, test.use_pss) {
            (RsaPkcs1(_), None) | (RsaPkcs1(_) | RsaPss(_), Some(false)) => RsaPkcs1(hash),
            (RsaPss(_), None) | (RsaPkcs1(_) | RsaPss(_), Some(true)) => RsaPss(hash),
            (Ecdsa(_), None | Some(false)) => Ecdsa(hash),
            (Ecdsa(_) | Ed25519, _) => return Err(Error::invalid("use_pss: is for RSA keys alone")),
        };
        self.service.check(kind, algorithm)?;
        Ok(algorithm)
    }
}

/// What a key that is in use cannot be blamed on its caller for.
fn in_use(error: Error) -> Error {
    if error.kind() == Kind::Invalid { Error::new(Kind::BadGateway, error.text().to_owned()) } else { error }
}

impl<S: Service> AsyncBackend for CloudKey<S> {
    fn wants(&self, kind: KeyKind, algorithm: SignatureAlgorithm) -> Result<Wants> {
        self.service.check(kind, algorithm).map(|()| Wants::Digest)
    }

    fn call(self: Arc<Self>, request: Request) -> BoxFuture<'static, Result<Answer>> {
        async move {
            match request {
                Request::Find { create: false } => {
                    self.look(false).await.map(|found| Answer::Key(found.public.clone()))
                }
                Request::Find { create: true } => self.made().await.map(|found| Answer::Key(found.public.clone())),
                Request::Sign { algorithm, input, key } => self.sign(algorithm, &input, &key).await,
                Request::TestSign(test) => self.test(test).await,
            }
        }
        .boxed()
    }
}
