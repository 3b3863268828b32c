//! The error type of the program.
//!
//! An [`Error`] has a [`Kind`], a public text for the caller (field, problem, rule) and a cause for the log. The text
//! never contains a secret, and callers never see the cause. The type is independent of HTTP: each API maps the kinds
//! to its own status codes with an exhaustive match. Notes that accompany a successful response are [`Warnings`].

mod warnings;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::warnings::Warnings;

/// The kind of an error. Each API maps every kind to one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request cannot be parsed: for example, the body is not JSON, or a query parameter is malformed.
    Malformed,
    /// The request can be parsed, but a value has the wrong type or violates a rule.
    Invalid,
    /// The caller sent no credential, or an invalid one.
    Unauthenticated,
    /// The caller is authenticated, but lacks the permission.
    Forbidden,
    /// The resource does not exist, or is hidden from the caller.
    NotFound,
    /// The request conflicts with the state of an existing resource.
    Conflict,
    /// The `If-Match` condition of the request is not met.
    Precondition,
    /// The request body exceeds its size limit.
    TooLarge,
    /// The request headers exceed their size limit.
    HeadersTooLarge,
    /// A backend, such as a key service, rejected the credential of this server.
    BadGateway,
    /// The operation does not accept the media type of the body.
    UnsupportedMedia,
    /// The path does not support the method.
    UnsupportedMethod,
    /// A queue is full; the caller may retry shortly.
    Busy,
    /// The caller has exhausted a quota.
    Quota,
    /// The storage, a PKCS#11 module or a remote provider is unreachable, or the server is stopping.
    Unavailable,
    /// A defect in the server; reported to callers with one fixed text.
    Internal,
}

impl Kind {
    /// Returns the name of the kind, for messages.
    pub fn description(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Invalid => "invalid",
            Self::Unauthenticated => "not authenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::Precondition => "a precondition is not met",
            Self::TooLarge => "too large",
            Self::HeadersTooLarge => "headers too large",
            Self::BadGateway => "a backend rejected the server's credential",
            Self::UnsupportedMedia => "media type not supported",
            Self::UnsupportedMethod => "method not supported",
            Self::Busy => "busy",
            Self::Quota => "quota used up",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal error",
        }
    }
}

/// Describes an I/O error of a file. Replaces the system's wording for a missing file ("entity not found") and for a
/// file name that is too long ("invalid filename").
pub fn describe_io_error(kind: std::io::ErrorKind) -> String {
    match kind {
        std::io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        std::io::ErrorKind::InvalidFilename => "the file's name is too long".to_owned(),
        kind => kind.to_string(),
    }
}

type BoxedSource = Box<dyn std::error::Error + Send + Sync>;

/// An error with a text for the caller and a cause for the log. Clones share the cause.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    text: Cow<'static, str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Minimum delay before a retry, in seconds. The type is small because it adds to the size of every `Result`.
    retry_after: Option<NonZeroU32>,
}

