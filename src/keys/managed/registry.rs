//! [`ManagedKeys`]: the published view and how it follows what is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::{Mutex, MutexGuard};

use super::backend::{BackendType, Devices};
use super::grants::Grants;
use super::pending::StoredPendingKeys;
use super::record::Record;
use super::turn::Turns;
use super::usage::Usage;
use super::view::{Entry, View};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::keys::actor::SignerActor;
use crate::keys::pkcs11::{Libraries, PIN_IS_KEPT};
use crate::keys::signer::Known;
use crate::keys::store::{KeyStore, MANAGED_KEYS};
use crate::keys::test_sign::TestSign;
use crate::x509::public_key::PublicKey;

/// How long the calls of a key that was deleted may take to end.
const END: Duration = Duration::from_secs(30);

/// The managed keys of one server.
pub struct ManagedKeys {
    pub(super) store: Arc<dyn KeyStore>,
    devices: ArcSwap<Devices>,
    pub(super) turns: Arc<Turns>,
    pub(super) grants: Arc<dyn Grants>,
    view: ArcSwap<View>,
    /// Held while a key changes.
    writing: Mutex<()>,
    /// A write failed, perhaps after it was stored, and what is stored could not be read since. Changes only under
    /// `writing`.
    behind: AtomicBool,
}

impl ManagedKeys {
    /// Loads all keys. Asks no device: one that does not work must not hold up a start.
    ///
    /// # Errors
    /// Those of the store; `Internal` when a record cannot be read.
    pub async fn open(
        store: Arc<dyn KeyStore>,
        devices: Devices,
        grants: Arc<dyn Grants>,
        clock: Clock,
    ) -> Result<Arc<Self>> {
        let pending = StoredPendingKeys::new(Arc::clone(&store), clock.clone());
        let devices = Devices { pending: Some(Arc::new(pending)), ..devices };
        let view = View::load(store.documents(MANAGED_KEYS).await?, &View::default(), &devices)?;
        let (view, writing, behind) = (ArcSwap::from_pointee(view), Mutex::default(), AtomicBool::new(false));
        let (devices, turns) = (ArcSwap::from_pointee(devices), Turns::new(Arc::clone(&store), clock));
        Ok(Arc::new(Self { store, devices, turns, grants, view, writing, behind }))
    }

    /// Takes over libraries that were configured anew. Keys whose library is another one by now are opened again;
    /// the others do not notice.
    pub async fn use_libraries(&self, libraries: Libraries) {
        let _one_writer = self.writer().await;
        let before = self.devices();
        let now = Arc::new(Devices { libraries, ..Devices::clone(&before) });
        self.devices.store(Arc::clone(&now));
        let moved = |record: &Record| record.backend.is_moved(&before, &now);
        self.publish(self.view().opened_again(moved, &now));
    }

    /// Reads all keys again: for the follower of other nodes' changes.
    ///
    /// # Errors
    /// As [`ManagedKeys::open`]; what was published stays.
    pub async fn reload(&self) -> Result<()> {
        let one_writer = self.writer().await;
        self.reload_held(&one_writer).await
    }

    /// Reads all keys again when a write failed and may be stored all the same; whether it did. To be called again
    /// and again.
    ///
    /// # Errors
    /// As [`ManagedKeys::reload`].
    pub async fn catch_up(&self) -> Result<bool> {
        let behind = self.behind.load(Ordering::Relaxed);
        if behind {
            self.reload().await?;
        }
        Ok(behind)
    }

    /// The names of all keys of a type, sorted.
    pub fn names(&self, kind: BackendType) -> Vec<String> {
        let view = self.view.load();
        view.iter().filter(|entry| entry.record.kind() == kind).map(|entry| entry.record.name.clone()).collect()
    }

    /// A key's configuration; `None` where there is no such key of this type.
    pub fn read(&self, kind: BackendType, name: &str) -> Option<Arc<Record>> {
        self.entry(kind, name).map(|entry| Arc::clone(&entry.record))
    }

