//! The interfaces of audit devices and of their outputs.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::entry::{AuditEntry, AuditRequest};
use crate::error::Result;

/// Longest wait for a device to accept an entry. A write that takes longer counts as hung.
pub(super) const ENTRY_TIMEOUT: Duration = Duration::from_secs(10);

/// An audit device.
pub trait AuditDevice: Send + Sync {
    /// The name in the log.
    fn name(&self) -> &str;

    /// Renders the part that describes the request, which is the same in all entries of the request.
    fn render_request(&self, _: &AuditRequest<'_>) -> Vec<u8> {
        Vec::new()
    }

    /// Accepts an entry. When the future completes, the entry is as durable as this device makes it. `request_part` is
    /// the result of [`AuditDevice::render_request`]. Only the request waits for the future,
    /// and drops it at its deadline.
    fn record<'e>(&'e self, request_part: &'e [u8], entry: &'e AuditEntry<'e>) -> BoxFuture<'e, Result<()>>;

    /// Notes that an entry was not accepted. Returns `true` if the caller must log this, because the device has not.
    fn note_missed(&self) -> bool {
        true
    }

    /// `true` if the device is known to accept no entries at present.
    fn is_down(&self) -> bool {
        false
    }

    /// `true` if requests wait for this device even if another one accepted the entry. `false` while the device is
    /// down, and for some devices also shortly after.
    fn is_trusted(&self) -> bool {
        !self.is_down()
    }
}

/// An output for lines, used by one thread at a time.
pub trait AuditSink: Send {
    /// Writes whole lines. After an error none of them counts as written.
    ///
    /// # Errors
    /// Those of the system.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;

    /// `true` if a write is expected to be a fast copy into memory, so that an HTTP worker may do it.
    fn is_brief(&self) -> bool {
        false
    }

    /// Reopens the output. After an error, the current output stays in use, and the call may be retried.
    ///
    /// # Errors
    /// Those of the system.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}
