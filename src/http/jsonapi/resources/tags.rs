//! Tag bindings (key and value) of projects and workspaces: list, merge and replace. A workspace also inherits the
//! bindings of its project; together with its own they are its effective bindings. Also flat tags, which have no value.

use serde_json::{Value, json};

use super::super::documents::{identifier, related, to_one};
use super::super::list::ListRequest;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use crate::projects::member::{self, Member};
use crate::projects::organization_tags::{self, OrganizationTag, OrganizationTagFilter};
use crate::projects::page::ResultPage;
use crate::projects::rejection::WorkResult;
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, TagBinding, TaggedResource};
use crate::projects::workspace::{self, WorkspaceRights};
use crate::projects::{Tx, project};

/// Query parameter with the id of a workspace whose tags are excluded from the list.
const EXCLUDED_WORKSPACE_FILTER: &str = "filter[exclude][taggable][id]";

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(GET "projects/:project_id/tag-bindings", "project_tags", list_own_bindings => render_bindings),
    route!(PATCH "projects/:project_id/tag-bindings", "project_tags_merge", merge_bindings => render_bindings),
    route!(GET "projects/:project_id/effective-tag-bindings", "project_tags_effective", list_own_bindings => render_effective),
    route!(GET "workspaces/:workspace_id/tag-bindings", "workspace_tags", list_own_bindings => render_bindings),
    route!(PATCH "workspaces/:workspace_id/tag-bindings", "workspace_tags_merge", merge_bindings => render_bindings),
    route!(GET "workspaces/:workspace_id/effective-tag-bindings", "workspace_tags_effective",
        list_effective_workspace_bindings => render_effective_and_inherited),
    route!(GET "projects/:project_id/relationships/tag-bindings", "project_tags_related", list_own_bindings => render_bindings),
    route!(POST "projects/:project_id/relationships/tag-bindings", "project_tags_related_add", add_bindings => render_empty),
    route!(PATCH "projects/:project_id/relationships/tag-bindings", "project_tags_related_replace",
        replace_bindings => render_empty),
    route!(GET "workspaces/:workspace_id/relationships/tag-bindings", "workspace_tags_related", list_own_bindings => render_bindings),
    route!(POST "workspaces/:workspace_id/relationships/tag-bindings", "workspace_tags_related_add",
        add_bindings => render_empty),
    route!(PATCH "workspaces/:workspace_id/relationships/tag-bindings", "workspace_tags_related_replace",
        replace_bindings => render_empty),
    route!(GET "organizations/:organization_name/tags", "organization_tags", list_organization_tags => render_organization_tags),
    route!(GET "workspaces/:workspace_id/relationships/tags", "workspace_tags_flat", list_flat_workspace_tags => render_flat_tags),
    route!(POST "workspaces/:workspace_id/relationships/tags", "workspace_tags_add", add_flat_tags => render_empty),
    route!(DELETE "workspaces/:workspace_id/relationships/tags", "workspace_tags_remove", remove_flat_tags => render_empty),
];

