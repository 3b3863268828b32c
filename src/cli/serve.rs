//! `signet serve`: the server as a configuration file says.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use signet::audit::DeviceSettings;
use signet::clock::Clock;
use signet::config::{self, Config};
use signet::error::{Error, Result};
use signet::keys::Libraries;
use signet::server::operator::ROOT_NAME;
use signet::server::tls::Certificate;
use signet::server::{Reread, Server, Signals};

use super::installation::{ROOT_OF_SETUP, prepared, server_options};

/// The arguments of `signet serve`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file, TOML; signet.example.toml explains every setting. The environment
    /// (SIGNET_LISTEN, …) wins over it.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A file that the audit writes to, beside the devices of the configuration.
    #[arg(long, value_name = "FILE")]
    audit_file: Option<PathBuf>,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut config = prepared(&arguments.config)?;
    if let Some(path) = &arguments.audit_file {
        if config.audit.iter().any(|device| device.name == "file") {
            return Err(Error::invalid("--audit-file: the configuration has an audit device \"file\" already"));
        }
        config.audit.push(DeviceSettings::file("file", path));
    }
    let file = arguments.config.clone();
    let libraries = move || Libraries::new(config::load(&file)?.pkcs11_libraries);
    actix_rt::System::new().block_on(serve(config, Arc::new(libraries)))
}

async fn serve(config: Config, libraries: Reread<Libraries>) -> Result<()> {
    // From here on a signal ends the server in good order, also while it starts.
    let signals = Signals::watch_with_reload()?;
    let renewal = config.tls_renewal.clone();
    let load = |files| Certificate::load_renewed(files, renewal, Clock::system());
    let tls = config.tls.clone().map(load).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let server = Server::open(server_options(&config, tls)?).await?;
    hint_at_init(&server).await;
    let running = server.start().await?;
    let mut out = std::io::stdout();
    let told = writeln!(out, "listening on {scheme}://{}", running.address());
    let told = told.and_then(|()| match running.metrics_address() {
        Some(address) => writeln!(out, "metrics on http://{address}/metrics"),
        None => Ok(()),
    });
    told.and_then(|()| out.flush()).map_err(Error::internal)?;
    running.until(signals, libraries).await
}

async fn hint_at_init(server: &Server) {
    let auth = &server.shared().auth;
    let made = [auth.has_root_token(ROOT_NAME).await, auth.has_root_token(ROOT_OF_SETUP).await];
    if made.iter().all(|made| matches!(made, Ok(false))) {
        tracing::warn!(
            "no root token was made yet: run signet operator new-root-token, or stop the server and run signet operator \
             init"
        );
    }
}
