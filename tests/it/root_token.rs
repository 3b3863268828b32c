//! `signet operator new-root-token` with a running server, a stopped server and a database: only with the seal key, and
//! recorded in the audit or not done.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::geteuid;
use serde_json::{Value, json};
use signet::storage::seal::SealKey;

use crate::cluster;
use crate::process::{ran, refused, run, signet, token_of, write_private};
use crate::serve::{Served, Site};
use crate::support::until;

const NEW: [&str; 2] = ["operator", "new-root-token"];

async fn is_root(served: &Served, token: &str) -> bool {
    let itself = served.client(token).get("auth/token/lookup-self").await;
    itself.body["data"]["policies"] == json!(["root"]) && itself.body["data"]["ttl"] == 0
}

fn told(site: &Site) -> Vec<Told> {
    told_of(site, "sys/operator/new-root-token")
}

/// Type, status, error, and whether the entry contains a token.
type Told = (String, Value, Value, bool);

fn of_one_made() -> [Told; 2] {
    [("request".to_owned(), Value::Null, Value::Null, false), ("response".to_owned(), json!(200), Value::Null, true)]
}

fn told_of(site: &Site, path: &str) -> Vec<Told> {
    let text = std::fs::read_to_string(site.path("audit.log")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = lines.filter(|line| line["request"]["path"] == path);
    own.map(|line| {
        assert_eq!(
            (&line["auth"]["display_name"], &line["request"]["operation"]),
            (&json!("operator"), &json!("update"))
        );
        let kind = line["type"].as_str().unwrap().to_owned();
        let token = line["response"]["auth"]["client_token"].as_str().map(|token| token.starts_with("hmac-sha256:"));
        (kind, line["response"]["status"].clone(), line["error"].clone(), token.unwrap_or_default())
    })
    .collect()
}

fn with_audit(site: &Site) {
    let file = site.path("audit.log");
    site.configure(&format!("[[audit]]\ntype = \"file\"\nfile_path = \"{}\"\n", file.display()));
}

#[actix_web::test]
async fn new_root_token_works_with_running_and_stopped_server() {
    let site = Site::new();
    with_audit(&site);
    let first = site.init();
    let second = token_of(&mut site.command(&NEW));
    assert_eq!(told_of(&site, "sys/operator/init"), of_one_made(), "the first one, too");
    assert_eq!(told(&site), of_one_made());

    let served = site.serve();
    let third = token_of(&mut site.command(&NEW));
    assert_eq!(told(&site)[2..], of_one_made());
    for token in [&first, &second, &third] {
        assert!(is_root(&served, token).await);
    }
    assert_eq!(served.client(&second).post("auth/token/revoke-self", json!({})).await.status, 204);
    assert!(!is_root(&served, &second).await && is_root(&served, &third).await);
    served.terminate();
    let kept =
        std::fs::read_to_string(site.path("audit.log")).unwrap() + &std::fs::read_to_string(site.path("log")).unwrap();
    assert!([first, second, third].iter().all(|token| !kept.contains(&token[..])), "no token is written anywhere");
    assert!(refused(&mut site.command(&["operator", "init"])).contains("signet operator new-root-token --config FILE"));
}

#[actix_web::test]
async fn init_output_commands_create_an_administrator() {
    let site = Site::new();
    let (out, _) = run(&mut site.command(&["operator", "init"]));
    let root = out.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    let advised: Vec<&str> = out.split_whitespace().filter_map(|word| word.strip_prefix("/v1/")).collect();
    let [policy, create, revoke] = advised[..] else { panic!("{out}") };
    let body = &out[out.find('{').unwrap()..=out.find('}').unwrap()];
    let served = site.serve();
    let client = served.client(root);
    let rights = json!({ "policy": "path \"sys/mounts\" { capabilities = [\"read\"] }" });
    assert_eq!(client.post(policy, rights).await.status, 204);
    let made = client.post(create, serde_json::from_str(body).unwrap()).await;
    let administrator = served.client(made.body["auth"]["client_token"].as_str().unwrap_or_else(|| panic!("{out}")));
    assert_eq!(client.post(revoke, json!({})).await.status, 204);
    assert!(!is_root(&served, root).await);
    assert_eq!(administrator.get("sys/mounts").await.status, 200, "it outlives who made it");
    assert_eq!(administrator.post("auth/token/renew-self", json!({})).await.status, 200);
    let itself = administrator.get("auth/token/lookup-self").await;
    assert_eq!(itself.body["data"]["period"], json!(768 * 3600), "{}", itself.text);
    served.terminate();
    assert!(out.contains("signet operator new-root-token --config FILE"), "{out}");
    assert!(is_root_made_again(&site).await);
}

/// `true` if a new root token can be created with the seal key and works.
async fn is_root_made_again(site: &Site) -> bool {
    let token = token_of(&mut site.command(&NEW));
    let served = site.serve();
    let is = is_root(&served, &token).await;
    served.terminate();
    is
}

#[actix_web::test]
async fn first_root_token_is_created_on_a_running_server() {
    let site = Site::new();
    let key = "11".repeat(32);
    let served = Served::start(site.command(&["serve"]).env("SIGNET_SEAL_KEY", &key), &site.path("log"));
    served.wait_for_log("run signet operator new-root-token --config FILE");
    // A store without any token may be the wrong one: it must not receive traffic.
    let stranger = served.client("");
    let begun = async |path: &str| stranger.get(path).await.body["initialized"] == true;
    for path in ["sys/health", "sys/seal-status", "sys/init"] {
        assert!(!begun(path).await, "{path}");
    }
    for (query, status) in [("", 501), ("?uninitcode=299", 299), ("?activecode=299", 501)] {
        assert_eq!(stranger.get(&format!("sys/health{query}")).await.status, status, "{query}");
    }
    let health = || signet().arg("health").env("SIGNET_ADDR", served.url("")).output().unwrap();
    assert!(String::from_utf8_lossy(&health().stderr).contains("not ready: its store is new"));
    let token = token_of(site.command(&NEW).env("SIGNET_SEAL_KEY", &key));
    assert!(is_root(&served, &token).await);
    until("a ready server", async || stranger.get("sys/health").await.status == 200).await;
    assert!(begun("sys/seal-status").await && begun("sys/init").await && health().status.success());
    served.terminate();
    // An initialized store stays initialized, even without tokens.
    let served = Served::start(site.command(&["serve"]).env("SIGNET_SEAL_KEY", &key), &site.path("log"));
    assert_eq!(served.client("").get("sys/health").await.status, 200);
    served.terminate();
    let init = refused(site.command(&["operator", "init"]).env("SIGNET_SEAL_KEY", &key));
    assert!(init.contains("signet operator new-root-token --config FILE"), "{init}");
}

#[actix_web::test]
async fn new_root_token_without_seal_key_is_rejected_and_audited() {
    let site = Site::new();
    with_audit(&site);
    site.init();
    let key = std::fs::read_to_string(site.path("data/seal.key")).unwrap();
    let wrong = || {
        std::fs::rename(site.path("data/seal.key"), site.path("data/seal.key.away")).unwrap();
        let error = refused(site.command(&NEW).env("SIGNET_SEAL_KEY", "77".repeat(32)));
        assert!(!error.contains(&"77".repeat(32)) && !error.contains(key.trim()), "{error}");
        let none = refused(&mut site.command(&NEW));
        assert!(none.contains("seal_key_file: file does not exist: "), "{none}");
        std::fs::rename(site.path("data/seal.key.away"), site.path("data/seal.key")).unwrap();
        error
    };
    assert!(wrong().contains("seal key: does not open the data keys of this store"));
    assert!(told(&site).is_empty(), "a store that does not open has no audit either");

    let served = site.serve();
    assert!(wrong().contains("seal key: does not belong to this store"));
    let error = json!("new-root-token: the seal key does not belong to this store");
    let refusals = told(&site);
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert_eq!(refusals[0], ("request".to_owned(), Value::Null, error.clone(), false));
    assert_eq!(refusals[1], ("response".to_owned(), json!(403), error, false));

    // A proof is valid only for its own question, and a question permits one attempt.
    let talk = |proof: Value| {
        let stream = UnixStream::connect(site.path("data/signet.sock")).unwrap();
        let mut lines = BufReader::new(&stream).lines();
        (&stream).write_all(b"{\"command\":\"new-root-token\"}\n").unwrap();
        let question: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(question["result"]["question"]["sealed"].is_string(), "{question}");
        (&stream).write_all(format!("{}\n", json!({ "proof": proof })).as_bytes()).unwrap();
        let answer = lines.next().unwrap().unwrap();
        assert!(answer.contains("the seal key does not belong to this store"), "{answer}");
        assert!(lines.next().is_none());
        question["result"]["question"]["sealed"].clone()
    };
    let sealed = talk(json!(""));
    for proof in [sealed, json!(null), json!(7), json!("AAAA"), json!("no base64")] {
        talk(proof);
    }
    served.terminate();
}

#[test]
fn command_run_by_root_creates_no_file_unreadable_by_the_server() {
    if !geteuid().is_root() {
        return crate::crash::left_out("only root can write to folders of somebody else");
    }
    const NOBODY: u32 = 65534;
    let site = Site::initialized();
    with_audit(&site);
    let database = site.path("data/signet.db");
    std::os::unix::fs::chown(&database, Some(NOBODY), Some(NOBODY)).unwrap();
    let error = refused(&mut site.command(&NEW));
    assert!(error.contains("signet.db: belongs to another user") && error.contains("runuser -u nobody --"), "{error}");
    assert!(!site.path("audit.log").exists(), "nothing is made");
    let copy = site.path("copy.db");
    let to = ["operator", "backup", "--to", copy.to_str().unwrap()];
    let elsewhere = ["operator", "copy-store", "--to", "postgres://user@127.0.0.1/none"];
    let words = [&["operator", "seal-status"][..], &["operator", "rotate-seal-key"], &["operator", "after-restore"]];
    for words in words.into_iter().chain([&to[..], &elsewhere, &["serve"]]) {
        let error = refused(&mut site.command(words));
        assert!(error.contains("signet.db: belongs to another user"), "{words:?}: {error}");
    }
    assert!(!copy.exists());
    // An empty folder prepared for the server's user.
    let site = Site::new();
    std::fs::create_dir(site.path("data")).unwrap();
    std::os::unix::fs::chown(site.path("data"), Some(4711), Some(4712)).unwrap();
    for words in [&["operator", "init"][..], &["migrate"], &NEW] {
        let error = refused(&mut site.command(words));
        assert!(error.contains("setpriv --reuid 4711 --regid 4712"), "{words:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(site.path("data")).unwrap().count(), 0);
}

#[test]
fn restore_by_root_is_refused_for_the_store_of_another_user() {
    if !geteuid().is_root() {
        return crate::crash::left_out("only root can write to folders of other users");
    }
    const NOBODY: u32 = 65534;
    let site = Site::initialized();
    let copy = site.path("copy.db");
    let copy = copy.to_str().unwrap();
    assert!(site.command(&["operator", "backup", "--to", copy]).status().unwrap().success());
    std::fs::rename(site.path("data/seal.key"), site.path("seal.key")).unwrap();
    std::fs::remove_dir_all(site.path("data")).unwrap();
    site.configure(&format!("seal_key_file = \"{}\"\n", site.path("seal.key").display()));
    // The owner of a missing data folder is that of the seal key or of the parent folder.
    for (name, owned) in [("seal.key", "seal.key: belongs"), ("", ": belongs")] {
        let give_to = |user| std::os::unix::fs::chown(site.path(name), Some(user), Some(user)).unwrap();
        give_to(NOBODY);
        let error = refused(&mut site.command(&["operator", "restore", copy]));
        assert!(error.contains(owned) && error.contains("runuser -u nobody --"), "{name}: {error}");
        assert!(!site.path("data").exists(), "{name}");
        give_to(0);
    }
    assert!(site.command(&["operator", "restore", copy]).status().unwrap().success());
}

#[test]
fn root_token_without_audit_entry_is_not_created() {
    let site = Site::new();
    for (words, after) in [(&["operator", "init"], "the first one"), (&NEW, "another one")] {
        // An audit device without a listener: the command reports it and creates no token.
        site.configure("[[audit]]\ntype = \"socket\"\naddress = \"127.0.0.1:9\"\nsocket_type = \"tcp\"\n");
        let (well, out, error) = ran(&mut site.command(words));
        assert!(!well && out.is_empty() && error.contains("audit"), "{after}: {out}{error}");
        site.configure("");
        token_of(&mut site.command(words));
    }
}

#[actix_web::test]
async fn root_token_that_cannot_be_printed_is_revoked() {
    let site = Site::new();
    let shown_nowhere = |words: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let error = refused(site.command(words).stdout(full));
        assert!(
            error.contains(
                "(no storage space): the token was revoked; create another one with signet operator new-root"
            ),
            "{error}"
        );
    };
    shown_nowhere(&["operator", "init"]);
    shown_nowhere(&NEW);
    let served = site.serve();
    shown_nowhere(&NEW);
    // The token of a client that disconnects without confirming is revoked.
    let key = SealKey::from_file(&site.path("data/seal.key")).unwrap();
    let stream = UnixStream::connect(site.path("data/signet.sock")).unwrap();
    let mut lines = BufReader::new(&stream).lines();
    (&stream).write_all(b"{\"command\":\"new-root-token\"}\n").unwrap();
    let mut asked: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let question = serde_json::from_value(asked["result"]["question"].take()).unwrap();
    let proof = BASE64_STANDARD.encode(key.answer(&question).await.unwrap().expose());
    (&stream).write_all(format!("{}\n", json!({ "proof": proof })).as_bytes()).unwrap();
    let made: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let left = made["result"]["token"].as_str().unwrap();
    assert!(is_root(&served, left).await, "{made}");
    stream.shutdown(Shutdown::Both).unwrap();
    until("the end of the token", async || !is_root(&served, left).await).await;
    let token = token_of(&mut site.command(&NEW));
    let accessors = served.client(&token).list("auth/token/accessors").await;
    assert_eq!(accessors.body["data"]["keys"].as_array().map(Vec::len), Some(1), "{}", accessors.text);
    served.terminate();
}

#[actix_web::test]
async fn root_token_out_is_a_new_file_and_nothing_is_printed() {
    let site = Site::initialized();
    let out = |name: &str| {
        let mut command = site.command(&NEW);
        command.arg("--out").arg(site.path(name));
        command
    };
    let written = |name: &str| {
        let said = <[String; 2]>::from(run(&mut out(name))).concat();
        let token = std::fs::read_to_string(site.path(name)).unwrap();
        assert!(said.contains(name) && !said.contains(token.trim()), "{said}");
        assert_eq!(site.path(name).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        token.trim().to_owned()
    };
    let stopped = written("stopped");
    let served = site.serve();
    let running = written("running");
    for token in [&stopped, &running] {
        assert!(is_root(&served, token).await);
    }
    assert!(refused(&mut out("running")).contains("running exists and is not overwritten"));
    assert_eq!(std::fs::read_to_string(site.path("running")).unwrap().trim(), running);
    // A token that cannot be written is revoked.
    assert!(refused(&mut out("none/token")).contains("none/token: cannot be written"));
    let accessors = served.client(&running).list("auth/token/accessors").await;
    assert_eq!(accessors.body["data"]["keys"].as_array().map(Vec::len), Some(3), "{}", accessors.text);
    served.terminate();
}

#[actix_web::test]
async fn new_root_token_works_on_a_database_with_running_nodes() {
    let site = Site::new();
    let database = cluster::shared().database();
    let audit = format!("[[audit]]\ntype = \"file\"\nfile_path = \"{}\"\n", site.path("audit.log").display());
    let configure = |key: &str| site.configure_database(&database.url(), key, &audit);
    configure("key");
    let first = site.init();
    assert_eq!(told_of(&site, "sys/operator/init"), of_one_made());
    let served = site.serve();
    let second = token_of(&mut site.command(&NEW));
    assert!(is_root(&served, &first).await && is_root(&served, &second).await);
    write_private(site.path("other"), "77".repeat(32));
    configure("other");
    assert!(refused(&mut site.command(&NEW)).contains("seal key: does not open"));
    configure("key");
    served.terminate();
    token_of(&mut site.command(&NEW));
}

#[actix_web::test]
async fn health_reflects_the_first_root_token_immediately() {
    let site = Site::new();
    std::fs::create_dir(site.path("data")).unwrap();
    SealKey::create_file(&site.path("data/seal.key")).unwrap();
    let served = site.serve();
    let health = async || served.client("").get("sys/health").await.status;
    assert_eq!(health().await, 501);
    token_of(&mut site.command(&NEW));
    assert_eq!(health().await, 200);
    served.terminate();
}
