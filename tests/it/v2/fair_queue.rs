//! Fair use of the store: no caller takes all transactions or all slots of the queue.
//!
//! Runs on PostgreSQL, where a test can block other transactions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use super::fixture::{Api, Store, World, assert_refused};
use crate::cluster::Database;

const PROJECTS: &str = "organizations/acme/projects";
const ACCOUNT: &str = "account/details";

struct Held {
    database: Arc<Database>,
    session: Option<std::thread::JoinHandle<()>>,
}

impl Held {
    async fn begin(world: &World) -> Self {
        let database = Arc::clone(world.app.database());
        let holder = Arc::clone(&database);
        let hold = "BEGIN; LOCK TABLE projects IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)";
        // Fails when its connection is terminated.
        let session = std::thread::spawn(move || drop(std::panic::catch_unwind(|| holder.psql(hold))));
        let held = Self { database, session: Some(session) };
        while held.count("granted AND mode = 'AccessExclusiveLock'") == 0 {
            tokio::task::yield_now().await;
        }
        held
    }

    fn count(&self, which: &str) -> usize {
        let sql = format!("SELECT count(*) FROM pg_locks WHERE relation = 'projects'::regclass AND {which}");
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
             WHERE datname = current_database() AND query LIKE 'BEGIN; LOCK%'",
        );
        let _ = self.session.take().map(std::thread::JoinHandle::join);
    }
}

/// Authenticates once with each client, so that the server has cached its token.
async fn seen(apis: Vec<Api>) -> Vec<Api> {
    for api in &apis {
        assert_eq!(api.get(ACCOUNT).await.status, 200);
    }
    apis
}

#[actix_web::test]
async fn user_with_many_tokens_has_one_session_limit() {
    let world = World::start(Store::Postgres).await;
    let other = seen(vec![world.outsider("xaver").await.api]).await.remove(0);
    let mut many = Vec::new();
    for _ in 0..12 {
        many.push(world.owner.with_token(&world.token_of("olga").await));
    }
    let many = seen(many).await;
    let held = Held::begin(&world).await;
    let lists = many.into_iter().map(|api| tokio::spawn(async move { api.get(PROJECTS).await }));
    let lists: Vec<_> = lists.collect();
    while held.waiting() < 6 {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.get(ACCOUNT).await.status, 200);
    assert!(held.waiting() <= 6, "two of eight are left to others");
    drop(held);
    join_all(lists).await;
    world.app.stop().await;
}

#[actix_web::test]
async fn caller_that_fills_the_queue_is_429_and_others_are_served() {
    let world = World::start(Store::Postgres).await;
    let apis = seen(vec![world.owner.clone(), world.outsider("xaver").await.api]).await;
    let owner = &apis[0];
    let other = &apis[1];
    let held = Held::begin(&world).await;
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
    world.app.stop().await;
}
