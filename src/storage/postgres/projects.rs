//! The projects API's store on PostgreSQL: all of its work uses separate sessions.

use futures_util::FutureExt as _;

use super::reader::PostgresReaderPool;
use crate::projects::store::{ProjectStore, RunningSession, SessionAccess};
use crate::sql::SqlWork;
use crate::storage::store::Store;

impl ProjectStore for Store<PostgresReaderPool> {
    fn run(&self, name: &'static str, access: SessionAccess, work: SqlWork) -> RunningSession {
        self.reader.clone().run(name, access, work).boxed_local()
    }
}
