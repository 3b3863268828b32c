//! The root key: it wraps the data keys, and the seal key wraps it.
//!
//! What the store keeps of the seal is one fact: its type, how it wraps, what the key is called, when it was wrapped,
//! and the wrapped root key. A store that was made with a key in a file or the environment has no such fact, and its
//! root key is that key itself, until its seal is changed for the first time: that makes another root key, as every
//! change does, so that an old seal key opens nothing of the store any more. What it opens are copies from before, and the
//! data keys in them: they go on being in use until the next one is made and everything is sealed again with that.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::cipher::{aead_key, open_with, seal_with};
use super::key::{Place, SealKey};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::storage::backend::Fact;

/// The fact that says by what the root key is wrapped, and holds it.
pub(crate) const SEAL: &str = "seal";
const LEN: usize = 32;
const KEY_NAME: &[u8] = b"signet/seal-key-name/v1";

/// A seal, as people are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// `file` (the environment, too), `pkcs11` or `cloudakms`.
    pub kind: String,
    /// How it wraps.
    pub mechanism: String,
    /// What the key is called; for one in a file some digits that depend on it.
    pub key: String,
    /// When the root key was wrapped by it; `None` for the one that the store was made with.
    pub since: Option<Time>,
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} key {} ({})", self.kind, self.key, self.mechanism)
    }
}

/// The fact, as it is stored.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(rename = "type")]
    kind: String,
    mechanism: String,
    key: String,
    /// Epoch seconds.
    wrapped_at: i64,
    /// Base64.
    root: String,
    /// Which root key of the store it is; each change has the next number.
    #[serde(default)]
    generation: u64,
}

impl SealKey {
    /// `file` (the environment, too), or the type of the device.
    pub fn kind(&self) -> &'static str {
        match &self.place {
            Place::Here(_) => "file",
            Place::There(device) => device.kind(),
        }
    }

    /// What people are told of it.
    pub fn about(&self) -> About {
        let (mechanism, key) = match &self.place {
            Place::Here(bytes) => ("AES-GCM", name_of(bytes)),
            Place::There(device) => (device.mechanism(), device.key()),
        };
        About { kind: self.kind().to_owned(), mechanism: mechanism.to_owned(), key, since: None }
    }

    async fn wrap(&self, context: &str, root: &Secret) -> Result<Vec<u8>> {
        match &self.place {
            Place::Here(bytes) => seal_with(&aead_key(bytes.expose())?, context.as_bytes(), root.expose(), Vec::new()),
            Place::There(device) => device.wrap(context, root.clone()).await,
        }
    }

    async fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> Result<Secret> {
        match &self.place {
            Place::Here(bytes) => open_with(&aead_key(bytes.expose())?, context.as_bytes(), &wrapped)
                .map(Secret::new)
                .ok_or_else(|| Error::invalid("seal key: does not open the root key of this store")),
            Place::There(device) => device.unwrap(context, wrapped).await,
        }
    }
}

/// A new root key.
pub(crate) fn new() -> Secret {
    // Made where it stays: an array would leave a copy behind.
    let mut bytes = vec![0; LEN];
    crate::random::fill(&mut bytes);
    Secret::new(bytes)
}

/// What is stored of the seal after a root key, the `generation`th, was wrapped by it. That it opens again is tried
/// first.
///
/// # Errors
/// Those of a device.
pub(crate) async fn wrapped(
    seal: &SealKey,
    installation: &str,
    root: &Secret,
    at: Time,
    generation: u64,
) -> Result<Vec<u8>> {
    let context = context(installation);
    let wrapped = seal.wrap(&context, root).await?;
    if seal.unwrap(&context, wrapped.clone()).await? != *root {
        return Err(Error::invalid("seal: what it wraps does not open again; nothing was changed"));
    }
    let About { kind, mechanism, key, .. } = seal.about();
    let (wrapped_at, root) = (at.unix_timestamp(), STANDARD.encode(wrapped));
    let record = Record { kind, mechanism, key, wrapped_at, root, generation };
    serde_json::to_vec(&record).map_err(Error::internal)
}

