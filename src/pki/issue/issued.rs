//! The result of a certificate request.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::Warnings;
use crate::keys::local::PrivateKey;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::values::renewal;
use crate::x509::serial::Serial;

/// A signed certificate that may be returned to the client: if it has a record, the record is already durable.
pub struct IssuedCertificate {
    /// DER encoding of the certificate.
    pub der: Vec<u8>,
    /// Serial number of the certificate.
    pub serial: Serial,
    /// notBefore of the certificate, epoch seconds.
    pub not_before: i64,
    /// notAfter of the certificate, epoch seconds.
    pub not_after: i64,
    /// Recommended time to renew the certificate, epoch seconds.
    pub renew_after: i64,
    /// Time of issuance, epoch seconds. If `repeated`, the time of the current request instead.
    pub issued_at: i64,
    /// The issuer that signed the certificate, with its chain.
    pub signer: Arc<IssuerSigner>,
    /// The private key, if the server generated it. It is not stored.
    pub key: Option<Arc<PrivateKey>>,
    /// Warnings for the caller.
    pub warnings: Warnings,
    /// The lease of the certificate, if the role requires one.
    pub lease: Option<CertificateLease>,
    /// `true` if an earlier request with the same idempotency key created the certificate.
    pub repeated: bool,
}

impl IssuedCertificate {
    /// Creates the result for a certificate without private key, lease and warnings. The validity and the time of
    /// issuance are in epoch seconds.
    pub(super) fn new(
        der: Vec<u8>,
        serial: Serial,
        span: RangeInclusive<i64>,
        signer: Arc<IssuerSigner>,
        issued_at: i64,
    ) -> Self {
        let (not_before, not_after) = span.into_inner();
        Self {
            der,
            serial,
            not_before,
            not_after,
            renew_after: renewal::renewal_time(&serial, issued_at, not_before, not_after),
            issued_at,
            signer,
            key: None,
            warnings: Warnings::default(),
            lease: None,
            repeated: false,
        }
    }

    /// Inserts `warnings` before the existing warnings.
    pub(super) fn with_warnings(self, mut warnings: Warnings) -> Self {
        warnings.extend(self.warnings);
        Self { warnings, ..self }
    }
}

/// The lease of a certificate.
pub struct CertificateLease {
    /// Id of the lease.
    pub id: String,
    /// Seconds until the certificate expires.
    pub seconds: u64,
}
