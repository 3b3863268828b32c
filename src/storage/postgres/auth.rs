//! Reads and writes of authentication on PostgreSQL, dispatched to the file of each table.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::collected_rows::SendOrder;
use super::query::{PostgresClient, PostgresError};
use super::reader::PostgresReaderPool;
use super::transaction::Transaction;
use super::{mounts, tokens};
use crate::auth::store::{
    AliasEntry, AuthOutcome, AuthStore, AuthWrite, CubbyholeRow, EntityBy, EntityEntry, EntityPage, IdentityRows,
    SecretIdKey, SecretIdRow, StoreCondition, TokenHash, TokenRow,
};
use crate::clock::Time;
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::storage::restore_facts::last_restore;
use crate::storage::store::Store;
use crate::storage::tables::{cubbyhole, done_or_absent, entities, facts, secret_ids};

/// Returns when a write is sent.
pub(super) fn send_order(write: &AuthWrite) -> SendOrder {
    match write {
        AuthWrite::MountDelete(_) => SendOrder::AfterAll,
        AuthWrite::TokenSpend(_)
        | AuthWrite::TokenTake(_)
        | AuthWrite::TokenRevoke(_)
        | AuthWrite::TokenRevokeAlone(_)
        | AuthWrite::TokenSweep { .. } => SendOrder::AfterLeases,
        _ => SendOrder::Immediate,
    }
}

pub(super) async fn write(
    tx: &mut Transaction<'_>,
    write: &AuthWrite,
    now: Time,
) -> Result<AuthOutcome, PostgresError> {
    let db = tx.db;
    Ok(match write {
        AuthWrite::Document(write) => {
            tx.document(write).await?;
            AuthOutcome::Done
        }
        AuthWrite::MountCreate(mount) => {
            mounts::create(db, *mount).await?;
            AuthOutcome::Done
        }
        AuthWrite::MountDelete(mount) => {
            tx.forget_mount(*mount);
            tx.forget_tokens();
            mounts::drop_mount(db, *mount).await?;
            AuthOutcome::Done
        }
        AuthWrite::TokenInsert(row) => {
            if let Some(mount) = row.mount {
                tx.hold(mount).await?;
            }
            tokens::insert(db, row).await?;
            AuthOutcome::Done
        }
        AuthWrite::TokenUpdate { hash, expires_at, body } => {
            done_or_absent(tokens::update(db, hash, *expires_at, body, now).await?)
        }
        AuthWrite::TokenSpend(hash) => {
            tx.forget_token(hash);
            tokens::spend(db, hash).await?.map_or(AuthOutcome::Absent, AuthOutcome::UsesLeft)
        }
        AuthWrite::TokenRevoke(hashes) => {
            // Its descendants are revoked as well, so no lock on a token counts any more.
            tx.forget_tokens();
            AuthOutcome::Revoked(tokens::revoke(db, hashes).await?)
        }
        AuthWrite::TokenTake(hash) => {
            tx.forget_token(hash);
            tokens::take(db, hash).await?;
            AuthOutcome::Done
        }
        AuthWrite::CubbyholePut(row) => cubbyhole::put(db, row).await?,
        AuthWrite::CubbyholeDelete { token, path } => cubbyhole::delete(db, token, path).await?,
        AuthWrite::TokenRevokeAlone(hash) => {
            tx.forget_token(hash);
            AuthOutcome::Revoked(tokens::revoke_alone(db, hash).await?)
        }
        AuthWrite::SecretId(write) => {
            if let Some(mount) = secret_ids::required_mount(write) {
                tx.hold(mount).await?;
            }
            secret_ids::write(db, write, now).await?
        }
        AuthWrite::TokenSweep { now, limit } => {
            tx.forget_tokens();
            AuthOutcome::Revoked(tokens::sweep(db, *now, *limit).await?)
        }
        AuthWrite::EntityPut(row) => entities::put(db, row).await?,
        AuthWrite::AliasPut(row) => entities::put_alias(db, row).await?,
        AuthWrite::EntityPostpone { id, until } => entities::extend_retention(db, id, *until).await?,
        AuthWrite::EntityDelete(id) => entities::delete(db, id).await?,
        AuthWrite::AliasDelete(id) => entities::delete_alias(db, id).await?,
        AuthWrite::EntitySweep { now, again, limit } => entities::sweep(db, *now, *again, *limit).await?,
    })
}

async fn condition(db: &PostgresClient) -> Result<StoreCondition, PostgresError> {
    let restore = last_restore(&facts::all(db).await?);
    Ok(StoreCondition { restore, endless_tokens: tokens::count_endless(db).await? })
}

impl AuthStore for Store<PostgresReaderPool> {
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>> {
        self.submit(unit)
    }

    fn writes_fail(&self) -> bool {
        self.commits.fails()
    }

    fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        Store::try_writing(self)
    }

    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(mount, Some(kind))
    }

    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.open_row(self.reader.read("token", move |db| tokens::by_hash(db, hash).boxed()))
    }

    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.open_row(self.reader.read("token", move |db| tokens::by_accessor(db, accessor).boxed()))
    }

    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>> {
        self.open_row(self.reader.read("cubbyhole", move |db| cubbyhole::get(db, token, path.clone()).boxed()))
    }

    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read("cubbyhole", move |db| cubbyhole::paths(db, token).boxed())
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>> {
        self.open_readable_rows(self.reader.read("token", move |db| tokens::page(db, after, limit).boxed()))
    }

    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>> {
        self.reader.read("condition", |db| condition(db).boxed())
    }

    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.seal_for_client(what, plain)
    }

    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        self.open_from_client(what, sealed)
    }

    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>> {
        self.open_identity(self.reader.read("entity", move |db| entities::identity(db, by.clone()).boxed()))
    }

    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>> {
        self.reader.read("entities", move |db| entities::page(db, page.clone()).boxed())
    }

    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>> {
        self.reader.read("aliases", move |db| entities::aliases(db, after.clone(), limit).boxed())
    }

    fn secret_id(
        &self,
        mount: MountId,
        role: i64,
        key: SecretIdKey,
    ) -> BoxFuture<'static, Result<Option<SecretIdRow>>> {
        let found = self.reader.read("secret id", move |db| secret_ids::find(db, mount, role, key.clone()).boxed());
        self.open_row(found)
    }

    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader
            .read("secret ids", move |db| secret_ids::accessors(db, mount, role, after.clone(), now, limit).boxed())
    }

    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.reader.read("secret id role", move |db| secret_ids::is_role_live(db, mount, role).boxed())
    }
}
