//! Configured audit devices: the contents of their entries, and their failures.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signet::audit::{AuditDeviceSettings, AuditTarget, CollectorAddress};

use crate::support::{Answer, App, Client, send, tests_on, until};

tests_on!(audited: Audited::start() =>
    audit_entries_have_compatible_format_and_hashed_texts,
    the_projects_api_leaves_lines_of_the_same_shape,
    fields_that_a_mount_names_stay_readable,
    entry_size_of_many_small_values_is_bounded,
    tokens_and_accessors_in_a_path_are_hashed,
);

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The two entries of the request with this response.
#[track_caller]
fn of(path: &Path, answer: &Answer) -> [Value; 2] {
    let id = answer.header("x-request-id");
    let own: Vec<_> = lines(path).into_iter().filter(|line| line["request"]["id"] == id).collect();
    own.try_into().unwrap_or_else(|own: Vec<Value>| panic!("{} lines of {id}: {}", own.len(), answer.text))
}

/// A server with the audit device `main`, a file at this path.
struct Audited {
    app: App,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Audited {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let app = App::builder().audit_devices([AuditDeviceSettings::file("main", &path)]).start().await;
        Self { app, path, _folder: folder }
    }

    async fn stop(self) {
        self.app.stop().await;
    }
}

async fn issue(client: &Client) -> Answer {
    client.post("pki/issue/web", json!({ "common_name": "web.test" })).await
}

/// A device that writes to a Unix socket.
fn collector(name: &str, path: &Path) -> AuditDeviceSettings {
    let write_timeout = Duration::from_millis(300);
    AuditDeviceSettings::new(name, AuditTarget::Socket { peer: CollectorAddress::Unix(path.into()), write_timeout })
}

/// Entries contain neither raw bytes (CVE-2025-62513) nor JSON inside texts (CVE-2025-62705).
async fn audit_entries_have_compatible_format_and_hashed_texts(Audited { app, path, .. }: &Audited) {
    let root = &app.client;
    root.authority("pki", json!({})).await;
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
    let hash = async |text: &str| {
        let answer = root.post("sys/audit-hash/main", json!({ "input": text })).await;
        answer.body["data"]["hash"].as_str().unwrap().to_owned()
    };

    let issued = issue(root).await;
    let [asked, told] = of(path, &issued);
    assert_eq!((&asked["type"], &told["type"]), (&json!("request"), &json!("response")));
    assert_eq!(asked["auth"], told["auth"]);
    assert_eq!(asked["request"], told["request"]);
    assert_eq!(asked["auth"]["client_token"], hash(&root.token).await);
    assert_eq!(asked["request"]["client_token"], asked["auth"]["client_token"]);
    assert_eq!(asked["auth"]["policies"], json!(["root"]));
    let request = &asked["request"];
    assert_eq!((&request["operation"], &request["path"]), (&json!("update"), &json!("pki/issue/web")));
    assert_eq!((&request["mount_point"], &request["mount_type"]), (&json!("pki/"), &json!("pki")));
    assert_eq!(request["remote_address"], "127.0.0.1");
    assert_eq!(request["data"], json!({ "common_name": hash("web.test").await }));
    let answered = &told["response"]["data"];
    let data = &issued.body["data"];
    for name in ["private_key", "certificate", "serial_number", "issuing_ca"] {
        assert_eq!(answered[name], hash(data[name].as_str().unwrap()).await, "{name}");
    }
    assert_eq!(told["response"]["status"], 200);

    let made = root.post("auth/token/create", json!({ "policies": ["default"] })).await;
    let auth = &of(path, &made)[1]["response"]["auth"];
    assert_eq!(auth["client_token"], hash(made.body["auth"]["client_token"].as_str().unwrap()).await);
    assert_eq!(auth["accessor"], hash(made.body["auth"]["accessor"].as_str().unwrap()).await);

    let wrapped = send(root.request("POST", "auth/token/create").header("X-Service-Wrap-TTL", "1h").body("{}")).await;
    let info = &of(path, &wrapped)[1]["response"]["wrap_info"];
    assert_eq!(info["token"], hash(wrapped.body["wrap_info"]["token"].as_str().unwrap()).await);

    let refused = issue(&root.with_token("s.unknown")).await;
    let [asked, told] = of(path, &refused);
    assert_eq!(
        (asked["error"].as_str(), told["error"].as_str()),
        (Some("permission denied"), Some("permission denied"))
    );
    assert_eq!(asked["auth"]["client_token"], hash("s.unknown").await);

    let ca = root.get("pki/ca").await;
    let body = &of(path, &ca)[1]["response"]["data"];
    assert_eq!(body["http_raw_body_size"].as_u64().unwrap(), ca.header("content-length").parse::<u64>().unwrap());
    assert!(body["http_raw_body"].as_str().unwrap().starts_with("hmac-sha256:"));
    let listed = root.list("pki/roles").await;
    assert_eq!(of(path, &listed)[1]["response"]["data"], json!({ "keys": 1 }));
    let json_in_text = "{\"pin\":\"hunter2\"}";
    let looked = root.post("auth/token/lookup", json!({ "token": json_in_text, "n": 7 })).await;
    assert_eq!(of(path, &looked)[0]["request"]["data"], json!({ "token": hash(json_in_text).await, "n": 7 }));

    let all = fs::read_to_string(path).unwrap();
    for secret in [&root.token, made.body["auth"]["client_token"].as_str().unwrap(), "web.test", "hunter2", "BEGIN"] {
        assert!(!all.contains(secret), "{secret}");
    }
}

