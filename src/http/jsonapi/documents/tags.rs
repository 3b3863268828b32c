//! Bindings of tags: a resource's own, and those that hold for it.

use serde_json::{Value, json};

use super::super::reply::Rendered;
use super::pieces::{identifier, related, to_one};
use crate::projects::member::Member;
use crate::projects::organization_tags::OrganizationTag;
use crate::projects::tag::{self, Binding};

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
    let Some(project) = from else { return document };
    // Known clients look for the one or the other.
    document
        .with(&["links"], json!({ "inherited-from": format!("/api/v2/projects/{project}") }))
        .with(&["relationships"], json!({ "inherited-from": to_one("projects", Some(project)) }))
}

/// A flat tag of a workspace.
pub(crate) fn flat(name: &str) -> Rendered {
    json!({ "id": tag::flat_id(name), "type": "tags", "attributes": { "name": name } }).into()
}

/// A flat tag with the number of workspaces that have it.
pub(crate) fn of_all_workspaces(member: &Member, tag: &OrganizationTag) -> Rendered {
    let organization = related("organizations", &member.organization.name);
    flat(&tag.name)
        .with(&["attributes", "instance-count"], tag.workspaces)
        .with(&["relationships"], json!({ "organization": organization }))
}

/// The identifiers of bindings that hold for a resource, for [`EFFECTIVE_DATA`].
pub(crate) fn effective_identifiers<'b>(bindings: impl IntoIterator<Item = &'b Binding>) -> Value {
    bindings.into_iter().map(|binding| identifier(EFFECTIVE, &binding.ext_id)).collect()
}
