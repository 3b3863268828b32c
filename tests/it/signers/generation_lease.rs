//! The registry in front of a token: the lease for generating a key is needed only if the key is missing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use signet::clock::Clock;
use signet::documents::{Document, DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT};
use signet::error::Result;
use signet::keys::managed::{BackendConfig, BackendType, KeyPermissions, ListingMounts, ManagedKeyGrants};
use signet::keys::pkcs11::Pkcs11Settings;
use signet::keys::store::KeyStore;
use signet::keys::{CloudServices, CloudSettings, Devices, ManagedKeyRef, ManagedKeys, Signers as _, TestSign};
use signet::secret::Secret;
use tokio::time::timeout;

use super::hsm::{ECDSA, Hsm, PIN, tests_alone};

tests_alone!(
    ["one"] =>
    existing_key_needs_no_generation_lease,
    wrong_pin_is_tried_once_per_test_signature,
);

#[derive(Default)]
struct Store(Mutex<Vec<Document>>);

impl KeyStore for Store {
    fn commit(&self, unit: Vec<DocumentWrite>) -> BoxFuture<'static, Result<()>> {
        let mut stored = self.0.lock().unwrap();
        for DocumentWrite { key, expected, body } in unit {
            stored.retain(|document| document.key != key);
            stored.extend(body.map(|body| Document { key, version: expected + 1, body }));
        }
        ready(Ok(())).boxed()
    }

    fn documents(&self, kind: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
        let stored = self.0.lock().unwrap();
        let found = stored.iter().filter(|document| document.key.kind == kind).cloned().collect();
        ready(Ok(found)).boxed()
    }
}

impl Store {
    /// Assigns every lease to another node, without an expiry that the test could reach.
    fn take_all_turns(&self) {
        let turns = (0..=u8::MAX).map(|number| DocumentKey {
            mount: SYSTEM_MOUNT,
            kind: "managed-key-turn",
            name: format!("{number:02x}"),
        });
        let taken = |key| Document { key, version: 1_000, body: format!("{{\"ends\":{}}}", i64::MAX).into_bytes() };
        let mut stored = self.0.lock().unwrap();
        stored.retain(|document| document.key.kind != "managed-key-turn");
        stored.extend(turns.map(taken));
    }
}

/// Grants that list no key for any mount.
struct Nobody;

impl ManagedKeyGrants for Nobody {
    fn lists_key(&self, _: MountId, _: &str) -> bool {
        false
    }

    fn mount_path(&self, _: MountId) -> String {
        String::new()
    }

    fn listing_mounts(&self, _: String) -> BoxFuture<'static, Result<ListingMounts>> {
        unreachable!("nothing is deleted")
    }
}

async fn registry(hsm: &Hsm, store: &Arc<Store>) -> Arc<ManagedKeys> {
    let cloud = CloudServices::new(CloudSettings::default(), Clock::system()).unwrap();
    let devices = Devices::new(hsm.shim(), cloud);
    ManagedKeys::open(store.clone(), devices, Arc::new(Nobody), Clock::system()).await.unwrap()
}

/// Configures a key that may be generated.
async fn write(keys: &ManagedKeys, name: &str, pin: &str) {
    let change = |_: Option<&_>| {
        let terms = KeyPermissions { allow_generate_key: true, any_mount: true, ..KeyPermissions::default() };
        let settings = Pkcs11Settings {
            library: "hsm".to_owned(),
            token_label: "one".to_owned(),
            key_label: name.to_owned(),
            mechanism: Some(ECDSA),
            pin: Secret::new(pin),
            curve: "P256".to_owned(),
            ..Pkcs11Settings::default()
        };
        Ok((terms, BackendConfig::Pkcs11(settings)))
    };
    keys.write(BackendType::Pkcs11, name, change).await.unwrap();
}

async fn test(keys: &ManagedKeys, name: &str) -> Result<()> {
    keys.test_sign(BackendType::Pkcs11, name, TestSign::default(), &[]).await
}

async fn existing_key_needs_no_generation_lease(hsm: &Hsm) {
    let store = Arc::new(Store::default());
    let keys = registry(hsm, &store).await;
    write(&keys, "web", PIN).await;
    test(&keys, "web").await.unwrap();
    store.take_all_turns();
    let soon = Duration::from_secs(5);
    timeout(soon, test(&keys, "web")).await.unwrap().unwrap();
    let taking = keys.start_use(MountId(1), ManagedKeyRef::Name("web".to_owned())).unwrap();
    timeout(soon, taking).await.unwrap().unwrap();
    write(&keys, "mail", PIN).await;
    let waits = timeout(Duration::from_millis(500), test(&keys, "mail")).await;
    assert!(waits.is_err(), "it would be made: {waits:?}");
    keys.stop(soon).await;
}

async fn wrong_pin_is_tried_once_per_test_signature(hsm: &Hsm) {
    let keys = registry(hsm, &Arc::new(Store::default())).await;
    write(&keys, "web", "wrong-pin").await;
    hsm.calls("C_Login");
    for _ in 0..2 {
        let error = test(&keys, "web").await.unwrap_err();
        assert_eq!(error.text(), "configuration: pkcs11 module: C_Login: CKR_PIN_INCORRECT");
        assert_eq!(hsm.calls("C_Login"), 1);
    }
    keys.stop(Duration::from_secs(5)).await;
}
