//! Root tokens that a development server or the operator of an installation creates.
//!
//! One stored document per display name records the current root token. [`Auth::root_token`] replaces and revokes the
//! current root token; [`Auth::additional_root_token`] creates another one and revokes none.

use serde::{Deserialize, Serialize};

use super::TokenRecord;
use super::batch::is_batch;
use super::encoding::{hash_of, new_token};
use super::issuance::{TokenOwners, token_row};
use super::record::TokenAttributes;
use super::response::TokenResponse;
use crate::auth::store::{AuthWrite, CONFIG_DOCUMENT_KIND, TokenHash, config_document, config_write};
use crate::auth::{Auth, ROOT_POLICY};
use crate::documents::{Document, DocumentWrite};
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// Prefix of the name of the document that records a current root token; the display name follows.
const ROOT_TOKEN_PREFIX: &str = "root-token/";

#[derive(Serialize, Deserialize)]
struct CurrentRootToken {
    hash: TokenHash,
}

impl Auth {
    /// Creates a root token that never expires, with the text `given` or a random text. The new token becomes the
    /// current root token of `display_name`. The previous current root token is revoked, unless its text is `given`.
    ///
    /// # Errors
    /// `Invalid` when `given` is not 1 to 512 printable ASCII bytes without blanks, or looks like a batch token;
    /// `Conflict` when `given` is already the text of another kind of token, or another root token is created
    /// concurrently; store errors.
    pub async fn root_token(&self, given: Option<&str>, display_name: &str) -> Result<String> {
        let token = given.map_or_else(|| new_token(self.clock.now()), str::to_owned);
        if is_batch(&token) {
            return Err(Error::invalid("root token: must not begin with \"b.\", the prefix of batch tokens"));
        }
        if !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::invalid("root token: must be printable ASCII characters without blanks"));
        }
        let hash = hash_of(&token).ok_or_else(|| Error::invalid("root token: must have 1 to 512 characters"))?;
        let mut unit = Vec::new();
        let (current, expected) = self.root_document(display_name).await?;
        let old = current.map(|current| current.hash);
        let stored = self.store.token(hash).await?;
        if let Some(row) = &stored {
            let is_root = TokenRecord::of(row)?.policies == [ROOT_POLICY];
            if !is_root || row.expires_at.is_some() || row.uses.is_some() {
                return Err(Error::new(
                    Kind::Conflict,
                    "root token: the text already belongs to a token of another kind; choose another text",
                ));
            }
        } else {
            let record =
                self.new_token_record(vec![ROOT_POLICY.to_owned()], display_name.to_owned(), "auth/token/root");
            unit.push(AuthWrite::TokenInsert(token_row(&token, &record, None, None, TokenOwners::default())?));
        }
        if old != Some(hash) {
            unit.extend(old.map(|old| AuthWrite::TokenRevoke(vec![old])));
            unit.push(AuthWrite::Document(root_document_write(display_name, expected, hash)?));
        }
        if !unit.is_empty() {
            let ended = self.evict_revoked(self.store.commit(unit).await?);
            self.finish_revocation(ended).await?;
        }
        Ok(token)
    }

    /// Creates another root token that never expires. If `display_name` has no current root token, the new token
    /// becomes the current one.
    ///
    /// # Errors
    /// Store errors; `Conflict` when another call creates the first root token concurrently.
    pub async fn additional_root_token(&self, display_name: &str) -> Result<TokenResponse> {
        let token = new_token(self.clock.now());
        let hash = hash_of(&token).ok_or_else(|| Error::internal("a new token has no hash"))?;
        let record = self.new_token_record(vec![ROOT_POLICY.to_owned()], display_name.to_owned(), "auth/token/root");
        let row = token_row(&token, &record, None, None, TokenOwners::default())?;
        let attributes = TokenAttributes::of(&row);
        let mut unit = vec![AuthWrite::TokenInsert(row)];
        if !self.has_root_token(display_name).await? {
            unit.push(AuthWrite::Document(root_document_write(display_name, 0, hash)?));
        }
        self.store.commit(unit).await?;
        let now = record.created_at;
        Ok(TokenResponse::new(Secret::new(token), record, &attributes, now))
    }

    /// `true` if a root token with this display name was ever created, even if it was revoked.
    ///
    /// # Errors
    /// Store errors.
    pub async fn has_root_token(&self, display_name: &str) -> Result<bool> {
        Ok(self.root_document(display_name).await?.0.is_some())
    }

    /// `true` if a root token was ever created in this store. Otherwise the store is new, or not the one that the
    /// operator meant.
    ///
    /// # Errors
    /// Store errors.
    pub async fn is_initialized(&self) -> Result<bool> {
        let is_root_document = |document: &Document| document.key.name.starts_with(ROOT_TOKEN_PREFIX);
        Ok(self.store.documents(CONFIG_DOCUMENT_KIND).await?.iter().any(is_root_document))
    }

    async fn root_document(&self, display_name: &str) -> Result<(Option<CurrentRootToken>, u64)> {
        config_document(&*self.store, &format!("{ROOT_TOKEN_PREFIX}{display_name}")).await
    }
}

fn root_document_write(display_name: &str, expected: u64, hash: TokenHash) -> Result<DocumentWrite> {
    config_write(&format!("{ROOT_TOKEN_PREFIX}{display_name}"), expected, Some(&CurrentRootToken { hash }))
}
