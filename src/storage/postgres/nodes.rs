//! The change log on PostgreSQL, and the start of its listener.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::changes;
use super::reader::{Listener, Pool};
use crate::documents::SYSTEM;
use crate::error::Result;
use crate::nodes::store::{ChangeLog, Changes, Point};
use crate::storage::store::Store;
use crate::telemetry;

impl ChangeLog for Store<Pool> {
    fn since(&self, point: Point) -> BoxFuture<'static, Result<Changes>> {
        let (node, keys) = (self.reader.node, self.keys.clone());
        let found = self.reader.read_knowing("changes", move |db, made| changes::since(db, made, point, node).boxed());
        async move {
            let changes = found.await?;
            if changes.is_other_course {
                // The current key may have been lost with the previous server, and later all values sealed with it.
                keys.learn_anew().await?;
                return Ok(changes);
            }
            // It may be a new data key. On failure the node loads the key when it reads a value sealed with it.
            if changes.mounts.iter().any(|change| change.mount == SYSTEM)
                && let Err(error) = keys.learn().await
            {
                telemetry::not_done("the data keys of the store were not read", &error);
            }
            Ok(changes)
        }
        .boxed()
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
