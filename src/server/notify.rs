//! Notifications to the service manager, with the protocol of systemd's `sd_notify(3)`.
//!
//! A notification is a datagram to the socket that `NOTIFY_SOCKET` names, by its path or an abstract name (`@…`).
//! Without this variable nothing is sent. The watchdog is notified only while every worker's event loop runs
//! ([`Heartbeats`]). The protocol is implemented here because the available libraries do not support abstract names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

use super::heartbeat::Heartbeats;

/// Time limit for sending a notification.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager that started this process, if there is one.
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Connects to the socket that `NOTIFY_SOCKET` names. If this fails, logs the error and sends no notifications
    /// later.
    pub(super) fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let socket = address.and_then(|address| {
            let connected = connect(&address);
            connected.inspect_err(|error| tracing::error!("NOTIFY_SOCKET: {}: {error}", address.display())).ok()
        });
        Self { socket, watchdog: watchdog_interval(|name| std::env::var(name).ok(), std::process::id()) }
    }

    /// Reports that the server is ready: at startup, and after a reload.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that a reload has begun. The caller must report its end with [`ready`](Self::ready).
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Starts a task that notifies the watchdog periodically while all workers are alive. `None` if no watchdog is
    /// configured.
    pub(super) fn keep_alive(self: &Rc<Self>, heartbeats: Heartbeats) -> Option<JoinHandle<()>> {
        let supervisor = Rc::clone(self);
        let limit = self.watchdog?;
        Some(tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(limit / 4).await;
                if heartbeats.all_alive(limit / 2) {
                    supervisor.send("WATCHDOG=1");
                } else {
                    tracing::error!(
                        "an HTTP worker is blocked, so the systemd watchdog is not notified and may restart the server"
                    );
                }
            }
        }))
    }

    fn send(&self, lines: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(lines.as_bytes())) {
            let told = lines.trim_end().replace('\n', ", ");
            tracing::error!("cannot notify the service manager of {told}: {error}");
        }
    }
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

/// Returns the interval within which systemd expects watchdog notifications (`WATCHDOG_USEC`); `None` if there is no
/// watchdog or `WATCHDOG_PID` names another process.
fn watchdog_interval(variable: impl Fn(&str) -> Option<String>, own_pid: u32) -> Option<Duration> {
    let is_for_this_process = variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(own_pid));
    let limit = variable("WATCHDOG_USEC")?.parse().ok().map(Duration::from_micros);
    limit.filter(|limit| is_for_this_process && !limit.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_applies_only_to_the_named_process() {
        let of = |pid: Option<&str>, limit: Option<&str>| {
            let pid = pid.map(str::to_owned);
            let limit = limit.map(str::to_owned);
            watchdog_interval(|name| if name == "WATCHDOG_PID" { pid.clone() } else { limit.clone() }, 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!([of(None, Some("1000000")), of(Some("7"), Some("1000000"))], [second, second]);
        for (pid, limit) in [(Some("8"), "1000000"), (Some("x"), "1000000"), (None, "0"), (None, "-1"), (None, "")] {
            assert_eq!(of(pid, Some(limit)), None, "{pid:?} {limit:?}");
        }
        assert_eq!(of(Some("7"), None), None);
    }
}
