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
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// Its serial number.
    pub serial: Serial,
    /// notBefore, epoch seconds.
    pub not_before: i64,
    /// notAfter, epoch seconds.
    pub not_after: i64,
    /// Recommended renewal time, epoch seconds.
    pub renew_after: i64,
    /// Time of issuance, epoch seconds; if `repeated`, the time of the request that repeated it.
    pub issued_at: i64,
    /// The issuer with its chain.
    pub signer: Arc<IssuerSigner>,
    /// The private key, if it was generated here. It is not stored.
    pub key: Option<Arc<PrivateKey>>,
    /// Warnings for the caller.
    pub warnings: Warnings,
    /// The lease of the certificate, if the role requires one.
    pub lease: Option<CertificateLease>,
    /// `true` if an earlier request with the same idempotency key created it.
    pub repeated: bool,
}

impl IssuedCertificate {
    /// A certificate with a validity and a time of issuance in epoch seconds, without key, lease and warnings.
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

    /// Prepends `warnings`.
    pub(super) fn with_warnings(self, mut warnings: Warnings) -> Self {
        warnings.extend(self.warnings);
        Self { warnings, ..self }
    }
}

/// The lease of a certificate.
pub struct CertificateLease {
    /// Its id.
    pub id: String,
    /// Seconds until the certificate expires.
    pub seconds: u64,
}
