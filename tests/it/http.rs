//! HTTP itself: methods, expectations, content codings, malformed messages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flate2::read::GzDecoder;
use reqwest::Method;
use serde_json::{Value, json};
use signet::http::settings::HttpSettings;

use crate::serve::Site;
use crate::support::{App, http_client, send, tests_on};
use crate::v2::fixture::{World, resource};

tests_on!(
    server: App::start() =>
        secrets_405_lists_the_methods_of_the_path,
        body_after_100_continue_is_read_and_connection_stays_open,
        large_lists_documents_and_metrics_are_gzipped_on_request,
        responses_with_secrets_or_signatures_are_not_compressed,
        bare_line_feed_in_request_head_is_rejected,
        malformed_host_is_refused,
        request_outside_both_apis_is_rejected_with_json;
    projects: World::of(App::builder()) =>
        projects_api_405_lists_the_methods_of_the_path,
        encoded_bodies_are_rejected_in_both_apis,
        compressed_document_has_its_own_etag_valid_for_if_match;
);

struct Octets {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Vec<u8>,
}

impl Octets {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        Self { status, headers, body: response.bytes().await.unwrap().to_vec() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn unpacked(&self) -> Vec<u8> {
        let mut text = Vec::new();
        GzDecoder::new(&self.body[..]).read_to_end(&mut text).unwrap();
        text
    }
}

fn outside(app: &App, method: Method, path: &str) -> reqwest::RequestBuilder {
    let base = app.client.url("").replace("/v1/", "");
    http_client().request(method, format!("{base}{path}"))
}

async fn secrets_405_lists_the_methods_of_the_path(app: &App) {
    for (method, path, allowed) in [
        ("DELETE", "sys/health", "GET, HEAD"),
        ("GET", "pki/issue/web", "POST, PUT"),
        ("POST", "pki/roles", "GET, HEAD, LIST"),
        ("DELETE", "pki/roles/", "GET, HEAD, LIST"),
        ("POST", "pki/cert/ca", "GET, HEAD"),
        ("DELETE", "sys/policies/acl", "GET, HEAD, LIST"),
        ("FOO", "sys/health", "GET, HEAD, LIST, POST, PUT, PATCH, DELETE"),
        ("OPTIONS", "nowhere", "GET, HEAD, LIST, POST, PUT, PATCH, DELETE"),
    ] {
        let answer = send(app.client.request(method, path)).await;
        assert_eq!((answer.status, answer.header("allow")), (405, allowed), "{method} {path}: {}", answer.text);
    }
    // A caller without a right to the path does not learn its methods.
    let stranger = send(app.client.with_token("").request("GET", "pki/issue/web")).await;
    assert_eq!((stranger.status, stranger.header("allow")), (403, ""));
    for path in ["/metrics", "/.well-known/terraform.json"] {
        let answer = send(outside(app, Method::POST, path)).await;
        assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{path}");
    }
}

#[actix_web::test]
async fn secrets_405_omits_legacy_methods_when_disabled() {
    let app = App::builder().settings(|settings| settings.compat = false).start().await;
    let answer = send(app.client.request("DELETE", "pki/roles")).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "LIST"));
    let answer = send(app.client.request("PUT", "pki/issue/web")).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD, LIST, POST, PATCH, DELETE"));
    app.stop().await;
}

async fn projects_api_405_lists_the_methods_of_the_path(world: &World) {
    for (method, path, allowed) in [
        (Method::PUT, "projects/prj-x", "GET, HEAD, PATCH, DELETE"),
        (Method::DELETE, "organizations", "GET, HEAD, POST"),
        (Method::GET, "workspaces/ws-x/actions/lock", "POST"),
    ] {
        let answer = send(world.owner.request(method.clone(), path)).await;
        assert_eq!((answer.status, answer.header("allow")), (405, allowed), "{method} {path}");
    }
}

