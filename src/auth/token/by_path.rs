//! The leases of tokens, as clients of the lease API see them, and tokens by the path of the request that created them.
//!
//! The id of a token's lease is its path and the hash of the token, so the lease needs no row. Tokens that never expire
//! and batch tokens have no lease. Leases are found by reading all tokens, since an index by path would slow down
//! logins.

use std::collections::BTreeSet;

use super::record::TokenRecord;
use crate::auth::Auth;
use crate::auth::store::{TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::PathScope;
use crate::error::Result;

/// Token rows that are read at a time.
const TOKENS_PER_PAGE: u32 = 100;

/// Treatment of unreadable tokens in a revocation by path. The path of a token is unknown if its record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableTokens {
    /// They stay.
    Keep,
    /// They are revoked, unless their login belongs to another mount. Requests with such tokens fail anyway, but their
    /// descendants may be readable, and the row may be restored.
    Revoke,
}

/// A page of keys of token leases.
pub struct TokenLeaseKeys {
    /// The keys, in byte order.
    pub keys: Vec<String>,
    /// Number of tokens whose record cannot be read and that may belong below the path.
    pub unreadable: u64,
}

/// The lease of a token.
pub struct TokenLease {
    hash: TokenHash,
    /// Path of the request that created the token.
    pub path: String,
    /// Time of creation.
    pub issued_at: Time,
    /// Time of expiry.
    pub expires_at: Time,
    /// Time of the last renewal.
    pub last_renewal: Option<Time>,
    /// `true` if the token can be renewed.
    pub renewable: bool,
}

impl TokenLease {
    /// The lease of a token; `None` if it never expires.
    fn of(row: &TokenRow) -> Result<Option<Self>> {
        let Some(expires_at) = row.expires_at else { return Ok(None) };
        let TokenRecord { path, created_at, last_renewal, renewable, .. } = TokenRecord::of(row)?;
        Ok(Some(Self { hash: row.hash, path, issued_at: created_at, expires_at, last_renewal, renewable }))
    }

    /// Path and hash of the token.
    pub fn id(&self) -> String {
        format!("{}/{}", self.path, to_hex(&self.hash))
    }
}

impl Auth {
    /// Returns the lease with this id, which contains the path at creation or the current path of a moved mount; `None`
    /// if its token is not live.
    ///
    /// # Errors
    /// Store errors.
    pub async fn token_lease(&self, id: &str) -> Result<Option<TokenLease>> {
        let Some((path, hash)) = parse_lease_id(id) else { return Ok(None) };
        let Some(row) = self.live_row(hash).await? else { return Ok(None) };
        let lease = TokenLease::of(&row)?;
        let scopes = self.mounts().path_scopes(path);
        Ok(lease.filter(|lease| lease.path == path || scopes.iter().any(|scope| is_at(scope, &row, &lease.path))))
    }

    /// Ends the token with this lease, and its descendants. Returns `true` if there was one.
    ///
    /// # Errors
    /// Store errors.
    pub async fn revoke_token_lease(&self, id: &str) -> Result<bool> {
        match self.token_lease(id).await? {
            Some(lease) => self.revoke_hash(lease.hash).await,
            None => Ok(false),
        }
    }

