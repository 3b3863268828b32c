//! The one error type of the program.
//!
//! An [`Error`] says what went wrong ([`Kind`]), what the caller may know (the public text: field,
//! problem, rule), and keeps the cause for the log. It knows nothing of HTTP: each wire maps the
//! kinds to its own statuses with an exhaustive match. The public text never holds a secret, and the
//! cause is never shown to a caller. What a caller is told beside an answer are [`Warnings`].

mod warnings;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::warnings::Warnings;

/// What kind of thing went wrong. Each wire maps every kind to one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Not readable at all: not JSON, a bad page or sort.
    Malformed,
    /// Readable, but of the wrong JSON kind or against a rule.
    Invalid,
    /// No credential, or one that is not known.
    Unauthenticated,
    /// A known caller without the right.
    Forbidden,
    /// Absent, or hidden from this caller.
    NotFound,
    /// Against the state of something that exists.
    Conflict,
    /// An `If-Match` that does not hold.
    Precondition,
    /// A body above the limit.
    TooLarge,
    /// A header block above the limit.
    HeadersTooLarge,
    /// A backend refused our own credential.
    BadGateway,
    /// A media type that the operation does not take.
    UnsupportedMedia,
    /// A method that the path does not implement.
    UnsupportedMethod,
    /// A full queue: the caller may try again shortly.
    Busy,
    /// A quota of the caller is used up.
    Quota,
    /// Storage, module or provider out of reach, or the server is stopping.
    Unavailable,
    /// A defect; answered with one fixed text.
    Internal,
}

impl Kind {
    /// What it is, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Invalid => "invalid",
            Self::Unauthenticated => "not authenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::Precondition => "a precondition does not hold",
            Self::TooLarge => "too large",
            Self::HeadersTooLarge => "headers too large",
            Self::BadGateway => "a backend refused our credential",
            Self::UnsupportedMedia => "media type not supported",
            Self::UnsupportedMethod => "method not supported",
            Self::Busy => "busy",
            Self::Quota => "quota used up",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal error",
        }
    }
}

/// What the system says of a file, for people: it calls one that is not there an entity, and a name that is too long
/// invalid.
pub fn io_words(kind: std::io::ErrorKind) -> String {
    match kind {
        std::io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        std::io::ErrorKind::InvalidFilename => "the file's name is too long".to_owned(),
        kind => kind.to_string(),
    }
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// An error with a text for the caller and a cause for the log. Clones share the cause, so that everybody who
/// waited for the same work hears the same.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    text: Cow<'static, str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Seconds; kept short, because every `Result` is as large as its error.
    retry_after: Option<NonZeroU32>,
}

/// The result type used everywhere.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` with a public `text`: the field, the value's problem, the rule.
    pub fn new(kind: Kind, text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, text: text.into(), source: None, retry_after: None }
    }

    /// [`Kind::Invalid`] with a text that names field and rule.
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, text)
    }

    /// [`Kind::Malformed`].
    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Malformed, text)
    }

    /// [`Kind::NotFound`] without a text: `/v1` answers it with an empty error list.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "")
    }

    /// [`Kind::Forbidden`] with the one text that all refusals share.
    pub fn forbidden() -> Self {
        Self::new(Kind::Forbidden, "permission denied")
    }

    /// [`Kind::Unavailable`] with a public text and the cause for the log.
    pub fn unavailable(text: impl Into<Cow<'static, str>>, source: impl Into<Source>) -> Self {
        Self { source: Some(Arc::from(source.into())), ..Self::new(Kind::Unavailable, text) }
    }

    /// [`Kind::Internal`]: `source` goes to the log, callers get a fixed text.
    pub fn internal(source: impl Into<Source>) -> Self {
        Self { source: Some(Arc::from(source.into())), ..Self::new(Kind::Internal, "internal error") }
    }

    /// The error for a file that cannot be used. `named_by` is the flag, variable, setting or field that names the file;
    /// `action` is a past participle such as `read`.
    ///
    /// A missing file is [`Kind::Invalid`], every other problem [`Kind::Unavailable`].
    pub fn of_file(named_by: &str, file: &Path, action: &str, error: std::io::Error) -> Self {
        let path = file.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::invalid(format!("{named_by}: file does not exist: {path}")),
            kind => Self::unavailable(format!("{named_by}: {path}: cannot be {action} ({})", io_words(kind)), error),
        }
    }

    /// The same error, of another kind.
    #[must_use]
    pub fn as_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same error, its text behind what was being done or the field that was read.
    #[must_use]
    pub fn within(self, what: &str) -> Self {
        Self { text: format!("{what}: {}", self.text).into(), ..self }
    }

    /// The same error for a caller who is to come back no earlier than after this time, rounded up to seconds.
    #[must_use]
    pub fn with_retry_after(self, pause: Duration) -> Self {
        let seconds = u32::try_from(pause.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        Self { retry_after: NonZeroU32::new(seconds), ..self }
    }

    /// The time before which a retry is of no use, where it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(|seconds| Duration::from_secs(seconds.get().into()))
    }

    /// The same error behind something that is stored, which its text says at the end. No mistake of the caller any more:
    /// whoever hears of one takes it that nothing was done.
    #[must_use]
    pub fn although(self, what: &str) -> Self {
        let kind = match self.kind {
            Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict => Kind::Unavailable,
            kind => kind,
        };
        Self { kind, text: format!("{}; {what}", self.text).into(), ..self }
    }

    /// The kind, for the wire's status.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text that the caller may see; may be empty.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            return f.write_str(self.kind.words());
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
    fn a_clone_says_the_same_and_shares_the_cause() {
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
    fn an_error_is_six_words_at_most() {
        assert!(size_of::<Error>() <= 6 * size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<Error>());
    }
}
