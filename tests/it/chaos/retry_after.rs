//! Every 429 and 503 of the server carries `Retry-After`, for every cause and in both APIs.
//!
//! `faults/endpoints.rs` tests the 503s of all routes of the secrets service over a failing store, `v2/outage.rs` those
//! of the projects API. This module tests one response of each other kind.

use serde_json::json;

use crate::support::{Answer, App, http_client, send};

async fn projects(app: &App) -> Answer {
    let base = app.client.url("").replace("/v1/", "");
    send(http_client().get(format!("{base}/api/v2/organizations")).bearer_auth(&app.client.token)).await
}

fn assert_again(answer: &Answer, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text);
    let seconds = answer.header("retry-after").parse::<u64>();
    assert!(seconds.is_ok_and(|seconds| (1..=60).contains(&seconds)), "{what}: {:?}", answer.headers);
}

#[actix_web::test]
async fn every_429_and_503_has_retry_after() {
    // The smallest rate limit, and no memory for a long body.
    let builder = App::builder().postgres().settings(|settings| {
        settings.projects_rate_limit = 4;
        settings.max_bodies_in_flight = 1;
    });
    let app = builder.start().await;
    let client = &app.client;
    let long = json!({ "policy": " ".repeat(200_000) });
    assert_again(&client.post("sys/policies/acl/long", long).await, 503, "no room for a body");
    for code in [429, 503] {
        assert_again(&client.get(&format!("sys/health?activecode={code}")).await, code, "as it was asked for");
    }
    let quota = json!({ "path": "pki/", "rate": 1, "interval": "60s" });
    assert_eq!(client.post("sys/quotas/rate-limit/pki", quota).await.status, 204);
    assert_eq!(client.get("pki/roles/none").await.status, 404);
    assert_again(&client.get("pki/roles/none").await, 429, "a quota");
    assert_eq!(client.delete("sys/quotas/rate-limit/pki").await.status, 204);
    let mut asked = Vec::new();
    for _ in 0..20 {
        asked.push(projects(&app).await);
    }
    let too_often = asked.iter().find(|answer| answer.status == 429);
    assert_again(too_often.unwrap(), 429, "a rate of the projects API");

    app.database().out_of_reach(true);
    // The health result and a cached token are valid for a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_again(&client.get("auth/token/lookup-self").await, 503, "a store that is away");
    assert_again(&client.get("sys/health").await, 503, "health");
    assert_again(&projects(&app).await, 503, "a store that is away, of the projects API");
    app.database().out_of_reach(false);
    app.stop().await;
}
