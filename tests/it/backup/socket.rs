//! The operator's socket and backups over it: permitted users, rejected commands, disconnecting clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;
use signet::clock::Clock;

use super::{backup, operator, run};
use crate::process::{Dev, dev};

fn start(folder: &Path) -> Dev {
    dev(&["--data-dir", folder.to_str().unwrap(), "--root-token", "socket-tests-root"])
}

fn connect(folder: &Path) -> UnixStream {
    let stream = UnixStream::connect(folder.join("signet.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes and returns the responses until the server closes the connection.
fn said(folder: &Path, bytes: &[u8]) -> String {
    let mut stream = connect(folder);
    // The server may close the connection before it has read all of an overlong line.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn socket_is_private_and_rejects_unknown_commands() {
    let folder = tempfile::tempdir().unwrap();
    let dev = start(folder.path());
    let socket = folder.path().join("signet.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    for (bytes, answer) in [
        (&b"{\"command\":\"format\"}\n"[..], "unknown to this server"),
        (b"{}\n", "unknown to this server"),
        (b"hello\n", "not JSON"),
        (b"\n", "not JSON"),
        (&[b'x'; 70_000], "longer than 64 KiB"),
        (b"{\"command\":\"backup\"}\n{\"release\":false}\n", "release: "),
    ] {
        let said = said(folder.path(), bytes);
        assert!(said.contains(answer) && said.lines().count() <= 2, "{said}");
    }
    // A client that holds the file and disconnects releases it; the number of concurrent clients is limited.
    let held: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = connect(folder.path());
            stream.write_all(b"{\"command\":\"backup\"}\n").unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert_eq!(line, "{\"result\":{\"held\":true}}\n");
            stream
        })
        .collect();
    assert!(said(folder.path(), b"{\"command\":\"backup\"}\n").contains("too many"));
    drop(held);
    let copy = folder.path().join("copy.db");
    while backup(folder.path(), &copy).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    dev.terminate();
    assert!(!socket.exists(), "a server that stopped leaves no socket");
}

#[test]
fn socket_rejects_other_users() {
    if !geteuid().is_root() {
        return crate::crash::left_out("only root can ask as somebody else");
    }
    let folder = tempfile::tempdir().unwrap();
    let dev = start(folder.path());
    // Folder and file modes keep other users out; without them, the server checks the peer's user id.
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let socket = folder.path().join("signet.sock");
    open(folder.path(), 0o755);
    open(&socket, 0o666);
    // The server may reject the client and close the connection before the command is sent.
    let ask = "import socket,sys,contextlib\n\
               s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
               with contextlib.suppress(OSError): s.sendall(b'{\"command\":\"backup\"}\\n')\n\
               print(s.recv(1000).decode())";
    let asked = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "/usr/bin/python3", "-c", ask]).arg(&socket);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    };
    assert!(asked("65534").contains("only processes of the server's user may use it"), "{}", asked("65534"));
    assert!(asked("0").contains("held"));
    dev.terminate();
}

/// A folder whose path exceeds the maximum length of a socket path.
fn long(folder: &Path) -> PathBuf {
    folder.join("a".repeat(90)).join("b".repeat(120))
}

#[test]
fn a_data_folder_may_have_a_long_name() {
    let files = tempfile::tempdir().unwrap();
    let folder = long(files.path());
    let dev = start(&folder);
    assert_eq!(std::fs::metadata(folder.join("signet.sock")).unwrap().mode() & 0o777, 0o600);
    let copy = files.path().join("copy.db");
    backup(&folder, &copy).unwrap();
    dev.kill();
    // A socket that a crash left prevents neither a backup nor the next start.
    assert!(folder.join("signet.sock").exists());
    backup(&folder, &files.path().join("second.db")).unwrap();
    start(&folder).terminate();
}

