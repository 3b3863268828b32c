//! Reads and writes of authentication on SQLite, dispatched to the file of each table.

use futures_util::future::BoxFuture;
use rusqlite::Connection;

use super::mounts::{self, MountCache};
use super::query::{SqliteError, resolve};
use super::reader::SqliteReaderPool;
use super::tokens;
use crate::auth::store::{
    AliasEntry, AuthOutcome, AuthStore, AuthWrite, CubbyholeRow, EntityBy, EntityEntry, EntityPage, IdentityRows,
    SecretIdKey, SecretIdRow, StoreCondition, TokenHash, TokenRow,
};
use crate::clock::Time;
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::storage::restore_facts::last_restore;
use crate::storage::store::Store;
use crate::storage::tables::{cubbyhole, documents, done_or_absent, entities, facts, secret_ids};

pub(super) fn write(
    db: &Connection,
    touched: &mut MountCache,
    write: &AuthWrite,
    now: Time,
) -> Result<AuthOutcome, SqliteError> {
    Ok(match write {
        AuthWrite::Document(write) => {
            touched.mount(db, write.key.mount)?;
            resolve(documents::write(db, write))?;
            AuthOutcome::Done
        }
        AuthWrite::MountCreate(mount) => {
            mounts::create(db, *mount)?;
            AuthOutcome::Done
        }
        AuthWrite::MountDelete(mount) => {
            touched.forget(*mount);
            mounts::drop_mount(db, *mount)?;
            AuthOutcome::Done
        }
        AuthWrite::TokenInsert(row) => {
            if let Some(mount) = row.mount {
                touched.mount(db, mount)?;
            }
            tokens::insert(db, row)?;
            AuthOutcome::Done
        }
        AuthWrite::TokenUpdate { hash, expires_at, body } => {
            done_or_absent(tokens::update(db, hash, *expires_at, body, now)?)
        }
        AuthWrite::TokenSpend(hash) => tokens::spend(db, hash)?.map_or(AuthOutcome::Absent, AuthOutcome::UsesLeft),
        AuthWrite::TokenRevoke(hashes) => AuthOutcome::Revoked(tokens::revoke(db, hashes)?),
        AuthWrite::TokenTake(hash) => {
            tokens::take(db, hash)?;
            AuthOutcome::Done
        }
        AuthWrite::CubbyholePut(row) => resolve(cubbyhole::put(db, row))?,
        AuthWrite::CubbyholeDelete { token, path } => resolve(cubbyhole::delete(db, token, path))?,
        AuthWrite::TokenRevokeAlone(hash) => AuthOutcome::Revoked(tokens::revoke_alone(db, hash)?),
        AuthWrite::TokenSweep { now, limit } => AuthOutcome::Revoked(tokens::sweep(db, *now, *limit)?),
        AuthWrite::EntityPut(row) => resolve(entities::put(db, row))?,
        AuthWrite::AliasPut(row) => resolve(entities::put_alias(db, row))?,
        AuthWrite::EntityPostpone { id, until } => resolve(entities::extend_retention(db, id, *until))?,
        AuthWrite::EntityDelete(id) => resolve(entities::delete(db, id))?,
        AuthWrite::AliasDelete(id) => resolve(entities::delete_alias(db, id))?,
        AuthWrite::EntitySweep { now, again, limit } => resolve(entities::sweep(db, *now, *again, *limit))?,
        AuthWrite::SecretId(write) => {
            if let Some(mount) = secret_ids::required_mount(write) {
                touched.mount(db, mount)?;
            }
            resolve(secret_ids::write(db, write, now))?
        }
    })
}

fn condition(db: &Connection) -> Result<StoreCondition, SqliteError> {
    let restore = last_restore(&resolve(facts::all(db))?);
    Ok(StoreCondition { restore, endless_tokens: tokens::count_endless(db)? })
}

impl AuthStore for Store<SqliteReaderPool> {
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
        self.open_row(self.reader.read(move |db| tokens::by_hash(db, &hash)))
    }

    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.open_row(self.reader.read(move |db| tokens::by_accessor(db, &accessor)))
    }

    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>> {
        self.open_row(self.reader.read(move |db| resolve(cubbyhole::get(db, token, path))))
    }

    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read(move |db| resolve(cubbyhole::paths(db, token)))
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>> {
        self.open_readable_rows(self.reader.read(move |db| tokens::page(db, &after, limit)))
    }

    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>> {
        self.reader.read(condition)
    }

    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.seal_for_client(what, plain)
    }

    fn unseal(&self, what: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        self.open_from_client(what, sealed)
    }

    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>> {
        self.open_identity(self.reader.read(move |db| resolve(entities::identity(db, by))))
    }

    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>> {
        self.reader.read(move |db| resolve(entities::page(db, page)))
    }

    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>> {
        self.reader.read(move |db| resolve(entities::aliases(db, after, limit)))
    }

    fn secret_id(
        &self,
        mount: MountId,
        role: i64,
        key: SecretIdKey,
    ) -> BoxFuture<'static, Result<Option<SecretIdRow>>> {
        self.open_row(self.reader.read(move |db| resolve(secret_ids::find(db, mount, role, key))))
    }

    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.reader.read(move |db| resolve(secret_ids::accessors(db, mount, role, after, now, limit)))
    }

    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.reader.read(move |db| resolve(secret_ids::is_role_live(db, mount, role)))
    }
}
