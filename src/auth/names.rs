//! Lists of policy names, in tokens and in roles.

use crate::auth::ROOT;
use crate::auth::policies::{MAX_NAME, folded, is_assignable};
use crate::error::{Error, Result};
use crate::fields::has_invisible;

/// Maximum number of policies of a token, and of names in one list of a role.
const MAX_POLICIES: usize = 256;

/// Normalizes names: folded, sorted, without duplicates. `field` is the request field for errors.
///
/// # Errors
/// `Invalid` for too many names, and for names that are too long or contain invisible characters.
pub(super) fn kept(field: &str, names: Vec<String>) -> Result<Vec<String>> {
    let mut names: Vec<String> = names.iter().map(|name| folded(name)).filter(|name| !name.trim().is_empty()).collect();
    names.sort();
    names.dedup();
    if names.len() > MAX_POLICIES {
        return Err(Error::invalid(format!("{field}: more than {MAX_POLICIES}")));
    }
    if names.iter().any(|name| name.len() > MAX_NAME) {
        return Err(Error::invalid(format!("{field}: a name is longer than {MAX_NAME} bytes")));
    }
    if names.iter().any(|name| has_invisible(name)) {
        return Err(Error::invalid(format!("{field}: a name has control or invisible characters")));
    }
    Ok(names)
}

/// As [`kept`], for the policies of a token: `root` excludes all others.
///
/// # Errors
/// As [`kept`], and `Invalid` for a policy that cannot be assigned to tokens.
pub(super) fn sanitised(field: &str, names: Vec<String>) -> Result<Vec<String>> {
    let names = kept(field, names)?;
    match names.iter().find(|name| !is_assignable(name)) {
        Some(name) => Err(Error::invalid(format!("cannot assign policy {name:?}"))),
        None => Ok(root_alone(names)),
    }
}

/// Returns `root` alone if it is among the names, else all names.
pub(super) fn root_alone(names: Vec<String>) -> Vec<String> {
    if contains(&names, ROOT) { vec![ROOT.to_owned()] } else { names }
}

pub(super) fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

/// Inserts a name into a sorted list, unless it is in it already.
pub(super) fn add(names: &mut Vec<String>, name: &str) {
    if let Err(place) = names.binary_search_by(|known| known.as_str().cmp(name)) {
        names.insert(place, name.to_owned());
    }
}

/// `true` if one of the patterns matches a name. `*` matches any text, including the empty one.
pub(super) fn any_matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

/// Matches each literal part at its first occurrence, so the cost grows only with the lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(begin) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("*", "web", true),
            ("web", "web", true),
            ("web", "web2", false),
            ("web*", "web2", true),
            ("web*", "we", false),
            ("*-admin", "db-admin", true),
            ("*-admin", "db-admins", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*b*b", "ab", false),
            ("*dev*", "my-dev-box", true),
            ("**", "x", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
    }
}