#[test]
fn backup_is_one_private_file_and_never_overwrites() {
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().join("data");
    let copy = files.path().join("copy.db");
    assert!(backup(&folder, &copy).unwrap_err().contains("--data-dir: folder does not exist: "));
    let dev = start(&folder);
    backup(&folder, &copy).unwrap();
    assert_eq!(std::fs::metadata(&copy).unwrap().mode() & 0o777, 0o600);
    let first = std::fs::read(&copy).unwrap();
    assert!(backup(&folder, &copy).unwrap_err().contains("copy.db: exists, and is never overwritten"));
    assert_eq!(std::fs::read(&copy).unwrap(), first);
    assert!(backup(&folder, &files.path().join("no/such/folder.db")).unwrap_err().contains("cannot be created"));
    dev.terminate();
    backup(&folder, &files.path().join("stopped.db")).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(files.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["copy.db", "data", "stopped.db"], "nothing is left beside them");
}

#[test]
fn backup_folder_names_verifies_and_prunes_copies() {
    let files = tempfile::tempdir().unwrap();
    let [data, copies] = ["data", "copies"].map(|name| files.path().join(name));
    let dev = start(&data);
    let add = |more: &[&str]| run(operator(&["backup"], &data).arg("--folder").arg(&copies).args(more));
    assert!(add(&[]).unwrap_err().contains("copies"), "no folder is made");
    std::fs::create_dir(&copies).unwrap();
    for refused in [&["--keep", "0"][..], &["--to", "copy.db"]] {
        assert!(add(refused).unwrap_err().contains(refused[0]), "{refused:?}");
    }
    let both = run(operator(&["backup"], &data).args(["--to", "copy.db", "--keep", "1"]));
    assert!(both.unwrap_err().contains("--keep"), "one file needs no retention");
    let names = || std::fs::read_dir(&copies).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    assert!(add(&[]).unwrap().contains(".db: ok"));
    let [first] = &names()[..] else { panic!("{:?}", names()) };
    std::thread::sleep(Duration::from_millis(1100));
    assert!(add(&["--keep", "1"]).unwrap().contains(&format!("{}: removed", first.display())));
    let [second] = &names()[..] else { panic!("{:?}", names()) };
    assert!(second > first);
    let verified = run(operator(&["verify-backup"], &data).arg(&copies)).unwrap();
    assert_eq!(verified, format!("{}: ok\n", second.display()));
    dev.terminate();
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_no_copy() {
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().join("data");
    let dev = start(&folder);
    let mut stream = connect(&folder);
    stream.write_all(b"{\"command\":\"backup\"}\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    dev.kill();
    line.clear();
    assert_eq!(reader.read_line(&mut line).unwrap_or(0), 0, "the end is all that is heard: {line}");
}

#[test]
fn a_database_is_copied_by_its_own_tools() {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("signet.toml");
    std::fs::write(&config, "database_url = \"postgres:///x?host=/nowhere\"\nseal_key_file = \"/nowhere/key\"\n")
        .unwrap();
    let mut command = crate::process::signet();
    command.args(["operator", "backup", "--to", "/nowhere/copy.db", "--config"]).arg(&config);
    let told = run(&mut command).unwrap_err();
    assert!(told.contains("pg_dump or pg_basebackup (docs/backup-postgresql.md)"), "{told}");
    let told = run(operator(&["backup", "--to", "x"], files.path()).arg("--config").arg(&config)).unwrap_err();
    assert!(told.contains("cannot be used with"), "{told}");
}

#[actix_web::test]
async fn metrics_contain_time_of_last_successful_backup() {
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().join("data");
    let copy = files.path().join("copy.db");
    let dev = start(&folder);
    let client = dev.client();
    let last = async || {
        let page = client.page("/metrics").await.text;
        let line = page.lines().find_map(|line| line.strip_prefix("signet_backup_last_success_timestamp_seconds "));
        line.unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(last().await, 0);
    // Holding the file is not a backup yet: the client may fail to write its copy.
    let heard = said(&folder, b"{\"command\":\"backup\"}\n{\"release\":true}\n");
    assert_eq!(heard, "{\"result\":{\"held\":true}}\n".repeat(2));
    assert_eq!(last().await, 0);
    let before = Clock::system().now().unix_timestamp();
    backup(&folder, &copy).unwrap();
    let made = last().await;
    assert!((before..=Clock::system().now().unix_timestamp()).contains(&made), "{made}");
    dev.terminate();
}
