//! Sealing (encryption) of stored values with AES-256-GCM. A root key wraps the data keys, and the seal key wraps the
//! root key.
//!
//! A sealed value is term (4 bytes, big endian) ‖ format version (1) ‖ nonce (12, random) ‖ ciphertext ‖ tag (16). The
//! term is the number of a data key, so old values stay readable after a rotation. The associated data identifies the
//! row, so a value that was altered or moved does not decrypt. With random nonces, a key may seal 2^32 values (NIST SP
//! 800-38D, section 8.3); `DataKeyRing` counts them and requests a rotation in time. No type here has `Debug`, and keys
//! are zeroed on drop.

mod cipher;
mod key;
mod proof;
mod replacement;
pub(crate) mod root;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{LessSafeKey, NONCE_LEN};
use zeroize::Zeroize;

use crate::auth::store::{SecretIdRow, TokenHash};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::keyring::store::MAX_KEY_OPERATIONS;
use crate::secret::Secret;
use crate::storage::backend::{Fact, micros};
use crate::x509::serial::Serial;

use cipher::{TAG_LEN, aead_key, open_with, seal_with};
pub use key::SealKey;
pub(crate) use key::SealKeyOrigin;
pub use proof::SealChallenge;
pub use replacement::SealKeyReplacement;
pub(crate) use replacement::with_other_keys;
pub use root::SealInfo;

const SEALED_VALUE_VERSION: u8 = 1;
const SEALED_HEADER_LEN: usize = 5;
/// Number of further values that a used-up data key seals before its rotation is requested again.
const ROTATION_REQUEST_INTERVAL: u64 = 1 << 12;
const INSTALLATION_FACT: &str = "installation";
const DATA_KEY_PREFIX: &str = "data-key/";
/// Name of the fact with the new root key for running nodes that still have the previous one. Its value is empty when
/// there is no such key.
pub(crate) const HANDOVER_FACT: &str = "root-key-handover";

/// The purpose in the associated data of every wrapped data key. It records whether API tokens in the store may lack a
/// seal, and cannot be changed without the root key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataKeyWrapping {
    /// A version before schema 14 may have stored API tokens without a seal.
    TokensMayBeUnsealed,
    /// Every API token in the store has a seal. A token without one is always rejected.
    TokensSealed,
}

impl DataKeyWrapping {
    fn purpose(self) -> &'static str {
        match self {
            Self::TokensMayBeUnsealed => "signet/data-key/v1",
            Self::TokensSealed => "signet/data-key/v2",
        }
    }
}

/// The data keys of one installation, and the root key that wraps them.
pub(crate) struct DataKeyRing {
    /// The newest root key that this node knows.
    root: ArcSwap<RootKey>,
    installation: String,
    keys: ArcSwap<DataKeySet>,
    /// Number of values that this process has sealed with the current key and that the stored usage count does not
    /// include yet.
    unrecorded_uses: AtomicU64,
    /// The stored usage count of the current key, as of the last read.
    recorded_uses: AtomicU64,
    /// `true` once this node has read a data key that is wrapped with [`DataKeyWrapping::TokensSealed`]. Never reset.
    tokens_sealed: AtomicBool,
}

/// A root key in the form that the cipher uses, with its number.
pub(crate) struct RootKey {
    key: LessSafeKey,
    /// The number of the root key within the store. Every change of the seal creates a key with a higher number.
    generation: u64,
}

#[derive(Clone)]
struct DataKeySet {
    current: u32,
    by_term: BTreeMap<u32, Arc<LessSafeKey>>,
}

/// A rewrapped data key: the name of its fact, the stored value of the fact, and the new value.
type RewrappedKey = (String, Vec<u8>, Vec<u8>);

/// A new data key, which must be stored before it is used.
pub(crate) struct NewDataKey {
    /// The term (number) of the data key.
    pub(crate) term: u32,
    key: LessSafeKey,
    /// The fact with the wrapped key, which must be stored before [`DataKeyRing::adopt_data_key`].
    pub(crate) fact: Fact,
}

