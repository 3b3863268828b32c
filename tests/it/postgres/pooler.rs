//! A connection pooler between the server and its database.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::start::site;
use crate::cluster::Cluster;
use crate::process::refused;

const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

/// PgBouncer in front of a cluster, killed on drop.
struct Pooler {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Pooler {
    fn start(server: u16, pool_mode: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=signet\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {pool_mode}\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(PGBOUNCER);
        command.arg("-q").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        // It refuses to run as root, and reads its file before it changes the user.
        if rustix::process::getuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        let mut pooler = Self { process: command.spawn().unwrap(), port, _folder: folder };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(pooler.process.try_wait().unwrap().is_none(), "the pooler has ended");
            assert!(started.elapsed() < Duration::from_secs(20), "the pooler does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn pooler_without_session_mode_is_rejected_before_migration() {
    let cluster = Cluster::over_tcp();
    for pool_mode in ["transaction", "statement"] {
        let database = cluster.database();
        let pooler = Pooler::start(cluster.port(), pool_mode);
        let site = site(&database.url_through(pooler.port));
        let error = refused(&mut site.command(&["operator", "init"]));
        assert!(error.contains("pool_mode = session"), "{pool_mode}: {error}");
        assert_eq!(database.psql("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'"), "0", "{pool_mode}");
    }
}

#[test]
fn pooler_in_session_mode_is_accepted() {
    let cluster = Cluster::over_tcp();
    let database = cluster.database();
    let pooler = Pooler::start(cluster.port(), "session");
    let site = site(&database.url_through(pooler.port));
    let token = site.init();
    let served = site.serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(served.client(&token).get("sys/mounts")).status, 200);
    served.terminate();
}
