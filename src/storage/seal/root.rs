//! The root key: it wraps the data keys, and the seal key wraps it.
//!
//! The store records the seal in one fact ([`SEAL_FACT`]) with the wrapped root key. A store created with a key from a
//! file or the environment has no such fact until its seal is changed; until then, the seal key itself is the root key.
//! Every change creates a new root key, so a previous seal key opens only copies of the store from before the change.
//! The data keys in such copies stay in use until a new one is created and all values are resealed.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::cipher::{aead_key, open_with, seal_with};
use super::key::{SealKey, SealKeyLocation};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::storage::backend::Fact;

/// Name of the fact with the wrapped root key and a description of its seal.
pub(crate) const SEAL_FACT: &str = "seal";
const ROOT_KEY_BYTES: usize = 32;
const KEY_NAME_CONTEXT: &[u8] = b"signet/seal-key-name/v1";

/// Description of a seal for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealInfo {
    /// The type of the seal: `file` (also for a key from the environment), `pkcs11` or `cloudakms`.
    pub kind: String,
    /// The mechanism that wraps the root key, such as `AES-GCM`.
    pub mechanism: String,
    /// The name of the seal key; for a key from a file, digits derived from its bytes.
    pub key: String,
    /// The time at which the seal key wrapped the root key; `None` if the store has no record of it.
    pub since: Option<Time>,
}

impl std::fmt::Display for SealInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} key {} ({})", self.kind, self.key, self.mechanism)
    }
}

/// The value of [`SEAL_FACT`], as JSON.
#[derive(Serialize, Deserialize)]
struct SealRecord {
    #[serde(rename = "type")]
    kind: String,
    mechanism: String,
    key: String,
    /// The time at which the root key was wrapped, in epoch seconds.
    wrapped_at: i64,
    /// The wrapped root key in base64.
    root: String,
    /// The number of the root key within the store, incremented by each change of the seal.
    #[serde(default)]
    generation: u64,
}

impl SealKey {
    /// Returns the type of the seal: `file` (also for a key from the environment), or the type of the device.
    pub fn kind(&self) -> &'static str {
        match &self.location {
            SealKeyLocation::Memory(_) => "file",
            SealKeyLocation::Device(device) => device.kind(),
        }
    }

    /// Returns a description of the seal key for display.
    pub fn describe(&self) -> SealInfo {
        let (mechanism, key) = match &self.location {
            SealKeyLocation::Memory(bytes) => ("AES-GCM", key_fingerprint(bytes)),
            SealKeyLocation::Device(device) => (device.mechanism(), device.key()),
        };
        SealInfo { kind: self.kind().to_owned(), mechanism: mechanism.to_owned(), key, since: None }
    }

    async fn wrap(&self, context: &str, root: &Secret) -> Result<Vec<u8>> {
        match &self.location {
            SealKeyLocation::Memory(bytes) => {
                seal_with(&aead_key(bytes.expose())?, context.as_bytes(), root.expose(), Vec::new())
            }
            SealKeyLocation::Device(device) => device.wrap(context, root.clone()).await,
        }
    }

    async fn unwrap(&self, context: &str, wrapped: Vec<u8>) -> Result<Secret> {
        match &self.location {
            SealKeyLocation::Memory(bytes) => open_with(&aead_key(bytes.expose())?, context.as_bytes(), &wrapped)
                .map(Secret::new)
                .ok_or_else(|| Error::invalid("seal key: does not open the root key of this store")),
            SealKeyLocation::Device(device) => device.unwrap(context, wrapped).await,
        }
    }
}

/// Creates a random root key.
pub(crate) fn generate_root_key() -> Secret {
    // The random bytes are written in place, because an array on the stack would leave a copy behind.
    let mut bytes = vec![0; ROOT_KEY_BYTES];
    crate::random::fill(&mut bytes);
    Secret::new(bytes)
}

/// Wraps root key number `generation` with the seal key, checks that it can be unwrapped again, and returns the record
/// to store.
///
/// # Errors
/// The errors of the device that holds the key.
pub(crate) async fn wrap_root(
    seal: &SealKey,
    installation: &str,
    root: &Secret,
    at: Time,
    generation: u64,
) -> Result<Vec<u8>> {
    let context = root_key_context(installation);
    let wrapped = seal.wrap(&context, root).await?;
    if seal.unwrap(&context, wrapped.clone()).await? != *root {
        return Err(Error::invalid("seal: the wrapped root key cannot be unwrapped; nothing was changed"));
    }
    let SealInfo { kind, mechanism, key, .. } = seal.describe();
    let wrapped_at = at.unix_timestamp();
    let root = STANDARD.encode(wrapped);
    let record = SealRecord { kind, mechanism, key, wrapped_at, root, generation };
    serde_json::to_vec(&record).map_err(Error::internal)
}

