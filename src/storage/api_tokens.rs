//! The seal of API tokens: an empty body, sealed to the columns that define the token ([`BoundToken`]). A token row
//! that was written without the server does not open and is rejected.
//!
//! Tokens of versions before schema 14 have no body. They are sealed when a newer version opens the store for the first
//! time, and with several nodes again for [`GRACE`], while old nodes may still run. The end of that upgrade is recorded
//! in the wrapping of the data keys ([`Wrapping`](crate::storage::seal::Wrapping)), which a database writer cannot
//! revert without losing access to the store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::clock::Time;
use crate::error::Result;
use crate::projects::store::{BoundToken, TokenSeal};
use crate::sql::{Failure, Row, Session};
use crate::storage::backend::micros;
use crate::storage::keys::Keys;
use crate::storage::seal::api_token_context;
use crate::storage::session::Sessions;

/// Time after an upgrade during which tokens of old nodes are still accepted.
const GRACE: Duration = Duration::from_secs(3600);
/// Tokens per transaction.
const PAGE: i64 = 500;

const BARE: &str = "SELECT id, lookup, secret_sha256, user_id, team_id, org_id, kind, expired_at FROM api_tokens
    WHERE body IS NULL AND id > $1 ORDER BY id LIMIT $2";
const SEAL: &str = "UPDATE api_tokens SET body = $1 WHERE id = $2 AND body IS NULL";

pub(super) struct ApiTokens {
    keys: Arc<Keys>,
    sessions: Sessions,
    /// `true` if other nodes use the same store.
    shared: bool,
    opened_at: Time,
}

/// The columns of a token without a seal.
struct Bare {
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
    pub(super) fn new(keys: Arc<Keys>, sessions: Sessions, shared: bool) -> Self {
        let opened_at = keys.now();
        Self { keys, sessions, shared, opened_at }
    }

    /// Seals the tokens of versions before schema 14, once per store. Resumes after an interruption.
    ///
    /// # Errors
    /// The errors of the store; the remaining tokens are sealed by the next call.
    pub(super) async fn seal_bare(&self) -> Result<()> {
        if self.keys.are_tokens_sealed() {
            return Ok(());
        }
        // Another node may have completed it.
        self.keys.learn().await?;
        if self.keys.are_tokens_sealed() {
            return Ok(());
        }
        let sealed = self.seal_all().await?;
        if sealed > 0 {
            tracing::warn!(tokens = sealed, "API tokens of the version before were sealed");
        }
        if self.shared && self.keys.now() - self.opened_at < GRACE {
            return Ok(());
        }
        self.keys.end_token_upgrade().await
    }

    /// Seals all unsealed tokens and returns their number.
    async fn seal_all(&self) -> Result<u64> {
        let (mut after, mut sealed) = (0, 0);
        loop {
            let read = self.sessions.read("api_token_seal", move |session| bare(session, after).boxed_local());
            let page = read.await?;
            let Some(last) = page.last() else { return Ok(sealed) };
            after = last.id;
            let seal = |bare: &Bare| Ok((bare.id, self.seal(&bare.bound())?));
            let bodies = Arc::new(page.iter().map(seal).collect::<Result<Vec<(i64, Vec<u8>)>>>()?);
            let written = self.sessions.write("api_token_seal", move |session| {
                let bodies = Arc::clone(&bodies);
                async move {
                    let mut changed = 0;
                    for (id, body) in bodies.iter() {
                        changed += session.execute(SEAL, &[body.clone().into(), (*id).into()]).await?;
                    }
                    Ok(changed)
                }
                .boxed_local()
            });
            sealed += written.await?;
        }
    }
}

async fn bare(session: &mut dyn Session, after: i64) -> Result<Vec<Bare>, Failure> {
    let rows = session.query(BARE, &[after.into(), PAGE.into()]).await?;
    rows.into_iter().map(Bare::read).collect()
}

impl Bare {
    fn read(mut row: Row) -> Result<Self, Failure> {
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

    fn bound(&self) -> BoundToken<'_> {
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

fn context(token: &BoundToken<'_>) -> Vec<u8> {
    let holder = [token.user, token.team, token.org];
    api_token_context(token.lookup, token.secret_sha256, holder, token.kind, token.expired_at.map(micros))
}

impl TokenSeal for ApiTokens {
    fn seal(&self, token: &BoundToken<'_>) -> Result<Vec<u8>> {
        self.keys.seal(&context(token), Vec::new())
    }

    fn is_sealed<'s>(&'s self, token: BoundToken<'s>, body: &'s [u8]) -> LocalBoxFuture<'s, Result<bool>> {
        async move {
            // An embedded store has a single node, which knows all keys.
            if self.shared {
                self.keys.follow(std::iter::once(body)).await?;
            }
            Ok(self.keys.open(&context(&token), body).is_ok())
        }
        .boxed_local()
    }

    fn keep(&self) -> LocalBoxFuture<'_, Result<()>> {
        async move {
            // Only other nodes can create unsealed tokens.
            if self.shared { self.seal_bare().await } else { Ok(()) }
        }
        .boxed_local()
    }
}
