//! HTTP/2 over TLS: the real program with curl, a conforming client, and a client that writes raw frames.

mod client;
mod unread_bodies;
mod unread_responses;

use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::Reason;
use serde_json::json;

use self::client::{
    CALM, CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RESET, SETTINGS,
    WINDOW_UPDATE, Wire, agree, field, fields, frame,
};
use crate::serve::{Served, Site};
use crate::support::{metric, tests_on};

tests_on!(tls: Http2Stage::start() =>
    alpn_selects_http_2_or_http_1,
    curl_gets_a_certificate_over_http_2,
    expect_100_continue_is_sent_only_for_accepted_bodies,
    requests_above_stream_limit_wait_in_the_client,
    streams_above_the_limit_are_refused_and_others_answered,
    malformed_authority_is_rejected_and_connection_stays_open,
    oversized_header_fields_are_rejected_per_request,
    unauthorized_large_body_is_rejected_and_not_buffered,
    head_has_the_length_of_get_and_no_body,
    all_methods_of_both_apis_work,
    rapid_reset_closes_only_its_own_connection,
    resets_of_running_requests_count_and_responses_offset_them,
    continuation_and_empty_data_floods_close_the_connection,
    control_frame_floods_close_only_their_own_connection,
    early_rejection_has_a_json_body_and_is_counted,
    malformed_frames_are_not_logged,
    incomplete_request_head_closes_the_connection,
);

/// Longer than anything except the server's time limits.
const SOON: Duration = Duration::from_secs(5);
/// The time limit for a request head, plus the interval of the check.
const HEAD: Duration = Duration::from_secs(14);
const HEALTH: &str = "v1/sys/health";
const ISSUE: &str = "v1/pki/issue/web";
const STREAMS: usize = 100;

/// A server with a role that issues, and the operator's token.
struct Http2Stage {
    site: Site,
    served: Served,
    token: String,
}

impl Http2Stage {
    async fn start() -> Self {
        Self::with("").await
    }

