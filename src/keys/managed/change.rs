//! Writing and deleting managed keys.

use std::sync::Arc;

use tokio::sync::MutexGuard;

use super::backend::{BackendConfig, BackendType};
use super::key_permissions::KeyPermissions;
use super::record::ManagedKeyRecord;
use super::registry::ManagedKeys;
use super::view::{ManagedKeyEntry, ManagedKeysView};
use crate::documents::{DocumentWrite, retry_on_conflict};
use crate::error::{Error, Result};

impl ManagedKeys {
    /// Writes the key `name`, which must be in lower case. `change` derives the new configuration from the current
    /// record, and runs again after a conflict with another node.
    ///
    /// # Errors
    /// `Invalid` when a key of another type has this name, when the configuration is invalid, or when it names a
    /// library that is not configured on this server; errors of `change` and of the store.
    pub async fn write(
        &self,
        kind: BackendType,
        name: &str,
        change: impl Fn(Option<&ManagedKeyRecord>) -> Result<(KeyPermissions, BackendConfig)>,
    ) -> Result<Arc<ManagedKeyRecord>> {
        let one_writer = self.lock_writes().await;
        let attempt = async || {
            self.reload_locked(&one_writer).await?;
            let view = self.view();
            let known = view.by_name(name);
            if let Some(other) = known.map(|entry| entry.record.kind()).filter(|other| *other != kind) {
                let word = other.name();
                return Err(Error::invalid(format!("a managed key named {name:?} of type {word:?} already exists")));
            }
            let (terms, backend) = change(known.map(|entry| &*entry.record))?;
            // Validates the configuration, also against the devices of this server.
            let devices = self.devices();
            backend.open(name, &terms, &devices)?;
            let uuid = known.map_or_else(crate::random::uuid, |entry| entry.record.uuid.clone());
            let record = ManagedKeyRecord { uuid, name: name.to_owned(), terms, backend };
            let version = known.map_or(0, |entry| entry.version);
            self.commit(vec![record.write(version)?], &one_writer).await?;
            // From here on nothing can fail: the record is committed.
            let entry = ManagedKeyEntry::new(record, version + 1, known.map(Arc::as_ref), &devices);
            let written = Arc::clone(&entry.record);
            self.publish(view.with_entry(entry));
            Ok(written)
        };
        retry_on_conflict(format_args!("managed key {name:?}"), attempt).await
    }

    /// Deletes the record of a key; succeeds if there is none. The key in the backend is not deleted.
    ///
    /// # Errors
    /// `Invalid` while mounts list the name, with their paths; errors of the store.
    pub async fn delete(&self, kind: BackendType, name: &str) -> Result<()> {
        let one_writer = self.lock_writes().await;
        let attempt = async || {
            self.reload_locked(&one_writer).await?;
            let view: Arc<ManagedKeysView> = self.view();
            let Some(entry) = view.by_name(name).filter(|entry| entry.record.kind() == kind) else { return Ok(()) };
            let mounts = self.grants.listing_mounts(name.to_owned()).await?;
            if !mounts.paths.is_empty() {
                let paths: Vec<String> = mounts.paths.iter().map(|path| format!("{path:?}")).collect();
                let paths = paths.join(", ");
                return Err(Error::invalid(format!("managed key {name:?} is in use by mount {paths}")));
            }
            self.commit(vec![entry.record.removal(entry.version), mounts.unchanged], &one_writer).await?;
            self.publish(view.without_entry(entry));
            Ok(())
        };
        retry_on_conflict(format_args!("managed key {name:?}"), attempt).await
    }

    async fn commit(&self, unit: Vec<DocumentWrite>, one_writer: &MutexGuard<'_, ()>) -> Result<()> {
        let Err(error) = self.store.commit(unit).await else { return Ok(()) };
        self.reload_after_failed_write(&error, one_writer).await;
        Err(error)
    }
}
