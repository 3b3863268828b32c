//! The projects API's store on SQLite: writing work is part of the group commit, other work uses a reading connection.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::reader::SqliteReaderPool;
use crate::error::Error;
use crate::projects::store::{CallerId, ProjectStore};
use crate::sql::{SqlError, SqlWork};
use crate::storage::backend::WriteUnit;
use crate::storage::store::Store;

impl ProjectStore for Store<SqliteReaderPool> {
    fn read(
        &self,
        _: &'static str,
        caller_id: CallerId,
        work: SqlWork,
    ) -> LocalBoxFuture<'static, Result<(), SqlError>> {
        let found = self.reader.session(caller_id, work);
        async move { found.await.unwrap_or_else(|error| Err(SqlError::Engine(error))) }.boxed_local()
    }

    fn write(
        &self,
        _: &'static str,
        caller_id: CallerId,
        work: SqlWork,
    ) -> LocalBoxFuture<'static, Result<(), SqlError>> {
        // The commit cannot transport the outcome of the work, so it is returned through a slot.
        let reported = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&reported);
        let reporting_work: SqlWork = Arc::new(move |session| {
            let work = Arc::clone(&work);
            let slot = Arc::clone(&slot);
            async move {
                let outcome = work(session).await;
                let failed = outcome.is_err();
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                if failed { Err(SqlError::Rejected) } else { Ok(()) }
            }
            .boxed_local()
        });
        let submitted = self.commits.submit(WriteUnit::Work(caller_id, reporting_work));
        async move {
            submitted.outcome().await.map_err(SqlError::Engine)?;
            let outcome = reported.lock().unwrap_or_else(PoisonError::into_inner).take();
            outcome.unwrap_or_else(|| Err(SqlError::Engine(Error::internal("work that did not run"))))
        }
        .boxed_local()
    }
}
