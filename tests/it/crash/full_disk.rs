//! A full disk: the data folder of the embedded store on a file system of 48 MiB.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::audit::audit;
use super::left_out;
use super::load::{Ledger, Load, Unanswered};
use super::place::Place;
use crate::process::{Dev, Killed, signet, signet_by};
use crate::support::{Answer, Client, until};

/// Mounts the file system, reports it, and keeps the mount until its input ends.
const HOLDER: &str = r#"mount -t tmpfs -o size=48m,mode=700 signet-test "$1" && echo mounted && read -r end"#;

/// A small file system in its own mount namespace, which vanishes with its process.
struct Small {
    mountpoint: tempfile::TempDir,
    holder: Child,
    rootless: bool,
}

impl Small {
    /// `None`, with a message, if mounting is not permitted.
    fn mount() -> Option<Self> {
        let mountpoint = tempfile::tempdir().unwrap();
        let rootless = !rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.args(if rootless { &["-r", "-m"][..] } else { &["-m"] }).args(["sh", "-c", HOLDER, "holder"]);
        command.arg(mountpoint.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let small = Self { mountpoint, holder, rootless };
        if line.trim() == "mounted" {
            return Some(small);
        }
        left_out("no file system can be mounted, neither by root nor in a user namespace; see above");
        None
    }

    fn told(&self) -> PathBuf {
        self.mountpoint.path().join("data")
    }

    /// The path of a file outside the namespace.
    fn seen(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.mountpoint.path().strip_prefix("/").unwrap()).join(name)
    }

