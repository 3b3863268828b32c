//! A PostgreSQL cluster for the run, created in a folder or reused. It is durable and listens only on a Unix socket.
//!
//! PostgreSQL refuses to run as root, so root runs its programs as another user.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::Process;
use crate::run_context;

/// Settings that override the configuration file of the cluster: default durability, and sizes for a few GB of data.
const CLUSTER_SETTINGS: &[&str] = &[
    "listen_addresses=",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=5min",
    "autovacuum=on",
];
/// Name of the superuser and of the server's database.
const DATABASE: &str = "signet";
/// Time limit for the start, including crash recovery.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running cluster; it stops on drop.
pub(crate) struct PostgresCluster {
    postmaster: Process,
    programs: PathBuf,
    /// Folder of the data, the socket and the log.
    folder: PathBuf,
}

impl PostgresCluster {
    /// Starts the cluster in `folder`, and creates cluster and database first if they are missing. `programs` is the
    /// folder of `initdb` and `postgres`, or `auto` for the newest of Debian's.
    pub(crate) fn start(programs: &Path, folder: &Path) -> Result<Self, String> {
        let programs = if programs == Path::new("auto") { newest_installation()? } else { programs.to_owned() };
        let user = SystemUser::of_postgres()?;
        prepare(folder, user.as_ref()).map_err(|e| format!("{}: {e}", folder.display()))?;
        let data = folder.join("data");
        if !data.join("PG_VERSION").exists() {
            let mut initdb = SystemUser::command(user.as_ref(), &programs.join("initdb"), folder);
            initdb.args(["-U", DATABASE, "-A", "trust", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
            run_to_success(initdb)?;
        }
        let log_path = folder.join("log");
        let log = File::create(&log_path).map_err(|e| e.to_string())?;
        run_context::note_log(&log_path);
        let mut postgres = SystemUser::command(user.as_ref(), &programs.join("postgres"), folder);
        postgres.arg("-D").arg(&data).arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
        postgres.args(CLUSTER_SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A separate process group: a Ctrl-C at the terminal must not stop the cluster before the server.
        let child = postgres.process_group(0).spawn().map_err(|e| format!("starting postgres: {e}"))?;
        let mut cluster = Self { postmaster: Process::new(child, Signal::INT), programs, folder: folder.to_owned() };
        cluster.wait_until_ready()?;
        if cluster.psql("postgres", &format!("SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"))?.is_empty() {
            cluster.psql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        }
        Ok(cluster)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let mut ready = Command::new(self.programs.join("pg_isready"));
            ready.args(["-q", "-U", DATABASE, "-d", "postgres", "-h"]).arg(&self.folder).stdin(Stdio::null());
            if ready.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            if self.postmaster.ended() || Instant::now() > until {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("PostgreSQL did not start:\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the id of the postmaster, the parent of all processes of the cluster.
    pub(crate) fn pid(&self) -> u32 {
        self.postmaster.pid()
    }

    /// Returns the database URL for the server.
    pub(crate) fn url(&self) -> String {
        format!("postgres:///{DATABASE}?host={}&user={DATABASE}", self.folder.display())
    }

    pub(crate) fn version(&self) -> Result<String, String> {
        self.psql(DATABASE, "SHOW server_version")
    }

    /// Vacuums, analyzes and writes dirty pages, so that every run starts in the same state and does not pay for the
    /// filling of the store before it.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.psql(DATABASE, "VACUUM (ANALYZE)")?;
        self.psql(DATABASE, "CHECKPOINT").map(drop)
    }

    /// Runs a statement in the server's database. Returns the rows without headings.
    pub(crate) fn query(&self, sql: &str) -> Result<String, String> {
        self.psql(DATABASE, sql)
    }

    fn psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-U", DATABASE, "-d", database, "-c", sql, "-h"]);
        psql.arg(&self.folder);
        run_to_success(psql).map(|answer| answer.trim_end().to_owned())
    }
}

fn run_to_success(mut command: Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Creates the folder, accessible only to the user.
fn prepare(folder: &Path, user: Option<&SystemUser>) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    user.map_or(Ok(()), |user| chown(folder, Some(user.id), Some(user.group)))
}

fn newest_installation() -> Result<PathBuf, String> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = installed.filter(|path| path.join("bin/initdb").exists()).max_by_key(|path| version(path));
    newest.map(|path| path.join("bin")).ok_or_else(|| {
        "PostgreSQL is not installed: no /usr/lib/postgresql/*/bin/initdb; name the folder of its programs".to_owned()
    })
}

/// The user that runs PostgreSQL instead of root.
#[derive(Debug, PartialEq)]
struct SystemUser {
    id: u32,
    group: u32,
}

impl SystemUser {
    /// Returns `None` if this process does not run as root and can run PostgreSQL itself.
    fn of_postgres() -> Result<Option<Self>, String> {
        let root = std::fs::metadata("/proc/self").map_err(|e| e.to_string())?.uid() == 0;
        if !root {
            return Ok(None);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
        let user = Self::named("postgres", &passwd).or_else(|| Self::named("nobody", &passwd));
        user.map(Some).ok_or_else(|| "there is no user postgres and no user nobody to run PostgreSQL".to_owned())
    }

    fn named(name: &str, passwd: &str) -> Option<Self> {
        let mut fields = passwd.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
        Some(Self { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }

    /// Returns a command that runs as this user in `folder`, because the current folder may not be accessible to it.
    fn command(user: Option<&Self>, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder);
        if let Some(user) = user {
            // Setting the user as root also drops the supplementary groups.
            command.gid(user.group).uid(user.id).env("HOME", folder);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_user_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\npostgresql:x:5:6::/:/bin/sh\npostgres:x:111:119:,,,:/v:/bin/bash\n";
        assert_eq!(SystemUser::named("postgres", passwd), Some(SystemUser { id: 111, group: 119 }));
        assert_eq!(SystemUser::named("root", passwd), Some(SystemUser { id: 0, group: 0 }));
        assert_eq!(SystemUser::named("nobody", passwd), None);
        assert_eq!(SystemUser::named("x", "x:y\n"), None);
    }
}
