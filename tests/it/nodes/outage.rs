//! Nodes that lose contact with the others.

use std::time::Duration;

use serde_json::json;

use super::{Pair, issue, ok, revoke, until};
use crate::support::{App, tests_on};

tests_on!(pair: Pair::start() =>
    node_without_notifications_polls_and_listens_again,
    node_without_change_log_is_unhealthy_but_serves_open_paths,
    nodes_exchange_changes_again_after_a_database_outage,
);

/// Terminates the connections that LISTEN and returns their number.
fn cut_listeners(app: &App) -> usize {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    app.database().psql(sql).lines().count()
}

fn listeners(app: &App) -> String {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    app.database().psql(sql)
}

async fn node_without_notifications_polls_and_listens_again(Pair { a, b }: &Pair) {
    until("both listen", async || listeners(a) == "2").await;
    assert_eq!(cut_listeners(a), 2);
    ok(a.client.post("pki/roles/new", json!({ "key_type": "ec" })).await);
    let followed = async || {
        cut_listeners(a);
        b.client.get("pki/roles/new").await.status == 200
    };
    until("a new role", followed).await;
    until("both listen again", async || listeners(a) == "2").await;
    ok(a.client.delete("pki/roles/new").await);
    until("a deleted role", async || b.client.get("pki/roles/new").await.status == 404).await;
}

async fn node_without_change_log_is_unhealthy_but_serves_open_paths(Pair { a, b }: &Pair) {
    let serial = issue(&a.client).await;
    let health = b.client.with_token("");
    assert_eq!(health.get("sys/health").await.status, 200);
    a.database().psql("ALTER INDEX mount_changed RENAME TO m; ALTER TABLE mount RENAME COLUMN changed_by TO c");
    until("a refusal", async || b.client.get("pki/roles/web").await.status == 503).await;
    let refused = b.client.get("pki/roles/web").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    assert_eq!(health.get("sys/health").await.status, 503, "also while the store answers");
    assert_eq!((health.get("sys/live").await.status, health.get("pki/crl/pem").await.status), (200, 200));
    a.database().psql("ALTER INDEX m RENAME TO mount_changed; ALTER TABLE mount RENAME COLUMN c TO changed_by");
    until("health", async || health.get("sys/health").await.status == 200).await;
    assert_eq!(b.client.get("pki/roles/web").await.status, 200);
    revoke(&b.client, &serial).await;
}

async fn nodes_exchange_changes_again_after_a_database_outage(Pair { a, b }: &Pair) {
    a.database().out_of_reach(true);
    until("an outage", async || b.client.get("pki/roles/web").await.status == 503).await;
    a.database().out_of_reach(false);
    let write = async || a.client.post("pki/roles/new", json!({ "key_type": "ec" })).await.status == 200;
    until("the database", write).await;
    until("the new role", async || b.client.get("pki/roles/new").await.status == 200).await;
}

#[actix_web::test]
async fn clock_skew_fails_start_and_health_check() {
    let now = signet::clock::Clock::system().now();
    let app = App::builder().postgres().manual_clock(now).skew_limit(Duration::from_secs(30)).start().await;
    assert_eq!(app.client.get("sys/health").await.status, 200);
    app.clock.advance(Duration::from_secs(120));
    until("health", async || app.client.get("sys/health").await.status == 503).await;
    let page = app.client.page("/metrics").await.text;
    let gauge = page.lines().find_map(|line| line.strip_prefix("signet_clock_skew_seconds ")).unwrap();
    assert!(gauge.parse::<f64>().is_ok(), "{gauge}");
    let refusal = app.refusal_of_another().await;
    assert!(refusal.contains("ahead of the database server's clock"), "{refusal}");
    app.clock.set(signet::clock::Clock::system().now());
    until("health", async || app.client.get("sys/health").await.status == 200).await;
    app.stop().await;
}
