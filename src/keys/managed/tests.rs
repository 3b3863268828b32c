//! Tests of the registry with an in-memory store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use super::memory::MemoryKeyStore;
use super::*;
use crate::clock::Clock;
use crate::documents::{DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT};
use crate::error::{Kind, Result};
use crate::keys::cloud::{CloudServices, CloudSettings};
use crate::keys::pkcs11::{Libraries, Pkcs11Settings};
use crate::keys::signing::{ManagedKeyRef, Signers as _};
use crate::keys::test_sign::TestSign;
use crate::secret::Secret;
use crate::telemetry;

/// The key names that mounts 1 and 2 list. Every change of a list also rewrites the document `order` in the store.
struct TestGrants {
    store: Arc<MemoryKeyStore>,
    lists: Mutex<BTreeMap<i64, Vec<String>>>,
    /// A name that mount 2 starts to list during the next call of `listing_mounts`.
    meanwhile: Mutex<Option<String>>,
}

impl TestGrants {
    fn set(&self, mount: i64, names: &[&str]) {
        self.lists.lock().unwrap().insert(mount, names.iter().map(|name| (*name).to_owned()).collect());
        self.store.write(vec![self.order_write()]).unwrap();
    }

    fn order_write(&self) -> DocumentWrite {
        let key = DocumentKey { mount: SYSTEM_MOUNT, kind: "config", name: "order".to_owned() };
        let documents = self.store.documents.lock().unwrap();
        let expected = documents.get(&(key.kind, key.name.clone())).map_or(0, |document| document.version);
        DocumentWrite { key, expected, body: Some(Vec::new()) }
    }
}

impl ManagedKeyGrants for TestGrants {
    fn lists_key(&self, mount: MountId, name: &str) -> bool {
        self.lists.lock().unwrap().get(&mount.0).is_some_and(|names| names.iter().any(|listed| listed == name))
    }

    fn mount_path(&self, mount: MountId) -> String {
        format!("mount-{}/", mount.0)
    }

    fn listing_mounts(&self, name: String) -> BoxFuture<'static, Result<ListingMounts>> {
        let unchanged = self.order_write();
        let lists = self.lists.lock().unwrap().clone();
        let paths = lists.iter().filter(|(_, names)| names.contains(&name));
        let paths = paths.map(|(mount, _)| self.mount_path(MountId(*mount))).collect();
        if let Some(listed) = self.meanwhile.lock().unwrap().take() {
            self.set(2, &[&listed]);
        }
        ready(Ok(ListingMounts { paths, unchanged })).boxed()
    }
}

struct RegistryFixture {
    store: Arc<MemoryKeyStore>,
    lists: Arc<TestGrants>,
    keys: Arc<ManagedKeys>,
}

/// Returns devices with a library whose file is no PKCS #11 module, and with cloud services that no test calls.
fn devices() -> Devices {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let libraries = Libraries::new([("hsm".to_owned(), file)]).unwrap();
    Devices::new(libraries, CloudServices::new(CloudSettings::default(), Clock::system()).unwrap())
}

async fn registry_fixture() -> RegistryFixture {
    let store = Arc::new(MemoryKeyStore::default());
    let lists = Arc::new(TestGrants { store: store.clone(), lists: Mutex::default(), meanwhile: Mutex::default() });
    let keys = ManagedKeys::open(store.clone(), devices(), lists.clone(), Clock::system()).await.unwrap();
    RegistryFixture { store, lists, keys }
}

fn settings() -> Pkcs11Settings {
    Pkcs11Settings {
        library: "hsm".to_owned(),
        token_label: "one".to_owned(),
        key_label: "web".to_owned(),
        mechanism: Some(0x1041),
        pin: Secret::new("4711"),
        ..Pkcs11Settings::default()
    }
}

