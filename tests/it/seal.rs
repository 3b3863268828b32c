//! Seals: a key in a file, in a SoftHSM token, at a key service; key rotation, changes between them, and errors. The
//! real program with configuration files.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aws_sdk_kms::types::KeySpec;
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;

use crate::cluster;
use crate::process::{self, refused, write_private};
use crate::serve::{Served, Site};
use crate::signers::cloud::ministack::Ministack;
use crate::signers::hsm::{Hsm, PIN, SOFTHSM};
use crate::support::{Client, until};

fn run(command: &mut Command) -> String {
    let (out, err) = process::run(command);
    assert!(!format!("{out}{err}").contains(PIN), "the PIN is printed");
    out
}

const ROTATE: [&str; 2] = ["operator", "rotate-seal-key"];
const STATUS: [&str; 2] = ["operator", "seal-status"];

async fn prepare(client: &Client) {
    client.enable("sys/mounts/pki", "pki").await;
    client.authority("pki", json!({ "ttl": "1h" })).await;
}

async fn issues(client: &Client) {
    client.post("pki/issue/web", json!({ "common_name": "a.test" })).await.assert_status(200);
}

async fn site() -> (Site, String) {
    let site = Site::new();
    let token = site.init();
    let served = site.serve();
    prepare(&served.client(&token)).await;
    served.terminate();
    (site, token)
}

async fn serves(site: &Site, token: &str, command: &mut Command) {
    let served = Served::start(command, &site.path("log"));
    issues(&served.client(token)).await;
    served.terminate();
}

fn key_files(site: &Site) -> Vec<String> {
    let files = std::fs::read_dir(site.path("data")).unwrap().map(|file| file.unwrap());
    let mut names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("seal.key"));
    names.sort();
    names
}

#[actix_web::test]
async fn rotation_replaces_the_key_file() {
    let (site, token) = site().await;
    let before = run(&mut site.command(&STATUS));
    assert!(before.contains("seal type:      file\n") && before.contains("data key term:  1\n"), "{before}");
    let current = site.path("data/seal.key");
    let owner = || {
        let found = std::fs::metadata(&current).unwrap();
        (found.uid(), found.gid())
    };
    // A key file of the server's user, rotated by root.
    if owner().0 == 0 {
        std::os::unix::fs::chown(&current, Some(4711), Some(4712)).unwrap();
    }
    let owned_by = owner();
    // The leftover of an interrupted attempt.
    write_private(site.path("data/seal.key.new"), "");
    let said = run(&mut site.command(&ROTATE));
    assert!(said.starts_with("the store is sealed by the file key ") && said.contains("keep a copy"), "{said}");
    assert_eq!(owner(), owned_by);
    let after = run(&mut site.command(&STATUS));
    let key = |status: &str| status.lines().nth(1).unwrap().to_owned();
    assert!(key(&before) != key(&after) && after.contains("left to re-seal: 0\n"), "{after}");
    serves(&site, &token, &mut site.command(&["serve"])).await;

    // The previous key file is kept, but no longer opens the store.
    let files = key_files(&site);
    assert!(files.len() == 2 && files[1].starts_with("seal.key.old-"), "{files:?}");
    let old = site.path("data").join(&files[1]);
    assert_eq!(std::fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o600);
    let old_key = std::fs::read_to_string(&old).unwrap();
    let error = refused(site.command(&["serve"]).env("SIGNET_SEAL_KEY", old_key.trim()));
    assert!(error.contains("seal key: this store is sealed by the file key"), "{error}");

    // An interrupted rotation, before the renames: a second run completes it.
    std::fs::rename(&current, site.path("data/seal.key.new")).unwrap();
    std::fs::rename(&old, &current).unwrap();
    assert!(refused(&mut site.command(&["serve"])).contains("seal key: this store is sealed by"));
    run(&mut site.command(&ROTATE));
    assert_eq!(key_files(&site), files);
    serves(&site, &token, &mut site.command(&["serve"])).await;
    let served = site.serve();
    assert!(refused(&mut site.command(&ROTATE)).contains("in use by another signet process"));
    assert_eq!(key_files(&site), files, "what was refused leaves nothing");
    served.terminate();
}

