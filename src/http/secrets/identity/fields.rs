//! Reads the fields that several requests below `identity/` share.

use crate::error::{Error, Result};
use crate::http::secrets::route::Call;

/// Returns the id in the path or, if the path has none, in the body.
pub(super) fn requested_id(call: &Call) -> Result<Option<String>> {
    match call.param("id") {
        "" => call.fields.nonempty_text("id"),
        id => Ok(Some(id.to_owned())),
    }
}

/// Returns the only element of `found`. `rule` is the error text if `found` is empty or has more than one element.
pub(super) fn exactly_one<T>(found: Vec<T>, rule: &'static str) -> Result<T> {
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Error::invalid(rule)),
    }
}
