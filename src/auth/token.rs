//! Tokens: what is stored of one, looking one up, renewing it, ending it.
//!
//! `create` makes them from others, `login` from logins, by the `terms` of a role; `root` makes the ones that stand
//! at the beginning. `ttl` does the arithmetic of their lives, `names` knows which policies they can have, and
//! a `network` is what they can be bound to. A token that has expired or is used up is treated as absent at once, whenever its
//! row may go. Batch tokens and token roles do not exist here.

mod create;
mod login;
mod names;
mod network;
mod root;
mod terms;
mod ttl;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use super::identity::LoginAlias as Alias;
pub use login::{LoggedIn, Login};
pub use network::Network;
pub use terms::{TokenKind, TokenTerms};

use super::mounts::TOKEN_MOUNT;
use super::store::{AuthOutcome, AuthWrite, TokenHash, TokenRow};
use super::{Auth, Caller};
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Kind, Result, Warnings};

/// Longest token or accessor that is looked at, in bytes.
const MAX_TEXT: usize = 512;
/// Characters of `[0-9A-Za-z]` that hold 256 random bits.
const TOKEN_CHARACTERS: usize = 43;
const ACCESSOR_CHARACTERS: usize = 24;
/// Tokens that one step of a sweep removes, and steps of one sweep.
const SWEEP_BATCH: u32 = 500;
const SWEEP_STEPS: u32 = 20;

/// What is stored of a token beside its row's columns. The token itself is nowhere in it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub accessor: String,
    pub policies: Vec<String>,
    /// The request path that made it.
    pub path: String,
    pub meta: BTreeMap<String, String>,
    pub display_name: String,
    #[serde(with = "super::instant")]
    pub created_at: Time,
    /// Life at creation; zero without an end.
    pub creation_ttl: Duration,
    /// Life that the last creation or renewal asked for and got; what a renewal repeats.
    pub grant: Duration,
    /// Longest life, counted from creation; zero for the mount's.
    pub explicit_max_ttl: Duration,
    /// Life that every renewal gives; zero for none.
    pub period: Duration,
    pub renewable: bool,
    pub orphan: bool,
    pub entity_id: String,
    /// Where it may be used; anywhere when empty.
    #[serde(default)]
    pub bound_cidrs: Vec<Network>,
    /// The login that it began with.
    #[serde(default)]
    pub login: Option<LoggedIn>,
    #[serde(default, with = "super::instant::option")]
    pub last_renewal: Option<Time>,
}

impl Record {
    /// Opens the body of a row.
    pub(super) fn of(row: &TokenRow) -> Result<Self> {
        serde_json::from_slice(&row.body).map_err(Error::internal)
    }

    fn to_body(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::internal)
    }

    /// The `auth` object of an answer. `token` is `""` where the caller did not name it.
    fn auth_json(&self, token: &str, ttl: Duration, uses: Option<u32>) -> Value {
        json!({
            "client_token": token,
            "accessor": self.accessor,
            "policies": self.policies,
            "token_policies": self.policies,
            "metadata": self.meta_json(),
            "lease_duration": ttl.as_secs(),
            "renewable": self.renewable,
            "entity_id": self.entity_id,
            "token_type": "service",
            "orphan": self.orphan,
            "mfa_requirement": null,
            "num_uses": uses.unwrap_or(0),
        })
    }

    fn meta_json(&self) -> Value {
        if self.meta.is_empty() { Value::Null } else { json!(self.meta) }
    }

    /// What a look-up shows. `id` is `""` when the accessor was asked for.
    fn lookup_json(&self, id: &str, row: &TokenRow, now: Time) -> Value {
        let mut shown = json!({
            "id": id,
            "accessor": self.accessor,
            "policies": self.policies,
            "path": self.path,
            "meta": self.meta_json(),
            "display_name": self.display_name,
            // A limited token that is on its last use is not one without a limit, which shows 0.
            "num_uses": row.uses.map_or(0, |left| if left == 0 { -1 } else { i64::from(left) }),
            "orphan": self.orphan,
            "creation_time": self.created_at.unix_timestamp(),
            "creation_ttl": self.creation_ttl.as_secs(),
            "issue_time": rfc3339(self.created_at),
            "expire_time": row.expires_at.map(rfc3339),
            "ttl": row.expires_at.map_or(0, |end| remaining(end, now).as_secs()),
            "explicit_max_ttl": self.explicit_max_ttl.as_secs(),
            "entity_id": self.entity_id,
            "renewable": self.renewable,
            "type": "service",
        });
        if !self.period.is_zero() {
            shown["period"] = self.period.as_secs().into();
        }
        if !self.bound_cidrs.is_empty() {
            shown["bound_cidrs"] = json!(self.bound_cidrs);
        }
        if let Some(login) = &self.login {
            shown["role"] = login.role.as_str().into();
        }
        if let Some(at) = self.last_renewal {
            shown["last_renewal"] = rfc3339(at).into();
            shown["last_renewal_time"] = at.unix_timestamp().into();
        }
        shown
    }
}

