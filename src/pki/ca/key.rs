//! The key of a CA request: generated for it, or one that the mount has. Roots, requests of
//! intermediates and `keys/generate` share this; what is stored and what leaves is decided here.

use std::sync::Arc;

use crate::error::{Error, Result, Warnings};
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::pool::Watch;
use crate::keys::signing::SigningKey;
use crate::pki::actor::Planned;
use crate::pki::check::request::RequestedKey;
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{Key, check_name};
use crate::pki::mount::view::View;
use crate::pki::store::PkiWrite;
use crate::x509::algorithm::{Curve, KeyKind};

/// Where the key of a CA request comes from, and whether it leaves the server, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrigin {
    /// Generated, kept and never returned.
    #[default]
    Internal,
    /// Generated, kept and returned in the answer.
    Exported,
    /// A key of the mount, which is never returned.
    Existing,
}

/// Which key is asked for.
#[derive(Clone, Debug, Default)]
pub struct KeyRequest {
    /// Where it comes from.
    pub origin: KeyOrigin,
    /// Name of a new one; empty for none.
    pub name: String,
    /// Kind of a new one; RSA without one.
    pub key: RequestedKey,
    /// Id or name of an existing one; without it the default one.
    pub key_ref: Option<String>,
}

/// A key that was asked for, as its owner may know it.
pub struct CaKeyInfo {
    /// Its id.
    pub id: String,
    /// Its name, or empty.
    pub name: String,
    /// Its kind.
    pub kind: KeyKind,
    /// The private key, when it leaves with the answer.
    pub exported: Option<Arc<PrivateKey>>,
}

/// The key that a request asks for.
pub(crate) enum KeyOrder {
    /// One to be generated.
    New { spec: KeySpec, name: String, exported: bool },
    /// One that the mount has.
    Stored(Arc<Key>),
}

impl KeyOrder {
    /// The key, as far as it can be said without generating one. Names are checked against the view, before
    /// anybody generates a costly key for nothing.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub(crate) fn new(request: KeyRequest, view: &View, warnings: &mut Warnings) -> Result<Self> {
        let KeyRequest { origin, name, key, key_ref } = request;
        let key_type = key.key_type.as_deref().unwrap_or_default();
        let bits = key.bits.unwrap_or(0);
        if origin == KeyOrigin::Existing {
            if !key_type.is_empty() || bits != 0 {
                return Err(Error::invalid("key_type, key_bits: must be absent: an existing key has its own"));
            }
            if !name.is_empty() {
                warnings.add("key_name ignored: an existing key keeps its name".to_owned());
            }
            let reference = key_ref.as_deref().unwrap_or("default");
            let key = view.key(reference).ok_or_else(|| Error::invalid("key_ref: names no key of this mount"))?;
            check_ca_key("key_ref", key.public().kind())?;
            return Ok(Self::Stored(Arc::clone(key)));
        }
        check_name("key_name", &name)?;
        if !name.is_empty() && view.key(&name).is_some() {
            return Err(Error::invalid("key_name: key name already in use"));
        }
        let spec = KeySpec::new(if key_type.is_empty() { "rsa" } else { key_type }, bits)?;
        check_ca_key("key_bits", spec.kind())?;
        Ok(Self::New { spec, name, exported: origin == KeyOrigin::Exported })
    }

    /// Kind and size of the key.
    pub(crate) fn kind(&self) -> KeyKind {
        match self {
            Self::New { spec, .. } => spec.kind(),
            Self::Stored(key) => key.public().kind(),
        }
    }

    /// The key itself, generated if need be.
    ///
    /// # Errors
    /// `Busy` when too many RSA keys are asked for.
    pub(crate) async fn obtain(self, authority: &Authority) -> Result<CaKey> {
        Ok(match self {
            Self::Stored(key) => CaKey { key, fresh: false, exported: false },
            Self::New { spec, name, exported } => {
                let (pool, mount) = (&authority.tools().pool, authority.mount());
                let signing = SigningKey::Local(Arc::new(pool.generate(spec, mount, &Watch::ALWAYS).await?));
                let key = Arc::new(Key { id: crate::random::uuid(), name, version: 0, signing });
                CaKey { key, fresh: true, exported }
            }
        })
    }
}

/// Whether a key may be a CA's.
///
/// # Errors
/// `Invalid` naming `field`: P-224, which no issuer may have, and RSA below 2048 bits.
pub(crate) fn check_ca_key(field: &str, kind: KeyKind) -> Result<()> {
    match kind {
        KeyKind::Ec(Curve::P224) => Err(Error::invalid(format!("{field}: a P-224 key cannot sign certificates"))),
        KeyKind::Rsa { bits: ..2048 } => {
            Err(Error::invalid(format!("{field}: RSA keys below 2048 bits are not supported")))
        }
        _ => Ok(()),
    }
}

/// The key of a CA request, ready to sign.
pub(crate) struct CaKey {
    /// The key.
    pub(crate) key: Arc<Key>,
    /// It was generated for this request and is not stored yet.
    fresh: bool,
    exported: bool,
}

impl CaKey {
    /// Stores a new key in the view, and makes it the default when there is none. An existing one must
    /// still be there.
    ///
    /// # Errors
    /// `Invalid` when the name was taken, or the existing key deleted, in the meantime.
    pub(crate) fn put(&self, next: &mut View) -> Result<Vec<PkiWrite>> {
        if !self.fresh {
            let there = next.key(&self.key.id).is_some();
            return if there { Ok(Vec::new()) } else { Err(Error::invalid("key_ref: names no key of this mount")) };
        }
        put_key(next, Key::clone(&self.key))
    }

    /// What its owner may know of it. A managed key does not leave.
    pub(crate) fn info(&self) -> CaKeyInfo {
        let Key { id, name, signing, .. } = &*self.key;
        CaKeyInfo {
            id: id.clone(),
            name: name.clone(),
            kind: self.key.public().kind(),
            exported: signing.local().filter(|_| self.exported).cloned(),
        }
    }
}

/// Stores a new key in the view; it becomes the default when there is none.
///
/// # Errors
/// `Invalid` when its name is taken.
pub(crate) fn put_key(next: &mut View, key: Key) -> Result<Vec<PkiWrite>> {
    let mut writes = Vec::with_capacity(2);
    if next.keys_config.value.default.is_empty() {
        let mut config = next.keys_config.value.clone();
        config.default.clone_from(&key.id);
        writes.push(next.set_keys_config(config));
    }
    writes.push(next.put_key(key)?);
    Ok(writes)
}

/// `keys/generate`: generates and stores a key.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(authority: &Authority, request: KeyRequest) -> Result<CaKeyInfo> {
    let order = KeyOrder::new(request, &authority.view(), &mut Warnings::default())?;
    let key = order.obtain(authority).await?;
    let info = key.info();
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = key.put(&mut next)?;
            Ok((Planned { view: next, writes, crls: false }, ()))
        })
        .await?;
    Ok(info)
}
