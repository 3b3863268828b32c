//! Connection limits: kept and closed connections of the real program under small limits of open files.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::process::{Dev, dev_with, signet_by};
use crate::serve::{Held, Served, Site};
use crate::support::{Client, metric, until};

/// Longer than anything except the server's time limits.
const SOON: Duration = Duration::from_secs(5);
/// The time limit for a request head, plus the interval of the check.
const HEAD: Duration = Duration::from_secs(14);
const HEALTH: &str = "GET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\r\n";

/// A development server with these soft and hard limits of open files, and its log file.
fn limited(limits: &str) -> (Dev, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = signet_by("prlimit", &[&format!("--nofile={limits}")]);
    command.stderr(File::create(&log).unwrap());
    (dev_with(&mut command, &[]), log, folder)
}

fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    allow_many_files();
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

fn ended(sockets: &[TcpStream]) -> usize {
    let is_open = |mut socket: &TcpStream| {
        socket.set_nonblocking(true).unwrap();
        matches!(socket.read(&mut [0; 1024]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    sockets.iter().filter(|socket| !is_open(socket)).count()
}

struct Wire(TcpStream);

impl Wire {
    fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self(socket)
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    fn begin(&mut self, head: &str) {
        const WANTED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        self.send(&format!("{}\r\nExpect: 100-continue\r\n\r\n", head.trim_end()));
        let mut told = [0; WANTED.len()];
        self.0.read_exact(&mut told).unwrap();
        assert_eq!(told, WANTED, "{}", String::from_utf8_lossy(&told));
    }

    fn answer(&mut self) -> String {
        let mut text = Vec::new();
        let mut octet = [0; 1];
        while !text.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut octet).unwrap();
            text.extend(octet);
        }
        let head = String::from_utf8(text).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        head + &String::from_utf8(body).unwrap()
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(request);
        self.answer()
    }

    /// Reads until the server closes the connection, and returns the duration.
    fn until_closed(&mut self, most: Duration) -> Duration {
        let started = Instant::now();
        self.0.set_read_timeout(Some(most)).unwrap();
        let mut rest = Vec::new();
        // A reset also ends the connection.
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        started.elapsed()
    }
}

fn issue(token: &str) -> (String, String) {
    let body = json!({ "common_name": "slow.test" }).to_string();
    let head = format!(
        "POST /v1/pki/issue/dev HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

async fn assert_served(address: SocketAddr, token: &str) {
    let client = Client::new(address, token);
    let started = Instant::now();
    assert_eq!(client.get("sys/health").await.status, 200);
    client.post("pki/issue/dev", json!({ "common_name": "live.test" })).await.assert_status(200);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let (dev, ..) = limited("128:300");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", dev.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["300", "300"]);
    dev.terminate();
}

#[actix_web::test]
async fn idle_connections_block_no_client_and_are_logged() {
    let (dev, log, _folder) = limited("256:256");
    let held = idle(dev.socket(), 600);
    for _ in 0..3 {
        assert_served(dev.socket(), &dev.token).await;
    }
    let page = dev.client().page("/metrics").await.text;
    let open = "signet_connections_open{listener=\"main\"}";
    let limit = "signet_connections_limit{listener=\"main\"}";
    let limit = metric(&page, limit);
    assert!(limit <= 128, "half of the files are for the rest: {limit}");
    assert!(metric(&page, open) <= limit + 16, "{} of {limit}", metric(&page, open));
    let closed = metric(&page, "signet_connections_closed_total{reason=\"full\"}");
    assert!(closed >= 600 - limit - 16, "{closed}");
    assert!(ended(&held) >= 600 - limit - 16, "{}", ended(&held));
    assert_eq!(metric(&page, "signet_connections_refused_total{reason=\"full\"}"), 0);
    let told = || std::fs::read_to_string(&log).unwrap().matches("connections are at their limit").count();
    until("a line in the log", async || told() > 0).await;
    let line = std::fs::read_to_string(&log).unwrap();
    assert!(line.contains(&format!("limit={limit} ")) && line.contains("address=\"127.0.0.1\""), "{line}");
    drop(idle(dev.socket(), 300));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(told(), 1, "not every second");
    assert!(!std::fs::read_to_string(&log).unwrap().contains("Too many open files"));
    dev.terminate();
}

#[test]
fn flood_evicts_longest_idle_connections_only() {
    let (dev, ..) = limited("256:256");
    let (head, body) = issue(&dev.token);
    let [mut early, mut under_way] = [(); 2].map(|()| Wire::open(dev.socket()));
    assert!(early.ask(HEALTH).starts_with("http/1.1 200"));
    under_way.begin(&head);
    under_way.send(&body[..5]);
    let mut held = idle(dev.socket(), 400);
    assert!(early.until_closed(SOON) < SOON);
    under_way.send(&body[5..]);
    let issued = under_way.answer();
    assert!(issued.starts_with("http/1.1 200") && issued.contains("BEGIN CERTIFICATE"), "{issued}");
    // The response did not announce a close: the connection accepts more requests.
    assert!(!issued.contains("connection: close"));
    assert!(under_way.ask(HEALTH).starts_with("http/1.1 200"));
    assert_eq!(ended(&held.split_off(380)), 0);
    dev.terminate();
}

#[actix_web::test]
async fn unfinished_bodies_are_evicted_unauthenticated_callers_first() {
    let site = Site::new();
    site.configure("max_connections = 16\n");
    let token = site.init();
    let served = site.serve();
    let address: SocketAddr = served.socket().parse().unwrap();
    let setup = served.client(&token);
    assert_eq!(setup.post("sys/mounts/pki", json!({ "type": "pki" })).await.status, 204);
    let mut known = Wire::open(address);
    let policy = json!({ "policy": "path \"x\" {}" }).to_string();
    known.begin(&format!(
        "POST /v1/sys/policies/acl/x HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nContent-Length: {}\r\n\r\n",
        policy.len(),
    ));
    known.send(&policy[..5]);
    let mut held = Vec::new();
    for (method, path) in [("POST", "sys/wrapping/unwrap"), ("PUT", "auth/token/create"), ("GET", "sys/health")] {
        for body in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            for _ in 0..16 {
                let mut wire = Wire::open(address);
                wire.send(&format!("{method} /v1/{path} HTTP/1.1\r\nHost: t\r\n{body}\r\n\r\n"));
                held.push(wire);
            }
            std::thread::sleep(Duration::from_millis(100));
            let started = Instant::now();
            assert_eq!(served.client("").get("sys/health").await.status, 200, "{method} {path}");
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        }
    }
    // A connection that was evicted in favour of others is closed.
    assert!(held[0].until_closed(SOON) < SOON);
    known.send(&policy[5..]);
    let mut status = [0; 12];
    known.0.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 204");
    drop(held);
    let page = served.client(&token).get("sys/metrics?format=prometheus").await.text;
    assert_eq!(metric(&page, "signet_connections_refused_total{reason=\"full\"}"), 0);
    // Authenticated callers do not keep their connections forever, either.
    let head = issue(&token).0;
    let mut uploads: Vec<_> = (0..16).map(|_| Wire::open(address)).collect();
    uploads.iter_mut().for_each(|wire| wire.send(&head));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(served.client("").get("sys/health").await.status, 200);
    served.terminate();
}

#[test]
fn unused_body_is_skipped_and_open_route_body_wait_is_short() {
    let (dev, ..) = limited("1024:1024");
    let started = Instant::now();
    let mut open = Wire::open(dev.socket());
    open.send("POST /v1/auth/none/login HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n");
    let mut unwrap = Wire::open(dev.socket());
    unwrap.send("POST /v1/pki/ocsp HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n");
    for (method, token) in [("GET", ""), ("HEAD", ""), ("DELETE", &dev.token[..]), ("LIST", &dev.token)] {
        let path = match method {
            "DELETE" => "pki/roles/none",
            "LIST" => "sys/policies/acl",
            _ => "sys/health",
        };
        let mut wire = Wire::open(dev.socket());
        let begun = Instant::now();
        wire.send(&format!(
            "{method} /v1/{path} HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nContent-Length: 10\r\n\r\n12345"
        ));
        let mut text = Vec::new();
        wire.0.read_to_end(&mut text).unwrap();
        assert!(text.starts_with(b"HTTP/1.1 20"), "{method}: {}", String::from_utf8_lossy(&text));
        assert!(begun.elapsed() < SOON, "{method}: {:?}", begun.elapsed());
    }
    // A complete body leaves the connection open for the next request.
    let mut wire = Wire::open(dev.socket());
    let whole = "GET /v1/sys/health HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\n12345";
    for _ in 0..2 {
        assert!(wire.ask(whole).starts_with("http/1.1 200"));
    }
    for mut wire in [open, unwrap] {
        wire.until_closed(HEAD);
        assert!(started.elapsed() < HEAD, "{:?}", started.elapsed());
    }
    dev.terminate();
}

#[actix_web::test]
async fn incomplete_request_head_closes_the_connection() {
    let (dev, ..) = limited("1024:1024");
    let [mut silent, mut half] = [(); 2].map(|()| Wire::open(dev.socket()));
    half.send("GET /v1/sys/health HTTP/1.1\r\n");
    let mut dribbles = Wire::open(dev.socket());
    assert!(dribbles.ask(HEALTH).starts_with("http/1.1 200"));
    dribbles.send("GET /v1/sys/health HTTP/1.1\r\nX-Slow: ");
    let mut slow = dribbles.0.try_clone().unwrap();
    let dribbling = std::thread::spawn(move || {
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(250));
            if slow.write_all(b"x").is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    for wire in [&mut silent, &mut half, &mut dribbles] {
        wire.until_closed(HEAD);
        assert!(started.elapsed() < HEAD && started.elapsed() > SOON, "{:?}", started.elapsed());
    }
    dribbling.join().unwrap();
    let page = dev.client().page("/metrics").await.text;
    assert_eq!(metric(&page, "signet_connections_closed_total{reason=\"head\"}"), 3);
    dev.terminate();
}

#[actix_web::test]
async fn malformed_http_requests_are_counted() {
    let (dev, ..) = limited("1024:1024");
    let large = format!("X-Large: {}\r\n", "x".repeat(200_000));
    for (more, status) in [
        ("Host: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "400"),
        ("Host: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", "400"),
        ("Host: t\r\nno field\r\n", "400"),
        (&large, "431"),
    ] {
        let mut wire = Wire::open(dev.socket());
        let _ = wire.0.write_all(format!("GET /v1/sys/health HTTP/1.1\r\n{more}\r\n").as_bytes());
        let mut text = vec![0; 12];
        wire.0.read_exact(&mut text).unwrap();
        assert_eq!(&text[9..], status.as_bytes(), "{}", more.len());
    }
    // A connection's end is counted after its response, possibly on another worker.
    let none = "signet_http_requests_total{mount=\"none\",service=\"none\",operation=\"none\",route=\"none\"";
    until("the counts", async || {
        let page = dev.client().page("/metrics").await.text;
        ["400\"} 3", "431\"} 1"].iter().all(|count| page.contains(&format!("{none},status=\"{count}\n")))
    })
    .await;
    dev.terminate();
}

#[actix_web::test]
async fn garbage_after_a_request_does_not_lose_its_response() {
    let (dev, ..) = limited("1024:1024");
    let token = &dev.token;
    let body = r#"{"common_name":"live.test"}"#;
    let head = format!("Host: t\r\nX-Service-Token: {token}\r\nContent-Length: {}\r\n\r\n", body.len());
    let issue = format!("POST /v1/pki/issue/dev HTTP/1.1\r\n{head}{body}");
    for behind in ["xyz\n", "GARBAGE\0\r\n\r\n"] {
        let mut wire = Wire::open(dev.socket());
        wire.send(&format!("{issue}{behind}"));
        let mut answers = String::new();
        wire.0.read_to_string(&mut answers).unwrap();
        let statuses: Vec<_> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
        assert_eq!(statuses, ["200", "400"], "{behind:?}: {answers}");
        assert!(answers.contains("-----BEGIN CERTIFICATE-----"), "{answers}");
    }
    dev.terminate();
}

#[test]
fn tls_handshake_and_request_head_have_time_limits() {
    let site = Site::new().with_tls("0x1001");
    let token = site.init();
    let served = site.serve();
    let mut silent = Wire::open(served.socket().parse().unwrap());
    let mut agreed = Held::open(&site, &served);
    let started = Instant::now();
    silent.until_closed(HEAD);
    assert!(started.elapsed() < HEAD, "{:?}", started.elapsed());
    while agreed.0.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < HEAD, "still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    let page =
        site.curl(&["-H", &format!("X-Service-Token: {token}"), &served.url("v1/sys/metrics?format=prometheus")]);
    assert!(page.contains("signet_connections_closed_total{reason=\"head\"} 2"), "{page}");
    served.terminate();
}

#[test]
fn connections_without_tls_handshake_block_no_client() {
    let site = Site::new().with_tls("0x1001");
    site.init();
    site.configure(&format!("{}max_connections = 20\n", site.tls_settings()));
    let served = site.serve();
    let held = idle(served.socket().parse().unwrap(), 600);
    let started = Instant::now();
    let health = site.curl(&["--max-time", "5", &served.url("v1/sys/health")]);
    assert!(health.starts_with("HTTP/1.1 200") && started.elapsed() < SOON, "{health}");
    assert!(ended(&held) >= 600 - 20 - 16, "{}", ended(&held));
    served.terminate();
}

#[actix_web::test]
async fn metrics_listener_has_its_own_small_connection_limit() {
    let site = Site::new();
    site.configure("metrics_listen = \"127.0.0.1:0\"\n");
    let token = site.init();
    let mut served = site.serve();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut served.lines, &mut line).unwrap();
    let address = line.trim().strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let held = idle(address.parse().unwrap(), 200);
    let page = Client::new(address.parse().unwrap(), "").page("/metrics").await;
    assert_eq!(metric(&page.text, "signet_connections_limit{listener=\"metrics\"}"), 32);
    assert!(ended(&held) >= 200 - 32 - 16, "{}", ended(&held));
    assert!(metric(&page.text, "signet_connections_open{listener=\"main\"}") < 8, "counted apart");
    assert_eq!(served.client(&token).get("sys/health").await.status, 200);
    served.terminate();
}

#[test]
fn sigterm_closes_idle_connections_and_finishes_active_ones() {
    let (dev, ..) = limited("1024:1024");
    let (head, body) = issue(&dev.token);
    let [mut kept, mut silent, mut under_way] = [(); 3].map(|()| Wire::open(dev.socket()));
    assert!(kept.ask(HEALTH).starts_with("http/1.1 200"));
    under_way.send(&head);
    std::thread::sleep(Duration::from_millis(300));
    dev.send_sigterm();
    for wire in [&mut kept, &mut silent] {
        assert!(wire.until_closed(SOON) < Duration::from_secs(2));
    }
    under_way.send(&body);
    let issued = under_way.answer();
    assert!(issued.starts_with("http/1.1 200") && issued.contains("connection: close"), "{issued}");
    assert!(under_way.until_closed(SOON) < Duration::from_secs(2));
    dev.wait();
}

#[test]
fn connection_limit_above_file_limit_is_warned_about() {
    let site = Site::new();
    site.configure("max_connections = 5000\n");
    site.init();
    let mut command = signet_by("prlimit", &["--nofile=512:512"]);
    let served = Served::start(command.args(["serve", "--config"]).arg(site.path("signet.toml")), &site.path("log"));
    served.wait_for_log("reduced from 5000");
    served.terminate();
}

fn issues_until_closed(mut wire: Wire, request: &str) -> Vec<String> {
    let mut serials = Vec::new();
    while let Ok(()) = wire.0.write_all(request.as_bytes()) {
        let mut answer = Vec::new();
        let mut piece = [0; 16 << 10];
        let body = loop {
            match wire.0.read(&mut piece) {
                Ok(some @ 1..) => answer.extend_from_slice(&piece[..some]),
                _ => return serials,
            }
            let text = std::str::from_utf8(&answer).unwrap();
            let whole = text.split_once("\r\n\r\n").filter(|(head, body)| {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                body.len() == length.parse::<usize>().unwrap()
            });
            if let Some((_, body)) = whole {
                break body.to_owned();
            }
        };
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        serials.push(body["data"]["serial_number"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned());
    }
    serials
}

#[actix_web::test]
async fn requests_read_at_shutdown_are_answered_or_not_started() {
    let site = Site::new();
    let token = site.init();
    let mut served = site.serve();
    let client = served.client(&token);
    client.enable("sys/mounts/pki", "pki").await;
    client.authority("pki", json!({ "ttl": "1h" })).await;
    let body = json!({ "common_name": "web.test" }).to_string();
    let request = format!(
        "POST /v1/pki/issue/web HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answered = 1;
    for _ in 0..6 {
        let address = served.socket().parse().unwrap();
        let asking: Vec<_> = (0..48)
            .map(|_| {
                // Connects before the thread starts: a late thread would find the listener closed.
                let wire = Wire::open(address);
                let request = request.clone();
                std::thread::spawn(move || issues_until_closed(wire, &request))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        served.send_sigterm();
        answered += asking.into_iter().map(|client| client.join().unwrap().len()).sum::<usize>();
        served.wait();
        served = site.serve();
        let stored = served.client(&token).list("pki/certs").await;
        assert_eq!(stored.body["data"]["keys"].as_array().unwrap().len(), answered, "certificates and answers");
    }
    served.terminate();
}

#[test]
fn websocket_upgrade_is_rejected_immediately() {
    let (dev, ..) = limited("1024:1024");
    let started = Instant::now();
    for method in ["GET /v1/sys/health", "POST /v1/pki/issue/dev"] {
        let mut wire = Wire::open(dev.socket());
        let head = format!("{method} HTTP/1.1\r\nHost: t\r\nUpgrade: WebSocket\r\nContent-Length: 0\r\n\r\n");
        let answer = wire.ask(&head);
        assert!(answer.starts_with("http/1.1 400") && answer.contains("upgrade: not supported"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        wire.until_closed(SOON);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    dev.terminate();
}
