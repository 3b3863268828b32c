//! Renewal of tokens.

use std::time::Duration;

use super::Live;
use super::batch::cannot_be;
use super::given::Given;
use super::login::login_limits;
use super::record::{Record, Standing};
use super::ttl::{Limits, after, lesser};
use crate::auth::mounts::{SYSTEM_TTL, TOKEN_MOUNT};
use crate::auth::store::{AuthOutcome, AuthWrite, TokenRow};
use crate::auth::{Auth, Caller};
use crate::error::{Error, Result, Warnings};
use crate::secret::Secret;

impl Auth {
    /// Renews the caller's own token, whose text is `token`. `increment` is a requested TTL; `None` and zero repeat the
    /// last grant. Returns the `auth` object and warnings.
    ///
    /// # Errors
    /// `Invalid` when it no longer exists, is not renewable, or is at its maximum lifetime; store errors.
    pub async fn renew_self(
        &self,
        caller: &Caller,
        token: &str,
        increment: Option<Duration>,
    ) -> Result<(Given, Warnings)> {
        if caller.is_batch() {
            return Err(cannot_be("renewed"));
        }
        self.renew_row(self.live_row(caller.hash).await?.ok_or_else(gone)?, token, increment).await
    }

    /// Renews a token, as [`Auth::renew_self`].
    ///
    /// # Errors
    /// As [`Auth::renew_self`].
    pub async fn renew(&self, token: &str, increment: Option<Duration>) -> Result<(Given, Warnings)> {
        match self.live(token).await? {
            Some(Live::Stored(row)) => self.renew_row(row, token, increment).await,
            Some(Live::Batch(_)) => Err(cannot_be("renewed")),
            None => Err(gone()),
        }
    }

    /// Renews the token with this accessor. The response does not contain the token.
    ///
    /// # Errors
    /// As [`Auth::renew_self`]; `invalid accessor`.
    pub async fn renew_accessor(&self, accessor: &str, increment: Option<Duration>) -> Result<(Given, Warnings)> {
        let row = self.row_by_accessor(accessor).await?;
        self.renew_row(row.ok_or_else(|| Error::invalid("invalid accessor"))?, "", increment).await
    }

    async fn renew_row(&self, row: TokenRow, token: &str, increment: Option<Duration>) -> Result<(Given, Warnings)> {
        let mut record = Record::of(&row)?;
        let now = self.clock.now();
        if !record.renewable || row.expires_at.is_none() {
            return Err(Error::invalid("lease is not renewable"));
        }
        let (limits, usual) = self.renewal(&record)?;
        let grant = limits.grant(now, increment.filter(|wish| !wish.is_zero()).unwrap_or(usual))?;
        record.grant = grant.ttl;
        record.last_renewal = Some(now);
        let expires_at = Some(after(now, grant.ttl));
        let update = AuthWrite::TokenUpdate { hash: row.hash, expires_at, body: record.to_body()? };
        let outcome = self.store.commit(vec![update]).await?;
        self.tokens.remove(&[row.hash]);
        let standing = Standing { expires_at, ..Standing::of(&row) };
        match outcome.as_slice() {
            [AuthOutcome::Done] => {
                let identity_policies = self.identity_policies(&record.entity_id).await?;
                let given = Given::new(Secret::new(token), record, &standing, now);
                Ok((given.with_identity(&identity_policies), grant.warnings))
            }
            _ => Err(gone()),
        }
    }

    /// Returns the limits of a renewal, and its default TTL.
    fn renewal(&self, record: &Record) -> Result<(Limits, Duration)> {
        if let Some(login) = &record.login {
            // The role's current settings, within the limits set at creation.
            let terms = self.logins().terms(login.mount, &login.role)?;
            let mounts = self.mounts.load();
            let mount = mounts.by_id(login.mount).ok_or_else(gone)?;
            let limits = login_limits(mount, &terms, record.created_at);
            return Ok((Limits { explicit_max: record.explicit_max_ttl, ..limits }, terms.ttl));
        }
        let mut limits = self.token_limits(record);
        if !record.role.is_empty() {
            let role = self.token_role(&record.role).ok_or_else(|| {
                let role = &record.role;
                Error::invalid(format!("original token role {role:?} could not be found, not renewing"))
            })?;
            // The role can only lower limits after the token was created.
            limits.explicit_max = lesser(limits.explicit_max, role.terms.explicit_max_ttl);
            if !limits.period.is_zero() {
                limits.period = lesser(limits.period, role.terms.period);
            }
        }
        Ok((limits, record.grant))
    }

    /// Limits on the lifetime of a token that was created from another one.
    pub(super) fn token_limits(&self, record: &Record) -> Limits {
        let mounts = self.mounts.load();
        let mount = mounts.get(TOKEN_MOUNT);
        Limits {
            start: record.created_at,
            mount_default: mount.map_or(SYSTEM_TTL, |mount| mount.default_ttl()),
            mount_max: mount.map_or(SYSTEM_TTL, |mount| mount.max_ttl()),
            explicit_max: record.explicit_max_ttl,
            period: record.period,
        }
    }
}

fn gone() -> Error {
    Error::invalid("token not found")
}
