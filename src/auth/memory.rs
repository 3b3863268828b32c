//! A store in memory, for the tests of this module.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use futures_util::future::{BoxFuture, ready};

use super::store::{
    AuthOutcome, AuthStore, AuthWrite, SecretIdHash, SecretIdKey, SecretIdRow, SecretIdWrite, TokenHash, TokenRow,
};
use crate::clock::Time;
use crate::documents::{Document, DocumentWrite, MountId};
use crate::error::{Error, Kind, Result};

#[derive(Default)]
pub(super) struct Memory(Mutex<State>);

#[derive(Default, Clone)]
pub(super) struct State {
    pub documents: BTreeMap<(MountId, &'static str, String), Document>,
    pub tokens: HashMap<TokenHash, TokenRow>,
    pub mounts: Vec<MountId>,
    pub secret_ids: BTreeMap<(MountId, SecretIdHash), SecretIdRow>,
    pub ended_roles: Vec<(MountId, i64)>,
    pub reads: usize,
    pub fail: bool,
}

impl Memory {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn answer<T: Send + 'static>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> BoxFuture<'static, Result<T>> {
        let mut state = self.state();
        if state.fail {
            return Box::pin(ready(Err(Error::unavailable("storage", "switched off"))));
        }
        Box::pin(ready(work(&mut state)))
    }
}

impl State {
    fn write(&mut self, write: AuthWrite) -> Result<AuthOutcome> {
        Ok(match write {
            AuthWrite::Document(write) => self.document(write)?,
            AuthWrite::MountCreate(id) => {
                self.mounts.push(id);
                AuthOutcome::Done
            }
            AuthWrite::MountDrop(id) => {
                self.mounts.retain(|known| *known != id);
                self.tokens.retain(|_, row| row.mount != Some(id));
                AuthOutcome::Done
            }
            AuthWrite::TokenInsert(row) if row.parent.is_some_and(|parent| !self.tokens.contains_key(&parent)) => {
                return Err(Error::new(Kind::Conflict, "parent"));
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
            AuthWrite::TokenRevoke(hash) => AuthOutcome::Revoked(self.revoke(hash)),
            AuthWrite::TokenSweep { now, limit } => {
                let ended = |row: &&TokenRow| row.expires_at.is_some_and(|end| end <= now);
                let ended: Vec<TokenHash> = self.tokens.values().filter(ended).map(|row| row.hash).collect();
                let ended = ended.into_iter().take(limit as usize);
                AuthOutcome::Swept(ended.map(|hash| self.revoke(hash).len() as u32).sum())
            }
        })
    }

    fn secret_id(&mut self, write: SecretIdWrite) -> Result<AuthOutcome> {
        Ok(match write {
            SecretIdWrite::Insert(row) if self.ended_roles.contains(&(row.mount, row.role)) => AuthOutcome::Absent,
            SecretIdWrite::Insert(row) => {
                let place = (row.mount, row.hash);
                let there = self.secret_ids.get(&place).is_some_and(|old| is_live(old, row.updated_at));
                if there {
                    return Err(Error::new(Kind::Conflict, "secret id"));
                }
                self.secret_ids.insert(place, row);
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
            SecretIdWrite::EndRole { mount, role, .. } => {
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
        let place = (write.key.mount, write.key.kind, write.key.name.clone());
        if self.documents.get(&place).map_or(0, |document| document.version) != write.expected {
            return Err(Error::new(Kind::Conflict, "version"));
        }
        match write.body {
            None => drop(self.documents.remove(&place)),
            Some(body) => {
                let document = Document { key: write.key, version: write.expected + 1, body };
                self.documents.insert(place, document);
            }
        }
        Ok(AuthOutcome::Done)
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
        gone
    }
}

fn is_live(row: &SecretIdRow, now: Time) -> bool {
    row.expires_at.is_none_or(|end| now < end)
}

impl AuthStore for Memory {
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
        self.answer(move |state| Ok(state.secret_ids.values().find(is).cloned()))
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
}
