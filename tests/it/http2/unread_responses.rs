//! Responses that their clients do not read.

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http_types::Response;
use serde_json::{Value, json};

use super::client::{Client, agree};
use super::{HEALTH, Http2Stage};
use crate::support::until;

/// Opens a connection whose window admits no byte of a response body.
async fn closed_window(stage: &Http2Stage) -> SendRequest<Bytes> {
    let stream = agree(&stage.site, &stage.served, &["h2"]).await.unwrap();
    let (requests, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    actix_web::rt::spawn(connection);
    requests
}

async fn begun(
    requests: &SendRequest<Bytes>,
    client: &Client,
    method: &str,
    path: &str,
    body: &str,
) -> Response<RecvStream> {
    let request = client.request(method, path).body(()).unwrap();
    let (answer, mut sending) = requests.clone().ready().await.unwrap().send_request(request, false).unwrap();
    sending.send_data(body.to_owned().into(), true).unwrap();
    answer.await.unwrap()
}

#[actix_web::test]
async fn unread_responses_are_limited_per_caller() {
    const KEPT: &str = "v1/cubbyhole/kept";
    const ASK: &str = "v1/sys/capabilities-self";
    let stage = Http2Stage::with("max_request_size = 1048576\nmax_bodies_in_flight = 1048576\n").await;
    let client = stage.client().await;
    let kept = json!({ "value": "x".repeat(60_000) }).to_string();
    assert_eq!(client.post(KEPT, &kept).await.status, 204);
    let made = client.post("v1/auth/token/create", "{\"policies\":[\"default\"]}").await;
    let other: Value = serde_json::from_str(&made.text).unwrap();
    let greedy = closed_window(&stage).await;
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(begun(&greedy, &client, "GET", KEPT, "").await);
    }
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status().as_u16()).collect();
    assert_eq!((&statuses[..3], &statuses[3..]), (&[200; 3][..], &[429; 17][..]));
    assert_eq!(answers[3].headers()["retry-after"], "1");
    // Small responses are still served, and so are writes, up to a second limit.
    assert_eq!(client.get("v1/auth/token/lookup-self").await.status, 200);
    let asked = json!({ "path": "x".repeat(100_000) }).to_string();
    for status in [200, 429] {
        answers.push(begun(&greedy, &client, "POST", ASK, &asked).await);
        assert_eq!(answers.last().unwrap().status(), status);
    }
    let refused = client.get("v1/auth/token/lookup-self").await;
    assert_eq!(refused.status, 429);
    assert!(refused.text.contains("response: too many large responses of this caller"), "{}", refused.text);
    assert_eq!(client.get(HEALTH).await.status, 200);
    let other = stage.client_of(other["auth"]["client_token"].as_str().unwrap()).await;
    assert_eq!(other.post(KEPT, &kept).await.status, 204);
    assert_eq!(other.get(KEPT).await.status, 200);
    // Resetting the streams frees the limit once the server has processed the resets.
    drop(answers);
    until("room for a response", async || client.get(KEPT).await.status == 200).await;
    stage.served.terminate();
}
