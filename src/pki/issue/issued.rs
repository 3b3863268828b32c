//! What comes of a request for a certificate.

use std::sync::Arc;

use crate::error::Warnings;
use crate::keys::local::PrivateKey;
use crate::pki::mount::signer::Signer;
use crate::x509::serial::Serial;

/// A signed certificate that may leave: where it is recorded, its record is durable.
pub struct Issued {
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// Its serial number.
    pub serial: Serial,
    /// notBefore, epoch seconds.
    pub not_before: i64,
    /// notAfter, epoch seconds.
    pub not_after: i64,
    /// When to ask for the next one, epoch seconds.
    pub renew_after: i64,
    /// When it was issued, or its request repeated, epoch seconds.
    pub issued_at: i64,
    /// Who signed it, with its chain.
    pub signer: Arc<Signer>,
    /// Its key, when it was made here. It is kept nowhere else.
    pub key: Option<Arc<PrivateKey>>,
    /// Warnings for the caller.
    pub warnings: Warnings,
    /// The lease that comes with it, when the role wants one.
    pub lease: Option<Lease>,
    /// Whether an earlier request made it, of which this is a repeat.
    pub repeated: bool,
}

impl Issued {
    /// The same with these warnings before its own.
    pub(super) fn with_warnings(self, mut warnings: Warnings) -> Self {
        warnings.extend(self.warnings);
        Self { warnings, ..self }
    }
}

/// The lease that a caller gets with a certificate.
pub struct Lease {
    /// Its id.
    pub id: String,
    /// Whole seconds to the end of the certificate.
    pub seconds: u64,
}
