//! SQL sessions ([`crate::sql`]) of the store itself, with the same SQL for both engines.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::error::{Error, Kind, Result};
use crate::projects::store::{ProjectStore, SERVER_CALLER};
use crate::sql::{SqlError, SqlSession, SqlWork};

#[derive(Clone)]
pub(super) struct StoreSessions(Arc<dyn ProjectStore>);

impl StoreSessions {
    pub(super) fn new(store: Arc<dyn ProjectStore>) -> Self {
        Self(store)
    }

    /// Runs read-only work and returns its result. `name` identifies it in the metrics.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<T, SqlError>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (work, found) = capture_result(work);
        take_result(self.0.read(name, SERVER_CALLER, work).await, &found)
    }

    /// Runs work in one write transaction and returns its result.
    ///
    /// # Errors
    /// The errors of the store; `Conflict` when the work is refused.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<T, SqlError>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (work, found) = capture_result(work);
        take_result(self.0.write(name, SERVER_CALLER, work).await, &found)
    }
}

pub(super) type ResultSlot<T> = Arc<Mutex<Option<T>>>;

/// Wraps work so that its result is stored in a slot.
pub(super) fn capture_result<T: Send + 'static>(
    work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<T, SqlError>> + Send + Sync + 'static,
) -> (SqlWork, ResultSlot<T>) {
    let slot: ResultSlot<T> = Arc::default();
    let work = Arc::new(work);
    let keep = Arc::clone(&slot);
    let kept: SqlWork = Arc::new(move |session| {
        let work = Arc::clone(&work);
        let keep = Arc::clone(&keep);
        async move {
            let found = work(session).await?;
            *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            Ok(())
        }
        .boxed_local()
    });
    (kept, slot)
}

fn take_result<T>(ran: Result<(), SqlError>, slot: &ResultSlot<T>) -> Result<T> {
    match ran {
        Ok(()) => {}
        Err(SqlError::Rejected) => return Err(Error::new(Kind::Conflict, "storage: concurrent modification; retry")),
        Err(SqlError::Engine(error)) => return Err(error),
        Err(SqlError::SerializationConflict | SqlError::Timeout) => {
            return Err(Error::new(Kind::Unavailable, "storage: a step took too long"));
        }
        Err(SqlError::Constraint(name)) => return Err(Error::internal(format!("constraint violated: {name}"))),
    }
    take_captured(slot)
}

/// Takes the result of work that ran.
pub(super) fn take_captured<T>(slot: &ResultSlot<T>) -> Result<T> {
    let found = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.ok_or_else(|| Error::internal("work that did not run"))
}
