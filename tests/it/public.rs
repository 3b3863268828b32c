//! The public listener: it serves relying parties the same responses as the main listener, and nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use signet::auth::policy::Operation;
use signet::http::public::MAX_BODY_BYTES;
use signet::http::secrets::route::Route;
use signet::http::secrets::{PUBLIC_NOT_FOUND_ERROR, all_routes};

use crate::audit::double::Double;
use crate::process::{Dev, dev_with, openssl, signet_by};
use crate::support::{App, Client, metric, place_of, send, tests_on};

tests_on!(public: prepared_app() =>
    a_quota_of_the_mount_holds_on_both_listeners,
    public_listener_limits_body_size,
    mount_addresses_default_to_the_public_listener,
);

#[derive(PartialEq)]
struct Octets {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// The response without the parts that differ between requests: id, date and remaining lifetime.
async fn octets(request: reqwest::RequestBuilder) -> Octets {
    let response = request.send().await.unwrap();
    let changing = ["x-request-id", "date", "cache-control"];
    let mut headers: Vec<_> = response
        .headers()
        .iter()
        .filter(|(name, _)| !changing.contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap().to_vec();
    // Envelopes contain the id of their request.
    let body = match serde_json::from_slice::<Value>(&body) {
        Ok(envelope) => envelope["data"].to_string().into_bytes(),
        Err(_) => body,
    };
    Octets { status, headers, body }
}

/// Creates a mount with CRLs of every kind and a revoked certificate. Returns an OCSP request for it.
async fn prepared(app: &App) -> Vec<u8> {
    let post = async |path: &str, body: Value| {
        let answer = app.client.post(&format!("pki/{path}"), body).await;
        assert!(answer.status < 300, "{path}: {}", answer.text);
        answer
    };
    let root =
        json!({ "common_name": "Root", "key_type": "ec", "not_after": "2099-12-31T23:59:59Z", "issuer_name": "root" });
    let root = post("root/generate/internal", root).await.body["data"]["certificate"].clone();
    post("roles/r", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "24h" })).await;
    let crl = json!({ "enable_delta": true, "auto_rebuild": true, "unified_crl": true, "unified_crl_on_existing_paths": true });
    post("config/crl", crl).await;
    let leaf = post("issue/r", json!({ "common_name": "a.test" })).await.body["data"].clone();
    post("revoke", json!({ "serial_number": leaf["serial_number"] })).await;
    post("crl/rotate", json!({})).await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &Value| std::fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
    write("ca.pem", &root);
    write("leaf.pem", &leaf["certificate"]);
    let ask = ["ocsp", "-issuer", "ca.pem", "-cert", "leaf.pem", "-no_nonce", "-reqout", "request"];
    openssl(folder.path(), &ask);
    std::fs::read(folder.path().join("request")).unwrap()
}

/// A server with a public listener and the mount of [`prepared`].
async fn prepared_app() -> App {
    let app = App::builder().public().start().await;
    prepared(&app).await;
    app
}

fn filled(kind: &str, route: &Route, ocsp: &str) -> String {
    let segment = |segment: &str| match segment {
        "**request" => ocsp.to_owned(),
        ":issuer_ref" => "root".to_owned(),
        ":serial" => "0a:0b".to_owned(),
        ":name" => "r".to_owned(),
        named if named.starts_with([':', '*']) => "x".to_owned(),
        literal => literal.to_owned(),
    };
    let path: Vec<String> = route.pattern.split('/').map(segment).collect();
    format!("{}/{}", place_of(kind), path.join("/"))
}

