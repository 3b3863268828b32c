//! The issuing operations that metrics distinguish.

use super::pipeline::CertificateRequest;
use crate::telemetry::{ISSUING_OPERATIONS, MountMeter};

/// An issuing operation, in the order of [`ISSUING_OPERATIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssuingOperation {
    /// Requests to `issue`.
    Issue,
    /// Requests to `sign`.
    Sign,
    /// Requests to `sign-verbatim`.
    SignVerbatim,
    /// Requests to `sign-intermediate`.
    SignIntermediate,
    /// Requests to `sign-self-issued`.
    SignSelfIssued,
    /// All requests decided by the external policy engine.
    ExternalPolicy,
}

impl IssuingOperation {
    /// All issuing operations.
    pub(crate) const ALL: [Self; 6] = [
        Self::Issue,
        Self::Sign,
        Self::SignVerbatim,
        Self::SignIntermediate,
        Self::SignSelfIssued,
        Self::ExternalPolicy,
    ];

    /// Returns the issuing operation of a request.
    pub(crate) fn of(request: &CertificateRequest) -> Self {
        match request {
            CertificateRequest::Leaf(_) if request.generates_key() => Self::Issue,
            CertificateRequest::Leaf(_) => Self::Sign,
            CertificateRequest::SignVerbatim(_) => Self::SignVerbatim,
            CertificateRequest::SignIntermediate(_) => Self::SignIntermediate,
            CertificateRequest::SignSelfIssued(_) => Self::SignSelfIssued,
            CertificateRequest::ExternalPolicy(_) => Self::ExternalPolicy,
        }
    }

    /// Counts a request that was rejected or failed.
    pub fn count_refusal(self, mount: &MountMeter) {
        mount.count_refused(self as usize);
    }

    /// Counts an issued certificate.
    pub(crate) fn count_issued(self, mount: &MountMeter) {
        mount.count_issued(self as usize);
    }

    /// Returns the operation's name, as used in metric labels.
    pub(crate) fn name(self) -> &'static str {
        ISSUING_OPERATIONS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuing_operations_match_the_metrics_catalogue() {
        let names = IssuingOperation::ALL.map(|operation| format!("{operation:?}").to_lowercase());
        assert_eq!(names, ISSUING_OPERATIONS.map(|name| name.replace('_', "")));
    }
}
