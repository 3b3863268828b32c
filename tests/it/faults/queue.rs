//! A full commit queue: new writes get a 503 soon, and every slot becomes free again.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::endpoints::assert_unavailable;
use super::stuck::Served;
use crate::support::until;

const QUEUE: usize = 4;
/// Minimum delay of such a rejection, so that clients do not retry thousands of times a second.
const PAUSE: Duration = Duration::from_millis(10);

#[actix_web::test]
async fn writes_beyond_the_queue_are_503_and_slots_are_freed() {
    let served = Served::start(QUEUE).await;
    for round in 1..=3 {
        // These get no response while the store hangs.
        let hold = served.hold();
        let client = served.client.clone();
        let admitted = actix_web::rt::spawn(async move {
            join_all((0..QUEUE).map(|_| client.post("pki/issue/web", json!({ "common_name": "a.test" })))).await
        });
        served.wait_for_queue(QUEUE).await;
        let requests = [
            ("pki/issue/web", json!({ "common_name": "a.test" })),
            ("pki/roles/other", json!({ "key_type": "ec" })),
            ("auth/token/create", json!({ "policies": ["default"] })),
            ("sys/policies/acl/other", json!({ "policy": "path \"x\" { capabilities = [\"read\"] }" })),
        ];
        let asked = Instant::now();
        let beyond = join_all(requests.iter().map(|(path, body)| served.client.post(path, body.clone()))).await;
        for (answer, (path, _)) in beyond.iter().zip(&requests) {
            assert_unavailable(answer, path);
        }
        assert!(asked.elapsed() >= PAUSE);
        // The rejections came before any admitted write could finish.
        assert!(!admitted.is_finished());
        let busy = served.metric("signet_commit_failures_total", "reason=\"busy\"").await;
        assert!(busy >= (round * requests.len()) as f64, "{busy}");
        drop(hold);
        for answer in admitted.await.unwrap() {
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
        served.wait_for_queue(0).await;
    }
    assert_eq!(served.client.get("pki/roles/other").await.status, 404, "what was refused is not stored");
    served.stop();
}

#[actix_web::test]
async fn health_is_503_while_the_store_hangs_and_200_afterwards() {
    let served = Served::start(QUEUE).await;
    let health = async || served.client.with_token("").get("sys/health").await;
    assert_eq!(health().await.status, 200);
    let hold = served.hold();
    until("a health check that fails", async || health().await.status != 200).await;
    // All concurrent health requests share one slot of the queue, and each gets a response while the store hangs.
    for answer in join_all((0..50).map(|_| health())).await {
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
        assert_eq!((&answer.body["initialized"], &answer.body["sealed"]), (&json!(true), &json!(false)));
    }
    assert_eq!(served.queued().await, 1);
    assert_eq!(served.client.get("sys/health?activecode=299").await.status, 503);
    drop(hold);
    until("a successful health check", async || health().await.status == 200).await;
    // A successful probe is cached for a second, so hundreds of health requests cause few commits.
    let commits = async || served.metric("signet_commit_seconds_count", "").await;
    let before = commits().await;
    for _ in 0..10 {
        assert!(join_all((0..50).map(|_| health())).await.iter().all(|answer| answer.status == 200));
    }
    let probes = commits().await - before;
    assert!(probes <= 30.0, "{probes} commits");
    served.wait_for_queue(0).await;
    served.stop();
}