async fn the_projects_api_leaves_lines_of_the_same_shape(Audited { app, path, .. }: &Audited) {
    let url = app.client.url("").replace("/v1/", "/api/v2/organizations/none/projects");
    let body = json!({ "data": { "type": "projects", "attributes": { "name": "hunter2" } } });
    let request = crate::support::http_client().post(url).header("Content-Type", "application/vnd.api+json");
    let answer = send(request.bearer_auth("hunter3").body(body.to_string())).await.assert_status(401);
    let [asked, _] = of(path, &answer);
    assert_eq!((&asked["request"]["operation"], &asked["error"].is_string()), (&json!("create"), &true));
    let all = fs::read_to_string(path).unwrap();
    assert!(!all.contains("hunter2") && !all.contains("hunter3"));
}

async fn fields_that_a_mount_names_stay_readable(Audited { app, path, .. }: &Audited) {
    app.client.authority("pki", json!({})).await;
    let tune =
        json!({ "audit_non_hmac_request_keys": ["common_name"], "audit_non_hmac_response_keys": ["serial_number"] });
    assert_eq!(app.client.post("sys/mounts/pki/tune", tune).await.status, 204);
    let issued = issue(&app.client).await;
    let [asked, told] = of(path, &issued);
    assert_eq!(asked["request"]["data"]["common_name"], "web.test");
    assert_eq!(told["response"]["data"]["serial_number"], issued.body["data"]["serial_number"]);
    assert!(told["response"]["data"]["private_key"].as_str().unwrap().starts_with("hmac-sha256:"));
}

/// CVE-2025-6000: not even a root token can make the server write a file.
#[actix_web::test]
async fn cve_2025_6000_api_cannot_create_or_remove_audit_devices() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let other = folder.path().join("other");
    let app = App::builder().audit_devices([AuditDeviceSettings::file("main", &path)]).start().await;
    let options = json!({ "file_path": other, "mode": "0755", "prefix": "#!/bin/sh" });
    for client in [&app.client, &app.client.with_token("s.unknown")] {
        let known = client.token == app.client.token;
        for method in ["POST", "PUT", "DELETE"] {
            for name in ["other", "main"] {
                let request = client.request(method, &format!("sys/audit/{name}"));
                let answer = send(request.json(&json!({ "type": "file", "options": options }))).await;
                assert_eq!(answer.status, if known { 400 } else { 403 }, "{method}: {}", answer.text);
                assert_eq!(answer.error().contains("audit device via API; use declarative"), known);
            }
        }
    }
    assert!(!other.exists());
    let devices = app.client.get("sys/audit").await;
    let expected = json!({ "type": "file", "path": "main/", "description": "", "local": true, "options": {
        "file_path": path, "mode": "0600", "fsync": "false",
        "log_raw": "false", "hmac_accessor": "true", "elide_list_responses": "true",
    } });
    assert_eq!(devices.body["data"], json!({ "main/": expected }));
    app.policy("hash", "path \"sys/audit-hash/main\" { capabilities = [\"update\"] }").await;
    app.policy("look", "path \"sys/audit\" { capabilities = [\"read\"] }").await;
    let hash = app.with_policies(&["hash"]).await;
    let look = app.with_policies(&["look"]).await;
    assert_eq!(hash.post("sys/audit-hash/main", json!({ "input": "x" })).await.status, 200);
    assert_eq!(hash.post("sys/audit-hash/none", json!({ "input": "x" })).await.status, 403);
    assert_eq!(hash.post("sys/audit-hash/main", json!({})).await.status, 400);
    assert_eq!(app.client.post("sys/audit-hash/none", json!({ "input": "x" })).await.status, 400);
    look.get("sys/audit").await.assert_denied();
    app.policy("auditor", "path \"sys/audit\" { capabilities = [\"read\", \"sudo\"] }").await;
    let auditor = app.with_policies(&["auditor"]).await;
    assert_eq!(auditor.get("sys/audit").await.body["data"], devices.body["data"]);
    auditor.get("sys/policies/acl/auditor").await.assert_denied();
    app.stop().await;
}

