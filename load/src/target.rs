//! The measured server: a running one, one that a command line starts, or a `signet` binary that is started here.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use rustix::process::Signal;

use serde_json::Value;

use crate::client::{Client, OWN_HEADER, Peer, VAULT_HEADER};
use crate::drive::Place;
use crate::log_file::LogFile;
use crate::plan::{Plan, Stock};
use crate::proc::Watched;
use crate::process::Process;
use crate::provision::Provisioner;
use crate::run_context::{self, ServerFacts};
use crate::scenario;
use crate::server::{Launch, MOUNT, Started};
use crate::{Scenario, proc};

/// Time limit for a command line to start a server.
const UP: Duration = Duration::from_secs(60);

/// Default data folder.
pub(crate) const DATA_DIR: &str = "load-data";

/// Address of a server, or how it is started, and how to connect to it. The fields are options of the command line.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub(crate) struct Target {
    /// Name in reports.
    #[arg(skip = "signet")]
    pub(crate) name: String,
    /// Shell command line that starts a server.
    #[arg(skip)]
    pub(crate) command: Option<String>,
    /// Address of a running server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    pub(crate) addr: String,
    /// Token that may write policies and roles there.
    #[arg(long, env = "SIGNET_TOKEN", default_value = "", hide_env_values = true)]
    pub(crate) token: String,
    /// Header that carries the token (X-Vault-Token; X-Service-Token for a server that is started here).
    #[arg(long, value_name = "NAME")]
    pub(crate) token_header: Option<String>,
    /// CA certificate for an https address, PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The mount. By default the run creates and removes its own; with `--server` it uses that of the data folder. An
    /// existing mount at `--addr` is rejected unless `--prepared` is set.
    #[arg(long, value_name = "NAME")]
    pub(crate) mount: Option<String>,
    /// The role, which the run creates and removes. An existing role is rejected unless `--prepared` is set.
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// Use an existing mount, root and role as they are; create nothing.
    #[arg(long)]
    pub(crate) prepared: bool,
    /// Leave mount, role and policy on the server.
    #[arg(long, conflicts_with = "prepared")]
    pub(crate) keep: bool,
    /// Start this `signet` binary for the run, and stop it afterwards.
    #[arg(long)]
    pub(crate) server: Option<PathBuf>,
    /// Start a PostgreSQL cluster in the data folder for that server: the folder of PostgreSQL's programs, or `auto`
    /// for the newest of Debian's.
    #[arg(long, value_name = "BINDIR", requires = "server")]
    pub(crate) postgres: Option<PathBuf>,
    /// RSA-2048 keys that the server generates while it is idle; with 0, each request generates its own key.
    #[arg(long, value_name = "N", requires = "server", default_value_t = 0)]
    pub(crate) rsa_stock: u32,
    /// Log every request of the started server to the log file in the data folder.
    #[arg(long, requires = "server")]
    pub(crate) access_log: bool,
    /// Description of a running server's store, for the report.
    #[arg(long, value_name = "TEXT", conflicts_with = "server")]
    pub(crate) store: Option<String>,
    /// Data folder for `--server`, on the disk to be measured. Existing data is reused.
    #[arg(long, default_value = DATA_DIR)]
    pub(crate) data_dir: PathBuf,
    /// Process id of a running server, for its CPU time; detected if the server listens on the loopback.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
}

/// A server that responds. Fields are dropped in order: the run's objects are removed, then a server that was started
/// here stops.
pub(crate) struct Open {
    provisioner: Provisioner,
    peer: Peer,
    token: String,
    mount: String,
    store: Option<String>,
    pub(crate) watched: Watched,
    pub(crate) started: Option<Started>,
    _process: Option<Process>,
}

impl Target {
    /// Returns the connection settings for its address.
    pub(crate) fn peer(&self) -> Result<Peer, String> {
        Peer::new(&self.addr, self.token_header.as_deref().unwrap_or(VAULT_HEADER), self.ca_file.as_deref())
    }

