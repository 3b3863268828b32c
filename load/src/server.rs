//! A server that is started for the run, with the embedded store or a PostgreSQL cluster.

use std::fs::{DirBuilder, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustix::process::Signal;

use crate::client::{OWN_HEADER, Peer};
use crate::cluster::Cluster;
use crate::crl;
use crate::drive::Place;
use crate::log_file::LogFile;
use crate::proc::Watched;
use crate::process::Process;
use crate::provision::Provisioner;
use crate::run_context::{self, ServerFacts};

/// The mount that `dev` creates.
pub(crate) const MOUNT: &str = "pki";
/// Folder of a server's own data, below that of the run.
const NODE: &str = "signet";
const TOKEN: &str = "load-generator-root";

/// Launch options of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) binary: &'a Path,
    /// Folder of its data and its log.
    pub(crate) data_dir: &'a Path,
    /// Folder of PostgreSQL's programs, or `auto`; `None` for the embedded store.
    pub(crate) postgres: Option<&'a Path>,
    /// Additional arguments of `dev`.
    pub(crate) arguments: &'a [&'a str],
    /// RSA-2048 keys that it generates while it is idle. 0 by default: otherwise the first requests would get keys for
    /// free, and other requests would pay for new ones.
    pub(crate) rsa_stock: u32,
    /// `true`: it logs every request, which costs CPU time.
    pub(crate) access_log: bool,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(binary: &'a Path, data_dir: &'a Path) -> Self {
        Self { binary, data_dir, postgres: None, arguments: &[], rsa_stock: 0, access_log: false }
    }
}

/// Startup times of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Time until it listened.
    pub(crate) listening: Duration,
    /// Time until its first CRL was read, which waits until all revocations are loaded.
    pub(crate) crl: Duration,
}

/// A server that was started here. Fields are dropped in order: the run's objects are removed, then the server stops,
/// then its database.
pub(crate) struct Started {
    provisioner: Provisioner,
    process: Process,
    cluster: Option<Cluster>,
    began: Instant,
    listening: Duration,
    pub(crate) peer: Peer,
    pub(crate) token: String,
}

impl Started {
    /// Starts `binary dev` on a free port and waits until it listens.
    pub(crate) async fn launch(launch: &Launch<'_>) -> Result<Self, String> {
        let data_dir = launch.data_dir;
        // The user that runs PostgreSQL must be able to enter the folder; the folders inside are private.
        let made = DirBuilder::new().recursive(true).mode(0o755).create(data_dir);
        let folder = made
            .and_then(|()| data_dir.canonicalize())
            .map_err(|e| format!("the data folder {}: {e}", data_dir.display()))?;
        let cluster = launch.postgres.map(|programs| Cluster::start(programs, &folder.join("postgres"))).transpose()?;
        let url = cluster.as_ref().map(Cluster::url);
        let node = Self::node(launch, &folder, NODE, url.as_deref()).await?;
        Ok(Self { cluster, ..node })
    }

    /// Starts another node on the cluster of this one.
    pub(crate) async fn another(&self, launch: &Launch<'_>) -> Result<Self, String> {
        let url = self.cluster.as_ref().ok_or("another node needs a PostgreSQL cluster")?.url();
        let name = format!("{NODE}-2");
        let folder = launch.data_dir.join(&name);
        let key = |folder: &Path| folder.join("seal.key");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .and_then(|()| std::fs::copy(key(&launch.data_dir.join(NODE)), key(&folder)))
            .map_err(|e| format!("the data folder {}: {e}", folder.display()))?;
        Self::node(launch, launch.data_dir, &name, Some(&url)).await
    }

    /// Starts a server on an existing database, or on the embedded store without one.
    async fn node(launch: &Launch<'_>, data_dir: &Path, name: &str, database: Option<&str>) -> Result<Self, String> {
        let mut command = Command::new(launch.binary);
        command.args(["dev", "--listen", "127.0.0.1:0", "--root-token", TOKEN, "--data-dir"]);
        command.arg(data_dir.join(name)).args(launch.arguments);
        if let Some(url) = database {
            command.args(["--database-url", url]);
        }
        for (size, keys) in [("2048", launch.rsa_stock), ("3072", 0), ("4096", 0)] {
            command.env(format!("SIGNET_RSA_KEY_STOCK_{size}"), keys.to_string());
        }
        Self::run(launch, command, data_dir.join(format!("{name}.log")), None).await
    }