    /// Makes a test signature of random octets and verifies it; makes the key first where it is missing and that is
    /// allowed, one node at a time. A PIN that was refused is tried once more. The keys `in_use` are what mounts took into
    /// use: those that the configuration does not name any more are tested after the one that it names.
    ///
    /// # Errors
    /// `NotFound` without such a key; `Invalid` when the key is not for signing, and with the class of the cause in
    /// front as [`SignerActor::test_sign`](crate::keys::SignerActor::test_sign) says.
    pub async fn test_sign(&self, kind: BackendType, name: &str, test: TestSign, in_use: &[Known]) -> Result<()> {
        let entry = self.entry(kind, name).ok_or_else(Error::not_found)?;
        entry.record.check_usage(Usage::Sign)?;
        entry.record.check_usage(Usage::Verify)?;
        let actor = entry.used().map_err(|error| Error::invalid(format!("configuration: {}", error.text())))?.clone();
        match entry.record.place() {
            Some(place) if self.may_be_missing(&actor).await? => {
                let actor = actor.clone();
                self.turns.run(Some(place), async move { actor.test_sign(test).await }).await?;
            }
            _ => actor.test_sign(test).await?,
        }
        if in_use.is_empty() {
            return Ok(());
        }
        let named = actor.key(false).await?;
        // What has no locator is the one key that the configuration names.
        let is_other =
            |key: &&Known| !key.locator.is_empty() && (key.public != named.public || key.locator != named.locator);
        for key in in_use.iter().filter(is_other) {
            actor.test_key(key.clone()).await?;
        }
        Ok(())
    }

    /// Keeps public keys of certificates, one of which may belong to a key whose device does not give the public part.
    pub fn offer(&self, kind: BackendType, name: &str, candidates: &[PublicKey]) {
        if let Some(entry) = self.entry(kind, name)
            && let Ok(actor) = entry.actor()
        {
            actor.offer(candidates);
        }
    }

    /// The UUID of a key.
    pub fn uuid(&self, kind: BackendType, name: &str) -> Option<String> {
        self.entry(kind, name).map(|entry| entry.record.uuid.clone())
    }

    /// Whether a test signature may have to make the key: where it was found, nobody's turn is waited for. A PIN that
    /// is refused meanwhile is not tried by the test signature again.
    async fn may_be_missing(&self, actor: &SignerActor) -> Result<bool> {
        match actor.key(false).await {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == Kind::BadGateway && error.text() != PIN_IS_KEPT => {
                Err(Error::invalid(format!("configuration: {}", error.text())))
            }
            Err(_) => Ok(true),
        }
    }

    /// Ends all signers, which answer what they have begun, and then the use of all modules. What takes longer than
    /// `limit` is left as it is.
    pub async fn stop(&self, limit: Duration) {
        let view = self.view.load_full();
        join_all(view.iter().filter_map(|entry| entry.actor().ok()).map(|actor| actor.stop(limit))).await;
        let libraries = self.devices().libraries.clone();
        let closed = tokio::task::spawn_blocking(move || libraries.close());
        if tokio::time::timeout(limit, closed).await.is_err() {
            tracing::warn!("a pkcs11 module hangs: it was not closed");
        }
    }

    /// The place of the one writer.
    pub(super) async fn writer(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// What there is for backends now.
    pub(super) fn devices(&self) -> Arc<Devices> {
        self.devices.load_full()
    }

    /// The keys as they are published.
    pub(super) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    fn entry(&self, kind: BackendType, name: &str) -> Option<Arc<Entry>> {
        self.view.load().by_name(name).filter(|entry| entry.record.kind() == kind).cloned()
    }

    pub(super) async fn reload_held(&self, _one_writer: &MutexGuard<'_, ()>) -> Result<()> {
        let documents = self.store.documents(MANAGED_KEYS).await?;
        self.publish(View::load(documents, &self.view.load(), &self.devices())?);
        self.behind.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Publishes a view; signers of keys that are not in it any more end.
    pub(super) fn publish(&self, next: View) {
        let next = Arc::new(next);
        let before = self.view.swap(Arc::clone(&next));
        for entry in before.iter().filter(|entry| next.by_uuid(&entry.record.uuid).is_none()) {
            if let Ok(actor) = entry.actor() {
                let actor = actor.clone();
                tokio::spawn(async move { actor.stop(END).await });
            }
        }
    }

    /// After a write that failed with `error`: it may be stored all the same, or another node's is. What is stored
    /// decides, now or as soon as it can be read.
    pub(super) async fn recheck(&self, error: &Error, one_writer: &MutexGuard<'_, ()>) {
        // What was not admitted is not stored.
        if error.kind() != Kind::Busy && self.reload_held(one_writer).await.is_err() {
            self.behind.store(true, Ordering::Relaxed);
        }
    }
}
