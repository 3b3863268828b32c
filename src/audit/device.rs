//! What is told, and what a device of this server writes to.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::entry::{Entry, Request};
use crate::error::Result;

/// Longest wait for a device to take an entry, and longest time a write may last before it counts as hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Where entries go.
pub trait Device: Send + Sync {
    /// What the log calls it.
    fn name(&self) -> &str;

    /// What the device will write of a request in each of its entries: made once.
    fn asked(&self, _: &Request<'_>) -> Vec<u8> {
        Vec::new()
    }

    /// Takes an entry, of whose request `asked` is what [`Device::asked`] made; when it is done, the entry is kept. It
    /// may take its time, which only the entry's own request waits for, and is dropped when that has none left.
    fn record<'e>(&'e self, asked: &'e [u8], entry: &'e Entry<'e>) -> BoxFuture<'e, Result<()>>;

    /// Hears that an entry that it was to take was not taken; whether that is to be told: not of a device that has told
    /// it itself.
    fn missed(&self) -> bool {
        true
    }

    /// Whether it takes nothing at present, and knows that before it is asked.
    fn is_down(&self) -> bool {
        false
    }

    /// Whether it is waited for where another device has the entry: not while it takes nothing, and for a while after.
    fn is_trusted(&self) -> bool {
        !self.is_down()
    }
}

/// What lines are written to, by one thread at a time.
pub trait Sink: Send {
    /// Writes whole lines. An error says that nobody may count on any of them.
    ///
    /// # Errors
    /// Those of the system.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Whether a write is a copy into memory and soon done, as far as can be known before: a worker may do it then.
    fn is_brief(&self) -> bool {
        false
    }

    /// Opens anew what lines are written to; what fails may be tried again with it.
    ///
    /// # Errors
    /// Those of the system; lines go on to where they went.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}
