//! File handling of `issue` and `renew`: obstacles are found before a request, failures leave no partial files, links
//! are not followed.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{lchown, symlink};

use rustix::fs::{FlockOperation, flock};

use super::*;

const CERTIFICATE: &str = "web.example.test.pem";
const KEY: &str = "web.example.test-key.pem";

#[test]
fn symlinks_of_other_users_are_not_followed() {
    let desk = Desk::new();
    fs::create_dir(desk.path("web")).unwrap();
    fs::write(desk.path("victim"), "precious").unwrap();
    desk.run(&["issue", "web.example.test", "--out", "web"]);
    let file = format!("web/{CERTIFICATE}");
    let note = desk.path(&format!("web/.{CERTIFICATE}.exec"));
    symlink("../victim", &note).unwrap();
    desk.run(&["renew", &file, "--force", "--exec", "exit 0"]);
    assert_eq!((desk.text("victim").as_str(), note.symlink_metadata().is_ok()), ("precious", false));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let key = desk.path("web/next.example.test-key.pem");
    symlink("../victim", &key).unwrap();
    for theirs in [desk.path("web"), key] {
        lchown(theirs, Some(1234), Some(1234)).unwrap();
    }
    let text = desk.refused(&["issue", "next.example.test", "--out", "web", "--existing", "replace"]);
    assert!(text.contains("next.example.test-key.pem: the symbolic link of user 1234 points to a file of"), "{text}");
    assert_eq!((desk.text("victim").as_str(), desk.path("web/next.example.test.pem").exists()), ("precious", false));
}

/// Runs a command that must fail, without root's capabilities. Returns its standard error.
fn powerless(desk: &Desk, words: &[&str]) -> String {
    let command = desk.command(words);
    if !rustix::process::geteuid().is_root() {
        return desk.refused(words);
    }
    let mut narrow = Command::new("setpriv");
    narrow.args(["--bounding-set", "-all", "--inh-caps", "-all"]).arg(command.get_program()).args(words);
    narrow.current_dir(desk.folder()).env("SIGNET_TOKEN", &desk.dev.token);
    let (well, out, err) = ran(&mut narrow);
    assert!(!well, "{words:?}: {out}");
    err
}

#[test]
fn file_obstacles_are_reported_before_any_request() {
    let desk = Desk::with_certificate();
    let double = Double::start(&[&denied()]);
    symlink("nowhere/a.pem", desk.path("link.example.test.pem")).unwrap();
    fs::create_dir(desk.path("folder.example.test-key.pem")).unwrap();
    let issue = |name: &str, existing: &str| {
        desk.refused(&["issue", name, "--existing", existing, "--address", &double.address])
    };
    for (name, existing, says) in [
        ("link.example.test", "refuse", "link.example.test.pem exists and is not overwritten"),
        ("link.example.test", "keep", "link.example.test.pem exists without its key"),
        ("link.example.test", "replace", "link.example.test.pem: cannot be written"),
        ("folder.example.test", "replace", "folder.example.test-key.pem: is not a file that can be replaced"),
    ] {
        let text = issue(name, existing);
        assert!(text.contains(says), "{name} {existing}: {text}");
    }
    fs::write(desk.path("ca.pem"), "no PEM").unwrap();
    let text = desk.refused(&["renew", CERTIFICATE, "--force", "--address", &double.address]);
    assert!(text.contains("ca.pem: "), "{text}");
    // A key of another user, and a folder without write permission.
    fs::remove_file(desk.path("ca.pem")).unwrap();
    let address = ["--address", &double.address];
    let renew = [&["renew", CERTIFICATE, "--force"][..], &address].concat();
    if rustix::process::geteuid().is_root() {
        lchown(desk.path(KEY), Some(1234), Some(1234)).unwrap();
        fs::set_permissions(desk.path(KEY), Permissions::from_mode(0o644)).unwrap();
        let text = powerless(&desk, &renew);
        assert!(text.contains(&format!("{KEY}: belongs to user 1234 and group 1234")), "{text}");
    }
    fs::set_permissions(desk.folder(), Permissions::from_mode(0o555)).unwrap();
    let issue = [&["issue", "next.example.test"][..], &address].concat();
    for words in [renew, issue] {
        let text = powerless(&desk, &words);
        assert!(text.contains(".: cannot be written (permission denied)"), "{text}");
    }
    fs::set_permissions(desk.folder(), Permissions::from_mode(0o755)).unwrap();
    // Only the token is renewed.
    let heard = double.heard();
    assert!(!heard.iter().any(|request| request.contains("/sign/")), "{heard:?}");
}

