//! Bodies that nobody reads: what is short is taken to its end, what is not is told to stop.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::SendStream;
use serde_json::json;

use super::client::{Answer, Client, read};
use super::{HEALTH, SOON, STREAMS, assert_served, name, site};

/// Refused without a look at its body.
const NOTHING: &str = "/api/v2/nothing";

#[actix_web::test]
async fn curl_gets_refusals_that_come_before_it_has_sent_its_body() {
    let (site, served, token) = site("").await;
    let header = format!("X-Service-Token: {token}");
    let organization = json!({ "data": { "type": "organizations", "attributes": { "name": "x" } } }).to_string();
    let long = "x".repeat(50_000);
    for _ in 0..20 {
        for (method, path, content, body, status) in [
            ("POST", "pki/issue/web", "application/json", &name(), 404),
            ("POST", "api/v2/organizations", "application/vnd.api+json", &organization, 401),
            ("POST", "api/v2/nothing", "application/vnd.api+json", &organization, 404),
            ("POST", "api/v2/nothing", "application/vnd.api+json", &long, 404),
            ("PATCH", "v1/pki/roles/web", "application/json", &name(), 415),
        ] {
            let content = format!("Content-Type: {content}");
            let request = ["--http2", "-X", method, "-H", &header, "-H", &content, "-d", body, &served.url(path)];
            let answer = site.curl(&request);
            assert!(answer.starts_with(&format!("HTTP/2 {status}")), "{method} {path}: {answer}");
            assert!(answer.contains("\"errors\""), "{method} {path}: {answer}");
        }
    }
    served.terminate();
}

/// Sends so much of a body, as the server gives room for it.
async fn sent(body: &mut SendStream<Bytes>, mut left: usize) {
    while left > 0 {
        body.reserve_capacity(left);
        let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await.expect("open").unwrap();
        body.send_data(vec![b'x'; room.min(left)].into(), false).unwrap();
        left -= room.min(left);
    }
}

#[actix_web::test]
async fn what_is_thrown_away_is_room_for_other_bodies_again() {
    let (site, served, token) = site("").await;
    let client = Client::open(&site, &served, &token).await;
    let mut begun = Vec::new();
    // Three times what a connection may have on its way, and none of it ends.
    for _ in 0..15 {
        let (answer, mut body) = client.begin(client.request("POST", &NOTHING[1..])).await.unwrap();
        assert_eq!(answer.await.unwrap().status(), 404);
        sent(&mut body, 50_000).await;
        begun.push(body);
    }
    assert_eq!(client.post("v1/pki/issue/web", &name()).await.status, 200);
    served.terminate();
}

#[actix_web::test]
async fn who_does_not_end_bodies_has_all_answers_and_keeps_nobody_from_being_served() {
    let (site, served, token) = site("").await;
    let client = Client::open(&site, &served, &token).await;
    assert_eq!(client.get(HEALTH).await.status, 200);
    let started = Instant::now();
    let begin = async || client.begin(client.request("POST", &NOTHING[1..])).await.unwrap();
    let begun: Vec<_> = join_all((0..STREAMS - 1).map(|_| begin())).await;
    let mut bodies = Vec::new();
    for (answer, body) in begun {
        let answer: Answer = read(answer.await.unwrap()).await.unwrap();
        assert!(answer.status == 404 && answer.text.contains("errors"), "{}", answer.text);
        bodies.push(body);
    }
    assert_eq!(client.get(HEALTH).await.status, 200);
    assert_served(&site, &served, &token).await;
    assert!(started.elapsed() < Duration::from_millis(900), "nothing was waited for: {:?}", started.elapsed());
    // Their places are others' after a while.
    let more = join_all((0..STREAMS).map(|_| client.get(HEALTH))).await;
    assert!(more.iter().all(|answer| answer.status == 200));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    // Nor does a server that stops wait for them.
    let (answer, _body) = begin().await;
    assert_eq!(answer.await.unwrap().status(), 404);
    let started = Instant::now();
    served.terminate();
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}
