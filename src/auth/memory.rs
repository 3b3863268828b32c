//! In-memory store for the tests of this module.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use futures_util::future::{BoxFuture, ready};

use super::store::{
    AliasEntry, AliasRow, AuthOutcome, AuthStore, AuthWrite, CubbyholeRow, EntityBy, EntityEntry, EntityPage,
    EntityRow, IdentityRows, RevokedTokens, SecretIdHash, SecretIdKey, SecretIdRow, SecretIdWrite, StoreCondition,
    TokenHash, TokenRow,
};
use crate::clock::Time;
use crate::documents::{Document, DocumentWrite, MountId};
use crate::error::{Error, Kind, Result};

#[derive(Default)]
pub(super) struct MemoryAuthStore(Mutex<MemoryAuthState>);

#[derive(Default, Clone)]
pub(super) struct MemoryAuthState {
    pub documents: BTreeMap<(MountId, &'static str, String), Document>,
    pub tokens: HashMap<TokenHash, TokenRow>,
    pub cubbyholes: BTreeMap<(TokenHash, String), Vec<u8>>,
    pub entities: BTreeMap<String, EntityRow>,
    pub aliases: BTreeMap<String, AliasRow>,
    pub mounts: Vec<MountId>,
    pub sealed: Vec<Vec<u8>>,
    pub secret_ids: BTreeMap<(MountId, SecretIdHash), SecretIdRow>,
    pub ended_roles: Vec<(MountId, i64)>,
    pub secret_id_lookups: usize,
    pub reads: usize,
    pub fail: bool,
}

impl MemoryAuthStore {
    pub(super) fn state(&self) -> MutexGuard<'_, MemoryAuthState> {
        self.0.lock().unwrap()
    }

    fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut MemoryAuthState) -> Result<T>,
    ) -> BoxFuture<'static, Result<T>> {
        let mut state = self.state();
        if state.fail {
            return Box::pin(ready(Err(Error::unavailable("storage", "switched off"))));
        }
        Box::pin(ready(work(&mut state)))
    }
}

