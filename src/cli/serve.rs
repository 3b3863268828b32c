//! `signet serve`: runs the server of a configuration file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditDeviceSettings;
use crate::auth::mounts::MountKind;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use crate::keys::Libraries;
use crate::server::tls::ServerCertificate;
use crate::server::{ConfigReloader, RunningServer, Server, ServerOptions, Signals};
use crate::storage::{self, Database, disk_space};
use serde_json::json;

use super::installation::{load_and_initialize, server_options};
use super::output;
use super::owner;

/// First pause between two attempts to reach the database, or to start when the disk of the data folder is full.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause between two attempts to reach the database, or to start when the disk of the data folder is full.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Printed at startup if the server has no PKI mount.
const NO_AUTHORITY_HINT: &str = "no certificate authority yet: signet setup creates one while the server is stopped, \
                                 or POST /v1/sys/mounts/pki with {\"type\": \"pki\"} starts one by hand";

/// Logged at startup if the store is new. The configuration may name a wrong location.
const NO_ROOT_TOKEN_WARNING: &str = "this store is new, so sys/health answers 501 until a root token exists: run \
                                     signet operator new-root-token --config FILE, or stop the server and run signet \
                                     operator init or signet setup. If this installation had a store, check that \
                                     data_dir or database_url names it, and that its volume is mounted";

#[derive(clap::Args)]
pub(crate) struct ServeArguments {
    /// Configuration file, TOML; signet.example.toml explains every setting. Environment variables
    /// (SIGNET_LISTEN, …) override it.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Audit log file, in addition to the audit devices of the configuration.
    #[arg(long, value_name = "FILE")]
    audit_file: Option<PathBuf>,
    /// Address that serves CRLs, OCSP and CA certificates to everyone, over plain HTTP; overrides public_listen
    /// of the configuration.
    #[arg(long, value_name = "ADDRESS")]
    public_listen: Option<SocketAddr>,
}

/// Runs `signet serve` until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &ServeArguments) -> Result<()> {
    let mut config = load_and_initialize(&arguments.config)?;
    owner::require_owner(&config)?;
    if let Some(path) = &arguments.audit_file {
        if config.audit.iter().any(|device| device.name == "file") {
            return Err(Error::invalid(
                "--audit-file: the configuration already has an audit device \"file\"; omit the flag or rename it",
            ));
        }
        config.audit.push(AuditDeviceSettings::file("file", path));
    }
    if let Some(address) = arguments.public_listen {
        if config::listeners_overlap(address, config.listen)
            || config.metrics_listen.is_some_and(|at| config::listeners_overlap(address, at))
        {
            return Err(Error::invalid("--public-listen: overlaps with listen or metrics_listen; choose another port"));
        }
        config.public_listen = Some(address);
    }
    let file = arguments.config.clone();
    let libraries = move || Libraries::new(config::load(&file)?.pkcs11_libraries);
    actix_rt::System::new().block_on(serve(config, &arguments.config, Arc::new(libraries)))
}

/// Starts the server and runs it until it is stopped. `file` is the configuration file, for messages. `libraries` reads
/// the PKCS #11 libraries again on a reload.
async fn serve(config: Config, file: &Path, libraries: ConfigReloader<Libraries>) -> Result<()> {
    // From here on, SIGTERM and SIGINT shut the server down in order, even while it starts.
    let mut signals = Signals::watch_with_reload()?;
    let renewal = config.tls_renewal.clone();
    let load = |files| ServerCertificate::load_renewed(files, renewal, Clock::system());
    let tls = config.tls.clone().map(load).transpose();
    let tls = tls.map_err(|error| explain_missing_certificate(error, &config, file))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let options = server_options(&config, tls.clone())?;
    tokio::select! {
        reached = wait_for_database(&options.storage.database) => reached?,
        () = signals.wait_for_stop() => {
            tracing::info!("stopping: the database was still unreachable");
            return Ok(());
        }
    }
    let Some(server) = open_server(options, || server_options(&config, tls.clone()), &mut signals).await? else {
        tracing::info!("stopping: the disk of the data folder was still full");
        return Ok(());
    };
    warn_if_uninitialized(&server).await;
    let running = server.start().await?;
    print_startup(scheme, &running)?;
    running.run_until_stopped(signals, libraries).await
}