fn with_max_parallel(count: u32) -> impl Fn(Option<&ManagedKeyRecord>) -> Result<(KeyPermissions, BackendConfig)> {
    move |_| {
        Ok((KeyPermissions::default(), BackendConfig::Pkcs11(Pkcs11Settings { max_parallel: count, ..settings() })))
    }
}

impl RegistryFixture {
    async fn write(&self, name: &str, count: u32) -> Arc<ManagedKeyRecord> {
        self.keys.write(BackendType::Pkcs11, name, with_max_parallel(count)).await.unwrap()
    }

    fn max_parallel(&self, name: &str) -> Option<u32> {
        self.keys.read(BackendType::Pkcs11, name).map(|record| match &record.backend {
            BackendConfig::Pkcs11(settings) => settings.max_parallel,
            _ => panic!("a key of another type"),
        })
    }

    async fn open_on_another_node(&self) -> Arc<ManagedKeys> {
        ManagedKeys::open(self.store.clone(), devices(), self.lists.clone(), Clock::system()).await.unwrap()
    }
}

#[tokio::test]
async fn rewritten_key_retains_its_uuid_and_actor() {
    let w = registry_fixture().await;
    let first = w.write("web", 1).await;
    let entry = w.keys.view().by_name("web").unwrap().clone();
    let second = w.write("web", 2).await;
    assert_eq!((&first.uuid, w.max_parallel("web")), (&second.uuid, Some(2)));
    // The actor is reused, so dropping the previous entry does not stop it.
    let before = entry.actor().unwrap().clone();
    drop(entry);
    let kind = before.find_key(false).await.unwrap_err();
    assert!(kind.text().contains("cannot be loaded"), "{kind}");
    let reopened = w.open_on_another_node().await;
    assert_eq!(reopened.read(BackendType::Pkcs11, "web").unwrap().uuid, first.uuid);
    assert!(reopened.read(BackendType::CloudAkms, "web").is_none());
    w.keys.delete(BackendType::CloudAkms, "web").await.unwrap();
    assert_eq!(w.keys.names(BackendType::Pkcs11), ["web"]);
    w.keys.delete(BackendType::Pkcs11, "web").await.unwrap();
    w.keys.delete(BackendType::Pkcs11, "web").await.unwrap();
    assert_eq!((w.keys.names(BackendType::Pkcs11).len(), w.max_parallel("web")), (0, None));
    let since = std::time::Instant::now();
    while !before.find_key(false).await.unwrap_err().text().contains("is stopping") {
        assert!(since.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(w.write("web", 1).await.uuid, first.uuid);
}

#[tokio::test]
async fn concurrent_write_of_another_node_is_not_overwritten() {
    let w = registry_fixture().await;
    let other = w.open_on_another_node().await;
    let uuid = w.write("web", 1).await.uuid.clone();
    // This node has not loaded the key that the first node wrote, so it reloads before it writes.
    let merged = other
        .write(BackendType::Pkcs11, "web", |stored| {
            let stored = stored.unwrap();
            let BackendConfig::Pkcs11(settings) = &stored.backend else { panic!("a key of another type") };
            let settings = Pkcs11Settings { max_parallel: settings.max_parallel + 7, ..settings.clone() };
            Ok((stored.terms.clone(), BackendConfig::Pkcs11(settings)))
        })
        .await
        .unwrap();
    assert_eq!(merged.uuid, uuid);
    assert_eq!(w.max_parallel("web"), Some(1));
    w.keys.reload().await.unwrap();
    assert_eq!(w.max_parallel("web"), Some(8));
    // A reload reuses the entries that have not changed.
    let entry = w.keys.view().by_name("web").unwrap().clone();
    w.keys.reload().await.unwrap();
    assert!(Arc::ptr_eq(&entry, w.keys.view().by_name("web").unwrap()));
    other.delete(BackendType::Pkcs11, "web").await.unwrap();
    w.keys.reload().await.unwrap();
    assert_eq!(w.max_parallel("web"), None);
}

#[tokio::test]
async fn key_listed_by_a_mount_during_deletion_is_not_deleted() {
    let w = registry_fixture().await;
    w.write("web", 1).await;
    *w.lists.meanwhile.lock().unwrap() = Some("web".to_owned());
    let error = w.keys.delete(BackendType::Pkcs11, "web").await.unwrap_err();
    assert_eq!((error.kind(), error.text()), (Kind::Invalid, "managed key \"web\" is in use by mount \"mount-2/\""));
    w.lists.set(1, &["web"]);
    let error = w.keys.delete(BackendType::Pkcs11, "web").await.unwrap_err();
    assert!(error.text().ends_with("mount \"mount-1/\", \"mount-2/\""), "{error}");
    w.lists.set(1, &[]);
    w.lists.set(2, &["other"]);
    // A mount lists another name during the deletion, which then runs again and succeeds.
    *w.lists.meanwhile.lock().unwrap() = Some("third".to_owned());
    w.keys.delete(BackendType::Pkcs11, "web").await.unwrap();
}

#[tokio::test]
async fn write_with_an_unknown_outcome_is_read_again() {
    let w = registry_fixture().await;
    w.write("web", 1).await;
    for (stored, count) in [(false, 1), (true, 2)] {
        *w.store.commit_failure.lock().unwrap() = Some(stored);
        let error = w.keys.write(BackendType::Pkcs11, "web", with_max_parallel(2)).await.err().unwrap();
        assert_eq!((error.kind(), w.max_parallel("web")), (Kind::Unavailable, Some(count)));
        *w.store.commit_failure.lock().unwrap() = None;
        assert!(!w.keys.catch_up().await.unwrap());
    }
    // The commit is stored but fails, and the store cannot be read afterwards.
    let change = |_: Option<&ManagedKeyRecord>| {
        (*w.store.commit_failure.lock().unwrap(), *w.store.fail_reads.lock().unwrap()) = (Some(true), true);
        with_max_parallel(3)(None)
    };
    assert!(w.keys.write(BackendType::Pkcs11, "web", change).await.is_err());
    assert_eq!(w.max_parallel("web"), Some(2));
    assert!(w.keys.catch_up().await.is_err());
    (*w.store.commit_failure.lock().unwrap(), *w.store.fail_reads.lock().unwrap()) = (None, false);
    assert!(w.keys.catch_up().await.unwrap() && !w.keys.catch_up().await.unwrap());
    assert_eq!(w.max_parallel("web"), Some(3));
}

#[tokio::test]
async fn invalid_writes_are_refused_and_nothing_is_stored() {
    let w = registry_fixture().await;
    w.write("web", 1).await;
    let error = w.keys.write(BackendType::CloudAkms, "web", with_max_parallel(2)).await.err().unwrap();
    assert_eq!(error.text(), "a managed key named \"web\" of type \"pkcs11\" already exists");
    let nothing = |_: Option<&ManagedKeyRecord>| {
        Ok((KeyPermissions::default(), BackendConfig::Pkcs11(Pkcs11Settings { pin: Secret::default(), ..settings() })))
    };
    let error = w.keys.write(BackendType::Pkcs11, "new", nothing).await.err().unwrap();
    assert_eq!(error.text(), "pin is required");
    let other = |_: Option<&ManagedKeyRecord>| {
        let settings = Pkcs11Settings { library: "other".to_owned(), ..settings() };
        Ok((KeyPermissions::default(), BackendConfig::Pkcs11(settings)))
    };
    let error = w.keys.write(BackendType::Pkcs11, "new", other).await.err().unwrap();
    assert_eq!(error.text(), "no kms_library configured with name \"other\"");
    assert_eq!(w.open_on_another_node().await.names(BackendType::Pkcs11), ["web"]);
}

#[tokio::test]
async fn signer_is_returned_only_for_permitted_mounts_and_keys() {
    let w = registry_fixture().await;
    let uuid = w.write("web", 1).await.uuid.clone();
    let public = crate::keys::PrivateKey::generate(crate::keys::KeySpec::new("ec", 256).unwrap()).unwrap();
    let public = public.public().clone();
    let ask = |mount: i64, uuid: &str| {
        let uuid = uuid.to_owned();
        let name = "web".to_owned();
        let key = crate::keys::ManagedKey {
            mount: MountId(mount),
            uuid,
            name,
            public: public.clone(),
            locator: String::new(),
        };
        w.keys.signer(&key).map(|signer| signer.public().clone()).map_err(|error| error.text().to_owned())
    };
    let refusal = |mount| Err(format!("managed key \"web\" is not allowed for mount \"mount-{mount}/\""));
    assert_eq!(ask(1, &uuid), refusal(1));
    assert_eq!(ask(1, "another"), refusal(1));
    w.lists.set(1, &["web"]);
    // The signer has the public key that the mount stored.
    assert_eq!((ask(1, &uuid), ask(2, &uuid), ask(2, "another")), (Ok(public.clone()), refusal(2), refusal(2)));
    let text = "was deleted, and its name now refers to another key; add that key (keys/generate/kms)";
    assert_eq!(ask(1, "another"), Err(format!("managed key \"web\" {text}")));
    w.lists.set(1, &[]);
    assert_eq!(ask(1, &uuid), refusal(1));
    let terms = |usages: &str, any_mount| KeyPermissions {
        any_mount,
        usages: ManagedKeyUsages::parse([usages]).unwrap(),
        ..KeyPermissions::default()
    };
    let backend = || BackendConfig::Pkcs11(settings());
    w.keys.write(BackendType::Pkcs11, "web", |_| Ok((terms("sign", true), backend()))).await.unwrap();
    assert_eq!((ask(1, &uuid), ask(2, &uuid)), (Ok(public.clone()), Ok(public.clone())));
    w.keys.write(BackendType::Pkcs11, "web", |_| Ok((terms("mac", true), backend()))).await.unwrap();
    assert_eq!(ask(1, &uuid), Err("managed key \"web\" does not allow usage sign".to_owned()));
    let taken = w.keys.start_use(MountId(1), ManagedKeyRef::Name("x".repeat(10_000))).err().unwrap();
    assert!(taken.text().len() < 300, "{taken}");
    w.keys.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn key_without_a_library_counts_an_error_when_refused() {
    telemetry::install_metrics().unwrap();
    let w = registry_fixture().await;
    w.write("lacking", 1).await;
    w.lists.set(1, &["lacking"]);
    w.keys.replace_libraries(Libraries::default()).await;
    let counted = |count: u32| {
        let line = format!("{}{{key=\"lacking\",kind=\"unavailable\"}} {count}", telemetry::SIGNER_ERRORS);
        let page = telemetry::render_metrics(telemetry::Exposition::Text, &[]);
        assert!(page.lines().any(|shown| shown == line), "{line}:\n{page}");
    };
    counted(0);
    let taken = w.keys.start_use(MountId(1), ManagedKeyRef::Name("lacking".to_owned())).err().unwrap();
    assert_eq!(taken.kind(), Kind::Unavailable);
    counted(1);
    let tested = w.keys.test_sign(BackendType::Pkcs11, "lacking", TestSign::default(), &[]).await.unwrap_err();
    assert!(tested.text().contains("no kms_library configured"), "{tested}");
    counted(2);
}

#[tokio::test]
async fn malformed_stored_record_is_an_error_without_quotation() {
    let w = registry_fixture().await;
    let key = DocumentKey { mount: SYSTEM_MOUNT, kind: "managed-key", name: "web".to_owned() };
    let body = Some(br#"{"uuid":"u","pin":"canary"}"#.to_vec());
    w.store.write(vec![DocumentWrite { key, expected: 0, body }]).unwrap();
    let error = w.keys.reload().await.unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(error.kind() == Kind::Internal && !format!("{error:?}{cause}").contains("canary"), "{error:?}");
}
