//! A key on a token that wraps the root key of a store: a secret key with AES-GCM, or a key pair with RSA-OAEP.
//!
//! The associated data of AES-GCM binds a wrapped key to its store. With OAEP a hash of the same data is wrapped
//! together with the root key, because some tokens do not support labels. Each call has its own thread, session and
//! login, with the recovery actions of managed keys.

use std::sync::Arc;

use aws_lc_rs::digest;
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsOaepParams, PkcsOaepSource};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::Session as RawSession;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::key::{Pkcs11Config, Pkcs11Key};
use super::library::Libraries;
use super::mechanism::CKM_RSA_PKCS_OAEP;
use super::object::{find_unique, search_template};
use super::recovery::{Pkcs11Failure, Pkcs11FailureCause, RecoveryScope, rule_for};
use super::session::Pkcs11Session;
use super::token::TokenAddress;
use crate::error::{Error, Result};
use crate::keys::seal::{SealMechanism, SecretSource, with_timeout};
use crate::keys::store::SealDevice;
use crate::secret::Secret;

const CKM_AES_GCM: u64 = 0x1087;
const NONCE_BYTES: usize = 12;
const TAG_BITS: u64 = 128;

/// The configuration of a seal key on a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Pkcs11SealSettings {
    /// Name of a configured library.
    pub library: String,
    /// Address of the token.
    pub token: TokenAddress,
    /// `CKA_LABEL` of the key, if it is found by label.
    pub key_label: Option<String>,
    /// `CKA_ID` of the key, if it is found by identifier. The label, the identifier or both are set; if both are set,
    /// both must match.
    pub key_id: Option<Vec<u8>>,
    /// The wrapping mechanism.
    pub mechanism: SealMechanism,
    /// The PIN of the token's user.
    pub pin: SecretSource,
}

/// Creates the seal device of a configuration. Does not call the module.
///
/// # Errors
/// `Invalid` when the library is not configured; those of reading the PIN's file.
pub fn seal_device(settings: &Pkcs11SealSettings, libraries: &Libraries) -> Result<Arc<dyn SealDevice>> {
    let config = Pkcs11Config {
        name: "seal".to_owned(),
        library: settings.library.clone(),
        token: settings.token.clone(),
        key_label: settings.key_label.clone(),
        key_id: settings.key_id.clone(),
        mechanism: if settings.mechanism == SealMechanism::AesGcm { CKM_AES_GCM } else { CKM_RSA_PKCS_OAEP },
        pin: settings.pin.read("seal.pin_file")?,
        force_rw_session: false,
        generate: None,
        public: None,
    };
    let key = Pkcs11Key::new(libraries, config).map_err(|error| error.within("seal.library"))?;
    Ok(Arc::new(Pkcs11SealDevice { key, mechanism: settings.mechanism }))
}

struct Pkcs11SealDevice {
    key: Arc<Pkcs11Key>,
    mechanism: SealMechanism,
}

impl SealDevice for Pkcs11SealDevice {
    fn kind(&self) -> &'static str {
        "pkcs11"
    }

    fn mechanism(&self) -> &'static str {
        self.mechanism.name()
    }

    fn key(&self) -> String {
        let Pkcs11Config { key_label, key_id, .. } = &self.key.config;
        let id = key_id.as_ref().map(|id| id.iter().map(|octet| format!("{octet:02x}")).collect::<String>());
        match (key_label, id) {
            (Some(label), None) => label.clone(),
            (Some(label), Some(id)) => format!("{label} ({id})"),
            (None, id) => id.unwrap_or_default(),
        }
    }

    fn wrap(&self, context: &str, root: Secret) -> BoxFuture<'static, Result<Vec<u8>>> {
        let context = context.to_owned();
        let mechanism = self.mechanism;
        self.run(move |raw, config| match mechanism {
            SealMechanism::AesGcm => aes_wrap(raw, config, context.as_bytes(), &root),
            oaep => oaep_wrap(raw, config, oaep, context.as_bytes(), &root),
        })
    }

    fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> BoxFuture<'static, Result<Secret>> {
        let context = context.to_owned();
        let mechanism = self.mechanism;
        self.run(move |raw, config| match mechanism {
            SealMechanism::AesGcm => aes_unwrap(raw, config, context.as_bytes(), &wrapped),
            oaep => oaep_unwrap(raw, config, oaep, context.as_bytes(), &wrapped),
        })
    }
}

impl Pkcs11SealDevice {
    /// Runs `work` in a session on its own thread, so that a hanging module blocks nothing else, not even the
    /// exit of the process.
    fn run<T: Send + 'static>(
        &self,
        work: impl Fn(&RawSession, &Pkcs11Config) -> Result<T, Pkcs11Failure> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let key = Arc::clone(&self.key);
        with_timeout("seal: the pkcs11 module", async move {
            let (sender, receiver) = oneshot::channel();
            let body = move || drop(sender.send(run_with_recovery(&key, work)));
            std::thread::Builder::new().name("seal".to_owned()).spawn(body).map_err(Error::internal)?;
            receiver.await.map_err(|_| Error::internal("seal: the thread that calls the pkcs11 module panicked"))?
        })
    }
}