/// Adds advice to an error: if the listener's certificate is missing and `tls_renew` is configured, the command that
/// creates it.
fn explain_missing_certificate(error: Error, config: &Config, file: &Path) -> Error {
    let is_missing = config.tls.as_ref().is_some_and(|files| !files.certificate.exists());
    if config.tls_renewal.is_none() || !is_missing {
        return error;
    }
    let command = format!("signet setup --config {} --listener-only", file.display());
    Error::new(error.kind(), format!("{error}: put it back with its key, or create a new certificate: {command}"))
}

/// Prints the addresses of the listeners, and a hint if the server has no PKI mount.
fn print_startup(scheme: &str, running: &RunningServer) -> Result<()> {
    let address = format!("{scheme}://{}", running.address());
    let metrics = running.metrics_address().map(|address| format!("http://{address}/metrics"));
    let public = running.public_address().map(|address| format!("http://{address}"));
    let has_authority = running.shared().auth.mounts().iter().any(|mount| mount.kind == MountKind::Pki);
    let mut lines = vec![format!("listening on {address}")];
    lines.extend(metrics.as_ref().map(|metrics| format!("metrics on {metrics}")));
    lines.extend(public.as_ref().map(|public| format!("public listener on {public}")));
    lines.extend((!has_authority).then(|| NO_AUTHORITY_HINT.to_owned()));
    let object = json!({
        "address": address,
        "metrics_address": metrics,
        "public_address": public,
        "has_authority": has_authority,
    });
    output::print_result(&object, lines.join("\n"))
}

/// Waits until the database is reachable, because it may start later than the server when all machines reboot. Fails on
/// any error other than an unreachable database.
async fn wait_for_database(database: &Database) -> Result<()> {
    let mut wait = StartupBackoff::default();
    loop {
        match storage::check_reachable(database).await {
            Ok(()) => {
                if wait.last_reason.is_some() {
                    tracing::warn!("the database is reachable");
                }
                return Ok(());
            }
            Err(error) if error.kind() != Kind::Unavailable => return Err(error),
            Err(error) => wait.wait_for(&format!("the database: {error}")).await,
        }
    }
}

/// Opens the server. If this fails because the disk of the data folder is full, tries again until there is free space.
/// Returns `None` if a signal arrives first.
async fn open_server(
    initial_options: ServerOptions,
    rebuild_options: impl Fn() -> Result<ServerOptions>,
    signals: &mut Signals,
) -> Result<Option<Server>> {
    let mut options = initial_options;
    let mut wait = StartupBackoff::default();
    loop {
        let database = options.storage.database.clone();
        let error = match (Server::open(options).await, &database) {
            (Ok(server), _) => return Ok(Some(server)),
            (Err(error), Database::Embedded(folder))
                if error.kind() == Kind::Unavailable && disk_space::insufficient_free_bytes(folder).is_some() =>
            {
                format!("free space on the disk of the data folder {}: {error}", folder.display())
            }
            (Err(error), _) => return Err(error),
        };
        tokio::select! {
            () = wait.wait_for(&error) => {}
            () = signals.wait_for_stop() => return Ok(None),
        }
        options = rebuild_options()?;
    }
}

/// Exponential backoff between attempts to start, for an unreachable database or a full disk.
struct StartupBackoff {
    pause: Duration,
    last_reason: Option<String>,
}

impl Default for StartupBackoff {
    fn default() -> Self {
        Self { pause: FIRST_RETRY_PAUSE, last_reason: None }
    }
}

impl StartupBackoff {
    /// Logs that the server waits for `what`, if the last log entry named another reason. Then sleeps for the next
    /// pause.
    async fn wait_for(&mut self, what: &str) {
        if self.last_reason.as_deref() != Some(what) {
            tracing::warn!("waiting for {what}");
            self.last_reason = Some(what.to_owned());
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_RETRY_PAUSE);
    }
}

async fn warn_if_uninitialized(server: &Server) {
    if matches!(server.shared().auth.is_initialized().await, Ok(false)) {
        tracing::warn!("{NO_ROOT_TOKEN_WARNING}");
    }
}
