//! [`ManagedKeys`]: the registry of managed keys. It publishes a snapshot of all keys and keeps it in sync with the
//! store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::{Mutex, MutexGuard};

use super::backend::{BackendType, Devices};
use super::generation_lease::GenerationLeases;
use super::grants::ManagedKeyGrants;
use super::pending::StoredPendingKeys;
use super::record::ManagedKeyRecord;
use super::usage::ManagedKeyUsage;
use super::view::{ManagedKeyEntry, ManagedKeysView};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::keys::actor::SignerActor;
use crate::keys::pkcs11::{Libraries, PIN_NOT_RETRIED};
use crate::keys::signer::KeyIdentity;
use crate::keys::store::{KeyStore, MANAGED_KEY_DOCUMENT_KIND};
use crate::keys::test_sign::TestSign;
use crate::x509::public_key::PublicKey;

/// Maximum time for the calls of a deleted key to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The managed keys of one server.
pub struct ManagedKeys {
    pub(super) store: Arc<dyn KeyStore>,
    devices: ArcSwap<Devices>,
    pub(super) leases: Arc<GenerationLeases>,
    pub(super) grants: Arc<dyn ManagedKeyGrants>,
    view: ArcSwap<ManagedKeysView>,
    write_lock: Mutex<()>,
    /// `true` after a failed write that may have been stored, until the store has been read again. Changes only while
    /// `write_lock` is locked.
    needs_reload: AtomicBool,
}

impl ManagedKeys {
    /// Loads all keys. Does not call devices: a broken one must not delay the start.
    ///
    /// # Errors
    /// Errors of the store; `Internal` when a record cannot be parsed.
    pub async fn open(
        store: Arc<dyn KeyStore>,
        devices: Devices,
        grants: Arc<dyn ManagedKeyGrants>,
        clock: Clock,
    ) -> Result<Arc<Self>> {
        let pending = StoredPendingKeys::new(Arc::clone(&store), clock.clone());
        let devices = Devices { pending: Some(Arc::new(pending)), ..devices };
        let view = ManagedKeysView::load(
            store.documents(MANAGED_KEY_DOCUMENT_KIND).await?,
            &ManagedKeysView::default(),
            &devices,
        )?;
        let view = ArcSwap::from_pointee(view);
        let write_lock = Mutex::default();
        let needs_reload = AtomicBool::new(false);
        let devices = ArcSwap::from_pointee(devices);
        let leases = GenerationLeases::new(Arc::clone(&store), clock);
        Ok(Arc::new(Self { store, devices, leases, grants, view, write_lock, needs_reload }))
    }

    /// Applies a changed library configuration. Reopens only the keys whose library has changed.
    pub async fn replace_libraries(&self, libraries: Libraries) {
        let _one_writer = self.lock_writes().await;
        let before = self.devices();
        let now = Arc::new(Devices { libraries, ..Devices::clone(&before) });
        self.devices.store(Arc::clone(&now));
        let has_changed_library = |record: &ManagedKeyRecord| record.backend.uses_changed_library(&before, &now);
        self.publish(self.view().with_reopened(has_changed_library, &now));
    }

    /// Reloads all keys after a change on another node.
    ///
    /// # Errors
    /// As [`ManagedKeys::open`]; the published view stays.
    pub async fn reload(&self) -> Result<()> {
        let one_writer = self.lock_writes().await;
        self.reload_locked(&one_writer).await
    }

    /// Reloads all keys if a failed write may have been stored, and returns `true` in that case. Called periodically.
    ///
    /// # Errors
    /// As [`ManagedKeys::reload`].
    pub async fn catch_up(&self) -> Result<bool> {
        let needs_reload = self.needs_reload.load(Ordering::Relaxed);
        if needs_reload {
            self.reload().await?;
        }
        Ok(needs_reload)
    }

    /// The names of all keys of a type, sorted.
    pub fn names(&self, kind: BackendType) -> Vec<String> {
        let view = self.view.load();
        view.iter().filter(|entry| entry.record.kind() == kind).map(|entry| entry.record.name.clone()).collect()
    }

    /// The record of a key; `None` if there is no such key of this type.
    pub fn read(&self, kind: BackendType, name: &str) -> Option<Arc<ManagedKeyRecord>> {
        self.entry(kind, name).map(|entry| Arc::clone(&entry.record))
    }

