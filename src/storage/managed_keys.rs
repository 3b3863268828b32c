//! Storage of the managed keys: sealed documents of the system scope.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::clock::Clock;
use crate::documents::{Document, DocumentWrite, SYSTEM_MOUNT};
use crate::error::Result;
use crate::keys::store::KeyStore;
use crate::storage::backend::{StoreReader, UnitOutcomes, WriteUnit};
use crate::storage::documents;
use crate::storage::keys::StoreKeys;
use crate::storage::store::{DomainWrite, Store};

impl DomainWrite for DocumentWrite {
    type Outcome = ();

    fn prepare(&mut self, keys: &Arc<StoreKeys>) -> Result<()> {
        documents::seal(self, keys)
    }

    fn unit(writes: Vec<Self>, _: &Clock) -> WriteUnit {
        WriteUnit::Documents(writes)
    }

    fn outcomes(outcomes: UnitOutcomes) -> Option<Vec<()>> {
        matches!(outcomes, UnitOutcomes::Done).then(Vec::new)
    }
}

impl<R: StoreReader + Clone> KeyStore for Store<R> {
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>> {
        self.submit(unit).map(|outcomes| outcomes.map(drop)).boxed()
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        self.open_documents(SYSTEM_MOUNT, Some(kind))
    }
}
