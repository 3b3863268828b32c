//! The names of policies that a token may be given.

use crate::auth::ROOT;
use crate::auth::policies::{MAX_NAME, folded, is_assignable};
use crate::error::{Error, Result};

/// Most policies of one token.
const MAX_POLICIES: usize = 256;

/// Names as they are compared and kept: folded, sorted, each once, and `root` alone. `field` is where they come
/// from.
///
/// # Errors
/// `Invalid` for too many, too long ones, and those that no token can be given.
pub(super) fn sanitised(field: &str, names: Vec<String>) -> Result<Vec<String>> {
    let mut names: Vec<String> = names.iter().map(|name| folded(name)).filter(|name| !name.trim().is_empty()).collect();
    names.sort();
    names.dedup();
    if names.len() > MAX_POLICIES {
        return Err(Error::invalid(format!("{field}: more than {MAX_POLICIES}")));
    }
    if names.iter().any(|name| name.len() > MAX_NAME) {
        return Err(Error::invalid(format!("{field}: a name is longer than {MAX_NAME} bytes")));
    }
    if let Some(name) = names.iter().find(|name| !is_assignable(name)) {
        return Err(Error::invalid(format!("cannot assign policy {name:?}")));
    }
    if contains(&names, ROOT) {
        names = vec![ROOT.to_owned()];
    }
    Ok(names)
}

/// Whether a name is among names.
pub(super) fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

/// Adds a name at its place, once.
pub(super) fn add(names: &mut Vec<String>, name: &str) {
    if let Err(place) = names.binary_search_by(|known| known.as_str().cmp(name)) {
        names.insert(place, name.to_owned());
    }
}