/// A `Result` with [`Error`] as the default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` with a public `text`: field, problem, rule.
    pub fn new(kind: Kind, text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, text: text.into(), source: None, retry_after: None }
    }

    /// [`Kind::Invalid`] with a text that names the field and the rule.
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, text)
    }

    /// [`Kind::Malformed`] with a text that names the problem.
    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Malformed, text)
    }

    /// [`Kind::NotFound`] without a text; `/v1` renders it as an empty error list.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "")
    }

    /// [`Kind::Forbidden`] with the text that all denials share.
    pub fn forbidden() -> Self {
        Self::new(Kind::Forbidden, "permission denied")
    }

    /// [`Kind::Unavailable`] with a public text and the cause for the log.
    pub fn unavailable(text: impl Into<Cow<'static, str>>, source: impl Into<BoxedSource>) -> Self {
        Self { source: Some(Arc::from(source.into())), ..Self::new(Kind::Unavailable, text) }
    }

    /// [`Kind::Internal`]: `source` is logged, callers get a fixed text.
    pub fn internal(source: impl Into<BoxedSource>) -> Self {
        Self { source: Some(Arc::from(source.into())), ..Self::new(Kind::Internal, "internal error") }
    }

    /// Error for a file that cannot be used: [`Kind::Invalid`] if it is missing, else [`Kind::Unavailable`].
    ///
    /// `named_by` is the flag, variable, setting or field that names the file; `action` is a participle such as `read`.
    pub fn of_file(named_by: &str, file: &Path, action: &str, error: std::io::Error) -> Self {
        let path = file.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::invalid(format!("{named_by}: file does not exist: {path}")),
            _ => Self::of_io(format_args!("{named_by}: {path}"), action, error),
        }
    }

    /// [`Kind::Unavailable`] for a failed operation on a file or folder. `subject` contains its path; `action` is a
    /// participle such as `read`.
    pub fn of_io(subject: impl fmt::Display, action: &str, error: std::io::Error) -> Self {
        Self::unavailable(format!("{subject}: cannot be {action} ({})", describe_io_error(error.kind())), error)
    }

    /// [`Kind::Conflict`] for an existing file that must not be overwritten. `subject` contains its path.
    pub fn file_exists(subject: impl fmt::Display) -> Self {
        Self::new(Kind::Conflict, format!("{subject}: exists, and is never overwritten"))
    }

    /// Returns the same error with another kind.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Prefixes the text with `what`: the failed operation or the invalid field.
    #[must_use]
    pub fn within(self, what: &str) -> Self {
        Self { text: format!("{what}: {}", self.text).into(), ..self }
    }

    /// Adds the minimum delay before a retry, rounded up to seconds.
    #[must_use]
    pub fn with_retry_after(self, pause: Duration) -> Self {
        let seconds = u32::try_from(pause.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        Self { retry_after: NonZeroU32::new(seconds), ..self }
    }

    /// The minimum delay before a retry, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(|seconds| Duration::from_secs(seconds.get().into()))
    }

    /// Appends `what`: the change that was stored although the request failed. Kinds that imply "nothing was stored"
    /// become [`Kind::Unavailable`].
    #[must_use]
    pub fn with_side_effect(self, what: &str) -> Self {
        let kind = match self.kind {
            Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict => Kind::Unavailable,
            kind => kind,
        };
        Self { kind, text: format!("{}; {what}", self.text).into(), ..self }
    }

    /// The kind, from which each API derives its status.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text that callers may see; may be empty.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            return f.write_str(self.kind.description());
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn cloned_error_has_same_text_and_shares_the_cause() {
        let cause = std::io::Error::other("the disk");
        for error in [
            Error::unavailable(format!("storage: {}", "away"), cause),
            Error::internal("a defect"),
            Error::invalid("ttl: must be a duration"),
            Error::not_found(),
        ] {
            let copy = error.clone();
            assert_eq!((copy.kind(), copy.text(), copy.to_string()), (error.kind(), error.text(), error.to_string()));
            let causes = [&copy, &error].map(|error| error.source().map(ToString::to_string));
            assert_eq!(causes[0], causes[1]);
        }
        let within = Error::unavailable("storage: away", std::io::Error::other("the disk")).within("key");
        assert_eq!((within.kind(), within.text()), (Kind::Unavailable, "key: storage: away"));
        assert_eq!(within.source().unwrap().to_string(), "the disk");
        let unavailable = Error::unavailable("storage: away", std::io::Error::other("the disk"));
        let cause = unavailable.clone().source.unwrap();
        assert!(cause.downcast_ref::<std::io::Error>().is_some_and(|cause| cause.to_string() == "the disk"));
        assert_eq!(Arc::strong_count(&cause), 2);
    }

    #[test]
    fn error_size_is_at_most_six_machine_words() {
        assert!(size_of::<Error>() <= 6 * size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<Error>());
    }
}
