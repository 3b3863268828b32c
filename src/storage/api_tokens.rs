//! The seal of an API token: an empty body, encrypted with the columns that define the token ([`BoundToken`]) as
//! associated data. If a database writer forges a token row, its body does not decrypt, and the server rejects the
//! token.
//!
//! Versions before schema 14 store tokens without a body. A newer version seals them when it first opens the store. If
//! several nodes share the store, nodes of the old version may still create tokens without a body, and the newer
//! version seals these as well during the [`UPGRADE_GRACE_PERIOD`]. The end of that upgrade is recorded in the wrapping
//! of the data keys ([`DataKeyWrapping`](crate::storage::seal::DataKeyWrapping)). A database writer cannot revert this
//! record without losing access to the store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::error::Result;
use crate::projects::store::{ApiTokenSeal, BoundToken};
use crate::sql::{SqlError, SqlRow, SqlSession};
use crate::storage::backend::micros;
use crate::storage::keys::StoreKeys;
use crate::storage::seal::api_token_context;
use crate::storage::session::StoreSessions;

/// Period after the opening of a shared store. During it, this node still seals the tokens that nodes of an old version
/// have created without a seal.
const UPGRADE_GRACE_PERIOD: Duration = Duration::from_secs(3600);
/// Number of tokens sealed per transaction.
const TOKENS_PER_TRANSACTION: i64 = 500;

const SELECT_UNSEALED: &str =
    "SELECT id, lookup, secret_sha256, user_id, team_id, org_id, kind, expired_at FROM api_tokens
    WHERE body IS NULL AND id > $1 ORDER BY id LIMIT $2";
const UPDATE_BODY: &str = "UPDATE api_tokens SET body = $1 WHERE id = $2 AND body IS NULL";

pub(super) struct ApiTokens {
    keys: Arc<StoreKeys>,
    sessions: StoreSessions,
    /// `true` if several nodes may use the store.
    shared: bool,
    opened_at: Time,
}

/// A stored token that has no seal yet.
struct UnsealedToken {
    id: i64,
    lookup: String,
    secret_sha256: Vec<u8>,
    user: Option<i64>,
    team: Option<i64>,
    org: Option<i64>,
    kind: String,
    expired_at: Option<Time>,
}

impl ApiTokens {
    pub(super) fn new(keys: Arc<StoreKeys>, sessions: StoreSessions, shared: bool) -> Self {
        let opened_at = keys.now();
        Self { keys, sessions, shared, opened_at }
    }

    /// Seals the tokens of versions before schema 14, and then records that all tokens are sealed. A later call resumes
    /// after an interruption.
    ///
    /// # Errors
    /// The errors of the store; the remaining tokens are sealed by the next call.
    pub(super) async fn seal_unsealed(&self) -> Result<()> {
        if self.keys.are_tokens_sealed() {
            return Ok(());
        }
        // Another node may have sealed all tokens already.
        self.keys.load_new_keys().await?;
        if self.keys.are_tokens_sealed() {
            return Ok(());
        }
        let sealed = self.seal_all().await?;
        if sealed > 0 {
            tracing::warn!(tokens = sealed, "sealed the API tokens that an earlier version had stored without a seal");
        }
        if self.shared && self.keys.now() - self.opened_at < UPGRADE_GRACE_PERIOD {
            return Ok(());
        }
        self.keys.end_token_upgrade().await
    }

    /// Seals all unsealed tokens and returns their number.
    async fn seal_all(&self) -> Result<u64> {
        let mut after = 0;
        let mut sealed = 0;
        loop {
            let read = self.sessions.read("api_token_seal", move |session| read_unsealed(session, after).boxed_local());
            let page = read.await?;
            let Some(last) = page.last() else { return Ok(sealed) };
            after = last.id;
            let seal = |bare: &UnsealedToken| Ok((bare.id, self.seal(&bare.to_bound_token())?));
            let bodies = Arc::new(page.iter().map(seal).collect::<Result<Vec<(i64, Vec<u8>)>>>()?);
            let written = self.sessions.write("api_token_seal", move |session| {
                let bodies = Arc::clone(&bodies);
                async move {
                    let mut changed = 0;
                    for (id, body) in bodies.iter() {
                        changed += session.execute(UPDATE_BODY, &[body.clone().into(), (*id).into()]).await?;
                    }
                    Ok(changed)
                }
                .boxed_local()
            });
            sealed += written.await?;
        }
    }
}

async fn read_unsealed(session: &mut dyn SqlSession, after: i64) -> Result<Vec<UnsealedToken>, SqlError> {
    let rows = session.query(SELECT_UNSEALED, &[after.into(), TOKENS_PER_TRANSACTION.into()]).await?;
    rows.into_iter().map(UnsealedToken::read).collect()
}

impl UnsealedToken {
    fn read(mut row: SqlRow) -> Result<Self, SqlError> {
        Ok(Self {
            id: row.get()?,
            lookup: row.get()?,
            secret_sha256: row.get()?,
            user: row.get()?,
            team: row.get()?,
            org: row.get()?,
            kind: row.get()?,
            expired_at: row.get()?,
        })
    }

    fn to_bound_token(&self) -> BoundToken<'_> {
        BoundToken {
            lookup: &self.lookup,
            secret_sha256: &self.secret_sha256,
            user: self.user,
            team: self.team,
            org: self.org,
            kind: &self.kind,
            expired_at: self.expired_at,
        }
    }
}

fn seal_context(token: &BoundToken<'_>) -> Vec<u8> {
    let holder = [token.user, token.team, token.org];
    api_token_context(token.lookup, token.secret_sha256, holder, token.kind, token.expired_at.map(micros))
}

impl ApiTokenSeal for ApiTokens {
    fn seal(&self, token: &BoundToken<'_>) -> Result<Vec<u8>> {
        self.keys.seal(&seal_context(token), Vec::new())
    }

    fn is_sealed<'s>(&'s self, token: BoundToken<'s>, body: &'s [u8]) -> LocalBoxFuture<'s, Result<bool>> {
        async move {
            // On a shared store, another node may have sealed the token with a data key that this node has not loaded
            // yet.
            if self.shared {
                self.keys.load_missing_keys(std::iter::once(body)).await?;
            }
            Ok(self.keys.open(&seal_context(&token), body).is_ok())
        }
        .boxed_local()
    }

    fn seal_unsealed_tokens(&self) -> LocalBoxFuture<'_, Result<()>> {
        async move {
            // Only a node of an old version, on a shared store, can still create unsealed tokens.
            if self.shared { self.seal_unsealed().await } else { Ok(()) }
        }
        .boxed_local()
    }
}