impl DataKeyRing {
    /// Returns the key ring of a new installation, and the facts that must be stored before the ring is used.
    pub(crate) fn create(root: &Secret, installation: String) -> Result<(Self, Vec<Fact>)> {
        let ring = Self::without_keys(RootKey::new(root, 0)?, installation);
        ring.tokens_sealed.store(true, Ordering::Release);
        let first = ring.create_data_key(&ring.root.load(), 0)?;
        let facts = vec![(INSTALLATION_FACT.to_owned(), ring.installation.clone().into_bytes()), first.fact.clone()];
        ring.adopt_data_key(first);
        Ok((ring, facts))
    }

    /// Loads the key ring of an installation from the facts of its store.
    ///
    /// # Errors
    /// `Invalid` when the root key does not open the data keys, or facts are missing or damaged.
    pub(crate) fn load(root: &Secret, installation: String, facts: &[Fact]) -> Result<Self> {
        let ring = Self::without_keys(RootKey::new(root, root::root_key_generation(facts)?)?, installation);
        ring.load_new_keys(facts)?;
        if ring.current_term_and_uses().0 == 0 { Err(damaged_keys_error()) } else { Ok(ring) }
    }

    fn without_keys(root: RootKey, installation: String) -> Self {
        let keys = DataKeySet { current: 0, by_term: BTreeMap::new() };
        let root = ArcSwap::from_pointee(root);
        let keys = ArcSwap::from_pointee(keys);
        let unrecorded_uses = AtomicU64::new(0);
        let recorded_uses = AtomicU64::new(0);
        Self { root, installation, keys, unrecorded_uses, recorded_uses, tokens_sealed: AtomicBool::new(false) }
    }

    /// Returns `true` if this node knows the data key that sealed a value. Otherwise another node may have created the
    /// key.
    pub(crate) fn has_key_of(&self, sealed: &[u8]) -> bool {
        term_of(sealed).is_some_and(|term| self.keys.load().by_term.contains_key(&term))
    }

    /// Loads the data keys in these facts, and uses the newest one for sealing from now on. If the seal was changed,
    /// loads the new root key as well. Returns the root key that wraps the data keys in these facts. If the facts are
    /// outdated, it may be an earlier root key; a data key created from these facts must be wrapped with it.
    ///
    /// # Errors
    /// As [`DataKeyRing::load`].
    pub(crate) fn load_new_keys(&self, facts: &[Fact]) -> Result<Arc<RootKey>> {
        self.load_stored_keys(facts, u32::max)
    }

    /// As [`DataKeyRing::load_new_keys`], for a store that may have lost its latest writes: if the store lacks the
    /// current data key, seals with the newest stored one.
    pub(crate) fn reload_after_loss(&self, facts: &[Fact]) -> Result<Arc<RootKey>> {
        self.load_stored_keys(facts, |current, newest| if newest == 0 { current } else { newest })
    }

    /// Replaces the root key with `root`, which the seal key has unwrapped. The next [`DataKeyRing::load_new_keys`]
    /// uses it.
    ///
    /// # Errors
    /// As [`DataKeyRing::load`]; after an error the previous root key stays in use.
    pub(crate) fn unseal(&self, root: &Secret, facts: &[Fact]) -> Result<()> {
        let root = RootKey::new(root, root::root_key_generation(facts)?)?;
        unwrap_all(&root.key, &self.installation, facts)?;
        self.root.store(Arc::new(root));
        Ok(())
    }

    /// Loads the stored data keys. `in_use` is called with the current term and the newest stored one, and returns the
    /// term of the key to seal with.
    fn load_stored_keys(&self, facts: &[Fact], in_use: impl Fn(u32, u32) -> u32) -> Result<Arc<RootKey>> {
        let known = self.root.load_full();
        let (root, stored) = match unwrap_all(&known.key, &self.installation, facts) {
            Ok(stored) => (known, stored),
            Err(error) => {
                let root = Arc::new(self.handed_over_root(facts)?.ok_or(error)?);
                let stored = unwrap_all(&root.key, &self.installation, facts)?;
                self.adopt_root(&root);
                (root, stored)
            }
        };
        if stored.wrapping == DataKeyWrapping::TokensSealed {
            self.tokens_sealed.store(true, Ordering::Release);
        }
        let newest = stored.keys.keys().next_back().copied().unwrap_or(0);
        let current = self.keys.load().current;
        if in_use(current, newest) != current {
            self.reset_use_counts();
        }
        self.keys.rcu(|keys| {
            let mut keys = DataKeySet::clone(keys);
            keys.by_term.extend(stored.keys.iter().map(|(term, key)| (*term, Arc::clone(&key.0))));
            keys.current = in_use(keys.current, newest);
            keys
        });
        Ok(root)
    }