#[actix_web::test]
async fn head_of_the_metrics_is_the_head_of_get() {
    for open in [true, false] {
        let app = App::builder().settings(|settings| settings.open_metrics = open).start().await;
        let ask = |method: Method, token: &str| {
            send(outside(&app, method, "/metrics").header("X-Service-Token", token.to_owned()))
        };
        let get = ask(Method::GET, &app.client.token).await;
        let head = ask(Method::HEAD, &app.client.token).await;
        assert_eq!((get.status, head.status, &head.text[..]), (200, 200, ""), "open: {open}");
        assert_eq!(get.header("content-type"), head.header("content-type"));
        assert_eq!(ask(Method::HEAD, "x").await.status, if open { 200 } else { 403 });
        app.stop().await;
    }
}

/// Returns what a client that waits for 100 Continue receives before it sends its body.
async fn waiting(app: &App, line: &str, headers: &str, length: usize) -> String {
    let head =
        format!("{line} HTTP/1.1\r\nHost: t\r\n{headers}Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n");
    let url = app.client.url("");
    let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let read = move || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
            match socket.read(&mut piece).unwrap() {
                0 => break,
                read => answer.extend_from_slice(&piece[..read]),
            }
        }
        String::from_utf8(answer).unwrap()
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

#[actix_web::test]
async fn expect_100_gets_the_rejection_instead() {
    let small = |settings: &mut HttpSettings| settings.max_body = 1 << 20;
    let world = World::of(App::builder().settings(small)).await;
    let app = &world.app;
    app.policy("reader", "path \"sys/policies/acl/*\" { capabilities = [\"read\"] }").await;
    let reader = app.with_policies(&["reader"]).await.token;
    let service = |token: &str| format!("X-Service-Token: {token}\r\n");
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\nContent-Type: application/vnd.api+json\r\n");
    let root = &app.client.token;
    let owner = &world.owner.token;
    let encoded = format!("{}Content-Encoding: gzip\r\n", service(root));
    let policy = "POST /v1/sys/policies/acl/x";
    let projects = "POST /api/v2/organizations/acme/projects";
    for (line, headers, length, status) in [
        (policy, service(&reader), 100, "403"),
        (policy, String::new(), 100, "403"),
        (policy, service("unknown"), 2 << 20, "413"),
        (policy, service(root), 2 << 20, "413"),
        (policy, encoded, 100, "415"),
        ("POST /v1/sys/health", service(root), 100, "405"),
        (projects, String::new(), 100, "401"),
        (projects, bearer("unknown"), 100, "401"),
        (projects, bearer(owner), 2 << 20, "413"),
        (projects, format!("Authorization: Bearer {owner}\r\n"), 100, "415"),
    ] {
        let answer = waiting(app, line, &headers, length).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {headers} {length}: {answer}");
        assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "its body may still follow: {answer}");
    }
    for (line, headers) in [(policy, service(root)), (projects, bearer(owner))] {
        assert_eq!(waiting(app, line, &headers, 100).await, "HTTP/1.1 100 Continue\r\n\r\n", "{line}");
    }
    world.app.stop().await;
}

async fn body_after_100_continue_is_read_and_connection_stays_open(app: &App) {
    let body = json!({ "policy": "path \"x\" { capabilities = [\"read\"] }" }).to_string();
    let write = |close: &str| {
        format!(
            "POST /v1/sys/policies/acl/x HTTP/1.1\r\nHost: t\r\nX-Service-Token: {}\r\nContent-Length: {}\r\n{close}\
             Expect: 100-continue\r\n\r\n{body}",
            app.client.token,
            body.len()
        )
    };
    let answers = app.raw([write(""), write("Connection: close\r\n")].concat()).await;
    assert_eq!(answers.matches("HTTP/1.1 204 ").count(), 2, "{answers}");
    assert_eq!(app.client.get("sys/policies/acl/x").await.status, 200);
}

