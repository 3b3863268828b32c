//! The projects API's store on PostgreSQL: all of its work uses separate sessions.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::reader::Pool;
use crate::projects::store::{Asker, ProjectStore};
use crate::sql::{Failure, Work};
use crate::storage::store::Store;

impl ProjectStore for Store<Pool> {
    fn read(&self, name: &'static str, asker: Asker, work: Work) -> LocalBoxFuture<'static, Result<(), Failure>> {
        self.reader.clone().run(name, asker, work, false).boxed_local()
    }

    fn write(&self, name: &'static str, asker: Asker, work: Work) -> LocalBoxFuture<'static, Result<(), Failure>> {
        self.reader.clone().run(name, asker, work, true).boxed_local()
    }
}