    fn place(&self) -> Place {
        let holder = self.holder.id().to_string();
        let rootless = self.rootless;
        let command = move || {
            let user = if rootless { &["-U", "--preserve-credentials"][..] } else { &[] };
            signet_by("nsenter", &[&["-t", holder.as_str(), "-m"], user].concat())
        };
        Place::elsewhere(self.told(), self.seen("data"), command)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

fn fill(path: &Path, left: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    let block = [0; 4096];
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
    let len = file.metadata().unwrap().len();
    file.set_len(len.saturating_sub(left as u64)).unwrap();
}

/// The first response without a certificate. A disk that is too full for a batch may still have space for a request or
/// two; their certificates are recorded.
async fn refusal(client: &Client, ledger: &Ledger) -> Answer {
    for _ in 0..10 {
        let answer = client.post("pki/issue/dev", json!({ "common_name": "full.test" })).await;
        if answer.status != 200 {
            return answer;
        }
        let text = |name: &str| answer.body["data"][name].as_str().unwrap().to_owned();
        ledger.read().issued.insert(text("serial_number"), text("certificate"));
    }
    panic!("a disk without room took ten certificates");
}

/// The audit file on the small file system, the data elsewhere.
#[actix_web::test]
async fn full_audit_disk_rejects_requests_and_truncates_no_entry() {
    let Some(small) = Small::mount() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    let told = small.mountpoint.path().join("audit.log");
    let seen = small.seen("audit.log");
    let by_holder = small.place();
    let place = by_holder.with(data, move |command| {
        command.env("SIGNET_AUDIT", &told);
    });
    let ledger = Ledger::default();
    let dev = place.start();
    let token = place.client(&dev).await.token;
    let filler = small.seen("filler");
    let load = Load::start(&dev, &token, &ledger, Unanswered::IsWrong);
    ledger.wait_for(5, 1, 0);
    fill(&filler, 0);
    ledger.wait_for(0, 0, 20);
    let client = dev.client().with_token(&token);
    let answer = refusal(&client, &ledger).await;
    assert_eq!(
        (answer.status, answer.error()),
        (503, "audit: no audit device can record the request; see the server's log"),
        "{}",
        answer.text
    );
    std::fs::remove_file(&filler).unwrap();
    ledger.wait_for(10, 1, 0);
    load.finish();
    audit(&client, &ledger, &place).await;
    // The file has complete lines only, two of every acknowledged certificate.
    let text = std::fs::read_to_string(&seen).unwrap();
    assert!(text.ends_with('\n'));
    let issued = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).filter(|line| {
        let path = line["request"]["path"].as_str().unwrap();
        line["response"]["status"] == 200 && ["pki/issue/dev", "pki/sign/dev"].contains(&path)
    });
    assert!(issued.count() >= ledger.read().issued.len());
    dev.terminate();
}

#[actix_web::test]
async fn full_disk_causes_errors_and_no_data_loss() {
    let Some(small) = Small::mount() else { return };
    let place = small.place();
    let ledger = Ledger::default();
    let mut dev = place.start();
    let token = place.client(&dev).await.token;
    let filler = small.seen("filler");
    for left in [200_000, 0, 30_000] {
        let client = dev.client().with_token(&token);
        let load = Load::start(&dev, &token, &ledger, Unanswered::IsWrong);
        ledger.wait_for(5, 1, 0);
        fill(&filler, left);
        ledger.wait_for(0, 0, 20);
        let answer = refusal(&client, &ledger).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{}", answer.text);
        let known = ledger.read().issued.keys().next().unwrap().clone();
        assert_eq!(client.get(&format!("pki/cert/{known}")).await.status, 200, "reads go on");
        if left == 0 {
            // Longer than a health result is cached, alongside failing writes.
            for _ in 0..4 {
                health_says(&client, true).await;
                tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
            }
        }
        std::fs::remove_file(&filler).unwrap();
        ledger.wait_for(10, 1, 0);
        load.finish();
        audit(&client, &ledger, &place).await;
        dev.kill();
        dev = place.start_in_time().await;
        audit(&dev.client().with_token(&token), &ledger, &place).await;
    }
    dev.terminate();
}

async fn health_says(client: &Client, fails: bool) {
    until("the condition of the store", async || {
        client.with_token("").get("sys/health").await.assert_status(200).body["writes_fail"] == fails
    })
    .await;
}

fn status(dev: &Dev, token: &str) -> (bool, String) {
    let mut command = signet();
    command.arg("status").env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", token);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[actix_web::test]
async fn full_disk_is_reported_without_writes_until_space_is_free() {
    let Some(small) = Small::mount() else { return };
    let place = small.place();
    let dev = place.start();
    let ledger = Ledger::default();
    let token = place.client(&dev).await.token;
    let client = dev.client().with_token(&token);
    health_says(&client, false).await;
    assert!(status(&dev, &token).1.contains("nothing is wrong"));
    let filler = small.seen("filler");
    fill(&filler, 0);
    assert_eq!(refusal(&client, &ledger).await.status, 503);
    for _ in 0..3 {
        // Longer than a health result is cached: the store has tried another write.
        health_says(&client, true).await;
        let (well, told) = status(&dev, &token);
        assert!(!well && told.contains("the store accepts no writes: is the disk full?"), "{told}");
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    }
    std::fs::remove_file(&filler).unwrap();
    health_says(&client, false).await;
    assert!(status(&dev, &token).1.contains("nothing is wrong"));
    dev.terminate();
}

/// `signet serve` on the small file system. Killed when dropped.
struct Serving {
    _child: Killed,
    folder: tempfile::TempDir,
}

impl Serving {
    fn start(place: &Place, config: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        let mut command = place.command();
        command.args(["serve", "--config"]).arg(config).stdout(file("out")).stderr(file("log"));
        Self { _child: Killed(command.spawn().unwrap()), folder }
    }

    async fn says(&self, name: &str, text: &str) -> String {
        for _ in 0..600 {
            let said = std::fs::read_to_string(self.folder.path().join(name)).unwrap();
            if said.contains(text) {
                return said;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        panic!("{name} has no {text:?}: {log}");
    }

    async fn client(&self) -> Client {
        let said = self.says("out", "listening on ").await;
        Client::new(said.lines().find_map(|line| line.strip_prefix("listening on http://")?.parse().ok()).unwrap(), "")
    }
}

#[actix_web::test]
async fn start_on_full_disk_waits_for_free_space_and_reports_it() {
    let Some(small) = Small::mount() else { return };
    let place = small.place();
    let outside = tempfile::tempdir().unwrap();
    let config = outside.path().join("signet.toml");
    let key = outside.path().join("seal.key");
    let settings = format!(
        "listen = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nseal_key_file = \"{}\"\n",
        small.told().display(),
        key.display()
    );
    std::fs::write(&config, settings).unwrap();
    let operator = |words: &[&str]| {
        let output = place.command().args(words).arg("--config").arg(&config).output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.success(), text)
    };
    let (well, text) = operator(&["operator", "init"]);
    assert!(well, "{text}");
    let filler = small.seen("filler");
    fill(&filler, 0);
    let (well, text) = operator(&["check"]);
    assert!(!well && text.contains(" KiB free on its disk"), "{text}");
    let (well, text) = operator(&["operator", "seal-status"]);
    assert!(!well && text.contains("cannot be opened (no storage space)"), "{text}");
    let serving = Serving::start(&place, &config);
    let log = serving.says("log", "waiting for free space on the disk of the data folder").await;
    assert!(log.contains("(no storage space)"), "{log}");
    std::fs::remove_file(&filler).unwrap();
    health_says(&serving.client().await, false).await;
    // With existing WAL and index files, a server starts without free space.
    drop(serving);
    fill(&filler, 0);
    let serving = Serving::start(&place, &config);
    health_says(&serving.client().await, true).await;
}