/// The hash under which a token or accessor is stored; `None` for what cannot be one.
pub(super) fn hash_of(text: &str) -> Option<TokenHash> {
    if text.is_empty() || text.len() > MAX_TEXT {
        return None;
    }
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    Some(hash)
}

fn remaining(end: Time, now: Time) -> Duration {
    Duration::try_from(end - now).unwrap_or_default()
}

fn bad_token() -> Error {
    Error::new(Kind::Forbidden, "bad token")
}

impl Auth {
    /// The look-up data of the caller's own token, whose text is `token`.
    ///
    /// # Errors
    /// `Forbidden` with `bad token` when it ended since it was identified; those of the store.
    pub async fn lookup_self(&self, caller: &Caller, token: &str) -> Result<Value> {
        let now = self.clock.now();
        let row = self.store.token(caller.hash).await?.filter(|row| row.expires_at.is_none_or(|end| now < end));
        let row = row.ok_or_else(bad_token)?;
        self.with_identity(Record::of(&row)?.lookup_json(token, &row, now)).await
    }

    /// The look-up data of any token.
    ///
    /// # Errors
    /// `Forbidden` with `bad token` when it is not live; those of the store.
    pub async fn lookup(&self, token: &str) -> Result<Value> {
        let row = self.live_row(hash_of(token).ok_or_else(bad_token)?).await?.ok_or_else(bad_token)?;
        self.with_identity(Record::of(&row)?.lookup_json(token, &row, self.clock.now())).await
    }

    /// The look-up data of the token with this accessor, with an empty `id`.
    ///
    /// # Errors
    /// `Invalid` with `invalid accessor`; those of the store.
    pub async fn lookup_accessor(&self, accessor: &str) -> Result<Value> {
        let row = self.row_by_accessor(accessor).await?.ok_or_else(|| Error::invalid("invalid accessor"))?;
        self.with_identity(Record::of(&row)?.lookup_json("", &row, self.clock.now())).await
    }

    /// Renews the caller's own token, whose text is `token`. `increment` is a wish; `None` and zero
    /// repeat the last grant. Returns the `auth` object and warnings.
    ///
    /// # Errors
    /// `Invalid` when it is gone, not renewable, or at the end of its longest life; those of the store.
    pub async fn renew_self(
        &self,
        caller: &Caller,
        token: &str,
        increment: Option<Duration>,
    ) -> Result<(Value, Warnings)> {
        self.renew_row(self.live_row(caller.hash).await?, token, increment).await
    }

    /// Renews any token; as [`Auth::renew_self`].
    ///
    /// # Errors
    /// As [`Auth::renew_self`].
    pub async fn renew(&self, token: &str, increment: Option<Duration>) -> Result<(Value, Warnings)> {
        let row = match hash_of(token) {
            Some(hash) => self.live_row(hash).await?,
            None => None,
        };
        self.renew_row(row, token, increment).await
    }

    /// Renews the token with this accessor; the answer does not name the token.
    ///
    /// # Errors
    /// As [`Auth::renew_self`]; `invalid accessor`.
    pub async fn renew_accessor(&self, accessor: &str, increment: Option<Duration>) -> Result<(Value, Warnings)> {
        let row = self.row_by_accessor(accessor).await?;
        let row = row.ok_or_else(|| Error::invalid("invalid accessor"))?;
        self.renew_row(Some(row), "", increment).await
    }

