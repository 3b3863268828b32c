//! The measured server: a running one, one that a command line starts, or a `signet` binary that is started here.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use rustix::process::Signal;
use serde_json::Value;

use crate::client::{Client, OWN_HEADER, ServerEndpoint, VAULT_HEADER};
use crate::log_file::LogFile;
use crate::mount;
use crate::plan::{MountContents, Plan};
use crate::proc;
use crate::process::Process;
use crate::run_context::{self, ServerFacts};
use crate::scenario::Scenario;
use crate::server::{Launch, Server};

/// Maximum time from the start of a server by its command line to its first response.
const START_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Token for the server, which may write policies and roles.
    #[arg(long, env = "SIGNET_TOKEN", default_value = "", hide_env_values = true)]
    pub(crate) token: String,
    /// Header that carries the token (default: X-Vault-Token; X-Service-Token for a server that `--server` starts).
    #[arg(long, value_name = "NAME")]
    pub(crate) token_header: Option<String>,
    /// CA certificate for an https address, PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The mount. By default the run creates and removes a mount; with `--server` it uses that of the data folder. An
    /// existing mount at `--addr` is rejected unless `--prepared` is set.
    #[arg(long, value_name = "NAME", value_parser = parse_mount)]
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
    #[command(flatten)]
    pub(crate) launch: Launch,
    /// Description of a running server's store, for the report.
    #[arg(long, value_name = "TEXT", conflicts_with = "server")]
    pub(crate) store: Option<String>,
    /// Process id of a running server, for its CPU time; detected if the server listens on the loopback.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
}

impl Target {
    /// Returns the connection settings for its address.
    pub(crate) fn endpoint(&self) -> Result<ServerEndpoint, String> {
        ServerEndpoint::new(&self.addr, self.token_header.as_deref().unwrap_or(VAULT_HEADER), self.ca_file.as_deref())
    }

    /// Returns the plan with the role and settings of this server.
    pub(crate) fn plan(&self, plan: &Plan) -> Plan {
        Plan { role: self.role.clone(), prepared: self.prepared, ..plan.clone() }
    }

    /// Rejects settings that the scenario does not support.
    pub(crate) fn check(&self, scenario: Scenario, wanted: MountContents) -> Result<(), String> {
        let name = scenario.name();
        let is_kept = self.prepared || self.keep || self.launch.server.is_some();
        if self.prepared && !scenario.accepts_prepared() {
            return Err(format!("--prepared: cannot be used with {name}, which creates what it needs"));
        }
        if self.prepared && self.role.is_none() && (scenario.needs_role() || !wanted.is_empty()) {
            return Err(format!("--role: must be given with --prepared for {name}"));
        }
        if scenario == Scenario::Preload && !is_kept {
            return Err("--keep: must be given: the certificates are removed with the mount otherwise".to_owned());
        }
        Ok(())
    }

    /// Starts the server if it has a command, waits until it responds, and creates the mount that the scenario needs.
    pub(crate) async fn open(&self, scenario: Scenario) -> Result<Server, String> {
        let mut server = match (&self.launch.server, &self.command) {
            (Some(_), _) => {
                let server = Server::launch(&self.launch).await?;
                let header = self.token_header.as_deref().unwrap_or(OWN_HEADER);
                let endpoint = ServerEndpoint::new(&format!("http://{}", server.endpoint.host()), header, None)?;
                server.with_endpoint(endpoint, self.keep)?
            }
            (None, Some(command)) => self.run(command).await?,
            (None, None) => Server::at(self.endpoint()?, &self.token, self.keep, None)?,
        };
        if let Some(mount) = &self.mount {
            server.mount.clone_from(mount);
        }
        if !server.is_launched() {
            server.store.clone_from(&self.store);
            let listener = || find_listener(&server.endpoint).or(server.watched.server);
            server.watched.server = self.pid.or_else(listener);
            let version = read_version(&server.endpoint, &server.token).await;
            let name = self.name.clone();
            let address = self.addr.clone();
            run_context::note_server(ServerFacts { name, address, version });
        }
        if !self.prepared && scenario.needs_mount() {
            self.mount(&mut server).await.map_err(|e| format!("{}: {e}", self.name))?;
        }
        Ok(server)
    }

