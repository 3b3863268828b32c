//! What following other nodes reads, on PostgreSQL, and the listener's start.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::changes;
use super::reader::{Listener, Pool};
use crate::error::Result;
use crate::nodes::store::{ChangeLog, Changes, Point};
use crate::storage::store::Store;

impl ChangeLog for Store<Pool> {
    fn since(&self, point: Point) -> BoxFuture<'static, Result<Changes>> {
        let node = self.reader.node;
        self.reader.read_knowing("changes", move |db, made| changes::since(db, made, point, node).boxed())
    }

    fn listen(&self) -> Arc<Notify> {
        let pool = &self.reader;
        let start = || {
            let told = Arc::new(Notify::new());
            let task = pool.home.spawn(changes::listen(pool.url.clone(), Arc::downgrade(&told)));
            Listener { task: task.abort_handle(), told }
        };
        Arc::clone(&pool.listener.get_or_init(start).told)
    }
}
