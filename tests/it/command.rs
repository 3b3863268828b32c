//! The `signet` binary: `dev`, `check`, and the checks of `issue` before its request.

mod environment;
mod json;
mod missing_files;

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::client::{Double, response};
use crate::process::{Dev, dev, dev_with, refused, run, signet};
use crate::support::{Answer, send};

#[actix_web::test]
async fn dev_is_ready_when_announced_and_drains_on_sigterm() {
    let dev = dev(&["--root-token", "my-root"]);
    assert_eq!(dev.token, "my-root");
    let client = dev.client();
    assert_eq!(client.with_token("").get("sys/health").await.status, 200);
    assert_eq!(client.get("sys/mounts/pki").await.status, 200);
    assert_eq!(client.page("/metrics").await.status, 200);
    assert!(dev.terminate() < Duration::from_secs(10));
}

async fn projects(dev: &Dev, token: &str, path: &str) -> Answer {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    send(http.get(format!("{}/api/v2/{path}", dev.address)).bearer_auth(token)).await
}

#[actix_web::test]
async fn dev_token_belongs_to_an_owner_of_organization_dev() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    let first = dev(&[&data[..], &["--root-token", "my-root"]].concat());
    let list = projects(&first, "my-root", "organizations/dev/projects").await;
    assert_eq!(list.body["data"][0]["attributes"]["name"], "Default Project", "{}", list.text);
    assert_eq!(list.body["data"][0]["attributes"]["permissions"]["can-destroy"], true);
    assert!(first.printed().contains("/api/v2/organizations/dev/projects"), "{}", first.printed());
    first.terminate();
    // After a restart the previous token is revoked, unless it is the same one.
    for again in [
        &data[..],
        &[&data[..], &["--root-token", "my-root"]].concat(),
        &[&data[..], &["--root-token", "my-root"]].concat(),
    ] {
        let started = dev(again);
        let account = projects(&started, &started.token, "account/details").await;
        assert_eq!(account.body["data"]["attributes"]["username"], json!("dev"), "{}", account.text);
        let older = projects(&started, "my-root", "organizations/dev").await;
        assert_eq!(older.status, if started.token == "my-root" { 200 } else { 401 });
        started.terminate();
    }
}

#[actix_web::test]
async fn seal_key_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    dev(&["--data-dir", path.to_str().unwrap()]).terminate();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("seal.key"))), (0o700, 0o600));
}

#[test]
fn dev_generates_no_seal_key_for_an_existing_store() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    dev(&data).terminate();
    let key = folder.path().join("seal.key");
    let away = folder.path().join("away");
    std::fs::rename(&key, &away).unwrap();
    let error = refused(signet().args(["dev", "--listen", "127.0.0.1:0"]).args(data));
    assert!(error.contains("file does not exist: ") && error.contains("restore the seal key"), "{error}");
    assert!(!key.exists(), "no other key is made");
    std::fs::rename(&away, &key).unwrap();
    dev(&data).terminate();
}

#[test]
fn logs_in_a_file_have_no_colours_and_no_library_noise() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let logged = |level: &str| {
        let file = std::fs::File::create(&log).unwrap();
        dev_with(signet().env("SIGNET_LOG", level).stderr(file), &[]).terminate();
        std::fs::read_to_string(&log).unwrap()
    };
    let usual = logged("info");
    assert!(usual.contains("stopping") && !usual.contains("actix_server"), "{usual}");
    let debugging = logged("debug");
    assert!(debugging.contains("actix_server"), "{debugging}");
    assert!(!usual.contains('\u{1b}') && !debugging.contains('\u{1b}'), "{debugging}");
}

