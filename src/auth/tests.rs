//! The store for tests of this module: the embedded store in a temporary directory. It counts calls, and tests can make
//! it unavailable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use super::store::{
    AliasEntry, AuthOutcome, AuthStore, AuthWrite, CubbyholeRow, EntityBy, EntityEntry, EntityPage, IdentityRows,
    SecretIdKey, SecretIdRow, StoreCondition, TokenHash, TokenRow,
};
use crate::clock::{Clock, Time};
use crate::documents::{Document, MountId};
use crate::error::{Error, Result};
use crate::storage::seal::SealKey;
use crate::storage::{Database, IfMissing, StorageOptions};

/// Id of a mount that has a row in every test store but no document, so it is missing from the in-memory mount table.
pub(super) const TEST_MOUNT: MountId = MountId(1);

pub(super) struct TestStore {
    embedded: Arc<dyn AuthStore>,
    _folder: tempfile::TempDir,
    is_unavailable: AtomicBool,
    calls: Mutex<HashMap<&'static str, usize>>,
}

impl TestStore {
    pub(super) async fn open(clock: &Clock) -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = StorageOptions {
            database: Database::Embedded(folder.path().join("data")),
            seal_key: SealKey::random(),
            clock: clock.clone(),
            commit_queue: 1_000,
            if_missing: IfMissing::Create,
        };
        let embedded = crate::storage::open(options).await.unwrap().auth();
        embedded.commit(vec![AuthWrite::MountCreate(TEST_MOUNT)]).await.unwrap();
        Arc::new(Self { embedded, _folder: folder, is_unavailable: AtomicBool::default(), calls: Mutex::default() })
    }

    /// Makes all reads and commits fail with `Unavailable`, or makes them work again.
    pub(super) fn set_unavailable(&self, is_unavailable: bool) {
        self.is_unavailable.store(is_unavailable, Ordering::Relaxed);
    }

    /// Returns how often a method of the store was called.
    pub(super) fn calls(&self, method: &str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or(0)
    }

    /// Returns all tokens in the store, including expired and used-up ones.
    pub(super) async fn all_tokens(&self) -> Vec<TokenRow> {
        self.embedded.tokens(TokenHash::default(), 10_000).await.unwrap()
    }

    /// `true` if the mount exists in the store.
    pub(super) async fn has_mount(&self, mount: MountId) -> bool {
        self.embedded.secret_id_role_exists(mount, 0).await.unwrap()
    }
}

/// Implements methods of `AuthStore` that pass the call on to the embedded store.
macro_rules! pass_to_embedded {
    ($(fn $method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $method(&self, $($name: $type),*) -> BoxFuture<'static, Result<$result>> {
            if self.is_unavailable.load(Ordering::Relaxed) {
                return ready(Err(Error::unavailable("storage", "switched off"))).boxed();
            }
            *self.calls.lock().unwrap().entry(stringify!($method)).or_default() += 1;
            self.embedded.$method($($name),*)
        }
    )*};
}

impl AuthStore for TestStore {
    pass_to_embedded! {
        fn commit(unit: Vec<AuthWrite>) -> Vec<AuthOutcome>;
        fn try_writing() -> ();
        fn documents_of(mount: MountId, kind: &'static str) -> Vec<Document>;
        fn token(hash: TokenHash) -> Option<TokenRow>;
        fn token_by_accessor(accessor: TokenHash) -> Option<TokenRow>;
        fn cubbyhole(token: TokenHash, path: String) -> Option<CubbyholeRow>;
        fn cubbyhole_paths(token: TokenHash) -> Vec<String>;
        fn tokens(after: TokenHash, limit: u32) -> Vec<TokenRow>;
        fn condition() -> StoreCondition;
        fn unseal(what: &'static str, sealed: Vec<u8>) -> Option<Vec<u8>>;
        fn identity(by: EntityBy) -> Option<IdentityRows>;
        fn entities(page: EntityPage) -> Vec<EntityEntry>;
        fn aliases(after: String, limit: u32) -> Vec<AliasEntry>;
        fn secret_id(mount: MountId, role: i64, key: SecretIdKey) -> Option<SecretIdRow>;
        fn secret_id_accessors(mount: MountId, role: i64, after: String, now: Time, limit: u32) -> Vec<String>;
        fn secret_id_role_exists(mount: MountId, role: i64) -> bool;
    }

    fn writes_fail(&self) -> bool {
        self.embedded.writes_fail()
    }

    fn seal(&self, what: &'static str, plain: Vec<u8>) -> Result<Vec<u8>> {
        self.embedded.seal(what, plain)
    }
}
