//! RSA keys over HTTP: requests for large keys must not delay others.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::mount::until;
use crate::process::{Dev, dev};

/// Requests a certificate with a new key on a separate connection.
fn ask(dev: &Dev, role: &str) -> TcpStream {
    let mut socket = TcpStream::connect(dev.socket()).unwrap();
    let body = json!({ "common_name": "a.test" }).to_string();
    let token = &dev.token;
    let length = body.len();
    let head = format!("POST /v1/pki/issue/{role} HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\n");
    socket.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    socket
}

async fn sample(dev: &Dev, name: &str, lane: &str) -> u32 {
    let page = dev.client().page("/metrics").await.text;
    let series = format!("{name}{{lane=\"{lane}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |value| value.parse().unwrap())
}

async fn waiting(dev: &Dev) -> u32 {
    sample(dev, "signet_key_generation_queue", "large").await
}

#[actix_web::test]
async fn abandoned_rsa_8192_requests_do_not_delay_smaller_keys() {
    let dev = dev(&[]);
    let client = dev.client();
    for (name, bits) in [("small", 2048), ("large", 8192)] {
        let role = json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": bits });
        assert_eq!(client.post(&format!("pki/roles/{name}"), role).await.status, 200);
    }
    let mut callers: Vec<TcpStream> = (0..40).map(|_| ask(&dev, "large")).collect();
    // One of the keys may be done by now, and requests beyond the queue were rejected, so more are needed.
    let is_full = async || {
        callers.push(ask(&dev, "large"));
        waiting(&dev).await >= 4
    };
    until("a full queue", is_full).await;
    drop(callers);
    let issued = client.post("pki/issue/small", json!({ "common_name": "a.test" })).await;
    assert_eq!(issued.status, 200, "{}", issued.text);
    // They occupy no slots either: the next request removes them from the lane.
    let is_empty = async || {
        drop(ask(&dev, "large"));
        waiting(&dev).await <= 1
    };
    until("free slots", is_empty).await;
    let made = sample(&dev, "signet_key_generation_work_seconds_count", "large").await;
    assert!(made < 4, "{made} large keys were made for nobody");
    dev.kill();
}

/// A caller has few slots in the lane, and further requests are rejected immediately.
#[actix_web::test]
async fn rsa_8192_request_is_503_if_the_lane_is_full() {
    let dev = dev(&[]);
    let role = json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": 8192 });
    assert_eq!(dev.client().post("pki/roles/large", role).await.status, 200);
    let callers: Vec<TcpStream> = (0..40).map(|_| ask(&dev, "large")).collect();
    // All requests but the running one and the queued ones get a response.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut busy = 0;
    for caller in callers.iter().cycle() {
        caller.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut answer = [0; 4096];
        let read = std::io::Read::read(&mut { caller }, &mut answer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        // Other bytes belong to the response for a key that is done by now.
        if answer.starts_with("HTTP/1.1 503 ") {
            assert!(answer.contains("retry-after: 1"), "{answer}");
            assert!(answer.contains("too many RSA keys of this size"), "{answer}");
            busy += 1;
        }
        if busy >= 40 - 17 {
            break;
        }
        assert!(Instant::now() < deadline, "{busy} are told that it is busy");
    }
    dev.kill();
}

/// RSA keys are expensive: names and issuer are validated before a key is generated.
#[actix_web::test]
async fn rejected_requests_generate_no_rsa_key() {
    let dev = dev(&[]);
    let client = dev.client();
    let role = json!({ "allow_any_name": true, "allowed_other_sans": "*", "key_type": "rsa", "key_bits": 8192 });
    assert_eq!(client.post("pki/roles/large", role).await.status, 200);
    let narrow = json!({ "common_name": "Narrow", "issuer_name": "narrow", "key_type": "ec",
        "permitted_dns_domains": "ok.test" });
    assert_eq!(client.post("pki/issuers/generate/root/internal", narrow).await.status, 200);
    let wide: Vec<String> = (0..60).map(|n| format!("{n:0>900}")).collect();
    for (path, body, rule) in [
        ("issue/large", json!({ "alt_names": "@a.test" }), "alt_names: "),
        ("issue/large", json!({ "alt_names": "a..b@x.test" }), "alt_names: "),
        ("issue/large", json!({ "other_sans": "1.3.6.1.5.5.7.8.9;UTF8:x" }), "other_sans: "),
        ("issuer/narrow/issue/large", json!({}), "name constraints of the issuing chain do not allow"),
        ("root/generate/internal", json!({ "alt_names": "@a.test", "key_bits": 8192 }), "alt_names: "),
        ("root/generate/internal", json!({ "ou": wide, "key_bits": 8192 }), "46 KiB"),
    ] {
        let mut body = body;
        body["common_name"] = "a.test".into();
        let answer = client.post(&format!("pki/{path}"), body).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
        assert!(answer.error().contains(rule), "{path}: {}", answer.text);
    }
    for name in ["signet_key_generation_work_seconds_count", "signet_key_generation_wait_seconds_count"] {
        assert_eq!(sample(&dev, name, "large").await, 0, "{name}");
    }
    dev.kill();
}
