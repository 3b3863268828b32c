//! Helpers for reading the fields of requests below `identity/`.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::http::secrets::route::Call;

/// Returns a text field; empty text counts as absent.
pub(super) fn optional_text(call: &Call, name: &str) -> Result<Option<String>> {
    Ok(call.fields.text(name)?.filter(|text| !text.is_empty()))
}

/// Returns a field of pairs; `null` counts as absent.
pub(super) fn optional_pairs(call: &Call, name: &str) -> Result<Option<BTreeMap<String, String>>> {
    call.fields.map(name)
}

pub(super) fn id(call: &Call) -> Result<Option<String>> {
    match call.param("id") {
        "" => optional_text(call, "id"),
        id => Ok(Some(id.to_owned())),
    }
}

pub(super) fn exactly_one<T>(found: Vec<T>, rule: &'static str) -> Result<T> {
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Error::invalid(rule)),
    }
}
