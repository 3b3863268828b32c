//! The devices of a configuration: what their lines hold, and what happens when they fail.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signet::audit::{DeviceSettings, Peer, Target};

use crate::support::{Answer, App, Client, send};

/// The lines of a file, each of which must be JSON.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a file holds of the request that this is the answer to.
#[track_caller]
fn of(path: &Path, answer: &Answer) -> [Value; 2] {
    let id = answer.header("x-request-id");
    let own: Vec<_> = lines(path).into_iter().filter(|line| line["request"]["id"] == id).collect();
    own.try_into().unwrap_or_else(|own: Vec<Value>| panic!("{} lines of {id}: {}", own.len(), answer.text))
}

async fn authority(client: &Client) {
    let root = json!({ "common_name": "Root", "key_type": "ec", "ttl": "8760h" });
    assert_eq!(client.post("pki/root/generate/internal", root).await.status, 200);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "24h" });
    assert_eq!(client.post("pki/roles/web", role).await.status, 200);
}

async fn issue(client: &Client) -> Answer {
    client.post("pki/issue/web", json!({ "common_name": "web.test" })).await
}

/// A collector that nobody listens at yet.
fn collector(name: &str, path: &Path) -> DeviceSettings {
    let write_timeout = Duration::from_millis(300);
    DeviceSettings::new(name, Target::Socket { peer: Peer::Unix(path.into()), write_timeout })
}

/// M7 of `auth-keys-core-behaviour` 7.7; CVE-2025-62513 (raw bytes in lines), CVE-2025-62705 (JSON in texts).
#[actix_web::test]
async fn m7_lines_have_the_shape_of_the_peers_and_hashes_for_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let app = App::builder().audit_devices([DeviceSettings::file("main", &path)]).start().await;
    let root = &app.client;
    authority(root).await;
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let hash = async |text: &str| {
        let answer = root.post("sys/audit-hash/main", json!({ "input": text })).await;
        answer.body["data"]["hash"].as_str().unwrap().to_owned()
    };

    let issued = issue(root).await;
    let [asked, told] = of(&path, &issued);
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
    let (answered, data) = (&told["response"]["data"], &issued.body["data"]);
    for name in ["private_key", "certificate", "serial_number", "issuing_ca"] {
        assert_eq!(answered[name], hash(data[name].as_str().unwrap()).await, "{name}");
    }
    assert_eq!(told["response"]["status"], 200);

    let made = root.post("auth/token/create", json!({ "policies": ["default"] })).await;
    let auth = &of(&path, &made)[1]["response"]["auth"];
    assert_eq!(auth["client_token"], hash(made.body["auth"]["client_token"].as_str().unwrap()).await);
    assert_eq!(auth["accessor"], hash(made.body["auth"]["accessor"].as_str().unwrap()).await);

    let wrapped = send(root.request("POST", "auth/token/create").header("X-Service-Wrap-TTL", "1h").body("{}")).await;
    let info = &of(&path, &wrapped)[1]["response"]["wrap_info"];
    assert_eq!(info["token"], hash(wrapped.body["wrap_info"]["token"].as_str().unwrap()).await);

    let refused = issue(&root.with_token("s.unknown")).await;
    let [asked, told] = of(&path, &refused);
    assert_eq!(
        (asked["error"].as_str(), told["error"].as_str()),
        (Some("permission denied"), Some("permission denied"))
    );
    assert_eq!(asked["auth"]["client_token"], hash("s.unknown").await);

    let ca = root.get("pki/ca").await;
    let body = &of(&path, &ca)[1]["response"]["data"];
    assert_eq!(body["http_raw_body_size"].as_u64().unwrap(), ca.header("content-length").parse::<u64>().unwrap());
    assert!(body["http_raw_body"].as_str().unwrap().starts_with("hmac-sha256:"));
    let listed = root.list("pki/roles").await;
    assert_eq!(of(&path, &listed)[1]["response"]["data"], json!({ "keys": 1 }));
    let json_in_text = "{\"pin\":\"hunter2\"}";
    let looked = root.post("auth/token/lookup", json!({ "token": json_in_text, "n": 7 })).await;
    assert_eq!(of(&path, &looked)[0]["request"]["data"], json!({ "token": hash(json_in_text).await, "n": 7 }));

    let all = fs::read_to_string(&path).unwrap();
    for secret in [&root.token, made.body["auth"]["client_token"].as_str().unwrap(), "web.test", "hunter2", "BEGIN"] {
        assert!(!all.contains(secret), "{secret}");
    }
    app.stop().await;
}

#[actix_web::test]
async fn the_projects_api_leaves_lines_of_the_same_shape() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let app = App::builder().audit_devices([DeviceSettings::file("main", &path)]).start().await;
    let url = app.client.url("").replace("/v1/", "/api/v2/organizations/none/projects");
    let body = json!({ "data": { "type": "projects", "attributes": { "name": "hunter2" } } });
    let request = crate::support::http_client().post(url).header("Content-Type", "application/vnd.api+json");
    let answer = send(request.bearer_auth("hunter3").body(body.to_string())).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
    let [asked, _] = of(&path, &answer);
    assert_eq!((&asked["request"]["operation"], &asked["error"].is_string()), (&json!("create"), &true));
    let all = fs::read_to_string(&path).unwrap();
    assert!(!all.contains("hunter2") && !all.contains("hunter3"));
    app.stop().await;
}

