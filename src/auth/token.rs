//! Tokens: creation, lookup, renewal and revocation.
//!
//! `create` makes tokens from other tokens, `login` from logins, and `root` makes root tokens; `issuance` is the last
//! step of each. `request`, `grants`, `terms`, `roles` and `ttl` determine policies and lifetime. A `record` describes
//! a token: most records are rows of the store, but the text of a `batch` token is its encrypted record. A token that
//! has expired or is used up is rejected immediately, even if its row is deleted later.

mod batch;
mod by_path;
mod create;
mod encoding;
mod grants;
mod issuance;
mod login;
mod network;
mod record;
mod renew;
mod request;
mod response;
mod revocation;
mod role_table;
mod roles;
mod root;
mod terms;
mod ttl;

use serde_json::Value;

pub use super::identity::LoginAlias;
pub(super) use batch::{BatchToken, is_batch};
pub use by_path::{TokenLease, TokenLeaseKeys, UnreadableTokens};
pub use create::CreatePath;
pub(super) use encoding::{hash_of, new_token};
pub(super) use issuance::{TokenOwners, token_row};
pub use login::AuthenticatedLogin;
pub use network::Network;
pub use record::TokenLogin;
pub(super) use record::TokenRecord;
pub use response::TokenResponse;
pub use revocation::MAX_TOKENS_PER_SWEEP;
pub(super) use role_table::TokenRoleTable;
pub use roles::{TOKEN_ROLE_FIELDS, TOKEN_ROLE_SYNONYMS};
pub use terms::{TokenKind, TokenTerms};

use super::store::{TokenHash, TokenRow};
use super::{Auth, Caller};
use crate::error::{Error, Kind, Result};
use record::TokenAttributes;

enum LiveToken {
    Stored(TokenRow),
    Batch(Box<BatchToken>),
}

/// `true` if a text has the form of a token of this server.
pub fn is_token(text: &str) -> bool {
    encoding::is_stored_token(text) || batch::is_batch_token_form(text)
}

/// `true` if a text has the form of a token or accessor of this server.
pub fn is_token_or_accessor(text: &str) -> bool {
    is_token(text) || encoding::is_accessor(text)
}

fn bad_token() -> Error {
    Error::new(Kind::Forbidden, "bad token")
}

impl Auth {
    async fn live_token(&self, token: &str) -> Result<Option<LiveToken>> {
        if is_batch(token) {
            return Ok(self.decrypt_batch_token(token).await?.map(|batch| LiveToken::Batch(Box::new(batch))));
        }
        let Some(hash) = hash_of(token) else { return Ok(None) };
        Ok(self.live_row(hash).await?.map(LiveToken::Stored))
    }

    pub(super) async fn live_row_by_accessor(&self, accessor: &str) -> Result<Option<TokenRow>> {
        let Some(hash) = hash_of(accessor) else { return Ok(None) };
        Ok(self.store.token_by_accessor(hash).await?.filter(|row| self.is_live(row)))
    }

    /// Returns the lookup response for the caller's own token, whose text is `token`.
    ///
    /// # Errors
    /// `Forbidden` with `bad token` if the token has expired or was revoked after the caller was identified;
    /// store errors.
    pub async fn lookup_self(&self, caller: &Caller, token: &str) -> Result<Value> {
        if caller.is_batch() {
            return self.lookup(token).await;
        }
        let now = self.clock.now();
        // A request that took the last use can still look up its token, so only the expiry is checked.
        let row = self.store.token(caller.hash).await?.filter(|row| row.expires_at.is_none_or(|end| now < end));
        self.render_row(token, &row.ok_or_else(bad_token)?).await
    }

    /// Returns the lookup response for the token with this text.
    ///
    /// # Errors
    /// `Forbidden` with `bad token` if the token does not exist, has expired or is used up; store errors.
    pub async fn lookup(&self, token: &str) -> Result<Value> {
        match self.live_token(token).await?.ok_or_else(bad_token)? {
            LiveToken::Stored(row) => self.render_row(token, &row).await,
            LiveToken::Batch(batch) => self.render_lookup(&batch.record, token, &batch.attributes()).await,
        }
    }

    /// Returns the lookup response for the token with this accessor. Its member `id` is empty.
    ///
    /// # Errors
    /// `Invalid` with `invalid accessor` if there is no such live token; store errors.
    pub async fn lookup_accessor(&self, accessor: &str) -> Result<Value> {
        let row = self.live_row_by_accessor(accessor).await?;
        self.render_row("", &row.ok_or_else(|| Error::invalid("invalid accessor"))?).await
    }

    async fn render_row(&self, id: &str, row: &TokenRow) -> Result<Value> {
        self.render_lookup(&TokenRecord::of(row)?, id, &TokenAttributes::of(row)).await
    }

    async fn render_lookup(&self, record: &TokenRecord, id: &str, attributes: &TokenAttributes) -> Result<Value> {
        let mut rendered = record.lookup_json(id, attributes, self.clock.now());
        let identity_policies = self.identity_policies(&record.entity_id).await?;
        if !identity_policies.is_empty() {
            rendered["identity_policies"] = identity_policies.into();
        }
        Ok(rendered)
    }

    /// Returns the accessors of live tokens that sort after `after`, in byte order. Batch tokens have no accessor.
    /// Returns `None` if there are more than `max` tokens, counting expired and used-up ones.
    ///
    /// # Errors
    /// Store errors.
    pub async fn accessors(&self, after: &str, max: usize) -> Result<Option<Vec<String>>> {
        const ACCESSORS_PER_PAGE: u32 = 500;
        let mut found = Vec::new();
        let mut looked_at = 0;
        let mut from = TokenHash::default();
        while looked_at <= max {
            let page = self.accessor_page(from, ACCESSORS_PER_PAGE).await?;
            looked_at += page.len();
            let last = page.last().map(|(position, _)| *position).filter(|_| page.len() == ACCESSORS_PER_PAGE as usize);
            found.extend(page.into_iter().filter_map(|(_, accessor)| accessor).filter(|text| text.as_str() > after));
            let Some(last) = last else {
                found.sort_unstable();
                return Ok(Some(found).filter(|found| found.len() <= max));
            };
            from = last;
        }
        Ok(None)
    }

    /// Returns one page of tokens: up to `limit` of those whose accessor hash is greater than `after`, in the order of
    /// that hash, because the store has no other index. Each item is the hash, and the accessor if the token is live.
    ///
    /// # Errors
    /// Store errors.
    pub async fn accessor_page(&self, after: TokenHash, limit: u32) -> Result<Vec<(TokenHash, Option<String>)>> {
        let rows = self.store.tokens(after, limit).await?;
        let position_and_accessor = |row: &TokenRow| {
            // A record that cannot be read must not hide the other tokens.
            let record = Some(row).filter(|row| self.is_live(row)).and_then(|row| TokenRecord::of(row).ok());
            (row.accessor_hash, record.map(|record| record.accessor))
        };
        Ok(rows.iter().map(position_and_accessor).collect())
    }

    /// Returns the `after` argument with which [`Auth::accessor_page`] continues after this accessor; the start of the
    /// list for a text that is no accessor.
    pub fn accessor_position(&self, accessor: &str) -> TokenHash {
        hash_of(accessor).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
