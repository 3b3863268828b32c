//! Request bodies: for which callers the server reads them, up to which size, and for how long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::rights::{granted, only};
use crate::support::{App, send, until};

pub struct Pending {
    socket: TcpStream,
    rest: Vec<u8>,
}

impl Pending {
    /// Sends all of a body except its last byte.
    pub async fn begin(app: &App, line: &str, headers: &str, body: Vec<u8>) -> Self {
        let url = app.client.url("");
        let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        let length = body.len();
        let head =
            format!("{line} HTTP/1.1\r\nHost: t\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n");
        tokio::task::spawn_blocking(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            socket.write_all(head.as_bytes()).unwrap();
            let (most, rest) = body.split_at(length - 1);
            socket.write_all(most).unwrap();
            Self { socket, rest: rest.to_owned() }
        })
        .await
        .unwrap()
    }

    pub async fn wanted(mut self) -> Self {
        const WANTED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        tokio::task::spawn_blocking(move || {
            let mut told = [0; WANTED.len()];
            self.socket.read_exact(&mut told).unwrap();
            assert_eq!(told, WANTED, "{}", String::from_utf8_lossy(&told));
            self
        })
        .await
        .unwrap()
    }

    pub async fn answer(mut self) -> String {
        tokio::task::spawn_blocking(move || {
            let mut answer = Vec::new();
            let _ = self.socket.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        })
        .await
        .unwrap()
    }

    pub async fn end(mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        let written = tokio::task::spawn_blocking(move || {
            self.socket.write_all(&rest).unwrap();
            self
        });
        written.await.unwrap().answer().await
    }
}

/// Waits until pending bodies use `bytes` of the budget of 300,000 bytes.
pub async fn taken(app: &App, bytes: isize) {
    until("the bodies are read", async || app.shared().body_budget.left() <= 300_000 - bytes).await;
}

fn asks(length: usize) -> Vec<u8> {
    format!("{{\"path\":\"{}\"}}", "a".repeat(length - 11)).into_bytes()
}

const ASK: &str = "POST /v1/sys/capabilities-self";

fn token(token: &str) -> String {
    format!("X-Service-Token: {token}\r\n")
}

#[actix_web::test]
async fn caller_without_right_is_rejected_before_the_body() {
    let app = App::builder().settings(|s| s.body_timeout = Duration::from_secs(3)).start().await;
    app.policy("nothing", "path \"unrelated\" { capabilities = [\"read\"] }").await;
    let body = json!({ "policies": ["nothing"], "no_default_policy": true });
    let made = app.client.post("auth/token/create", body).await;
    let powerless = made.body["auth"]["client_token"].as_str().unwrap();
    let started = Instant::now();
    for headers in [String::new(), token("unknown"), token(powerless)] {
        let pending = Pending::begin(&app, ASK, &headers, asks(1 << 20)).await;
        let answer = pending.answer().await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{headers}: {answer}");
    }
    assert!(started.elapsed() < Duration::from_secs(15));
    for client in [app.client.with_token(""), app.client.with_token(powerless)] {
        send(client.request("POST", "sys/capabilities-self").body("{\"a\":")).await.assert_denied();
    }
    app.stop().await;
}

#[actix_web::test]
async fn unread_body_has_the_limit_of_its_route() {
    let app = App::start().await;
    let stranger = app.client.with_token("");
    for (size, status) in [(16 << 10, 200), ((16 << 10) + 1, 413), (200 << 10, 413)] {
        let answer = send(stranger.request("GET", "sys/health").body(vec![b'x'; size])).await;
        assert_eq!(answer.status, status, "{size}: {}", answer.text);
    }
    send(stranger.request("POST", "sys/health").body(vec![b'x'; 200 << 10])).await.assert_status(413);
    assert_eq!(send(stranger.request("POST", "sys/health").body("x")).await.status, 405);
    send(app.client.request("GET", "sys/mounts").body(vec![b'x'; 200 << 10])).await.assert_status(200);
    app.stop().await;
}

#[actix_web::test]
async fn a_token_that_ends_while_its_body_arrives_does_nothing() {
    let app = App::start().await;
    app.policy("writer", "path \"sys/policies/acl/*\" { capabilities = [\"update\"] }").await;
    let client = app.with_policies(&["writer"]).await;
    let policy = json!({ "policy": "path \"x\" { capabilities = [\"read\"] }" }).to_string().into_bytes();
    let headers = format!("{}Expect: 100-continue\r\n", token(&client.token));
    let pending = Pending::begin(&app, "POST /v1/sys/policies/acl/late", &headers, policy).await.wanted().await;
    assert_eq!(app.client.post("auth/token/revoke", json!({ "token": client.token })).await.status, 204);
    let answer = pending.end().await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(app.client.get("sys/policies/acl/late").await.status, 404);
    app.stop().await;
}

#[actix_web::test]
async fn bytes_in_flight_have_a_budget() {
    let room = |s: &mut signet::http::settings::HttpSettings| (s.max_body, s.max_bodies_in_flight) = (1 << 20, 300_000);
    let app = App::builder().settings(room).start().await;
    let root = token(&app.client.token);
    let ask = || app.client.request("POST", "sys/capabilities-self");
    let held = Pending::begin(&app, ASK, &root, asks(250_000)).await;
    // Bodies of callers without a right use no budget.
    let mut strangers = Vec::new();
    for _ in 0..4 {
        strangers.push(Pending::begin(&app, ASK, "", asks(250_000)).await);
    }
    taken(&app, 249_000).await;
    let own = send(ask().body(asks(40_000))).await;
    let text = "request body: too many large concurrent bodies of this caller; retry";
    assert_eq!((own.status, own.error()), (429, text));
    assert_eq!(own.header("retry-after"), "1");
    let other = app.with_policies(&["default"]).await;
    let others = |octets| send(other.request("POST", "sys/capabilities-self").body(asks(octets)));
    let refused = others(100_000).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{}", refused.text);
    assert_eq!(refused.error(), "request body: the memory for bodies is used up; retry");
    assert_eq!(others(40_000).await.status, 200, "there is room for it");
    // Child tokens share the budget of their creator; tokens created by root or with sudo have their own.
    let maker = only(&app, "maker", &granted("auth/token/create", &["update"])).await;
    let child = async || {
        let made = maker.post("auth/token/create", json!({ "policies": ["maker"], "no_default_policy": true })).await;
        maker.with_token(made.body["auth"]["client_token"].as_str().unwrap())
    };
    let path = "auth/token/create";
    let small = Pending::begin(&app, &format!("POST /v1/{path}"), &token(&child().await.token), asks(26_000)).await;
    taken(&app, 274_000).await;
    send(child().await.request("POST", path).body(asks(17_000))).await.assert_status(429);
    drop(small);
    assert_eq!(send(ask().body(asks(100))).await.status, 200, "it needs no room");
    let answer = held.end().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{}", &answer[..200]);
    for _ in 0..5 {
        assert_eq!(send(ask().body(asks(250_000))).await.status, 200, "room is given back");
    }
    let chunks = format!("{:x}\r\n{}\r\n", 200_000, " ".repeat(200_000)).repeat(2);
    let chunked = format!("{ASK} HTTP/1.1\r\nHost: t\r\n{root}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = app.raw(format!("{chunked}{chunks}0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(send(ask().body(asks(250_000))).await.status, 200);
    for stranger in strangers {
        assert!(stranger.answer().await.starts_with("HTTP/1.1 403 "));
    }
    app.stop().await;
}
