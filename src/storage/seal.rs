//! Sealing of bodies at rest: AES-256-GCM under a ring of data keys, themselves wrapped by the seal key.
//!
//! A sealed value is term (4 octets, big endian) ‖ version (1) ‖ nonce (12, random) ‖ ciphertext ‖
//! tag (16). The term picks the data key, so that rotation only adds a key and old values stay
//! readable. The associated data names the row the value belongs to: a value that was altered, or
//! moved to another row, does not open. Random nonces are good for 2^32 values of one key (NIST SP
//! 800-38D 8.3): the ring counts what it sealed and asks for the next term long before.
//!
//! Called by the storage front door only; engines see sealed bodies. Keys are overwritten when they
//! go, and no type here has `Debug`.

mod key;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::auth::store::{SecretIdRow, TokenHash};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::storage::backend::{Fact, micros};
use crate::x509::serial::Serial;

pub use key::SealKey;

const VERSION: u8 = 1;
const TAG_LEN: usize = 16;
const HEADER_LEN: usize = 5;
/// A quarter of what random nonces allow, because the count starts again with the process.
const TERM_LIMIT: u64 = 1 << 30;
/// How often a worn term asks again.
const ASK_EVERY: u64 = 1 << 12;
const INSTALLATION: &str = "installation";
const DATA_KEY: &str = "data-key/";
const DATA_KEY_PURPOSE: &str = "signet/data-key/v1";

/// The data keys of one installation, and the key that wraps them.
pub(crate) struct Ring {
    seal: LessSafeKey,
    installation: String,
    keys: ArcSwap<Keys>,
    sealed: AtomicU64,
}

#[derive(Clone)]
struct Keys {
    current: u32,
    by_term: BTreeMap<u32, Arc<LessSafeKey>>,
}

/// A term that was made but is not in use yet: it must be stored first.
pub(crate) struct NewTerm {
    term: u32,
    key: LessSafeKey,
    /// What to store before [`Ring::adopt`].
    pub(crate) fact: Fact,
}

impl Ring {
    /// The ring of a new installation, and the facts that must be stored before it is used.
    pub(crate) fn create(seal_key: &SealKey) -> Result<(Self, Vec<Fact>)> {
        let installation = crate::random::uuid();
        let keys = Keys { current: 0, by_term: BTreeMap::new() };
        let ring = Self {
            seal: aead_key(seal_key.expose())?,
            installation,
            keys: ArcSwap::from_pointee(keys),
            sealed: AtomicU64::new(0),
        };
        let first = ring.new_term()?;
        let facts = vec![(INSTALLATION.to_owned(), ring.installation.clone().into_bytes()), first.fact.clone()];
        ring.adopt(first);
        Ok((ring, facts))
    }

    /// The ring in the facts of a store; `None` when the store is new.
    ///
    /// # Errors
    /// `Invalid` when the seal key does not open the data keys, or facts are missing or damaged.
    pub(crate) fn load(seal_key: &SealKey, facts: &[Fact]) -> Result<Option<Self>> {
        let damaged = || Error::invalid("storage: the data keys of this store are missing or damaged");
        let Some((_, installation)) = facts.iter().find(|(name, _)| name == INSTALLATION) else {
            let none = !facts.iter().any(|(name, _)| name.starts_with(DATA_KEY));
            return if none { Ok(None) } else { Err(damaged()) };
        };
        let installation = String::from_utf8(installation.clone()).map_err(|_| damaged())?;
        let seal = aead_key(seal_key.expose())?;
        let by_term = unwrap_all(&seal, &installation, facts)?;
        let current = *by_term.keys().next_back().ok_or_else(damaged)?;
        let keys = ArcSwap::from_pointee(Keys { current, by_term });
        Ok(Some(Self { seal, installation, keys, sealed: AtomicU64::new(0) }))
    }

    /// Whether the key that a value says it is sealed with is here; another node may have added it.
    pub(crate) fn has_key_of(&self, sealed: &[u8]) -> bool {
        term_of(sealed).is_some_and(|term| self.keys.load().by_term.contains_key(&term))
    }