#[test]
fn full_disk_leaves_no_files_and_empty_files_are_replaced() {
    let desk = Desk::new();
    // A file size limit of 0 fails every write to a file, but not to a pipe.
    let issue = "trap '' XFSZ; ulimit -f 0; exec \"$0\" issue web.example.test";
    let mut shell = Command::new("sh");
    shell.args(["-c", issue]).arg(desk.command(&[]).get_program()).current_dir(desk.folder());
    let (well, _, text) = ran(shell.env("SIGNET_ADDR", &desk.dev.address).env("SIGNET_TOKEN", &desk.dev.token));
    assert!(!well && text.contains(&format!("{KEY}: cannot be written")), "{text}");
    assert_eq!(fs::read_dir(desk.folder()).unwrap().count(), 0);
    for name in [CERTIFICATE, KEY, "ca.pem"] {
        fs::write(desk.path(name), "").unwrap();
    }
    desk.run(&["issue", "web.example.test", "--existing", "keep"]);
    assert_same_key(desk.folder(), KEY, CERTIFICATE);
    assert_verifies(desk.folder(), "ca.pem", CERTIFICATE);
}

#[test]
fn file_lock_serializes_commands_despite_foreign_locks() {
    let desk = Desk::with_certificate();
    let before = desk.text(CERTIFICATE);
    // Any user may lock a folder that they may open.
    let folder = File::open(desk.folder()).unwrap();
    flock(&folder, FlockOperation::LockExclusive).unwrap();
    let lock = File::create(desk.path(".signet.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let left = desk.path(&format!(".{KEY}.0123456789ab"));
    fs::write(&left, "a key").unwrap();
    let commands = [&["issue", "web.example.test", "--existing", "replace"][..], &["renew", CERTIFICATE, "--force"]];
    let mut waiting = commands.map(|words| desk.command(words).stdout(Stdio::null()).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    assert!(waiting.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "they wait");
    assert_eq!(desk.text(CERTIFICATE), before);
    drop(lock);
    // The second command may find that the certificate to renew has been replaced.
    assert!(waiting[0].wait().unwrap().success());
    waiting[1].wait().unwrap();
    assert_same_key(desk.folder(), KEY, CERTIFICATE);
    assert!(!left.exists(), "a command that was killed left it");
    assert_eq!(fs::read_dir(desk.folder()).unwrap().count(), 3);
}

#[test]
fn an_authority_is_named_only_where_it_is() {
    let desk = Desk::with_certificate();
    openssl(desk.folder(), &["x509", "-in", "ca.pem", "-outform", "der", "-out", "ca.der"]);
    for (name, file) in [("der.example.test", Some("ca.der")), ("link.example.test", None)] {
        fs::remove_file(desk.path("ca.pem")).unwrap();
        match file {
            Some(file) => drop(fs::copy(desk.path(file), desk.path("ca.pem")).unwrap()),
            None => symlink("nowhere", desk.path("ca.pem")).unwrap(),
        }
        let (out, _) = desk.run(&["issue", name]);
        let own = format!("{name}-ca.pem");
        assert!(out.lines().any(|line| line.starts_with("authority:") && line.ends_with(&own)), "{out}");
        assert_verifies(desk.folder(), &own, &format!("{name}.pem"));
    }
}

#[test]
fn existing_keep_warns_of_missing_names_and_expiry() {
    let desk = Desk::with_certificate();
    let keep = ["--existing", "keep"];
    let (_, err) = desk.run(&[&["issue", "web.example.test", "--alt-names", "WEB.example.test"], &keep[..]].concat());
    assert_eq!(err, "");
    desk.run(&["issue", "web.example.test", "--ttl", "1s", "--existing", "replace"]);
    let more = [&["issue", "web.example.test", "www.example.test", "10.0.0.7"], &keep[..]].concat();
    let (_, err) = desk.run(&more);
    assert!(err.contains(&format!("warning: ./{CERTIFICATE}: kept, but it lacks www.example.test, 10.0.0.7")), "{err}");
    wait_until("its end", || desk.run(&more).1.contains("kept, but it expired on "));
    let (out, err) = desk.run(&[&more[..], &["--json"]].concat());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((told["warnings"].as_array().unwrap().len(), err.as_str()), (2, ""), "{out}");
}

#[test]
fn a_request_is_read_from_a_pipe_to_its_end() {
    let desk = Desk::new();
    let new = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"];
    openssl(desk.folder(), &[&new[..], &["/CN=own.example.test", "-keyout", "own.key", "-out", "own.csr"]].concat());
    let mut command = desk.command(&["issue", "--csr", "/dev/stdin"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(desk.text("own.csr").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_same_key(desk.folder(), "own.key", "own.example.test.pem");
    // The input is bounded nevertheless.
    assert!(desk.refused(&["issue", "--csr", "/dev/zero"]).contains("/dev/zero: is longer than 1 MiB"));
}