/// The root key of a store, by its seal.
///
/// # Errors
/// `Invalid` when the store is sealed by another one, or the record is damaged; those of a device.
pub(crate) async fn opened(seal: &SealKey, installation: &str, facts: &[Fact]) -> Result<Secret> {
    let own = seal.about();
    let Some(record) = record(facts)? else {
        return seal.bytes().cloned().ok_or_else(|| {
            Error::invalid(format!(
                "seal: this store is sealed by the key in a file or the environment that it was made with, and the \
                 configuration names the {own}: signet operator rotate-seal-key --to moves it"
            ))
        });
    };
    let stored = about(&record);
    if (&stored.kind, &stored.mechanism) != (&own.kind, &own.mechanism) {
        return Err(Error::invalid(format!(
            "seal: this store is sealed by the {stored}, and the configuration names the {own}: signet operator \
             rotate-seal-key --to moves it"
        )));
    }
    let wrapped = STANDARD.decode(&record.root).map_err(|_| damaged())?;
    let root = seal.unwrap(&context(installation), wrapped).await.map_err(|error| {
        if stored.key == own.key {
            return error;
        }
        error.within(&format!("seal key: this store is sealed by the {stored}, and the configuration names the {own}"))
    })?;
    if root.expose().len() == LEN { Ok(root) } else { Err(damaged()) }
}

/// The seal of a store, as far as there is a record of it.
///
/// # Errors
/// `Invalid` when it is damaged.
pub(crate) fn stored(facts: &[Fact]) -> Result<Option<About>> {
    Ok(record(facts)?.as_ref().map(about))
}

/// Which root key wraps the data keys in these facts: the number of changes of the seal before them.
///
/// # Errors
/// `Invalid` when the record is damaged.
pub(crate) fn generation(facts: &[Fact]) -> Result<u64> {
    Ok(record(facts)?.map_or(0, |record| record.generation))
}

fn about(record: &Record) -> About {
    About {
        kind: record.kind.clone(),
        mechanism: record.mechanism.clone(),
        key: record.key.clone(),
        since: Time::from_unix_timestamp(record.wrapped_at).ok(),
    }
}

fn record(facts: &[Fact]) -> Result<Option<Record>> {
    let fact = facts.iter().find(|(name, _)| name == SEAL);
    fact.map(|(_, value)| serde_json::from_slice(value).map_err(|_| damaged())).transpose()
}

fn damaged() -> Error {
    Error::invalid("storage: the record of the seal of this store is damaged")
}

fn context(installation: &str) -> String {
    format!("signet/root-key/v1/{installation}")
}

/// Digits that tell keys apart and say nothing of them.
fn name_of(bytes: &Secret) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(KEY_NAME);
    context.update(bytes.expose());
    context.finish().as_ref().iter().take(4).map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(record: Vec<u8>) -> Vec<Fact> {
        vec![(SEAL.to_owned(), record)]
    }

    #[tokio::test]
    async fn a_root_key_opens_with_its_seal_in_its_store_alone() {
        let (seal, root, at) = (SealKey::random(), new(), Time::UNIX_EPOCH);
        let record = wrapped(&seal, "one", &root, at, 1).await.unwrap();
        assert!(opened(&seal, "one", &facts(record.clone())).await.unwrap() == root);
        assert!(opened(&seal, "two", &facts(record.clone())).await.is_err(), "another store");
        let error = opened(&SealKey::random(), "one", &facts(record.clone())).await.err().unwrap();
        assert!(error.text().starts_with("seal key: this store is sealed by the file key "), "{error}");
        let told = stored(&facts(record.clone())).unwrap().unwrap();
        assert_eq!(told, About { since: Some(at), ..seal.about() });
        for at in 0..record.len() {
            let mut changed = record.clone();
            changed[at] ^= 1;
            let opened = opened(&seal, "one", &facts(changed)).await;
            assert!(opened.is_err() || opened.is_ok_and(|opened| opened == root), "octet {at}");
        }
    }

    #[tokio::test]
    async fn a_store_without_a_record_has_the_bytes_of_its_key_as_its_root() {
        let seal = SealKey::random();
        assert!(opened(&seal, "one", &[]).await.unwrap() == *seal.bytes().unwrap());
        assert!(stored(&[]).unwrap().is_none());
    }
}
