//! The refusal of a login whose token is good and not enough.

use std::borrow::Cow;

use crate::error::{Error, Kind};

/// One with its reason.
pub(super) fn denied(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::Forbidden, text)
}
