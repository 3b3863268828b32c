//! The embedded engine as a fixture of the contract tests.

use futures_util::future::BoxFuture;
use rusqlite::Connection;

use crate::clock::Clock;
use crate::error::Result;
use crate::storage::seal::SealKey;
use crate::storage::tests::contract::{Fixture, now};
use crate::storage::{Database, IfMissing, Storage, StorageOptions, open};

/// The embedded engine in a temporary folder.
pub(crate) struct Embedded {
    dir: tempfile::TempDir,
    seal_key: SealKey,
    clock: Clock,
}

impl Embedded {
    fn connect(&self) -> Connection {
        let db = Connection::open(self.dir.path().join("data/signet.db")).unwrap();
        db.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        db
    }
}

/// Returns SQLite's query plan of a statement, for any parameter values.
pub(super) fn query_plan(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let binds = vec![1i64; statement.parameter_count()];
    let steps = statement.query_map(rusqlite::params_from_iter(binds), |row| row.get(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

impl Fixture for Embedded {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), seal_key: SealKey::random(), clock: Clock::manual(now()) }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn seal_key(&self) -> SealKey {
        self.seal_key.clone()
    }

    fn open_with(&self, seal_key: SealKey, queue: usize) -> BoxFuture<'_, Result<Storage>> {
        let database = Database::Embedded(self.dir.path().join("data"));
        Box::pin(open(StorageOptions {
            database,
            seal_key,
            clock: self.clock.clone(),
            commit_queue: queue,
            if_missing: IfMissing::Create,
        }))
    }

    fn query_number(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn query_bytes(&self, sql: &str) -> Vec<u8> {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn execute(&self, sql: &str, bytes: &[&[u8]]) -> usize {
        self.connect().execute(sql, rusqlite::params_from_iter(bytes)).unwrap()
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let files = std::fs::read_dir(self.dir.path().join("data")).unwrap().map(|f| f.unwrap());
        files.map(|f| (f.file_name().into_string().unwrap(), std::fs::read(f.path()).unwrap())).collect()
    }
}