    async fn renew_row(
        &self,
        row: Option<TokenRow>,
        token: &str,
        increment: Option<Duration>,
    ) -> Result<(Value, Warnings)> {
        let gone = || Error::invalid("token not found");
        let row = row.ok_or_else(gone)?;
        let mut record = Record::of(&row)?;
        let now = self.clock.now();
        if !record.renewable || row.expires_at.is_none() {
            return Err(Error::invalid("lease is not renewable"));
        }
        let asked = increment.filter(|wish| !wish.is_zero()).unwrap_or(record.grant);
        let grant = self.token_limits(&record).grant(now, asked)?;
        record.grant = grant.ttl;
        record.last_renewal = Some(now);
        let update = AuthWrite::TokenUpdate {
            hash: row.hash,
            expires_at: Some(ttl::after(now, grant.ttl)),
            body: record.to_body()?,
        };
        let outcome = self.store.commit(vec![update]).await?;
        self.tokens.remove(&[row.hash]);
        match outcome.as_slice() {
            [AuthOutcome::Done] => {
                Ok((self.with_identity(record.auth_json(token, grant.ttl, row.uses)).await?, grant.warnings))
            }
            _ => Err(gone()),
        }
    }

    /// Ends a token and all its descendants; whether there was one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn revoke(&self, token: &str) -> Result<bool> {
        match hash_of(token) {
            Some(hash) => self.revoke_hash(hash).await,
            None => Ok(false),
        }
    }

    /// Ends the token with this accessor, and its descendants; whether there was one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn revoke_accessor(&self, accessor: &str) -> Result<bool> {
        match self.row_by_accessor(accessor).await? {
            Some(row) => self.revoke_hash(row.hash).await,
            None => Ok(false),
        }
    }

    async fn revoke_hash(&self, hash: TokenHash) -> Result<bool> {
        let outcomes = self.store.commit(vec![AuthWrite::TokenRevoke(hash)]).await?;
        Ok(self.forget(&outcomes))
    }

    /// Drops revoked tokens from the cache; whether there were any.
    fn forget(&self, outcomes: &[AuthOutcome]) -> bool {
        let revoked = outcomes.iter().filter_map(|outcome| match outcome {
            AuthOutcome::Revoked(hashes) if !hashes.is_empty() => Some(hashes),
            _ => None,
        });
        revoked.fold(false, |_, hashes| {
            self.tokens.remove(hashes);
            true
        })
    }

    /// Removes tokens that have expired, in small batches, policies that have, and entities that nobody needs;
    /// returns how many tokens went. To be called again and again; stopping at any point does no harm.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn sweep(&self) -> Result<u32> {
        let now = self.clock.now();
        self.tokens.prune(now);
        self.sweep_policies().await?;
        let mut removed = 0;
        for _ in 0..SWEEP_STEPS {
            let batch = self.store.sweep_tokens(now, SWEEP_BATCH).await?;
            removed += batch;
            if batch < SWEEP_BATCH {
                break;
            }
        }
        if removed > 0 {
            // Descendants that have not expired themselves went with them: forget everything.
            self.tokens.clear();
        }
        self.sweep_entities().await?;
        Ok(removed)
    }

    /// The live row with this accessor.
    pub(super) async fn row_by_accessor(&self, accessor: &str) -> Result<Option<TokenRow>> {
        let Some(hash) = hash_of(accessor) else { return Ok(None) };
        let now = self.clock.now();
        let row = self.store.token_by_accessor(hash).await?;
        Ok(row.filter(|row| row.expires_at.is_none_or(|end| now < end) && row.uses != Some(0)))
    }

    fn token_limits(&self, record: &Record) -> ttl::Limits {
        let mounts = self.mounts.load();
        let mount = match &record.login {
            Some(login) => mounts.by_id(login.mount),
            None => mounts.get(TOKEN_MOUNT),
        };
        ttl::Limits {
            start: record.created_at,
            mount_default: mount.map_or(super::mounts::SYSTEM_TTL, |m| m.default_ttl()),
            mount_max: mount.map_or(super::mounts::SYSTEM_TTL, |m| m.max_ttl()),
            explicit_max: record.explicit_max_ttl,
            period: record.period,
        }
    }
}

#[cfg(test)]
mod tests;