    /// Returns the launch options of the server; `None` unless it is started from a binary.
    pub(crate) fn launch(&self) -> Option<Launch<'_>> {
        let binary = self.server.as_deref()?;
        let postgres = self.postgres.as_deref();
        let rsa_stock = self.rsa_stock;
        Some(Launch { postgres, rsa_stock, access_log: self.access_log, ..Launch::new(binary, &self.data_dir) })
    }

    /// Returns the plan with the role and settings of this server.
    pub(crate) fn plan(&self, plan: &Plan) -> Plan {
        Plan { role: self.role.clone(), prepared: self.prepared, ..plan.clone() }
    }

    /// Rejects settings that the scenario does not support. `dashes` is the prefix of field names in errors.
    pub(crate) fn check(&self, scenario: Scenario, wanted: Stock, dashes: &str) -> Result<(), String> {
        let name = scenario.name();
        let is_kept = self.prepared || self.keep || self.server.is_some();
        if self.prepared && !scenario.takes_prepared() {
            return Err(format!("{dashes}prepared: cannot be used with {name}, which creates what it needs"));
        }
        if self.prepared && self.role.is_none() && (scenario.needs_role() || !wanted.is_empty()) {
            return Err(format!("{dashes}role: must be given with {dashes}prepared for {name}"));
        }
        if scenario == Scenario::Preload && !is_kept {
            return Err(format!("{dashes}keep: must be given: the certificates are removed with the mount otherwise"));
        }
        Ok(())
    }

    /// Starts the server if it has a command, waits until it responds, and creates the mount that the scenario needs.
    pub(crate) async fn open(&self, scenario: Scenario) -> Result<Open, String> {
        let mut open = match (self.launch(), &self.command) {
            (Some(launch), _) => self.start(&launch).await?,
            (None, Some(command)) => self.run(command).await?,
            (None, None) => {
                let peer = self.peer()?;
                let watched = Watched { server: self.pid.or_else(|| found(&peer)), postgres: None };
                self.at(peer, &self.token, watched, None)?
            }
        };
        if open.started.is_none() {
            let version = version(&open.peer, &open.token).await;
            let name = self.name.clone();
            let address = self.addr.clone();
            run_context::note_server(ServerFacts { name, address, version });
        }
        if !self.prepared && scenario.needs_mount() {
            self.mount(&mut open).await.map_err(|e| format!("{}: {e}", self.name))?;
        }
        Ok(open)
    }

    /// Creates the mount. The mount of a data folder stays with its certificates; any other mount is new and is removed
    /// after the run.
    async fn mount(&self, open: &mut Open) -> Result<(), String> {
        if self.mount.is_none() && open.started.is_none() {
            open.mount = open.provisioner.fresh_name();
        }
        let place = open.place();
        let exists = scenario::has_mount(&place).await?;
        if open.started.is_some() {
            return if exists { scenario::ensure_root(&place).await } else { scenario::make_mount(&place).await };
        }
        if !exists {
            return scenario::make_mount(&place).await;
        }
        let mount = place.mount;
        if let Some(role) = &self.role
            && place.provisioner.exists(&place.path(&format!("roles/{role}"))).await == Ok(true)
        {
            return Err(format!(
                "role: the role {role} exists already; use --prepared to use it and its mount {mount}"
            ));
        }
        Err(format!("mount: the mount {mount} exists already; use --prepared to use it"))
    }

    fn at(&self, peer: Peer, token: &str, watched: Watched, process: Option<Process>) -> Result<Open, String> {
        let provisioner = Provisioner::new(&peer, token, self.keep)?;
        Ok(Open {
            provisioner,
            peer,
            token: token.to_owned(),
            mount: self.mount.clone().unwrap_or_else(|| MOUNT.to_owned()),
            store: self.store.clone(),
            watched,
            started: None,
            _process: process,
        })
    }

    async fn start(&self, launch: &Launch<'_>) -> Result<Open, String> {
        let started = Started::launch(launch).await?;
        let header = self.token_header.as_deref().unwrap_or(OWN_HEADER);
        let peer = Peer::new(&format!("http://{}", started.peer.host()), header, None)?;
        let open = self.at(peer, &started.token, started.watched(), None)?;
        Ok(Open { started: Some(started), ..open })
    }

    async fn run(&self, command: &str) -> Result<Open, String> {
        let peer = self.peer()?;
        if answers(&peer).await {
            return Err(format!("{}: {} is in use: another server answers there", self.name, peer.host()));
        }
        std::fs::create_dir_all(&self.data_dir).map_err(|e| format!("{}: {e}", self.data_dir.display()))?;
        let log = LogFile::create(self.data_dir.join(log_name(&self.name)))?;
        // A separate process group: all processes of the shell end with it, and a Ctrl-C at the terminal does not reach
        // them.
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(log.stdio()?).stderr(log.stdio()?);
        let child = shell.process_group(0).spawn().map_err(|e| format!("{command}: {e}"))?;
        let mut process = Process::group(child, Signal::TERM);
        let until = Instant::now() + UP;
        while !answers(&peer).await {
            if process.ended() || Instant::now() > until {
                let cause = if process.ended() { "has ended" } else { "does not answer" };
                return Err(format!("{}: {command} {cause}; {}", self.name, log.shown()));
            }
            if run_context::is_interrupted() {
                return Err(run_context::INTERRUPTED.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let server = self.pid.or_else(|| found(&peer)).or(Some(process.pid()));
        self.at(peer, &self.token, Watched { server, postgres: None }, Some(process))
    }
}

/// Returns the log file name of a server. A server name may contain characters with a meaning in paths.
fn log_name(name: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().take(64).map(safe).collect();
    format!("{name}.log")
}

/// `true` if a server responds, with any status.
async fn answers(peer: &Peer) -> bool {
    let Ok(mut client) = Client::connect(peer, "").await else { return false };
    client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.is_ok()
}

/// Returns program, version and commit of a server, from its health and its metrics. Other servers with the Vault API
/// only report the version that they are compatible with.
async fn version(peer: &Peer, token: &str) -> Option<String> {
    let mut client = Client::connect(peer, token).await.ok()?;
    let health = client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.ok()?;
    let health: Value = serde_json::from_slice(&health.body).ok()?;
    let text = |field: &str| health[field].as_str();
    let version = match (text("product"), text("product_version")) {
        (Some(product), Some(version)) => format!("{product} {version}"),
        _ => text("version")?.to_owned(),
    };
    let metrics = client.send(Method::GET, "/metrics", Bytes::new()).await.map(|answer| answer.body);
    let commit = commit(&String::from_utf8_lossy(&metrics.unwrap_or_default())).map(|commit| format!(" ({commit})"));
    Some(version + &commit.unwrap_or_default())
}

fn commit(metrics: &str) -> Option<String> {
    let series = metrics.lines().find(|line| line.starts_with("signet_build_info{"))?;
    let (commit, _) = series.split_once("commit=\"")?.1.split_once('"')?;
    Some(commit.to_owned()).filter(|commit| commit != "unknown")
}

/// Returns the process of a server on this machine's loopback.
fn found(peer: &Peer) -> Option<u32> {
    let (host, port) = peer.host().rsplit_once(':')?;
    let here = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    proc::listener(port.parse().ok().filter(|_| here)?)
}

impl Open {
    /// Returns the server, the token that creates objects, and the mount.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { peer: &self.peer, token: &self.token, mount: &self.mount, provisioner: &self.provisioner }
    }

    /// Returns the name of its store, or the user's description of it.
    pub(crate) fn store(&self) -> Result<Option<String>, String> {
        Ok(self.started.as_ref().map(Started::store).transpose()?.or_else(|| self.store.clone()))
    }

    /// Returns the process whose CPU time and memory are reported.
    pub(crate) fn process(&self) -> Option<String> {
        self.watched.server.map(proc::title)
    }

    /// Waits until earlier writes are on disk.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.started.as_ref().map_or(Ok(()), Started::settle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        assert_eq!(log_name("bao-2"), "bao-2.log");
        assert_eq!(log_name("../../etc/x y\0"), "______etc_x_y_.log");
        assert!(log_name(&"a".repeat(1000)).len() < 100);
    }

    #[test]
    fn commit_is_read_from_the_metrics() {
        let page = "# TYPE signet_build_info gauge\nsignet_build_info{version=\"1.2.3\",commit=\"abc, modified\"} 1\n";
        assert_eq!(commit(page).as_deref(), Some("abc, modified"));
        assert_eq!(commit(&page.replace("abc, modified", "unknown")), None);
        assert_eq!(commit("else"), None);
    }
}
