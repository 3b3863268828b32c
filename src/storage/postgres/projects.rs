//! The projects API's store on PostgreSQL: all of its work uses separate sessions.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::reader::PostgresReaderPool;
use crate::projects::store::{CallerId, ProjectStore};
use crate::sql::{SqlError, SqlWork};
use crate::storage::store::Store;

impl ProjectStore for Store<PostgresReaderPool> {
    fn read(
        &self,
        name: &'static str,
        caller_id: CallerId,
        work: SqlWork,
    ) -> LocalBoxFuture<'static, Result<(), SqlError>> {
        self.reader.clone().run(name, caller_id, work, false).boxed_local()
    }

    fn write(
        &self,
        name: &'static str,
        caller_id: CallerId,
        work: SqlWork,
    ) -> LocalBoxFuture<'static, Result<(), SqlError>> {
        self.reader.clone().run(name, caller_id, work, true).boxed_local()
    }
}
