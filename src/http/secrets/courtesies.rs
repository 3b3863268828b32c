//! Warnings about the fields of a request, beside its answer.

use super::route::{BodyKind, Params, Route};
use crate::error::Warnings;
use crate::fields::Fields;

/// Lets path parameters win over fields of the same name, and says so; names fields nobody reads.
pub(super) fn of(route: &Route, params: &Params, fields: &mut Fields, below: &str) -> Warnings {
    if fields.is_empty() || route.body == BodyKind::Verbatim {
        return Warnings::default();
    }
    let mut replaced = Vec::new();
    for (name, value) in params.iter(below).filter(|(name, _)| fields.has(name)).collect::<Vec<_>>() {
        fields.set(name, value);
        replaced.push(name);
    }
    let unknown = fields.unknown(route.fields).filter(|name| params.iter(below).all(|(n, _)| n != *name));
    let mut warnings: Warnings = unrecognised(unknown).into_iter().collect();
    if !replaced.is_empty() {
        warnings.add(format!(
            "Endpoint replaced the value of these parameters with the values captured from the endpoint's path: [{}]",
            replaced.join(" ")
        ));
    }
    warnings
}

/// The warning about fields that nobody reads. Their names are the caller's: it repeats so many, and so many
/// characters of each.
pub(super) fn unrecognised<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    const MOST: usize = 20;
    const LONGEST: usize = 64;
    let begin = |name: &'a str| name.char_indices().nth(LONGEST).map_or(name, |(end, _)| &name[..end]);
    let first: Vec<_> = names.by_ref().take(MOST).map(begin).collect();
    let more = match names.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!first.is_empty()).then(|| format!("Endpoint ignored these unrecognized parameters: [{}]{more}", first.join(" ")))
}
