//! The ways in which certificates are made, as metrics tell them apart.

use super::request::Request;
use crate::telemetry;

/// A way to make certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `issue`.
    Issue,
    /// `sign`.
    Sign,
    /// `sign-verbatim`.
    SignVerbatim,
    /// `sign-intermediate`.
    SignIntermediate,
    /// `sign-self-issued`.
    SignSelfIssued,
    /// Everything that a policy engine decides about.
    ExternalPolicy,
}

impl Operation {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Issue,
        Self::Sign,
        Self::SignVerbatim,
        Self::SignIntermediate,
        Self::SignSelfIssued,
        Self::ExternalPolicy,
    ];

    /// What a request asks for.
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Issue(_) => Self::Issue,
            Request::Sign(_) => Self::Sign,
            Request::SignVerbatim(_) => Self::SignVerbatim,
            Request::SignIntermediate(_) => Self::SignIntermediate,
            Request::SignSelfIssued(_) => Self::SignSelfIssued,
        }
    }

    /// Counts a request that could not be read: it was refused before it came here.
    pub fn count_refusal(self) {
        metrics::counter!(telemetry::PKI_REFUSALS, "operation" => self.name()).increment(1);
    }

    /// The label of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::Sign => "sign",
            Self::SignVerbatim => "sign_verbatim",
            Self::SignIntermediate => "sign_intermediate",
            Self::SignSelfIssued => "sign_self_issued",
            Self::ExternalPolicy => "external_policy",
        }
    }
}
