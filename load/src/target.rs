//! The server that is asked: one that runs, one that a command line starts, or a `signet` that is started here.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use rustix::process::Signal;

use crate::client::{Client, OWN_HEADER, Peer, VAULT_HEADER};
use crate::drive::{Place, Watched};
use crate::proc;
use crate::scenario::{self, Plan};
use crate::server::{Extras, MOUNT, Process, Started};

/// Longest time for a command line to bring up a server.
const UP: Duration = Duration::from_secs(60);
/// How much of its output is shown when it does not.
const SHOWN: usize = 2000;

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
    /// What a server at an address stores in, as its user says.
    pub(crate) store: Option<String>,
    /// The command line that starts a server, for a shell.
    pub(crate) command: Option<String>,
    pub(crate) addr: String,
    pub(crate) token: String,
    pub(crate) token_header: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) pid: Option<u32>,
    pub(crate) mount: String,
    /// The role that is asked for.
    pub(crate) role: Option<String>,
    /// Mount, root and role exist: nothing is made.
    pub(crate) prepared: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            name: "server".to_owned(),
            server: None,
            postgres: None,
            data_dir: PathBuf::from("load-data"),
            rsa_stock: 0,
            store: None,
            command: None,
            addr: String::new(),
            token: String::new(),
            token_header: None,
            ca_file: None,
            pid: None,
            mount: MOUNT.to_owned(),
            role: None,
            prepared: false,
        }
    }
}

/// A server that answers. What was started for it ends when this is dropped.
pub(crate) struct Open {
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

    /// Starts it where that is asked for, waits until it answers, and makes the mount where it is missing.
    pub(crate) async fn open(&self) -> Result<Open, String> {
        let open = match (&self.server, &self.command) {
            (Some(binary), _) => self.start(binary)?,
            (None, Some(command)) => self.run(command).await?,
            (None, None) => {
                let peer = self.peer()?;
                let watched = Watched { server: self.pid.or_else(|| found(&peer)), postgres: None };
                self.at(peer, watched, None)
            }
        };
        if !self.prepared {
            scenario::make_mount(&open.place()).await.map_err(|e| format!("{}: {e}", self.name))?;
        }
        Ok(open)
    }

    fn at(&self, peer: Peer, watched: Watched, process: Option<Process>) -> Open {
        let (token, mount, store) = (self.token.clone(), self.mount.clone(), self.store.clone());
        Open { peer, token, mount, store, watched, started: None, _process: process }
    }

    fn start(&self, binary: &Path) -> Result<Open, String> {
        let extras = Extras { rsa_stock: self.rsa_stock, ..Extras::default() };
        let started = Started::with(binary, &self.data_dir, self.postgres.as_deref(), extras)?;
        let header = self.token_header.as_deref().unwrap_or(OWN_HEADER);
        let peer = Peer::new(&format!("http://{}", started.peer.host()), header, None)?;
        let (token, mount, watched) = (started.token.clone(), self.mount.clone(), started.watched());
        Ok(Open { peer, token, mount, store: None, watched, started: Some(started), _process: None })
    }

    async fn run(&self, command: &str) -> Result<Open, String> {
        let peer = self.peer()?;
        if answers(&peer).await {
            return Err(format!("{}: somebody listens at {} already", self.name, peer.host()));
        }
        std::fs::create_dir_all(&self.data_dir).map_err(|e| format!("{}: {e}", self.data_dir.display()))?;
        let log = self.data_dir.join(log_name(&self.name));
        let output = private(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let also = output.try_clone().map_err(|e| e.to_string())?;
        // A group of its own: what the shell starts ends with it, and a Ctrl-C at the terminal is not for them.
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(output).stderr(also);
        let child = shell.process_group(0).spawn().map_err(|e| format!("{command}: {e}"))?;
        let mut process = Process::group(child, Signal::TERM);
        let until = Instant::now() + UP;
        while !answers(&peer).await {
            if process.ended() || Instant::now() > until {
                let said = std::fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(&said[said.len().saturating_sub(SHOWN)..]).into_owned();
                let cause = if process.ended() { "has ended" } else { "does not answer" };
                return Err(format!("{}: {command} {cause}:\n{said}", self.name));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let server = self.pid.or_else(|| found(&peer)).or(Some(process.pid()));
        Ok(self.at(peer, Watched { server, postgres: None }, Some(process)))
    }
}

/// The file that a server of a name writes its output to: a name may hold what means something in a path.
fn log_name(name: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().take(64).map(safe).collect();
    format!("{name}.log")
}

/// A file for what nobody else is to read: servers print tokens when they start.
fn private(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    // One that was there keeps its own mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Whether a server answers at all, be it that it is not ready.
async fn answers(peer: &Peer) -> bool {
    let Ok(mut client) = Client::connect(peer, "").await else { return false };
    client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.is_ok()
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
        Place { peer: &self.peer, token: &self.token, mount: &self.mount }
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
    fn what_a_server_prints_is_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        std::fs::write(&path, "of an earlier run").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        private(&path).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 0));
    }
}
