//! Temporary PostgreSQL clusters: one shared by a test process, with a database for each test.
//!
//! A shell script, the keeper, runs the cluster and waits on a pipe from this process. However the process ends, the
//! pipe closes, and the keeper stops the server and removes its folder. PostgreSQL refuses to run as root, so root runs
//! the keeper as another user. Only the standard library is used: the store's unit tests and the HTTP tests both
//! include this file.
#![allow(dead_code)]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Port of a cluster that is reached only by its socket.
const PORT: u16 = 5432;

/// Prints `ready FOLDER`, or the error on standard error. `$1`: folder of the binaries, `$2`: port, `$3`: listen
/// address besides the socket, `$4`: folder of the primary if this is a standby.
const KEEPER: &str = r#"
trap '' INT TERM HUP
umask 077
cd /
base=/tmp
[ -w /dev/shm ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 2000000 ] && base=/dev/shm
dir=$(mktemp -d $base/signet-pg-XXXXXX) || exit 1
if [ -n "$4" ]; then
    "$1"/pg_basebackup -D "$dir/data" -h "$4" -p "$2" -U signet -R -c fast --no-sync >"$dir/log" 2>&1
else
    "$1"/initdb -D "$dir/data" -U signet -A trust -E UTF8 --locale=C --no-sync --wal-segsize=1 >"$dir/log" 2>&1
fi && cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = '$3'
port = $2
wal_keep_size = 64MB
unix_socket_directories = '$dir'
max_connections = 300
shared_buffers = 32MB
min_wal_size = 2MB
max_wal_size = 32MB
autovacuum = off
CONF
[ $? = 0 ] || { cat "$dir/log" >&2; rm -rf "$dir"; exit 1; }
start() {
    "$1"/postgres -D "$dir/data" >>"$dir/log" 2>&1 &
    server=$!
    for try in $(seq 1200); do
        "$1"/pg_isready -q -h "$dir" -p "$2" && break
        kill -0 $server 2>/dev/null || { cat "$dir/log" >&2; rm -rf "$dir"; exit 1; }
        sleep 0.05
    done
    echo "ready $dir"
}
start "$@"
while read -r word; do
    case $word in
    stop) kill -QUIT $server && wait $server; echo "stopped $dir" ;;
    start) start "$@" ;;
    promote) "$1"/pg_ctl promote -w -D "$dir/data" >>"$dir/log" 2>&1 && echo "promoted $dir" ;;
    esac
done
kill -QUIT $server
wait $server
rm -rf "$dir"
"#;

pub(crate) struct Cluster {
    binaries: PathBuf,
    folder: PathBuf,
    port: u16,
    databases: AtomicU32,
    rebuild_issuer: Mutex<Keeper>,
}

/// The connection to the script.
struct Keeper {
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
    _script: Child,
}

impl Keeper {
    /// Waits for a response. Returns the folder that it names.
    fn answer(&mut self, what: &str) -> PathBuf {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let folder = line.trim_end().strip_prefix(what).expect("the PostgreSQL cluster answers; see above");
        folder.trim_start().into()
    }
}

pub(crate) fn shared() -> &'static Arc<Cluster> {
    static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
    SHARED.get_or_init(Cluster::new)
}

impl Cluster {
    /// A cluster for one test.
    pub(crate) fn new() -> Arc<Self> {
        Self::keep(PORT, "", Path::new(""))
    }

    /// A cluster for one test that also listens on a free port of 127.0.0.1.
    pub(crate) fn over_tcp() -> Arc<Self> {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        Self::keep(free.port(), "127.0.0.1", Path::new(""))
    }

    /// A cluster for one test, whose programs have these environment variables.
    pub(crate) fn with_environment(environment: &[(String, String)]) -> Arc<Self> {
        Self::keep_in(PORT, "", Path::new(""), environment)
    }

    /// A streaming standby of this cluster.
    pub(crate) fn standby(&self) -> Arc<Self> {
        Self::keep(self.port, "", &self.folder)
    }

    fn keep(port: u16, listen: &str, primary: &Path) -> Arc<Self> {
        Self::keep_in(port, listen, primary, &[])
    }