    /// Like [`Http2Stage::start`], with these settings.
    async fn with(more: &str) -> Self {
        let site = Site::new().with_tls("0x1001");
        site.configure(&format!("{}{more}", site.tls_settings()));
        let token = site.init();
        let served = site.serve();
        let stage = Self { site, served, token };
        let client = stage.client().await;
        for (path, body) in [
            ("v1/sys/mounts/pki", json!({ "type": "pki" })),
            ("v1/pki/root/generate/internal", json!({ "common_name": "root.test", "key_type": "ec" })),
            ("v1/pki/roles/web", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" })),
        ] {
            let answer = client.post(path, &body.to_string()).await;
            assert!(answer.status < 300, "{path}: {}", answer.text);
        }
        stage
    }

    async fn stop(self) {
        self.served.terminate();
    }

    async fn client(&self) -> Client {
        self.client_of(&self.token).await
    }

    async fn client_of(&self, token: &str) -> Client {
        Client::open(&self.site, &self.served, token).await
    }

    async fn wire(&self) -> Wire {
        Wire::open(&self.site, &self.served).await
    }

    async fn metrics(&self) -> String {
        self.client().await.get("v1/sys/metrics?format=prometheus").await.text
    }

    async fn assert_served(&self) {
        let started = Instant::now();
        assert_eq!(self.client().await.post(ISSUE, &name()).await.status, 200);
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }

    /// The server's peak memory in KiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.served.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

fn name() -> String {
    json!({ "common_name": "web.test" }).to_string()
}

fn issue(token: &str) -> Vec<u8> {
    fields("POST", "/v1/pki/issue/web", &[("x-service-token", token)])
}

async fn alpn_selects_http_2_or_http_1(stage: &Http2Stage) {
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let stream = agree(&stage.site, &stage.served, offered).await.unwrap();
        let protocol = stream.get_ref().1.alpn_protocol().map(|name| std::str::from_utf8(name).unwrap());
        assert_eq!(protocol, agreed, "{offered:?}");
    }
    assert!(agree(&stage.site, &stage.served, &["h3"]).await.is_err());
    for (version, line) in [("--http2", "HTTP/2 200"), ("--http1.1", "HTTP/1.1 200 OK")] {
        let health = stage.site.curl(&[version, &stage.served.url(HEALTH)]);
        assert!(health.starts_with(line), "{health}");
        assert!(health.to_ascii_lowercase().contains("strict-transport-security: max-age=31536000"), "{health}");
    }
}

#[test]
fn without_tls_there_is_no_http_2() {
    let site = Site::initialized();
    let served = site.serve();
    let mut knows = Command::new("curl");
    knows.args(["-sS", "--noproxy", "*", "--http2-prior-knowledge", &served.url(HEALTH)]);
    assert!(!knows.output().unwrap().status.success());
    // The server ignores an h2c upgrade in a request.
    let asked = Command::new("curl").args(["-sSi", "--noproxy", "*", "--http2", &served.url(HEALTH)]).output().unwrap();
    assert!(String::from_utf8(asked.stdout).unwrap().starts_with("HTTP/1.1 200"));
    served.terminate();
}

async fn curl_gets_a_certificate_over_http_2(stage: &Http2Stage) {
    let header = format!("X-Service-Token: {}", stage.token);
    let answer = stage.site.curl(&["--http2", "-H", &header, "-d", &name(), &stage.served.url(ISSUE)]);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/2 200") && body.contains("BEGIN CERTIFICATE"), "{answer}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert_eq!(length.trim().parse::<usize>().unwrap(), body.len());
    assert!(head.contains("date: ") && head.contains("content-type: application/json"), "{head}");
    for absent in ["connection:", "keep-alive:", "transfer-encoding:"] {
        assert!(!head.contains(absent), "{head}");
    }
    // curl sends a large body only after 100 Continue.
    let large = format!("{{\"common_name\":\"web.test\",\"pad\":\"{}\"}}", "x".repeat(1 << 20));
    std::fs::write(stage.site.path("large.json"), large).unwrap();
    let data = format!("@{}", stage.site.path("large.json").display());
    let expect = ["--http2", "-H", "Expect: 100-continue", "-H", &header, "--data-binary", &data];
    let told = stage.site.curl(&[&expect[..], &[&stage.served.url(ISSUE)]].concat());
    assert!(told.starts_with("HTTP/2 100") && told.contains("\r\nHTTP/2 200"), "{told}");
}

async fn expect_100_continue_is_sent_only_for_accepted_bodies(stage: &Http2Stage) {
    let client = stage.client().await;
    let ask = |token: &str, length: usize| {
        let request = http_types::Request::builder().method("POST").uri(stage.served.url(ISSUE));
        request.header("x-service-token", token).header("content-length", length).header("expect", "100-continue")
    };
    let (mut answer, mut body) = client.begin(ask(&stage.token, name().len())).await.unwrap();
    let told = std::future::poll_fn(|cx| answer.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(told.status(), 100);
    body.send_data(name().into(), true).unwrap();
    let answer = client::read(answer.await.unwrap()).await.unwrap();
    assert!(answer.status == 200 && answer.text.contains("BEGIN CERTIFICATE"), "{}", answer.text);
    for (token, length, status) in [("unknown", 100, 403), (&stage.token[..], 64 << 20, 413)] {
        let (mut answer, _body) = client.begin(ask(token, length)).await.unwrap();
        assert!(std::future::poll_fn(|cx| answer.poll_informational(cx)).await.is_none(), "{status}");
        assert_eq!(answer.await.unwrap().status(), status);
    }
    assert_eq!(client.get(HEALTH).await.status, 200);
}

async fn requests_above_stream_limit_wait_in_the_client(stage: &Http2Stage) {
    let client = stage.client().await;
    assert_eq!(client.get(HEALTH).await.status, 200);
    assert_eq!(client.requests.current_max_send_streams(), STREAMS);
    let body = name();
    for answer in join_all((0..2 * STREAMS).map(|_| client.post(ISSUE, &body))).await {
        assert!(answer.status == 200 && answer.text.contains("BEGIN CERTIFICATE"), "{}", answer.text);
    }
}

async fn streams_above_the_limit_are_refused_and_others_answered(stage: &Http2Stage) {
    let mut wire = stage.wire().await;
    let ids: Vec<u32> = (0..STREAMS as u32 + 10).map(|n| 2 * n + 1).collect();
    let heads = ids.iter().flat_map(|id| frame(HEADERS, END_HEADERS, *id, &issue(&stage.token)));
    wire.send(&heads.collect::<Vec<_>>()).await;
    let mut refused = Vec::new();
    while refused.len() < 10 {
        let (stream, reason) = wire.next_of(RESET).await.unwrap();
        assert_eq!(reason, u32::from(Reason::REFUSED_STREAM).to_be_bytes());
        refused.push(stream);
    }
    assert_eq!(refused, ids[STREAMS..]);
    let bodies = ids[..STREAMS].iter().flat_map(|id| frame(DATA, END_STREAM, *id, name().as_bytes()));
    wire.send(&bodies.collect::<Vec<_>>()).await;
    let mut answered: Vec<u32> = Vec::new();
    while answered.len() < STREAMS {
        answered.push(wire.next_of(HEADERS).await.unwrap().0);
    }
    answered.sort_unstable();
    assert_eq!(answered, ids[..STREAMS]);
}

async fn malformed_authority_is_rejected_and_connection_stays_open(stage: &Http2Stage) {
    let client = stage.client().await;
    for (authority, status) in [("ca.example:8200", 200), ("a@ca.example", 400), ("[::1]:1", 200)] {
        let request = http_types::Request::builder().uri(format!("https://{authority}/{HEALTH}"));
        let answer = client.send(request, "").await.unwrap();
        assert_eq!(answer.status, status, "{authority}: {}", answer.text);
        assert_eq!(answer.text.contains("host: must be"), status == 400, "{authority}: {}", answer.text);
    }
}

async fn oversized_header_fields_are_rejected_per_request(stage: &Http2Stage) {
    let client = stage.client().await;
    let long = "x".repeat(10_000);
    let with = |lines: usize, value: &str| {
        let request = client.request("GET", HEALTH);
        (0..lines).fold(request, |request, n| request.header(format!("x-{n}"), value))
    };
    // The size of a field list includes 32 bytes per field (RFC 9113, 6.5.2).
    for (lines, value, status) in [(6, &long[..], 200), (7, &long, 431), (90, "x", 200), (97, "x", 431)] {
        let (beside, mut body) = client.begin(client.request("POST", ISSUE)).await.unwrap();
        let answer = client.send(with(lines, value), "").await.unwrap();
        assert_eq!(answer.status, status, "{lines}: {}", answer.text);
        assert_eq!(answer.text.is_empty(), value.len() > 1 && status == 431, "nobody has looked: {}", answer.text);
        body.send_data(name().into(), true).unwrap();
        assert_eq!(beside.await.unwrap().status(), 200);
    }
    // A much larger list ends the connection; a client that is still sending may not see the reason.
    let ended = client.send(with(90, &long), "").await.err().unwrap();
    assert!(ended.is_io() || ended.reason() == Some(Reason::ENHANCE_YOUR_CALM), "{ended:?}");
    client.until_ended(SOON).await.unwrap_err();
    stage.assert_served().await;
}

async fn unauthorized_large_body_is_rejected_and_not_buffered(stage: &Http2Stage) {
    let client = stage.client_of("unknown").await;
    let large = format!("{{\"common_name\":\"{}\"}}", "x".repeat(4_000_000));
    let before = stage.resident();
    for answer in join_all((0..20).map(|_| client.post(ISSUE, &large))).await {
        assert_eq!((answer.status, &answer.text[..]), (403, "{\"errors\":[\"permission denied\"]}"));
    }
    let grown = stage.resident().saturating_sub(before);
    assert!(grown < 16 << 10, "80 MB in pieces cost {grown} KB");
    // The server does not wait for a body that never comes.
    let started = Instant::now();
    let (answer, _body) = client.begin(client.request("POST", ISSUE)).await.unwrap();
    assert_eq!(answer.await.unwrap().status(), 403);
    assert!(started.elapsed() < Duration::from_secs(7));
    stage.assert_served().await;
}

#[actix_web::test]
async fn slow_body_has_the_same_time_limit_as_over_http_1() {
    let stage = Http2Stage::with("body_timeout = \"2s\"\n").await;
    let client = stage.client().await;
    let (answer, mut body) = client.begin(client.request("POST", ISSUE)).await.unwrap();
    let started = Instant::now();
    let trickle = async {
        for octet in name().into_bytes().into_iter().take(12) {
            let _ = body.send_data(Bytes::from(vec![octet]), false);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let (answer, ()) = futures_util::future::join(answer, trickle).await;
    let answer = client::read(answer.unwrap()).await.unwrap();
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.text.contains("took too long to arrive"), "{}", answer.text);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!(client.get(HEALTH).await.status, 200, "the connection goes on");
    stage.served.terminate();
}

async fn head_has_the_length_of_get_and_no_body(stage: &Http2Stage) {
    let client = stage.client().await;
    for path in [HEALTH, "v1/pki/ca/pem", "v1/pki/crl/pem"] {
        let get = client.get(path).await;
        let head = client.send(client.request("HEAD", path), "").await.unwrap();
        assert_eq!((get.status, head.status, &head.text[..]), (200, 200, ""), "{path}");
        let length = get.header("content-length");
        assert_eq!((length, head.header("content-length")), (&get.text.len().to_string()[..], length), "{path}");
    }
    let tag = client.get("v1/pki/ca/pem").await.header("etag").to_owned();
    let known = client.request("GET", "v1/pki/ca/pem").header("if-none-match", tag);
    let known = client.send(known, "").await.unwrap();
    assert_eq!((known.status, &known.text[..], known.header("content-length")), (304, "", ""));
    let written = client.post("v1/sys/policies/acl/x", "{\"policy\":\"path \\\"x\\\" {}\"}").await;
    assert_eq!((written.status, &written.text[..], written.header("content-length")), (204, "", ""));
}

async fn all_methods_of_both_apis_work(stage: &Http2Stage) {
    let client = stage.client().await;
    let listed = client.send(client.request("LIST", "v1/pki/roles"), "").await.unwrap();
    assert!(listed.status == 200 && listed.text.contains("\"web\""), "{}", listed.text);
    let patch = client.request("PATCH", "v1/pki/roles/web").header("content-type", "application/merge-patch+json");
    assert_eq!(client.send(patch, "{\"ttl\":\"2h\"}").await.unwrap().status, 200);
    assert_eq!(client.send(client.request("DELETE", "v1/pki/roles/web"), "").await.unwrap().status, 204);
    assert_eq!(client.send(client.request("DELETE", HEALTH), "").await.unwrap().status, 405);
    assert_eq!(client.get("api/v2/organizations").await.status, 401);
    assert_eq!(client.get("v1/sys/../sys/health").await.status, 400);
    assert_eq!(client.get("nowhere").await.status, 404);
}

#[actix_web::test]
async fn a_trusted_proxy_is_known_by_its_address() {
    for (trusted, status) in [("trusted_proxies = [\"127.0.0.0/8\"]\n", 400), ("", 200)] {
        let stage = Http2Stage::with(trusted).await;
        let client = stage.client().await;
        let forwarded = |line: &str| client.request("GET", HEALTH).header("x-forwarded-for", line.to_owned());
        assert_eq!(client.send(forwarded("no address"), "").await.unwrap().status, status, "{trusted}");
        assert_eq!(client.send(forwarded("198.51.100.1"), "").await.unwrap().status, 200);
        stage.served.terminate();
    }
}

async fn rapid_reset_closes_only_its_own_connection(stage: &Http2Stage) {
    let mut wire = stage.wire().await;
    let pairs = (0..10_000).flat_map(|n| {
        let id = 2 * n + 1;
        [frame(HEADERS, END_HEADERS, id, &issue(&stage.token)), frame(RESET, 0, id, &[0, 0, 0, 8])].concat()
    });
    let (pairs, started): (Vec<u8>, _) = (pairs.collect(), Instant::now());
    // The server stops reading long before the end.
    let flood = async { drop(wire.try_send(&pairs).await) };
    futures_util::future::join(flood, stage.assert_served()).await;
    wire.until_closed(SOON).await;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    let page = stage.metrics().await;
    assert_eq!(metric(&page, "signet_connections_closed_total{reason=\"flood\"}"), 1);
    assert!(!stage.served.log().contains("h2"), "{}", stage.served.log());
}

async fn resets_of_running_requests_count_and_responses_offset_them(stage: &Http2Stage) {
    let mut wire = stage.wire().await;
    let mut id = 1;
    let mut take_back = async |wire: &mut Wire, answered: bool| {
        let _ = wire.try_send(&frame(HEADERS, END_HEADERS, id, &issue(&stage.token))).await;
        let begun = wire.all_begun().await.is_some();
        if answered {
            wire.send(&frame(DATA, END_STREAM, id, name().as_bytes())).await;
            assert_eq!(wire.next_of(HEADERS).await.unwrap().0, id);
        } else if begun {
            let _ = wire.try_send(&frame(RESET, 0, id, &[0, 0, 0, 8])).await;
        }
        id += 2;
        begun
    };
    for answered in [false, true] {
        for _ in 0..90 {
            assert!(take_back(&mut wire, answered).await);
        }
    }
    let mut most = 0;
    while take_back(&mut wire, false).await {
        most += 1;
        assert!(most < 110);
    }
    assert!(most >= 100, "{most}");
    stage.assert_served().await;
}

async fn continuation_and_empty_data_floods_close_the_connection(stage: &Http2Stage) {
    let continued = || {
        let more = frame(CONTINUATION, 0, 1, &field("x-more", &"x".repeat(100)));
        [frame(HEADERS, 0, 1, &fields("GET", "/v1/sys/health", &[])), more.repeat(10_000)].concat()
    };
    let empty =
        || [frame(HEADERS, END_HEADERS, 1, &issue(&stage.token)), frame(DATA, 0, 1, &[]).repeat(10_000)].concat();
    let small = || {
        let one = frame(DATA, 0, 1, b"x");
        // The handler does not read it: the body is still incomplete.
        [frame(HEADERS, END_HEADERS, 1, &fields("POST", "/v1/sys/health", &[])), one.repeat(60_000)].concat()
    };
    for (what, flood) in [("continued", continued()), ("empty", empty())] {
        let mut wire = stage.wire().await;
        let _ = wire.try_send(&flood).await;
        let reasons = wire.until_closed(SOON).await;
        assert!(reasons.is_empty() || reasons == [CALM], "{what}: {reasons:?}");
    }
    // Small frames cost no more memory than their window.
    let before = stage.resident();
    let mut wire = stage.wire().await;
    let _ = wire.try_send(&small()).await;
    assert!(stage.resident() - before < 16 << 10, "{} KB", stage.resident() - before);
    stage.assert_served().await;
}

async fn control_frame_floods_close_only_their_own_connection(stage: &Http2Stage) {
    let kinds = [
        frame(PING, 0, 0, &[1; 8]),
        frame(SETTINGS, 0, 0, &[]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(99, 0, 0, &[]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]),
    ];
    // The client reads no responses, which must not pile up either.
    let before = stage.resident();
    for one in &kinds {
        let mut wire = stage.wire().await;
        let flood = one.repeat(40_000);
        let flooding = async { drop(tokio::time::timeout(SOON, wire.try_send(&flood)).await) };
        futures_util::future::join(flooding, stage.assert_served()).await;
        let reasons = wire.until_closed(SOON).await;
        assert!(reasons.is_empty() || reasons == [CALM], "{one:?}: {reasons:?}");
    }
    assert!(stage.resident() - before < 32 << 10, "{} KB", stage.resident() - before);
    // A client that makes many requests may send as many control frames.
    let mut busy = stage.wire().await;
    for n in 0..1000 {
        let id = 2 * n + 1;
        let health = frame(HEADERS, END_HEADERS | END_STREAM, id, &fields("GET", "/v1/sys/health", &[]));
        let ping = frame(PING, 0, 0, &[1; 8]).repeat(3);
        let window = [frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 9]), frame(WINDOW_UPDATE, 0, id, &[0, 0, 0, 9])].concat();
        busy.send(&[health, ping, window].concat()).await;
        assert_eq!(busy.next_of(HEADERS).await.unwrap().0, id);
    }
    let page = stage.metrics().await;
    assert_eq!(metric(&page, "signet_connections_closed_total{reason=\"flood\"}"), kinds.len());
}

async fn early_rejection_has_a_json_body_and_is_counted(stage: &Http2Stage) {
    let many: Vec<_> = (0..100).map(|n| format!("x-{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (&name[..], "x")).collect();
    for (more, status, text) in [
        (&[("host", "other.test")][..], "400", "host: differs from :authority"),
        (&many, "431", "request head: more than 96 header fields"),
    ] {
        let mut wire = stage.wire().await;
        let head = fields("GET", "/v1/sys/health", more);
        wire.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)).await;
        let (_, answer) = wire.next_of(DATA).await.unwrap();
        assert_eq!(answer, json!({ "errors": [text] }).to_string().as_bytes(), "{status}");
    }
    let mut same = stage.wire().await;
    let head = fields("GET", "/v1/sys/health", &[("host", "127.0.0.1")]);
    same.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)).await;
    assert!(String::from_utf8(same.next_of(DATA).await.unwrap().1).unwrap().contains("initialized"));
    let page = stage.metrics().await;
    let none = "signet_http_requests_total{mount=\"none\",service=\"none\",operation=\"none\",route=\"none\"";
    let counted = |status| metric(&page, &format!("{none},status=\"{status}\"}}"));
    assert_eq!((counted(400), counted(431)), (1, 1));
}

