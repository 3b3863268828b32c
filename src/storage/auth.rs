//! The writes of authentication on their way into a store: the bodies of tokens are sealed here.

use std::sync::Arc;

use crate::auth::store::{AuthOutcome, AuthWrite, SecretIdRow, SecretIdWrite, TokenRow};
use crate::clock::Clock;
use crate::error::Result;
use crate::storage::backend::{Outcomes, Unit, as_stored};
use crate::storage::documents;
use crate::storage::keys::Keys;
use crate::storage::seal::{secret_id_context, token_context};
use crate::storage::store::{DomainWrite, SealedRow};

impl DomainWrite for AuthWrite {
    type Outcome = AuthOutcome;

    fn prepare(&mut self, keys: &Arc<Keys>) -> Result<()> {
        match self {
            Self::Document(document) => documents::seal(document, keys),
            Self::TokenInsert(row) => {
                row.expires_at = row.expires_at.map(as_stored);
                row.seal(keys)
            }
            Self::TokenUpdate { hash, expires_at, body } => {
                *expires_at = expires_at.map(as_stored);
                *body = keys.seal(&token_context(hash, *expires_at), std::mem::take(body))?;
                Ok(())
            }
            Self::SecretId(SecretIdWrite::Insert(row)) => {
                row.expires_at = row.expires_at.map(as_stored);
                row.updated_at = as_stored(row.updated_at);
                row.seal(keys)
            }
            // None of these has a body, or a time that is stored.
            Self::MountCreate(_)
            | Self::MountDrop(_)
            | Self::TokenSpend(_)
            | Self::TokenRevoke(_)
            | Self::SecretId(_)
            | Self::TokenSweep { .. } => Ok(()),
        }
    }

    fn unit(writes: Vec<Self>, clock: &Clock) -> Unit {
        Unit::Auth { writes, now: clock.now() }
    }

    fn outcomes(outcomes: Outcomes) -> Option<Vec<AuthOutcome>> {
        if let Outcomes::Auth(outcomes) = outcomes { Some(outcomes) } else { None }
    }
}

impl SealedRow for TokenRow {
    fn context(&self) -> Vec<u8> {
        token_context(&self.hash, self.expires_at)
    }

    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }
}

impl SealedRow for SecretIdRow {
    fn context(&self) -> Vec<u8> {
        secret_id_context(self)
    }

    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }
}