    /// Returns how the data keys of this store are wrapped, as far as this node knows.
    pub(crate) fn wrapping(&self) -> DataKeyWrapping {
        let tokens_sealed = self.tokens_sealed.load(Ordering::Acquire);
        if tokens_sealed { DataKeyWrapping::TokensSealed } else { DataKeyWrapping::TokensMayBeUnsealed }
    }

    /// Uses `root` as the root key from now on, unless a newer one is known.
    pub(crate) fn adopt_root(&self, root: &Arc<RootKey>) {
        self.root.rcu(|known| if known.generation <= root.generation { Arc::clone(root) } else { Arc::clone(known) });
    }

    /// Returns the new root key that a change of the seal has stored for running nodes; `None` if there is none or it
    /// does not decrypt.
    fn handed_over_root(&self, facts: &[Fact]) -> Result<Option<RootKey>> {
        let sealed = facts.iter().find(|(name, _)| name == HANDOVER_FACT);
        let opened = sealed.and_then(|(_, sealed)| self.try_open(HANDOVER_FACT.as_bytes(), sealed)).map(Secret::new);
        opened.map(|root| RootKey::new(&root, root::root_key_generation(facts)?)).transpose()
    }

    /// Unwraps the data keys in these facts with the root key `from`, and wraps them with `to`, with `wrapping` in the
    /// associated data.
    ///
    /// # Errors
    /// As [`DataKeyRing::load`].
    pub(crate) fn rewrap(
        &self,
        from: &RootKey,
        to: &RootKey,
        wrapping: DataKeyWrapping,
        facts: &[Fact],
    ) -> Result<Vec<RewrappedKey>> {
        let stored = unwrap_all(&from.key, &self.installation, facts)?;
        let rewrap = |(term, (_, bytes)): (u32, (_, Secret))| {
            let name = data_key_fact_name(term.into());
            let before = facts.iter().find(|(found, _)| *found == name).map(|(_, value)| value.clone());
            let context = wrap_context(wrapping, &self.installation, term);
            let after = seal_with(&to.key, &context, bytes.expose(), Vec::new())?;
            Ok((name, before.unwrap_or_default(), after))
        };
        stored.keys.into_iter().map(rewrap).collect()
    }

    /// Returns a challenge for holders of the seal key, and the expected response. `root` must wrap the data keys in
    /// `facts`.
    pub(crate) fn create_challenge(&self, root: &RootKey, facts: &[Fact]) -> Result<(SealChallenge, Secret)> {
        SealChallenge::new(&root.key, &self.installation, facts)
    }

    /// Returns the installation id.
    pub(crate) fn installation_id(&self) -> &str {
        &self.installation
    }

    /// Returns the term of the current data key, and the known number of values that all nodes have sealed with it.
    pub(crate) fn current_term_and_uses(&self) -> (u32, u64) {
        (
            self.keys.load().current,
            self.recorded_uses.load(Ordering::Relaxed) + self.unrecorded_uses.load(Ordering::Relaxed),
        )
    }

    /// Creates the data key of the term after `after`, wrapped with `root`. The fact of the result must be stored
    /// before [`DataKeyRing::adopt_data_key`].
    pub(crate) fn create_data_key(&self, root: &RootKey, after: u32) -> Result<NewDataKey> {
        let term = after.checked_add(1).ok_or_else(|| Error::internal("the store has used up all data key numbers"))?;
        let mut bytes: [u8; 32] = crate::random::bytes();
        let key = aead_key(&bytes)?;
        let wrapped =
            seal_with(&root.key, &wrap_context(self.wrapping(), &self.installation, term), &bytes, Vec::new())?;
        bytes.zeroize();
        Ok(NewDataKey { term, key, fact: (data_key_fact_name(term.into()), wrapped) })
    }