#[actix_web::test]
async fn unfinished_bodies_are_evicted_unauthenticated_callers_first() {
    let stage = Http2Stage::with("max_connections = 20\n").await;
    let mut known = stage.wire().await;
    known.send(&frame(HEADERS, END_HEADERS, 1, &issue(&stage.token))).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut wire = stage.wire().await;
        let [unwrap, health] = ["POST /v1/sys/wrapping/unwrap", "GET /v1/sys/health"].map(|line| {
            let (method, path) = line.split_once(' ').unwrap();
            fields(method, path, &[])
        });
        wire.send(&[frame(HEADERS, END_HEADERS, 1, &unwrap), frame(HEADERS, END_HEADERS, 3, &health)].concat()).await;
        held.push(wire);
    }
    stage.assert_served().await;
    known.send(&frame(DATA, END_STREAM, 1, name().as_bytes())).await;
    tokio::time::timeout(SOON, known.next_of(HEADERS)).await.unwrap().unwrap();
    let page = stage.metrics().await;
    assert!(metric(&page, "signet_connections_closed_total{reason=\"full\"}") >= 20, "{page}");
    assert_eq!(metric(&page, "signet_connections_refused_total{reason=\"full\"}"), 0);
    stage.served.terminate();
}

async fn malformed_frames_are_not_logged(stage: &Http2Stage) {
    let request = |fields: &[u8]| frame(HEADERS, END_HEADERS | END_STREAM, 1, fields);
    let lower = field("X-Upper", "x");
    for text in [
        b"GET / HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(),
        frame(DATA, 0, 1, b"x"),
        frame(PING, 1, 0, &[7; 8]),
        frame(PING, 0, 0, b"short"),
        frame(HEADERS, END_HEADERS, 2, &fields("GET", "/", &[])),
        request(&[0xff; 40]),
        request(&[&fields("GET", "/", &[])[..], &lower].concat()),
        request(&fields("GET", "/", &[("connection", "close")])),
        request(&fields("GET", "no path", &[])),
        request(&fields("", "/", &[])),
        request(&fields("CONNECT", "/", &[])),
        request(&field(":method", "GET")),
    ] {
        let mut wire = stage.wire().await;
        let _ = wire.try_send(&text).await;
        let _ = wire.try_send(&frame(GOAWAY, 0, 0, &[0; 8])).await;
        wire.until_closed(SOON).await;
    }
    let mut garbage = agree(&stage.site, &stage.served, &["h2"]).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut garbage, &[b'x'; 1000]).await.unwrap();
    let connect = {
        let mut wire = stage.wire().await;
        let authority = [(":method", "CONNECT"), (":authority", "other.test:443")];
        let fields: Vec<u8> = authority.iter().flat_map(|(name, value)| field(name, value)).collect();
        wire.send(&frame(HEADERS, END_HEADERS, 1, &fields)).await;
        tokio::time::timeout(SOON, wire.next_of(HEADERS)).await.unwrap()
    };
    assert!(connect.is_some());
    stage.assert_served().await;
    let log = stage.served.log();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
}

