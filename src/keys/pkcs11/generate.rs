//! Generation of a missing key. If the key exists by now, it is used, so a repeated request returns the same key.

use std::ffi::c_ulong;
use std::sync::PoisonError;

use cryptoki::error::{Error as BindingError, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::Attribute;
use cryptoki::session::Session as RawSession;
use cryptoki::types::Ulong;

use super::key::{Pkcs11Config, Pkcs11Key};
use super::mechanism::{CKM_ECDSA, CKM_RSA_PKCS, CKM_RSA_PKCS_OAEP, CKM_RSA_PKCS_PSS};
use super::object;
use super::recovery::Pkcs11Failure;
use super::session::Pkcs11Session;
use crate::error::{Error, Result};
use crate::x509::algorithm::KeyKind;
use crate::x509::writer::{OID, build};

const KEY_ID_BYTES: usize = 20;

/// Generates the key that a configuration names, unless the key exists by now.
///
/// # Errors
/// `Invalid` when keys may not be generated, or the mechanism does not support this type of key.
pub(super) fn generate_missing_key(key: &Pkcs11Key) -> Result<(), Pkcs11Failure> {
    let config = &key.config;
    let Some(kind) = config.generate else {
        return Err(Error::invalid("key does not exist in backend and allow_generate_key is false").into());
    };
    let Some(label) = config.key_label.as_ref().filter(|_| config.key_id.is_none()) else {
        let text = "key does not exist in backend: it is looked up by key_id, which the module assigns when it \
                    generates a key";
        return Err(Error::invalid(text).into());
    };
    check_generation_supported(config.mechanism, kind)?;
    // Prevents another thread of this process from generating the key at the same time.
    let _one_at_a_time = key.library.generation_lock.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Pkcs11Session::open(key, true)?;
    session.run(|raw| match object::find_key(raw, config)? {
        Some(_) => Ok(()),
        None => generate_key_pair_on_token(raw, config, label, kind),
    })
}

/// Rejects types of key that cannot be generated for the mechanism.
fn check_generation_supported(mechanism: u64, kind: KeyKind) -> Result<()> {
    match (mechanism, kind) {
        (CKM_RSA_PKCS | CKM_RSA_PKCS_OAEP | CKM_RSA_PKCS_PSS, KeyKind::Rsa { bits: 2048 | 3072 | 4096 })
        | (CKM_ECDSA, KeyKind::Ec(_)) => Ok(()),
        _ => Err(Error::invalid(format!(
            "key does not exist in backend, and no {} key can be generated for mechanism {mechanism:#06x}",
            kind.name()
        ))),
    }
}

fn generate_key_pair_on_token(
    session: &RawSession,
    config: &Pkcs11Config,
    label: &str,
    kind: KeyKind,
) -> Result<(), Pkcs11Failure> {
    let (mechanism, specific) = match kind {
        KeyKind::Rsa { bits } => (
            Mechanism::RsaPkcsKeyPairGen,
            vec![Attribute::ModulusBits(Ulong::new(bits as c_ulong)), Attribute::PublicExponent(vec![1, 0, 1])],
        ),
        KeyKind::Ec(curve) => {
            (Mechanism::EccKeyPairGen, vec![Attribute::EcParams(build(OID, 0, |w| w.raw(curve.oid())))])
        }
        KeyKind::Ed25519 => return check_generation_supported(config.mechanism, kind).map_err(Pkcs11Failure::from),
    };
    let shared = [
        Attribute::Token(true),
        Attribute::Label(label.as_bytes().to_vec()),
        Attribute::Id(crate::random::bytes::<KEY_ID_BYTES>().to_vec()),
    ];
    let public = [&shared[..], &[Attribute::Verify(true)], &specific].concat();
    let private =
        [&shared[..], &[Attribute::Private(true), Attribute::Sensitive(true), Attribute::Sign(true)]].concat();
    // These attributes disable encryption and wrapping: some modules enable every operation of the key type by default.
    let of_public = [Attribute::Encrypt(false), Attribute::Wrap(false)];
    let of_private = [Attribute::Decrypt(false), Attribute::Unwrap(false)];
    let not_extractable = [Attribute::Extractable(false)];
    // Some modules reject attributes that they do not let the caller choose, so later attempts set fewer attributes.
    let attempts = [
        ([&public[..], &of_public].concat(), [&private[..], &of_private, &not_extractable].concat()),
        (public.clone(), [&private[..], &not_extractable].concat()),
        (public, private),
    ];
    let mut outcome = Err(Pkcs11Failure::from(Error::internal("pkcs11 token: no key pair was generated")));
    for (public, private) in attempts {
        match session.generate_key_pair(&mechanism, &public, &private) {
            Err(error) if is_template_error(&error) => outcome = Err(error.into()),
            generated => {
                outcome = generated.map(drop).map_err(Pkcs11Failure::from);
                break;
            }
        }
    }
    outcome?;
    tracing::info!(label, kind = kind.name(), "a key was generated on a pkcs11 token");
    Ok(())
}

fn is_template_error(error: &BindingError) -> bool {
    let codes = [RvError::TemplateInconsistent, RvError::AttributeTypeInvalid, RvError::AttributeValueInvalid];
    matches!(error, BindingError::Pkcs11(code, _) if codes.contains(code))
}
