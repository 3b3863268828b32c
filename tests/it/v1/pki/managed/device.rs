//! A test device with keys, which signs in a configurable mode: well, slowly, wrongly, never.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{Digest, SHA256, SHA384, SHA512};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use signet::documents::MountId;
use signet::error::{Error, Kind, Result};
use signet::keys::signer::{RemoteSigner, SigningInput, SigningInputKind, VerifiedSignature};
use signet::keys::signing::{ManagedKey, ManagedKeyLookup, ManagedKeyRef, Signers};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::public_key::PublicKey;
use tokio::sync::{oneshot, watch};

use crate::v1::pki::foreign::{new_key, openssl};

/// Error for a key that is missing, and for one that the mount may not use.
pub const REFUSAL: &str = "managed key is not allowed for this mount";

/// Response mode of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Signs on a separate thread, after a delay.
    Slow,
    /// Returns an error.
    Refuses(Kind),
    /// Drops the job.
    Dies,
    /// Waits until the test sets another mode, and then signs.
    Hangs,
    /// Signs another input.
    Lies,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
    /// Without a private key.
    Unused,
}

impl Pair {
    fn sign(&self, algorithm: SignatureAlgorithm, input: &SigningInput) -> Vec<u8> {
        match (self, input) {
            (Self::P256(pair), SigningInput::Digest(digest)) => {
                let digest = Digest::import_less_safe(digest, &SHA256).unwrap();
                pair.sign_digest(&digest).unwrap().as_ref().to_vec()
            }
            (Self::P256(pair), SigningInput::Message(message)) => {
                pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
            }
            (Self::Ed25519(pair), SigningInput::Message(message)) => pair.sign(message).as_ref().to_vec(),
            (Self::Rsa(pair), SigningInput::Digest(digest)) => {
                let (encoding, hash): (&'static dyn RsaEncoding, _) = match algorithm {
                    SignatureAlgorithm::RsaPkcs1(Hash::Sha256) => (&RSA_PKCS1_SHA256, &SHA256),
                    SignatureAlgorithm::RsaPkcs1(Hash::Sha384) => (&RSA_PKCS1_SHA384, &SHA384),
                    SignatureAlgorithm::RsaPkcs1(Hash::Sha512) => (&RSA_PKCS1_SHA512, &SHA512),
                    SignatureAlgorithm::RsaPss(Hash::Sha256) => (&RSA_PSS_SHA256, &SHA256),
                    SignatureAlgorithm::RsaPss(Hash::Sha384) => (&RSA_PSS_SHA384, &SHA384),
                    SignatureAlgorithm::RsaPss(Hash::Sha512) => (&RSA_PSS_SHA512, &SHA512),
                    other => panic!("{other:?} of an RSA key"),
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                let digest = Digest::import_less_safe(digest, hash).unwrap();
                pair.sign_digest(encoding, &digest, &mut signature).unwrap();
                signature
            }
            _ => panic!("{algorithm:?} is not what this key signs"),
        }
    }
}

#[derive(Clone)]
struct Kept {
    name: String,
    uuid: String,
    pair: Arc<Pair>,
    public: PublicKey,
    /// The algorithms that it supports; empty for all that fit.
    only: &'static [&'static str],
}

/// A device with keys.
pub struct Device {
    keys: Mutex<Vec<Kept>>,
    mode: watch::Sender<Mode>,
    denied: Mutex<bool>,
    /// Number of requested keys.
    pub taken: Arc<AtomicUsize>,
    /// Number of started signatures.
    pub begun: Arc<AtomicUsize>,
    /// Number of jobs of both kinds that were withdrawn before they were done.
    pub taken_back: Arc<AtomicUsize>,
}

