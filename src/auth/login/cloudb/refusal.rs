//! Rejection of a login whose token is valid but insufficient.

use std::borrow::Cow;

use crate::error::{Error, Kind};

pub(super) fn forbidden(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::Forbidden, text)
}