    /// Takes over the terms that are stored by now, and seals with the newest.
    ///
    /// # Errors
    /// As [`Ring::load`].
    pub(crate) fn learn(&self, facts: &[Fact]) -> Result<()> {
        let stored = unwrap_all(&self.seal, &self.installation, facts)?;
        let newest = stored.keys().next_back().copied().unwrap_or(0);
        if newest > self.keys.load().current {
            self.sealed.store(0, Ordering::Relaxed);
        }
        self.keys.rcu(|keys| {
            let mut keys = Keys::clone(keys);
            keys.by_term.extend(stored.iter().map(|(term, key)| (*term, key.clone())));
            keys.current = keys.current.max(newest);
            keys
        });
        Ok(())
    }

    /// The term that seals, and how much this process has sealed with it.
    pub(crate) fn current(&self) -> (u32, u64) {
        (self.keys.load().current, self.sealed.load(Ordering::Relaxed))
    }

    /// Makes the next term. It seals nothing until its fact is stored and [`Ring::adopt`] takes it.
    pub(crate) fn new_term(&self) -> Result<NewTerm> {
        let term = self.keys.load().current.checked_add(1).ok_or_else(|| Error::internal("data key terms used up"))?;
        let mut bytes: [u8; 32] = crate::random::bytes();
        let key = aead_key(&bytes)?;
        let wrapped = seal_with(&self.seal, &wrap_context(&self.installation, term), &bytes, Vec::new())?;
        bytes.zeroize();
        Ok(NewTerm { term, key, fact: (format!("{DATA_KEY}{term}"), wrapped) })
    }

    /// Seals everything from now on with `new`; returns its term.
    pub(crate) fn adopt(&self, new: NewTerm) -> u32 {
        let key = Arc::new(new.key);
        self.keys.rcu(|keys| {
            let mut keys = Keys::clone(keys);
            keys.by_term.insert(new.term, key.clone());
            keys.current = keys.current.max(new.term);
            keys
        });
        self.sealed.store(0, Ordering::Relaxed);
        new.term
    }

    /// Whether the term in use has sealed so much that it is time for the next; says so now and then
    /// until there is one.
    pub(crate) fn asks_for_rotation(&self) -> bool {
        let sealed = self.sealed.load(Ordering::Relaxed);
        sealed >= TERM_LIMIT && sealed.is_multiple_of(ASK_EVERY)
    }

    /// Seals `body` for the row that `context` names; the plain body is overwritten.
    pub(crate) fn seal(&self, context: &[u8], body: Vec<u8>) -> Result<Vec<u8>> {
        let body = Secret::new(body);
        let body = body.expose();
        let keys = self.keys.load();
        let key = keys.by_term.get(&keys.current).ok_or_else(|| Error::internal("no data key"))?;
        let mut header = Vec::with_capacity(HEADER_LEN + NONCE_LEN + body.len() + TAG_LEN);
        self.sealed.fetch_add(1, Ordering::Relaxed);
        header.extend_from_slice(&keys.current.to_be_bytes());
        header.push(VERSION);
        seal_with(key, context, body, header)
    }

    /// Opens a sealed value of the row that `context` names.
    ///
    /// # Errors
    /// `Internal` when it was altered, moved, cut, or sealed by a key that this ring does not have.
    pub(crate) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        self.try_open(context, sealed)
            .ok_or_else(|| Error::internal("a sealed value does not open: the row was altered, moved or damaged"))
    }

    fn try_open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (header, rest) = sealed.split_at_checked(HEADER_LEN)?;
        if header[4] != VERSION {
            return None;
        }
        open_with(self.keys.load().by_term.get(&term_of(header)?)?, context, rest)
    }
}

fn term_of(sealed: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*sealed.first_chunk()?))
}

/// Every data key in the facts of a store.
fn unwrap_all(seal: &LessSafeKey, installation: &str, facts: &[Fact]) -> Result<BTreeMap<u32, Arc<LessSafeKey>>> {
    let mut by_term = BTreeMap::new();
    for (name, value) in facts {
        let Some(term) = name.strip_prefix(DATA_KEY) else { continue };
        let term =
            term.parse().map_err(|_| Error::invalid("storage: the data keys of this store are missing or damaged"))?;
        let mut bytes = open_with(seal, &wrap_context(installation, term), value).ok_or_else(|| {
            Error::invalid("seal key: does not open the data keys of this store (wrong key, or damaged store)")
        })?;
        by_term.insert(term, Arc::new(aead_key(&bytes)?));
        bytes.zeroize();
    }
    Ok(by_term)
}