#[actix_web::test]
async fn a_key_of_the_environment_is_moved_by_a_new_configuration() {
    let (site, token) = site().await;
    let [key, new] = [std::fs::read_to_string(site.path("data/seal.key")).unwrap(), "5a".repeat(32)];
    let environment = |command: &mut Command| {
        command.env("SIGNET_SEAL_KEY", key.trim());
    };
    std::fs::remove_file(site.path("data/seal.key")).unwrap();
    let mut alone = site.command(&ROTATE);
    environment(&mut alone);
    assert!(refused(&mut alone).contains("SIGNET_NEW_SEAL_KEY"));
    let to = site.path("signet.toml");
    let mut moved = site.command(&ROTATE);
    environment(&mut moved);
    let said = run(moved.arg("--to").arg(&to).env("SIGNET_NEW_SEAL_KEY", &new));
    assert_eq!(run(&mut moved), said);
    let mut strange = site.command(&ROTATE);
    strange.env("SIGNET_SEAL_KEY", key.trim()).arg("--to").arg(&to).env("SIGNET_NEW_SEAL_KEY", "6b".repeat(32));
    assert!(refused(&mut strange).contains("seal key: this store is sealed by"));
    let mut before = site.command(&["serve"]);
    environment(&mut before);
    assert!(refused(&mut before).contains("seal key: this store is sealed by"));
    serves(&site, &token, site.command(&["serve"]).env("SIGNET_SEAL_KEY", &new)).await;
    // Only the seal may differ.
    let other = site.path("other.toml");
    std::fs::write(&other, format!("data_dir = \"{}\"\n", site.path("elsewhere").display())).unwrap();
    let error = refused(site.command(&ROTATE).env("SIGNET_SEAL_KEY", &new).arg("--to").arg(other));
    assert!(error.contains("--to: must have the same store"), "{error}");
}

struct Tokens {
    hsm: Hsm,
    _folder: tempfile::TempDir,
}

