//! The embedded store as a test fixture.

use crate::auth::store::AuthWrite;
use crate::clock::Clock;
use crate::documents::MountId;
use crate::storage::seal::SealKey;
use crate::storage::{Database, IfMissing, Storage, StorageOptions, open};

/// A store in a temporary folder.
pub(crate) struct TestStore {
    pub(crate) storage: Storage,
    pub(crate) clock: Clock,
    _folder: tempfile::TempDir,
}

impl TestStore {
    /// Opens a new store that contains one mount.
    pub(crate) async fn with_mount(mount: MountId) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let options = StorageOptions {
            database: Database::Embedded(folder.path().join("data")),
            seal_key: SealKey::random(),
            clock: clock.clone(),
            commit_queue: 10,
            if_missing: IfMissing::Create,
        };
        let storage = open(options).await.unwrap();
        storage.auth().commit(vec![AuthWrite::MountCreate(mount)]).await.unwrap();
        Self { storage, clock, _folder: folder }
    }
}