/// CVE-2024-0831: `log_raw` of one device does not affect another, not even after the files are reopened.
#[actix_web::test]
async fn cve_2024_0831_raw_device_does_not_affect_other_devices() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open.log");
    let closed = folder.path().join("closed.log");
    let raw = AuditDeviceSettings { log_raw: true, ..AuditDeviceSettings::file("open", &open) };
    let app = App::builder().audit_devices([raw, AuditDeviceSettings::file("closed", &closed)]).start().await;
    app.shared().audit.reopen();
    let looked = app.client.post("auth/token/lookup", json!({ "token": "hunter2" })).await;
    assert_eq!(of(&open, &looked)[0]["request"]["data"], json!({ "token": "hunter2" }));
    assert_eq!(of(&open, &looked)[0]["auth"]["client_token"], app.client.token);
    assert!(!fs::read_to_string(&closed).unwrap().contains("hunter2"));
    let hash = async |name: &str| app.client.post(&format!("sys/audit-hash/{name}"), json!({ "input": "x" })).await;
    assert_ne!(hash("open").await.body["data"]["hash"], hash("closed").await.body["data"]["hash"]);
    app.stop().await;
}

#[actix_web::test]
async fn a_text_has_the_same_hash_after_a_restart_and_on_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let app = App::builder().postgres().audit_devices([AuditDeviceSettings::file("main", &path)]).start().await;
    let hash =
        async |client: &Client| client.post("sys/audit-hash/main", json!({ "input": "x" })).await.body["data"].clone();
    let first = hash(&app.client).await;
    let other = app.another().await;
    assert_eq!(hash(&other.client.with_token(&app.client.token)).await, first);
    other.stop().await;
    let app = app.restart().await;
    assert_eq!(hash(&app.client).await, first);
    app.stop().await;
}

#[actix_web::test]
async fn unrecordable_request_is_rejected_without_effect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("collector");
    let listener = UnixListener::bind(&path).unwrap();
    let (gone, collected) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        while gone_yet(&collected) {
            if let Ok(n) = stream.read(&mut piece) {
                text.extend_from_slice(&piece[..n]);
            }
        }
        text
    });
    let app = App::builder().audit_devices([collector("main", &path)]).start().await;
    app.client.authority("pki", json!({})).await;
    assert_eq!(issue(&app.client).await.status, 200);
    let mount = app.shared().auth.mounts().get("pki").unwrap().id;
    let stored = async || {
        let authority = app.shared().engine.authority(mount).unwrap();
        authority.deps().store.counts(mount).await.unwrap().0
    };
    let before = stored().await;
    gone.send(()).unwrap();
    let text = reader.join().unwrap();
    assert!(text.ends_with(b"\n") && !text.is_empty());
    fs::remove_file(&path).unwrap();

    let refused = issue(&app.client).await;
    assert_eq!(
        (refused.status, refused.error()),
        (503, "audit: no audit device can record the request; see the server's log")
    );
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(app.client.post("auth/token/create", json!({})).await.status, 503);
    let health = app.client.get("sys/health").await;
    assert_eq!((health.status, health.header("retry-after")), (503, "1"));
    assert_eq!(stored().await, before);

    let again = UnixListener::bind(&path).unwrap();
    until("the device is back", async || app.client.get("sys/health").await.status == 200).await;
    assert_eq!(issue(&app.client).await.status, 200);
    drop(again);
    app.stop().await;
}

fn gone_yet(gone: &std::sync::mpsc::Receiver<()>) -> bool {
    gone.try_recv().is_err()
}