fn url_safe(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

#[actix_web::test]
async fn public_routes_return_the_same_bytes_as_the_main_listener() {
    let app = App::builder().public().start().await;
    let request = prepared(&app).await;
    let main = app.client.with_token("");
    let public = app.public();
    let mut seen = 0;
    for (kind, route) in all_routes().filter(|(_, route)| route.on_public_listener) {
        let path = filled(kind, route, &url_safe(&request));
        let methods: &[&str] = if route.operation == Operation::Read { &["GET", "HEAD"] } else { &["POST", "PUT"] };
        for method in methods {
            let ask = |client: &Client| {
                let asked = client.request(method, &path);
                match *method {
                    "POST" | "PUT" => asked.header("Content-Type", "application/ocsp-request").body(request.clone()),
                    _ => asked,
                }
            };
            let one = octets(ask(&main)).await;
            let other = octets(ask(&public)).await;
            assert!(one == other, "{method} {path}: {} {}", one.status, other.status);
            assert!(
                one.status == 200 && (*method == "HEAD" || !one.body.is_empty()),
                "{method} {path}: {}",
                one.status
            );
            seen += 1;
        }
    }
    assert!(seen >= 50, "{seen}");
    // A token, a namespace and an impossible wrapping have the same effect as on the main listener.
    let wrapped = public.request("GET", "pki/ca/pem").header("X-Vault-Wrap-TTL", "60s");
    assert!(send(wrapped).await.text.starts_with("-----BEGIN CERTIFICATE"));
    let wrapped = public.request("GET", "pki/issuer/root/crl").header("X-Vault-Wrap-TTL", "60s");
    let answer = send(wrapped).await;
    assert!(answer.body["wrap_info"].is_null() && answer.body["data"]["crl"].is_string(), "{}", answer.text);
    // A matching ETag returns 304.
    let tag = send(main.request("GET", "pki/crl")).await.header("etag").to_owned();
    assert_eq!(send(public.request("GET", "pki/crl").header("If-None-Match", tag)).await.status, 304);
    app.stop().await;
}

#[actix_web::test]
async fn public_listener_serves_no_other_route_even_to_root() {
    let double = Double::new();
    let app = App::builder().public().audit([double.clone() as _]).start().await;
    let request = url_safe(&prepared(&app).await);
    let public = app.public();
    let told = double.count();
    let allowed: Vec<(String, bool)> = all_routes()
        .filter(|(_, route)| route.on_public_listener)
        .map(|(kind, route)| (filled(kind, route, &request), route.operation == Operation::Read))
        .collect();
    let methods = ["GET", "HEAD", "POST", "PUT", "LIST", "PATCH", "DELETE", "OPTIONS", "CONNECTED"];
    let mut seen = 0;
    for (kind, route) in all_routes() {
        let path = filled(kind, route, &request);
        for method in methods {
            let reads = matches!(method, "GET" | "HEAD");
            let writes = matches!(method, "POST" | "PUT");
            if (reads && allowed.contains(&(path.clone(), true)))
                || (writes && allowed.contains(&(path.clone(), false)))
            {
                continue;
            }
            let answer = send(public.request(method, &path).json(&json!({ "type": "pki", "common_name": "x" }))).await;
            let text = if method == "HEAD" { "" } else { PUBLIC_NOT_FOUND_ERROR };
            assert_eq!((answer.status, answer.error()), (404, text), "{method} {path}: {}", answer.text);
            seen += 1;
        }
    }
    assert!(seen > 1000, "{seen}");
    let others = "/ /v1 /v1/ /v2/pki/ca /metrics /api/v2/account/details /api/v2/organizations /openapi.json \
        /.well-known/terraform.json /ui //v1/pki/ca /v1//pki/ca /v1/pki/ca?help=1 /v1/pki/ca?list=true \
        /v1/pki/ca?list=zz /v1/pki/ca?scan=true /v1/none/ca /v1/pki/c%61%2f /v1/auth/token/ca /v1/pki/cert/ca \
        /v1/pki/cert/crl /v1/sys/health /v1/pki/issuer/root/json";
    for path in others.split(' ') {
        let answer = public.page(path).await;
        assert_eq!((answer.status, answer.error()), (404, PUBLIC_NOT_FOUND_ERROR), "{path}");
    }
    assert_eq!(double.count(), told, "nobody is told of what nobody gets");
    // Requests that the listener serves are audited like all others.
    let answer = public.get("pki/ca/pem").await;
    double.assert_told(&answer, "intent", "an authority");
    assert_eq!(double.of(&answer)[0].token, "", "its token is not looked at");
    assert_eq!(app.client.get("pki/roles/r").await.status, 200);
    assert_eq!(app.client.list("pki/issuers").await.body["data"]["keys"].as_array().unwrap().len(), 1);
    app.stop().await;
}

async fn a_quota_of_the_mount_holds_on_both_listeners(app: &App) {
    let quota = json!({ "path": "pki", "rate": 2, "interval": "1h" });
    assert!(app.client.post("sys/quotas/rate-limit/few", quota).await.status < 300);
    let mut statuses = Vec::new();
    for client in [app.public(), app.client.with_token(""), app.public()] {
        statuses.push(client.get("pki/ca/pem").await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

async fn public_listener_limits_body_size(app: &App) {
    let public = app.public();
    let post = |body: Vec<u8>| {
        send(public.request("POST", "pki/ocsp").header("Content-Type", "application/ocsp-request").body(body))
    };
    let long = post(vec![0; MAX_BODY_BYTES + 1]).await;
    assert_eq!((long.status, long.error()), (413, "request body: larger than 16384 bytes"));
    // The same limit as on the main listener.
    assert_eq!(post(vec![0; 4096]).await.status, 400);
    let address: SocketAddr = public.url("").split('/').nth(2).unwrap().parse().unwrap();
    let started = Instant::now();
    let status = tokio::task::spawn_blocking(move || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // Chunked, and without an end.
        socket.write_all(b"POST /v1/pki/ocsp HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        while socket.write_all(&[b"1000\r\n", &[7; 4096][..], b"\r\n"].concat()).is_ok() {
            socket.set_nonblocking(true).unwrap();
            let mut first = [0; 12];
            if matches!(socket.peek(&mut first), Ok(12)) {
                return String::from_utf8(first.to_vec()).unwrap();
            }
            socket.set_nonblocking(false).unwrap();
        }
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer.chars().take(12).collect()
    })
    .await
    .unwrap();
    assert_eq!(status, "HTTP/1.1 400");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

async fn mount_addresses_default_to_the_public_listener(app: &App) {
    let origin = app.public().url("").trim_end_matches("/v1/").to_owned();
    let template = json!({ "crl_distribution_points": "{{cluster_aia_path}}/issuer/{{issuer_id}}/crl/der",
        "ocsp_servers": "{{cluster_aia_path}}/ocsp", "enable_templating": true });
    let told = app.client.post("pki/config/urls", template).await;
    assert!(told.text.contains(&format!("a write without aia_path sets it to {origin}/v1/pki")), "{}", told.text);
    let written = app.client.post("pki/config/cluster", json!({ "path": "https://ca.test/v1/pki" })).await;
    assert_eq!(written.body["data"]["aia_path"], format!("{origin}/v1/pki"));
    assert!(written.text.contains("aia_path: not given"), "{}", written.text);
    assert!(written.text.contains("crl_distribution_points: loopback addresses are only reachable"));
    // The addresses in a certificate work.
    let leaf = app.client.post("pki/issue/r", json!({ "common_name": "b.test" })).await.body["data"].clone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("leaf.pem"), leaf["certificate"].as_str().unwrap()).unwrap();
    std::fs::write(folder.path().join("ca.pem"), leaf["issuing_ca"].as_str().unwrap()).unwrap();
    let points = openssl(folder.path(), &["x509", "-in", "leaf.pem", "-noout", "-ext", "crlDistributionPoints"]);
    let point = points.split("URI:").nth(1).unwrap().trim().to_owned();
    let crl = reqwest::get(&point).await.unwrap().bytes().await.unwrap();
    std::fs::write(folder.path().join("crl.der"), &crl).unwrap();
    let verified = openssl(folder.path(), &["crl", "-in", "crl.der", "-inform", "DER", "-CAfile", "ca.pem", "-noout"]);
    assert_eq!(verified, "");
    let verify = ["verify", "-crl_check", "-crl_download", "-CAfile", "ca.pem", "leaf.pem"];
    assert_eq!(openssl(folder.path(), &verify).trim(), "leaf.pem: OK");
    // Another address stays until it is explicitly removed.
    let other = app.client.post("pki/config/cluster", json!({ "aia_path": "http://pki.test/v1/pki" })).await;
    assert_eq!(other.body["data"]["aia_path"], "http://pki.test/v1/pki");
    assert!(other.body["warnings"].is_null(), "{}", other.text);
    let kept = app.client.post("pki/config/cluster", json!({})).await;
    assert_eq!(kept.body["data"]["aia_path"], "http://pki.test/v1/pki");
    let cleared = app.client.post("pki/config/cluster", json!({ "aia_path": "" })).await;
    assert_eq!(cleared.body["data"]["aia_path"], "");
}

#[actix_web::test]
async fn mount_addresses_use_the_configured_public_url() {
    let app = App::builder().settings(|s| s.public_url = Some("http://pki.test".into())).start().await;
    prepared(&app).await;
    let written = app.client.post("pki/config/cluster", json!({ "path": "https://ca.test/v1/pki" })).await;
    assert_eq!(written.body["data"]["aia_path"], "http://pki.test/v1/pki");
    app.stop().await;
}

/// A development server with a low limit of open files. Returns also its public listener.
fn limited() -> (Dev, SocketAddr) {
    let dev = dev_with(&mut signet_by("prlimit", &["--nofile=1024:1024"]), &["--public-listen", "127.0.0.1:0"]);
    let printed = dev.printed();
    let address = printed.lines().find_map(|line| line.strip_prefix("public listener on http://")).unwrap();
    let address = address.parse().unwrap();
    (dev, address)
}

fn connected(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

#[actix_web::test]
async fn flood_on_one_listener_does_not_affect_the_other() {
    let (dev, public) = limited();
    let main = dev.client();
    let relying = Client::new(public, "");
    let limits = main.page("/metrics").await.text;
    let [of_main, of_public] = ["main", "public"]
        .map(|listener| metric(&limits, &format!("signet_connections_limit{{listener=\"{listener}\"}}")));
    assert_eq!(of_public, 832 / 4);
    assert!(of_main > 500, "{of_main}");
    for (flooded, most) in [(public, of_public), (dev.socket(), of_main)] {
        // Busy connections are not evicted: half a request each.
        let mut held = connected(flooded, most + 100);
        for socket in &mut held {
            let _ = socket.write_all(b"POST /v1/pki/ocsp HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nx");
        }
        let started = Instant::now();
        if flooded == public {
            assert_eq!(main.get("sys/health").await.status, 200);
            main.post("pki/issue/dev", json!({ "common_name": "live.test" })).await.assert_status(200);
            let page = main.page("/metrics").await.text;
            assert!(metric(&page, "signet_connections_open{listener=\"main\"}") < 8);
        } else {
            assert_eq!(relying.get("pki/ca/pem").await.status, 200);
            assert_eq!(relying.get("pki/crl").await.status, 200);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        drop(held);
    }
    dev.terminate();
}

#[test]
fn incomplete_request_head_closes_the_connection() {
    let (dev, public) = limited();
    let mut socket = TcpStream::connect(public).unwrap();
    socket.write_all(b"GET /v1/pki/ca HTTP/1.1\r\n").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(14))).unwrap();
    let started = Instant::now();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!((8..14).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert!(dev.terminate() < Duration::from_secs(5));
}