    /// Ends all expiring tokens that were created at or below `prefix`, or whose lease has this id, with their
    /// descendants. Tokens created in the meantime may stay. Returns the number of unreadable tokens.
    ///
    /// # Errors
    /// Store errors; some tokens may have ended then, and repeating the call ends the others.
    pub async fn revoke_tokens_by_path(&self, prefix: &str, unreadable: UnreadableTokens) -> Result<u64> {
        if self.revoke_token_lease(prefix).await? {
            return Ok(0);
        }
        let scopes = self.mounts().path_scopes(prefix);
        let mut after = TokenHash::default();
        let mut unreadable_count = 0;
        loop {
            let rows = self.store.tokens(after, TOKENS_PER_PAGE).await?;
            let Some(last) = rows.last() else {
                if unreadable_count > 0 {
                    tracing::warn!(tokens = unreadable_count, "revocation by path: some token records cannot be read");
                }
                return Ok(unreadable_count);
            };
            after = last.accessor_hash;
            let mut found = Vec::new();
            for row in rows.iter().filter(|row| self.is_live(row) || row.uses == Some(0)) {
                match TokenLease::of(row) {
                    Ok(Some(lease)) if is_below(&scopes, row, &lease.path) => found.push(row.hash),
                    Err(_) if may_be_below(&scopes, row) => {
                        unreadable_count += 1;
                        if unreadable == UnreadableTokens::Revoke {
                            found.push(row.hash);
                        }
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            if !found.is_empty() {
                self.revoke_hashes(found).await?;
            }
        }
    }

    /// Returns `true` if there is a token lease.
    ///
    /// # Errors
    /// Store errors.
    pub async fn has_token_leases(&self) -> Result<bool> {
        let mut after = TokenHash::default();
        loop {
            let rows = self.store.tokens(after, TOKENS_PER_PAGE).await?;
            let Some(last) = rows.last() else { return Ok(false) };
            after = last.accessor_hash;
            if rows.iter().any(|row| self.is_live(row) && row.expires_at.is_some()) {
                return Ok(true);
            }
        }
    }

    /// Returns the first `max` keys after `after` directly below a path, in byte order: hashes of tokens, and segments
    /// of longer paths with a trailing `/`. Reads all tokens.
    ///
    /// # Errors
    /// Store errors.
    pub async fn token_lease_keys(&self, prefix: &str, after: &str, max: usize) -> Result<TokenLeaseKeys> {
        let mut unreadable = 0;
        let scopes = self.mounts().path_scopes(prefix);
        let mut keys = BTreeSet::new();
        let mut from = TokenHash::default();
        loop {
            let rows = self.store.tokens(from, TOKENS_PER_PAGE).await?;
            let Some(last) = rows.last() else {
                return Ok(TokenLeaseKeys { keys: keys.into_iter().collect(), unreadable });
            };
            from = last.accessor_hash;
            for row in rows.iter().filter(|row| self.is_live(row)) {
                let lease = match TokenLease::of(row) {
                    Ok(Some(lease)) => lease,
                    Ok(None) => continue,
                    Err(_) => {
                        unreadable += u64::from(may_be_below(&scopes, row));
                        continue;
                    }
                };
                let belongs = |scope: &&PathScope| scope.includes(row.mount, &lease.path);
                let Some(rest) = scopes.iter().find(belongs).and_then(|scope| scope.to_listed_path(&lease.path)) else {
                    continue;
                };
                let key = match rest.split('/').next().unwrap_or_default() {
                    "" => to_hex(&lease.hash),
                    segment => format!("{segment}/"),
                };
                if key.as_str() > after {
                    keys.insert(key);
                }
                if keys.len() > max {
                    keys.pop_last();
                }
            }
        }
    }
}

/// `true` if a token was created in one of the scopes.
fn is_below(scopes: &[PathScope], row: &TokenRow, path: &str) -> bool {
    scopes.iter().any(|scope| scope.includes(row.mount, path))
}

/// `true` if a token whose path is unknown may have been created in one of the scopes.
fn may_be_below(scopes: &[PathScope], row: &TokenRow) -> bool {
    scopes.iter().any(|scope| scope.mount.is_none_or(|mount| row.mount == Some(mount)))
}

/// `true` if a token was created at exactly the path of a scope.
fn is_at(scope: &PathScope, row: &TokenRow, path: &str) -> bool {
    scope.shown.is_empty() && scope.stored == path && scope.includes(row.mount, path)
}

fn parse_lease_id(id: &str) -> Option<(&str, TokenHash)> {
    let (path, text) = id.rsplit_once('/')?;
    let mut hash = TokenHash::default();
    if text.len() != 2 * hash.len() || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some((path, hash))
}

fn to_hex(hash: &TokenHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