    /// Uses the data key `new` for sealing from now on, and returns its term.
    pub(crate) fn adopt_data_key(&self, new: NewDataKey) -> u32 {
        let key = Arc::new(new.key);
        self.keys.rcu(|keys| {
            let mut keys = DataKeySet::clone(keys);
            keys.by_term.insert(new.term, key.clone());
            keys.current = keys.current.max(new.term);
            keys
        });
        self.reset_use_counts();
        new.term
    }

    /// Returns the current term, and the number of values that this process has sealed but that the stored usage count
    /// of the term does not include.
    pub(crate) fn unrecorded_uses(&self) -> (u32, u64) {
        (self.keys.load().current, self.unrecorded_uses.load(Ordering::Relaxed))
    }

    /// Sets the stored usage count of a term. The count includes `added` values that this process has sealed. They are
    /// subtracted from the number of values that are not recorded yet.
    pub(crate) fn set_recorded_uses(&self, term: u32, recorded_uses: u64, added: u64) {
        if term != self.keys.load().current {
            return;
        }
        // In this order, a concurrent reader of both counts gets a sum that is too high rather than too low.
        self.recorded_uses.store(recorded_uses, Ordering::Relaxed);
        let less = |unrecorded_uses: u64| Some(unrecorded_uses.saturating_sub(added));
        let _ = self.unrecorded_uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn reset_use_counts(&self) {
        self.unrecorded_uses.store(0, Ordering::Relaxed);
        self.recorded_uses.store(0, Ordering::Relaxed);
    }

    /// Returns `true` if the current data key has sealed its maximum number of values. To limit the requests for a
    /// rotation, the result is `true` only once per [`ROTATION_REQUEST_INTERVAL`] values, until the key is replaced.
    pub(crate) fn must_request_rotation(&self) -> bool {
        let unrecorded_uses = self.unrecorded_uses.load(Ordering::Relaxed);
        unrecorded_uses.is_multiple_of(ROTATION_REQUEST_INTERVAL)
            && self.recorded_uses.load(Ordering::Relaxed) + unrecorded_uses >= MAX_KEY_OPERATIONS
    }

    /// Seals `body` for the row that `context` identifies. Overwrites the plaintext in memory.
    pub(crate) fn seal(&self, context: &[u8], body: Vec<u8>) -> Result<Vec<u8>> {
        let body = Secret::new(body);
        let body = body.expose();
        let keys = self.keys.load();
        let key =
            keys.by_term.get(&keys.current).ok_or_else(|| Error::internal("the current data key is not loaded"))?;
        let mut header = Vec::with_capacity(SEALED_HEADER_LEN + NONCE_LEN + body.len() + TAG_LEN);
        self.unrecorded_uses.fetch_add(1, Ordering::Relaxed);
        header.extend_from_slice(&keys.current.to_be_bytes());
        header.push(SEALED_VALUE_VERSION);
        seal_with(key, context, body, header)
    }

    /// Decrypts a sealed value of the row that `context` identifies.
    ///
    /// # Errors
    /// `Internal` when the value was altered, moved or truncated, or its data key is unknown.
    pub(crate) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        self.try_open(context, sealed).ok_or_else(|| {
            Error::internal(
                "a sealed value cannot be decrypted: its row was altered, moved or damaged, or its data key is missing",
            )
        })
    }

    fn try_open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (header, rest) = sealed.split_at_checked(SEALED_HEADER_LEN)?;
        if header[4] != SEALED_VALUE_VERSION {
            return None;
        }
        open_with(self.keys.load().by_term.get(&term_of(header)?)?, context, rest)
    }
}

impl RootKey {
    /// Creates root key number `generation` from 32 bytes.
    ///
    /// # Errors
    /// `Internal` for another length.
    pub(crate) fn new(bytes: &Secret, generation: u64) -> Result<Self> {
        Ok(Self { key: aead_key(bytes.expose())?, generation })
    }
}

/// Returns the highest term of the data keys in these facts; 0 if there are none.
pub(crate) fn newest_term(facts: &[Fact]) -> u32 {
    let terms = facts.iter().filter_map(|(name, _)| name.strip_prefix(DATA_KEY_PREFIX)?.parse().ok());
    terms.max().unwrap_or(0)
}

