//! Renewal of tokens, which extends their lifetime.

use std::time::Duration;

use super::LiveToken;
use super::batch::unsupported_for_batch;
use super::login::login_limits;
use super::record::{TokenAttributes, TokenRecord};
use super::response::TokenResponse;
use super::ttl::{TtlLimits, lesser_duration, saturating_add};
use crate::auth::mounts::{SYSTEM_TTL, TOKEN_MOUNT_PATH};
use crate::auth::store::{AuthOutcome, AuthWrite, TokenRow};
use crate::auth::{Auth, Caller};
use crate::error::{Error, Result, Warnings};
use crate::secret::Secret;

impl Auth {
    /// Renews the caller's own token, whose text is `token`. `increment` is the TTL that the client requests; with
    /// `None` or zero, the renewal grants the default TTL. Returns the `auth` object and warnings.
    ///
    /// # Errors
    /// `Invalid` when the token no longer exists, is not renewable, or has reached its maximum lifetime; store errors.
    pub async fn renew_self(
        &self,
        caller: &Caller,
        token: &str,
        increment: Option<Duration>,
    ) -> Result<(TokenResponse, Warnings)> {
        if caller.is_batch() {
            return Err(unsupported_for_batch("renewed"));
        }
        self.renew_row(self.live_row(caller.hash).await?.ok_or_else(token_not_found)?, token, increment).await
    }

    /// Renews the token with this text, like [`Auth::renew_self`].
    ///
    /// # Errors
    /// As [`Auth::renew_self`].
    pub async fn renew(&self, token: &str, increment: Option<Duration>) -> Result<(TokenResponse, Warnings)> {
        match self.live_token(token).await? {
            Some(LiveToken::Stored(row)) => self.renew_row(row, token, increment).await,
            Some(LiveToken::Batch(_)) => Err(unsupported_for_batch("renewed")),
            None => Err(token_not_found()),
        }
    }

    /// Renews the token with this accessor. The response does not contain the token.
    ///
    /// # Errors
    /// As [`Auth::renew_self`]; `Invalid` with `invalid accessor` if there is no such token.
    pub async fn renew_accessor(
        &self,
        accessor: &str,
        increment: Option<Duration>,
    ) -> Result<(TokenResponse, Warnings)> {
        let row = self.live_row_by_accessor(accessor).await?;
        self.renew_row(row.ok_or_else(|| Error::invalid("invalid accessor"))?, "", increment).await
    }

    async fn renew_row(
        &self,
        row: TokenRow,
        token: &str,
        increment: Option<Duration>,
    ) -> Result<(TokenResponse, Warnings)> {
        let mut record = TokenRecord::of(&row)?;
        let now = self.clock.now();
        if !record.renewable || row.expires_at.is_none() {
            return Err(Error::invalid("lease is not renewable"));
        }
        let (limits, usual) = self.renewal_limits(&record)?;
        let grant = limits.grant(now, increment.filter(|wish| !wish.is_zero()).unwrap_or(usual))?;
        record.grant = grant.ttl;
        record.last_renewal = Some(now);
        let expires_at = Some(saturating_add(now, grant.ttl));
        let update = AuthWrite::TokenUpdate { hash: row.hash, expires_at, body: record.to_body()? };
        let outcome = self.store.commit(vec![update]).await?;
        self.tokens.remove(&[row.hash]);
        let attributes = TokenAttributes { expires_at, ..TokenAttributes::of(&row) };
        match outcome.as_slice() {
            [AuthOutcome::Done] => {
                let identity_policies = self.identity_policies(&record.entity_id).await?;
                let response = TokenResponse::new(Secret::new(token), record, &attributes, now);
                Ok((response.with_identity(&identity_policies), grant.warnings))
            }
            _ => Err(token_not_found()),
        }
    }

    /// Returns the limits on the lifetime of a renewed token, and the TTL that applies if the client requests none.
    fn renewal_limits(&self, record: &TokenRecord) -> Result<(TtlLimits, Duration)> {
        if let Some(login) = &record.login {
            // The current settings of the role apply, within the maximum lifetime that the token got at creation.
            let terms = self.logins().terms(login.mount, &login.role)?;
            let mounts = self.mounts.load();
            let mount = mounts.by_id(login.mount).ok_or_else(token_not_found)?;
            let limits = login_limits(mount, &terms, record.created_at);
            return Ok((TtlLimits { explicit_max: record.explicit_max_ttl, ..limits }, terms.ttl));
        }
        let mut limits = self.token_limits(record);
        if !record.role.is_empty() {
            let role = self.token_role(&record.role).ok_or_else(|| {
                let role = &record.role;
                Error::invalid(format!("original token role {role:?} could not be found, not renewing"))
            })?;
            // If the role was changed after the token was created, its new settings can only lower the limits.
            limits.explicit_max = lesser_duration(limits.explicit_max, role.terms.explicit_max_ttl);
            if !limits.period.is_zero() {
                limits.period = lesser_duration(limits.period, role.terms.period);
            }
        }
        Ok((limits, record.grant))
    }

    /// Returns the limits on the lifetime of a token that was created with another token.
    pub(super) fn token_limits(&self, record: &TokenRecord) -> TtlLimits {
        let mounts = self.mounts.load();
        let mount = mounts.get(TOKEN_MOUNT_PATH);
        TtlLimits {
            start: record.created_at,
            mount_default: mount.map_or(SYSTEM_TTL, |mount| mount.default_ttl()),
            mount_max: mount.map_or(SYSTEM_TTL, |mount| mount.max_ttl()),
            explicit_max: record.explicit_max_ttl,
            period: record.period,
        }
    }
}

fn token_not_found() -> Error {
    Error::invalid("token not found")
}
