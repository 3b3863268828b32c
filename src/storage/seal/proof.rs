//! Proof of possession of the seal key that does not reveal the key.
//!
//! The server, which has the root key, seals random bytes with it (the challenge). A holder of the seal key unwraps the
//! root key as a starting server does, and opens the bytes (the response). Neither message contains an unprotected key,
//! and a response is valid only for its challenge.

use aws_lc_rs::aead::LessSafeKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::cipher::{aead_key, open_with, seal_with};
use super::key::SealKey;
use super::root::{self, SEAL_FACT};
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::storage::backend::Fact;

const CHALLENGE_BYTES: usize = 32;

/// A challenge for a holder of the seal key, sent as JSON.
#[derive(Serialize, Deserialize)]
pub struct SealChallenge {
    installation: String,
    /// The stored record of the seal, with the wrapped root key, in base64; `None` if the store has no record.
    seal: Option<String>,
    /// The random bytes of the expected response, sealed with the root key, in base64.
    sealed: String,
}

impl SealChallenge {
    /// Returns a challenge for the seal key of a store, and the expected response.
    pub(super) fn new(root: &LessSafeKey, installation: &str, facts: &[Fact]) -> Result<(Self, Secret)> {
        let answer: [u8; CHALLENGE_BYTES] = crate::random::bytes();
        let sealed = seal_with(root, challenge_context(installation).as_bytes(), &answer, Vec::new())?;
        let seal = facts.iter().find(|(name, _)| name == SEAL_FACT).map(|(_, record)| STANDARD.encode(record));
        let challenge = Self { installation: installation.to_owned(), seal, sealed: STANDARD.encode(sealed) };
        Ok((challenge, Secret::new(answer)))
    }
}

impl SealKey {
    /// Returns the response to a challenge.
    ///
    /// # Errors
    /// `Invalid` when the store has another seal key; the errors of the device that holds the key.
    pub async fn answer(&self, challenge: &SealChallenge) -> Result<Secret> {
        let damaged = |_| Error::invalid("seal: the challenge of the server is invalid");
        let record = challenge.seal.as_ref().map(|record| STANDARD.decode(record)).transpose().map_err(damaged)?;
        let facts: Vec<Fact> = record.into_iter().map(|record| (SEAL_FACT.to_owned(), record)).collect();
        let root = root::unwrap_root(self, &challenge.installation, &facts).await?;
        let sealed = STANDARD.decode(&challenge.sealed).map_err(damaged)?;
        open_with(&aead_key(root.expose())?, challenge_context(&challenge.installation).as_bytes(), &sealed)
            .map(Secret::new)
            .ok_or_else(|| Error::invalid("seal key: does not belong to this store"))
    }
}

fn challenge_context(installation: &str) -> String {
    format!("signet/seal-proof/v1/{installation}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;

    #[tokio::test]
    async fn seal_challenge_is_answered_only_with_the_seal_key() {
        let seal = SealKey::random();
        let other = SealKey::random();
        let root_key = root::generate_root_key();
        let record = root::wrap_root(&seal, "one", &root_key, Time::UNIX_EPOCH, 1).await.unwrap();
        let of_record = vec![(SEAL_FACT.to_owned(), record)];
        // Tests a store with a record of its seal, and a store without such a record, because its seal was never
        // changed.
        let bytes = seal.bytes().unwrap().clone();
        for (root_key, facts) in [(root_key, of_record), (bytes, Vec::new())] {
            let root_key = aead_key(root_key.expose()).unwrap();
            let (first, answer) = SealChallenge::new(&root_key, "one", &facts).unwrap();
            let (second, another) = SealChallenge::new(&root_key, "one", &facts).unwrap();
            let text = serde_json::to_string(&first).unwrap();
            let first: SealChallenge = serde_json::from_str(&text).unwrap();
            assert!(seal.answer(&first).await.unwrap() == answer);
            assert!(seal.answer(&second).await.unwrap() == another && answer != another);
            assert!(other.answer(&first).await.is_err());
            let moved = SealChallenge { installation: "two".to_owned(), ..first };
            assert!(seal.answer(&moved).await.is_err(), "of another store");
        }
    }
}
