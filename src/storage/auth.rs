//! Sealing of authentication writes (tokens, entities, aliases and others), and unsealing of identities.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::auth::store::{
    AliasRow, AuthOutcome, AuthWrite, CubbyholeRow, EntityRow, IdentityRows, SecretIdRow, SecretIdWrite, TokenRow,
};
use crate::clock::Clock;
use crate::documents::{DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::Result;
use crate::random;
use crate::storage::backend::{Outcomes, StoreReader, WriteUnit, round_to_micros};
use crate::storage::documents;
use crate::storage::keys::StoreKeys;
use crate::storage::seal::{cubbyhole_context, identity_context, secret_id_context, token_context};
use crate::storage::store::{DomainWrite, SealedRow, Store};

impl DomainWrite for AuthWrite {
    type Outcome = AuthOutcome;

    fn prepare(&mut self, keys: &Arc<StoreKeys>) -> Result<()> {
        match self {
            Self::Document(document) => documents::seal(document, keys),
            Self::TokenInsert(row) => {
                row.expires_at = row.expires_at.map(round_to_micros);
                row.seal(keys)
            }
            Self::TokenUpdate { hash, expires_at, body } => {
                *expires_at = expires_at.map(round_to_micros);
                *body = keys.seal(&token_context(hash, *expires_at), std::mem::take(body))?;
                Ok(())
            }
            Self::CubbyholePut(row) => row.seal(keys),
            Self::EntityPut(row) => {
                row.kept_until = row.kept_until.map(round_to_micros);
                row.seal(keys)
            }
            Self::AliasPut(row) => row.seal(keys),
            Self::EntityPostpone { until, .. } => {
                *until = round_to_micros(*until);
                Ok(())
            }
            Self::SecretId(SecretIdWrite::Insert(row)) => {
                row.expires_at = row.expires_at.map(round_to_micros);
                row.updated_at = round_to_micros(row.updated_at);
                row.seal(keys)
            }
            // These have neither a body nor a stored time.
            Self::MountCreate(_)
            | Self::MountDelete(_)
            | Self::TokenSpend(_)
            | Self::TokenRevoke(_)
            | Self::TokenTake(_)
            | Self::CubbyholeDelete { .. }
            | Self::TokenRevokeAlone(_)
            | Self::SecretId(_)
            | Self::TokenSweep { .. }
            | Self::EntityDelete(_)
            | Self::AliasDelete(_)
            | Self::EntitySweep { .. } => Ok(()),
        }
    }

    fn unit(writes: Vec<Self>, clock: &Clock) -> WriteUnit {
        WriteUnit::Auth { writes, now: clock.now() }
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

impl SealedRow for CubbyholeRow {
    fn context(&self) -> Vec<u8> {
        cubbyhole_context(&self.token, &self.path)
    }

    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }
}

impl SealedRow for EntityRow {
    fn context(&self) -> Vec<u8> {
        identity_context("entity", &[&self.id, &self.name], self.version)
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

impl SealedRow for AliasRow {
    fn context(&self) -> Vec<u8> {
        identity_context("alias", &[&self.id, &self.accessor, &self.name, &self.entity], self.version)
    }

    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }
}

/// Bytes of a trial write: more than a certificate needs with its indexes, so that one fits where this did.
const TRIAL_WRITE_BYTES: usize = 32 << 10;

impl<R: StoreReader + Clone> Store<R> {
    /// Tests writing, with a document that one commit writes and removes: an empty commit would not reach the disk.
    pub(super) fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        // A random name avoids conflicts between nodes.
        let name = u64::from_ne_bytes(random::bytes()).to_string();
        let key = DocumentKey { mount: SYSTEM_MOUNT, kind: "trial", name };
        let written = self.submit(vec![
            AuthWrite::Document(DocumentWrite {
                key: key.clone(),
                expected: 0,
                body: Some(vec![0; TRIAL_WRITE_BYTES]),
            }),
            AuthWrite::Document(DocumentWrite { key, expected: 1, body: None }),
        ]);
        let commits = self.commits.clone();
        async move { written.await.map(|_| commits.record_success()) }.boxed()
    }

    /// Unseals the entity and the aliases that a read returns.
    pub(super) fn open_identity(
        &self,
        found: BoxFuture<'static, Result<Option<IdentityRows>>>,
    ) -> BoxFuture<'static, Result<Option<IdentityRows>>> {
        let keys = self.keys.clone();
        async move {
            let Some(mut rows) = found.await? else { return Ok(None) };
            let sealed = rows.aliases.iter().map(|alias| &alias.body[..]).chain([&rows.entity.body[..]]);
            keys.follow(sealed).await?;
            rows.entity.open(&keys)?;
            rows.aliases.iter_mut().try_for_each(|alias| alias.open(&keys))?;
            Ok(Some(rows))
        }
        .boxed()
    }
}
