//! Lists with very many rows, which are sent while they are read, on both stores.

mod in_progress;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::audit::AuditDeviceSettings;

use super::mount::Pki;
use crate::faults::double::{Fault, Faults};
use crate::judges::judge;
use crate::support::{App, Client, send};

/// Rows per page of a list of names.
const PAGE: usize = 1_000;
/// End of the serial numbers of [`fill`], which have the maximum length.
const TAIL: &str = "0102030405060708090a0b0c0d0e0f";
/// End of every response to a list of a PKI mount.
const END: &str = "},\"wrap_info\":null,\"warnings\":null,\"auth\":null,\"mount_type\":\"pki\"}\n";

/// Runs SQL directly on the store. `n (i)` are the numbers from 1 to `rows`, `SERIAL` is replaced by the serial number
/// of one of them, `TEXT` by its text.
fn fill(app: &App, rows: usize, sql: &str) {
    if app.is_postgres() {
        let sql = sql
            .replace("SERIAL", &format!("decode('7f' || lpad(to_hex(i), 8, '0') || '{TAIL}', 'hex')"))
            .replace("TEXT", "lpad(i::text, 8, '0')");
        app.database().psql(&format!("WITH n (i) AS (SELECT generate_series(1, {rows})) {sql}"));
    } else {
        fill_file(&app.folder().join("signet.db"), rows, sql);
    }
}

/// Same as [`fill`], in the file of an embedded store.
fn fill_file(file: &Path, rows: usize, sql: &str) {
    let sql = sql.replace("SERIAL", &format!("unhex(printf('7f%08x{TAIL}', i))")).replace("TEXT", "printf('%08d', i)");
    let numbers = format!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let db = rusqlite::Connection::open(file).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    assert!(db.execute(&format!("{numbers} {sql}"), []).unwrap() >= rows);
}

fn serial(i: usize) -> String {
    let [a, b, c, d] = (i as u32).to_be_bytes();
    format!("7f:{a:02x}:{b:02x}:{c:02x}:{d:02x}:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f")
}

/// Adds `rows` certificates, copies of the only leaf.
fn copies(app: &App, rows: usize) {
    fill(app, rows, COPIES);
}

const COPIES: &str = "INSERT INTO certificate
        (mount, serial, issuer, role, common_name, not_before, not_after, issued_at, requester, der)
    SELECT mount, SERIAL, issuer, role, common_name, not_before, not_after, issued_at, requester, der
    FROM certificate, n WHERE common_name = 'localhost'";

fn revocations(app: &App, rows: usize) {
    fill(
        app,
        rows,
        "INSERT INTO revocation (mount, serial, seq, issuer, revoked_at_micros, not_after)
        SELECT mount, SERIAL, i + 1000, issuer, 0, not_after
        FROM (SELECT mount, issuer, not_after FROM certificate LIMIT 1) c, n",
    );
}

/// Starts a mount with a root and one leaf on each of the stores, and returns it with the double of its store.
async fn on_both() -> [(Pki, Arc<Faults>); 2] {
    let [embedded, postgres]: [Arc<Faults>; 2] = Default::default();
    let both = [
        (Pki::on(App::builder().faults(&embedded).start().await).await, embedded),
        (Pki::on(App::builder().faults(&postgres).postgres().start().await).await, postgres),
    ];
    for (pki, _) in &both {
        pki.leaf().await;
    }
    both
}

async fn stop(both: [(Pki, Arc<Faults>); 2]) {
    for (pki, _) in both {
        pki.stop().await;
    }
}

/// Starts a mount with `rows` copies of its leaf.
async fn with_copies(rows: usize) -> Pki {
    let pki = Pki::start().await;
    pki.leaf().await;
    copies(&pki.app, rows);
    pki
}

fn keys(body: &Value) -> Vec<String> {
    serde_json::from_value(body["data"]["keys"].clone()).unwrap_or_else(|_| panic!("no keys in {body}"))
}

/// A client that reads on demand, with a small receive buffer.
struct Slow {
    socket: TcpStream,
    taken: Vec<u8>,
}

