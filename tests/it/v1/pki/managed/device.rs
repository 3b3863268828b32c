//! A device that keeps keys and signs as a test says: well, slowly, wrongly, never.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use signet::documents::MountId;
use signet::error::{Error, Kind, Result};
use signet::keys::signer::{Input, RemoteSigner, Verified, Wants};
use signet::keys::signing::{ManagedKey, ManagedKeyRef, Signers, SigningKey};
use signet::pki::actor::Planned;
use signet::pki::mount::issuer::Key;
use signet::x509::algorithm::SignatureAlgorithm;
use signet::x509::public_key::PublicKey;
use tokio::sync::{oneshot, watch};

use crate::support::App;

/// How a device signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On a thread of its own, after a while.
    Slow,
    /// It refuses.
    Refuses(Kind),
    /// It drops the job.
    Dies,
    /// Not before the test sets another mode; then well.
    Hangs,
    /// Something else than it was asked to.
    Lies,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Pair {
    fn public(&self) -> PublicKey {
        let spki = match self {
            Self::P256(pair) => pair.public_key().as_der().unwrap(),
            Self::Ed25519(pair) => pair.public_key().as_der().unwrap(),
        };
        PublicKey::parse(spki.as_ref()).unwrap()
    }

    fn sign(&self, input: &Input) -> Vec<u8> {
        match (self, input) {
            (Self::P256(pair), Input::Digest(digest)) => {
                let digest = Digest::import_less_safe(digest, &SHA256).unwrap();
                pair.sign_digest(&digest).unwrap().as_ref().to_vec()
            }
            (Self::P256(pair), Input::Message(message)) => {
                pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
            }
            (Self::Ed25519(pair), Input::Message(message)) => pair.sign(message).as_ref().to_vec(),
            (Self::Ed25519(_), Input::Digest(_)) => panic!("Ed25519 signs messages"),
        }
    }
}

/// A device with keys, by UUID, and what each may be used for.
pub struct Device {
    keys: Mutex<HashMap<String, (Arc<Pair>, PublicKey)>>,
    mode: watch::Sender<Mode>,
    denied: Mutex<bool>,
    /// Jobs that were begun.
    pub begun: Arc<AtomicUsize>,
    /// Jobs that were taken back before they were done.
    pub taken_back: Arc<AtomicUsize>,
}

impl Device {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::default(),
            mode: watch::Sender::new(Mode::Slow),
            denied: Mutex::default(),
            begun: Arc::default(),
            taken_back: Arc::default(),
        })
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Whether its keys are refused to every mount.
    pub fn deny(&self, denied: bool) {
        *self.denied.lock().unwrap() = denied;
    }

    /// Makes a key of this type and gives it to a mount, whose name for it is that of the managed key. Its id.
    pub async fn attach(&self, app: &App, mount: &str, name: &str, key_type: &str) -> String {
        let pair = match key_type {
            "ec" => Pair::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap()),
            _ => Pair::Ed25519(Ed25519KeyPair::generate().unwrap()),
        };
        let (public, uuid) = (pair.public(), format!("uuid of {name}"));
        self.keys.lock().unwrap().insert(uuid.clone(), (Arc::new(pair), public.clone()));
        let shared = app.shared();
        let mount = shared.auth.mounts().iter().find(|known| known.path == mount).unwrap().id;
        let key = Arc::new(ManagedKey { mount, uuid, name: name.to_owned(), public });
        let (id, name) = (format!("id-of-{name}"), name.to_owned());
        let answered = id.clone();
        let plan = move |view: &signet::pki::mount::view::View| {
            let mut next = view.clone();
            let signing = SigningKey::Managed(Arc::clone(&key));
            let write = next.put_key(Key { id: id.clone(), name: name.clone(), version: 0, signing })?;
            Ok((Planned { view: next, writes: vec![write], crls: false }, ()))
        };
        shared.engine.authority(mount).unwrap().change(plan).await.unwrap();
        answered
    }
}

impl Signers for Device {
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        if *self.denied.lock().unwrap() {
            return Err(Error::invalid("managed key is not allowed for this mount"));
        }
        let (pair, public) = self.keys.lock().unwrap()[&key.uuid].clone();
        let (begun, taken_back) = (Arc::clone(&self.begun), Arc::clone(&self.taken_back));
        Ok(Arc::new(Signer { pair, public, mode: self.mode.subscribe(), begun, taken_back }))
    }

    fn take(&self, mount: MountId, key: ManagedKeyRef) -> BoxFuture<'static, Result<ManagedKey>> {
        let (name, uuid) = match key {
            ManagedKeyRef::Name(name) => (name.clone(), format!("uuid of {name}")),
            ManagedKeyRef::Uuid(uuid) => (uuid.trim_start_matches("uuid of ").to_owned(), uuid),
        };
        let known = self.keys.lock().unwrap().get(&uuid).filter(|_| !*self.denied.lock().unwrap()).cloned();
        let taken = known.map(|(_, public)| ManagedKey { mount, uuid, name, public });
        std::future::ready(taken.ok_or_else(|| Error::invalid("managed key is not allowed for this mount"))).boxed()
    }
}

struct Signer {
    pair: Arc<Pair>,
    public: PublicKey,
    mode: watch::Receiver<Mode>,
    begun: Arc<AtomicUsize>,
    taken_back: Arc<AtomicUsize>,
}

/// Counts a job that is dropped before it is done.
struct Job(Option<Arc<AtomicUsize>>);

impl Job {
    fn ends(mut self) {
        self.0 = None;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(taken_back) = &self.0 {
            taken_back.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl RemoteSigner for Signer {
    fn public(&self) -> &PublicKey {
        &self.public
    }

    fn wants(&self, algorithm: SignatureAlgorithm) -> Result<Wants> {
        Ok(if algorithm.hash().is_some() { Wants::Digest } else { Wants::Message })
    }

    fn sign(&self, algorithm: SignatureAlgorithm, input: Input) -> BoxFuture<'static, Result<Verified>> {
        let (pair, mut mode) = (Arc::clone(&self.pair), self.mode.clone());
        let (public, asked) = (self.public.clone(), input.clone());
        let (begun, job) = (Arc::clone(&self.begun), Job(Some(Arc::clone(&self.taken_back))));
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            let now = *mode.borrow_and_update();
            let (reply, done) = oneshot::channel();
            match now {
                Mode::Refuses(kind) => drop(reply.send(Err(Error::new(kind, "the device refuses")))),
                Mode::Dies => drop(reply),
                Mode::Lies => drop(reply.send(Ok(pair.sign(&other(&input))))),
                Mode::Hangs => {
                    mode.wait_for(|mode| *mode != Mode::Hangs).await.unwrap();
                    drop(reply.send(Ok(pair.sign(&input))));
                }
                Mode::Slow => drop(std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    let _ = reply.send(Ok(pair.sign(&input)));
                })),
            }
            let answer = done.await.unwrap_or_else(|gone| Err(Error::unavailable("the device is gone", gone)));
            job.ends();
            Verified::new(&public, algorithm, &asked, answer?)
        }
        .boxed()
    }
}

/// Another input of the same kind.
fn other(input: &Input) -> Input {
    match input {
        Input::Digest(digest) => Input::Digest(digest.iter().map(|octet| !octet).collect()),
        Input::Message(message) => Input::Message(message.iter().map(|octet| !octet).collect()),
    }
}
