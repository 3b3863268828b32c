//! The ways in which certificates are made, as metrics tell them apart.

use super::request::Request;
use crate::telemetry::{ISSUING_OPERATIONS, MountMeter};

/// A way to make certificates, in the order of [`ISSUING_OPERATIONS`].
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

    /// Counts a request to the mount that was refused or failed.
    pub fn count_refusal(self, mount: &MountMeter) {
        mount.refused(self as usize);
    }

    /// Counts a certificate of the mount.
    pub(crate) fn count_issued(self, mount: &MountMeter) {
        mount.issued(self as usize);
    }

    /// The label of metrics.
    pub(crate) fn name(self) -> &'static str {
        ISSUING_OPERATIONS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_names_of_the_catalogue() {
        let names = Operation::ALL.map(|operation| format!("{operation:?}").to_lowercase());
        assert_eq!(names, ISSUING_OPERATIONS.map(|name| name.replace('_', "")));
    }
}
