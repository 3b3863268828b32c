//! What the operating system asks of a running server.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Error, Result};

/// The signals that ask to leave, and SIGHUP, watched from the moment this is made: one that comes before anybody waits is
/// not lost and does not kill the process.
pub struct Signals {
    leave: Leave,
    reload: Option<Signal>,
}

/// What asks to leave.
struct Leave {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal is closed.
    hangup: Option<Signal>,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// SIGTERM, SIGINT, or SIGHUP where it does not ask to reload: finish and leave.
    Stop,
    /// SIGHUP of a server: read the certificate and the PKCS #11 libraries again, open the files of the audit anew.
    Reload,
}

impl Signals {
    /// Starts watching SIGTERM, SIGINT and SIGHUP (a closed terminal), which is left ignored where it was (`nohup`). A file
    /// that may not grow any more (SIGXFSZ) ends nothing: the write fails. Must run on an actix system.
    ///
    /// # Errors
    /// `Internal` when the system refuses.
    pub fn watch() -> Result<Self> {
        let mut signals = Self::without_hangup()?;
        if !hangup_is_ignored() {
            signals.leave.hangup = Some(watched(SignalKind::hangup())?);
        }
        Ok(signals)
    }

    /// As [`Signals::watch`], and SIGHUP asks to reload.
    ///
    /// # Errors
    /// `Internal` when the system refuses.
    pub fn watch_with_reload() -> Result<Self> {
        Ok(Self { reload: Some(watched(SignalKind::hangup())?), ..Self::without_hangup()? })
    }

    fn without_hangup() -> Result<Self> {
        // Heard by nobody, and caught for good.
        drop(watched(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        let (terminate, interrupt) = (watched(SignalKind::terminate())?, watched(SignalKind::interrupt())?);
        Ok(Self { leave: Leave { terminate, interrupt, hangup: None }, reload: None })
    }

    /// Waits until the process is asked to leave. What else is asked for stays to be heard.
    pub async fn stop(&mut self) {
        self.leave.asked().await;
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            () = self.leave.asked() => Wish::Stop,
            () = heard(&mut self.reload) => Wish::Reload,
        }
    }
}

impl Leave {
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = heard(&mut self.hangup) => {}
        }
    }
}

fn watched(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(Error::internal)
}

/// Waits for a signal that may not be watched.
async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

/// Whether SIGHUP was to be ignored when this process was started.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