async fn encoded_bodies_are_rejected_in_both_apis(world: &World) {
    let client = &world.app.client;
    let encoded = async |request: reqwest::RequestBuilder, coding: &str| {
        send(request.header("Content-Encoding", coding.to_owned())).await
    };
    let policy = || client.request("POST", "sys/policies/acl/x").json(&json!({ "policy": "path \"x\" {}" }));
    let ocsp = || client.with_token("").request("POST", "pki/ocsp").body("x");
    let owner = &world.owner;
    let text = resource("projects", json!({ "name": "abc" })).to_string();
    let project = || {
        let request = owner.request(Method::POST, "organizations/acme/projects").body(text.clone());
        request.header("Content-Type", "application/vnd.api+json")
    };
    for coding in ["gzip", "identity, br", "GZIP", "compress"] {
        for request in [policy(), ocsp(), project()] {
            let answer = encoded(request, coding).await;
            assert_eq!((answer.status, answer.header("accept-encoding")), (415, "identity"), "{coding}");
            assert!(
                answer.text.contains("Content-Encoding: not supported for request bodies; send the body unencoded"),
                "{}",
                answer.text
            );
        }
    }
    encoded(client.with_token("").request("POST", "sys/policies/acl/x").body("x"), "gzip").await.assert_denied();
    assert_eq!(client.get("sys/policies/acl/x").await.status, 404);
    assert_eq!(encoded(policy(), "identity").await.status, 204);
    assert_eq!(encoded(project(), "Identity").await.status, 201);
    // A 415 for another reason does not name codings.
    let typed = send(owner.request(Method::POST, "organizations/acme/projects").body("{}")).await;
    assert_eq!((typed.status, typed.header("accept-encoding")), (415, ""));
}

async fn large_lists_documents_and_metrics_are_gzipped_on_request(app: &App) {
    app.policy("large", &"# a comment of a policy\n".repeat(1000)).await;
    for n in 0..100 {
        app.policy(&format!("{n:03}{}", "p".repeat(100)), "path \"x\" { capabilities = [\"read\"] }").await;
    }
    for (method, path) in [("LIST", "sys/policies/acl"), ("GET", "sys/policies/acl/large"), ("GET", "sys/policy")] {
        let plain = Octets::of(app.client.request(method, path)).await;
        assert_eq!((plain.status, plain.header("content-encoding")), (200, ""), "{path}");
        assert_eq!(plain.header("vary"), "accept-encoding", "{path}");
        let asked = || app.client.request(method, path).header("Accept-Encoding", "br, gzip;q=0.8");
        let packed = Octets::of(asked()).await;
        assert_eq!((packed.status, packed.header("content-encoding")), (200, "gzip"), "{path}");
        assert_eq!((packed.header("vary"), packed.header("content-type")), ("accept-encoding", "application/json"));
        assert!(packed.body.len() * 3 < plain.body.len(), "{path}: {}", packed.body.len());
        let [plain, packed] = [plain.body, packed.unpacked()].map(|b| serde_json::from_slice::<Value>(&b).unwrap());
        assert_eq!(plain["data"], packed["data"], "{path}");
    }
    let metrics = Octets::of(outside(app, Method::GET, "/metrics").header("Accept-Encoding", "gzip")).await;
    assert_eq!((metrics.status, metrics.header("content-encoding")), (200, "gzip"));
    assert!(String::from_utf8(metrics.unpacked()).unwrap().contains("# TYPE "));
    let small = app.client.request("GET", "sys/policies/acl/default").header("Accept-Encoding", "gzip");
    let small = Octets::of(small).await;
    assert_eq!((small.status, small.header("content-encoding"), small.header("vary")), (200, "", "accept-encoding"));
}

