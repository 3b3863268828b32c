//! What the operating system asks of a running server.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Error, Result};

/// SIGTERM and SIGINT, watched from the moment this is made: one that comes before anybody waits is
/// not lost and does not kill the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// SIGTERM or SIGINT: finish and leave.
    Stop,
    /// SIGHUP: read the certificate and the PKCS #11 libraries again, open the files of the audit anew.
    Reload,
}

impl Signals {
    /// Starts watching SIGTERM and SIGINT; SIGHUP (a closed terminal) keeps ending the process. A file that
    /// may not grow any more (SIGXFSZ) ends nothing: the write fails. Must run on an actix system.
    ///
    /// # Errors
    /// `Internal` when the system refuses.
    pub fn watch() -> Result<Self> {
        let watch = |kind| signal(kind).map_err(Error::internal);
        // Heard by nobody, and caught for good.
        drop(watch(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        let (terminate, interrupt) = (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: None })
    }

    /// As [`Signals::watch`], and SIGHUP asks to reload.
    ///
    /// # Errors
    /// `Internal` when the system refuses.
    pub fn watch_with_reload() -> Result<Self> {
        let hangup = signal(SignalKind::hangup()).map_err(Error::internal)?;
        Ok(Self { hangup: Some(hangup), ..Self::watch()? })
    }

    /// Waits until the process is asked to leave. What else is asked for stays to be heard.
    pub async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Wish {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = hangup => Wish::Reload,
        }
    }
}