#[test]
fn dev_refuses_other_addresses_and_databases() {
    assert!(refused(signet().args(["dev", "--listen", "0.0.0.0:0"])).contains("loopback only"));
    let database = ["dev", "--listen", "127.0.0.1:0", "--database-url", "postgres://localhost/x"];
    assert!(refused(signet().args(database)).contains("needs --data-dir"));
    let folder = tempfile::tempdir().unwrap();
    let keys = ["--data-dir", folder.path().to_str().unwrap()];
    let tls = ["dev", "--listen", "127.0.0.1:0", "--database-url", "postgres://u:hunter2@localhost/x?sslmode=tls"];
    let text = refused(signet().args(tls).args(keys));
    assert!(text.contains("sslmode: must be disable, require") && !text.contains("hunter2"), "{text}");
}

#[test]
fn issue_checks_files_before_the_request_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("web.test-key.pem"), "mine").unwrap();
    // No server listens there: the check precedes the request.
    let command = ["issue", "web.test", "--out", out, "--address", "http://127.0.0.1:9", "--token", "t"];
    assert!(refused(signet().args(command)).contains("web.test-key.pem exists and is not overwritten"));
    assert_eq!(std::fs::read(folder.path().join("web.test-key.pem")).unwrap(), b"mine");
    let bad = ["issue", "../web", "--out", out, "--token", "t"];
    assert!(refused(signet().args(bad)).contains("cannot be the name of a file"));
    let gone = ["issue", "other.test", "--out", out, "--address", "http://127.0.0.1:9", "--token", "t"];
    assert!(refused(signet().args(gone)).contains("http://127.0.0.1:9: no response"));
}

/// The error of `signet issue` at this address; asserts that it does not contain the token.
fn issue_from(address: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let command = ["issue", "web.test", "--out", out, "--address", address, "--token", "hunter2"];
    let text = refused(signet().args(command));
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    text
}

#[test]
fn issue_does_not_send_its_token_to_a_redirect() {
    let other = Double::start(&[&response("200 OK", "{}")]);
    for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent"] {
        for host in ["127.0.0.1", "localhost"] {
            let to = format!("{}/v1/pki/issue/dev", other.address.replace("127.0.0.1", host));
            let first = Double::start(&[&response(&format!("{status}\r\nLocation: {to}"), "")]);
            let text = issue_from(&first.address);
            assert!(text.contains(&format!("redirect to {to:?} not followed")), "{status}: {text}");
            let heard = first.heard();
            assert!(heard.len() == 1 && heard[0].contains("hunter2"), "{status}: {heard:?}");
        }
    }
    assert_eq!(other.heard(), [""; 0]);
}

#[test]
fn issue_sends_its_token_over_plain_http_to_this_machine_only() {
    let listener = Double::start(&[&response("503 Busy", "{}")]);
    let port = listener.address.rsplit(':').next().unwrap();
    // Addresses of this listener that might also be another machine's.
    for host in ["0.0.0.0", "[::ffff:127.0.0.1]", "signet.example", "localhost.example", "192.0.2.1", "[::]"] {
        let text = issue_from(&format!("http://{host}:{port}"));
        assert!(text.contains("SIGNET_ADDR: plain http is for this machine only"), "{host}: {text}");
    }
    for address in ["", "signet.example", "127.0.0.1:8200", "ftp://127.0.0.1", "//127.0.0.1", "unix:/run/signet"] {
        assert!(issue_from(address).contains("SIGNET_ADDR: "), "{address}");
    }
    assert_eq!(listener.heard(), [""; 0]);
    for host in ["127.0.0.1", "127.8.9.1", "localhost", "LocalHost"] {
        // The listener has only one of these addresses: requests to the others fail to connect.
        let text = issue_from(&format!("http://{host}:{port}"));
        assert!(!text.contains("SIGNET_ADDR"), "{host}: {text}");
    }
    assert!(listener.heard().len() >= 3 && listener.heard().iter().all(|heard| heard.contains("hunter2")));
    // TLS may go to any host; this listener does not speak TLS.
    assert!(issue_from(&format!("https://127.0.0.1:{port}")).contains("no response"));
}