/// Returns the name of the fact that stores the data key of a term.
pub(crate) fn data_key_fact_name(term: u64) -> String {
    format!("{DATA_KEY_PREFIX}{term}")
}

/// Returns `true` if the facts contain a new root key for running nodes that still have the previous one.
pub(crate) fn has_root_key_handover(facts: &[Fact]) -> bool {
    facts.iter().any(|(name, sealed)| name == HANDOVER_FACT && !sealed.is_empty())
}

fn term_of(sealed: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*sealed.first_chunk()?))
}

/// Returns the installation id in the facts of a store; `None` for a new store.
///
/// # Errors
/// `Invalid` when the id is damaged.
pub(crate) fn stored_installation_id(facts: &[Fact]) -> Result<Option<String>> {
    match facts.iter().find(|(name, _)| name == INSTALLATION_FACT) {
        Some((_, installation)) => String::from_utf8(installation.clone()).map(Some).map_err(|_| damaged_keys_error()),
        None if facts.iter().any(|(name, _)| name.starts_with(DATA_KEY_PREFIX)) => Err(damaged_keys_error()),
        None => Ok(None),
    }
}

fn damaged_keys_error() -> Error {
    Error::invalid("storage: the data keys of this store are missing or damaged; restore the store from a backup")
}

/// The data keys in the facts of a store, unwrapped.
struct UnwrappedKeys {
    /// The data keys by term: the key in the form that the cipher uses, and its bytes.
    keys: BTreeMap<u32, (Arc<LessSafeKey>, Secret)>,
    /// [`DataKeyWrapping::TokensSealed`] if one of the keys is wrapped with it.
    wrapping: DataKeyWrapping,
}

fn unwrap_all(root: &LessSafeKey, installation: &str, facts: &[Fact]) -> Result<UnwrappedKeys> {
    let mut unwrapped = UnwrappedKeys { keys: BTreeMap::new(), wrapping: DataKeyWrapping::TokensMayBeUnsealed };
    for (name, value) in facts {
        let Some(term) = name.strip_prefix(DATA_KEY_PREFIX) else { continue };
        let term = term.parse().map_err(|_| damaged_keys_error())?;
        let open = |wrapping| open_with(root, &wrap_context(wrapping, installation, term), value);
        let bytes = match open(DataKeyWrapping::TokensSealed) {
            Some(bytes) => {
                unwrapped.wrapping = DataKeyWrapping::TokensSealed;
                bytes
            }
            None => open(DataKeyWrapping::TokensMayBeUnsealed).ok_or_else(|| {
                Error::invalid("seal key: does not open the data keys of this store (wrong key, or damaged store)")
            })?,
        };
        unwrapped.keys.insert(term, (Arc::new(aead_key(&bytes)?), Secret::new(bytes)));
    }
    Ok(unwrapped)
}

/// Returns the associated data of a document's body: mount, kind, name and version, with the lengths of the texts.
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

/// Returns the associated data of a token's body: its hash and its expiry, so that a database writer cannot prolong a
/// token.
pub(crate) fn token_context(hash: &TokenHash, expires_at: Option<Time>) -> Vec<u8> {
    let mut context = b"token".to_vec();
    context.extend_from_slice(hash);
    if let Some(at) = expires_at {
        context.extend_from_slice(&micros(at).to_be_bytes());
    }
    context
}

/// Returns the associated data of a cubbyhole entry: the hash of its token and its path.
pub(crate) fn cubbyhole_context(token: &TokenHash, path: &str) -> Vec<u8> {
    [b"cubbyhole", &token[..], path.as_bytes()].concat()
}

/// Returns the associated data of a value that is sealed for a client and not stored. `what` names the kind of value.
pub(crate) fn client_value_context(what: &str) -> Vec<u8> {
    [b"held:", what.as_bytes()].concat()
}

/// Returns the associated data of the body of an entity or alias: all columns by which the row is looked up, and its
/// version.
pub(crate) fn identity_context(table: &str, columns: &[&str], version: u64) -> Vec<u8> {
    let mut context = table.as_bytes().to_vec();
    for column in columns {
        context.extend_from_slice(&(column.len() as u64).to_be_bytes());
        context.extend_from_slice(column.as_bytes());
    }
    context.extend_from_slice(&version.to_be_bytes());
    context
}