impl Tokens {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hsm = Hsm::new(folder.path());
        hsm.token("one");
        Self { hsm, _folder: folder }
    }

    fn configure(&self, site: &Site, file: &str, more: &str) -> PathBuf {
        let path = site.path(file);
        let pin = site.path("pin");
        write_private(&pin, format!("{PIN}\n"));
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nworkers = 1\npkcs11_libraries = {{ hsm = \"{SOFTHSM}\" }}\n\
             [seal]\ntype = \"pkcs11\"\nlibrary = \"hsm\"\ntoken_label = \"one\"\npin_file = \"{}\"\n{more}\n",
            site.path("data").display(),
            pin.display()
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, words: &[&str], file: &Path) -> Command {
        let mut command = crate::process::signet();
        command.args(words).arg("--config").arg(file).env("SOFTHSM2_CONF", self.hsm.settings());
        command
    }
}

#[actix_web::test]
async fn a_store_moves_to_a_token_and_back() {
    let tokens = Tokens::new();
    tokens.hsm.aes("one", "aes", "0a");
    tokens.hsm.import("one", "rsa", "0b", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    let (site, token) = site().await;
    let plain = site.path("signet.toml");
    for (seal, shown) in [
        ("key_label = \"aes\"", "aes (AES-GCM)"),
        ("key_id = \"0b\"\nmechanism = \"RSA-OAEP-SHA1\"", "0b (RSA-OAEP-SHA1)"),
    ] {
        let sealed = tokens.configure(&site, "hsm.toml", seal);
        let error = refused(&mut tokens.command(&["serve"], &sealed));
        assert!(error.contains("rotate-seal-key --to to change the seal"), "{error}");
        let said = run(tokens.command(&ROTATE, &plain).arg("--to").arg(&sealed));
        assert!(said.starts_with("the store is sealed by the pkcs11 key "), "{said}");
        assert_eq!(run(tokens.command(&ROTATE, &plain).arg("--to").arg(&sealed)), said, "again");
        assert!(refused(&mut site.command(&["serve"])).contains("seal: this store is sealed by the pkcs11 key"));
        let status = run(&mut tokens.command(&STATUS, &sealed));
        assert!(status.contains("seal type:      pkcs11\n") && status.contains(shown), "{status}");
        serves(&site, &token, &mut tokens.command(&["serve"], &sealed)).await;
        // The same key wraps another root key.
        run(&mut tokens.command(&ROTATE, &sealed));
        serves(&site, &token, &mut tokens.command(&["serve"], &sealed)).await;
        run(tokens.command(&ROTATE, &sealed).arg("--to").arg(&plain));
        serves(&site, &token, &mut site.command(&["serve"])).await;
    }
}

#[actix_web::test]
async fn new_store_sealed_by_hsm_runs_while_the_hsm_is_absent() {
    let tokens = Tokens::new();
    tokens.hsm.aes("one", "aes", "0a");
    let site = Site::new();
    let sealed = tokens.configure(&site, "hsm.toml", "key_label = \"aes\"\nkey_id = \"0a\"");
    let said = run(&mut tokens.command(&["operator", "init"], &sealed));
    let token = said.lines().find_map(|line| line.strip_prefix("token: ")).unwrap().to_owned();
    assert!(!said.contains("seal key:") && key_files(&site).is_empty(), "{said}");
    let served = Served::start(&mut tokens.command(&["serve"], &sealed), &site.path("log"));
    let client = served.client(&token);
    prepare(&client).await;
    assert_eq!(client.get("sys/seal-status").await.body["type"], "pkcs11");
    // With access to the token, an operator gets another root token from the running server.
    let another = run(&mut tokens.command(&["operator", "new-root-token"], &sealed));
    let another = another.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    assert_eq!(served.client(another).get("sys/seal-status").await.body["type"], "pkcs11");
    assert_eq!(served.client(another).get("auth/token/lookup-self").await.status, 200);
    let pin = site.path("pin");
    std::fs::write(&pin, "canary-4712").unwrap();
    let error = refused(&mut tokens.command(&["operator", "new-root-token"], &sealed));
    assert!(error.contains("CKR_PIN_INCORRECT") && !error.contains("canary"), "{error}");
    std::fs::write(&pin, PIN).unwrap();
    // Without the token, a running server continues and can even rotate the data key.
    let away = tokens.hsm.folder().join("away");
    std::fs::rename(tokens.hsm.folder().join("tokens"), &away).unwrap();
    issues(&client).await;
    assert_eq!(client.post("sys/rotate", json!({})).await.status, 204);
    assert_eq!(client.get("sys/key-status").await.body["data"]["term"], 2);
    issues(&client).await;
    served.terminate();
    std::fs::create_dir(tokens.hsm.folder().join("tokens")).unwrap();
    for words in [&["serve"][..], &STATUS, &ROTATE] {
        let error = refused(&mut tokens.command(words, &sealed));
        assert!(error.contains("seal: pkcs11 token: not found"), "{error}");
    }
    std::fs::remove_dir(tokens.hsm.folder().join("tokens")).unwrap();
    std::fs::rename(&away, tokens.hsm.folder().join("tokens")).unwrap();
    serves(&site, &token, &mut tokens.command(&["serve"], &sealed)).await;
}

#[actix_web::test]
async fn hsm_seal_problems_are_reported_and_change_nothing() {
    let tokens = Tokens::new();
    tokens.hsm.aes("one", "aes", "0a");
    tokens.hsm.aes("one", "other", "0c");
    tokens.hsm.import("one", "rsa", "0b", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    let (site, token) = site().await;
    let plain = site.path("signet.toml");
    let move_to = |seal: &str| {
        let sealed = tokens.configure(&site, "hsm.toml", seal);
        let mut command = tokens.command(&ROTATE, &plain);
        command.arg("--to").arg(sealed);
        command
    };
    for (seal, text) in [
        ("key_label = \"none\"", "seal: the token has no key with this label or id"),
        ("key_label = \"rsa\"", "seal: the token has no key with this label or id"),
        ("key_label = \"aes\"\nmechanism = \"RSA-OAEP-SHA1\"", "seal: the token has no key with this label or id"),
        // SoftHSM supports OAEP only with SHA-1.
        ("key_label = \"rsa\"\nmechanism = \"RSA-OAEP\"", "seal: pkcs11 module: C_EncryptInit"),
    ] {
        let error = refused(&mut move_to(seal));
        assert!(error.contains(text), "{seal}: {error}");
    }
    let mut wrong = move_to("key_label = \"aes\"");
    std::fs::write(site.path("pin"), "canary-4712").unwrap();
    let error = refused(&mut wrong);
    assert!(error.contains("CKR_PIN_INCORRECT") && !error.contains("canary"), "{error}");
    let mut open = move_to("key_label = \"aes\"");
    std::fs::set_permissions(site.path("pin"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&mut open).contains("seal.pin_file: "));
    let mut strange = move_to("key_label = \"aes\"");
    let text = std::fs::read_to_string(site.path("hsm.toml")).unwrap().replace("library = \"hsm\"", "library = \"x\"");
    std::fs::write(site.path("hsm.toml"), text).unwrap();
    assert!(refused(&mut strange).contains("seal.library: no kms_library configured with name \"x\""));
    serves(&site, &token, &mut site.command(&["serve"])).await;

    run(&mut move_to("key_label = \"aes\""));
    let other = tokens.configure(&site, "hsm.toml", "key_label = \"other\"");
    let error = refused(&mut tokens.command(&["serve"], &other));
    assert!(error.contains("aes (AES-GCM), and the configuration names the pkcs11 key other"), "{error}");
    let mechanism = tokens.configure(&site, "hsm.toml", "key_label = \"rsa\"\nmechanism = \"RSA-OAEP-SHA1\"");
    let error = refused(&mut tokens.command(&["serve"], &mechanism));
    assert!(error.contains("seal: this store is sealed by the pkcs11 key aes (AES-GCM)"), "{error}");
}

#[actix_web::test]
async fn a_store_moves_to_a_key_service_and_back() {
    let ministack = Ministack::start();
    let client = ministack.client();
    let make = async |spec: KeySpec, usage: &str| {
        let key = client.create_key().key_spec(spec).key_usage(usage.into()).send().await.unwrap();
        key.key_metadata.unwrap().key_id
    };
    let key = make(KeySpec::SymmetricDefault, "ENCRYPT_DECRYPT").await;
    let other = "alias/none".to_owned();
    let (site, token) = site().await;
    let plain = site.path("signet.toml");
    let configure = |key: &str, url: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nworkers = 1\nseal.type = \"cloudakms\"\nseal.kms_key = \"{key}\"\n\
             seal.region = \"us-east-1\"\nseal.endpoint = \"{url}\"\nseal.access_key = \"test\"\n",
            site.path("data").display()
        );
        std::fs::write(site.path("kms.toml"), text).unwrap();
        site.path("kms.toml")
    };
    let command = |words: &[&str], file: &Path| {
        let mut command = crate::process::signet();
        command.args(words).arg("--config").arg(file).env("SIGNET_SEAL_SECRET_KEY", "test");
        // The key service is called directly, never through a proxy of the environment, which does not exist here.
        command.env("HTTP_PROXY", "http://127.0.0.1:9").env_remove("NO_PROXY").env_remove("no_proxy");
        command
    };
    let with_new = |command: &mut Command, file: PathBuf| {
        command.arg("--to").arg(file).env("SIGNET_NEW_SEAL_SECRET_KEY", "test").env_remove("SIGNET_SEAL_SECRET_KEY");
    };
    let mut absent = command(&ROTATE, &plain);
    with_new(&mut absent, configure(&other, &ministack.url));
    assert!(refused(&mut absent).contains("seal: cloudakms: there is no such key"));
    let mut moved = command(&ROTATE, &plain);
    let sealed = configure(&key, &ministack.url);
    with_new(&mut moved, sealed.clone());
    let said = run(&mut moved);
    assert!(said.contains(&format!("the store is sealed by the cloudakms key {key}")), "{said}");
    serves(&site, &token, &mut command(&["serve"], &sealed)).await;
    assert!(refused(&mut site.command(&["serve"])).contains("this store is sealed by the cloudakms key"));
    let away = configure(&key, "http://127.0.0.1:9");
    let error = refused(&mut command(&["serve"], &away));
    assert!(error.contains("seal: cloudakms: the key service: cannot be reached"), "{error}");
    let back = configure(&key, &ministack.url);
    run(command(&ROTATE, &back).arg("--to").arg(&plain));
    serves(&site, &token, &mut site.command(&["serve"])).await;
}

#[actix_web::test]
async fn running_nodes_continue_during_seal_rotation() {
    let site = Site::new();
    let database = cluster::shared().database();
    site.configure_database(&database.url(), "key", "");
    let token = site.init();
    let nodes = ["log-1", "log-2"].map(|log| Served::start(&mut site.command(&["serve"]), &site.path(log)));
    let clients = nodes.each_ref().map(|node| node.client(&token));
    prepare(&clients[0]).await;
    run(&mut site.command(&ROTATE));
    for (rotating, term) in [(0, 2), (1, 3)] {
        join_all(clients.iter().map(issues)).await;
        assert_eq!(clients[rotating].post("sys/rotate", json!({})).await.status, 204);
        for client in &clients {
            assert_eq!(client.get("sys/key-status").await.body["data"]["term"], term);
            let made = client.with_new_token(json!({ "ttl": "1h" })).await.token;
            for reader in &clients {
                assert_eq!(reader.with_token(&made).get("auth/token/lookup-self").await.status, 200);
            }
        }
    }
    let [first, second] = nodes;
    first.terminate();
    serves(&site, &token, &mut site.command(&["serve"])).await;
    issues(&clients[1]).await;
    second.terminate();
}

async fn wait_for(client: &Client, path: &str, status: u16) {
    until(path, async || client.get(path).await.status == status).await;
}

#[actix_web::test]
async fn node_paused_during_seal_rotation_resumes_with_the_new_key() {
    let site = Site::new();
    let database = cluster::shared().database();
    let configure = |file: &str, key: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\ndatabase_url = \"{}\"\nseal_key_file = \"{}\"\n",
            database.url(),
            site.path(key).display()
        );
        std::fs::write(site.path(file), text).unwrap();
    };
    configure("signet.toml", "key");
    configure("second.toml", "second.key");
    let token = site.init();
    std::fs::copy(site.path("key"), site.path("second.key")).unwrap();
    let first = site.serve();
    let mut second = crate::process::signet();
    second.args(["serve", "--config"]).arg(site.path("second.toml"));
    let second = Served::start(&mut second, &site.path("log-2"));
    let [here, there] = [&first, &second].map(|node| node.client(&token));
    prepare(&here).await;
    wait_for(&there, "pki/roles/web", 200).await;
    let shown = async || there.get("sys/metrics?format=prometheus").await.text;
    assert!(shown().await.contains("signet_changes_followed 1\n"));

    second.signal(Signal::STOP);
    run(&mut site.command(&ROTATE));
    assert_eq!(here.get("sys/key-status").await.status, 200);
    // After a minute, the handover for running nodes is removed.
    database.psql("UPDATE meta SET value = '' WHERE name = 'root-key-handover'");
    assert_eq!(here.post("sys/rotate", json!({})).await.status, 204);
    let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "2h" });
    assert_eq!(here.post("pki/roles/web", role).await.status, 200);
    second.signal(Signal::CONT);
    wait_for(&there, "sys/health", 503).await;
    for _ in 0..20 {
        let refused = there.get("pki/roles/web").await.assert_status(503);
        assert!(
            refused.error().starts_with("seal: the seal was changed while this node was offline"),
            "{}",
            refused.text
        );
        let health = there.get("sys/health").await;
        assert_eq!((health.status, health.header("retry-after")), (503, "1"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    second.wait_for_log("seal key: this store is sealed by the file key");
    let page = shown().await;
    assert!(page.contains("signet_changes_followed 0\n") && page.contains("signet_store_up 1\n"), "{page}");
    issues(&here).await;

    std::fs::copy(site.path("key"), site.path("second.key")).unwrap();
    wait_for(&there, "sys/health", 200).await;
    assert_eq!(there.get("pki/roles/web").await.body["data"]["ttl"], "2h");
    assert_eq!(there.get("sys/key-status").await.body["data"]["term"], 2);
    issues(&there).await;
    second.wait_for_log("the seal was changed while this node was offline; reopened with the file key");
    assert!(shown().await.contains("signet_changes_followed 1\n"));
    first.terminate();
    second.terminate();
}

#[actix_web::test]
async fn killed_server_continues_the_interrupted_resealing() {
    let site = Site::new();
    let token = site.init();
    let served = site.serve();
    let client = served.client(&token);
    prepare(&client).await;
    let mut tokens = Vec::new();
    for _ in 0..40 {
        let made = (0..50).map(|_| client.post("auth/token/create", json!({ "ttl": "1h" })));
        let made = join_all(made).await.into_iter();
        tokens.extend(made.map(|answer| answer.body["auth"]["client_token"].as_str().unwrap().to_owned()));
    }
    assert_eq!(client.post("sys/rotate", json!({})).await.status, 204);
    let older = async |client: &Client| client.get("sys/key-status").await.body["data"]["older_values"].clone();
    let mut seen = None;
    for _ in 0..10_000 {
        match older(&client).await.as_u64() {
            Some(0) => break,
            Some(left) if left < 1800 => {
                seen = Some(left);
                break;
            }
            _ => {}
        }
    }
    assert!(seen.is_some(), "it was over before it was seen");
    drop(served);
    let status = run(&mut site.command(&STATUS));
    let left = status.lines().find_map(|line| line.strip_prefix("left to re-seal: ")).unwrap().parse::<u64>().unwrap();
    assert!((1..2000).contains(&left), "some is done, some is not: {status}");
    let served = site.serve();
    let client = served.client(&token);
    until("the end of the re-sealing", async || older(&client).await == 0).await;
    for token in tokens.iter().step_by(97) {
        assert_eq!(client.with_token(token).get("auth/token/lookup-self").await.status, 200);
    }
    issues(&client).await;
    served.terminate();
    assert!(run(&mut site.command(&STATUS)).contains("left to re-seal: 0\n"));
}