#[test]
fn check_reports_every_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signet.toml");
    let none = refused(signet().args(["check", "--config"]).arg(&file));
    assert!(none.contains("--config: file does not exist: "), "{none}");
    std::fs::write(&file, "data_dir = \"/var/lib/signet\"\n").unwrap();
    assert!(signet().args(["check", "--file-only", "--config"]).arg(&file).output().unwrap().status.success());
    std::fs::write(&file, "data_dri = \"x\"\nworkers = -1\n").unwrap();
    let text = refused(signet().args(["check", "--config"]).arg(&file));
    for problem in ["data_dri: unknown setting", "workers: must be", "data_dir: must be"] {
        assert!(text.contains(problem), "{text}");
    }
}

#[test]
fn completions_of_every_shell_contain_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = run(signet().args(["completions", shell]));
        assert!(script.contains("operator") && script.contains("config"), "{shell}: {script}");
    }
    let script = r#"eval "$("$0" completions bash)"; COMP_WORDS=(signet "$@"); COMP_CWORD=$#
        _signet signet "${!#}" "${COMP_WORDS[$# - 1]}"; echo "${COMPREPLY[@]}""#;
    let completed = |words: &[&str]| {
        let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_signet")]).args(words).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed(&["oper"]), "operator");
    assert_eq!(completed(&["operator", "in"]), "init");
    assert_eq!(completed(&["serve", "--conf"]), "--config");
}

#[test]
fn manual_pages_of_every_command_render_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    run(signet().arg("man").arg(folder.path()));
    let pages: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let text = |name: &str| {
        let page = folder.path().join(name);
        let mut man = Command::new("man");
        man.args(["--warnings", "--local-file"]).arg(&page).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
        let (rendered, warnings) = run(&mut man);
        assert!(warnings.is_empty(), "{name}: {warnings}");
        rendered
    };
    for page in &pages {
        let name = page.file_name().unwrap().to_str().unwrap();
        let command = name.strip_suffix(".1").unwrap().to_owned();
        let rendered = text(name);
        assert!(
            rendered.contains("SYNOPSIS") && rendered.contains(&command.replace('-', " "))
                || rendered.contains(&command),
            "{name}"
        );
    }
    for name in ["signet.1", "signet-serve.1", "signet-operator.1", "signet-operator-backup.1", "signet-man.1"] {
        assert!(pages.iter().any(|page| page.ends_with(name)), "{name}: {pages:?}");
    }
    let backup = text("signet-operator-backup.1");
    assert!(backup.contains("--keep") && backup.contains("Older ones are removed"), "{backup}");
    let renew = text("signet-renew.1");
    assert!(renew.contains("SIGNET_TOKEN_FILE"), "{renew}");
    let init = text("signet-operator-init.1");
    assert!(init.contains("signet operator init [OPTIONS] --config <FILE>"), "{init}");
    let source = std::fs::read_to_string(folder.path().join("signet-operator-init.1")).unwrap();
    let header = source.lines().find(|line| line.starts_with(".TH ")).unwrap();
    let version = concat!(".TH signet-operator-init 1 \"\" \"signet ", env!("CARGO_PKG_VERSION"));
    assert!(header.starts_with(version) && header.ends_with("\" \"Signet Manual\""), "{header}");

    let none = folder.path().join("none");
    let error = refused(signet().arg("man").arg(&none));
    assert!(error.contains(&format!("{}: cannot be written to (no such file or folder)", none.display())), "{error}");
}

#[test]
fn the_version_names_the_commit() {
    let (printed, _) = run(signet().arg("--version"));
    let version = printed.trim_end().strip_prefix(concat!("signet ", env!("CARGO_PKG_VERSION"))).unwrap();
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok();
        output.filter(|output| output.status.success()).map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let top = git(&["rev-parse", "--show-toplevel"]);
    if top.is_none_or(|top| top.trim() != env!("CARGO_MANIFEST_DIR")) {
        assert_eq!(version, "", "an archive of the sources knows no commit");
        return;
    }
    // The commit of the last build of the sources; later commits may not have changed them.
    let commit = version.strip_prefix(" (").unwrap().strip_suffix(')').unwrap();
    let commit = commit.strip_suffix(", modified").unwrap_or(commit);
    assert!(git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_some(), "{printed}");
}
