//! Bodies that no handler reads: a short one is read to its end, a longer one is stopped.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::SendStream;
use serde_json::json;

use super::client::{
    Answer, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RESET, SETTINGS, WINDOW_UPDATE, Wire, fields, frame, read,
};
use super::{HEALTH, Http2Stage, SOON, STREAMS, name};
use crate::support::{quick, tests_on};

tests_on!(tls: Http2Stage::start() =>
    curl_receives_rejection_sent_before_its_body_ended,
    short_body_after_the_response_causes_no_reset,
    unread_body_is_reset_if_too_long_or_too_slow,
    discarded_body_bytes_restore_the_connection_window,
);

/// Rejected before its body is read.
const NOTHING: &str = "/api/v2/nothing";
/// Maximum rest of a body that the server reads, in bytes.
const SHORT: usize = 64 << 10;
/// Shorter than the server waits for the rest of a short body.
const NOT_WAITED: Duration = Duration::from_millis(900);
/// The ACK flag of SETTINGS.
const ACK: u8 = 1;

/// Opens a connection and acknowledges the server's settings, which set its windows.
async fn agreed(stage: &Http2Stage) -> Wire {
    let mut wire = stage.wire().await;
    wire.next_of(SETTINGS).await.unwrap();
    wire.send(&frame(SETTINGS, ACK, 0, &[])).await;
    wire
}

/// The resets that the server sends before it responds to the PINGs.
async fn resets(wire: &mut Wire) -> Vec<(u32, Vec<u8>)> {
    let mut resets = Vec::new();
    // A reset caused before the first PING response may follow it, but precedes the second one.
    for _ in 0..2 {
        wire.send(&frame(PING, 0, 0, &[0; 8])).await;
        loop {
            let (kind, stream, payload) = wire.next().await.unwrap();
            match kind {
                PING => break,
                RESET => resets.push((stream, payload)),
                _ => {}
            }
        }
    }
    resets
}

/// Sends the head of a request and waits for the response, which comes without its body.
async fn refused(wire: &mut Wire, stream: u32, head: &[u8]) {
    wire.send(&frame(HEADERS, END_HEADERS, stream, head)).await;
    assert_eq!(wire.next_of(DATA).await.unwrap().0, stream);
}

async fn curl_receives_rejection_sent_before_its_body_ended(stage: &Http2Stage) {
    let header = format!("X-Service-Token: {}", stage.token);
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
            let request = ["--http2", "-X", method, "-H", &header, "-H", &content, "-d", body, &stage.served.url(path)];
            let answer = stage.site.curl(&request);
            assert!(answer.starts_with(&format!("HTTP/2 {status}")), "{method} {path}: {answer}");
            assert!(answer.contains("\"errors\""), "{method} {path}: {answer}");
        }
    }
}

async fn short_body_after_the_response_causes_no_reset(stage: &Http2Stage) {
    let mut wire = agreed(stage).await;
    let token = [("x-service-token", &stage.token[..])];
    let heads = [
        fields("POST", "/pki/issue/web", &token),
        fields("POST", "/api/v2/organizations", &[]),
        fields("POST", NOTHING, &[("content-length", "20")]),
        fields("PATCH", "/v1/pki/roles/web", &[token[0], ("content-type", "application/json")]),
    ];
    let mut stream = 1;
    for head in &heads {
        // Immediately; in one piece a little later; slowly.
        for (pieces, pause) in [(1, 0), (1, 100), (4, 100)] {
            refused(&mut wire, stream, head).await;
            for piece in 1..=pieces {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let ends = if piece == pieces { END_STREAM } else { 0 };
                wire.send(&frame(DATA, ends, stream, &vec![b'x'; 20 / pieces])).await;
            }
            assert_eq!(resets(&mut wire).await, [], "{stream}");
            stream += 2;
        }
    }
    // The most that may be sent before the response.
    refused(&mut wire, stream, &fields("POST", NOTHING, &[])).await;
    for piece in 1..=4 {
        let ends = if piece == 4 { END_STREAM } else { 0 };
        wire.send(&frame(DATA, ends, stream, &[b'x'; SHORT / 4])).await;
    }
    assert_eq!(resets(&mut wire).await, []);
}

