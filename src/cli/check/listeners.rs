//! Checks that each listen address is free, or used by a running server with this configuration.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::config::Config;

use super::report::CheckReport;
use crate::cli::health::HealthProbe;

/// Maximum time in which a running server with this configuration must respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn check(report: &mut CheckReport, config: &Config) {
    let running = HealthProbe::of(config, RESPONSE_TIMEOUT).running_version().await;
    let more = [("metrics_listen", config.metrics_listen), ("public_listen", config.public_listen)];
    let more = more.into_iter().filter_map(|(name, address)| Some((name, address?)));
    for (name, address) in [("listen", config.listen)].into_iter().chain(more) {
        check_listener(report, name, address, running.as_deref());
    }
}

fn check_listener(report: &mut CheckReport, name: &'static str, address: SocketAddr, running: Option<&str>) {
    if address.port() == 0 {
        return report.ok(name, format!("{address}: port 0 selects a free port"));
    }
    // The socket is only bound to test the address; it accepts no connection and is closed immediately.
    match TcpListener::bind(address) {
        Ok(_) => report.ok(name, format!("{address}: free")),
        Err(e) => match (e.kind(), running) {
            (ErrorKind::AddrInUse, Some(version)) => report.ok(name, format!("{address}: signet {version} runs there")),
            (ErrorKind::AddrInUse, None) => {
                report.wrong(name, format!("{address}: taken by another program (ss -ltnp shows which)"));
            }
            (ErrorKind::AddrNotAvailable, _) => {
                report.wrong(name, format!("{address}: is not an address of this machine"))
            }
            (ErrorKind::PermissionDenied, _) => {
                let text = "not for this user: ports below 1024 need CAP_NET_BIND_SERVICE";
                report.wrong(name, format!("{address}: {text}"));
            }
            (kind, _) => report.wrong(name, format!("{address}: {kind}")),
        },
    }
}
