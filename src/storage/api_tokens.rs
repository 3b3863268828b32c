//! The seal of API tokens: a body without content, sealed to the columns that make the token ([`BoundToken`]). A row that
//! was written past the API does not open, and its token is refused.
//!
//! Tokens of versions before the seal have no body. They are sealed once, when a store is opened for the first time by a
//! version that seals; the fact `api-token-seal` says how far that has come and is sealed itself. Where nodes of such a
//! version may still run beside this one, tokens that they make are sealed for a while longer ([`GRACE`]), and never after.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::projects::store::{BoundToken, TokenSeal};
use crate::sql::{Failure, Row, Session, Value};
use crate::storage::backend::micros;
use crate::storage::keys::Keys;
use crate::storage::seal::{api_token_context, held_context};
use crate::storage::session::Sessions;

/// How long after an upgrade nodes of the version before may make tokens that are taken.
const GRACE: Duration = Duration::from_secs(3600);
/// Tokens that are sealed in one transaction.
const PAGE: i64 = 500;
/// The fact, and what it is sealed to.
const FACT: &str = "api-token-seal";

const READ: &str = "SELECT value FROM meta WHERE name = $1";
const BEGIN: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
const CLOSE: &str = "UPDATE meta SET value = $1 WHERE name = $2 AND value = $3";
const SEALED: &str = "SELECT 1 FROM api_tokens WHERE body IS NOT NULL LIMIT 1";
const BARE: &str = "SELECT id, lookup, secret_sha256, user_id, team_id, org_id, kind, expired_at FROM api_tokens
    WHERE body IS NULL AND id > $1 ORDER BY id LIMIT $2";
const SEAL: &str = "UPDATE api_tokens SET body = $1 WHERE id = $2 AND body IS NULL";

/// The seal of the tokens of a store.
pub(super) struct ApiTokens {
    keys: Arc<Keys>,
    sessions: Sessions,
    /// Whether other nodes use the same store.
    shared: bool,
}

/// How far the sealing of earlier tokens has come: the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// Epoch seconds until which tokens without a seal are sealed; `None` while those of the upgrade are.
    until: Option<i64>,
}

/// Columns of a token without a seal.
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
        Self { keys, sessions, shared }
    }

    /// Seals the tokens of the version before, when that is due. Safe on several nodes at the same time, and to repeat.
    ///
    /// # Errors
    /// Those of the store; what is left then is sealed the next time.
    pub(super) async fn seal_bare(&self) -> Result<()> {
        let (progress, stored) = match self.stored().await? {
            Some(stored) => (self.opened(&stored).await?, stored),
            None => self.begin().await?,
        };
        let now = self.keys.now().unix_timestamp();
        if progress.until.is_some_and(|until| until <= now) {
            return Ok(());
        }
        let sealed = self.seal_all().await?;
        if sealed > 0 {
            tracing::warn!(tokens = sealed, "API tokens of the version before were sealed");
        }
        if progress.until.is_none() {
            // A store without tokens had no users, and no earlier version works on it.
            let grace = if self.shared && sealed > 0 { GRACE.as_secs() as i64 } else { 0 };
            self.close(Progress { until: Some(now + grace) }, stored).await?;
        }
        Ok(())
    }

    /// The fact, as it is stored.
    async fn stored(&self) -> Result<Option<Vec<u8>>> {
        let read = self.sessions.read("api_token_seal", |session| {
            async move {
                session.query(READ, &[FACT.into()]).await?.into_iter().next().map(|mut row| row.get()).transpose()
            }
            .boxed_local()
        });
        read.await
    }

    /// Of the stored fact: what does not open was not written by a node, and nothing is sealed for it.
    async fn opened(&self, stored: &[u8]) -> Result<Progress> {
        self.keys.follow(std::iter::once(stored)).await?;
        let opened = self.keys.open(&held_context(FACT), stored);
        Ok(opened.ok().and_then(|fact| serde_json::from_slice(&fact).ok()).unwrap_or_else(|| {
            tracing::error!("the fact that API tokens were sealed does not open: no token is sealed any more");
            Progress { until: Some(0) }
        }))
    }

    fn sealed(&self, progress: Progress) -> Result<Vec<u8>> {
        self.keys.seal(&held_context(FACT), serde_json::to_vec(&progress).map_err(Error::internal)?)
    }

    /// Begins: when a token has a seal already, the fact was taken away, and nothing is sealed.
    async fn begin(&self) -> Result<(Progress, Vec<u8>)> {
        let (open, closed) = (Progress { until: None }, Progress { until: Some(0) });
        let (if_bare, if_sealed) = (self.sealed(open)?, self.sealed(closed)?);
        let begun = self.sessions.write("api_token_seal", move |session| {
            let (if_bare, if_sealed) = (if_bare.clone(), if_sealed.clone());
            async move {
                let any_sealed = !session.query(SEALED, &[]).await?.is_empty();
                let fact = if any_sealed { if_sealed } else { if_bare };
                session.execute(BEGIN, &[FACT.into(), fact.into()]).await?;
                // Another node may have been first.
                let mut rows = session.query(READ, &[FACT.into()]).await?;
                let stored = rows.first_mut().map(|row| row.get::<Vec<u8>>()).transpose()?;
                Ok((any_sealed, stored.unwrap_or_default()))
            }
            .boxed_local()
        });
        let (any_sealed, stored) = begun.await?;
        let progress = self.opened(&stored).await?;
        if any_sealed && progress == closed {
            tracing::error!("the fact that API tokens were sealed is gone: no token is sealed any more");
        }
        Ok((progress, stored))
    }

    async fn close(&self, progress: Progress, stored: Vec<u8>) -> Result<()> {
        let fact = self.sealed(progress)?;
        let closed = self.sessions.write("api_token_seal", move |session| {
            let values: [Value; 3] = [fact.clone().into(), FACT.into(), stored.clone().into()];
            // Another node may have been first.
            async move { session.execute(CLOSE, &values).await.map(drop) }.boxed_local()
        });
        closed.await
    }

    /// Seals every token without a seal; how many there were.
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
            // An embedded store has one node, which knows all keys.
            if self.shared {
                self.keys.follow(std::iter::once(body)).await?;
            }
            Ok(self.keys.open(&context(&token), body).is_ok())
        }
        .boxed_local()
    }

    fn keep(&self) -> LocalBoxFuture<'_, Result<()>> {
        async move {
            // Only other nodes make tokens without a seal.
            if self.shared { self.seal_bare().await } else { Ok(()) }
        }
        .boxed_local()
    }
}