async fn responses_with_secrets_or_signatures_are_not_compressed(app: &App) {
    let long = "m".repeat(100);
    let meta: Value = (0..35).map(|n| (format!("k{n}"), json!(long))).collect::<serde_json::Map<_, _>>().into();
    let holder = app.client.with_new_token(json!({ "policies": ["root"], "meta": meta })).await;
    let root = json!({ "common_name": "ca", "key_type": "ec", "ttl": "8760h" });
    assert_eq!(app.client.post("pki/root/generate/internal", root).await.status, 200);
    let role = json!({ "allow_any_name": true, "max_ttl": "1h" });
    assert!(app.client.post("pki/roles/web", role).await.status < 300);
    let names: Vec<_> = (0..300).map(|n| format!("host-{n:03}.a-rather-long-name.example.test")).collect();
    let issue = json!({ "common_name": "x.example.test", "alt_names": names.join(",") });
    let create = json!({ "policies": ["root"], "meta": meta });
    let requests = [
        ("a token that looks itself up", holder.request("GET", "auth/token/lookup-self"), 4 << 10),
        ("a look-up", app.client.request("POST", "auth/token/lookup").json(&json!({ "token": holder.token })), 4 << 10),
        ("a new token", app.client.request("POST", "auth/token/create").json(&create), 0),
        ("a new certificate", app.client.request("POST", "pki/issue/web").json(&issue), 8 << 10),
        ("a CRL", app.client.request("GET", "pki/crl"), 0),
        ("a CRL as text", app.client.request("GET", "pki/crl/pem"), 0),
        ("OCSP", app.client.request("POST", "pki/ocsp").body("x"), 0),
    ];
    for (what, request, least) in requests {
        let answer = Octets::of(request.header("Accept-Encoding", "gzip")).await;
        assert!(
            (answer.status < 300 || what == "OCSP") && answer.body.len() >= least,
            "{what}: {} {}",
            answer.status,
            answer.body.len()
        );
        assert_eq!((answer.header("content-encoding"), answer.header("vary")), ("", ""), "{what}");
    }
}

#[test]
fn compressible_routes_are_authorized_reads_only() {
    use signet::http::secrets::all_routes;
    use signet::http::secrets::route::{Operation, RouteAccess};
    let mut any = false;
    for (kind, route) in all_routes().filter(|(_, route)| route.compressible) {
        let what = format!("{kind} {:?} {}", route.operation, route.pattern);
        assert!(matches!(route.operation, Operation::Read | Operation::List), "{what}");
        let handles = route.pattern.contains("accessor") || route.pattern.contains("secret-id");
        assert!(route.access != RouteAccess::Open && kind != "cubbyhole" && !handles, "{what}");
        assert!(kind != "token" || route.pattern == "roles", "{what}");
        any = true;
    }
    assert!(any);
}

async fn compressed_document_has_its_own_etag_valid_for_if_match(world: &World) {
    let path = format!("projects/{}", world.project("Net").await);
    let list = "organizations/acme/projects?page[size]=100";
    for n in 0..30 {
        world.project(&format!("Project-{n}")).await;
    }
    let ask =
        |coding: &'static str| Octets::of(world.owner.request(Method::GET, list).header("Accept-Encoding", coding));
    let plain = ask("identity").await;
    let packed = ask("gzip").await;
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), ("", "gzip"));
    assert_eq!((plain.header("vary"), packed.header("vary")), ("accept-encoding", "accept-encoding"));
    assert_eq!(packed.unpacked(), plain.body);
    let tag = plain.header("etag").trim_matches('"');
    assert_eq!(packed.header("etag"), format!("\"{tag}-gzip\""));
    let shown = world.owner.get(&path).await;
    let tag = shown.header("etag").trim_matches('"').to_owned();
    let change = async |tag: String| {
        let body = resource("projects", json!({ "description": "x" })).to_string();
        let request = world.owner.request(Method::PATCH, &path).header("If-Match", tag).body(body);
        send(request.header("Content-Type", "application/vnd.api+json")).await.status
    };
    assert_eq!(change("\"another-gzip\"".to_owned()).await, 412);
    assert_eq!(change(format!("\"{tag}-gzip\"")).await, 200);
    assert_eq!(change(format!("\"{tag}\"")).await, 412, "it was changed");
}