/// Returns the associated data of certificate metadata: mount, serial number and end of validity.
pub(crate) fn metadata_context(mount: MountId, serial: Serial, not_after: i64) -> Vec<u8> {
    let mut context = b"metadata".to_vec();
    context.extend_from_slice(&mount.0.to_be_bytes());
    context.extend_from_slice(&not_after.to_be_bytes());
    context.extend_from_slice(serial.octets());
    context
}

/// Returns the associated data of a secret id's body: the columns of its row that never change, above all its expiry.
pub(crate) fn secret_id_context(row: &SecretIdRow) -> Vec<u8> {
    let mut context = b"secret-id".to_vec();
    context.extend_from_slice(&row.mount.0.to_be_bytes());
    context.extend_from_slice(&row.role.to_be_bytes());
    context.extend_from_slice(&row.hash);
    context.extend_from_slice(&row.expires_at.map_or(i64::MAX, micros).to_be_bytes());
    context.extend_from_slice(row.accessor.as_bytes());
    context
}

/// Returns the associated data of an API token's body: lookup value, secret hash, holder (user, team or organization),
/// kind and expiry. So a database writer can neither create nor prolong a token.
pub(crate) fn api_token_context(
    lookup: &str,
    secret_sha256: &[u8],
    holder: [Option<i64>; 3],
    kind: &str,
    expired_at: Option<i64>,
) -> Vec<u8> {
    let mut context = b"api-token".to_vec();
    for part in [lookup.as_bytes(), secret_sha256, kind.as_bytes()] {
        context.extend_from_slice(&(part.len() as u64).to_be_bytes());
        context.extend_from_slice(part);
    }
    for number in holder.into_iter().chain([expired_at]) {
        context.push(u8::from(number.is_some()));
        context.extend_from_slice(&number.unwrap_or_default().to_be_bytes());
    }
    context
}

