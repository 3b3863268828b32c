//! The change log on PostgreSQL, and the start of its listener.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::changes;
use super::reader::{ChangeListener, PostgresReaderPool};
use crate::documents::SYSTEM_MOUNT;
use crate::error::Result;
use crate::nodes::store::{ChangeLog, ChangeLogResponse, LogPosition};
use crate::storage::store::Store;
use crate::telemetry;

impl ChangeLog for Store<PostgresReaderPool> {
    fn since(&self, position: LogPosition) -> BoxFuture<'static, Result<ChangeLogResponse>> {
        let node = self.reader.node;
        let keys = self.keys.clone();
        let found = self.reader.read_with_age("changes", move |db, opened_at| {
            changes::read_changes(db, opened_at, position, node).boxed()
        });
        async move {
            let changes = found.await?;
            if changes.is_other_timeline {
                // The failover may have lost the current data key. The node must stop using it, because values sealed
                // with it could not be decrypted later.
                keys.reload_after_loss().await?;
                return Ok(changes);
            }
            // The change may be a new data key. If loading it fails now, the node loads it when it reads a value sealed
            // with it.
            if changes.mounts.iter().any(|change| change.mount == SYSTEM_MOUNT)
                && let Err(error) = keys.load_new_keys().await
            {
                telemetry::warn_task_failed(
                    "new data keys of the store cannot be loaded; retried when a stored value needs one",
                    &error,
                );
            }
            Ok(changes)
        }
        .boxed()
    }

    fn listen(&self) -> Arc<Notify> {
        let pool = &self.reader;
        let start = || {
            let signal = Arc::new(Notify::new());
            let task = pool.store_runtime.spawn(changes::listen(pool.url.clone(), Arc::downgrade(&signal)));
            ChangeListener { task: task.abort_handle(), signal }
        };
        Arc::clone(&pool.listener.get_or_init(start).signal)
    }
}
