//! Request bodies of the projects API and their memory budget.

use reqwest::Method;
use serde_json::json;

use super::fixture::{NONE, PROJECTS, World, assert_refused, resource};
use crate::support::App;
use crate::v1::bodies::{Pending, taken};

#[actix_web::test]
async fn bytes_in_flight_have_one_budget_with_the_secrets_service() {
    let builder = App::builder().settings(|s| (s.max_body, s.max_bodies_in_flight) = (1 << 20, 300_000));
    let world = World::of(builder).await;
    let other = world.member("other", NONE).await;
    let path = PROJECTS;
    let sized = |name: &str, length: usize| {
        let body = resource("projects", json!({ "name": name })).to_string();
        format!("{body}{}", " ".repeat(length - body.len()))
    };
    let post = |name: &str, length| world.owner.send_text(Method::POST, path, sized(name, length));
    let line = format!("POST /api/v2/{path}");
    let media = "Content-Type: application/vnd.api+json\r\n";
    let headers = format!("Authorization: Bearer {}\r\n{media}", world.owner.token);
    let held = Pending::begin(&world.app, &line, &headers, sized("held", 250_000).into_bytes()).await;
    taken(&world.app, 249_000).await;
    for length in [100_000, 40_000] {
        let refused = post("refused", length).await;
        assert_refused(&refused, 429, &[("", "request body: too many large concurrent bodies of this caller; retry")]);
        assert_eq!(refused.header("retry-after"), "1");
    }
    let refused = other.api.send_text(Method::POST, path, sized("refused", 100_000)).await;
    assert_refused(&refused, 503, &[("", "request body: the memory for bodies is used up; retry")]);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(post("small", 200).await.status, 201);
    let secrets = world.app.client.request("POST", "sys/capabilities-self").body(" ".repeat(100_000));
    assert_eq!(crate::support::send(secrets).await.status, 503);
    assert!(held.end().await.starts_with("HTTP/1.1 201 "));
    for n in 0..4 {
        assert_eq!(post(&format!("again-{n}"), 250_000).await.status, 201);
    }
    // The body of an unauthenticated request is not read.
    let stranger = Pending::begin(&world.app, &line, media, sized("x", 250_000).into_bytes()).await;
    assert!(stranger.answer().await.starts_with("HTTP/1.1 401 "));
    world.app.stop().await;
}
