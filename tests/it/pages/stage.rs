//! A temporary environment for a page's commands: system paths are moved below a temporary folder, ports are replaced
//! by free ones, PostgreSQL is a cluster of its own, and `signet` is the program under test.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::process::bash;

/// System folders that are moved below the temporary folder.
const FOLDERS: [&str; 6] = ["/etc/signet", "/etc/web", "/var/lib/signet", "/var/log/signet", "/backup", "/run/signet"];
/// Prefixes of local addresses whose port is replaced.
const HOSTS: [&str; 2] = ["127.0.0.1:", "localhost:"];
/// The PostgreSQL socket folder of the pages.
const POSTGRES: &str = "/run/postgresql";
/// The users of PostgreSQL: `postgres` is the superuser, `signet` has no special rights.
const USERS: [(&str, &str); 2] = [
    ("signet", "CREATE ROLE other SUPERUSER LOGIN"),
    ("other", "ALTER ROLE signet RENAME TO postgres; CREATE ROLE signet LOGIN"),
];

/// Replaces users and systemd, which the test machine lacks: every user is the user of the test, and a unit is its
/// command line.
const MACHINE: &str = r#"
exec 2>&1
set -E -o pipefail
AT=0 UNIT=
trap 'echo "a command of the block at line $AT failed" >&2' ERR
trap 'status=$?; trap - ERR; kill $(jobs -p) 2>/dev/null || true; wait; exit $status' EXIT
runuser() {
    local user=$2
    shift 3
    PGUSER=$user "$@"
}
install() {
    local left=()
    while [ $# -gt 0 ]; do
        case $1 in -o | -g) shift 2 ;; *) left+=("$1"); shift ;; esac
    done
    command install "${left[@]}"
}
chown() {
    ls "${@:2}" >/dev/null
}
systemctl() {
    case $1 in
    reload) kill -HUP "$UNIT" ;;
    stop | restart) kill "$UNIT"; wait "$UNIT" ;;
    esac
    case $1 in
    start | enable | restart)
        PGUSER=signet signet serve --config /etc/signet/signet.toml 2>>/var/log/signet/unit.log &
        UNIT=$!
        until signet health --config /etc/signet/signet.toml 2>/dev/null; do kill -0 $UNIT; sleep 0.2; done
        ;;
    esac
}
"#;

/// Programs that open a database by URL, wrapped to connect as the calling user, as `peer` authentication does.
/// PostgreSQL's own programs do so by themselves if the URL names no user.
const CALLERS: [&str; 4] = ["signet", "pg_dump", "pg_restore", "psql"];
const PEER: &str = r#"#!/bin/sh
urls="$*"
case "${0##*/} $1" in
"signet operator" | "signet check" | "signet migrate" | "signet serve")
    for word; do case $word in *.toml) urls="$urls $(grep '^database_url' "$word")" ;; esac; done ;;
esac
case $urls in
*user=*)
    others=$(echo "$urls" | grep -o 'user=[a-z]*' | grep -vx "user=$PGUSER")
    [ -z "$others" ] || { echo "Peer authentication failed: $PGUSER calls $0 $*" >&2; exit 1; } ;;
esac
PATH=${PATH#*:} exec "${0##*/}" "$@"
"#;

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    ports: BTreeMap<u16, u16>,
    postgres: Option<Arc<Cluster>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        FOLDERS.iter().for_each(|name| std::fs::create_dir_all(folder.path().join(&name[1..])).unwrap());
        Self { folder, ports: BTreeMap::new(), postgres: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a script under `bash -eu`. It must succeed; returns both outputs.
    pub(crate) fn run(&mut self, script: &str) -> String {
        let script = self.here(&format!("{MACHINE}{script}"));
        let program = Path::new(env!("CARGO_BIN_EXE_signet")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut command = bash(&script);
        command.current_dir(self.path()).env("PATH", &path).env("TMPDIR", self.path()).stdin(Stdio::null());
        if let Some(postgres) = &self.postgres {
            let bin = self.path().join("bin");
            command.env("PATH", format!("{}:{path}", bin.display()));
            command.env("PGHOST", postgres.folder()).env("PGPORT", postgres.port().to_string()).env("PGUSER", "root");
        }
        let output = command.output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}\n{out}", output.status);
        out.into_owned()
    }

    /// Replaces paths and ports in a script.
    fn here(&mut self, script: &str) -> String {
        let mut script = script.to_owned();
        for name in FOLDERS {
            script = script.replace(name, &format!("{}{name}", self.path().display()));
        }
        if script.contains(POSTGRES) {
            let folder = self.folder.path().join("bin");
            let postgres = self.postgres.get_or_insert_with(|| postgres(&folder));
            script = script.replace(POSTGRES, &postgres.folder().display().to_string());
        }
        for host in HOSTS {
            script = self.with_ports(&script, host);
        }
        script
    }

    /// Replaces the ports that follow `host`.
    fn with_ports(&mut self, script: &str, host: &str) -> String {
        let mut done = String::new();
        let mut rest = script;
        while let Some((before, behind)) = rest.split_once(host) {
            done.push_str(before);
            done.push_str(host);
            let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
            rest = behind;
            if let Ok(written) = behind[..digits].parse() {
                done.push_str(&self.port(written).to_string());
                rest = &behind[digits..];
            }
        }
        done + rest
    }

    fn port(&mut self, written: u16) -> u16 {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        *self.ports.entry(written).or_insert_with(free)
    }
}

/// A PostgreSQL with these users; writes the wrapped programs to `folder`.
fn postgres(folder: &Path) -> Arc<Cluster> {
    let cluster = Cluster::new();
    for (user, sql) in USERS {
        cluster.psql(&format!("dbname=postgres user={user}"), sql);
    }
    std::fs::create_dir(folder).unwrap();
    for name in CALLERS {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(folder.join(name)).unwrap();
        file.write_all(PEER.as_bytes()).unwrap();
    }
    cluster
}

#[test]
fn stage_postgresql_users_are_separate_and_unprivileged() {
    let out = Stage::new().run(
        r#"
runuser -u postgres -- createdb --owner signet own
createdb root 2>/dev/null || echo root makes none
runuser -u signet -- createdb other 2>/dev/null || echo signet makes none
own="postgres:///own?host=/run/postgresql&user=signet"
runuser -u signet -- psql -qAt "$own" -c "SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user"
psql "$own" -c "SELECT 1" 2>/dev/null || echo root gets in as nobody else
signet operator verify-backup --data-dir absent --database-url "$own" 2>/dev/null || echo nor does a command
"#,
    );
    for line in
        ["root makes none", "signet makes none", "signet|f", "root gets in as nobody else", "nor does a command"]
    {
        assert!(out.lines().any(|written| written == line), "{line}: {out}");
    }
}

#[test]
fn stage_replaces_paths_and_ports_in_scripts() {
    let mut stage = Stage::new();
    let folder = stage.path().display().to_string();
    let out =
        stage.run("mkdir -p /etc/signet/x; echo /etc/signet localhost:8200 127.0.0.1:8201 127.0.0.1:8200 127.0.0.1:x");
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[0], format!("{folder}/etc/signet"));
    let port = |word: &str| word.split_once(':').unwrap().1.to_owned();
    assert!(port(words[1]) == port(words[3]) && port(words[1]) != port(words[2]), "{words:?}");
    assert_eq!(words[4], "127.0.0.1:x");
    assert!(stage.path().join("etc/signet/x").is_dir());
}
