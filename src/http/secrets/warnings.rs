//! Warnings about the fields of a request. They are returned with the response.

use super::route::{BodyKind, Operation, PathParams, Route};
use crate::error::Warnings;
use crate::fields::{Fields, closest_name};

#[derive(Default)]
pub(super) struct FieldWarnings {
    /// The texts of the warnings. They are added to errors, and to responses with an envelope.
    pub(super) texts: Warnings,
    /// `true` if a write ignored an unknown field. The warnings then change a 204 to a 200, because the caller
    /// requested something that was not done. Fields that the path replaces do not count, because known clients repeat
    /// path parameters in their bodies.
    pub(super) write_ignored_field: bool,
}

/// Replaces fields by path parameters of the same name, and returns warnings about replaced and unknown fields.
pub(super) fn check_fields(
    route: &Route,
    params: &PathParams,
    fields: &mut Fields,
    below_mount: &str,
) -> FieldWarnings {
    if fields.is_empty() || route.body == BodyKind::Verbatim {
        return FieldWarnings::default();
    }
    let mut replaced = Vec::new();
    for (name, value) in params.iter(below_mount).filter(|(name, _)| fields.has(name)).collect::<Vec<_>>() {
        fields.set(name, value);
        replaced.push(name);
    }
    let unknown = fields.unknown(route.fields).filter(|name| params.iter(below_mount).all(|(n, _)| n != *name));
    let mut texts = warn_unknown_fields(unknown, route.fields);
    let is_write = matches!(route.operation, Operation::Create | Operation::Update | Operation::Patch);
    let write_ignored_field = is_write && !texts.is_empty();
    if !replaced.is_empty() {
        texts.add(format!(
            "Endpoint replaced the value of these parameters with the values captured from the endpoint's path: [{}]",
            replaced.join(" ")
        ));
    }
    FieldWarnings { texts, write_ignored_field }
}

/// Returns warnings about ignored fields, and suggests similar names from `known`. The number and length of the names
/// in a warning are limited, because the caller chooses them. Handlers also use this for a field whose value is an
/// object, to check its members.
pub(super) fn warn_unknown_fields<'a>(mut names: impl Iterator<Item = &'a str>, known: &[&str]) -> Warnings {
    const MAX_NAMES: usize = 20;
    const MAX_NAME_CHARACTERS: usize = 64;
    let begin = |name: &'a str| name.char_indices().nth(MAX_NAME_CHARACTERS).map_or(name, |(end, _)| &name[..end]);
    let first: Vec<_> = names.by_ref().take(MAX_NAMES).map(begin).collect();
    let mut warnings = Warnings::default();
    if first.is_empty() {
        return warnings;
    }
    let more = match names.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    warnings.add(format!("Endpoint ignored these unrecognized parameters: [{}]{more}", first.join(" ")));
    let similar = |name: &&str| Some(format!("{} instead of {name}", closest_name(name, known)?));
    let similar: Vec<_> = first.iter().filter_map(similar).collect();
    if !similar.is_empty() {
        warnings.add(format!("did you mean {}?", similar.join(", ")));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_unrecognised_field_gives_no_warning() {
        assert!(warn_unknown_fields(std::iter::empty(), &["ttl"]).is_empty());
    }
}
