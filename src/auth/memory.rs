//! A store in memory, for the tests of this module.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use futures_util::future::{BoxFuture, ready};

use super::store::{AuthOutcome, AuthStore, AuthWrite, TokenHash, TokenRow};
use crate::documents::{Document, DocumentWrite, MountId};
use crate::error::{Error, Kind, Result};

#[derive(Default)]
pub(super) struct Memory(Mutex<State>);

#[derive(Default, Clone)]
pub(super) struct State {
    pub documents: BTreeMap<(&'static str, String), Document>,
    pub tokens: HashMap<TokenHash, TokenRow>,
    pub mounts: Vec<MountId>,
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
            AuthWrite::TokenRevoke(hash) => AuthOutcome::Revoked(self.revoke(hash)),
            AuthWrite::TokenSweep { now, limit } => {
                let ended = |row: &&TokenRow| row.expires_at.is_some_and(|end| end <= now);
                let ended: Vec<TokenHash> = self.tokens.values().filter(ended).map(|row| row.hash).collect();
                let ended = ended.into_iter().take(limit as usize);
                AuthOutcome::Swept(ended.map(|hash| self.revoke(hash).len() as u32).sum())
            }
        })
    }

    fn document(&mut self, write: DocumentWrite) -> Result<AuthOutcome> {
        let place = (write.key.kind, write.key.name.clone());
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

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.answer(|state| Ok(state.documents.values().filter(|d| d.key.kind == kind).cloned().collect()))
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
}
