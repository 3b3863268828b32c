//! Obtains the key of a CA: a generated key, an existing key of the mount, or a managed key (held by a remote signer).
//! Used for roots, CSRs and `keys/generate`.
//!
//! A mount stores each public key once (`put`), so a managed key that it already has is not stored again.

mod managed;
pub(crate) mod put;

use std::sync::Arc;

use self::managed::{is_reference_to, resolve_managed_key};
use self::put::{PutKeyResult, put_key};
use super::ca_profile;
use crate::error::{Error, Result, Warnings};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::pool::CallerWatch;
use crate::keys::signing::{ManagedKeyRef, Signers, SigningKey};
use crate::pki::actor::PlannedChange;
use crate::pki::check::ca_request::check_ca_key;
use crate::pki::check::request::RequestedKey;
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{MountKey, check_name};
use crate::pki::mount::view::MountView;
use crate::x509::algorithm::KeyKind;
use crate::x509::public_key::PublicKey;

/// Origin of a CA key, and whether it is returned to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyOrigin {
    /// The server generates and stores the key, and never returns it.
    #[default]
    Internal,
    /// The server generates and stores the key, and returns it once, in the response.
    Exported,
    /// A stored key of the mount; it is never returned.
    Existing,
    /// A managed key; the mount stores a reference to the key and its public key.
    Managed(ManagedKeyRef),
}

/// A request for a key: to generate one, or to use an existing or managed key.
#[derive(Clone, Debug, Default)]
pub struct KeyRequest {
    /// Origin of the key.
    pub origin: KeyOrigin,
    /// Name of a new key, or empty.
    pub name: String,
    /// Type and size of a generated key; RSA by default.
    pub key: RequestedKey,
    /// Id or name of an existing key; `None` for the default key.
    pub key_ref: Option<String>,
}

/// Description of a CA key for the response.
pub struct CaKeyInfo {
    /// Id of the key.
    pub id: String,
    /// Name of the key, or empty.
    pub name: String,
    /// Type and size of the key.
    pub kind: KeyKind,
    /// The private key, if the caller requested its export.
    pub exported: Option<Arc<PrivateKey>>,
}

/// The validated source of a CA key.
pub(crate) enum CaKeySource {
    /// The server generates the key.
    New { spec: KeySpec, name: String, exported: bool },
    /// A stored key of the mount.
    Stored(Arc<MountKey>),
    /// A managed key that the mount starts to use.
    Managed { named: ManagedKeyRef, name: String },
}

impl CaKeySource {
    /// Checks a key request against the state of the mount, before a key is generated or a managed key's backend is
    /// called.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub(crate) fn new(request: KeyRequest, view: &MountView, warnings: &mut Warnings) -> Result<Self> {
        let KeyRequest { origin, name, key, key_ref } = request;
        let key_type = key.key_type.as_deref().unwrap_or_default();
        let bits = key.bits.unwrap_or(0);
        let has_kind = !key_type.is_empty() || bits != 0;
        match origin {
            KeyOrigin::Existing => {
                if has_kind {
                    return Err(Error::invalid("key_type, key_bits: must be absent for an existing key"));
                }
                if !name.is_empty() {
                    warnings.add("key_name ignored: an existing key keeps its name");
                }
                let reference = key_ref.as_deref().unwrap_or("default");
                let key = view
                    .key(reference)
                    .ok_or_else(|| Error::invalid("key_ref: no key of this mount has this id or name"))?;
                check_ca_key("key_ref", key.public().kind())?;
                Ok(Self::Stored(Arc::clone(key)))
            }
            KeyOrigin::Managed(named) => {
                if has_kind {
                    return Err(Error::invalid(
                        "invalid parameter for the kms/existing path parameter, key_type nor key_bits arguments can be \
                         set in this mode",
                    ));
                }
                check_new_key_name(&name, view, |key| {
                    key.signing.managed().is_some_and(|key| is_reference_to(&named, key))
                })?;
                Ok(Self::Managed { named, name })
            }
            KeyOrigin::Internal | KeyOrigin::Exported => {
                check_new_key_name(&name, view, |_| false)?;
                let spec = KeySpec::new(if key_type.is_empty() { "rsa" } else { key_type }, bits)?;
                check_ca_key("key_bits", spec.kind())?;
                Ok(Self::New { spec, name, exported: origin == KeyOrigin::Exported })
            }
        }
    }

    /// Returns a placeholder public key, with which a certificate can be validated before an expensive key generation;
    /// `None` if generation is cheap or the key exists.
    pub(crate) fn placeholder(&self) -> Option<PublicKey> {
        match self {
            Self::New { spec, .. } => spec.placeholder_key(),
            Self::Stored(_) | Self::Managed { .. } => None,
        }
    }

    /// Generates the key, starts to use the managed key, or returns the stored key.
    ///
    /// # Errors
    /// `Busy` when too many RSA keys are requested; those of [`resolve_managed_key`].
    pub(crate) async fn obtain(self, authority: &Authority) -> Result<CaKey> {
        let (signing, name, exported) = match self {
            Self::Stored(key) => return Ok(CaKey { key, is_new: false, exported: false }),
            Self::New { spec, name, exported } => {
                let pool = &authority.deps().pool;
                let key = pool.generate(spec, &CallerWatch::ALWAYS).await?;
                (SigningKey::Local(Arc::new(key)), name, exported)
            }
            Self::Managed { named, name } => {
                (SigningKey::Managed(Arc::new(resolve_managed_key(authority, named).await?)), name, false)
            }
        };
        let key = Arc::new(MountKey { id: crate::random::uuid(), name, version: 0, signing });
        Ok(CaKey { key, is_new: true, exported })
    }
}