    /// Signs random bytes and verifies the signature. Generates a missing key first if that is allowed, on one node at
    /// a time. Retries a rejected PIN once. `in_use` contains the keys that mounts use. Those of them that the
    /// configuration no longer names are tested afterwards.
    ///
    /// # Errors
    /// `NotFound` without such a key; `Invalid` when the key is not for signing; otherwise as
    /// [`SignerActor::test_sign`](crate::keys::SignerActor::test_sign).
    pub async fn test_sign(&self, kind: BackendType, name: &str, test: TestSign, in_use: &[KeyIdentity]) -> Result<()> {
        let entry = self.entry(kind, name).ok_or_else(Error::not_found)?;
        entry.record.check_usage(ManagedKeyUsage::Sign)?;
        entry.record.check_usage(ManagedKeyUsage::Verify)?;
        let actor =
            entry.actor_for_use().map_err(|error| Error::invalid(format!("configuration: {}", error.text())))?.clone();
        match entry.record.location() {
            Some(location) if self.may_need_generation(&actor).await? => {
                let actor = actor.clone();
                self.leases.run(Some(location), async move { actor.test_sign(test).await }).await?;
            }
            _ => actor.test_sign(test).await?,
        }
        if in_use.is_empty() {
            return Ok(());
        }
        let named = actor.find_key(false).await?;
        // A key without a locator was tested already: its configuration identifies exactly one key.
        let is_other = |key: &&KeyIdentity| {
            !key.locator.is_empty() && (key.public != named.public || key.locator != named.locator)
        };
        for key in in_use.iter().filter(is_other) {
            actor.test_key_in_use(key.clone()).await?;
        }
        Ok(())
    }

    /// Stores public keys of certificates as candidates for the public key of the managed key. They are used if the
    /// device does not return the public key.
    pub fn offer_candidates(&self, kind: BackendType, name: &str, candidates: &[PublicKey]) {
        if let Some(entry) = self.entry(kind, name)
            && let Ok(actor) = entry.actor()
        {
            actor.offer_candidates(candidates);
        }
    }

    /// Returns the UUID of a key.
    pub fn uuid(&self, kind: BackendType, name: &str) -> Option<String> {
        self.entry(kind, name).map(|entry| entry.record.uuid.clone())
    }

    /// `false` if the key was found, so that the test signature need not wait for the cluster-wide lease of its
    /// generation. Fails if the backend rejects the PIN, because the test signature would try the PIN again.
    async fn may_need_generation(&self, actor: &SignerActor) -> Result<bool> {
        match actor.find_key(false).await {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == Kind::BadGateway && error.text() != PIN_NOT_RETRIED => {
                Err(Error::invalid(format!("configuration: {}", error.text())))
            }
            Err(_) => Ok(true),
        }
    }

    /// Stops all signers after their queued jobs, then closes all modules. Abandons jobs and modules that take
    /// longer than `limit`.
    pub async fn stop(&self, limit: Duration) {
        let view = self.view.load_full();
        join_all(view.iter().filter_map(|entry| entry.actor().ok()).map(|actor| actor.stop(limit))).await;
        let libraries = self.devices().libraries.clone();
        let closed = tokio::task::spawn_blocking(move || libraries.close());
        if tokio::time::timeout(limit, closed).await.is_err() {
            tracing::warn!("a pkcs11 module hangs in a call and was not closed at shutdown");
        }
    }

    pub(super) async fn lock_writes(&self) -> MutexGuard<'_, ()> {
        self.write_lock.lock().await
    }

    pub(super) fn devices(&self) -> Arc<Devices> {
        self.devices.load_full()
    }

    pub(super) fn view(&self) -> Arc<ManagedKeysView> {
        self.view.load_full()
    }

    fn entry(&self, kind: BackendType, name: &str) -> Option<Arc<ManagedKeyEntry>> {
        self.view.load().by_name(name).filter(|entry| entry.record.kind() == kind).cloned()
    }

    pub(super) async fn reload_locked(&self, _one_writer: &MutexGuard<'_, ()>) -> Result<()> {
        let documents = self.store.documents(MANAGED_KEY_DOCUMENT_KIND).await?;
        self.publish(ManagedKeysView::load(documents, &self.view.load(), &self.devices())?);
        self.needs_reload.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Publishes a view and stops the signers of keys that it does not contain.
    pub(super) fn publish(&self, next: ManagedKeysView) {
        let next = Arc::new(next);
        let before = self.view.swap(Arc::clone(&next));
        for entry in before.iter().filter(|entry| next.by_uuid(&entry.record.uuid).is_none()) {
            if let Ok(actor) = entry.actor() {
                let actor = actor.clone();
                tokio::spawn(async move { actor.stop(STOP_TIMEOUT).await });
            }
        }
    }

    /// Reloads after a write that failed with `error`: this write may have been stored all the same, or the write of
    /// another node has caused the failure. If the reload fails, [`Self::catch_up`] repeats it.
    pub(super) async fn reload_after_failed_write(&self, error: &Error, one_writer: &MutexGuard<'_, ()>) {
        // `Busy` means that the store did not accept the write, so nothing has changed.
        if error.kind() != Kind::Busy && self.reload_locked(one_writer).await.is_err() {
            self.needs_reload.store(true, Ordering::Relaxed);
        }
    }
}
