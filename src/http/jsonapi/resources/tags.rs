//! Tag bindings of projects and workspaces: own and effective ones, merge and replace; and flat tags.

use super::super::documents::tags::{document, effective, flat as flat_document, of_all_workspaces};
use super::super::list::ListRequest;
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::projects::member::{self, Member};
use crate::projects::organization_tags::{self, OrganizationTag, OrganizationTagFilter};
use crate::projects::page::Listed;
use crate::projects::refusal::Outcome;
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Binding, Holder};
use crate::projects::workspace::{self, WorkspaceRights};
use crate::projects::{Tx, project};

/// Filter that excludes the tags of a workspace.
const EXCLUDED: &str = "filter[exclude][taggable][id]";

pub(crate) const ROUTES: &[Route] = &[
    route!(GET "projects/:project_id/tag-bindings", "project_tags", of_project => own),
    route!(PATCH "projects/:project_id/tag-bindings", "project_tags_merge", merge_of_project => own),
    route!(GET "projects/:project_id/effective-tag-bindings", "project_tags_effective", of_project => held),
    route!(GET "workspaces/:workspace_id/tag-bindings", "workspace_tags", of_workspace => own),
    route!(PATCH "workspaces/:workspace_id/tag-bindings", "workspace_tags_merge", merge_of_workspace => own),
    route!(GET "workspaces/:workspace_id/effective-tag-bindings", "workspace_tags_effective",
        effective_of_workspace => held_and_inherited),
    route!(GET "projects/:project_id/relationships/tag-bindings", "project_tags_related", of_project => own),
    route!(POST "projects/:project_id/relationships/tag-bindings", "project_tags_related_add", add_to_project => empty),
    route!(PATCH "projects/:project_id/relationships/tag-bindings", "project_tags_related_replace",
        replace_of_project => empty),
    route!(GET "workspaces/:workspace_id/relationships/tag-bindings", "workspace_tags_related", of_workspace => own),
    route!(POST "workspaces/:workspace_id/relationships/tag-bindings", "workspace_tags_related_add",
        add_to_workspace => empty),
    route!(PATCH "workspaces/:workspace_id/relationships/tag-bindings", "workspace_tags_related_replace",
        replace_of_workspace => empty),
    route!(GET "organizations/:organization_name/tags", "organization_tags", of_organization => all_flat),
    route!(GET "workspaces/:workspace_id/relationships/tags", "workspace_tags_flat", flat_of_workspace => flat),
    route!(POST "workspaces/:workspace_id/relationships/tags", "workspace_tags_add", add_flat => empty),
    route!(DELETE "workspaces/:workspace_id/relationships/tags", "workspace_tags_remove", remove_flat => empty),
];

async fn of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    call.query.refuse_unknown_filters(&[])?;
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    tag::of_one(tx, Holder::Project, project.id).await
}

async fn merge_of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    let project = changed_project(tx, call).await?;
    merge(tx, call, Holder::Project, project).await
}

async fn add_to_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    merge_of_project(tx, call).await.map(drop)
}

async fn replace_of_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let project = changed_project(tx, call).await?;
    tag::replace(tx, Holder::Project, project, &call.document.tag_bindings()?).await
}

/// Returns the row of the project in the path, if the caller may change its tags.
async fn changed_project(tx: &mut Tx<'_>, call: &Call) -> Outcome<i64> {
    tx.hold();
    let (_, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    Ok(project.id)
}

async fn of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    call.query.refuse_unknown_filters(&[])?;
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    Ok(workspace.tags)
}

async fn merge_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Vec<Binding>> {
    let workspace = changed_workspace(tx, call).await?;
    merge(tx, call, Holder::Workspace, workspace).await
}

async fn add_to_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    merge_of_workspace(tx, call).await.map(drop)
}

async fn replace_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let workspace = changed_workspace(tx, call).await?;
    tag::replace(tx, Holder::Workspace, workspace, &call.document.tag_bindings()?).await
}

/// Returns the row of the workspace in the path, if the caller may change its tags.
async fn changed_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<i64> {
    tx.hold();
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::ADMIN).await?;
    Ok(workspace.id)
}

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

/// The bindings of a workspace and of its project. `project` is an external id.
struct Inherited {
    own: Vec<Binding>,
    of_project: Vec<Binding>,
    project: String,
}

async fn effective_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<Inherited> {
    call.query.refuse_unknown_filters(&[])?;
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
    let workspace = changed_workspace(tx, call).await?;
    let tags = call.document.flat_tags()?;
    tag::add_flat(tx, Holder::Workspace, workspace, &tags).await
}

async fn remove_flat(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let workspace = changed_workspace(tx, call).await?;
    let named = call.document.named_tags()?;
    tag::remove_flat(tx, Holder::Workspace, workspace, named).await
}

async fn flat_of_workspace(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<String>)> {
    let (_, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let asked = ListRequest::read(call, &[])?;
    let flat = workspace.tags.into_iter().filter(|binding| binding.value.is_empty());
    let names: Vec<String> = flat.map(|binding| binding.key).collect();
    let listed = Listed { matching: names.len() as i64, items: asked.page.of(&names) };
    Ok((asked, listed))
}

fn flat((asked, listed): (ListRequest, Listed<String>)) -> Reply {
    asked.document(listed.items.iter().map(|name| flat_document(name)), listed.matching, None)
}

/// Lists the flat tags of all workspaces of an organization that the caller may see.
async fn of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Member, Listed<OrganizationTag>)> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let asked = ListRequest::read(call, &["q", EXCLUDED])?;
    let text = |name: &str| call.query.text(name).map(str::to_owned);
    let wanted = OrganizationTagFilter { q: text("q"), not_of: text(EXCLUDED) };
    let listed = organization_tags::list(tx, &member, &wanted, asked.page).await?;
    Ok((asked, member, listed))
}

fn all_flat((asked, member, listed): (ListRequest, Member, Listed<OrganizationTag>)) -> Reply {
    asked.document(listed.items.iter().map(|tag| of_all_workspaces(&member, tag)), listed.matching, None)
}
