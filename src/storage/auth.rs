//! The store as authentication sees it: token bodies are sealed here, and opened here.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::auth::store::{AuthOutcome, AuthStore, AuthWrite, TokenHash, TokenRow};
use crate::clock::Time;
use crate::documents::{Document, SYSTEM};
use crate::error::{Error, Result};
use crate::storage::Inner;
use crate::storage::backend::{Outcome, TokenBy, Unit, Write, as_stored};
use crate::storage::documents::follow_rotation;
use crate::storage::seal::{Ring, token_context};

impl Inner {
    fn auth_write(&self, write: AuthWrite) -> Result<Write> {
        Ok(match write {
            AuthWrite::Document(document) => self.seal_document(document)?,
            AuthWrite::MountCreate(mount) => Write::MountCreate(mount),
            AuthWrite::MountDrop(mount) => Write::MountDrop(mount),
            AuthWrite::TokenInsert(row) => {
                let body = self.seal(&token_context(&row.hash, row.expires_at), row.body)?;
                Write::TokenInsert(TokenRow { expires_at: row.expires_at.map(as_stored), body, ..row })
            }
            AuthWrite::TokenUpdate { hash, expires_at, body } => {
                let body = self.seal(&token_context(&hash, expires_at), body)?;
                Write::TokenUpdate { hash, expires_at: expires_at.map(as_stored), body, now: self.clock.now() }
            }
            AuthWrite::TokenSpend(hash) => Write::TokenSpend(hash),
            AuthWrite::TokenRevoke(hash) => Write::TokenRevoke(hash),
        })
    }

    fn read_token(&self, by: TokenBy) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        let (ring, reader) = (self.ring.clone(), self.reader.clone());
        async move {
            let Some(row) = reader.token(by).await? else { return Ok(None) };
            follow_rotation(&ring, &*reader, std::iter::once(&row.body[..])).await?;
            open_token(&ring, row).map(Some)
        }
        .boxed()
    }
}

fn open_token(ring: &Ring, row: TokenRow) -> Result<TokenRow> {
    let body = ring.open(&token_context(&row.hash, row.expires_at), &row.body)?;
    Ok(TokenRow { body, ..row })
}

fn auth_outcome(outcome: Outcome) -> Result<AuthOutcome> {
    match outcome {
        Outcome::Done => Ok(AuthOutcome::Done),
        Outcome::Absent => Ok(AuthOutcome::Absent),
        Outcome::UsesLeft(left) => Ok(AuthOutcome::UsesLeft(left)),
        Outcome::TokensRevoked(tokens) => Ok(AuthOutcome::Revoked(tokens)),
        Outcome::SerialTaken
        | Outcome::Revoked { .. }
        | Outcome::Removed(_)
        | Outcome::Kept { .. }
        | Outcome::Tidied(_) => Err(Error::internal("the backend answered another write")),
    }
}

/// A unit is submitted by the call itself: whoever drops the future later does not take it back.
impl AuthStore for Inner {
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>> {
        match unit.into_iter().map(|write| self.auth_write(write)).collect::<Result<Unit>>() {
            Err(error) => ready(Err(error)).boxed(),
            Ok(unit) => {
                let submitted = self.commits.submit(unit);
                async move { submitted.outcome().await?.into_iter().map(auth_outcome).collect() }.boxed()
            }
        }
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.read_documents(SYSTEM, Some(kind))
    }

    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.read_token(TokenBy::Hash(hash))
    }

    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.read_token(TokenBy::Accessor(accessor))
    }

    fn sweep_tokens(&self, now: Time, limit: u32) -> BoxFuture<'static, Result<u32>> {
        self.count(Write::TokenSweep { now, limit })
    }
}