#[actix_web::test]
async fn shutdown_finishes_open_requests_and_rejects_new_ones() {
    let stage = Http2Stage::start().await;
    let client = stage.client().await;
    let mut silent = stage.wire().await;
    silent.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields("GET", "/v1/sys/health", &[]))).await;
    silent.next_of(HEADERS).await.unwrap();
    let (under_way, mut body) = client.begin(client.request("POST", ISSUE)).await.unwrap();
    // This response shows that the earlier request has begun.
    client.get(HEALTH).await;
    let mut raw = stage.wire().await;
    raw.send(&frame(HEADERS, END_HEADERS, 1, &issue(&stage.token))).await;
    raw.all_begun().await.unwrap();
    let started = Instant::now();
    stage.served.send_sigterm();
    // An idle connection is closed immediately.
    assert_eq!(silent.until_closed(SOON).await, [0]);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    // The first GOAWAY does not yet name the last request; later requests are rejected nevertheless.
    let (_, farewell) = raw.next_of(GOAWAY).await.unwrap();
    assert_eq!(farewell, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &fields("GET", "/v1/sys/health", &[]))).await;
    let refused = raw.next_of(RESET).await.unwrap();
    assert_eq!(refused, (3, u32::from(Reason::REFUSED_STREAM).to_be_bytes().to_vec()));
    assert!(client.send(client.request("GET", HEALTH), "").await.is_err());
    raw.send(&frame(DATA, END_STREAM, 1, name().as_bytes())).await;
    assert_eq!(raw.next_of(HEADERS).await.unwrap().0, 1);
    assert_eq!(raw.until_closed(SOON).await, [0]);
    body.send_data(name().into(), true).unwrap();
    let answer = client::read(under_way.await.unwrap()).await.unwrap();
    assert!(answer.status == 200 && answer.text.contains("BEGIN CERTIFICATE"), "{}", answer.text);
    client.until_ended(SOON).await.unwrap();
    stage.served.wait();
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

