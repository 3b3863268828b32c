//! Pipelined requests, sent without waiting for earlier responses (RFC 9112, 9.3.2).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::App;

/// Pipelines requests and counts their responses by status. If the server closes the connection, which it may during a
/// later request's body, sends the rest on a new connection (RFC 9112, 9.6).
fn pipelined(address: SocketAddr, requests: &[Vec<u8>]) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    loop {
        let answered = answers.values().sum::<usize>();
        if answered >= requests.len() {
            return answers;
        }
        for (status, count) in on_one_connection(address, requests[answered..].concat(), requests.len() - answered) {
            *answers.entry(status).or_default() += count;
        }
    }
}

fn on_one_connection(address: SocketAddr, requests: Vec<u8>, many: usize) -> BTreeMap<String, usize> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut sender = socket.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&requests));
    let mut answers = BTreeMap::new();
    let mut kept = Vec::new();
    let mut octets = vec![0; 64 << 10];
    let mut begin = 0;
    let mut closes = false;
    while answers.values().sum::<usize>() < many {
        let read = match socket.read(&mut octets) {
            Ok(0) | Err(_) if closes => break,
            read => read.unwrap_or_else(|error| panic!("{error}: {answers:?}")),
        };
        assert_ne!(read, 0, "{answers:?}");
        kept.extend_from_slice(&octets[..read]);
        while let Some(head) = kept[begin..].windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8(kept[begin..begin + head].to_vec()).unwrap().to_lowercase();
            let length = text.split_once("content-length: ").map_or("0", |(_, length)| length.lines().next().unwrap());
            let end = begin + head + 4 + length.parse::<usize>().unwrap();
            if kept.len() < end {
                break;
            }
            closes |= text.contains("\r\nconnection: close");
            *answers.entry(text[9..12].to_owned()).or_default() += 1;
            begin = end;
        }
        kept.drain(..begin);
        begin = 0;
    }
    let sent = sending.join().unwrap();
    assert!(sent.is_ok() || closes, "{sent:?}: {answers:?}");
    answers
}

#[actix_web::test]
async fn requests_that_do_not_wait_for_answers_have_all_of_them() {
    let app = App::start().await;
    let client = app.with_policies(&["default"]).await;
    let token = client.token.clone();
    let head =
        |method: &str, path: &str| format!("{method} /v1/{path} HTTP/1.1\r\nHost: x\r\nX-Service-Token: {token}\r\n");
    let get = |path: &str| format!("{}\r\n", head("GET", path)).into_bytes();
    let post = |path: &str, body: &str| {
        format!("{}Content-Length: {}\r\n\r\n{body}", head("POST", path), body.len()).into_bytes()
    };
    let chunked = |path: &str, body: &str| {
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        format!("{}Transfer-Encoding: chunked\r\n\r\n{chunk}", head("POST", path)).into_bytes()
    };
    let long = format!("{{\"path\":\"{}\"}}", "a/b,".repeat(600));
    let kinds: [&[Vec<u8>]; 5] = [
        &[b"GET /zzz HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()],
        &[get("sys/health")],
        &[get("auth/token/lookup-self")],
        &[get("sys/health"), get("auth/token/lookup-self"), get("nothing/here"), get("sys/health")],
        &[
            post("sys/capabilities-self", "{\"path\":\"a\"}"),
            get("sys/health"),
            chunked("sys/capabilities-self", "{\"path\":\"a\"}"),
            post("sys/capabilities-self", &long),
            chunked("sys/capabilities-self", &long),
            get("auth/token/lookup-self"),
        ],
    ];
    let address = app.address();
    for kind in kinds {
        let octets: usize = kind.iter().map(Vec::len).sum();
        // Several times the size of the server's read buffer.
        let times = (600_000 / octets).clamp(2, 4_000);
        let requests = vec![kind.to_vec(); times].concat();
        let many = times * kind.len();
        let answers = tokio::task::spawn_blocking(move || pipelined(address, &requests)).await.unwrap();
        assert_eq!(answers.values().sum::<usize>(), many, "{answers:?}");
    }
    // A few slow requests before fast ones, and nothing after them.
    let slow = get("auth/token/lookup-self");
    let fast = b"GET /zzz HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let empty = format!("{}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", head("POST", "auth/token/lookup-self"));
    let slow = [(2, 20), (2, 80), (2, 120), (3, 200)].map(|(times, behind)| (vec![slow.clone(); times], behind));
    for (first, behind) in
        slow.into_iter().chain([20, 120, 6_000].map(|behind| (vec![empty.clone().into_bytes()], behind)))
    {
        let requests = [first, vec![fast.clone(); behind]].concat();
        let many = requests.len();
        let answers = tokio::task::spawn_blocking(move || pipelined(address, &requests)).await.unwrap();
        assert_eq!((answers.values().sum::<usize>(), answers["404"]), (many, behind));
    }
    app.stop().await;
}
