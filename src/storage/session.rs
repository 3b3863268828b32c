//! SQL sessions ([`crate::sql`]) for the store's own work, with the same SQL for both engines.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::error::{Error, Kind, Result};
use crate::projects::store::{ProjectStore, SERVER_CALLER, SessionAccess};
use crate::sql::{SessionEnd, SqlError, SqlSession, capture_result};

#[derive(Clone)]
pub(super) struct StoreSessions(Arc<dyn ProjectStore>);

impl StoreSessions {
    pub(super) fn new(store: Arc<dyn ProjectStore>) -> Self {
        Self(store)
    }

    /// Runs read-only work in a session and returns its result. `name` identifies the work in the metrics.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<T, SqlError>> + Send + Sync + 'static,
    ) -> Result<T> {
        self.run(name, SessionAccess::Read(SERVER_CALLER), work).await
    }

    /// Runs work in a session with a write transaction, and returns its result.
    ///
    /// # Errors
    /// The errors of the store; `Conflict` when the work rejects the request.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<T, SqlError>> + Send + Sync + 'static,
    ) -> Result<T> {
        self.run(name, SessionAccess::Write(SERVER_CALLER), work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        access: SessionAccess,
        work: impl for<'s> Fn(&'s mut dyn SqlSession) -> LocalBoxFuture<'s, Result<T, SqlError>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (work, found) = capture_result(move |session| {
            let work = work(session);
            async move { work.await.map(SessionEnd::Commit) }.boxed_local()
        });
        match self.0.run(name, access, work).await {
            Ok(()) => found.take(),
            Err(SqlError::Rejected) => Err(Error::new(Kind::Conflict, "storage: concurrent modification; retry")),
            Err(SqlError::Engine(error)) => Err(error),
            Err(SqlError::SerializationConflict | SqlError::Timeout) => Err(Error::new(
                Kind::Unavailable,
                "storage: a database transaction took too long, or conflicted with others",
            )),
            Err(SqlError::Constraint(name)) => {
                Err(Error::internal(format!("a write violated the database constraint {name}")))
            }
        }
    }
}
