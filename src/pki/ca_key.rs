//! The key of a CA request: generated for it, or one that the mount has. Roots, requests of
//! intermediates and `keys/generate` share this; what is stored and what leaves is decided here.

use std::sync::Arc;

use super::Authority;
use super::actor::Planned;
use super::answer::{self, Data};
use super::issuer::{Key, check_name};
use super::request::{Format, PrivateKeyFormat};
use super::store::PkiWrite;
use super::view::View;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::pool::Watch;
use crate::secret::PartlySecret;
use crate::x509::algorithm::{Curve, KeyKind};

/// Fields of `keys/generate/:type`.
pub const GENERATE_FIELDS: &[&str] = &["key_name", "key_type", "key_bits", "managed_key_name", "managed_key_id"];

/// Where the key of a CA request comes from, and whether it leaves the server, once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyOrigin {
    /// Generated, kept and never returned.
    Internal,
    /// Generated, kept and returned in the answer.
    Exported,
    /// A key of the mount, which is never returned.
    Existing,
}

/// The key that a request asks for.
pub(super) enum KeyOrder {
    /// One to be generated.
    New { spec: KeySpec, name: String, exported: bool },
    /// One that the mount has.
    Stored(Arc<Key>),
}

impl KeyOrder {
    /// Reads `key_name`, `key_type` and `key_bits`, or `key_ref` for an existing key. Names are checked
    /// against the view, before anybody generates a costly key for nothing.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub(super) fn from_fields(
        fields: &Fields,
        origin: KeyOrigin,
        view: &View,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let name = fields.text("key_name")?.unwrap_or_default();
        let key_type = fields.text("key_type")?.unwrap_or_default();
        let bits = fields.int("key_bits")?.unwrap_or(0);
        if origin == KeyOrigin::Existing {
            if !key_type.is_empty() || bits != 0 {
                return Err(Error::invalid("key_type, key_bits: must be absent: an existing key has its own"));
            }
            if !name.is_empty() {
                warnings.push("key_name ignored: an existing key keeps its name".to_owned());
            }
            let reference = fields.text("key_ref")?.unwrap_or_else(|| "default".to_owned());
            let key = view.key(&reference).ok_or_else(|| Error::invalid("key_ref: names no key of this mount"))?;
            check_ca_key("key_ref", key.public().kind())?;
            return Ok(Self::Stored(Arc::clone(key)));
        }
        check_name("key_name", &name)?;
        if !name.is_empty() && view.key(&name).is_some() {
            return Err(Error::invalid("key_name: key name already in use"));
        }
        let spec = KeySpec::new(if key_type.is_empty() { "rsa" } else { &key_type }, bits)?;
        check_ca_key("key_bits", spec.kind())?;
        Ok(Self::New { spec, name, exported: origin == KeyOrigin::Exported })
    }

    /// Kind and size of the key.
    pub(super) fn kind(&self) -> KeyKind {
        match self {
            Self::New { spec, .. } => spec.kind(),
            Self::Stored(key) => key.public().kind(),
        }
    }

    /// The key itself, generated if need be.
    ///
    /// # Errors
    /// `Busy` when too many RSA keys are asked for.
    pub(super) async fn obtain(self, authority: &Authority) -> Result<CaKey> {
        Ok(match self {
            Self::Stored(key) => CaKey { key, fresh: false, exported: false },
            Self::New { spec, name, exported } => {
                let (pool, mount) = (&authority.tools().pool, authority.mount());
                let private = Arc::new(pool.generate(spec, mount, &Watch::ALWAYS).await?);
                let key = Arc::new(Key { id: crate::random::uuid(), name, version: 0, private });
                CaKey { key, fresh: true, exported }
            }
        })
    }
}

/// Whether a key may be a CA's.
///
/// # Errors
/// `Invalid` naming `field`: P-224, which no issuer may have, and RSA below 2048 bits.
pub(super) fn check_ca_key(field: &str, kind: KeyKind) -> Result<()> {
    match kind {
        KeyKind::Ec(Curve::P224) => Err(Error::invalid(format!("{field}: a P-224 key cannot sign certificates"))),
        KeyKind::Rsa { bits: ..2048 } => {
            Err(Error::invalid(format!("{field}: RSA keys below 2048 bits are not supported")))
        }
        _ => Ok(()),
    }
}

/// The key of a CA request, ready to sign.
pub(super) struct CaKey {
    /// The key.
    pub(super) key: Arc<Key>,
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
    pub(super) fn put(&self, next: &mut View) -> Result<Vec<PkiWrite>> {
        if !self.fresh {
            let there = next.key(&self.key.id).is_some();
            return if there { Ok(Vec::new()) } else { Err(Error::invalid("key_ref: names no key of this mount")) };
        }
        let Key { id, name, version, private } = &*self.key;
        put_key(next, Key { id: id.clone(), name: name.clone(), version: *version, private: Arc::clone(private) })
    }

    /// The private key, when it may leave with the answer.
    pub(super) fn exported(&self) -> Option<&PrivateKey> {
        self.exported.then_some(&*self.key.private)
    }

    /// Adds `key_id`, `key_name` and, when the key leaves, `private_key` and `private_key_type`.
    ///
    /// # Errors
    /// `Internal` when the key cannot be encoded.
    pub(super) fn show(&self, data: &mut Data, format: Format, key_format: PrivateKeyFormat) -> Result<()> {
        data.add("key_id", &self.key.id);
        data.add("key_name", &self.key.name);
        if let Some(key) = self.exported() {
            data.add_secret("private_key", &answer::key_text(key, format, key_format)?)?;
            data.add("private_key_type", key.kind().name());
        }
        Ok(())
    }
}

/// Stores a new key in the view; it becomes the default when there is none.
///
/// # Errors
/// `Invalid` when its name is taken.
pub(super) fn put_key(next: &mut View, key: Key) -> Result<Vec<PkiWrite>> {
    let mut writes = Vec::with_capacity(2);
    if next.keys_config.value.default.is_empty() {
        let mut config = next.keys_config.value.clone();
        config.default.clone_from(&key.id);
        writes.push(next.set_keys_config(config));
    }
    writes.push(next.put_key(key)?);
    Ok(writes)
}

/// `keys/generate`: generates and stores a key. Gives the answer's `data`.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(authority: &Authority, origin: KeyOrigin, fields: &Fields) -> Result<PartlySecret> {
    let order = KeyOrder::from_fields(fields, origin, &authority.view(), &mut Vec::new())?;
    let key = order.obtain(authority).await?;
    let mut data = Data::default();
    data.add("key_type", key.key.public().kind().name());
    key.show(&mut data, Format::Pem, PrivateKeyFormat::Traditional)?;
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = key.put(&mut next)?;
            Ok((Planned { view: next, writes, crls: false }, ()))
        })
        .await?;
    Ok(data.finish())
}
