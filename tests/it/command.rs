//! The `signet` binary: `dev` and `check`, and what `issue` refuses before it asks.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn signet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signet"));
    command.env_remove("SIGNET_TOKEN").env_remove("SIGNET_ADDR").env("SIGNET_LOG", "warn");
    command
}

/// A started `signet dev`, its address and token.
struct Dev {
    child: Child,
    address: String,
    token: String,
}

fn dev(arguments: &[&str]) -> Dev {
    dev_with(&mut signet(), arguments)
}

fn dev_with(command: &mut Command, arguments: &[&str]) -> Dev {
    command.args(["dev", "--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let address = lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned();
    let token = lines.find_map(|line| line.strip_prefix("token: ").map(str::to_owned)).unwrap();
    // Keeps the pipe open, as a terminal would be.
    std::thread::spawn(move || lines.for_each(drop));
    Dev { child, address, token }
}

impl Dev {
    async fn status(&self, path: &str, token: &str) -> u16 {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.get(format!("{}{path}", self.address)).header("X-Service-Token", token);
        request.send().await.unwrap().status().as_u16()
    }

    /// SIGTERM; how long it took to leave with status 0.
    fn terminate(mut self) -> Duration {
        let started = Instant::now();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        started.elapsed()
    }
}

#[actix_web::test]
async fn dev_is_ready_when_it_says_so_and_drains_on_sigterm() {
    let dev = dev(&["--root-token", "my-root"]);
    assert_eq!(dev.token, "my-root");
    assert_eq!(dev.status("/v1/sys/health", "").await, 200);
    assert_eq!(dev.status("/v1/sys/mounts/pki", "my-root").await, 200);
    assert_eq!(dev.status("/metrics", "").await, 200);
    assert!(dev.terminate() < Duration::from_secs(10));
}

#[actix_web::test]
async fn dev_keeps_its_data_and_revokes_the_older_token() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let arguments = ["--data-dir", path.to_str().unwrap()];
    let first = dev(&arguments);
    let token = first.token.clone();
    assert_eq!(first.status("/v1/auth/token/lookup-self", &token).await, 200);
    first.terminate();
    assert_eq!(std::fs::metadata(path.join("seal.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let second = dev(&arguments);
    assert_eq!(second.status("/v1/auth/token/lookup-self", &token).await, 403);
    assert_eq!(second.status("/v1/auth/token/lookup-self", &second.token).await, 200);
    second.terminate();
}

#[actix_web::test]
async fn no_log_line_holds_a_token_or_a_body_at_any_level() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap();
    let dev = dev_with(signet().env("SIGNET_LOG", "trace").stderr(stderr), &["--root-token", "canary-token"]);
    assert_eq!(dev.status("/v1/auth/token/lookup-self", "canary-token").await, 200);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |body: &'static str| {
        let request = client.post(format!("{}/v1/sys/mounts/x", dev.address)).header("X-Service-Token", "canary-token");
        request.body(body).send()
    };
    for body in ["{\"client_secret\":\"hunter2", "{\"client_secret\":\"hunter2\"}"] {
        let answer = post(body).await.unwrap();
        assert_eq!(answer.status(), 400);
        assert!(!answer.text().await.unwrap().contains("hunter2"));
    }
    dev.terminate();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("request"), "{log}");
    assert!(!log.contains("hunter2") && !log.contains("canary-token"), "{log}");
}

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn dev_refuses_other_addresses_and_databases() {
    assert!(refused(signet().args(["dev", "--listen", "0.0.0.0:0"])).contains("loopback only"));
    let database = ["dev", "--listen", "127.0.0.1:0", "--database-url", "postgres://x"];
    assert!(refused(signet().args(database)).contains("embedded store only"));
}

#[test]
fn issue_never_overwrites_and_looks_before_it_asks() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("web.test-key.pem"), "mine").unwrap();
    // Nothing listens there: the refusal comes before the question.
    let command = ["issue", "web.test", "--out", out, "--address", "http://127.0.0.1:9", "--token", "t"];
    assert!(refused(signet().args(command)).contains("web.test-key.pem exists and is not overwritten"));
    assert_eq!(std::fs::read(folder.path().join("web.test-key.pem")).unwrap(), b"mine");
    let bad = ["issue", "../web", "--out", out, "--token", "t"];
    assert!(refused(signet().args(bad)).contains("cannot be the name of a file"));
    let gone = ["issue", "other.test", "--out", out, "--address", "http://127.0.0.1:9", "--token", "t"];
    assert!(refused(signet().args(gone)).contains("http://127.0.0.1:9: no answer"));
}

#[test]
fn check_tells_every_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signet.toml");
    std::fs::write(&file, "data_dir = \"/var/lib/signet\"\n").unwrap();
    assert!(signet().args(["check", "--config"]).arg(&file).output().unwrap().status.success());
    std::fs::write(&file, "data_dri = \"x\"\nworkers = -1\n").unwrap();
    let text = refused(signet().args(["check", "--config"]).arg(&file));
    for problem in ["data_dri: unknown setting", "workers: must be", "data_dir: must be"] {
        assert!(text.contains(problem), "{text}");
    }
}
