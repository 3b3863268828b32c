//! An entry on its way into a list: what a [batch](super::batch) gives and [entries](super::entries) take.

/// When a certificate ends: epoch seconds, the last one that fits (in 2106) for everything later.
pub(super) type End = u32;

/// An entry on its way.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    /// Octets of the serial number.
    pub(super) serial: &'a [u8],
    pub(super) encoded: &'a [u8],
    pub(super) end: End,
}