/// The associated data of a document's body: mount, kind, name and version, each of known length.
pub(crate) fn document_context(mount: MountId, kind: &str, name: &str, version: u64) -> Vec<u8> {
    let mut context = b"document".to_vec();
    context.extend_from_slice(&mount.0.to_be_bytes());
    for part in [kind, name] {
        context.extend_from_slice(&(part.len() as u64).to_be_bytes());
        context.extend_from_slice(part.as_bytes());
    }
    context.extend_from_slice(&version.to_be_bytes());
    context
}

/// The associated data of a token's body: its hash, and its end, so that nobody who can write to the
/// database prolongs a token.
pub(crate) fn token_context(hash: &TokenHash, expires_at: Option<Time>) -> Vec<u8> {
    let mut context = b"token".to_vec();
    context.extend_from_slice(hash);
    if let Some(at) = expires_at {
        context.extend_from_slice(&micros(at).to_be_bytes());
    }
    context
}

/// The associated data of what a token keeps: the token's hash and the path.
pub(crate) fn cubbyhole_context(token: &TokenHash, path: &str) -> Vec<u8> {
    [b"cubbyhole", &token[..], path.as_bytes()].concat()
}

/// The associated data of what is sealed to be given away.
pub(crate) fn held_context(what: &str) -> Vec<u8> {
    [b"held:", what.as_bytes()].concat()
}

/// The associated data of an entity's or alias's body: everything that it is found by, and its version.
pub(crate) fn identity_context(table: &str, columns: &[&str], version: u64) -> Vec<u8> {
    let mut context = table.as_bytes().to_vec();
    for column in columns {
        context.extend_from_slice(&(column.len() as u64).to_be_bytes());
        context.extend_from_slice(column.as_bytes());
    }
    context.extend_from_slice(&version.to_be_bytes());
    context
}

/// The associated data of what is attached to a certificate: mount, end of validity and serial.
pub(crate) fn metadata_context(mount: MountId, serial: Serial, not_after: i64) -> Vec<u8> {
    let mut context = b"metadata".to_vec();
    context.extend_from_slice(&mount.0.to_be_bytes());
    context.extend_from_slice(&not_after.to_be_bytes());
    context.extend_from_slice(serial.octets());
    context
}

/// The associated data of a secret id's body: everything of its row that does not change, its end above all.
pub(crate) fn secret_id_context(row: &SecretIdRow) -> Vec<u8> {
    let mut context = b"secret-id".to_vec();
    context.extend_from_slice(&row.mount.0.to_be_bytes());
    context.extend_from_slice(&row.role.to_be_bytes());
    context.extend_from_slice(&row.hash);
    context.extend_from_slice(&row.expires_at.map_or(i64::MAX, micros).to_be_bytes());
    context.extend_from_slice(row.accessor.as_bytes());
    context
}

fn wrap_context(installation: &str, term: u32) -> Vec<u8> {
    let mut context = DATA_KEY_PURPOSE.as_bytes().to_vec();
    context.extend_from_slice(installation.as_bytes());
    context.extend_from_slice(&term.to_be_bytes());
    context
}

fn aead_key(bytes: &[u8]) -> Result<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| Error::internal("a data key is not 32 bytes"))?;
    Ok(LessSafeKey::new(key))
}

/// Appends nonce ‖ ciphertext ‖ tag to `out`.
fn seal_with(key: &LessSafeKey, context: &[u8], plain: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>> {
    // Reserved at once: growing later would leave a copy of the plain text behind.
    out.reserve_exact(NONCE_LEN + plain.len() + TAG_LEN);
    let nonce: [u8; NONCE_LEN] = crate::random::bytes();
    out.extend_from_slice(&nonce);
    let start = out.len();
    out.extend_from_slice(plain);
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut out[start..])
        .map_err(|_| Error::internal("sealing failed"))?;
    out.extend_from_slice(tag.as_ref());
    Ok(out)
}

