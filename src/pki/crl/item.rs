//! A list entry on its way from a [batch](super::batch) into [entries](super::entries).

/// End of a certificate's validity, epoch seconds; saturates in 2106.
pub(super) type CertificateEnd = u32;

#[derive(Clone, Copy)]
pub(super) struct EncodedEntry<'a> {
    pub(super) serial: &'a [u8],
    pub(super) encoded: &'a [u8],
    pub(super) end: CertificateEnd,
}
