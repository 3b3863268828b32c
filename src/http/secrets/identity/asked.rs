//! What is asked of several paths below `identity/`.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::http::secrets::route::Call;

/// A text that was given; the empty one is not.
pub(super) fn given(call: &Call, name: &str) -> Result<Option<String>> {
    Ok(call.fields.text(name)?.filter(|text| !text.is_empty()))
}

/// Pairs that were given. `null` and absent are not.
pub(super) fn pairs(call: &Call, name: &str) -> Result<Option<BTreeMap<String, String>>> {
    call.fields.map(name)
}

/// An id that the path or the body names.
pub(super) fn id(call: &Call) -> Result<Option<String>> {
    match call.param("id") {
        "" => given(call, "id"),
        id => Ok(Some(id.to_owned())),
    }
}

/// The only one of what was found.
pub(super) fn exactly_one<T>(found: Vec<T>, rule: &'static str) -> Result<T> {
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Error::invalid(rule)),
    }
}