#[actix_web::test]
async fn fields_that_a_mount_names_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let app = App::builder().audit_devices([DeviceSettings::file("main", &path)]).start().await;
    authority(&app.client).await;
    let tune =
        json!({ "audit_non_hmac_request_keys": ["common_name"], "audit_non_hmac_response_keys": ["serial_number"] });
    assert_eq!(app.client.post("sys/mounts/pki/tune", tune).await.status, 204);
    let issued = issue(&app.client).await;
    let [asked, told] = of(&path, &issued);
    assert_eq!(asked["request"]["data"]["common_name"], "web.test");
    assert_eq!(told["response"]["data"]["serial_number"], issued.body["data"]["serial_number"]);
    assert!(told["response"]["data"]["private_key"].as_str().unwrap().starts_with("hmac-sha256:"));
    app.stop().await;
}

/// M6; CVE-2025-6000: whoever may do everything cannot have a file written.
#[actix_web::test]
async fn m6_cve_2025_6000_devices_are_not_made_or_removed_by_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("audit.log"), folder.path().join("other"));
    let app = App::builder().audit_devices([DeviceSettings::file("main", &path)]).start().await;
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
    let (hash, look) = (app.with_policies(&["hash"]).await, app.with_policies(&["look"]).await);
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

/// M8; CVE-2024-0831: how one device writes is not how another one does, also after files were opened anew.
#[actix_web::test]
async fn m8_cve_2024_0831_a_raw_device_turns_no_other_raw() {
    let folder = tempfile::tempdir().unwrap();
    let (open, closed) = (folder.path().join("open.log"), folder.path().join("closed.log"));
    let raw = DeviceSettings { log_raw: true, ..DeviceSettings::file("open", &open) };
    let app = App::builder().audit_devices([raw, DeviceSettings::file("closed", &closed)]).start().await;
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
    let app = App::builder().postgres().audit_devices([DeviceSettings::file("main", &path)]).start().await;
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

/// M9: with a device that takes nothing, nothing is done.
#[actix_web::test]
async fn m9_nothing_is_done_that_no_device_takes() {
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
    authority(&app.client).await;
    assert_eq!(issue(&app.client).await.status, 200);
    let mount = app.shared().auth.mounts().get("pki").unwrap().id;
    let stored = async || {
        let authority = app.shared().engine.authority(mount).unwrap();
        authority.tools().store.counts(mount).await.unwrap().0
    };
    let before = stored().await;
    gone.send(()).unwrap();
    let text = reader.join().unwrap();
    assert!(text.ends_with(b"\n") && !text.is_empty());
    fs::remove_file(&path).unwrap();

    let refused = issue(&app.client).await;
    assert_eq!((refused.status, refused.error()), (503, "audit: the request cannot be recorded"));
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(app.client.post("auth/token/create", json!({})).await.status, 503);
    assert_eq!(app.client.get("sys/health").await.status, 200);
    assert_eq!(stored().await, before);

    let again = UnixListener::bind(&path).unwrap();
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
    let app = App::builder().audit_devices([dead, DeviceSettings::file("main", &path)]).start().await;
    authority(&app.client).await;
    let issued = issue(&app.client).await;
    assert_eq!(issued.status, 200);
    of(&path, &issued);
    let metrics = app.raw_get("/metrics").await;
    let failed = "signet_audit_entries_total{device=\"dead\",result=\"failed\"}";
    assert!(metrics.lines().any(|line| line.starts_with(failed) && !line.ends_with(" 0")), "{metrics}");
    app.stop().await;
}

/// A pipe that nobody empties: whoever waits is refused within the patience of a device, whoever comes at once, and
/// the server goes on when the pipe does.
#[actix_web::test]
async fn a_device_that_hangs_holds_nobody_for_long_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    // Holds both ends, so that opening waits for nobody.
    let mut held = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let app = App::builder().audit_devices([DeviceSettings::file("pipe", &path)]).start().await;
    let full = loop {
        let begun = Instant::now();
        let answer = app.client.get("sys/policies/acl").await;
        if answer.status != 200 {
            break (answer, begun.elapsed());
        }
    };
    assert_eq!((full.0.status, full.0.error()), (503, "audit: the request cannot be recorded"));
    assert!(full.1 < Duration::from_secs(30), "{:?}", full.1);
    let begun = Instant::now();
    assert_eq!(app.client.get("sys/policies/acl").await.status, 503);
    assert!(begun.elapsed() < Duration::from_secs(5), "whoever comes is not held: {:?}", begun.elapsed());
    assert_eq!(app.client.get("sys/health").await.status, 200);
    let emptied = std::thread::spawn(move || {
        let mut piece = [0; 65_536];
        // Ends with the process: the pipe has a writer as long as this reads.
        while held.read(&mut piece).is_ok_and(|n| n > 0) {}
    });
    let mut answer = app.client.get("sys/policies/acl").await;
    for _ in 0..100 {
        if answer.status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = app.client.get("sys/policies/acl").await;
    }
    assert_eq!(answer.status, 200, "{}", answer.text);
    drop(emptied);
    app.stop().await;
}

#[actix_web::test]
async fn a_device_that_does_not_open_is_an_error_at_the_start() {
    let app = App::start().await;
    let place = app.leave().await;
    let audit = vec![DeviceSettings::file("main", "/nowhere/audit.log")];
    let options = signet::server::Options { audit, ..place.options() };
    let refusal = signet::server::Server::open(options).await.err().unwrap();
    assert_eq!(
        refusal.text(),
        "audit: the device \"main\", /nowhere/audit.log, cannot be opened (no such file or folder)"
    );
}