#[actix_web::test]
async fn one_device_that_takes_an_entry_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let dead = collector("dead", &folder.path().join("nobody"));
    let app = App::builder().audit_devices([dead, AuditDeviceSettings::file("main", &path)]).start().await;
    app.client.authority("pki", json!({})).await;
    of(&path, &issue(&app.client).await.assert_status(200));
    let metrics = app.raw_get("/metrics").await;
    let failed = "signet_audit_entries_total{device=\"dead\",result=\"failed\"}";
    assert!(metrics.lines().any(|line| line.starts_with(failed) && !line.ends_with(" 0")), "{metrics}");
    app.stop().await;
}

/// A pipe without a reader: a waiting request is rejected after the device's timeout, a new one immediately, and the
/// server recovers when the pipe is read.
#[actix_web::test]
async fn hanging_device_delays_requests_briefly_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    // Both ends are open, so that the device's open does not block.
    let mut held = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let app = App::builder().audit_devices([AuditDeviceSettings::file("pipe", &path)]).start().await;
    let full = loop {
        let begun = Instant::now();
        let answer = app.client.get("sys/policies/acl").await;
        if answer.status != 200 {
            break (answer, begun.elapsed());
        }
    };
    assert_eq!(
        (full.0.status, full.0.error()),
        (503, "audit: no audit device can record the request; see the server's log")
    );
    assert!(full.1 < Duration::from_secs(30), "{:?}", full.1);
    let begun = Instant::now();
    assert_eq!(app.client.get("sys/policies/acl").await.status, 503);
    assert!(begun.elapsed() < Duration::from_secs(5), "whoever comes is not held: {:?}", begun.elapsed());
    assert_eq!(app.client.get("sys/health").await.status, 503);
    let emptied = std::thread::spawn(move || {
        let mut piece = [0; 65_536];
        // Ends with the process: this end keeps the pipe open for writing.
        while held.read(&mut piece).is_ok_and(|n| n > 0) {}
    });
    until("the pipe is read", async || app.client.get("sys/policies/acl").await.status == 200).await;
    assert_eq!(app.client.get("sys/health").await.status, 200);
    drop(emptied);
    app.stop().await;
}

/// A full disk: the health endpoint reports it, and its end, without other requests.
#[actix_web::test]
async fn health_is_503_until_an_audit_device_accepts_entries_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    symlink("/dev/full", &path).unwrap();
    let app = App::builder().audit_devices([AuditDeviceSettings::file("main", &path)]).start().await;
    let health = async || app.client.get("sys/health").await.status;
    assert_eq!(health().await, 200, "nothing was to be written yet");
    assert_eq!(app.client.get("sys/mounts").await.status, 503);
    for _ in 0..30 {
        let answer = app.client.get("sys/health").await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(app.client.get("sys/live").await.status, 200);
    fs::remove_file(&path).unwrap();
    until("the device is back", async || health().await == 200).await;
    let own = lines(&path);
    assert_eq!(
        (own.len(), &own[0]["type"], &own[0]["request"]["path"]),
        (1, &json!("request"), &json!("sys/audit/test"))
    );
    assert!(own[0]["error"].as_str().unwrap().starts_with("audit: no entry accepted since 2"), "{}", own[0]);
    of(&path, &app.client.get("sys/mounts").await.assert_status(200));
    app.stop().await;
}

/// One working device of two keeps the server healthy, and the unreachable one does not delay requests.
#[actix_web::test]
async fn unreachable_collector_delays_once_and_reconnects_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    // No connection is accepted; once the backlog is full, connection attempts are not answered.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        held.push(stream);
        assert!(held.len() < 20);
    }
    let peer = CollectorAddress::Tcp(address.to_string());
    let silent =
        AuditDeviceSettings::new("silent", AuditTarget::Socket { peer, write_timeout: Duration::from_secs(1) });
    let app = App::builder().audit_devices([silent, AuditDeviceSettings::file("main", &path)]).start().await;
    assert_eq!(app.client.get("sys/mounts").await.status, 200, "it waits, once");
    let begun = Instant::now();
    let mut requests = 0;
    let mut late = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let asked = Instant::now();
        let answer = app.client.get("sys/mounts").await.assert_status(200);
        of(&path, &answer);
        requests += 1;
        late += usize::from(asked.elapsed() > Duration::from_millis(600));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A request that waits for the collector takes a second; otherwise all of them would be late.
    assert!(2 * late < requests, "{late} of {requests} requests waited");
    assert_eq!(app.client.get("sys/health").await.status, 200);
    drop(held);
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let told = told.clone();
            std::thread::spawn(move || {
                BufReader::new(stream.unwrap()).lines().map_while(Result::ok).for_each(|line| drop(told.send(line)));
            });
        }
    });
    let mut lines = Vec::new();
    until("entries arrive again", async || {
        let id = app.client.get("sys/mounts").await.header("x-request-id").to_owned();
        tokio::time::sleep(Duration::from_millis(50)).await;
        lines.extend(heard.try_iter());
        lines.iter().filter(|line| line.contains(&id)).count() == 2
    })
    .await;
    assert!(lines[0].contains("sys/audit/test"), "{}", lines[0]);
    app.stop().await;
}

