//! A measured server: a running one, or one that is started for the run, with the embedded store or a PostgreSQL
//! cluster.

use std::fs::{DirBuilder, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustix::process::Signal;

use crate::client::{OWN_HEADER, ServerEndpoint};
use crate::cluster::PostgresCluster;
use crate::drive::ServerAccess;
use crate::log_file::LogFile;
use crate::proc::{self, WatchedProcesses};
use crate::process::Process;
use crate::provision::Provisioner;
use crate::run_context::{self, ServerFacts};

/// The mount that `dev` creates.
pub(crate) const MOUNT: &str = "pki";
/// Folder of the server's own data, in the data folder of the run.
const NODE_FOLDER: &str = "signet";
const TOKEN: &str = "load-generator-root";

/// Launch options of a server. The fields are options of the command line.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub(crate) struct Launch {
    /// Start this `signet` binary for the run, and stop it afterwards.
    #[arg(long)]
    pub(crate) server: Option<PathBuf>,
    /// Start a PostgreSQL cluster in the data folder for that server: the folder of PostgreSQL's programs, or `auto`
    /// for the newest of Debian's.
    #[arg(long, value_name = "BINDIR", requires = "server")]
    pub(crate) postgres: Option<PathBuf>,
    /// RSA-2048 keys that the server generates while it is idle; with 0, each request generates its own key.
    // 0 by default: otherwise the first requests get keys for free, and other requests pay for new ones.
    #[arg(long, value_name = "N", requires = "server", default_value_t = 0)]
    pub(crate) rsa_stock: u32,
    /// Log every request of the started server to the log file in the data folder.
    #[arg(long, requires = "server")]
    pub(crate) access_log: bool,
    /// Data folder for `--server`, on the disk to be measured. Existing data is reused.
    #[arg(long, default_value = "load-data")]
    pub(crate) data_dir: PathBuf,
    /// Additional arguments of `dev`.
    #[arg(skip)]
    pub(crate) arguments: Vec<String>,
}

impl Launch {
    fn binary(&self) -> Result<&Path, String> {
        self.server.as_deref().ok_or_else(|| "--server: must name the signet binary".to_owned())
    }
}

/// Startup times of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartupTimes {
    /// Time from the start until the server listened.
    pub(crate) listening: Duration,
    /// Time from the start until its first CRL was read. The server sends the CRL only after it has loaded all
    /// revocations.
    pub(crate) crl: Duration,
}

impl std::fmt::Display for StartupTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [listening, crl] = [self.listening, self.crl].map(|time| time.as_secs_f64());
        write!(f, "listens after {listening:.2} s, first CRL after {crl:.2} s")
    }
}

/// Start of a `signet` binary.
struct LaunchedServer {
    data_dir: PathBuf,
    began: Instant,
    listening: Duration,
}

/// A server that responds. Fields are dropped in order: the run's objects are removed, then a server that was started
/// here stops, then its database.
pub(crate) struct Server {
    provisioner: Provisioner,
    _process: Option<Process>,
    cluster: Option<PostgresCluster>,
    /// `None` for a server that was not started from a binary.
    launched: Option<LaunchedServer>,
    pub(crate) endpoint: ServerEndpoint,
    pub(crate) token: String,
    pub(crate) mount: String,
    /// The user's description of the store.
    pub(crate) store: Option<String>,
    pub(crate) watched: WatchedProcesses,
}

impl Server {
    /// Returns a server that responds at `endpoint`; `process` was started for it. If `keep` is set, the objects
    /// of the run stay.
    pub(crate) fn at(
        endpoint: ServerEndpoint,
        token: &str,
        keep: bool,
        process: Option<Process>,
    ) -> Result<Self, String> {
        Ok(Self {
            provisioner: Provisioner::new(&endpoint, token, keep)?,
            watched: WatchedProcesses { server: process.as_ref().map(Process::pid), postgres: None },
            _process: process,
            cluster: None,
            launched: None,
            endpoint,
            token: token.to_owned(),
            mount: MOUNT.to_owned(),
            store: None,
        })
    }