impl Slow {
    /// Requests a list and waits for the head of the response.
    async fn ask(client: &Client, path: &str) -> Self {
        let client = client.clone();
        let path = path.to_owned();
        // The thread of the test drives the connections of PostgreSQL, so it must not block.
        tokio::task::spawn_blocking(move || Self::ask_and_wait(&client, &path)).await.unwrap()
    }

    fn ask_and_wait(client: &Client, path: &str) -> Self {
        let url = client.url(path);
        let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut socket = small(address.parse().unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let token = &client.token;
        write!(socket, "LIST /{path} HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut taken = vec![0; 64];
        socket.read_exact(&mut taken).unwrap();
        assert!(taken.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&taken));
        Self { socket, taken }
    }

    /// Reads the rest of the response. Returns it, and `true` if it is complete.
    async fn rest(mut self) -> (String, bool) {
        let reading = move || {
            let ended = self.socket.read_to_end(&mut self.taken);
            let text = String::from_utf8_lossy(&self.taken).into_owned();
            let whole = ended.is_ok() && text.ends_with("\r\n0\r\n\r\n");
            (text, whole)
        };
        tokio::task::spawn_blocking(reading).await.unwrap()
    }
}

/// Opens a connection whose receive buffer has a few kilobytes.
fn small(address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4 << 10).unwrap();
    connect(&socket, &address).unwrap();
    TcpStream::from(socket)
}

