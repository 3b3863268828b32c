//! Fair use of the store: no caller takes all transactions or all slots of the queue.
//!
//! Runs on PostgreSQL, where a test can block other transactions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use super::fixture::{Api, PROJECTS, Store, World, assert_refused};
use crate::cluster::Database;
use crate::support::tests_on;

tests_on!(postgres_only: World::start(Store::Postgres) =>
    user_with_many_tokens_has_one_session_limit,
    caller_that_fills_the_queue_is_429_and_others_are_served,
);

const ACCOUNT: &str = "account/details";

/// A lock on a table that another session holds until this value is dropped.
pub struct Held {
    database: Arc<Database>,
    table: &'static str,
    session: Option<std::thread::JoinHandle<String>>,
}

impl Held {
    /// Blocks all other transactions that use the projects.
    pub async fn projects(world: &World) -> Self {
        let lock = "LOCK TABLE projects IN ACCESS EXCLUSIVE MODE";
        Self::begin(world, "projects", lock, "granted AND mode = 'AccessExclusiveLock'").await
    }

    /// Runs a statement in a transaction that stays open, and waits until there is such a lock on the table.
    pub async fn begin(world: &World, table: &'static str, statement: &str, lock: &str) -> Self {
        let database = Arc::clone(world.app.database());
        let holder = Arc::clone(&database);
        let hold = format!("BEGIN; {statement}; SELECT pg_sleep(60)");
        let session = std::thread::spawn(move || holder.psql(&hold));
        let held = Self { database, table, session: Some(session) };
        while held.count(lock) == 0 {
            tokio::task::yield_now().await;
        }
        held
    }

    fn count(&self, which: &str) -> usize {
        let sql = format!("SELECT count(*) FROM pg_locks WHERE relation = '{}'::regclass AND {which}", self.table);
        self.database.psql(&sql).trim().parse().unwrap()
    }

    fn waiting(&self) -> usize {
        self.count("NOT granted")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.database.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND query LIKE 'BEGIN; %'",
        );
        let ended = self.session.take().unwrap().join().is_err();
        assert!(ended || std::thread::panicking(), "its connection was not ended");
    }
}

/// Authenticates once with each client, so that the server has cached its token.
async fn with_known_senders(apis: Vec<Api>) -> Vec<Api> {
    for api in &apis {
        assert_eq!(api.get(ACCOUNT).await.status, 200);
    }
    apis
}

async fn user_with_many_tokens_has_one_session_limit(world: &World) {
    let other = with_known_senders(vec![world.outsider("xaver").await.api]).await.remove(0);
    let mut many = Vec::new();
    for _ in 0..12 {
        many.push(world.owner.with_token(&world.token_of("olga").await));
    }
    let many = with_known_senders(many).await;
    let held = Held::projects(world).await;
    let lists = many.into_iter().map(|api| tokio::spawn(async move { api.get(PROJECTS).await }));
    let lists: Vec<_> = lists.collect();
    while held.waiting() < 6 {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.get(ACCOUNT).await.status, 200);
    assert!(held.waiting() <= 6, "two of eight are left to others");
    drop(held);
    join_all(lists).await;
}

async fn caller_that_fills_the_queue_is_429_and_others_are_served(world: &World) {
    let apis = with_known_senders(vec![world.owner.clone(), world.outsider("xaver").await.api]).await;
    let owner = &apis[0];
    let other = &apis[1];
    let held = Held::projects(world).await;
    let mut lists: FuturesUnordered<_> = (0..120).map(|_| owner.get(PROJECTS)).collect();
    for _ in 0..18 {
        let refused = tokio::time::timeout(Duration::from_secs(10), lists.next()).await.unwrap().unwrap();
        assert_refused(&refused, 429, &[("", "too many requests of one caller at the project store, try again")]);
        assert_eq!(refused.header("retry-after"), "1");
    }
    for _ in 0..5 {
        assert_eq!(other.get(ACCOUNT).await.status, 200);
    }
    drop(held);
    while let Some(answer) = lists.next().await {
        assert_ne!(answer.status, 429, "{}", answer.text);
    }
}