/// An unauthenticated login cannot fill the disk: its entries are at most a small multiple of its body.
async fn entry_size_of_many_small_values_is_bounded(Audited { app, path, .. }: &Audited) {
    assert_eq!(app.client.post("sys/auth/approle", json!({ "type": "approle" })).await.status, 204);
    let ones = vec![1; 8000];
    let texts = vec![""; 990];
    for (body, is_short) in [
        (json!({ "pin": ones, "role_id": "x", "secret_id": "y" }), false),
        (json!({ "pin": texts, "role_id": "x", "secret_id": "y" }), false),
        (json!({ "other": texts, "role_id": "x", "secret_id": "y" }), false),
        (json!({ "pin": [1, 2], "role_id": "x", "secret_id": "y" }), true),
    ] {
        let before = fs::metadata(path).unwrap().len();
        let sent = body.to_string();
        let answer = app.client.with_token("").post("auth/approle/login", body).await.assert_status(400);
        let took = fs::metadata(path).unwrap().len() - before;
        let hash = app.client.post("sys/audit-hash/main", json!({ "input": sent })).await;
        for line in of(path, &answer) {
            let data = &line["request"]["data"];
            assert_eq!(data["http_raw_body"].is_null(), is_short, "{data}");
            if !is_short {
                assert_eq!(data["http_raw_body"], hash.body["data"]["hash"]);
                assert_eq!(data["http_raw_body_size"], sent.len());
                assert!(took < 4 * 1024, "{took}");
            }
        }
    }
}

async fn tokens_and_accessors_in_a_path_are_hashed(Audited { app, path, .. }: &Audited) {
    let made = app.client.post("auth/token/create", json!({ "policies": ["default"] })).await;
    let batch = app.client.post("auth/token/create", json!({ "policies": ["default"], "type": "batch" })).await;
    let text = |answer: &Answer, name: &str| answer.body["auth"][name].as_str().unwrap().to_owned();
    let token = text(&made, "client_token");
    let accessor = text(&made, "accessor");
    for (begin, secret) in [
        ("auth/token/revoke", &token),
        ("auth/token/lookup", &token),
        ("auth/token/renew", &text(&batch, "client_token")),
        ("auth/token/lookup-accessor", &accessor),
        ("auth/token/revoke-accessor", &accessor),
        ("nothing/here", &token),
    ] {
        let answer = app.client.post(&format!("{begin}/{secret}"), json!({})).await;
        let hash = app.client.post("sys/audit-hash/main", json!({ "input": secret })).await;
        for line in of(path, &answer) {
            let hash = hash.body["data"]["hash"].as_str().unwrap();
            assert_eq!(line["request"]["path"], format!("{begin}/{hash}"));
        }
        assert!(!fs::read_to_string(path).unwrap().contains(secret.as_str()), "{begin}: {}", answer.text);
    }
}

#[actix_web::test]
async fn a_device_that_does_not_open_is_an_error_at_the_start() {
    let app = App::start().await;
    let place = app.leave().await;
    let pipe = place.folder().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    for (path, why) in [
        (Path::new("/nowhere/audit.log"), "its folder does not exist"),
        (pipe.as_path(), "is a pipe without a reader, or a socket"),
    ] {
        let audit = vec![AuditDeviceSettings::file("main", path)];
        let options = signet::server::ServerOptions { audit, ..place.options() };
        let refusal = signet::server::Server::open(options).await.err().unwrap();
        let expected = format!("audit: the device \"main\", {}, cannot be opened ({why})", path.display());
        assert_eq!(refusal.text(), expected);
    }
}