/// Closing a socket with unread received bytes discards the data that is still to be sent.
#[actix_web::test]
async fn shutdown_delivers_whole_response_to_a_sending_client() {
    let stage = Http2Stage::start().await;
    let client = stage.client().await;
    let policy = json!({ "policy": "# a comment of a policy\n".repeat(10_000) });
    assert_eq!(client.post("v1/sys/policies/acl/large", &policy.to_string()).await.status, 204);
    let whole = client.get("v1/sys/policies/acl/large").await.text.len();
    let mut wire = stage.wire().await;
    let ask = fields("GET", "/v1/sys/policies/acl/large", &[("x-service-token", &stage.token)]);
    wire.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &ask)).await;
    wire.send(&frame(WINDOW_UPDATE, 0, 1, &[0x40, 0, 0, 0])).await;
    wire.next_of(HEADERS).await.unwrap();
    // By now the kernel has buffered all of it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    stage.served.send_sigterm();
    let mut length = 0;
    while length < whole {
        let piece = wire.next_of(DATA).await.unwrap_or_else(|| panic!("{length} of {whole}")).1;
        length += piece.len();
        tokio::time::sleep(Duration::from_millis(50)).await;
        wire.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0x40, 0])).await;
    }
    assert_eq!(wire.until_closed(SOON).await.last(), Some(&0));
    // The server does not wait for a client that has everything but does not close.
    let started = Instant::now();
    stage.served.wait();
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

