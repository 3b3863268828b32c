//! Batch tokens, which are not stored.
//!
//! The text of a batch token is its record, encrypted with the data keys of the store, so that only nodes of the same
//! database can read or create a batch token. A batch token is valid until it expires, its parent is revoked or
//! expires, or the authentication mount of its login is deleted. It has no accessor, and cannot be renewed, revoked or
//! limited in uses.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::encoding::sha256;
use super::record::{TokenAttributes, TokenRecord};
use crate::auth::store::TokenHash;
use crate::auth::{Auth, Caller, TokenState};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};

/// Prefix of every batch token, and of no other token.
pub(super) const BATCH_TOKEN_PREFIX: &str = "b.";

/// Purpose with which batch tokens are encrypted. A value that was encrypted for another purpose is not accepted as a
/// batch token.
const BATCH_TOKEN_SEAL_PURPOSE: &str = "batch token";

/// Minimum length of the encrypted part of a batch token, in characters.
const MIN_SEALED_CHARS: usize = 64;

/// Maximum length of a batch token in bytes. It is low, because a header of every request contains the token.
const MAX_BATCH_TOKEN_BYTES: usize = 16 << 10;

#[derive(Serialize, Deserialize)]
pub(in crate::auth) struct BatchToken {
    pub(super) record: TokenRecord,
    #[serde(with = "crate::auth::instant")]
    pub(super) expires_at: Time,
    /// Hash of the token with which this token was created; `None` for an orphan.
    pub(super) parent: Option<TokenHash>,
    /// Id of the authentication mount of the login that created the token or one of its ancestors.
    pub(super) mount: Option<i64>,
}

impl BatchToken {
    /// Hash of the stored token that owns the leases of this batch token; the leases end when that token is revoked.
    /// `None` for an orphan.
    pub(in crate::auth) fn parent(&self) -> Option<TokenHash> {
        self.parent
    }

    pub(super) fn attributes(&self) -> TokenAttributes {
        TokenAttributes { expires_at: Some(self.expires_at), uses: None, orphan: self.parent.is_none(), batch: true }
    }
}

pub(in crate::auth) fn is_batch(token: &str) -> bool {
    token.starts_with(BATCH_TOKEN_PREFIX)
}

/// `true` if the text has the form of a batch token.
pub(super) fn is_batch_token_form(text: &str) -> bool {
    let is_form = |sealed: &str| sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    text.strip_prefix(BATCH_TOKEN_PREFIX).is_some_and(|sealed| sealed.len() >= MIN_SEALED_CHARS && is_form(sealed))
}

/// The error for an operation that batch tokens do not support. `done` names the operation by a participle, such as
/// `renewed`.
pub(super) fn unsupported_for_batch(done: &str) -> Error {
    Error::invalid(format!("batch tokens cannot be {done}"))
}

impl TokenState {
    /// Creates the state of a batch token. It has no accessor, so records identify it by the hash of its text.
    fn of_batch(hash: TokenHash, batch: Arc<BatchToken>) -> Self {
        Self { hash, recorded_as: hash, expires_at: Some(batch.expires_at), uses: None, batch: Some(batch) }
    }
}

impl Auth {
    pub(super) fn encrypt_batch_token(&self, batch: &BatchToken) -> Result<String> {
        let body = serde_json::to_vec(batch).map_err(Error::internal)?;
        let sealed = self.store.seal(BATCH_TOKEN_SEAL_PURPOSE, body)?;
        let text = format!("{BATCH_TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(sealed));
        if text.len() > MAX_BATCH_TOKEN_BYTES {
            let max = MAX_BATCH_TOKEN_BYTES;
            return Err(Error::invalid(format!(
                "policies, meta: too long for a batch token (limit {max} bytes); remove policies or metadata"
            )));
        }
        Ok(text)
    }

    /// Decrypts a batch token; `None` if the text is no batch token or the token is no longer valid.
    pub(super) async fn decrypt_batch_token(&self, text: &str) -> Result<Option<BatchToken>> {
        let sealed = text.strip_prefix(BATCH_TOKEN_PREFIX).filter(|_| text.len() <= MAX_BATCH_TOKEN_BYTES);
        let Some(sealed) = sealed.and_then(|sealed| URL_SAFE_NO_PAD.decode(sealed).ok()) else { return Ok(None) };
        let Some(body) = self.store.unseal(BATCH_TOKEN_SEAL_PURPOSE, sealed).await? else { return Ok(None) };
        let batch: BatchToken = serde_json::from_slice(&body).map_err(Error::internal)?;
        Ok(self.is_batch_live(&batch).await?.then_some(batch))
    }

    /// `true` if the token has not expired, its mount exists, and its parent is valid.
    async fn is_batch_live(&self, batch: &BatchToken) -> Result<bool> {
        let mounted = batch.mount.is_none_or(|mount| self.mounts.load().by_id(MountId(mount)).is_some());
        if !mounted || self.clock.now() >= batch.expires_at {
            return Ok(false);
        }
        let Some(parent) = batch.parent else { return Ok(true) };
        match self.caller_by_hash(parent).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::Forbidden => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the caller that a batch token identifies.
    ///
    /// # Errors
    /// `Forbidden` when the token is invalid or no longer valid; store errors.
    pub(in crate::auth) async fn batch_caller(&self, text: &str) -> Result<Arc<Caller>> {
        let batch = self.decrypt_batch_token(text).await?.ok_or_else(Error::forbidden)?;
        let hash = sha256(text);
        self.caller_of_batch(hash, Arc::new(batch)).await
    }

    /// Decrypts a batch token that is still valid; its entity may be disabled or deleted.
    pub(in crate::auth) async fn decrypt_batch_token_state(
        &self,
        text: &str,
    ) -> Result<Option<(TokenRecord, TokenState)>> {
        let batch = self.decrypt_batch_token(text).await?;
        Ok(batch.map(|batch| (batch.record.clone(), TokenState::of_batch(sha256(text), Arc::new(batch)))))
    }

    /// Returns the caller of a decrypted batch token, after checking that the token is still valid.
    ///
    /// # Errors
    /// As [`Auth::batch_caller`].
    pub(in crate::auth) async fn recheck_batch(&self, hash: TokenHash, batch: &Arc<BatchToken>) -> Result<Arc<Caller>> {
        if !self.is_batch_live(batch).await? {
            return Err(Error::forbidden());
        }
        self.caller_of_batch(hash, Arc::clone(batch)).await
    }

    async fn caller_of_batch(&self, hash: TokenHash, batch: Arc<BatchToken>) -> Result<Arc<Caller>> {
        self.caller_of_record(batch.record.clone(), TokenState::of_batch(hash, batch)).await
    }
}