#[test]
fn malformed_request_is_not_logged_as_error() {
    let site = Site::initialized();
    let served = site.serve();
    let send = |text: &[u8]| {
        let mut socket = TcpStream::connect(served.socket()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = socket.write_all(text);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let endless = [b"GET /v1/sys/health HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 2 << 20]].concat();
    for text in
        [&b"GARBAGE\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", &endless]
    {
        let answer = send(text);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 400 "),
            "{answer}"
        );
    }
    let health = b"GET /v1/sys/health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    assert!(send(health).starts_with("HTTP/1.1 200 "));
    let log = served.log();
    assert!(!log.contains("ERROR") && !log.contains("stream error"), "{log}");
    served.terminate();
}

async fn bare_line_feed_in_request_head_is_rejected(app: &App) {
    let token = &app.client.token;
    let good = "GET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\r\n";
    for bad in [
        "GET /v1/sys/health HTTP/1.1\nHost: t\n\n",
        "GET /v1/sys/health HTTP/1.1\nHost: t\r\n\r\n",
        "GET /v1/sys/health HTTP/1.1\r\nHost: t\nX: y\r\n\r\n",
        "GET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\n",
        "\nGET /v1/sys/health HTTP/1.1\r\nHost: t\r\n\r\n",
    ] {
        let answer = app.raw(bad.to_owned()).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.0 400 "), "{bad:?}: {answer}");
        let answer = app.raw(format!("{good}{bad}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(" 400 Bad Request"), "{bad:?}: {answer}");
    }
    // Bodies and chunks may contain any line ends; the next head is checked again.
    let body = "{\n\"path\":\n\"x\"\n}\n";
    let head = format!("POST /v1/sys/capabilities-self HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\n");
    let last = "GET /v1/sys/health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    for body in [
        format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{body}\r\n0\r\nA: b\r\n\r\n", body.len()),
    ] {
        let answer = app.raw(format!("{head}{body}{last}")).await;
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{body:?}: {answer}");
        let answer = app.raw(format!("{head}{body}GET / HTTP/1.1\nHost: t\n\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(" 400 Bad Request"), "{body:?}: {answer}");
    }
}

async fn malformed_host_is_refused(app: &App) {
    let ask = async |host: &str| {
        app.raw(format!("GET /v1/sys/health HTTP/1.1\r\nHost:{host}\r\nConnection: close\r\n\r\n")).await
    };
    for host in [" t", " ca.example:8200", " [::1]:1", " 10.0.0.1", "t ", " my_host:"] {
        assert!(ask(host).await.starts_with("HTTP/1.1 200 "), "{host:?}");
    }
    for host in ["", " a b", " a/b", " a@b", " http://a", " a:b", " a:65536", " [::1", " a, b", " a\"b", " \u{e9}"] {
        let answer = ask(host).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("connection: close"), "{host:?}: {answer}");
        assert!(answer.contains("{\"errors\":[\"host: must be "), "{host:?}: {answer}");
    }
    let projects = "GET /api/v2/ping HTTP/1.1\r\nHost: a b\r\n\r\n";
    assert!(app.raw(projects.to_owned()).await.starts_with("HTTP/1.1 400 "));
    for twice in ["Host: a\r\nHost: a\r\n", ""] {
        let answer = app.raw(format!("GET /v1/sys/health HTTP/1.1\r\n{twice}\r\n")).await;
        assert!(answer.contains(" 400 Bad Request"), "{twice:?}: {answer}");
    }
    // HTTP/1.0 requires no Host.
    let older = app.raw("GET /v1/sys/health HTTP/1.0\r\n\r\n".to_owned()).await;
    assert!(older.contains(" 200 OK"), "{older}");
}

async fn request_outside_both_apis_is_rejected_with_json(app: &App) {
    let id = "6f1e9c1e-53d1-4a0e-9a3b-0d5b1a1d6c11";
    for (method, path, status) in
        [(Method::GET, "/favicon.ico", 404), (Method::POST, "/.well-known/terraform.json", 405)]
    {
        let answer = send(outside(app, method, path).header("x-request-id", id)).await;
        assert_eq!((answer.status, answer.header("x-request-id")), (status, id), "{path}");
        assert_eq!((answer.header("cache-control"), answer.header("content-type")), ("no-store", "application/json"));
        assert!(answer.body["errors"].is_array(), "{}", answer.text);
    }
}