/// Waits until a number no longer changes, and returns it.
async fn settled(number: impl Fn() -> usize) -> usize {
    let started = Instant::now();
    let mut last = number();
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(700) {
        assert!(started.elapsed() < Duration::from_secs(60), "it goes on and on: {last}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = number();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

#[actix_web::test]
async fn list_of_200_000_is_complete_and_read_in_pages() {
    const ROWS: usize = 200_000;
    let both = on_both().await;
    for (pki, faults) in &both {
        copies(&pki.app, ROWS);
        let before = faults.calls("serials");
        let answer = pki.app.client.list("pki/certs").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
        assert_eq!((answer.header("transfer-encoding"), answer.header("content-length")), ("chunked", ""));
        let listed = keys(&answer.body);
        assert_eq!(listed.len(), ROWS + 2);
        assert!(listed[2..].iter().enumerate().all(|(at, key)| *key == serial(at + 1)));
        let id = answer.header("x-request-id");
        let begin = format!(
            "{{\"request_id\":\"{id}\",\"lease_id\":\"\",\"renewable\":false,\"lease_duration\":0,\"data\":{{\"keys\":[\""
        );
        assert!(answer.text.starts_with(&begin) && answer.text.ends_with(&format!("\"]{END}")));
        // No read has more than a page, and none is repeated.
        assert_eq!(faults.calls("serials") - before, ROWS / PAGE + 1);
        let part = pki.app.client.list(&format!("pki/certs?after={}&limit=2500", serial(100_000))).await;
        assert_eq!(keys(&part.body), (100_001..=102_500).map(serial).collect::<Vec<_>>());
        let short = pki.app.client.list(&format!("pki/certs?after={}&limit=900", serial(199_500))).await;
        assert_eq!(keys(&short.body), (199_501..=ROWS).map(serial).collect::<Vec<_>>());
        assert_eq!(short.header("content-length"), short.text.len().to_string());
    }
    stop(both).await;
}

#[actix_web::test]
async fn lists_with_details_have_those_of_every_name() {
    const ROWS: usize = 2_600;
    let both = on_both().await;
    for (pki, _) in &both {
        copies(&pki.app, ROWS);
        revocations(&pki.app, ROWS);
        let all = pki.list("certs").await;
        assert_eq!(all.len(), ROWS + 2);
        let cluster = pki.app.client.get("sys/health").await.body["cluster_id"].clone();
        for (path, expected) in [("certs/detailed", &all[..]), ("certs/unified-revoked", &all[2..])] {
            for (query, expected) in [("", expected), ("?limit=1200", &expected[..1200])] {
                let answer = pki.app.client.list(&format!("pki/{path}{query}")).await;
                assert_eq!(answer.header("transfer-encoding"), "chunked", "{path}");
                assert_eq!(keys(&answer.body), expected, "{path}");
                let info = answer.body["data"]["key_info"].as_object().unwrap();
                assert_eq!(info.keys().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>(), "{path}");
                // The names precede the details, as in a short list.
                assert!(answer.text.find("\"keys\":[") < answer.text.find("],\"key_info\":{"));
                assert!(answer.text.ends_with(&format!("}}}}{END}")), "{path}");
                for info in info.values() {
                    match path {
                        "certs/detailed" => assert_eq!(info["key_type"], "ec"),
                        _ => assert_eq!(info["revoking_clusters"], json!([cluster])),
                    }
                }
            }
        }
        assert_eq!(pki.list("certs/revoked").await, all[2..]);
    }
    stop(both).await;
}

#[actix_web::test]
async fn slow_reader_holds_no_store_connection_and_gets_the_list() {
    const ROWS: usize = 150_000;
    // More than the connections for reading of either store.
    const READERS: usize = 8;
    let both = on_both().await;
    for (pki, faults) in &both {
        copies(&pki.app, ROWS);
        let client = &pki.app.client;
        let mut readers = join_all((0..READERS).map(|_| Slow::ask(client, "pki/certs"))).await;
        let read = settled(|| faults.calls("serials")).await;
        // Rows that fit into neither the client's nor the kernel's buffers are not read.
        assert!(read < READERS * ROWS / PAGE * 3 / 4, "{read} pages");
        assert_eq!(faults.under_way(), 0);
        if pki.app.is_postgres() {
            let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND pid <> pg_backend_pid() AND state <> 'idle'";
            assert_eq!(pki.app.database().psql(busy).trim(), "0");
        }
        for _ in 0..20 {
            assert_eq!(client.get(&format!("pki/cert/{}", serial(7))).await.status, 200);
        }
        let (text, whole) = readers.pop().unwrap().rest().await;
        assert!(whole, "{} octets", text.len());
        assert_eq!(text.matches("\"7f:").count(), ROWS);
        // Nothing is read for clients that have disconnected.
        drop(readers);
        let read = settled(|| faults.calls("serials")).await;
        assert!(read < READERS * ROWS / PAGE, "{read} pages");
        assert_eq!(faults.under_way(), 0);
    }
    stop(both).await;
}

/// Returns the status of a complete response; `None` if it broke off.
async fn outcome(client: &Client, path: &str) -> Option<u16> {
    // An immediate break may lose the head of the response.
    let answer = client.request("LIST", path).send().await.ok()?;
    let status = answer.status().as_u16();
    let text = answer.text().await;
    if let Ok(text) = &text {
        let body: Value = serde_json::from_str(text).unwrap();
        assert_eq!(status == 200, !body["data"]["keys"].is_null(), "{text}");
    }
    text.is_ok().then_some(status)
}

#[actix_web::test]
async fn store_failure_during_a_list_aborts_the_response() {
    let both = on_both().await;
    // Excludes reads in the background, and that of the token, which is repeated every second.
    let calls = BTreeSet::from(["has mount", "serials", "certificates", "revoked serials", "revocations"]);
    for (pki, faults) in &both {
        copies(&pki.app, 2_400);
        revocations(&pki.app, 2_400);
        // The pages of each list, and the check that the mount still exists.
        for (path, reads) in [("certs", 4), ("certs/detailed", 21), ("certs/revoked", 4), ("certs/unified-revoked", 7)]
        {
            let path = format!("pki/{path}");
            let mut refused = 0;
            let mut broken = 0;
            for n in 1.. {
                faults.arm_among(&calls, n, Fault::Outage);
                let outcome = outcome(&pki.app.client, &path).await;
                match (faults.disarm().is_some(), outcome) {
                    (true, Some(503)) => refused += 1,
                    (true, None) => broken += 1,
                    (false, Some(200)) => break,
                    (met, outcome) => panic!("{path}: call {n}, met {met}: {outcome:?}"),
                }
            }
            // Only the first page is read before the status is sent.
            assert_eq!((refused, broken), (1, reads - 1), "{path}");
        }
    }
    stop(both).await;
}

#[actix_web::test]
async fn list_of_a_deleted_mount_is_not_terminated() {
    let both = on_both().await;
    for (pki, _) in &both {
        copies(&pki.app, 150_000);
        let reader = Slow::ask(&pki.app.client, "pki/certs").await;
        assert_eq!(pki.app.client.delete("sys/mounts/pki").await.status, 204);
        let (text, whole) = reader.rest().await;
        assert!(!whole && text.contains("\"7f:") && !text.contains("wrap_info"), "{} octets", text.len());
    }
    stop(both).await;
}

#[actix_web::test]
async fn the_right_to_list_is_enough_and_no_other_right_is() {
    let pki = with_copies(1_500).await;
    revocations(&pki.app, 1_500);
    for path in ["pki/certs", "pki/certs/detailed", "pki/certs/revoked", "pki/certs/unified-revoked"] {
        let rule = |rights: &str| format!("path \"{path}\" {{ capabilities = [{rights}] }}");
        pki.app.policy("lists", &rule("\"list\"")).await;
        pki.app.policy("others", &rule("\"create\", \"read\", \"update\", \"patch\", \"delete\"")).await;
        let lists = pki.app.with_policies(&["lists"]).await;
        assert!(keys(&lists.list(path).await.body).len() >= 1_500, "{path}");
        assert_eq!(keys(&lists.get(&format!("{path}?list=true")).await.body), keys(&lists.list(path).await.body));
        pki.app.with_policies(&["others"]).await.list(path).await.assert_denied();
    }
    pki.stop().await;
}

#[actix_web::test]
async fn head_of_a_long_list_has_no_body_and_keeps_the_connection() {
    let pki = with_copies(5_000).await;
    let client = pki.app.client.clone();
    let asked = move || {
        let url = client.url("");
        let address: SocketAddr = url.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!("HTTP/1.1\r\nHost: t\r\nX-Service-Token: {}\r\n", client.token);
        write!(socket, "HEAD /v1/pki/certs?list=true {head}\r\n").unwrap();
        let mut first = Vec::new();
        let mut second = String::new();
        while !first.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            socket.read_exact(&mut octet).unwrap();
            first.push(octet[0]);
        }
        write!(socket, "GET /v1/sys/live {head}Connection: close\r\n\r\n").unwrap();
        socket.read_to_string(&mut second).unwrap();
        (String::from_utf8(first).unwrap(), second)
    };
    let (first, second) = tokio::task::spawn_blocking(asked).await.unwrap();
    assert!(first.starts_with("HTTP/1.1 200 OK"), "{first}");
    assert!(!first.contains("-length") && !first.contains("chunked"), "{first}");
    assert!(second.starts_with("HTTP/1.1 200 OK"), "{second}");
    pki.stop().await;
}

#[actix_web::test]
async fn long_list_is_wrapped_up_to_the_wrapping_limit() {
    let pki = with_copies(100_000).await;
    let wrapped = async |query: &str| {
        let request = pki.app.client.request("LIST", &format!("pki/certs{query}"));
        send(request.header("X-Service-Wrap-TTL", "1h")).await
    };
    let short = wrapped("?limit=5000").await;
    let token = short.body["wrap_info"]["token"].as_str().unwrap();
    let unwrapped = pki.app.client.with_token(token).post("sys/wrapping/unwrap", json!({})).await;
    let plain = pki.app.client.list("pki/certs?limit=5000").await;
    assert_eq!((keys(&unwrapped.body).len(), keys(&unwrapped.body)), (5000, keys(&plain.body)));
    let long = wrapped("").await;
    assert_eq!(long.status, 400);
    assert_eq!(long.error(), "wrap-ttl: the response exceeds the limit of 1048576 bytes for wrapping");
    pki.stop().await;
}

#[actix_web::test]
async fn long_list_is_audited_before_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let pki = Pki::on(App::builder().audit_devices([AuditDeviceSettings::file("main", &path)]).start().await).await;
    pki.leaf().await;
    copies(&pki.app, 3_000);
    let lines = |id: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["request"]["id"] == id).collect()
    };
    for (query, data) in [("?limit=7", json!({ "keys": 7 })), ("", json!({ "http_content_type": "application/json" }))]
    {
        let answer = pki.app.client.request("LIST", &format!("pki/certs{query}")).send().await.unwrap();
        let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
        // The audit entries are written before the client reads the body.
        let told = lines(&id);
        assert_eq!((told.len(), &told[0]["request"]["operation"]), (2, &json!("list")));
        assert_eq!((&told[1]["response"]["status"], &told[1]["response"]["data"]), (&json!(200), &data));
        answer.text().await.unwrap();
        assert_eq!(lines(&id).len(), 2);
    }
    pki.stop().await;
}

