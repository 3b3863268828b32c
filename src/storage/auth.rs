//! The store of authentication: seals its rows, and passes its reads and writes to the tables.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::auth::store::{
    AliasEntry, AliasRow, AuthOutcome, AuthStore, AuthWrite, CubbyholeRow, EntityBy, EntityEntry, EntityPage,
    EntityRow, IdentityRows, SecretIdKey, SecretIdRow, SecretIdWrite, StoreCondition, TokenHash, TokenRow,
};
use crate::clock::{Clock, Time};
use crate::documents::{Document, DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT};
use crate::error::Result;
use crate::random;
use crate::storage::backend::{StoreReader, UnitOutcomes, WriteUnit, round_to_micros};
use crate::storage::documents;
use crate::storage::engine::{
    ReadConnection as _, TableConnection, TableReader, TableResult, WriteConnection as _, WriteResult, WriteTransaction,
};
use crate::storage::keys::StoreKeys;
use crate::storage::restore_facts::last_restore;
use crate::storage::seal::{cubbyhole_context, identity_context, secret_id_context, token_context};
use crate::storage::statements::tokens as token_sql;
use crate::storage::store::{DomainWrite, SealedRow as _, Store, sealed_row};
use crate::storage::tables::{self, cubbyhole, done_or_absent, entities, facts, mounts, secret_ids, tokens};

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
            // These writes contain no body to seal and no time to round.
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

    fn outcomes(outcomes: UnitOutcomes) -> Option<Vec<AuthOutcome>> {
        if let UnitOutcomes::Auth(outcomes) = outcomes { Some(outcomes) } else { None }
    }
}

sealed_row!(TokenRow, |row| token_context(&row.hash, row.expires_at));
sealed_row!(CubbyholeRow, |row| cubbyhole_context(&row.token, &row.path));
sealed_row!(EntityRow, |row| identity_context("entity", &[&row.id, &row.name], row.version));
sealed_row!(SecretIdRow, secret_id_context);
sealed_row!(AliasRow, |row| identity_context("alias", &[&row.id, &row.accessor, &row.name, &row.entity], row.version));

/// Size in bytes of the body of a trial write. A certificate with its index entries needs less disk space.
const TRIAL_WRITE_BYTES: usize = 32 << 10;

impl<R: StoreReader + Clone> Store<R> {
    /// Checks that the store accepts writes: one commit writes and removes a document, because an empty commit would
    /// not reach the disk.
    pub(super) fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        // A random name, so that the trial writes of two nodes do not conflict.
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
            keys.load_missing_keys(sealed).await?;
            rows.entity.open(&keys)?;
            rows.aliases.iter_mut().try_for_each(|alias| alias.open(&keys))?;
            Ok(Some(rows))
        }
        .boxed()
    }
}