/// Runs `work` in a session, and repeats it in another session as `RECOVERY_RULES` specify.
fn run_with_recovery<T>(
    key: &Pkcs11Key,
    work: impl Fn(&RawSession, &Pkcs11Config) -> Result<T, Pkcs11Failure>,
) -> Result<T> {
    let mut repeated_causes = Vec::new();
    loop {
        let mut session = None;
        let attempt =
            Pkcs11Session::open(key, false).and_then(|opened| session.insert(opened).run(|raw| work(raw, &key.config)));
        let failure = match attempt {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let rule = rule_for(failure.cause);
        if repeated_causes.iter().filter(|cause| **cause == failure.cause).count() >= rule.repeats {
            return Err(failure.error.within("seal"));
        }
        repeated_causes.push(failure.cause);
        match rule.rebuild {
            RecoveryScope::Nothing | RecoveryScope::Session => {}
            RecoveryScope::Token => session.iter().for_each(Pkcs11Session::invalidate_token),
            RecoveryScope::Module => {
                drop(session);
                let module = &key.library.module;
                let epoch = module.acquire_pass().map(|pass| pass.epoch);
                epoch.and_then(|epoch| module.reinitialize(epoch)).map_err(|failure| failure.error.within("seal"))?;
            }
        }
    }
}

fn find_key(raw: &RawSession, config: &Pkcs11Config, class: ObjectClass) -> Result<ObjectHandle, Pkcs11Failure> {
    let wanted: Vec<Attribute> = search_template(class, config);
    let found = find_unique(raw, &wanted, "the token has several keys with this label or id")?;
    // The key is missing, or the login was lost, which looks the same.
    found
        .ok_or_else(|| Pkcs11Failure::new(Pkcs11FailureCause::KeyMissing, "the token has no key with this label or id"))
}

fn aes_wrap(raw: &RawSession, config: &Pkcs11Config, context: &[u8], root: &Secret) -> Result<Vec<u8>, Pkcs11Failure> {
    let key = find_key(raw, config, ObjectClass::SECRET_KEY)?;
    let mut nonce: [u8; NONCE_BYTES] = crate::random::bytes();
    let sealed = {
        let parameters = GcmParams::new(&mut nonce, context, TAG_BITS.into())?;
        raw.encrypt(&Mechanism::AesGcm(parameters), key, root.expose())?
    };
    // The nonce is read after the call, because some modules replace it by their own.
    Ok([&nonce[..], &sealed].concat())
}

fn aes_unwrap(
    raw: &RawSession,
    config: &Pkcs11Config,
    context: &[u8],
    wrapped: &[u8],
) -> Result<Secret, Pkcs11Failure> {
    let key = find_key(raw, config, ObjectClass::SECRET_KEY)?;
    let Some((nonce, sealed)) = wrapped.split_first_chunk::<NONCE_BYTES>() else { return Err(wrong_key_error()) };
    let mut nonce = *nonce;
    let parameters = GcmParams::new(&mut nonce, context, TAG_BITS.into())?;
    map_decryption(raw.decrypt(&Mechanism::AesGcm(parameters), key, sealed))
}

fn oaep_wrap(
    raw: &RawSession,
    config: &Pkcs11Config,
    mechanism: SealMechanism,
    context: &[u8],
    root: &Secret,
) -> Result<Vec<u8>, Pkcs11Failure> {
    let key = find_key(raw, config, ObjectClass::PUBLIC_KEY)?;
    let bound = Secret::new([root.expose(), digest::digest(&digest::SHA256, context).as_ref()].concat());
    Ok(raw.encrypt(&oaep_mechanism(mechanism), key, bound.expose())?)
}

fn oaep_unwrap(
    raw: &RawSession,
    config: &Pkcs11Config,
    mechanism: SealMechanism,
    context: &[u8],
    wrapped: &[u8],
) -> Result<Secret, Pkcs11Failure> {
    let key = find_key(raw, config, ObjectClass::PRIVATE_KEY)?;
    let bound = map_decryption(raw.decrypt(&oaep_mechanism(mechanism), key, wrapped))?;
    let root = bound.expose().strip_suffix(digest::digest(&digest::SHA256, context).as_ref());
    root.map(Secret::new).ok_or_else(wrong_key_error)
}

fn oaep_mechanism(mechanism: SealMechanism) -> Mechanism<'static> {
    let (hash, mask) = match mechanism {
        SealMechanism::RsaOaepSha1 => (MechanismType::SHA1, PkcsMgfType::MGF1_SHA1),
        _ => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256),
    };
    Mechanism::RsaPkcsOaep(PkcsOaepParams::new(hash, mask, PkcsOaepSource::empty()))
}

/// Maps the error codes with which modules report a failed decryption to one error.
fn map_decryption(answer: cryptoki::error::Result<Vec<u8>>) -> Result<Secret, Pkcs11Failure> {
    use cryptoki::error::{Error as BindingError, RvError as Code};
    match answer {
        Ok(opened) => Ok(Secret::new(opened)),
        Err(BindingError::Pkcs11(Code::EncryptedDataInvalid | Code::EncryptedDataLenRange, _)) => {
            Err(wrong_key_error())
        }
        Err(error) => Err(error.into()),
    }
}

fn wrong_key_error() -> Pkcs11Failure {
    Error::invalid("the key on the token cannot decrypt the root key; use the key that sealed this store").into()
}