    /// Starts a TLS server with an RSA-4096 key on the embedded store of a server that has ended.
    pub(crate) async fn over_tls(launch: &Launch<'_>) -> Result<Self, String> {
        let data_dir = launch.data_dir;
        let folder = data_dir.canonicalize().map_err(|e| format!("the data folder {}: {e}", data_dir.display()))?;
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            let written = std::fs::write(&path, text)
                .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o600)));
            written.map(|()| path.clone()).map_err(|e| format!("{}: {e}", path.display()))
        };
        let made = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096).and_then(|key| {
            let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?;
            Ok((key, certificate))
        });
        let (key, certificate) = made.map_err(|e| format!("the certificate of the server: {e}"))?;
        let certificate = file("tls.pem", certificate.pem())?;
        let key = file("tls-key.pem", key.serialize_pem())?;
        let data = folder.join(NODE);
        // A JSON string is also a valid TOML string.
        let text = |path: &Path| serde_json::Value::from(path.to_string_lossy().into_owned()).to_string();
        let config = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = {}\ntls_certificate_file = {}\ntls_key_file = {}\n",
            text(&data),
            text(&certificate),
            text(&key)
        );
        let mut command = Command::new(launch.binary);
        command.arg("serve").arg("--config").arg(file("tls.toml", config)?);
        Self::run(launch, command, folder.join(format!("{NODE}-tls.log")), Some(&certificate)).await
    }

    /// Starts a server and waits until it listens. `ca_file` is the CA certificate of a TLS server.
    async fn run(
        launch: &Launch<'_>,
        mut command: Command,
        log: PathBuf,
        ca_file: Option<&Path>,
    ) -> Result<Self, String> {
        let version = version(launch.binary);
        let log = LogFile::create(log)?;
        command.env("SIGNET_LOG_ACCESS", launch.access_log.to_string()).env_remove("SIGNET_DATABASE_URL");
        // A separate process group: a Ctrl-C at the terminal must not stop the server before the run is cleaned up.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.stdio()?);
        let began = Instant::now();
        let mut child = command.spawn().map_err(|e| format!("starting {}: {e}", launch.binary.display()))?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let process = Process::new(child, Signal::TERM);
        let (say, listens) = tokio::sync::oneshot::channel();
        // The thread reads to the end, so that the server never blocks on a full pipe.
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            let addr = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
            let _ = say.send(addr.map(|addr| (addr, began.elapsed())));
            lines.for_each(drop);
        });
        let listens = run_context::unless_interrupted(async { Ok(listens.await.ok().flatten()) }).await?;
        let (address, listening) =
            listens.ok_or_else(|| format!("the server ended before it listened; {}", log.shown()))?;
        let peer = Peer::new(&address, OWN_HEADER, ca_file)?;
        let provisioner = Provisioner::new(&peer, TOKEN, false)?;
        run_context::note_server(ServerFacts { name: "signet".to_owned(), address, version });
        Ok(Self { provisioner, process, cluster: None, began, listening, peer, token: TOKEN.to_owned() })
    }

    /// Reads the first CRL and returns the startup times; to be called right after the start.
    pub(crate) async fn start(&self) -> Result<Start, String> {
        crl::get(&mut self.place().connect().await?, MOUNT).await?;
        Ok(Start { listening: self.listening, crl: self.began.elapsed() })
    }

    /// Returns the processes whose CPU time is measured.
    pub(crate) fn watched(&self) -> Watched {
        Watched { server: Some(self.pid()), postgres: self.cluster.as_ref().map(Cluster::pid) }
    }

    /// Returns the server, the root token and the mount.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { peer: &self.peer, token: &self.token, mount: MOUNT, provisioner: &self.provisioner }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Runs a statement in its database. Returns the rows without headings.
    pub(crate) fn psql(&self, sql: &str) -> Result<String, String> {
        self.cluster.as_ref().map_or_else(|| Err("the server has no cluster".to_owned()), |cluster| cluster.query(sql))
    }

    /// Returns the name of its store.
    pub(crate) fn store(&self) -> Result<String, String> {
        let postgres = |cluster: &Cluster| cluster.version().map(|version| format!("PostgreSQL {version}"));
        self.cluster.as_ref().map_or_else(|| Ok("SQLite".to_owned()), postgres)
    }

    /// Waits until earlier writes are on disk, so that the run does not pay for them.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.cluster.as_ref().map_or(Ok(()), Cluster::settle)?;
        rustix::fs::sync();
        Ok(())
    }
}

fn version(binary: &Path) -> Option<String> {
    let output = Command::new(binary).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a shell script that runs `text`, or prints a version for `--version`.
    fn program(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("server");
        let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo fake 1.2.3 && exit\n{text}\n");
        // Another process writes it: a file that this process has open for writing cannot be executed (ETXTBSY).
        let write = "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\"";
        assert!(Command::new("sh").arg("-c").arg(write).arg(&path).arg(text).status().unwrap().success());
        path
    }

    #[tokio::test]
    async fn server_log_goes_to_a_file_and_requests_are_logged_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let says = "echo \"access=$SIGNET_LOG_ACCESS\" >&2; echo listening on http://127.0.0.1:1; exec sleep 60";
        let binary = program(folder.path(), says);
        for access_log in [false, true] {
            let launch = Launch { access_log, ..Launch::new(&binary, folder.path()) };
            let (_, stopped) = tokio::sync::watch::channel(false);
            let (started, notes) = run_context::scope(stopped, async {
                let started = Started::launch(&launch).await;
                (started.map(|started| started.peer.host().to_owned()), run_context::servers())
            })
            .await;
            assert_eq!(started.0.unwrap(), "127.0.0.1:1");
            assert_eq!(started.1[0].version.as_deref(), Some("fake 1.2.3"));
            let log = folder.path().canonicalize().unwrap().join("signet.log");
            assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("access={access_log}\n"));
            assert_eq!(notes.logs(), [log]);
        }
    }

    #[tokio::test]
    async fn server_that_ends_at_once_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let binary = program(folder.path(), "echo no such disk >&2; exit 3");
        let cause = Started::launch(&Launch::new(&binary, folder.path())).await.err().unwrap();
        assert!(cause.contains("signet.log:") && cause.contains("no such disk"), "{cause}");
    }
}