    /// Creates the mount. The mount of a data folder stays with its certificates; any other mount is new and is removed
    /// after the run.
    async fn mount(&self, server: &mut Server) -> Result<(), String> {
        if self.mount.is_none() && !server.is_launched() {
            server.mount = server.access().provisioner.fresh_name();
        }
        let access = server.access();
        let exists = mount::exists(&access).await?;
        if server.is_launched() {
            return if exists { mount::ensure_root(&access).await } else { mount::create(&access).await };
        }
        if !exists {
            return mount::create(&access).await;
        }
        let mount = access.mount;
        if let Some(role) = &self.role
            && access.provisioner.exists(&access.path(&format!("roles/{role}"))).await == Ok(true)
        {
            return Err(format!(
                "role: the role {role} exists already; use --prepared to use it and its mount {mount}"
            ));
        }
        Err(format!("mount: the mount {mount} exists already; use --prepared to use it"))
    }

    async fn run(&self, command: &str) -> Result<Server, String> {
        let endpoint = self.endpoint()?;
        if responds(&endpoint).await {
            return Err(format!("{}: {} is in use: another server answers there", self.name, endpoint.host()));
        }
        let data_dir = &self.launch.data_dir;
        std::fs::create_dir_all(data_dir).map_err(|e| format!("{}: {e}", data_dir.display()))?;
        let log = LogFile::create(data_dir.join(log_name(&self.name)))?;
        // A separate process group: all processes of the shell can be stopped together, and a Ctrl-C at the terminal
        // does not reach them.
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(log.stdio()?).stderr(log.stdio()?);
        let child = shell.process_group(0).spawn().map_err(|e| format!("{command}: {e}"))?;
        let mut process = Process::group(child, Signal::TERM);
        let deadline = Instant::now() + START_TIMEOUT;
        while !responds(&endpoint).await {
            if process.ended() || Instant::now() > deadline {
                let cause = if process.ended() { "has ended" } else { "does not answer" };
                return Err(format!("{}: {command} {cause}; {}", self.name, log.shown()));
            }
            if run_context::is_interrupted() {
                return Err(run_context::INTERRUPTED.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Server::at(endpoint, &self.token, self.keep, Some(process))
    }
}

/// Parses the path of a mount.
fn parse_mount(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('/') || text.ends_with('/') {
        return Err("must be a path without a slash at its ends".to_owned());
    }
    Ok(text.to_owned())
}

/// Returns the log file name of a server. A server name may contain characters with a meaning in paths.
fn log_name(name: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().take(64).map(safe).collect();
    format!("{name}.log")
}

/// `true` if a server responds, with any status.
async fn responds(endpoint: &ServerEndpoint) -> bool {
    let Ok(mut client) = Client::connect(endpoint, "").await else { return false };
    client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.is_ok()
}

/// Returns program, version and commit of a server, from its health and its metrics. Other servers with the Vault API
/// only report the version that they are compatible with.
async fn read_version(endpoint: &ServerEndpoint, token: &str) -> Option<String> {
    let mut client = Client::connect(endpoint, token).await.ok()?;
    let health = client.send(Method::GET, "/v1/sys/health", Bytes::new()).await.ok()?;
    let health: Value = serde_json::from_slice(&health.body).ok()?;
    let text = |field: &str| health[field].as_str();
    let version = match (text("product"), text("product_version")) {
        (Some(product), Some(version)) => format!("{product} {version}"),
        _ => text("version")?.to_owned(),
    };
    let metrics = client.send(Method::GET, "/metrics", Bytes::new()).await.map(|answer| answer.body);
    let commit =
        parse_commit(&String::from_utf8_lossy(&metrics.unwrap_or_default())).map(|commit| format!(" ({commit})"));
    Some(version + &commit.unwrap_or_default())
}

fn parse_commit(metrics: &str) -> Option<String> {
    let series = metrics.lines().find(|line| line.starts_with("signet_build_info{"))?;
    let (commit, _) = series.split_once("commit=\"")?.1.split_once('"')?;
    Some(commit.to_owned()).filter(|commit| commit != "unknown")
}

/// Returns the id of the server's process, if the server listens on the loopback of this machine.
fn find_listener(endpoint: &ServerEndpoint) -> Option<u32> {
    let (host, port) = endpoint.host().rsplit_once(':')?;
    let is_local = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    proc::listener(port.parse().ok().filter(|_| is_local)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_name_has_no_path_separators() {
        assert_eq!(log_name("bao-2"), "bao-2.log");
        assert_eq!(log_name("../../etc/x y\0"), "______etc_x_y_.log");
        assert!(log_name(&"a".repeat(1000)).len() < 100);
    }

    #[test]
    fn commit_is_read_from_the_metrics() {
        let page = "# TYPE signet_build_info gauge\nsignet_build_info{version=\"1.2.3\",commit=\"abc, modified\"} 1\n";
        assert_eq!(parse_commit(page).as_deref(), Some("abc, modified"));
        assert_eq!(parse_commit(&page.replace("abc, modified", "unknown")), None);
        assert_eq!(parse_commit("else"), None);
    }
}