impl MemoryAuthState {
    fn write(&mut self, write: AuthWrite) -> Result<AuthOutcome> {
        Ok(match write {
            AuthWrite::Document(write) => self.document(write)?,
            AuthWrite::MountCreate(id) => {
                self.mounts.push(id);
                AuthOutcome::Done
            }
            AuthWrite::MountDelete(id) => {
                self.mounts.retain(|known| *known != id);
                self.tokens.retain(|_, row| row.mount != Some(id));
                AuthOutcome::Done
            }
            AuthWrite::TokenInsert(row) if row.parent.is_some_and(|parent| !self.is_usable_parent(&parent)) => {
                return Err(Error::new(Kind::Conflict, "parent"));
            }
            AuthWrite::TokenInsert(row) if row.mount.is_some_and(|mount| !self.mounts.contains(&mount)) => {
                return Err(Error::new(Kind::Conflict, "mount"));
            }
            AuthWrite::TokenInsert(row) => {
                self.tokens.insert(row.hash, row);
                AuthOutcome::Done
            }
            AuthWrite::TokenUpdate { hash, expires_at, body } => match self.tokens.get_mut(&hash) {
                None => AuthOutcome::Absent,
                Some(row) => {
                    (row.expires_at, row.body) = (expires_at, body);
                    AuthOutcome::Done
                }
            },
            AuthWrite::TokenSpend(hash) => match self.tokens.get_mut(&hash).and_then(|row| row.uses.as_mut()) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    AuthOutcome::UsesLeft(*uses)
                }
                _ => AuthOutcome::Absent,
            },
            AuthWrite::SecretId(write) => self.secret_id(write)?,
            AuthWrite::TokenRevoke(hashes) => {
                let gone = hashes.into_iter().flat_map(|hash| self.revoke(hash)).collect();
                AuthOutcome::Revoked(RevokedTokens { gone, ..RevokedTokens::default() })
            }
            AuthWrite::TokenTake(hash) => match self.tokens.get(&hash).and_then(|row| row.uses) {
                None | Some(0) => return Err(Error::new(Kind::Conflict, "used up")),
                Some(_) => {
                    self.revoke(hash);
                    AuthOutcome::Done
                }
            },
            AuthWrite::CubbyholePut(row) => {
                self.cubbyholes.insert((row.token, row.path), row.body);
                AuthOutcome::Done
            }
            AuthWrite::CubbyholeDelete { token, path } => {
                self.cubbyholes.remove(&(token, path));
                AuthOutcome::Done
            }
            AuthWrite::TokenRevokeAlone(hash) => {
                let gone = self.tokens.remove(&hash).map(|row| row.hash);
                let children = self.tokens.values_mut().filter(|row| row.parent == Some(hash));
                children.for_each(|row| row.parent = None);
                AuthOutcome::Revoked(RevokedTokens { gone: gone.into_iter().collect(), ..RevokedTokens::default() })
            }
            AuthWrite::TokenSweep { now, limit } => {
                let ended = |row: &&TokenRow| row.expires_at.is_some_and(|end| end <= now) || row.uses == Some(0);
                let ended: Vec<TokenHash> = self.tokens.values().filter(ended).map(|row| row.hash).collect();
                let ended = ended.into_iter().take(limit as usize);
                let gone = ended.flat_map(|hash| self.revoke(hash)).collect();
                AuthOutcome::Revoked(RevokedTokens { gone, ..RevokedTokens::default() })
            }
            AuthWrite::EntityPut(row) => {
                let before = self.entities.get(&row.id).map_or(0, |known| known.version);
                let taken = self.entities.values().any(|known| known.name == row.name && known.id != row.id);
                if before + 1 != row.version || taken {
                    return Err(Error::new(Kind::Conflict, "entity"));
                }
                self.entities.insert(row.id.clone(), row);
                AuthOutcome::Done
            }
            AuthWrite::AliasPut(row) => {
                let before = self.aliases.get(&row.id).map_or(0, |known| known.version);
                let meets = |known: &&AliasRow| known.name == row.name || known.entity == row.entity;
                let mut others = self.aliases.values().filter(|known| known.id != row.id);
                let taken = others.any(|known| known.accessor == row.accessor && meets(&known));
                if before + 1 != row.version || taken || !self.entities.contains_key(&row.entity) {
                    return Err(Error::new(Kind::Conflict, "alias"));
                }
                self.aliases.insert(row.id.clone(), row);
                AuthOutcome::Done
            }
            AuthWrite::EntityPostpone { id, until } => match self.entities.get_mut(&id) {
                None => AuthOutcome::Absent,
                Some(row) => {
                    row.kept_until = row.kept_until.map(|kept| kept.max(until));
                    AuthOutcome::Done
                }
            },
            AuthWrite::EntityDelete(id) => {
                self.aliases.retain(|_, alias| alias.entity != id);
                if self.entities.remove(&id).is_some() { AuthOutcome::Done } else { AuthOutcome::Absent }
            }
            AuthWrite::AliasDelete(id) => {
                if self.aliases.remove(&id).is_some() {
                    AuthOutcome::Done
                } else {
                    AuthOutcome::Absent
                }
            }
            AuthWrite::EntitySweep { now, again, limit } => {
                let ended = |row: &&EntityRow| row.kept_until.is_some_and(|kept| kept <= now);
                let ended: Vec<String> =
                    self.entities.values().filter(ended).take(limit as usize).map(|row| row.id.clone()).collect();
                for id in &ended {
                    let tokens = self.tokens.values().filter(|row| row.entity.as_ref() == Some(id));
                    match tokens.map(|row| row.expires_at.unwrap_or(again)).max() {
                        Some(end) => self.write(AuthWrite::EntityPostpone { id: id.clone(), until: end.max(again) })?,
                        None => self.write(AuthWrite::EntityDelete(id.clone()))?,
                    };
                }
                AuthOutcome::Swept(ended.len() as u32)
            }
        })
    }

    fn secret_id(&mut self, write: SecretIdWrite) -> Result<AuthOutcome> {
        Ok(match write {
            SecretIdWrite::Insert(row) if self.ended_roles.contains(&(row.mount, row.role)) => AuthOutcome::Absent,
            SecretIdWrite::Insert(row) => {
                let key = (row.mount, row.hash);
                let there = self.secret_ids.get(&key).is_some_and(|old| is_live(old, row.updated_at));
                if there {
                    return Err(Error::new(Kind::Conflict, "secret id"));
                }
                self.secret_ids.insert(key, row);
                AuthOutcome::Done
            }
            SecretIdWrite::Spend { mount, hash, now } => {
                let live = self.secret_ids.get_mut(&(mount, hash)).filter(|row| is_live(row, now));
                match live.and_then(|row| row.uses.as_mut()) {
                    None => AuthOutcome::Absent,
                    Some(uses) => {
                        *uses -= 1;
                        let left = *uses;
                        self.secret_ids.retain(|_, row| row.uses != Some(0));
                        AuthOutcome::UsesLeft(left)
                    }
                }
            }
            SecretIdWrite::Remove { mount, hash } => match self.secret_ids.remove(&(mount, hash)) {
                None => AuthOutcome::Absent,
                Some(_) => AuthOutcome::Done,
            },
            SecretIdWrite::DeleteRole { mount, role } => {
                self.ended_roles.push((mount, role));
                AuthOutcome::Done
            }
            SecretIdWrite::Sweep { now, .. } => {
                let before = self.secret_ids.len();
                let ended = std::mem::take(&mut self.ended_roles);
                self.secret_ids.retain(|_, row| is_live(row, now) && !ended.contains(&(row.mount, row.role)));
                AuthOutcome::Swept((before - self.secret_ids.len()) as u32)
            }
        })
    }

    fn document(&mut self, write: DocumentWrite) -> Result<AuthOutcome> {
        let key = (write.key.mount, write.key.kind, write.key.name.clone());
        if self.documents.get(&key).map_or(0, |document| document.version) != write.expected {
            return Err(Error::new(Kind::Conflict, "version"));
        }
        match write.body {
            None => drop(self.documents.remove(&key)),
            Some(body) => {
                let document = Document { key: write.key, version: write.expected + 1, body };
                self.documents.insert(key, document);
            }
        }
        Ok(AuthOutcome::Done)
    }

    fn is_usable_parent(&self, hash: &TokenHash) -> bool {
        self.tokens.get(hash).is_some_and(|row| row.uses != Some(0))
    }

    fn revoke(&mut self, hash: TokenHash) -> Vec<TokenHash> {
        let mut gone: Vec<TokenHash> = self.tokens.remove(&hash).map(|row| row.hash).into_iter().collect();
        let mut next = 0;
        while next < gone.len() {
            let parent = Some(gone[next]);
            gone.extend(self.tokens.values().filter(|row| row.parent == parent).map(|row| row.hash));
            gone[next + 1..].iter().for_each(|hash| drop(self.tokens.remove(hash)));
            next += 1;
        }
        self.cubbyholes.retain(|(token, _), _| !gone.contains(token));
        gone
    }
}

