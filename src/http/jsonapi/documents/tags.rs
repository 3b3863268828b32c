//! Tag bindings: a resource's own, and the effective ones, which include inherited bindings.

use serde_json::{Value, json};

use super::super::reply::Rendered;
use super::pieces::{identifier, related, to_one};
use crate::projects::member::Member;
use crate::projects::organization_tags::OrganizationTag;
use crate::projects::tag::{self, TagBinding};

const EFFECTIVE_BINDING_TYPE: &str = "effective-tag-bindings";

/// Path of the identifiers of effective bindings in a resource.
pub(crate) const EFFECTIVE_BINDINGS_PATH: &[&str] = &["relationships", EFFECTIVE_BINDING_TYPE, "data"];

/// A resource's own binding.
pub(crate) fn document(binding: &TagBinding) -> Rendered {
    json!({
        "id": binding.ext_id,
        "type": "tag-bindings",
        "attributes": { "key": binding.key, "value": binding.value },
    })
    .into()
}

/// An effective binding. `from` is the project that it is inherited from; the resource's own bindings have no links.
pub(crate) fn effective_binding(binding: &TagBinding, from: Option<&str>) -> Rendered {
    let document = document(binding).with(&["type"], EFFECTIVE_BINDING_TYPE);
    let Some(project) = from else { return document };
    // Some known clients read the link, others the relationship.
    document
        .with(&["links"], json!({ "inherited-from": format!("/api/v2/projects/{project}") }))
        .with(&["relationships"], json!({ "inherited-from": to_one("projects", Some(project)) }))
}

/// A flat tag of a workspace.
pub(crate) fn flat_tag(name: &str) -> Rendered {
    json!({ "id": tag::flat_id(name), "type": "tags", "attributes": { "name": name } }).into()
}

/// A flat tag with the number of workspaces that have it.
pub(crate) fn organization_tag(member: &Member, tag: &OrganizationTag) -> Rendered {
    let organization = related("organizations", &member.organization.name);
    flat_tag(&tag.name)
        .with(&["attributes", "instance-count"], tag.workspaces)
        .with(&["relationships"], json!({ "organization": organization }))
}

/// Identifiers of effective bindings, for [`EFFECTIVE_BINDINGS_PATH`].
pub(crate) fn effective_identifiers<'b>(bindings: impl IntoIterator<Item = &'b TagBinding>) -> Value {
    bindings.into_iter().map(|binding| identifier(EFFECTIVE_BINDING_TYPE, &binding.ext_id)).collect()
}
