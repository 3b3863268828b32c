//! The interfaces of audit devices and of their outputs.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::entry::{AuditEntry, AuditRequest};
use crate::error::Result;

/// Longest wait for a device to accept an entry. A write that takes longer counts as hung.
pub(super) const ENTRY_TIMEOUT: Duration = Duration::from_secs(10);

/// A device that records audit entries.
pub trait AuditDevice: Send + Sync {
    /// The name of the device in log messages.
    fn name(&self) -> &str;

    /// Renders the part of an entry that describes the request; it is the same in all entries of the request.
    fn render_request(&self, _: &AuditRequest<'_>) -> Vec<u8> {
        Vec::new()
    }

    /// Accepts an entry. When the future completes, the entry is as durable as this device makes it. `request_part` is
    /// the result of [`AuditDevice::render_request`]. The request drops the future at its deadline; the device may
    /// still write the entry afterwards.
    fn record<'e>(&'e self, request_part: &'e [u8], entry: &'e AuditEntry<'e>) -> BoxFuture<'e, Result<()>>;

    /// Records that the device did not accept an entry. Returns `true` if the caller must log this, because the device
    /// itself does not log it.
    fn record_missed_entry(&self) -> bool {
        true
    }

    /// `true` if the device is known to accept no entries at present.
    fn is_down(&self) -> bool {
        false
    }

    /// `true` if requests wait for this device even if another one accepted the entry. `false` while the device is
    /// down. Some devices also return `false` for a while after they accept entries again.
    fn is_trusted(&self) -> bool {
        !self.is_down()
    }
}

/// An output to which a device writes lines; one thread at a time uses it.
pub trait AuditSink: Send {
    /// Writes whole lines. After an error none of them counts as written.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;

    /// `true` if writes to this output are expected to be fast copies into memory, so that an HTTP worker may perform
    /// them.
    fn has_fast_writes(&self) -> bool {
        false
    }

    /// Reopens the output. After an error, the current output stays in use, and the call may be retried.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}
