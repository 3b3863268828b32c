//! The PostgreSQL engine as a fixture of the contract tests.

use std::sync::Mutex;

use futures_util::future::BoxFuture;
use tokio_postgres::types::ToSql;

use super::connect;
use super::url::PostgresUrl;
use crate::clock::Clock;
use crate::error::Result;
use crate::storage::seal::SealKey;
use crate::storage::tests::contract::{Fixture, now};
use crate::storage::{Database, IfMissing, Storage, StorageOptions, open};

#[path = "../../../tests/it/cluster.rs"]
pub(super) mod cluster;

/// A database of one test in the database cluster of the test run.
pub(crate) struct Postgres {
    pub(super) database: cluster::Database,
    connection: TestConnection,
    seal_key: SealKey,
    clock: Clock,
}

impl Postgres {
    pub(super) fn url(&self) -> PostgresUrl {
        PostgresUrl::parse(&self.database.url()).unwrap()
    }
}

/// A connection of the test itself. It has its own runtime and thread, because tests use it inside another runtime.
struct TestConnection(Mutex<Option<(tokio::runtime::Runtime, tokio_postgres::Client)>>);

impl TestConnection {
    fn run<T: Send>(&self, url: PostgresUrl, query: impl AsyncFnOnce(&tokio_postgres::Client) -> T + Send) -> T {
        let work = || {
            let mut slot = self.0.lock().unwrap();
            let (runtime, client) = slot.get_or_insert_with(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let (client, _driver) = runtime.block_on(connect::open_client(&url)).unwrap();
                (runtime, client)
            });
            runtime.block_on(query(client))
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }
}

impl Drop for TestConnection {
    fn drop(&mut self) {
        if let Some((runtime, _)) = self.0.get_mut().unwrap().take() {
            runtime.shutdown_background();
        }
    }
}

impl Fixture for Postgres {
    fn new() -> Self {
        let database = cluster::shared().database();
        let seal_key = SealKey::random();
        let clock = Clock::manual(now());
        Self { database, connection: TestConnection(Mutex::new(None)), seal_key, clock }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn seal_key(&self) -> SealKey {
        self.seal_key.clone()
    }

    fn open_with(&self, seal_key: SealKey, queue: usize) -> BoxFuture<'_, Result<Storage>> {
        let database = Database::Postgres(self.url());
        Box::pin(open(StorageOptions {
            database,
            seal_key,
            clock: self.clock.clone(),
            commit_queue: queue,
            if_missing: IfMissing::Create,
        }))
    }

    fn query_number(&self, sql: &str) -> i64 {
        self.connection.run(self.url(), async |client| client.query_one(sql, &[]).await.unwrap().get(0))
    }

    fn query_bytes(&self, sql: &str) -> Vec<u8> {
        self.connection.run(self.url(), async |client| client.query_one(sql, &[]).await.unwrap().get(0))
    }

    fn execute(&self, sql: &str, bytes: &[&[u8]]) -> usize {
        let values: Vec<&(dyn ToSql + Sync)> = bytes.iter().map(|value| value as _).collect();
        self.connection.run(self.url(), async |client| client.execute(sql, &values).await.unwrap()) as usize
    }

    /// Returns the files of this database, and the write-ahead log of the whole cluster.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let oid = self.query_number("SELECT oid::BIGINT FROM pg_database WHERE datname = current_database()");
        self.database.psql("CHECKPOINT");
        let data = cluster::shared().folder().join("data");
        let folders = [data.join(format!("base/{oid}")), data.join("pg_wal")];
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|file| file.unwrap());
        // Errors are ignored, because the server may remove a log segment concurrently and one entry is a folder.
        files.filter_map(|f| Some((f.file_name().into_string().unwrap(), std::fs::read(f.path()).ok()?))).collect()
    }
}
