//! Storage of the registry of managed keys: sealed system documents.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::clock::Clock;
use crate::documents::{Document, DocumentWrite, SYSTEM};
use crate::error::Result;
use crate::keys::store::KeyStore;
use crate::storage::backend::{Outcomes, Reader, Unit};
use crate::storage::documents;
use crate::storage::keys::Keys;
use crate::storage::store::{DomainWrite, Store};

impl DomainWrite for DocumentWrite {
    type Outcome = ();

    fn prepare(&mut self, keys: &Arc<Keys>) -> Result<()> {
        documents::seal(self, keys)
    }

    fn unit(writes: Vec<Self>, _: &Clock) -> Unit {
        Unit::Documents(writes)
    }

    fn outcomes(outcomes: Outcomes) -> Option<Vec<()>> {
        matches!(outcomes, Outcomes::Done).then(Vec::new)
    }
}

impl<R: Reader + Clone> KeyStore for Store<R> {
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>> {
        self.submit(unit).map(|outcomes| outcomes.map(drop)).boxed()
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(SYSTEM, Some(kind))
    }
}
