//! Keys that are known to be compromised: nothing certifies them, in any mount of the store.
//!
//! A key is listed by the SHA-256 of its SubjectPublicKeyInfo, so that a list holds no key. Revocations for
//! keyCompromise and by proof of possession add to it, and operators do. The list outlives the certificates that it
//! came from. It is held in memory as a whole, and read again when another node has changed it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::store::{PkiStore, PkiWrite};
use crate::clock::Clock;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM};
use crate::error::{Error, Kind, Result};
use crate::x509::public_key::PublicKey;

/// The kind of the documents, one for each key; their name is the hash in hexadecimal.
const KIND: &str = "compromised-key";
/// Most keys of the list: all of it is read when a node starts and when another node has changed it.
pub const MAX_KEYS: usize = 50_000;

/// SHA-256 of a SubjectPublicKeyInfo, DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &PublicKey) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, key.spki()).as_ref());
        Self(hash)
    }

    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Invalid` naming the field `hash`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("hash: must be SHA-256 of a SubjectPublicKeyInfo, 64 hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }

    /// As 64 hexadecimal digits.
    pub fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Why a key is on the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// When it was added, epoch seconds.
    pub added_at: i64,
    /// What added it: `revocation` or `operator`.
    pub source: String,
    /// The serial number of the certificate that was revoked; else a note of the operator.
    pub note: String,
}

/// What became of a key that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is new.
    New,
    /// It was there.
    Known,
    /// The list is full: it was not added.
    Full,
}

/// The list of a store.
pub struct CompromisedKeys {
    store: Arc<dyn PkiStore>,
    clock: Clock,
    keys: ArcSwap<BTreeMap<KeyHash, (u64, Arc<Listed>)>>,
    /// Held by a change and by a reload, so that a reload never takes back what was added meanwhile. Whether the list was
    /// read.
    changing: Mutex<bool>,
}

impl CompromisedKeys {
    /// A list that was not read yet.
    pub(crate) fn new(store: Arc<dyn PkiStore>, clock: Clock) -> Self {
        Self { store, clock, keys: ArcSwap::default(), changing: Mutex::new(false) }
    }

    /// Refuses a key that is on the list; `field` is where the caller gave it.
    ///
    /// # Errors
    /// `Invalid` naming the field.
    pub fn refuse(&self, field: &str, key: &PublicKey) -> Result<()> {
        let keys = self.keys.load();
        if keys.is_empty() || !keys.contains_key(&KeyHash::of(key)) {
            return Ok(());
        }
        Err(Error::invalid(format!("{field}: this key is known to be compromised (sys/compromised-keys)")))
    }

    /// The entry of a key.
    pub fn get(&self, hash: &KeyHash) -> Option<Arc<Listed>> {
        self.keys.load().get(hash).map(|(_, listed)| Arc::clone(listed))
    }

    /// All hashes, in their order.
    pub fn hashes(&self) -> Vec<String> {
        self.keys.load().keys().map(KeyHash::text).collect()
    }

    /// Reads the list where that was not done yet.
    ///
    /// # Errors
    /// `Unavailable` from storage, `Internal` when an entry cannot be read.
    pub(crate) async fn open(&self) -> Result<()> {
        let mut is_read = self.changing.lock().await;
        if !*is_read {
            self.read().await?;
            *is_read = true;
        }
        Ok(())
    }

    /// Reads the list again.
    ///
    /// # Errors
    /// As [`CompromisedKeys::open`].
    pub async fn reload(&self) -> Result<()> {
        let mut is_read = self.changing.lock().await;
        self.read().await?;
        *is_read = true;
        Ok(())
    }

    async fn read(&self) -> Result<()> {
        let documents = self.store.documents_of_kind(SYSTEM, KIND).await?;
        let keys = documents.iter().map(entry).collect::<Result<BTreeMap<_, _>>>()?;
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Adds a key; of one that is there the entry stays.
    ///
    /// # Errors
    /// `Unavailable` or `Busy` from storage.
    pub async fn add(&self, hash: KeyHash, source: &str, note: String) -> Result<Added> {
        let _alone = self.changing.lock().await;
        if self.get(&hash).is_some() {
            return Ok(Added::Known);
        }
        if self.keys.load().len() >= MAX_KEYS {
            return Ok(Added::Full);
        }
        let listed = Listed { added_at: self.clock.now().unix_timestamp(), source: source.to_owned(), note };
        let body = serde_json::to_vec(&listed).map_err(Error::internal)?;
        let write = DocumentWrite { key: key(&hash), expected: 0, body: Some(body) };
        match self.store.commit(vec![PkiWrite::Document(write)]).await {
            Ok(_) => {
                let mut keys = BTreeMap::clone(&self.keys.load());
                keys.insert(hash, (1, Arc::new(listed)));
                self.keys.store(Arc::new(keys));
                Ok(Added::New)
            }
            // Another node was first.
            Err(error) if error.kind() == Kind::Conflict => {
                self.read().await?;
                Ok(Added::Known)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// As [`CompromisedKeys::add`]; `Conflict` when another node has changed it at this moment.
    pub async fn remove(&self, hash: KeyHash) -> Result<bool> {
        let _alone = self.changing.lock().await;
        // Another node may have added it this moment.
        self.read().await?;
        let mut keys = BTreeMap::clone(&self.keys.load());
        let Some((version, _)) = keys.remove(&hash) else { return Ok(false) };
        let write = DocumentWrite { key: key(&hash), expected: version, body: None };
        self.store.commit(vec![PkiWrite::Document(write)]).await?;
        self.keys.store(Arc::new(keys));
        Ok(true)
    }
}

fn key(hash: &KeyHash) -> DocumentKey {
    DocumentKey { mount: SYSTEM, kind: KIND, name: hash.text() }
}

fn entry(document: &Document) -> Result<(KeyHash, (u64, Arc<Listed>))> {
    let hash = KeyHash::parse(&document.key.name).map_err(|error| document.unreadable(error))?;
    let listed = serde_json::from_slice(&document.body).map_err(|error| document.unreadable(error))?;
    Ok((hash, (document.version, Arc::new(listed))))
}