/// Rejects a key name that another key of the mount has, unless `is_permitted_key` accepts the other key.
fn check_new_key_name(name: &str, view: &MountView, is_permitted_key: impl Fn(&MountKey) -> bool) -> Result<()> {
    check_name("key_name", name)?;
    if !name.is_empty() && view.key(name).is_some_and(|key| !is_permitted_key(key)) {
        return Err(Error::invalid("key_name: key name already in use"));
    }
    Ok(())
}

/// The key of a CA request, ready to sign.
pub(crate) struct CaKey {
    /// The key as the mount stores it, or will store it.
    pub(crate) key: Arc<MountKey>,
    /// `true` if the mount has not stored the key yet.
    is_new: bool,
    exported: bool,
}

impl CaKey {
    /// Adds a new key to the mount's state `next` with [`put_key`], or checks that an existing key is still there.
    ///
    /// # Errors
    /// `Invalid` when the name was taken or the key deleted in the meantime, or when the certificate of a newly linked
    /// issuer violates the profile.
    pub(crate) fn put(&self, next: &mut MountView, signers: &dyn Signers, now: i64) -> Result<PutKeyResult> {
        if self.is_new {
            let put = put_key(next, MountKey::clone(&self.key), signers, now)?;
            return ca_profile::check_linked_issuers(next, &put.linked).map(|()| put);
        }
        let there = next.key(&self.key.id).is_some();
        there
            .then(|| PutKeyResult::for_existing_key(Arc::clone(&self.key)))
            .ok_or_else(|| Error::invalid("key_ref: no key of this mount has this id or name"))
    }

    /// Returns the description of the key, with the id and name of `stored`. Managed keys are never exported.
    pub(crate) fn info(&self, stored: &MountKey) -> CaKeyInfo {
        let MountKey { id, name, .. } = stored;
        CaKeyInfo {
            id: id.clone(),
            name: name.clone(),
            kind: self.key.public().kind(),
            exported: self.key.signing.local().filter(|_| self.exported).cloned(),
        }
    }

    /// Stores the key in a change of its own; returns its description and warnings.
    ///
    /// # Errors
    /// As [`CaKey::put`].
    pub(crate) async fn store(self, authority: &Authority) -> Result<(CaKeyInfo, Warnings)> {
        let signers = Arc::clone(&authority.deps().signers);
        let now = authority.deps().clock.now().unix_timestamp();
        let ((info, mut warnings), crls) = authority
            .change_with_crl_warnings(move |view| {
                let mut next = view.clone();
                let mut put = self.put(&mut next, &*signers, now)?;
                put.set_default_issuer(&mut next);
                let info = self.info(&put.key);
                let rebuild_crls = !put.linked.is_empty();
                Ok((PlannedChange { view: next, writes: put.writes, rebuild_crls }, (info, put.warnings)))
            })
            .await?;
        warnings.extend(crls);
        Ok((info, warnings))
    }
}

/// Implements `keys/generate`: generates a key or starts to use a managed key, and stores it. Returns the key's
/// description and warnings.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(authority: &Authority, request: KeyRequest) -> Result<(CaKeyInfo, Warnings)> {
    let source = CaKeySource::new(request, &authority.view(), &mut Warnings::default())?;
    source.obtain(authority).await?.store(authority).await
}
