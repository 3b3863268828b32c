//! A local key behind the interface of a remote one, which passes the suite.

use std::sync::{Arc, Mutex};

use signet::error::{Error, Result};
use signet::keys::actor::{BackendRequest, BackendResponse, BackendSession, BlockingBackend, KeyMetrics};
use signet::keys::{
    KeyBackend, KeySpec, PrivateKey, SignerActor, SignerLimits, SigningInput, SigningInputKind, TestHash, TestSign,
};
use signet::x509::algorithm::{Curve, KeyKind, SignatureAlgorithm};

use super::contract::{Subject, holds, usual};

/// The key, once it exists.
type Store = Arc<Mutex<Option<PrivateKey>>>;

struct Double {
    store: Store,
    generate: Option<KeySpec>,
}

impl BlockingBackend for Double {
    fn input_kind(&self, _: KeyKind, _: SignatureAlgorithm) -> Result<SigningInputKind> {
        Ok(SigningInputKind::Message)
    }

    fn new_session(self: Arc<Self>, _: KeyMetrics) -> Box<dyn BackendSession> {
        Box::new(Place(self))
    }
}

struct Place(Arc<Double>);

impl BackendSession for Place {
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse> {
        let mut store = self.0.store.lock().unwrap();
        let create = matches!(request, BackendRequest::Find { create: true } | BackendRequest::TestSign(_));
        match (store.is_none(), create, self.0.generate) {
            (true, true, Some(spec)) => *store = Some(PrivateKey::generate(spec)?),
            (true, true, None) => {
                return Err(Error::invalid("key does not exist in backend and allow_generate_key is false"));
            }
            _ => {}
        }
        let key = store.as_ref().ok_or_else(|| Error::invalid("key does not exist in backend"))?;
        match request {
            BackendRequest::Find { .. } => Ok(BackendResponse::Key(key.public().clone().into())),
            BackendRequest::Sign { key: wanted, .. } if wanted.public != *key.public() => {
                Ok(BackendResponse::KeyChanged)
            }
            BackendRequest::Sign { algorithm, input, .. } => {
                let (SigningInput::Digest(message) | SigningInput::Message(message)) = &**input;
                key.sign(*algorithm, message).map(BackendResponse::Signature)
            }
            BackendRequest::TestSign(test) => tested(key, *test),
        }
    }
}

fn tested(key: &PrivateKey, test: TestSign) -> Result<BackendResponse> {
    let hash =
        test.hash.unwrap_or(TestHash::Sha256).as_signature_hash().ok_or_else(|| Error::invalid("hash_algorithm"))?;
    let algorithm = match (key.kind(), test.use_pss) {
        (KeyKind::Rsa { .. }, Some(true)) => SignatureAlgorithm::RsaPss(hash),
        (KeyKind::Rsa { .. }, _) => SignatureAlgorithm::RsaPkcs1(hash),
        (_, Some(true)) => return Err(Error::invalid("use_pss: only for RSA keys")),
        (KeyKind::Ec(_), _) => SignatureAlgorithm::Ecdsa(hash),
        (kind, _) => usual(kind),
    };
    let signature = key.sign(algorithm, b"test")?;
    let verified = key.public().verify(algorithm, b"test", &signature);
    Ok(if verified.is_ok() { BackendResponse::TestPassed } else { BackendResponse::TestFailed })
}

/// An actor whose key is generated on demand.
pub fn actor(name: &str) -> SignerActor {
    let generate = Some(KeySpec::new("ec", 256).unwrap());
    let backend = Arc::new(Double { store: Store::default(), generate });
    SignerActor::start(name, KeyBackend::Blocking(backend), 1, SignerLimits::default())
}

#[tokio::test]
async fn in_process_key_behind_an_actor_meets_the_contract() {
    for kind in [KeyKind::Rsa { bits: 2048 }, KeyKind::Ec(Curve::P256), KeyKind::Ec(Curve::P521)] {
        let store = Store::default();
        let start = |generate| {
            let backend = Arc::new(Double { store: Arc::clone(&store), generate });
            SignerActor::start("double", KeyBackend::Blocking(backend), 4, SignerLimits::default())
        };
        let lacks = TestHash::all()
            .filter(|hash| hash.as_signature_hash().is_none())
            .flat_map(|hash| [(hash, false), (hash, true)]);
        holds(Subject {
            kind,
            maker: start(Some(KeySpec::new(kind.name(), i64::from(kind.bits())).unwrap())),
            user: start(None),
            generates: true,
            refuses: vec![],
            lacks: lacks.collect(),
        })
        .await;
    }
}