/// Returns the bindings of the project or workspace in the path, without inherited ones.
async fn list_own_bindings(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Vec<TagBinding>> {
    call.query.refuse_unknown_filters(&[])?;
    if call.param("project_id").is_empty() {
        let (_, workspace) = workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
        return Ok(workspace.tags);
    }
    let (_, project) = project::find_visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    tag::load_bindings_of(tx, TaggedResource::Project, project.id).await
}

/// Returns the kind and the row id of the project or workspace in the path, if the caller may change its tags.
async fn find_taggable_resource(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(TaggedResource, i64)> {
    tx.lock_lookups();
    if call.param("project_id").is_empty() {
        let needed = WorkspaceRights::ADMIN;
        let (_, workspace) = workspace::find_visible(tx, &call.caller, call.workspace(), needed).await?;
        return Ok((TaggedResource::Workspace, workspace.id));
    }
    let (_, project) = project::find_visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    Ok((TaggedResource::Project, project.id))
}

async fn merge_bindings(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Vec<TagBinding>> {
    let (holder, row) = find_taggable_resource(tx, call).await?;
    tag::merge(tx, holder, row, &call.document.tag_bindings()?).await?;
    tag::load_bindings_of(tx, holder, row).await
}

async fn add_bindings(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    merge_bindings(tx, call).await.map(drop)
}

async fn replace_bindings(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (holder, row) = find_taggable_resource(tx, call).await?;
    tag::replace(tx, holder, row, &call.document.tag_bindings()?).await
}

fn render_bindings(bindings: Vec<TagBinding>) -> RenderedResult {
    RenderedResult::resources(bindings.iter().map(document))
}

fn render_effective(bindings: Vec<TagBinding>) -> RenderedResult {
    RenderedResult::resources(bindings.iter().map(|binding| effective_binding(binding, None)))
}

/// The bindings of a workspace and of its project. `project` is the project's external id.
struct WorkspaceBindings {
    own: Vec<TagBinding>,
    of_project: Vec<TagBinding>,
    project: String,
}

async fn list_effective_workspace_bindings(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspaceBindings> {
    call.query.refuse_unknown_filters(&[])?;
    let (_, workspace) = workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let of_project = tag::load_bindings_of(tx, TaggedResource::Project, workspace.project).await?;
    Ok(WorkspaceBindings { own: workspace.tags, of_project, project: workspace.project_ext_id })
}

fn render_effective_and_inherited(WorkspaceBindings { own, of_project, project }: WorkspaceBindings) -> RenderedResult {
    let all = tag::resolve_effective(&own, &of_project);
    let shown = |(binding, is_inherited): &(&TagBinding, bool)| {
        effective_binding(binding, is_inherited.then_some(&project[..]))
    };
    RenderedResult::resources(all.iter().map(shown))
}

async fn add_flat_tags(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (holder, workspace) = find_taggable_resource(tx, call).await?;
    let tags = call.document.flat_tags()?;
    tag::add_flat(tx, holder, workspace, &tags).await
}

async fn remove_flat_tags(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (holder, workspace) = find_taggable_resource(tx, call).await?;
    let named = call.document.named_tags()?;
    tag::remove_flat(tx, holder, workspace, named).await
}

async fn list_flat_workspace_tags(
    tx: &mut Tx<'_>,
    call: &ProjectsCall,
) -> WorkResult<(ListRequest, ResultPage<String>)> {
    let (_, workspace) = workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let list_request = ListRequest::read(call, &[])?;
    let flat = workspace.tags.into_iter().filter(|binding| binding.value.is_empty());
    let names: Vec<String> = flat.map(|binding| binding.key).collect();
    let listed = ResultPage { matching: names.len() as i64, items: list_request.page.slice(&names) };
    Ok((list_request, listed))
}

fn render_flat_tags((list_request, listed): (ListRequest, ResultPage<String>)) -> RenderedResult {
    list_request.document(listed.items.iter().map(|name| flat_tag(name)), listed.matching, None)
}

/// Lists the flat tags in an organization, of all workspaces that the caller may see.
async fn list_organization_tags(
    tx: &mut Tx<'_>,
    call: &ProjectsCall,
) -> WorkResult<(ListRequest, Member, ResultPage<OrganizationTag>)> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let list_request = ListRequest::read(call, &["q", EXCLUDED_WORKSPACE_FILTER])?;
    let text = |name: &str| call.query.text(name).map(str::to_owned);
    let wanted = OrganizationTagFilter { q: text("q"), excluded_workspace: text(EXCLUDED_WORKSPACE_FILTER) };
    let listed = organization_tags::list(tx, &member, &wanted, list_request.page).await?;
    Ok((list_request, member, listed))
}

fn render_organization_tags(
    (list_request, member, listed): (ListRequest, Member, ResultPage<OrganizationTag>),
) -> RenderedResult {
    list_request.document(listed.items.iter().map(|tag| organization_tag(&member, tag)), listed.matching, None)
}

const EFFECTIVE_BINDING_TYPE: &str = "effective-tag-bindings";

/// Path of member names in a resource document that leads to the identifiers of its effective bindings.
pub(crate) const EFFECTIVE_BINDINGS_PATH: &[&str] = &["relationships", EFFECTIVE_BINDING_TYPE, "data"];

/// Renders a binding that belongs to the resource itself.
fn document(binding: &TagBinding) -> Rendered {
    json!({
        "id": binding.ext_id,
        "type": "tag-bindings",
        "attributes": { "key": binding.key, "value": binding.value },
    })
    .into()
}

/// Renders an effective binding. `from` is the external id of the project that it is inherited from, or `None` for a
/// binding of the resource itself.
pub(crate) fn effective_binding(binding: &TagBinding, from: Option<&str>) -> Rendered {
    let document = document(binding).with(&["type"], EFFECTIVE_BINDING_TYPE);
    let Some(project) = from else { return document };
    // Known clients read the project either from the link or from the relationship.
    document
        .with(&["links"], json!({ "inherited-from": format!("/api/v2/projects/{project}") }))
        .with(&["relationships"], json!({ "inherited-from": to_one("projects", Some(project)) }))
}

/// Renders a flat tag of a workspace.
fn flat_tag(name: &str) -> Rendered {
    json!({ "id": tag::flat_id(name), "type": "tags", "attributes": { "name": name } }).into()
}

/// Renders a flat tag with the number of workspaces that have it.
fn organization_tag(member: &Member, tag: &OrganizationTag) -> Rendered {
    let organization = related("organizations", &member.organization.name);
    flat_tag(&tag.name)
        .with(&["attributes", "instance-count"], tag.workspaces)
        .with(&["relationships"], json!({ "organization": organization }))
}

/// Renders the identifiers of effective bindings, for [`EFFECTIVE_BINDINGS_PATH`].
pub(crate) fn effective_identifiers<'b>(bindings: impl IntoIterator<Item = &'b TagBinding>) -> Value {
    bindings.into_iter().map(|binding| identifier(EFFECTIVE_BINDING_TYPE, &binding.ext_id)).collect()
}
