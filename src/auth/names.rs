//! Lists of policy names, in tokens and in roles.

use crate::auth::ROOT_POLICY;
use crate::auth::policies::{MAX_NAME_LEN, fold_policy_name, is_assignable};
use crate::error::{Error, Result};
use crate::fields::has_invisible;

/// Maximum number of policy names of a token. Also the maximum number of names in one list of a role.
const MAX_POLICY_NAMES: usize = 256;

/// Converts policy names to canonical spelling, sorts them and removes duplicates. `field` is the request field for
/// error messages.
///
/// # Errors
/// `Invalid` for too many names, and for names that are too long or contain invisible characters.
pub(super) fn normalize_names(field: &str, names: Vec<String>) -> Result<Vec<String>> {
    let mut names: Vec<String> =
        names.iter().map(|name| fold_policy_name(name)).filter(|name| !name.trim().is_empty()).collect();
    names.sort();
    names.dedup();
    if names.len() > MAX_POLICY_NAMES {
        return Err(Error::invalid(format!("{field}: more than {MAX_POLICY_NAMES} names")));
    }
    if names.iter().any(|name| name.len() > MAX_NAME_LEN) {
        return Err(Error::invalid(format!("{field}: a name is longer than {MAX_NAME_LEN} bytes")));
    }
    if names.iter().any(|name| has_invisible(name)) {
        return Err(Error::invalid(format!("{field}: a name has control or invisible characters")));
    }
    Ok(names)
}

/// Normalizes the policy names of a token like [`normalize_names`]. If `root` is among them, all other names are
/// removed.
///
/// # Errors
/// The errors of [`normalize_names`]; `Invalid` for a policy that cannot be assigned to tokens.
pub(super) fn normalize_token_policies(field: &str, names: Vec<String>) -> Result<Vec<String>> {
    let names = normalize_names(field, names)?;
    match names.iter().find(|name| !is_assignable(name)) {
        Some(name) => Err(Error::invalid(format!("cannot assign policy {name:?}"))),
        None => Ok(reduce_to_root(names)),
    }
}

/// Returns `root` alone if it is among the names, else all names. A token with `root` has no use for other policies.
pub(super) fn reduce_to_root(names: Vec<String>) -> Vec<String> {
    if contains(&names, ROOT_POLICY) { vec![ROOT_POLICY.to_owned()] } else { names }
}

pub(super) fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

/// Inserts a name into a sorted list, unless the list already contains it.
pub(super) fn insert_sorted(names: &mut Vec<String>, name: &str) {
    if let Err(index) = names.binary_search_by(|known| known.as_str().cmp(name)) {
        names.insert(index, name.to_owned());
    }
}

/// `true` if one of the patterns matches `name`. A `*` in a pattern matches any text, including the empty one.
pub(super) fn any_glob_matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches_glob(pattern, name))
}

/// `true` if `pattern` matches `name`. Each text between two `*` is matched at its first occurrence, without
/// backtracking, so the cost is linear in the lengths.
pub(super) fn matches_glob(pattern: &str, name: &str) -> bool {
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
    fn glob_star_matches_any_text() {
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
            assert_eq!(matches_glob(pattern, name), is, "{pattern} {name}");
        }
    }
}
