//! The writer of a read-only store. It rejects all writes.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::error::{Error, Result};
use crate::storage::backend::{StoreBackend, UnitOutcomes, WriteUnit};

pub(super) struct ReadOnlyBackend;

impl StoreBackend for ReadOnlyBackend {
    fn apply(&mut self, units: Vec<WriteUnit>) -> BoxFuture<'_, Vec<Result<UnitOutcomes>>> {
        let refused = || Err(Error::invalid("storage: the data keys are missing, and the store is opened read-only"));
        ready(units.iter().map(|_| refused()).collect()).boxed()
    }

    fn has_background_work(&self) -> bool {
        false
    }

    fn run_background_step(&mut self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn close(self) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }
}
