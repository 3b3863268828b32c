//! The leases of tokens, as the lease API shows them, and revocation of tokens by the path of the request that created
//! them.
//!
//! The id of a token's lease is the path of that request and the hash of the token, so the lease needs no row. Tokens
//! that never expire and batch tokens have no lease. Leases are found by reading all tokens, because an index by path
//! would slow down logins.

use std::collections::BTreeSet;

use super::record::TokenRecord;
use crate::auth::Auth;
use crate::auth::store::{TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::PathScope;
use crate::error::Result;

/// Number of token rows that are read from the store at a time.
const TOKENS_PER_PAGE: u32 = 100;

/// Treatment of tokens whose record cannot be read, in a revocation by path: their path is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableTokens {
    /// Such tokens are not revoked.
    Keep,
    /// Such tokens are revoked, unless their login belongs to another mount. Requests with such tokens fail anyway, but
    /// their descendants may be readable, and an operator may restore the row.
    Revoke,
}

/// One page of the list of token leases below a path.
pub struct TokenLeaseKeys {
    /// Keys directly below the path, in byte order: hashes of tokens, and path segments with a trailing `/`.
    pub keys: Vec<String>,
    /// Number of tokens whose record cannot be read and whose lease may be below the path.
    pub unreadable: u64,
}

/// The lease of a token, which ends when the token expires.
pub struct TokenLease {
    hash: TokenHash,
    /// Path of the request that created the token.
    pub path: String,
    /// Time at which the token was created.
    pub issued_at: Time,
    /// Time at which the token expires.
    pub expires_at: Time,
    /// Time at which the token was last renewed.
    pub last_renewal: Option<Time>,
    /// `true` if the token can be renewed.
    pub renewable: bool,
}

impl TokenLease {
    /// Returns the lease of the token in `row`; `None` if the token never expires.
    fn of(row: &TokenRow) -> Result<Option<Self>> {
        let Some(expires_at) = row.expires_at else { return Ok(None) };
        let TokenRecord { path, created_at, last_renewal, renewable, .. } = TokenRecord::of(row)?;
        Ok(Some(Self { hash: row.hash, path, issued_at: created_at, expires_at, last_renewal, renewable }))
    }

    /// Returns the id of the lease: the path and the hash of the token.
    pub fn id(&self) -> String {
        format!("{}/{}", self.path, to_hex(&self.hash))
    }
}

impl Auth {
    /// Returns the lease with this id; `None` if its token is not live. If the mount was moved, the id may contain the
    /// path at the token's creation or the current path.
    ///
    /// # Errors
    /// Store errors.
    pub async fn token_lease(&self, id: &str) -> Result<Option<TokenLease>> {
        let Some((path, hash)) = parse_lease_id(id) else { return Ok(None) };
        let Some(row) = self.live_row(hash).await? else { return Ok(None) };
        let lease = TokenLease::of(&row)?;
        let scopes = self.mounts().path_scopes(path);
        Ok(lease.filter(|lease| {
            lease.path == path || scopes.iter().any(|scope| is_at_scope_path(scope, &row, &lease.path))
        }))
    }

    /// Revokes the token with this lease id, and its descendants. Returns `true` if there was such a token.
    ///
    /// # Errors
    /// Store errors.
    pub async fn revoke_token_lease(&self, id: &str) -> Result<bool> {
        match self.token_lease(id).await? {
            Some(lease) => self.revoke_hash(lease.hash).await,
            None => Ok(false),
        }
    }

    /// Revokes all tokens that expire and were created at or below `prefix`. If `prefix` is the id of a token's lease,
    /// revokes only that token. The descendants of revoked tokens are revoked too. May miss tokens that are created
    /// during the call. Returns the number of tokens whose record cannot be read.
    ///
    /// # Errors
    /// Store errors; some tokens may be revoked then, and repeating the call revokes the others.
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
                    Ok(Some(lease)) if is_in_scopes(&scopes, row, &lease.path) => found.push(row.hash),
                    Err(_) if may_be_in_scopes(&scopes, row) => {
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

    /// `true` if any token has a lease.
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

    /// Lists the keys of token leases directly below `prefix`: the first `max` keys after `after`, in byte order. A key
    /// is the hash of a token or, for longer paths, the next path segment with a trailing `/`. Reads all tokens.
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
                        unreadable += u64::from(may_be_in_scopes(&scopes, row));
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

/// `true` if the token in `row`, created at `path`, belongs to one of the scopes.
fn is_in_scopes(scopes: &[PathScope], row: &TokenRow, path: &str) -> bool {
    scopes.iter().any(|scope| scope.includes(row.mount, path))
}

/// `true` if the token in `row`, whose path is unknown, may belong to one of the scopes.
fn may_be_in_scopes(scopes: &[PathScope], row: &TokenRow) -> bool {
    scopes.iter().any(|scope| scope.mount.is_none_or(|mount| row.mount == Some(mount)))
}

/// `true` if the token in `row`, created at `path`, belongs to the scope, and `path` is exactly the path of the scope.
fn is_at_scope_path(scope: &PathScope, row: &TokenRow, path: &str) -> bool {
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
