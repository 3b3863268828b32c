//! A server started for the run, with its store: the embedded one or a PostgreSQL cluster.

use std::fs::{DirBuilder, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::client::{OWN_HEADER, Peer};
use crate::cluster::Cluster;
use crate::crl;
use crate::drive::{Place, Watched};
use crate::proc;

/// The mount that `dev` makes.
pub(crate) const MOUNT: &str = "pki";
/// The folder of a server's own data, below that of the run.
const NODE: &str = "signet";
/// The root token of the servers.
const TOKEN: &str = "load-generator-root";
/// Longest time for a process of ours to end in good order.
const STOP: Duration = Duration::from_secs(60);

/// A process of ours; when this is dropped it is told to end, and waited for.
pub(crate) struct Process {
    child: Child,
    stop: Signal,
    /// It leads a group, and all of the group are told.
    group: bool,
}

impl Process {
    pub(crate) fn new(child: Child, stop: Signal) -> Self {
        Self { child, stop, group: false }
    }

    /// A process that was started as the leader of a group: a shell, and whatever it started.
    pub(crate) fn group(child: Child, stop: Signal) -> Self {
        Self { child, stop, group: true }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and all of its group.
    pub(crate) fn ended(&mut self) -> bool {
        let ended = !matches!(self.child.try_wait(), Ok(None));
        ended && !(self.group && proc::group_lives(self.pid()))
    }

    /// Sends a signal to the process, or its group. It may end at this moment; then nobody gets it.
    fn signal(&self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else { return };
        let _ = if self.group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended() {
            self.signal(self.stop);
        }
        let until = Instant::now() + STOP;
        while !self.ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.ended() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// What a server is started with beside its store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras<'a> {
    /// Further arguments of `dev`.
    pub(crate) arguments: &'a [&'a str],
    /// RSA-2048 keys that it makes while nobody asks. None unless it is said: the first requests of a run would take
    /// them for nothing, and whoever asks for something else would pay for the next ones.
    pub(crate) rsa_stock: u32,
}

/// How long a server took to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Until it listened.
    pub(crate) listening: Duration,
    /// Until its first CRL was read to the end: that one waits until all revocations were loaded.
    pub(crate) crl: Duration,
}

/// A server of ours and where it listens. Dropped in this order: the server goes before its store.
pub(crate) struct Started {
    process: Process,
    cluster: Option<Cluster>,
    began: Instant,
    listening: Duration,
    pub(crate) peer: Peer,
    pub(crate) token: String,
}

impl Started {
    /// Starts `binary dev` on a free port with its data below `data_dir`, and waits until it listens.
    /// With `postgres` (a folder of its programs, or `auto`) its store is a cluster below `data_dir`.
    pub(crate) fn new(binary: &Path, data_dir: &Path, postgres: Option<&Path>) -> Result<Self, String> {
        Self::with(binary, data_dir, postgres, Extras::default())
    }

    /// The same, with more.
    pub(crate) fn with(
        binary: &Path,
        data_dir: &Path,
        postgres: Option<&Path>,
        extras: Extras<'_>,
    ) -> Result<Self, String> {
        // The user who runs PostgreSQL must come through; the folders in it are closed.
        let made = DirBuilder::new().recursive(true).mode(0o755).create(data_dir);
        let folder = made
            .and_then(|()| data_dir.canonicalize())
            .map_err(|e| format!("the data folder {}: {e}", data_dir.display()))?;
        let cluster = postgres.map(|programs| Cluster::start(programs, &folder.join("postgres"))).transpose()?;
        let url = cluster.as_ref().map(Cluster::url);
        let node = Self::node(binary, &folder.join(NODE), url.as_deref(), extras)?;
        Ok(Self { cluster, ..node })
    }

    /// Starts another node on the cluster of this one, which has its data below `data_dir`.
    pub(crate) fn another(&self, binary: &Path, data_dir: &Path) -> Result<Self, String> {
        let url = self.cluster.as_ref().ok_or("another node needs a PostgreSQL cluster")?.url();
        let folder = data_dir.join(format!("{NODE}-2"));
        let key = |folder: &Path| folder.join("seal.key");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .and_then(|()| std::fs::copy(key(&data_dir.join(NODE)), key(&folder)))
            .map_err(|e| format!("the data folder {}: {e}", folder.display()))?;
        Self::node(binary, &folder, Some(&url), Extras::default())
    }

    /// Starts a server on a store that is there, the embedded one where no database is named.
    fn node(
        binary: &Path,
        folder: &Path,
        database: Option<&str>,
        Extras { arguments, rsa_stock }: Extras<'_>,
    ) -> Result<Self, String> {
        let mut command = Command::new(binary);
        command.args(["dev", "--listen", "127.0.0.1:0", "--root-token", TOKEN, "--data-dir"]);
        command.arg(folder).args(arguments);
        if let Some(url) = database {
            command.args(["--database-url", url]);
        }
        for (size, keys) in [("2048", rsa_stock), ("3072", 0), ("4096", 0)] {
            command.env(format!("SIGNET_RSA_KEY_STOCK_{size}"), keys.to_string());
        }
        Self::run(command, None)
    }

    /// Serves the embedded store of a server that has ended over TLS, with an RSA key of 4096 bits.
    pub(crate) fn over_tls(binary: &Path, data_dir: &Path) -> Result<Self, String> {
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
        // A text of JSON is one of TOML.
        let text = |path: &Path| serde_json::Value::from(path.to_string_lossy().into_owned()).to_string();
        let config = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = {}\ntls_certificate_file = {}\ntls_key_file = {}\n",
            text(&data),
            text(&certificate),
            text(&key)
        );
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(file("tls.toml", config)?);
        Self::run(command, Some(&certificate))
    }

    /// Starts a server and waits until it listens, over TLS with this authority.
    fn run(mut command: Command, ca_file: Option<&Path>) -> Result<Self, String> {
        command.env_remove("SIGNET_DATABASE_URL").stdout(Stdio::piped());
        let began = Instant::now();
        let program = command.get_program().to_owned();
        let mut child = command.spawn().map_err(|e| format!("starting {}: {e}", program.display()))?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let process = Process::new(child, Signal::TERM);
        let mut lines = BufReader::new(output).lines();
        let addr = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .ok_or("the server ended before it listened")?;
        let listening = began.elapsed();
        // The rest of its output is read, so that it never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let peer = Peer::new(&addr, OWN_HEADER, ca_file)?;
        Ok(Self { process, cluster: None, began, listening, peer, token: TOKEN.to_owned() })
    }

    /// Asks for the first CRL; to be called right after the start.
    pub(crate) async fn start(&self) -> Result<Start, String> {
        crl::get(&mut self.place().connect().await?, MOUNT).await?;
        Ok(Start { listening: self.listening, crl: self.began.elapsed() })
    }

    /// The processes whose CPU time counts.
    pub(crate) fn watched(&self) -> Watched {
        Watched { server: Some(self.pid()), postgres: self.postgres_pid() }
    }

    /// Who asks it.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { peer: &self.peer, token: &self.token, mount: MOUNT }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn postgres_pid(&self) -> Option<u32> {
        self.cluster.as_ref().map(Cluster::pid)
    }

    /// Runs a statement in its database; what it answers, without headings.
    pub(crate) fn psql(&self, sql: &str) -> Result<String, String> {
        self.cluster.as_ref().map_or_else(|| Err("the server has no cluster".to_owned()), |cluster| cluster.query(sql))
    }

    /// The name of its store.
    pub(crate) fn store(&self) -> Result<String, String> {
        let postgres = |cluster: &Cluster| cluster.version().map(|version| format!("PostgreSQL {version}"));
        self.cluster.as_ref().map_or_else(|| Ok("SQLite".to_owned()), postgres)
    }

    /// Waits until what was written before is on disk, so that the run does not pay for it.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.cluster.as_ref().map_or(Ok(()), Cluster::settle)?;
        rustix::fs::sync();
        Ok(())
    }
}
