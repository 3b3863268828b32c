//! The projects API's store on SQLite: work that writes joins the group commit, other work uses a reading connection.

use futures_util::FutureExt as _;

use super::reader::SqliteReaderPool;
use crate::projects::store::{ProjectStore, RunningSession, SessionAccess};
use crate::sql::{SessionEnd, SqlError, SqlWork, capture_result};
use crate::storage::backend::WriteUnit;
use crate::storage::store::Store;

impl ProjectStore for Store<SqliteReaderPool> {
    fn run(&self, _: &'static str, access: SessionAccess, work: SqlWork) -> RunningSession {
        let caller_id = match access {
            SessionAccess::Read(caller_id) => {
                let found = self.reader.run_session(caller_id, work);
                return async move { found.await.unwrap_or_else(|error| Err(SqlError::Engine(error))) }.boxed_local();
            }
            SessionAccess::Write(caller_id) => caller_id,
        };
        let (work, outcome) = capture_result(move |session| {
            let work = work(session);
            async move {
                Ok(match work.await {
                    Ok(()) => SessionEnd::Commit(Ok(())),
                    Err(failure) => SessionEnd::RollBack(Err(failure)),
                })
            }
            .boxed_local()
        });
        let submitted = self.commits.submit(WriteUnit::Work(caller_id, work));
        async move {
            submitted.outcome().await.map_err(SqlError::Engine)?;
            outcome.take().map_err(SqlError::Engine)?
        }
        .boxed_local()
    }
}
