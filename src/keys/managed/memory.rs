//! An in-memory store for tests.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::documents::{Document, DocumentWrite};
use crate::error::{Error, Kind, Result};
use crate::keys::store::KeyStore;

#[derive(Default)]
pub(super) struct MemoryKeyStore {
    pub(super) documents: Mutex<BTreeMap<(&'static str, String), Document>>,
    /// Makes commits fail: after storing the documents if `true`, without storing them if `false`.
    pub(super) commit_failure: Mutex<Option<bool>>,
    pub(super) reads: AtomicUsize,
    /// `true` makes reads fail.
    pub(super) fail_reads: Mutex<bool>,
}

impl MemoryKeyStore {
    pub(super) fn write(&self, unit: Vec<DocumentWrite>) -> Result<()> {
        let mut documents = self.documents.lock().unwrap();
        let identity = |write: &DocumentWrite| (write.key.kind, write.key.name.clone());
        for write in &unit {
            if documents.get(&identity(write)).map_or(0, |document| document.version) != write.expected {
                return Err(Error::new(Kind::Conflict, "version"));
            }
        }
        for write in unit {
            let identity = identity(&write);
            match write.body {
                None => drop(documents.remove(&identity)),
                Some(body) => {
                    drop(documents.insert(identity, Document { key: write.key, version: write.expected + 1, body }));
                }
            }
        }
        Ok(())
    }
}

impl KeyStore for MemoryKeyStore {
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>> {
        let commit_failure = *self.commit_failure.lock().unwrap();
        let stored = if commit_failure == Some(false) { Ok(()) } else { self.write(unit) };
        let answer = if commit_failure.is_some() { Err(Error::new(Kind::Unavailable, "switched off")) } else { stored };
        ready(answer).boxed()
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let answer = match *self.fail_reads.lock().unwrap() {
            true => Err(Error::new(Kind::Unavailable, "switched off")),
            false => {
                let documents = self.documents.lock().unwrap();
                Ok(documents.values().filter(|document| document.key.kind == kind).cloned().collect())
            }
        };
        ready(answer).boxed()
    }
}
