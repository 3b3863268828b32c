//! Tag bindings of projects and workspaces: shown, merged by key, and with what is inherited.

use super::super::documents::tags::{document, effective};
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::refusal::Outcome;
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Binding, Holder};
use crate::projects::workspace::{self, WorkspaceRights};
use crate::projects::{Tx, project};

pub(crate) const ROUTES: &[Route] = &[
    route!(GET "projects/:project_id/tag-bindings", "project_tags", of_project => own),
    route!(PATCH "projects/:project_id/tag-bindings", "project_tags_merge", merge_of_project => own),
    route!(GET "projects/:project_id/effective-tag-bindings", "project_tags_effective", of_project => held),
    route!(GET "workspaces/:workspace_id/tag-bindings", "workspace_tags", of_workspace => own),
    route!(PATCH "workspaces/:workspace_id/tag-bindings", "workspace_tags_merge", merge_of_workspace => own),
    route!(GET "workspaces/:workspace_id/effective-tag-bindings", "workspace_tags_effective",
        effective_of_workspace => held_and_inherited),
    route!(POST "workspaces/:workspace_id/relationships/tags", "workspace_tags_add", add_flat => empty),
    route!(DELETE "workspaces/:workspace_id/relationships/tags", "workspace_tags_remove", remove_flat => empty),
];

async fn of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    tag::of_one(tx, Holder::Project, project.id).await
}

async fn merge_of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    tx.hold();
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    merge(tx, call, Holder::Project, project.id).await
}

async fn of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    Ok(workspace.tags)
}

async fn merge_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    tx.hold();
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::ADMIN).await?;
    merge(tx, call, Holder::Workspace, workspace.id).await
}

/// Merges the tags of the body into those of a resource; gives all that it has then.
async fn merge(tx: &mut Tx<'_>, call: &Call, holder: Holder, row: i64) -> Outcome<Vec<Binding>> {
    let tags = call.document.tag_bindings()?;
    tag::merge(tx, holder, row, &tags).await?;
    tag::of_one(tx, holder, row).await
}

fn own(bindings: Vec<Binding>) -> Reply {
    Reply::resources(bindings.iter().map(document))
}

fn held(bindings: Vec<Binding>) -> Reply {
    Reply::resources(bindings.iter().map(|binding| effective(binding, None)))
}

/// What holds for a workspace: its own bindings and those of its project, of which this is the external id.
struct Inherited {
    own: Vec<Binding>,
    of_project: Vec<Binding>,
    project: String,
}

async fn effective_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Inherited> {
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let of_project = tag::of_one(tx, Holder::Project, workspace.project).await?;
    Ok(Inherited { own: workspace.tags, of_project, project: workspace.project_ext_id })
}

fn held_and_inherited(Inherited { own, of_project, project }: Inherited) -> Reply {
    let all = tag::effective(&own, &of_project);
    let shown = |(binding, is_inherited): &(&Binding, bool)| effective(binding, is_inherited.then_some(&project[..]));
    Reply::resources(all.iter().map(shown))
}

async fn add_flat(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    tx.hold();
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::ADMIN).await?;
    let tags = call.document.flat_tags()?;
    tag::add_flat(tx, Holder::Workspace, workspace.id, &tags).await
}

async fn remove_flat(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    tx.hold();
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::ADMIN).await?;
    let named = call.document.named_tags()?;
    tag::remove_flat(tx, Holder::Workspace, workspace.id, named).await
}