#[actix_web::test]
async fn hvac_reads_a_long_list() {
    let pki = with_copies(3_000).await;
    let address = pki.app.client.url("").strip_suffix("/v1/").unwrap().to_owned();
    let token = pki.app.client.token.clone();
    let work = move || judge("hvac_lists.py", &[&address, &token, "3002"]);
    tokio::task::spawn_blocking(work).await.unwrap();
    pki.stop().await;
}

/// Creates a role with one secret id.
async fn with_secret_id(client: &Client) {
    assert_eq!(client.post("sys/auth/approle", json!({ "type": "approle" })).await.status, 204);
    assert_eq!(client.post("auth/approle/role/r", json!({})).await.status, 204);
    assert_eq!(client.post("auth/approle/role/r/secret-id", json!({})).await.status, 200);
}

/// Copies of the secret id.
const SECRET_IDS: &str = "INSERT INTO secret_id (mount, hash, role, accessor, updated_at_micros, body)
    SELECT mount, SERIAL, role, 'zz' || TEXT, updated_at_micros, body FROM secret_id, n";

#[actix_web::test]
async fn other_lists_that_grow_are_read_in_pages_too() {
    const ROWS: usize = 10_500;
    for app in [App::start().await, App::builder().postgres().start().await] {
        let client = &app.client;
        with_secret_id(client).await;
        let uuid = |i: usize| format!("zz{i:08}");
        for sql in [
            SECRET_IDS,
            "INSERT INTO entity (id, name, version, body) SELECT 'zz' || TEXT, 'zz' || TEXT, 1, SERIAL FROM n",
            "INSERT INTO entity_alias (id, accessor, name, entity, version, body)
            SELECT 'zz' || TEXT, 'auth_none', TEXT, 'zz' || TEXT, 1, SERIAL FROM n",
            "INSERT INTO lease (id, mount, serial, token, issued_at, expires_at)
            SELECT 'gone/issue/r/zz' || TEXT, (SELECT MAX(id) FROM mount), SERIAL, SERIAL, 1, 9999999999 FROM n",
        ] {
            fill(&app, ROWS, sql);
        }
        for (path, has_info) in [
            ("auth/approle/role/r/secret-id", false),
            ("identity/entity/id", true),
            ("identity/entity/name", true),
            ("identity/entity-alias/id", true),
            ("sys/leases/lookup/gone/issue/r", false),
        ] {
            let answer = client.list(path).await;
            assert_eq!((answer.status, answer.header("transfer-encoding")), (200, "chunked"), "{path}");
            assert!(answer.body.is_object(), "{path}: {}", &answer.text[answer.text.len().saturating_sub(200)..]);
            let listed: Vec<String> = keys(&answer.body).into_iter().filter(|key| key.starts_with("zz")).collect();
            assert_eq!(listed, (1..=ROWS).map(uuid).collect::<Vec<_>>(), "{path}");
            let info = answer.body["data"]["key_info"].as_object();
            assert_eq!(info.map(|info| info[&uuid(ROWS)]["id"].clone()), has_info.then(|| json!(uuid(ROWS))), "{path}");
            let part = client.list(&format!("{path}?after={}&limit=3", uuid(10_000))).await;
            assert_eq!(keys(&part.body), (10_001..=10_003).map(uuid).collect::<Vec<_>>(), "{path}");
            assert_eq!(client.list(&format!("{path}?after=zzz")).await.status, 404, "{path}");
        }
        // A segment represents all leases below it.
        assert_eq!(keys(&client.list("sys/leases/lookup/gone").await.body), ["issue/"]);
        app.stop().await;
    }
}
