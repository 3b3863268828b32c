//! Tag bindings of projects and workspaces: shown, merged by key, and with what is inherited.

use serde_json::{Value, json};

use super::body::Resource;
use super::render::Reply;
use super::route::{Call, Route, route};
use super::workspaces::key;
use crate::projects::attributes::Attributes;
use crate::projects::refusal::Outcome;
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Binding, Holder, Tag};
use crate::projects::workspace::{self, WorkspaceRights};
use crate::projects::{Tx, project};

pub const ROUTES: &[Route] = &[
    route!(GET "projects/:project_id/tag-bindings", "project_tags", of_project),
    route!(PATCH "projects/:project_id/tag-bindings", "project_tags_merge", merge_of_project),
    route!(GET "projects/:project_id/effective-tag-bindings", "project_tags_effective", effective_of_project),
    route!(GET "workspaces/:workspace_id/tag-bindings", "workspace_tags", of_workspace),
    route!(PATCH "workspaces/:workspace_id/tag-bindings", "workspace_tags_merge", merge_of_workspace),
    route!(GET "workspaces/:workspace_id/effective-tag-bindings", "workspace_tags_effective", effective_of_workspace),
    route!(POST "workspaces/:workspace_id/relationships/tags", "workspace_tags_add", add_flat),
];

async fn of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    Ok(list(&tag::of_one(tx, Holder::Project, project.id).await?))
}

async fn merge_of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    merge(tx, call, Holder::Project, project.id).await
}

async fn effective_of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    let own = tag::of_one(tx, Holder::Project, project.id).await?;
    let items: Vec<Value> = own.iter().map(|binding| effective(binding, None)).collect();
    Ok(Reply::ok(json!({ "data": items })))
}

async fn of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::READ).await?;
    Ok(list(&workspace.tags))
}

async fn merge_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::ADMIN).await?;
    merge(tx, call, Holder::Workspace, workspace.id).await
}

async fn effective_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::READ).await?;
    let project = tag::of_one(tx, Holder::Project, workspace.project).await?;
    let from = |is_inherited: bool| is_inherited.then_some(&workspace.project_ext_id[..]);
    let all = tag::effective(&workspace.tags, &project);
    let items: Vec<Value> = all.iter().map(|(binding, inherited)| effective(binding, from(*inherited))).collect();
    Ok(Reply::ok(json!({ "data": items })))
}

async fn add_flat(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (_, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::ADMIN).await?;
    let tags = elements(call, tag::read_flat)?;
    tag::add_flat(tx, Holder::Workspace, workspace.id, &tags).await?;
    Ok(Reply::Empty)
}

/// The tags of the relationship `tag-bindings` of a request; `None` when it is absent.
///
/// # Errors
/// `Invalid` for another shape; what is wrong with the tags is left in `attributes`.
pub fn bindings(resource: &Resource<'_>, attributes: &mut Attributes<'_>) -> Outcome<Option<Vec<Tag>>> {
    let place = "/data/relationships/tag-bindings/data";
    Ok(resource.to_many("tag-bindings", tag::MOST_SENT)?.map(|elements| tag::read(attributes, elements, place)))
}

/// The flat tags of the relationship `tags` of a request.
///
/// # Errors
/// As [`bindings`].
pub fn flat(resource: &Resource<'_>, attributes: &mut Attributes<'_>) -> Outcome<Vec<Tag>> {
    let elements = resource.to_many("tags", tag::MOST_SENT)?.unwrap_or_default();
    Ok(tag::read_flat(attributes, elements, "/data/relationships/tags/data"))
}

/// Merges the tags of the body into those of a resource; answers all that it has then.
async fn merge(tx: &mut Tx<'_>, call: &Call, holder: Holder, row: i64) -> Outcome<Reply> {
    let tags = elements(call, tag::read)?;
    tag::merge(tx, holder, row, &tags).await?;
    Ok(list(&tag::of_one(tx, holder, row).await?))
}

/// The tags of a body whose `data` is an array of them.
fn elements(call: &Call, read: impl FnOnce(&mut Attributes<'_>, &[Value], &str) -> Vec<Tag>) -> Outcome<Vec<Tag>> {
    let elements = call.document.list(tag::MOST_SENT, "tags")?;
    let none = serde_json::Map::new();
    let mut faults = Attributes::new(&none);
    let tags = read(&mut faults, elements, "/data");
    faults.finish()?;
    Ok(tags)
}

fn list(bindings: &[Binding]) -> Reply {
    let items: Vec<Value> = bindings.iter().map(document).collect();
    Reply::ok(json!({ "data": items }))
}

fn document(binding: &Binding) -> Value {
    json!({
        "id": binding.ext_id,
        "type": "tag-bindings",
        "attributes": { "key": binding.key, "value": binding.value },
    })
}

/// A binding that holds for a resource. `from` is the project that it is inherited from; an own one has no
/// links at all.
pub fn effective(binding: &Binding, from: Option<&str>) -> Value {
    let mut document = document(binding);
    document["type"] = "effective-tag-bindings".into();
    if let Some(project) = from {
        document["links"] = json!({ "inherited-from": format!("/api/v2/projects/{project}") });
    }
    document
}

/// The identifier of a binding that holds for a resource, for the data of a relationship.
pub fn effective_identifier(binding: &Binding) -> Value {
    json!({ "id": binding.ext_id, "type": "effective-tag-bindings" })
}
