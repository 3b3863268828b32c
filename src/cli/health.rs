//! `signet health`: whether a server is ready, for containers and whoever else can run a program and nothing more.
//!
//! The address is that of a configuration, or SIGNET_ADDR. No token is sent. A server that is asked by its configuration is
//! asked over the loopback, where its certificate names somebody else: that is not looked at, for nothing is entrusted to
//! it but the question.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use signet::config::{self, Config};
use signet::error::{Error, Kind, Result};

use super::client::Server;
use super::failure::Failure;
use super::output::line;

/// Whether it is ready: the store can be reached, and it does not stop.
const READY: &str = "sys/health";
/// Whether it turns.
const LIVE: &str = "sys/live";

/// The arguments of `signet health`.
#[derive(clap::Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("5s")))]
pub(crate) struct Arguments {
    /// The configuration file of the server that is asked, on this machine; otherwise the address is SIGNET_ADDR.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask whether it lives: a server whose store is out of reach does, and is not ready.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    server: Server,
}

/// Asks; a finding when it is not.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let probe = match &arguments.config {
        Some(file) => Probe::of(&config::load(file)?, arguments.server.timeout()),
        None => Probe { server: arguments.server, trusting: false },
    };
    let (path, word) = if arguments.live { (LIVE, "live") } else { (READY, "ready") };
    let (status, _) = probe.ask(path).await?;
    let address = probe.server.address();
    match status {
        200 => {
            line(&json!({ "address": address, word: true }), word);
            Ok(())
        }
        _ => {
            let text = format!("{address}: not {word}: {}", not_ready(status));
            Err(Failure::Finding(Error::new(Kind::Unavailable, text)))
        }
    }
}

/// A question to a server, without a token.
pub(super) struct Probe {
    server: Server,
    /// Whether any certificate will do.
    trusting: bool,
}

impl Probe {
    /// To the server of a configuration.
    pub(super) fn of(config: &Config, timeout: Duration) -> Self {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let address = SocketAddr::new(reached(config.listen.ip()), config.listen.port());
        Self { server: Server::at(format!("{scheme}://{address}"), timeout), trusting: true }
    }

    /// The version of the server that answers there, whether it is ready or not.
    pub(super) async fn answers(&self) -> Option<String> {
        let (_, body) = self.ask(READY).await.ok()?;
        let is_ours = body["product"] == "signet";
        is_ours.then(|| body["product_version"].as_str().unwrap_or_default().to_owned())
    }

    async fn ask(&self, path: &str) -> Result<(u16, Value)> {
        self.server.probe(path, self.trusting).await
    }
}

/// What a status of `sys/health` means that is not 200.
pub(super) fn not_ready(status: u16) -> String {
    match status {
        501 => "its store is new, no root token was made yet: signet operator new-root-token makes one, signet setup \
                everything; or it is not the store that was meant"
            .to_owned(),
        503 => {
            "its log says why (status 503): a store or an audit device out of reach, a clock that is wrong, or it stops"
                .to_owned()
        }
        status => format!("status {status}"),
    }
}

/// Where a server that listens at every address is reached on its own machine.
fn reached(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