fn wrap_context(wrapping: DataKeyWrapping, installation: &str, term: u32) -> Vec<u8> {
    let mut context = wrapping.purpose().as_bytes().to_vec();
    context.extend_from_slice(installation.as_bytes());
    context.extend_from_slice(&term.to_be_bytes());
    context
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn random_root() -> Secret {
        root::generate_root_key()
    }

    fn new_ring() -> DataKeyRing {
        DataKeyRing::create(&random_root(), "one".to_owned()).unwrap().0
    }

    /// Creates the data key of the next term, wrapped with the latest root key.
    fn next_term(ring: &DataKeyRing) -> NewDataKey {
        ring.create_data_key(&ring.root.load(), ring.current_term_and_uses().0).unwrap()
    }

    fn load_ring(root: &Secret, facts: &[Fact]) -> Result<DataKeyRing> {
        DataKeyRing::load(root, stored_installation_id(facts)?.unwrap_or_default(), facts)
    }

    #[test]
    fn every_bit_flip_of_a_sealed_value_is_an_error() {
        let ring = new_ring();
        let sealed = ring.seal(b"row", b"secret".to_vec()).unwrap();
        assert_eq!(ring.open(b"row", &sealed).unwrap(), b"secret");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ring.open(b"row", &changed).unwrap_err().kind(), Kind::Internal, "bit {bit}");
        }
    }

    #[test]
    fn truncated_or_swapped_sealed_value_is_an_error() {
        let ring = new_ring();
        let sealed = ring.seal(b"row", b"secret".to_vec()).unwrap();
        for len in 0..sealed.len() {
            assert!(ring.open(b"row", &sealed[..len]).is_err(), "{len}");
        }
        assert!(ring.open(b"other", &sealed).is_err());
    }

    #[test]
    fn values_of_earlier_terms_open_after_rotation_and_reload() {
        let root = random_root();
        let (ring, mut facts) = DataKeyRing::create(&root, "one".to_owned()).unwrap();
        let first = ring.seal(b"row", b"one".to_vec()).unwrap();
        let new = next_term(&ring);
        facts.push(new.fact.clone());
        assert_eq!(ring.adopt_data_key(new), 2);
        let second = ring.seal(b"row", b"two".to_vec()).unwrap();
        assert_eq!((&first[..4], &second[..4]), (&[0, 0, 0, 1][..], &[0, 0, 0, 2][..]));
        let again = load_ring(&root, &facts).unwrap();
        assert_eq!(again.open(b"row", &first).unwrap(), b"one");
        assert_eq!(again.open(b"row", &second).unwrap(), b"two");
    }

    #[test]
    fn data_key_at_its_limit_requests_rotation_until_rotated() {
        let ring = new_ring();
        assert!(!ring.must_request_rotation());
        ring.set_recorded_uses(1, MAX_KEY_OPERATIONS, 0);
        assert!(ring.must_request_rotation());
        ring.seal(b"row", Vec::new()).unwrap();
        assert!(!ring.must_request_rotation());
        for _ in 1..ROTATION_REQUEST_INTERVAL {
            ring.seal(b"row", Vec::new()).unwrap();
        }
        assert!(ring.must_request_rotation());
        ring.adopt_data_key(next_term(&ring));
        assert!(!ring.must_request_rotation());
    }

    #[test]
    fn seal_operations_are_counted_per_term_with_unrecorded_ones() {
        let ring = new_ring();
        for _ in 0..3 {
            ring.seal(b"row", Vec::new()).unwrap();
        }
        assert_eq!(ring.unrecorded_uses(), (1, 3));
        ring.set_recorded_uses(1, 10, 0);
        assert_eq!(ring.current_term_and_uses(), (1, 13));
        ring.seal(b"row", Vec::new()).unwrap();
        ring.set_recorded_uses(1, 13, 3);
        assert_eq!((ring.current_term_and_uses(), ring.unrecorded_uses()), ((1, 14), (1, 1)));
        ring.adopt_data_key(next_term(&ring));
        ring.set_recorded_uses(1, 15, 1);
        assert_eq!(ring.current_term_and_uses(), (2, 0));
    }

    #[test]
    fn wrong_root_key_is_rejected() {
        let (_, facts) = DataKeyRing::create(&random_root(), "one".to_owned()).unwrap();
        let error = load_ring(&random_root(), &facts).err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("seal key"));
        assert!(stored_installation_id(&[]).unwrap().is_none());
    }

    #[test]
    fn data_key_of_another_installation_or_term_is_rejected() {
        let root = random_root();
        let (_, one) = DataKeyRing::create(&root, "one".to_owned()).unwrap();
        let (_, two) = DataKeyRing::create(&root, "two".to_owned()).unwrap();
        assert!(load_ring(&root, &[one[0].clone(), two[1].clone()]).is_err());
        assert!(load_ring(&root, &[one[0].clone(), ("data-key/2".into(), one[1].1.clone())]).is_err());
        assert!(load_ring(&root, &one[1..]).is_err(), "installation missing");
        assert!(load_ring(&root, &one[..1]).is_err(), "no data key");
    }

    /// Returns the facts after a change of the seal from the root key `from` to `to`. The root key `to` is stored for
    /// running nodes.
    async fn facts_after_seal_change(ring: &DataKeyRing, from: &Secret, to: &Secret, facts: &[Fact]) -> Vec<Fact> {
        let mut facts = facts.to_vec();
        let generation = root::root_key_generation(&facts).unwrap() + 1;
        let [from, next] = [(from, 0), (to, generation)].map(|(root, n)| RootKey::new(root, n).unwrap());
        for (name, was, wrapped) in ring.rewrap(&from, &next, ring.wrapping(), &facts).unwrap() {
            let fact = facts.iter_mut().find(|(found, _)| *found == name).unwrap();
            assert_eq!(std::mem::replace(&mut fact.1, wrapped), was);
        }
        facts.retain(|(name, _)| name != HANDOVER_FACT && name != root::SEAL_FACT);
        let record = root::wrap_root(&SealKey::random(), "one", to, Time::UNIX_EPOCH, generation).await.unwrap();
        facts.push((root::SEAL_FACT.to_owned(), record));
        facts.push((HANDOVER_FACT.to_owned(), ring.seal(HANDOVER_FACT.as_bytes(), to.expose().to_vec()).unwrap()));
        facts
    }

    #[tokio::test]
    async fn running_ring_adopts_the_new_root_key_and_old_one_fails() {
        let before = random_root();
        let after = random_root();
        let (running, facts) = DataKeyRing::create(&before, "one".to_owned()).unwrap();
        let changed = DataKeyRing::load(&before, "one".to_owned(), &facts).unwrap();
        let mut facts = facts_after_seal_change(&changed, &before, &after, &facts).await;
        assert!(load_ring(&before, &facts).is_err(), "the old root key");
        let none: Vec<_> = facts.iter().filter(|(name, _)| name != HANDOVER_FACT).cloned().collect();
        assert!(running.load_new_keys(&none).is_err(), "nothing was left for it");
        let new = load_ring(&after, &facts).unwrap();
        let term = next_term(&new);
        facts.push(term.fact.clone());
        new.adopt_data_key(term);
        let sealed = new.seal(b"row", b"by the new node".to_vec()).unwrap();
        assert!(!running.has_key_of(&sealed));
        running.load_new_keys(&facts).unwrap();
        assert_eq!(running.open(b"row", &sealed).unwrap(), b"by the new node");
        facts.push(next_term(&running).fact);
        assert!(load_ring(&after, &facts).is_ok(), "what it adds is wrapped by the new root key");
    }

    #[tokio::test]
    async fn stale_facts_do_not_restore_an_earlier_root_key() {
        let [first, second, third] = [random_root(), random_root(), random_root()];
        let (ring, facts) = DataKeyRing::create(&first, "one".to_owned()).unwrap();
        let early = facts_after_seal_change(&ring, &first, &second, &facts).await;
        let mut late = facts_after_seal_change(&ring, &second, &third, &early).await;
        ring.load_new_keys(&late).unwrap();
        let of_early = ring.load_new_keys(&early).unwrap();
        late.push(next_term(&ring).fact);
        assert!(load_ring(&third, &late).is_ok(), "the root key that is kept is the latest");
        let mut early = early.clone();
        early.push(ring.create_data_key(&of_early, 1).unwrap().fact);
        assert!(load_ring(&second, &early).is_ok(), "a value stored next to the early ones is wrapped by their key");
    }

    #[test]
    fn tokens_are_sealed_once_any_data_key_records_it() {
        let root = random_root();
        let (new, facts) = DataKeyRing::create(&root, "one".to_owned()).unwrap();
        assert_eq!(new.wrapping(), DataKeyWrapping::TokensSealed, "a new store has no tokens of an earlier version");
        let key = RootKey::new(&root, 0).unwrap();
        let mut earlier = facts.clone();
        earlier[1].1 = new.rewrap(&key, &key, DataKeyWrapping::TokensMayBeUnsealed, &facts).unwrap().remove(0).2;
        let ring = load_ring(&root, &earlier).unwrap();
        assert_eq!(ring.wrapping(), DataKeyWrapping::TokensMayBeUnsealed);
        let mut two = earlier.clone();
        two.push(next_term(&ring).fact);
        assert_eq!(load_ring(&root, &two).unwrap().wrapping(), DataKeyWrapping::TokensMayBeUnsealed);
        two[1] = facts[1].clone();
        assert_eq!(load_ring(&root, &two).unwrap().wrapping(), DataKeyWrapping::TokensSealed);
        ring.load_new_keys(&two).unwrap();
        ring.load_new_keys(&earlier).unwrap();
        assert_eq!(ring.wrapping(), DataKeyWrapping::TokensSealed, "rows put back change nothing");
        let mut moved = facts;
        moved[1].0 = "data-key/2".to_owned();
        assert!(load_ring(&root, &moved).is_err());
    }

    #[test]
    fn associated_data_of_different_rows_differs() {
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
            prop_assert!(new_ring().open(b"row", &bytes).is_err());
        }

        #[test]
        fn sealed_value_opens_with_its_context(body in proptest::collection::vec(any::<u8>(), 0..200), context in any::<Vec<u8>>()) {
            let ring = new_ring();
            let sealed = ring.seal(&context, body.clone()).unwrap();
            prop_assert_eq!(sealed.len(), 4 + 1 + 12 + body.len() + 16);
            prop_assert_eq!(ring.open(&context, &sealed).unwrap(), body);
        }
    }
}