fn is_live(row: &SecretIdRow, now: Time) -> bool {
    row.expires_at.is_none_or(|end| now < end)
}

impl AuthStore for MemoryAuthStore {
    fn commit(&self, unit: Vec<AuthWrite>) -> BoxFuture<'static, Result<Vec<AuthOutcome>>> {
        self.answer(|state| {
            let before = state.clone();
            let outcomes = unit.into_iter().map(|write| state.write(write)).collect();
            if Result::is_err(&outcomes) {
                *state = before;
            }
            outcomes
        })
    }

    fn writes_fail(&self) -> bool {
        false
    }

    fn try_writing(&self) -> BoxFuture<'static, Result<()>> {
        Box::pin(ready(Ok(())))
    }

    fn documents_of(&self, mount: MountId, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        let of = move |document: &&Document| document.key.mount == mount && document.key.kind == kind;
        self.answer(move |state| Ok(state.documents.values().filter(of).cloned().collect()))
    }

    fn token(&self, hash: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.answer(|state| {
            state.reads += 1;
            Ok(state.tokens.get(&hash).cloned())
        })
    }

    fn token_by_accessor(&self, accessor: TokenHash) -> BoxFuture<'static, Result<Option<TokenRow>>> {
        self.answer(|state| Ok(state.tokens.values().find(|row| row.accessor_hash == accessor).cloned()))
    }

    fn cubbyhole(&self, token: TokenHash, path: String) -> BoxFuture<'static, Result<Option<CubbyholeRow>>> {
        self.answer(|state| {
            let body = state.cubbyholes.get(&(token, path.clone())).cloned();
            Ok(body.map(|body| CubbyholeRow { token, path, body }))
        })
    }

    fn cubbyhole_paths(&self, token: TokenHash) -> BoxFuture<'static, Result<Vec<String>>> {
        let kept = move |(owner, path): &&(TokenHash, String)| *owner == token && !path.is_empty();
        self.answer(|state| Ok(state.cubbyholes.keys().filter(kept).map(|(_, path)| path.clone()).collect()))
    }

    fn tokens(&self, after: TokenHash, limit: u32) -> BoxFuture<'static, Result<Vec<TokenRow>>> {
        self.answer(|state| {
            let mut rows: Vec<_> = state.tokens.values().filter(|row| row.accessor_hash > after).cloned().collect();
            rows.sort_by_key(|row| row.accessor_hash);
            rows.truncate(limit as usize);
            Ok(rows)
        })
    }

    fn condition(&self) -> BoxFuture<'static, Result<StoreCondition>> {
        self.answer(|state| {
            let endless = state.tokens.values().filter(|row| row.expires_at.is_none() && row.uses != Some(0)).count();
            Ok(StoreCondition { restore: None, endless_tokens: endless as u64 })
        })
    }

    /// Returns the index of the sealed value, padded to the length of the value.
    fn seal(&self, _: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        let sealed = &mut self.state().sealed;
        let length = plain.len();
        sealed.push(plain);
        let mut text = sealed.len().to_be_bytes().to_vec();
        text.resize(text.len() + length, 0);
        Ok(text)
    }

    fn unseal(&self, _: &'static str, sealed: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        self.answer(|state| {
            let number = sealed.first_chunk().map_or(0, |number| usize::from_be_bytes(*number));
            Ok(number.checked_sub(1).and_then(|at| state.sealed.get(at).cloned()))
        })
    }

    fn identity(&self, by: EntityBy) -> BoxFuture<'static, Result<Option<IdentityRows>>> {
        self.answer(|state| {
            state.reads += 1;
            let alias = |is: &dyn Fn(&&AliasRow) -> bool| state.aliases.values().find(is).map(|row| row.entity.clone());
            let id = match by {
                EntityBy::Id(id) => Some(id),
                EntityBy::Name(name) => state.entities.values().find(|row| row.name == name).map(|row| row.id.clone()),
                EntityBy::AliasId(id) => alias(&|row| row.id == id),
                EntityBy::Alias { accessor, name } => alias(&|row| row.accessor == accessor && row.name == name),
            };
            Ok(id.and_then(|id| state.entities.get(&id)).cloned().map(|entity| {
                let mut aliases: Vec<AliasRow> =
                    state.aliases.values().filter(|row| row.entity == entity.id).cloned().collect();
                aliases.sort_by(|a, b| a.accessor.cmp(&b.accessor));
                IdentityRows { entity, aliases }
            }))
        })
    }

    fn entities(&self, page: EntityPage) -> BoxFuture<'static, Result<Vec<EntityEntry>>> {
        self.answer(|state| {
            let key = |row: &EntityRow| if page.by_name { row.name.clone() } else { row.id.clone() };
            let mut rows: Vec<&EntityRow> = state.entities.values().filter(|row| key(row) > page.after).collect();
            rows.sort_by_key(|row| key(row));
            let entry =
                |row: &EntityRow| EntityEntry { id: row.id.clone(), name: row.name.clone(), aliases: Vec::new() };
            Ok(rows.into_iter().take(page.limit as usize).map(entry).collect())
        })
    }

    fn aliases(&self, after: String, limit: u32) -> BoxFuture<'static, Result<Vec<AliasEntry>>> {
        self.answer(|state| {
            let rows = state.aliases.values().filter(|row| row.id > after).take(limit as usize);
            let entry = |row: &AliasRow| {
                let AliasRow { id, accessor, name, entity, .. } = row.clone();
                AliasEntry { id, accessor, name, entity }
            };
            Ok(rows.map(entry).collect())
        })
    }

    fn secret_id(
        &self,
        mount: MountId,
        role: i64,
        key: SecretIdKey,
    ) -> BoxFuture<'static, Result<Option<SecretIdRow>>> {
        let is = move |row: &&SecretIdRow| {
            let found = match &key {
                SecretIdKey::Hash(hash) => row.hash == *hash,
                SecretIdKey::Accessor(text) => row.accessor == *text,
            };
            found && (row.mount, row.role) == (mount, role)
        };
        self.answer(move |state| {
            state.secret_id_lookups += 1;
            Ok(state.secret_ids.values().find(is).cloned())
        })
    }

    fn secret_id_accessors(
        &self,
        mount: MountId,
        role: i64,
        after: String,
        now: Time,
        limit: u32,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.answer(move |state| {
            let of = |row: &&SecretIdRow| (row.mount, row.role) == (mount, role) && is_live(row, now);
            let accessors = state.secret_ids.values().filter(of).map(|row| row.accessor.clone());
            let mut accessors: Vec<String> = accessors.filter(|accessor| *accessor > after).collect();
            accessors.sort();
            accessors.truncate(limit as usize);
            Ok(accessors)
        })
    }

    fn secret_id_role_exists(&self, mount: MountId, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.answer(move |state| Ok(state.mounts.contains(&mount) && !state.ended_roles.contains(&(mount, role))))
    }
}