    fn keep_in(port: u16, listen: &str, primary: &Path, environment: &[(String, String)]) -> Arc<Self> {
        let binaries = binaries();
        // Set by the server's user: a preloaded library leaves objects that only their owner can use.
        let mut script = unprivileged("env")
            .args(environment.iter().map(|(name, value)| format!("{name}={value}")))
            .arg("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&binaries)
            .args([&port.to_string(), listen])
            .arg(primary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(script.stdout.take().unwrap());
        let mut rebuild_issuer = Keeper { words: script.stdin.take().unwrap(), answers, _script: script };
        let folder = rebuild_issuer.answer("ready");
        Arc::new(Self {
            binaries,
            folder,
            port,
            databases: AtomicU32::new(0),
            rebuild_issuer: Mutex::new(rebuild_issuer),
        })
    }

    pub(crate) fn stop(&self) {
        let mut rebuild_issuer = self.rebuild_issuer.lock().unwrap();
        rebuild_issuer.words.write_all(b"stop\n").unwrap();
        rebuild_issuer.answer("stopped");
    }

    pub(crate) fn start(&self) {
        let mut rebuild_issuer = self.rebuild_issuer.lock().unwrap();
        rebuild_issuer.words.write_all(b"start\n").unwrap();
        rebuild_issuer.answer("ready");
    }

    pub(crate) fn promote(&self) {
        let mut rebuild_issuer = self.rebuild_issuer.lock().unwrap();
        rebuild_issuer.words.write_all(b"promote\n").unwrap();
        rebuild_issuer.answer("promoted");
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Writes a file that only the server may read to the folder, and returns its path.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let owner = std::fs::metadata(&self.folder).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        path
    }

    /// Sets server parameters (`name = value`) and waits until they apply to new connections.
    pub(crate) fn set(&self, parameters: &[&str]) {
        for parameter in parameters {
            self.psql("postgres", &format!("ALTER SYSTEM SET {parameter}"));
        }
        let loaded = || self.psql("postgres", "SELECT pg_conf_load_time()");
        let before = loaded();
        self.psql("postgres", "SELECT pg_reload_conf()");
        while loaded() == before {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn database(self: &Arc<Self>) -> Database {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        Database { cluster: self.clone(), name }
    }

    pub(crate) fn psql(&self, database: &str, sql: &str) -> String {
        let out = self.run("psql", &["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql]);
        String::from_utf8(out).unwrap().trim_end().to_owned()
    }

    pub(crate) fn dump(&self, database: &str) -> Vec<u8> {
        self.run("pg_dump", &["-d", database])
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(self.binaries.join(program));
        command.args(arguments).args(["-U", "signet", "-p", &self.port.to_string(), "-h"]).arg(&self.folder);
        command.stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

pub(crate) struct Database {
    cluster: Arc<Cluster>,
    pub name: String,
}

impl Database {
    pub(crate) fn url(&self) -> String {
        format!(
            "postgres:///{}?host={}&port={}&user=signet",
            self.name,
            self.cluster.folder.display(),
            self.cluster.port
        )
    }

    /// Its URL through a local port that forwards to the server.
    pub(crate) fn url_through(&self, port: u16) -> String {
        format!("postgres://signet@127.0.0.1:{port}/{}", self.name)
    }

    pub(crate) fn url_with(&self, standby: &Cluster) -> String {
        let folder = self.cluster.folder.display();
        let hosts = format!("host={folder},{}", standby.folder.display());
        self.url().replace(&format!("host={folder}"), &hosts)
    }

    pub(crate) fn on(&self, standby: &Arc<Cluster>) -> Self {
        Self { cluster: standby.clone(), name: self.name.clone() }
    }

    pub(crate) fn psql(&self, sql: &str) -> String {
        self.cluster.psql(&self.name, sql)
    }

    pub(crate) fn dump(&self) -> Vec<u8> {
        self.cluster.dump(&self.name)
    }

    /// Runs SQL text, such as a dump.
    pub(crate) fn load(&self, dump: &[u8]) {
        let binary = self.cluster.binaries.join("psql");
        let mut psql = Command::new(binary);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "signet", "-d", &self.name, "-h"]);
        let mut psql = psql.arg(&self.cluster.folder).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        psql.stdin.take().unwrap().write_all(dump).unwrap();
        assert!(psql.wait().unwrap().success());
    }

    /// The files of its tables and indexes, as they are on disk.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.psql("CHECKPOINT");
        let own = "SELECT pg_relation_filepath(oid) FROM pg_class WHERE pg_relation_filepath(oid) IS NOT NULL \
            AND (relnamespace = 'public'::regnamespace OR oid IN (SELECT t.reltoastrelid FROM pg_class t \
            WHERE t.relnamespace = 'public'::regnamespace))";
        let paths = self.psql(own);
        let read =
            |path: &str| (PathBuf::from(path), std::fs::read(self.cluster.folder.join("data").join(path)).unwrap());
        paths.lines().map(read).collect()
    }

    /// Rejects all connections, as a stopped server does; `false` accepts them again.
    pub(crate) fn out_of_reach(&self, out: bool) {
        let name = &self.name;
        self.cluster.psql("postgres", &format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {}", !out));
        self.end_connections();
    }

    pub(crate) fn end_connections(&self) {
        let all = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'", self.name);
        self.cluster.psql("postgres", &all);
    }

    /// Sends a signal to the backend of every connection; `STOP` simulates a server that hangs.
    pub(crate) fn signal_connections(&self, signal: &str) {
        let pids = format!("SELECT pid FROM pg_stat_activity WHERE datname = '{}'", self.name);
        for pid in self.cluster.psql("postgres", &pids).lines() {
            let sent = unprivileged("kill").args(["-s", signal, pid]).status().unwrap().success();
            // The backend may have exited.
            assert!(sent || !Path::new("/proc").join(pid).exists());
        }
    }
}

fn binaries() -> PathBuf {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = installed.filter(|path| path.join("bin/initdb").exists()).max_by_key(|path| version(path));
    newest
        .expect("PostgreSQL is not installed: no /usr/lib/postgresql/*/bin/initdb (tests/run installs it)")
        .join("bin")
}

fn unprivileged(program: &str) -> Command {
    let id = Command::new("id").arg("-u").output().unwrap().stdout;
    if id != b"0\n" {
        return Command::new(program);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let user = if passwd.lines().any(|line| line.starts_with("postgres:")) { "postgres" } else { "nobody" };
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups", program]).env("HOME", "/");
    command
}