    /// Starts `signet dev` on a free port and waits until it listens.
    pub(crate) async fn launch(launch: &Launch) -> Result<Self, String> {
        let data_dir = &launch.data_dir;
        launch.binary()?;
        // The user that runs PostgreSQL must be able to enter the folder; the folders inside are private.
        let made = DirBuilder::new().recursive(true).mode(0o755).create(data_dir);
        let folder = made
            .and_then(|()| data_dir.canonicalize())
            .map_err(|e| format!("the data folder {}: {e}", data_dir.display()))?;
        let postgres = launch.postgres.as_deref();
        let cluster =
            postgres.map(|programs| PostgresCluster::start(programs, &folder.join("postgres"))).transpose()?;
        let url = cluster.as_ref().map(PostgresCluster::url);
        let node = Self::node(launch, &folder, NODE_FOLDER, url.as_deref()).await?;
        let watched = WatchedProcesses { postgres: cluster.as_ref().map(PostgresCluster::pid), ..node.watched };
        Ok(Self { cluster, watched, ..node })
    }

    /// Starts another node on the cluster of this one.
    pub(crate) async fn launch_second_node(&self, launch: &Launch) -> Result<Self, String> {
        let url = self.cluster.as_ref().ok_or("a second node needs a PostgreSQL cluster")?.url();
        let name = format!("{NODE_FOLDER}-2");
        let folder = launch.data_dir.join(&name);
        let key = |folder: &Path| folder.join("seal.key");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .and_then(|()| std::fs::copy(key(&launch.data_dir.join(NODE_FOLDER)), key(&folder)))
            .map_err(|e| format!("the data folder {}: {e}", folder.display()))?;
        Self::node(launch, &launch.data_dir, &name, Some(&url)).await
    }

    /// Starts a server on an existing `database`. Without a database, the server uses the embedded store.
    async fn node(launch: &Launch, data_dir: &Path, name: &str, database: Option<&str>) -> Result<Self, String> {
        let mut command = Command::new(launch.binary()?);
        command.args(["dev", "--listen", "127.0.0.1:0", "--root-token", TOKEN, "--data-dir"]);
        command.arg(data_dir.join(name)).args(&launch.arguments);
        if let Some(url) = database {
            command.args(["--database-url", url]);
        }
        for (size, keys) in [("2048", launch.rsa_stock), ("3072", 0), ("4096", 0)] {
            command.env(format!("SIGNET_RSA_KEY_STOCK_{size}"), keys.to_string());
        }
        Self::spawn(launch, command, data_dir.join(format!("{name}.log")), None).await
    }

