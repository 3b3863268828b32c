//! The reasons for which a PKCS #12 file is rejected.

use crate::error::Error;
use crate::x509::reader::DerError;

/// The reason for which a PKCS #12 file is rejected.
pub(super) enum Pkcs12Problem {
    /// The encoding of the file violates a rule.
    Encoding(DerError),
    /// The file is valid, but has an unsupported feature.
    Unsupported(String),
    /// The MAC of the file does not match the password.
    Password,
}

impl Pkcs12Problem {
    pub(super) fn into_error(self, field: &str) -> Error {
        match self {
            Self::Encoding(DerError(rule)) => Error::invalid(format!("{field}: not a PKCS #12 file: {rule}")),
            Self::Unsupported(rule) => Error::invalid(format!("{field}: {rule}")),
            Self::Password => Error::invalid("password: wrong, or the file is damaged: its MAC does not match"),
        }
    }
}

impl From<DerError> for Pkcs12Problem {
    fn from(error: DerError) -> Self {
        Self::Encoding(error)
    }
}

impl From<String> for Pkcs12Problem {
    fn from(rule: String) -> Self {
        Self::Unsupported(rule)
    }
}

impl From<&str> for Pkcs12Problem {
    fn from(rule: &str) -> Self {
        Self::Unsupported(rule.to_owned())
    }
}
