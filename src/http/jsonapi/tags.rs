//! Tag bindings of projects and workspaces: shown, merged by key, and with what is inherited.

use serde_json::{Value, json};

use super::body;
use super::render::Reply;
use super::route::{Call, Route, route};
use crate::projects::attributes::Attributes;
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Binding, Holder, Tag};
use crate::projects::{Tx, project};

pub const ROUTES: &[Route] = &[
    route!(GET "projects/:project_id/tag-bindings", "project_tags", of_project),
    route!(PATCH "projects/:project_id/tag-bindings", "project_tags_merge", merge_of_project),
    route!(GET "projects/:project_id/effective-tag-bindings", "project_tags_effective", effective_of_project),
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

/// Merges the tags of the body into those of a resource; answers all that it has then.
async fn merge(tx: &mut Tx<'_>, call: &Call, holder: Holder, row: i64) -> Outcome<Reply> {
    let tags = elements(call, tag::read)?;
    tag::merge(tx, holder, row, &tags).await?;
    Ok(list(&tag::of_one(tx, holder, row).await?))
}

/// The tags of a body whose `data` is an array of them.
fn elements(call: &Call, read: impl FnOnce(&mut Attributes<'_>, &[Value], &str) -> Vec<Tag>) -> Outcome<Vec<Tag>> {
    let Value::Array(elements) = body::data(&call.body)? else {
        return Err(Refusal::at("/data", "data must be an array").into());
    };
    let none = serde_json::Map::new();
    let mut faults = Attributes::new(&none);
    let tags = read(&mut faults, &elements, "/data");
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