    /// Starts a TLS server with an RSA-4096 key on the embedded store of a server that has ended.
    pub(crate) async fn over_tls(launch: &Launch) -> Result<Self, String> {
        let data_dir = &launch.data_dir;
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
        let data = folder.join(NODE_FOLDER);
        // A JSON string is also a valid TOML string.
        let text = |path: &Path| serde_json::Value::from(path.to_string_lossy().into_owned()).to_string();
        let config = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = {}\ntls_certificate_file = {}\ntls_key_file = {}\n",
            text(&data),
            text(&certificate),
            text(&key)
        );
        let mut command = Command::new(launch.binary()?);
        command.arg("serve").arg("--config").arg(file("tls.toml", config)?);
        Self::spawn(launch, command, folder.join(format!("{NODE_FOLDER}-tls.log")), Some(&certificate)).await
    }

    /// Starts a server and waits until it listens. `ca_file` is the CA certificate of a TLS server.
    async fn spawn(
        launch: &Launch,
        mut command: Command,
        log: PathBuf,
        ca_file: Option<&Path>,
    ) -> Result<Self, String> {
        let binary = launch.binary()?;
        let version = version(binary);
        let log = LogFile::create(log)?;
        command.env("SIGNET_LOG_ACCESS", launch.access_log.to_string()).env_remove("SIGNET_DATABASE_URL");
        // A separate process group: a Ctrl-C at the terminal must not stop the server before the run is cleaned up.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.stdio()?);
        let began = Instant::now();
        let mut child = command.spawn().map_err(|e| format!("starting {}: {e}", binary.display()))?;
        let output = child.stdout.take().ok_or("the standard output of the server is not captured")?;
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
        let endpoint = ServerEndpoint::new(&address, OWN_HEADER, ca_file)?;
        run_context::note_server(ServerFacts { name: "signet".to_owned(), address, version });
        let launched = Some(LaunchedServer { data_dir: launch.data_dir.clone(), began, listening });
        Ok(Self { launched, ..Self::at(endpoint, TOKEN, false, Some(process))? })
    }

    /// Uses `endpoint`, with other connection settings, for the requests of the run.
    pub(crate) fn with_endpoint(self, endpoint: ServerEndpoint, keep: bool) -> Result<Self, String> {
        Ok(Self { provisioner: Provisioner::new(&endpoint, &self.token, keep)?, endpoint, ..self })
    }

    /// `true` if this program started the server from a binary.
    pub(crate) fn is_launched(&self) -> bool {
        self.launched.is_some()
    }

    /// Returns the folder for disk measurements: the data folder of a started server, or the current folder.
    pub(crate) fn folder(&self) -> &Path {
        self.launched.as_ref().map_or(Path::new("."), |launched| &launched.data_dir)
    }

    /// Reads the first CRL and returns the startup times; to be called right after the start. `None` unless the server
    /// was started from a binary and the mount is that of `dev`.
    pub(crate) async fn start(&self) -> Result<Option<StartupTimes>, String> {
        let Some(launched) = self.launched.as_ref().filter(|_| self.mount == MOUNT) else { return Ok(None) };
        self.access().connect().await?.get(&self.access().path("crl")).await?;
        Ok(Some(StartupTimes { listening: launched.listening, crl: launched.began.elapsed() }))
    }

    /// Returns the server, the token that creates objects, and the mount.
    pub(crate) fn access(&self) -> ServerAccess<'_> {
        ServerAccess {
            endpoint: &self.endpoint,
            token: &self.token,
            mount: &self.mount,
            provisioner: &self.provisioner,
        }
    }

    /// Runs an SQL statement in the server's database. Returns the rows without headings.
    pub(crate) fn psql(&self, sql: &str) -> Result<String, String> {
        self.cluster
            .as_ref()
            .map_or_else(|| Err("the server has no PostgreSQL cluster".to_owned()), |cluster| cluster.query(sql))
    }

    /// Returns the name of the server's store, or the user's description of the store.
    pub(crate) fn store(&self) -> Result<Option<String>, String> {
        match (&self.cluster, &self.launched) {
            (Some(cluster), _) => Ok(Some(format!("PostgreSQL {}", cluster.version()?))),
            (None, Some(_)) => Ok(Some("SQLite".to_owned())),
            (None, None) => Ok(self.store.clone()),
        }
    }

    /// Returns the title of a report.
    pub(crate) fn title(&self, name: &str) -> Result<String, String> {
        Ok(format!("{name} on {}", self.store()?.as_deref().unwrap_or("a running server")))
    }

    /// Returns the process whose CPU time and memory are reported.
    pub(crate) fn process(&self) -> Option<String> {
        self.watched.server.map(proc::title)
    }

    /// Waits until earlier writes are on disk, so that the run does not pay for them.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.cluster.as_ref().map_or(Ok(()), PostgresCluster::settle)?;
        if self.is_launched() {
            rustix::fs::sync();
        }
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
        // Another process writes the file: a file that this process has open for writing cannot be executed (ETXTBSY).
        let write = "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\"";
        assert!(Command::new("sh").arg("-c").arg(write).arg(&path).arg(text).status().unwrap().success());
        path
    }

    fn launch(binary: &Path, data_dir: &Path) -> Launch {
        Launch { server: Some(binary.to_owned()), data_dir: data_dir.to_owned(), ..Launch::default() }
    }

    #[tokio::test]
    async fn server_log_goes_to_a_file_and_requests_are_logged_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let says = "echo \"access=$SIGNET_LOG_ACCESS\" >&2; echo listening on http://127.0.0.1:1; exec sleep 60";
        let binary = program(folder.path(), says);
        for access_log in [false, true] {
            let launch = Launch { access_log, ..launch(&binary, folder.path()) };
            let (_, stopped) = tokio::sync::watch::channel(false);
            let (started, notes) = run_context::scope(stopped, async {
                let started = Server::launch(&launch).await;
                (started.map(|started| started.endpoint.host().to_owned()), run_context::servers())
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
        let cause = Server::launch(&launch(&binary, folder.path())).await.err().unwrap();
        assert!(cause.contains("signet.log:") && cause.contains("no such disk"), "{cause}");
    }
}