async fn unread_body_is_reset_if_too_long_or_too_slow(stage: &Http2Stage) {
    let mut wire = agreed(stage).await;
    let no_error = |stream: u32| (stream, vec![0; 4]);
    let declared = (SHORT + 1).to_string();
    let mut stream = 1;
    quick(NOT_WAITED, async || {
        // The declared length is too long.
        refused(&mut wire, stream, &fields("POST", NOTHING, &[("content-length", &declared)])).await;
        assert_eq!(wire.next_of(RESET).await.unwrap(), no_error(stream));
        // The received length is too long.
        let found = stream + 2;
        refused(&mut wire, found, &fields("POST", NOTHING, &[])).await;
        for _ in 0..4 {
            wire.send(&frame(DATA, 0, found, &[b'x'; SHORT / 4])).await;
        }
        while wire.next_of(WINDOW_UPDATE).await.unwrap().0 != found {}
        wire.send(&frame(DATA, 0, found, b"x")).await;
        assert_eq!(wire.next_of(RESET).await.unwrap(), no_error(found));
        stream += 4;
    })
    .await;
    // A body without an end, idle or slow.
    for (stream, dribbles) in [(stream, false), (stream + 2, true)] {
        let started = Instant::now();
        refused(&mut wire, stream, &fields("POST", NOTHING, &[])).await;
        for _ in 0..if dribbles { 8 } else { 0 } {
            wire.send(&frame(DATA, 0, stream, b"x")).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(wire.next_of(RESET).await.unwrap(), no_error(stream));
        assert!(started.elapsed() > Duration::from_millis(900), "it had its time: {:?}", started.elapsed());
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
}

/// Sends `left` bytes as the flow-control window permits.
async fn sent(body: &mut SendStream<Bytes>, mut left: usize) {
    while left > 0 {
        body.reserve_capacity(left);
        let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await.expect("open").unwrap();
        body.send_data(vec![b'x'; room.min(left)].into(), false).unwrap();
        left -= room.min(left);
    }
}

async fn discarded_body_bytes_restore_the_connection_window(stage: &Http2Stage) {
    let client = stage.client().await;
    let mut begun = Vec::new();
    // Three times the connection window, in bodies that do not end.
    for _ in 0..15 {
        let (answer, mut body) = client.begin(client.request("POST", &NOTHING[1..])).await.unwrap();
        assert_eq!(answer.await.unwrap().status(), 404);
        sent(&mut body, 50_000).await;
        begun.push(body);
    }
    assert_eq!(client.post("v1/pki/issue/web", &name()).await.status, 200);
}

#[actix_web::test]
async fn unfinished_bodies_block_no_response_and_no_client() {
    let stage = Http2Stage::start().await;
    let mut opened = None;
    quick(NOT_WAITED, async || {
        let client = stage.client().await;
        assert_eq!(client.get(HEALTH).await.status, 200);
        let begin = async || client.begin(client.request("POST", &NOTHING[1..])).await.unwrap();
        let begun: Vec<_> = join_all((0..STREAMS - 1).map(|_| begin())).await;
        let mut bodies = Vec::new();
        for (answer, body) in begun {
            let answer: Answer = read(answer.await.unwrap()).await.unwrap();
            assert!(answer.status == 404 && answer.text.contains("errors"), "{}", answer.text);
            bodies.push(body);
        }
        assert_eq!(client.get(HEALTH).await.status, 200);
        stage.assert_served().await;
        opened = Some((client, bodies));
    })
    .await;
    let (client, _bodies) = opened.unwrap();
    let begin = async || client.begin(client.request("POST", &NOTHING[1..])).await.unwrap();
    let started = Instant::now();
    let more = join_all((0..STREAMS).map(|_| client.get(HEALTH))).await;
    assert!(more.iter().all(|answer| answer.status == 200));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    // A stopping server does not wait for them either.
    let (answer, _body) = begin().await;
    assert_eq!(answer.await.unwrap().status(), 404);
    let started = Instant::now();
    stage.served.terminate();
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}
