//! The server that is asked: one that runs, one that a command line starts, or a `signet` that is started here.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use rustix::process::Signal;

use serde_json::Value;

use crate::client::{Client, OWN_HEADER, Peer, VAULT_HEADER};
use crate::drive::{Place, Watched};
use crate::log_file::LogFile;
use crate::preload::Stock;
use crate::provision::Provisioner;
use crate::run_context::{self, ServerFacts};
use crate::scenario::{self, Plan};
use crate::server::{Launch, MOUNT, Process, Started};
use crate::{Scenario, proc};

/// Longest time for a command line to bring up a server.
const UP: Duration = Duration::from_secs(60);

/// Where a server is, or how it is started, and how it is spoken to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// What it is called in reports.
    pub(crate) name: String,
    /// The `signet` binary to start, with its store in `data_dir`.
    pub(crate) server: Option<PathBuf>,
    pub(crate) postgres: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
    /// RSA-2048 keys that a server which is started here makes ahead.
    pub(crate) rsa_stock: u32,
    /// A server that is started here logs every request.
    pub(crate) access_log: bool,
    /// What a server at an address stores in, as its user says.
    pub(crate) store: Option<String>,
    /// The command line that starts a server, for a shell.
    pub(crate) command: Option<String>,
    pub(crate) addr: String,
    pub(crate) token: String,
    pub(crate) token_header: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) pid: Option<u32>,
    /// The mount; without it the run creates its own, or uses that of the data folder.
    pub(crate) mount: Option<String>,
    /// The role; without it the run creates its own.
    pub(crate) role: Option<String>,
    /// Mount, root and role exist and are used as they are.
    pub(crate) prepared: bool,
    /// Mount, role and policy stay on the server after the run.
    pub(crate) keep: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            name: "server".to_owned(),
            server: None,
            postgres: None,
            data_dir: PathBuf::from("load-data"),
            rsa_stock: 0,
            access_log: false,
            store: None,
            command: None,
            addr: String::new(),
            token: String::new(),
            token_header: None,
            ca_file: None,
            pid: None,
            mount: None,
            role: None,
            prepared: false,
            keep: false,
        }
    }
}

/// A server that answers. When this is dropped, the objects of the run are removed, then the server is stopped if it
/// was started here: fields are dropped in their order.
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
    /// How the server is spoken to, at its address.
    pub(crate) fn peer(&self) -> Result<Peer, String> {
        Peer::new(&self.addr, self.token_header.as_deref().unwrap_or(VAULT_HEADER), self.ca_file.as_deref())
    }

    /// A plan as it is run there.
    pub(crate) fn plan(&self, plan: &Plan) -> Plan {
        Plan { role: self.role.clone(), prepared: self.prepared, ..plan.clone() }
    }

    /// Refuses what a scenario cannot have; `dashes` is written before the names of fields.
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

    /// Starts the server if it has a command, waits until it answers, and creates the mount that the scenario needs.
    pub(crate) async fn open(&self, scenario: Scenario) -> Result<Open, String> {
        let mut open = match (&self.server, &self.command) {
            (Some(binary), _) => self.start(binary).await?,
            (None, Some(command)) => self.run(command).await?,
            (None, None) => {
                let peer = self.peer()?;
                let watched = Watched { server: self.pid.or_else(|| found(&peer)), postgres: None };
                self.at(peer, watched, None)?
            }
        };
        if open.started.is_none() {
            let version = version(&open.peer, &open.token).await;
            let (name, address) = (self.name.clone(), self.addr.clone());
            run_context::note_server(ServerFacts { name, address, version });
        }
        if !self.prepared && scenario.needs_mount() {
            self.mount(&mut open).await.map_err(|e| format!("{}: {e}", self.name))?;
        }
        Ok(open)
    }

    /// The mount of a data folder stays there with its certificates; any other mount is new and goes with the run.
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
            return Err(format!("role: the role {role} exists: --prepared uses it and its mount {mount} as they are"));
        }
        Err(format!("mount: the mount {mount} exists: --prepared uses it as it is"))
    }

    fn at(&self, peer: Peer, watched: Watched, process: Option<Process>) -> Result<Open, String> {
        let provisioner = Provisioner::new(&peer, &self.token, self.keep)?;
        Ok(Open {
            provisioner,
            peer,
            token: self.token.clone(),
            mount: self.mount.clone().unwrap_or_else(|| MOUNT.to_owned()),
            store: self.store.clone(),
            watched,
            started: None,
            _process: process,
        })
    }

    async fn start(&self, binary: &Path) -> Result<Open, String> {
        let launch = Launch {
            postgres: self.postgres.as_deref(),
            rsa_stock: self.rsa_stock,
            access_log: self.access_log,
            ..Launch::new(binary, &self.data_dir)
        };
        let started = Started::launch(&launch).await?;
        let header = self.token_header.as_deref().unwrap_or(OWN_HEADER);
        let peer = Peer::new(&format!("http://{}", started.peer.host()), header, None)?;
        let watched = started.watched();
        let provisioner = Provisioner::new(&peer, &started.token, self.keep)?;
        let (token, store) = (started.token.clone(), None);
        let mount = self.mount.clone().unwrap_or_else(|| MOUNT.to_owned());
        Ok(Open { provisioner, peer, token, mount, store, watched, started: Some(started), _process: None })
    }

    async fn run(&self, command: &str) -> Result<Open, String> {
        let peer = self.peer()?;
        if answers(&peer).await {
            return Err(format!("{}: {} is in use: another server answers there", self.name, peer.host()));
        }
        std::fs::create_dir_all(&self.data_dir).map_err(|e| format!("{}: {e}", self.data_dir.display()))?;
        let log = LogFile::create(self.data_dir.join(log_name(&self.name)))?;
        // A process group of its own: all processes of the shell end with it, and a Ctrl-C at the terminal spares them.
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
        self.at(peer, Watched { server, postgres: None }, Some(process))
    }
}

/// The file that a server of a name writes its output to: a name may hold what means something in a path.
fn log_name(name: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().take(64).map(safe).collect();
    format!("{name}.log")
}

/// Whether a server answers at all, be it that it is not ready.
async fn answers(peer: &Peer) -> bool {
    let Ok(mut client) = Client::connect(peer, "").await else { return false };
    client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.is_ok()
}

/// Program, version and commit of a server, from its health and its metrics; a server in Vault's shape shows only the
/// version that it is compatible with.
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

/// The commit in a page of metrics.
fn commit(metrics: &str) -> Option<String> {
    let series = metrics.lines().find(|line| line.starts_with("signet_build_info{"))?;
    let (commit, _) = series.split_once("commit=\"")?.1.split_once('"')?;
    Some(commit.to_owned()).filter(|commit| commit != "unknown")
}

/// The process of a server on this machine's loopback.
fn found(peer: &Peer) -> Option<u32> {
    let (host, port) = peer.host().rsplit_once(':')?;
    let here = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    proc::listener(port.parse().ok().filter(|_| here)?)
}

impl Open {
    /// The server, whoever may prepare it, and the mount.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { peer: &self.peer, token: &self.token, mount: &self.mount, provisioner: &self.provisioner }
    }

    /// The name of the store of a server of ours, or what was said of another one's.
    pub(crate) fn store(&self) -> Result<Option<String>, String> {
        Ok(self.started.as_ref().map(Started::store).transpose()?.or_else(|| self.store.clone()))
    }

    /// The process whose CPU time and memory are told.
    pub(crate) fn process(&self) -> Option<String> {
        self.watched.server.map(proc::title)
    }

    /// Waits until what was written before is on disk.
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