impl Device {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::default(),
            mode: watch::Sender::new(Mode::Slow),
            denied: Mutex::default(),
            taken: Arc::default(),
            begun: Arc::default(),
            taken_back: Arc::default(),
        })
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Denies its keys to every mount, or allows them.
    pub fn deny(&self, denied: bool) {
        *self.denied.lock().unwrap() = denied;
    }

    /// Creates a key with the UUID `uuid of <name>`: `ec` (P-256), `ed25519`, `rsa` (2048 bits), an RSA key that
    /// supports some of the algorithms (`rsa-pss`, `rsa-512`, `rsa-pss-512`), or a key type of openssl that cannot sign
    /// here.
    pub fn make(&self, name: &str, key_type: &str) -> PublicKey {
        match key_type {
            "ec" => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
                let public = pair.public_key().as_der().unwrap().as_ref().to_vec();
                self.keep(name, Pair::P256(pair), &public, &[])
            }
            "ed25519" => {
                let pair = Ed25519KeyPair::generate().unwrap();
                let public = pair.public_key().as_der().unwrap().as_ref().to_vec();
                self.keep(name, Pair::Ed25519(pair), &public, &[])
            }
            "rsa" | "rsa-pss" | "rsa-512" | "rsa-pss-512" => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
                let public = pair.public_key().as_der().unwrap().as_ref().to_vec();
                let only: &[&str] = match key_type {
                    "rsa-pss" => &["SHA256WithRSAPSS", "SHA384WithRSAPSS", "SHA512WithRSAPSS"],
                    "rsa-512" => &["SHA512WithRSA"],
                    "rsa-pss-512" => &["SHA512WithRSAPSS"],
                    _ => &[],
                };
                self.keep(name, Pair::Rsa(pair), &public, only)
            }
            other => self.show(name, &new_key(other)),
        }
    }

    /// Adds a P-256 key that also exists elsewhere; returns its PEM.
    pub fn share(&self, name: &str) -> String {
        let pem = new_key("ec-256");
        let pkcs8 = openssl(&["pkcs8", "-topk8", "-nocrypt", "-outform", "DER"], pem.as_bytes());
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8).unwrap();
        let public = pair.public_key().as_der().unwrap().as_ref().to_vec();
        self.keep(name, Pair::P256(pair), &public, &[]);
        pem
    }

    /// Adds the public key of a private key (PEM), without the ability to sign.
    pub fn show(&self, name: &str, pem: &str) -> PublicKey {
        let public = openssl(&["pkey", "-pubout", "-outform", "DER"], pem.as_bytes());
        self.keep(name, Pair::Unused, &public, &[])
    }

    fn keep(&self, name: &str, pair: Pair, public: &[u8], only: &'static [&'static str]) -> PublicKey {
        let public = PublicKey::parse(public).unwrap();
        let kept = Kept {
            name: name.to_owned(),
            uuid: format!("uuid of {name}"),
            pair: Arc::new(pair),
            public: public.clone(),
            only,
        };
        self.keys.lock().unwrap().push(kept);
        public
    }

    /// Adds a key under another name, which supports these algorithms.
    pub fn alias(&self, name: &str, alias: &str, only: &'static [&'static str]) {
        let kept = self.find(|kept| kept.name == name).unwrap();
        let name = alias.to_owned();
        let uuid = format!("uuid of {alias}");
        self.keys.lock().unwrap().push(Kept { name, uuid, only, ..kept });
    }

    /// Deletes a key and creates it again: same key and name, but another UUID.
    pub fn recreate(&self, name: &str) {
        let mut keys = self.keys.lock().unwrap();
        let kept = keys.iter_mut().find(|kept| kept.name == name).unwrap();
        kept.uuid = format!("new {}", kept.uuid);
    }

    fn find(&self, meant: impl Fn(&Kept) -> bool) -> Result<Kept> {
        let found = self.keys.lock().unwrap().iter().find(|kept| meant(kept)).cloned();
        found.filter(|_| !*self.denied.lock().unwrap()).ok_or_else(|| Error::invalid(REFUSAL))
    }
}

