//! Bindings of tags: a resource's own, and those that hold for it.

use serde_json::{Value, json};

use super::super::reply::Rendered;
use super::pieces::identifier;
use crate::projects::tag::Binding;

/// The type of bindings that hold for a resource.
const EFFECTIVE: &str = "effective-tag-bindings";

/// Where a resource names the bindings that hold for it.
pub(crate) const EFFECTIVE_DATA: &[&str] = &["relationships", EFFECTIVE, "data"];

/// A resource's own binding.
pub(crate) fn document(binding: &Binding) -> Rendered {
    json!({
        "id": binding.ext_id,
        "type": "tag-bindings",
        "attributes": { "key": binding.key, "value": binding.value },
    })
    .into()
}

/// A binding that holds for a resource. `from` is the project that it is inherited from; an own one has no
/// links at all.
pub(crate) fn effective(binding: &Binding, from: Option<&str>) -> Rendered {
    let document = document(binding).with(&["type"], EFFECTIVE);
    match from {
        Some(project) => document.with(&["links"], json!({ "inherited-from": format!("/api/v2/projects/{project}") })),
        None => document,
    }
}

/// The identifiers of bindings that hold for a resource, for [`EFFECTIVE_DATA`].
pub(crate) fn effective_identifiers<'b>(bindings: impl IntoIterator<Item = &'b Binding>) -> Value {
    bindings.into_iter().map(|binding| identifier(EFFECTIVE, &binding.ext_id)).collect()
}