fn open_with(key: &LessSafeKey, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
    let mut body = rest.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let len = key.open_in_place(nonce, Aad::from(context), &mut body).ok()?.len();
    body.truncate(len);
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn ring() -> Ring {
        Ring::create(&SealKey::random()).unwrap().0
    }

    #[test]
    fn every_bit_flip_of_a_sealed_value_is_an_error() {
        let ring = ring();
        let sealed = ring.seal(b"row", b"secret".to_vec()).unwrap();
        assert_eq!(ring.open(b"row", &sealed).unwrap(), b"secret");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ring.open(b"row", &changed).unwrap_err().kind(), Kind::Internal, "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_and_another_row_is_an_error() {
        let ring = ring();
        let sealed = ring.seal(b"row", b"secret".to_vec()).unwrap();
        for len in 0..sealed.len() {
            assert!(ring.open(b"row", &sealed[..len]).is_err(), "{len}");
        }
        assert!(ring.open(b"other", &sealed).is_err());
    }

    #[test]
    fn values_of_earlier_terms_stay_readable_after_rotation_and_reload() {
        let seal_key = SealKey::random();
        let (ring, mut facts) = Ring::create(&seal_key).unwrap();
        let first = ring.seal(b"row", b"one".to_vec()).unwrap();
        let new = ring.new_term().unwrap();
        facts.push(new.fact.clone());
        assert_eq!(ring.adopt(new), 2);
        let second = ring.seal(b"row", b"two".to_vec()).unwrap();
        assert_eq!((&first[..4], &second[..4]), (&[0, 0, 0, 1][..], &[0, 0, 0, 2][..]));
        let again = Ring::load(&seal_key, &facts).unwrap().unwrap();
        assert_eq!(again.open(b"row", &first).unwrap(), b"one");
        assert_eq!(again.open(b"row", &second).unwrap(), b"two");
    }

    #[test]
    fn a_term_asks_for_the_next_one_at_its_limit_and_until_it_has_it() {
        let ring = ring();
        assert!(!ring.asks_for_rotation());
        ring.sealed.store(TERM_LIMIT, Ordering::Relaxed);
        assert!(ring.asks_for_rotation());
        ring.seal(b"row", Vec::new()).unwrap();
        assert!(!ring.asks_for_rotation());
        ring.sealed.store(TERM_LIMIT + ASK_EVERY, Ordering::Relaxed);
        assert!(ring.asks_for_rotation());
        ring.adopt(ring.new_term().unwrap());
        assert!(!ring.asks_for_rotation());
    }

    #[test]
    fn the_wrong_seal_key_is_refused_and_a_new_store_has_no_ring() {
        let (_, facts) = Ring::create(&SealKey::random()).unwrap();
        let error = Ring::load(&SealKey::random(), &facts).err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("seal key"));
        assert!(Ring::load(&SealKey::random(), &[]).unwrap().is_none());
    }

    #[test]
    fn a_data_key_of_another_installation_or_term_is_refused() {
        let seal_key = SealKey::random();
        let (_, one) = Ring::create(&seal_key).unwrap();
        let (_, two) = Ring::create(&seal_key).unwrap();
        assert!(Ring::load(&seal_key, &[one[0].clone(), two[1].clone()]).is_err());
        assert!(Ring::load(&seal_key, &[one[0].clone(), ("data-key/2".into(), one[1].1.clone())]).is_err());
        assert!(Ring::load(&seal_key, &one[1..]).is_err(), "installation missing");
        assert!(Ring::load(&seal_key, &one[..1]).is_err(), "no data key");
    }

    #[test]
    fn contexts_of_different_rows_differ() {
        let context = |mount, kind, name, version| document_context(MountId(mount), kind, name, version);
        let all = [
            context(1, "role", "a", 1),
            context(1, "role", "a", 2),
            context(2, "role", "a", 1),
            context(1, "rol", "ea", 1),
            context(1, "key", "a", 1),
        ];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
        assert_ne!(token_context(&[1; 32], None), token_context(&[1; 32], Some(Time::UNIX_EPOCH)));
    }

    proptest! {
        #[test]
        fn opening_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(ring().open(b"row", &bytes).is_err());
        }

        #[test]
        fn what_was_sealed_opens(body in proptest::collection::vec(any::<u8>(), 0..200), context in any::<Vec<u8>>()) {
            let ring = ring();
            let sealed = ring.seal(&context, body.clone()).unwrap();
            prop_assert_eq!(sealed.len(), 4 + 1 + 12 + body.len() + 16);
            prop_assert_eq!(ring.open(&context, &sealed).unwrap(), body);
        }
    }
}
