//! `signet health`: checks whether a server is ready or alive. It serves as the health check of a container, which runs
//! a program instead of sending a request.
//!
//! The address comes from a configuration file or SIGNET_ADDR. No token is sent. With a configuration file, the request
//! may go to a loopback address that the server's certificate does not name. Any certificate is therefore accepted,
//! which is safe because the request contains no secret.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use serde_json::{Value, json};

use super::client::ServerEndpoint;
use super::failure::CommandFailure;
use super::output::try_print;

/// API path of the readiness check: the store is reachable and the server is not stopping.
const READINESS_PATH: &str = "sys/health";
/// API path of the liveness check: the process responds.
const LIVENESS_PATH: &str = "sys/live";

#[derive(clap::Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("5s")))]
pub(crate) struct HealthArguments {
    /// Configuration file of the server, on this machine; otherwise the address is SIGNET_ADDR.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check for liveness: a server whose store is unreachable is live, but not ready.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    server: ServerEndpoint,
}

/// Runs the check. Fails with a finding (exit status 3) if the server responds that it is not ready or not alive.
pub(crate) async fn run(arguments: HealthArguments) -> Result<(), CommandFailure> {
    let probe = match &arguments.config {
        Some(file) => HealthProbe::of(&config::load(file)?, arguments.server.timeout()),
        None => HealthProbe { server: arguments.server, accepts_any_certificate: false },
    };
    let (path, word) = if arguments.live { (LIVENESS_PATH, "live") } else { (READINESS_PATH, "ready") };
    let (status, _) = probe.probe(path).await?;
    let address = probe.server.address();
    match status {
        200 => {
            try_print(&json!({ "address": address, word: true }), word);
            Ok(())
        }
        _ => {
            let text = format!("{address}: not {word}: {}", describe_not_ready(status));
            Err(CommandFailure::Finding(Error::new(Kind::Unavailable, text)))
        }
    }
}

pub(super) struct HealthProbe {
    server: ServerEndpoint,
    accepts_any_certificate: bool,
}

impl HealthProbe {
    pub(super) fn of(config: &Config, timeout: Duration) -> Self {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let address = SocketAddr::new(local_address(config.listen.ip()), config.listen.port());
        Self {
            server: ServerEndpoint::at_address(format!("{scheme}://{address}"), timeout),
            accepts_any_certificate: true,
        }
    }

    /// Returns the version of the server at this address, ready or not; `None` if no server responds.
    pub(super) async fn running_version(&self) -> Option<String> {
        let (_, body) = self.probe(READINESS_PATH).await.ok()?;
        let is_ours = body["product"] == "signet";
        is_ours.then(|| body["product_version"].as_str().unwrap_or_default().to_owned())
    }

    async fn probe(&self, path: &str) -> Result<(u16, Value)> {
        self.server.probe(path, self.accepts_any_certificate).await
    }
}

pub(super) fn describe_not_ready(status: u16) -> String {
    match status {
        501 => "its store is new and has no root token: run signet operator new-root-token --config FILE, or signet \
                setup for a complete installation; or the configuration names the wrong store"
            .to_owned(),
        503 => {
            "see its log (status 503): the store or an audit device is unreachable, the clock is wrong, or it is stopping"
                .to_owned()
        }
        status => format!("status {status}"),
    }
}

/// Returns the IP address at which a server is reachable from its own machine: a loopback address if the server listens
/// on all addresses, otherwise the address it listens on.
fn local_address(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