/// Unwraps the root key of a store.
///
/// # Errors
/// `Invalid` when the store has another seal, or the record is damaged; the errors of the device that holds the key.
pub(crate) async fn unwrap_root(seal: &SealKey, installation: &str, facts: &[Fact]) -> Result<Secret> {
    let configured = seal.describe();
    let Some(record) = read_record(facts)? else {
        return seal.bytes().cloned().ok_or_else(|| {
            Error::invalid(format!(
                "seal: this store uses a seal key from a file or the environment, but the configuration names the \
                 {configured}; run signet operator rotate-seal-key --to to change the seal"
            ))
        });
    };
    let stored = seal_info(&record);
    if (&stored.kind, &stored.mechanism) != (&configured.kind, &configured.mechanism) {
        return Err(Error::invalid(format!(
            "seal: this store is sealed by the {stored}, but the configuration names the {configured}; run \
             signet operator rotate-seal-key --to to change the seal"
        )));
    }
    let wrapped = STANDARD.decode(&record.root).map_err(|_| damaged_record_error())?;
    let root = seal.unwrap(&root_key_context(installation), wrapped).await.map_err(|error| {
        if stored.key == configured.key {
            return error;
        }
        error.within(&format!(
            "seal key: this store is sealed by the {stored}, and the configuration names the {configured}"
        ))
    })?;
    if root.expose().len() == ROOT_KEY_BYTES { Ok(root) } else { Err(damaged_record_error()) }
}

/// Describes the seal that is recorded in these facts; `None` if there is no record.
///
/// # Errors
/// `Invalid` when the record is damaged.
pub(crate) fn stored_seal(facts: &[Fact]) -> Result<Option<SealInfo>> {
    Ok(read_record(facts)?.as_ref().map(seal_info))
}

/// Returns the number of the root key that wraps the data keys in these facts.
///
/// # Errors
/// `Invalid` when the record is damaged.
pub(crate) fn root_key_generation(facts: &[Fact]) -> Result<u64> {
    Ok(read_record(facts)?.map_or(0, |record| record.generation))
}

fn seal_info(record: &SealRecord) -> SealInfo {
    SealInfo {
        kind: record.kind.clone(),
        mechanism: record.mechanism.clone(),
        key: record.key.clone(),
        since: Time::from_unix_timestamp(record.wrapped_at).ok(),
    }
}

fn read_record(facts: &[Fact]) -> Result<Option<SealRecord>> {
    let fact = facts.iter().find(|(name, _)| name == SEAL_FACT);
    fact.map(|(_, value)| serde_json::from_slice(value).map_err(|_| damaged_record_error())).transpose()
}

fn damaged_record_error() -> Error {
    Error::invalid("storage: the row seal of the table meta is damaged; restore the store from a backup")
}

fn root_key_context(installation: &str) -> String {
    format!("signet/root-key/v1/{installation}")
}

/// Returns digits that distinguish keys but reveal nothing about them.
fn key_fingerprint(bytes: &Secret) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(KEY_NAME_CONTEXT);
    context.update(bytes.expose());
    context.finish().as_ref().iter().take(4).map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(record: Vec<u8>) -> Vec<Fact> {
        vec![(SEAL_FACT.to_owned(), record)]
    }

    #[tokio::test]
    async fn root_key_opens_only_with_its_seal_in_its_store() {
        let seal = SealKey::random();
        let root = generate_root_key();
        let at = Time::UNIX_EPOCH;
        let record = wrap_root(&seal, "one", &root, at, 1).await.unwrap();
        assert!(unwrap_root(&seal, "one", &facts(record.clone())).await.unwrap() == root);
        assert!(unwrap_root(&seal, "two", &facts(record.clone())).await.is_err(), "another store");
        let error = unwrap_root(&SealKey::random(), "one", &facts(record.clone())).await.err().unwrap();
        assert!(error.text().starts_with("seal key: this store is sealed by the file key "), "{error}");
        let recorded = stored_seal(&facts(record.clone())).unwrap().unwrap();
        assert_eq!(recorded, SealInfo { since: Some(at), ..seal.describe() });
        for at in 0..record.len() {
            let mut changed = record.clone();
            changed[at] ^= 1;
            let opened = unwrap_root(&seal, "one", &facts(changed)).await;
            assert!(opened.is_err() || opened.is_ok_and(|opened| opened == root), "octet {at}");
        }
    }

    #[tokio::test]
    async fn store_without_a_seal_record_uses_the_seal_key_as_root() {
        let seal = SealKey::random();
        assert!(unwrap_root(&seal, "one", &[]).await.unwrap() == *seal.bytes().unwrap());
        assert!(stored_seal(&[]).unwrap().is_none());
    }
}