/// Runs one write of a unit. Tokens that have expired at `now`, the time of the request, are not renewed.
pub(super) async fn write<T: WriteTransaction>(
    tx: &mut T,
    write: &AuthWrite,
    now: Time,
) -> WriteResult<T, AuthOutcome> {
    match write {
        AuthWrite::Document(write) => tables::documents::write_in(tx, write).await?,
        AuthWrite::MountCreate(mount) => mounts::create(tx.db(), *mount).await?,
        AuthWrite::MountDelete(mount) => {
            tx.forget_mount(*mount);
            tx.forget_tokens();
            mounts::drop_mount(tx.db(), *mount).await?;
        }
        AuthWrite::TokenInsert(row) => {
            if let Some(mount) = row.mount {
                tx.require_mount(mount).await?;
            }
            tx.db().insert_token(row).await?;
        }
        AuthWrite::TokenUpdate { hash, expires_at, body } => {
            return Ok(done_or_absent(tx.db().renew_token(hash, *expires_at, body, now).await?));
        }
        AuthWrite::TokenSpend(hash) => {
            tx.forget_token(hash);
            return Ok(tx.db().spend_token(hash).await?.map_or(AuthOutcome::Absent, AuthOutcome::UsesLeft));
        }
        AuthWrite::TokenRevoke(hashes) => {
            // The descendants of these tokens are revoked as well, but this code does not know which tokens are
            // descendants.
            tx.forget_tokens();
            return Ok(AuthOutcome::Revoked(tx.db().revoke_tokens(hashes).await?));
        }
        AuthWrite::TokenTake(hash) => {
            tx.forget_token(hash);
            tx.db().delete_usable_token(hash).await?;
        }
        AuthWrite::TokenRevokeAlone(hash) => {
            tx.forget_token(hash);
            return Ok(AuthOutcome::Revoked(tx.db().revoke_token_alone(hash).await?));
        }
        AuthWrite::TokenSweep { now, limit } => {
            tx.forget_tokens();
            return Ok(AuthOutcome::Revoked(tx.db().sweep_tokens(*now, *limit).await?));
        }
        AuthWrite::CubbyholePut(row) => return cubbyhole::put(tx.db(), row).await,
        AuthWrite::CubbyholeDelete { token, path } => return cubbyhole::delete(tx.db(), token, path).await,
        AuthWrite::EntityPut(row) => return entities::put(tx.db(), row).await,
        AuthWrite::AliasPut(row) => return entities::put_alias(tx.db(), row).await,
        AuthWrite::EntityPostpone { id, until } => return entities::extend_retention(tx.db(), id, *until).await,
        AuthWrite::EntityDelete(id) => return entities::delete(tx.db(), id).await,
        AuthWrite::AliasDelete(id) => return entities::delete_alias(tx.db(), id).await,
        AuthWrite::EntitySweep { now, again, limit } => return entities::sweep(tx.db(), *now, *again, *limit).await,
        AuthWrite::SecretId(write) => {
            if let Some(mount) = secret_ids::required_mount(write) {
                tx.require_mount(mount).await?;
            }
            return secret_ids::write(tx.db(), write, now).await;
        }
    }
    Ok(AuthOutcome::Done)
}

async fn read_store_condition<C: TableConnection>(db: &C) -> TableResult<C, StoreCondition> {
    let restore = last_restore(&facts::all(db).await?);
    Ok(StoreCondition { restore, endless_tokens: tokens::count_never_expiring(db).await? })
}

impl<R: TableReader> AuthStore for Store<R> {
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>> {
        self.submit(unit)
    }

    fn writes_fail(&self) -> bool {
        self.commits.is_failing()
    }

    fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        Store::try_writing(self)
    }

    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, Some(kind))
    }

    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.open_row(self.reader.read_tables("token", move |db| db.token(token_sql::BY_HASH, hash)))
    }

    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.open_row(self.reader.read_tables("token", move |db| db.token(token_sql::BY_ACCESSOR, accessor)))
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>> {
        self.open_readable_rows(self.reader.read_tables("token", move |db| db.tokens(after, limit)))
    }

    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>> {
        self.open_row(self.reader.read_tables("cubbyhole", move |db| cubbyhole::get(db, token, path.clone()).boxed()))
    }

    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read_tables("cubbyhole", move |db| cubbyhole::paths(db, token).boxed())
    }

    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>> {
        self.reader.read_tables("condition", |db| read_store_condition(db).boxed())
    }

    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.seal_for_client(what, plain)
    }

    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        self.open_from_client(what, sealed)
    }

    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>> {
        self.open_identity(self.reader.read_tables("entity", move |db| entities::identity(db, by.clone()).boxed()))
    }

    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>> {
        self.reader.read_tables("entities", move |db| entities::page(db, page.clone()).boxed())
    }

    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>> {
        self.reader.read_tables("aliases", move |db| entities::aliases(db, after.clone(), limit).boxed())
    }

    fn secret_id(
        &self,
        mount: MountId,
        role: i64,
        key: SecretIdKey,
    ) -> BoxFuture<'static, Result<Option<SecretIdRow>>> {
        self.open_row(
            self.reader.read_tables("secret id", move |db| secret_ids::find(db, mount, role, key.clone()).boxed()),
        )
    }

    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read_tables("secret ids", move |db| {
            secret_ids::accessors(db, mount, role, after.clone(), now, limit).boxed()
        })
    }

    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.reader.read_tables("secret id role", move |db| secret_ids::is_role_live(db, mount, role).boxed())
    }
}