impl Signers for Device {
    fn signer(&self, key: &ManagedKey) -> Result<Arc<dyn RemoteSigner>> {
        let kept = self.find(|kept| kept.uuid == key.uuid)?;
        let begun = Arc::clone(&self.begun);
        let taken_back = Arc::clone(&self.taken_back);
        Ok(Arc::new(Signer { kept, mode: self.mode.subscribe(), begun, taken_back }))
    }

    fn start_use(&self, mount: MountId, named: ManagedKeyRef) -> Result<ManagedKeyLookup> {
        let Kept { name, uuid, public, .. } = self.find(|kept| match &named {
            ManagedKeyRef::Name(name) => kept.name == *name,
            ManagedKeyRef::Uuid(uuid) => kept.uuid == *uuid,
        })?;
        let taken = Arc::clone(&self.taken);
        let mode = self.mode.subscribe();
        let taken_back = Arc::clone(&self.taken_back);
        let taking = async move {
            taken.fetch_add(1, Ordering::SeqCst);
            let other = || {
                let other = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
                PublicKey::parse(other.public_key().as_der().unwrap().as_ref()).unwrap()
            };
            let public = answered(mode, taken_back, move |lies| if lies { other() } else { public.clone() }).await?;
            Ok(ManagedKey { mount, uuid, name, public, locator: String::new() })
        };
        Ok(taking.boxed())
    }
}

struct Signer {
    kept: Kept,
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
        &self.kept.public
    }

    fn input_kind(&self, algorithm: SignatureAlgorithm) -> Result<SigningInputKind> {
        if !self.kept.only.is_empty() && !self.kept.only.contains(&algorithm.name()) {
            return Err(Error::invalid(format!("the key does not sign with {}", algorithm.name())));
        }
        Ok(if algorithm.hash().is_some() { SigningInputKind::Digest } else { SigningInputKind::Message })
    }

    fn require_capacity(&self) -> Result<()> {
        Ok(())
    }

    fn sign(
        &self,
        algorithm: SignatureAlgorithm,
        input: SigningInput,
    ) -> BoxFuture<'static, Result<VerifiedSignature>> {
        let pair = Arc::clone(&self.kept.pair);
        let mode = self.mode.clone();
        let public = self.kept.public.clone();
        let asked = input.clone();
        let begun = Arc::clone(&self.begun);
        let taken_back = Arc::clone(&self.taken_back);
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            let sign = move |lies| pair.sign(algorithm, &if lies { other(&input) } else { input.clone() });
            VerifiedSignature::new(&public, algorithm, &asked, answered(mode, taken_back, sign).await?)
        }
        .boxed()
    }
}

/// Returns the response in the current mode. The argument of `make` is `true` for a wrong result.
async fn answered<T: Send + 'static>(
    mut mode: watch::Receiver<Mode>,
    taken_back: Arc<AtomicUsize>,
    make: impl Fn(bool) -> T + Send + 'static,
) -> Result<T> {
    let job = Job(Some(taken_back));
    let now = *mode.borrow_and_update();
    let (reply, done) = oneshot::channel();
    match now {
        Mode::Refuses(kind) => drop(reply.send(Err(Error::new(kind, "the device refuses")))),
        Mode::Dies => drop(reply),
        Mode::Lies => drop(reply.send(Ok(make(true)))),
        Mode::Hangs => {
            mode.wait_for(|mode| *mode != Mode::Hangs).await.unwrap();
            drop(reply.send(Ok(make(false))));
        }
        Mode::Slow => drop(std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            let _ = reply.send(Ok(make(false)));
        })),
    }
    let answer = done.await.unwrap_or_else(|gone| Err(Error::unavailable("the device is gone", gone)));
    job.ends();
    answer
}

/// Returns another input of the same kind.
fn other(input: &SigningInput) -> SigningInput {
    match input {
        SigningInput::Digest(digest) => SigningInput::Digest(digest.iter().map(|octet| !octet).collect()),
        SigningInput::Message(message) => SigningInput::Message(message.iter().map(|octet| !octet).collect()),
    }
}