async fn incomplete_request_head_closes_the_connection(stage: &Http2Stage) {
    let mut none = stage.wire().await;
    let mut no_preface = agree(&stage.site, &stage.served, &["h2"]).await.unwrap();
    let [mut half, mut dribbles, mut alive] = [stage.wire().await, stage.wire().await, stage.wire().await];
    let health = fields("GET", "/v1/sys/health", &[]);
    for wire in [&mut half, &mut dribbles, &mut alive] {
        wire.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &health)).await;
        wire.next_of(DATA).await.unwrap();
    }
    let started = Instant::now();
    half.send(&frame(HEADERS, 0, 3, &health)).await;
    let dribbling = async {
        let head = frame(HEADERS, END_HEADERS | END_STREAM, 3, &fields("GET", "/", &[("x", &"x".repeat(100))]));
        for octet in head {
            if dribbles.try_send(&[octet]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        dribbles.until_closed(HEAD).await
    };
    let living = async {
        // PING frames do not count as a request or the start of one.
        while started.elapsed() < HEAD {
            alive.send(&frame(PING, 0, 0, &[0; 8])).await;
            alive.next_of(PING).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        alive.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &health)).await;
        alive.next_of(HEADERS).await.unwrap();
    };
    let ends = async {
        let mut nothing = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut no_preface, &mut nothing).await;
        assert_eq!(none.until_closed(HEAD).await, [0]);
        assert_eq!(half.until_closed(HEAD).await, [0]);
        started.elapsed()
    };
    let (ended, reasons, ()) = futures_util::future::join3(ends, dribbling, living).await;
    assert_eq!(reasons, [0]);
    assert!(ended < HEAD && ended > SOON, "{ended:?}");
}

#[actix_web::test]
async fn connection_limit_evicts_idle_connections_and_not_busy_ones() {
    let stage = Http2Stage::with("max_connections = 20\n").await;
    let mut busy = stage.wire().await;
    busy.send(&frame(HEADERS, END_HEADERS, 1, &issue(&stage.token))).await;
    let mut idle = Vec::new();
    let started = Instant::now();
    for _ in 0..200 {
        let mut wire = stage.wire().await;
        wire.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields("GET", "/v1/sys/health", &[]))).await;
        wire.next_of(HEADERS).await.unwrap();
        idle.push(wire);
    }
    // The idle clients acknowledge nothing, and the server does not wait for them.
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
    assert_eq!(idle[0].until_closed(SOON).await, [0]);
    stage.assert_served().await;
    busy.send(&frame(DATA, END_STREAM, 1, name().as_bytes())).await;
    busy.next_of(HEADERS).await.unwrap();
    let page = stage.metrics().await;
    assert!(metric(&page, "signet_connections_closed_total{reason=\"full\"}") >= 180, "{page}");
    assert_eq!(metric(&page, "signet_connections_refused_total{reason=\"full\"}"), 0);
    stage.served.terminate();
}
