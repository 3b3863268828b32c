//! Handling of the operating system's signals to a server or service.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Error, Result};

/// A watcher for termination signals and SIGHUP. From its creation on, these signals are queued and do not kill the
/// process.
pub struct Signals {
    termination: TerminationSignals,
    reload: Option<Signal>,
}

struct TerminationSignals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, if it requests termination (closed terminal); `None` if SIGHUP is ignored or requests a reload.
    hangup: Option<Signal>,
}

/// The action that a signal requests from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    /// Complete running requests and exit. Requested by SIGTERM, SIGINT, or a SIGHUP that does not request a reload.
    Stop,
    /// Reopen the audit files, reload the certificate and the PKCS #11 libraries. Requested by SIGHUP.
    Reload,
}

impl Signals {
    /// Watches SIGTERM, SIGINT and SIGHUP, all of which request termination. SIGHUP stays ignored if it was ignored at
    /// the start of the process (`nohup`). SIGXFSZ no longer kills the process, so that a write beyond the file size
    /// limit returns an error. Must run on an actix system.
    ///
    /// # Errors
    /// `Internal` when the system refuses.
    pub fn watch() -> Result<Self> {
        let mut signals = Self::without_hangup()?;
        if !hangup_is_ignored() {
            signals.termination.hangup = Some(watch_signal(SignalKind::hangup())?);
        }
        Ok(signals)
    }

    /// As [`Signals::watch`], but SIGHUP requests a reload.
    ///
    /// # Errors
    /// `Internal` when the system refuses.
    pub fn watch_with_reload() -> Result<Self> {
        Ok(Self { reload: Some(watch_signal(SignalKind::hangup())?), ..Self::without_hangup()? })
    }

    fn without_hangup() -> Result<Self> {
        // The returned value is not needed, because the signal handler stays installed.
        drop(watch_signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        let terminate = watch_signal(SignalKind::terminate())?;
        let interrupt = watch_signal(SignalKind::interrupt())?;
        Ok(Self { termination: TerminationSignals { terminate, interrupt, hangup: None }, reload: None })
    }

    /// Waits until a signal requests termination. A reload signal stays queued.
    pub async fn wait_for_stop(&mut self) {
        self.termination.wait().await;
    }

    pub(super) async fn next_action(&mut self) -> SignalAction {
        tokio::select! {
            () = self.termination.wait() => SignalAction::Stop,
            () = wait_for_signal(&mut self.reload) => SignalAction::Reload,
        }
    }
}

impl TerminationSignals {
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = wait_for_signal(&mut self.hangup) => {}
        }
    }
}

fn watch_signal(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(Error::internal)
}

/// Waits for a signal. Never returns if the signal is not watched (`None`).
async fn wait_for_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

/// `true` if SIGHUP was ignored when this process started.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
