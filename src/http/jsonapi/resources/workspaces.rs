//! Workspaces: create, update, list, show, delete; by id, or by organization and name.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::super::body::{PrimaryResource, TypeRule};
use super::super::documents::{format_time, identifier, related, to_one};
use super::super::list::ListRequest;
use super::super::query::{MAX_FILTER_TAGS, MAX_FILTER_VALUES, Query, TAG_FILTER};
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::{organizations, projects, tags};
use crate::error::Kind;
use crate::projects::attributes::AttributeReader;
use crate::projects::member::{self, Member};
use crate::projects::page::ResultPage;
use crate::projects::project::Project;
use crate::projects::rejection::{ApiRejection, Fault, WorkResult};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, TagBinding, TaggedResource};
use crate::projects::workspace::{self, Workspace, WorkspaceFields, WorkspaceFilter, WorkspaceRights, WorkspaceTarget};
use crate::projects::{Tx, organization, project};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "organizations/:organization_name/workspaces", "workspace_create", create => render_created),
    route!(GET "organizations/:organization_name/workspaces", "workspace_list", list => render_list),
    route!(GET "organizations/:organization_name/workspaces/:workspace_name", "workspace_show_named", show => render_one),
    route!(PATCH "organizations/:organization_name/workspaces/:workspace_name", "workspace_update_named", update => render_one),
    route!(DELETE "organizations/:organization_name/workspaces/:workspace_name", "workspace_delete_named", delete => render_empty),
    route!(POST "organizations/:organization_name/workspaces/:workspace_name/actions/safe-delete",
        "workspace_safe_delete_named", safe_delete => render_empty),
    route!(GET "workspaces/:workspace_id", "workspace_show", show => render_one),
    route!(PATCH "workspaces/:workspace_id", "workspace_update", update => render_one),
    route!(DELETE "workspaces/:workspace_id", "workspace_delete", delete => render_empty),
    route!(POST "workspaces/:workspace_id/actions/safe-delete", "workspace_safe_delete", safe_delete => render_empty),
    route!(GET "workspaces/:workspace_id/current-state-version", "workspace_state", current_state_version => render_empty),
    route!(POST "workspaces/:workspace_id/configuration-versions", "workspace_run_refuse", refuse_run => render_empty),
];

/// Query parameters that pagination links repeat.
const LIST_PARAMETERS: &[&str] = &[
    "search[name]",
    "search[wildcard-name]",
    "search[tags]",
    "search[exclude-tags]",
    "filter[project][id]",
    "filter[current-run][status]",
    TAG_FILTER,
    "sort",
    "include",
];
/// Supported `include` values.
const SUPPORTED_INCLUDES: &[&str] = &["organization", "project", "effective_tag_bindings"];
/// `include` values that known clients send; they are accepted without effect.
const IGNORED_INCLUDES: &[&str] = &[
    "current_run",
    "current_run.plan",
    "current_run.configuration_version",
    "current_run.configuration_version.ingress_attributes",
    "current_configuration_version",
    "current_configuration_version.ingress_attributes",
    "current_state_version",
    "locked_by",
    "outputs",
    "readme",
];
/// Maximum length of the name pattern in a filter, in characters. Workspace names have at most 90.
const MAX_NAME_PATTERN_CHARACTERS: usize = 256;

struct WorkspaceView {
    member: Member,
    workspace: Workspace,
    included_rows: Option<WorkspaceIncludes>,
    /// `true` if the client runs plans and applies.
    runs_terraform: bool,
}

struct WorkspaceIncludes {
    /// External id of the organization's default project, if the response includes the organization.
    organization: Option<Option<String>>,
    /// The included projects: only those that the caller may see.
    projects: Vec<Project>,
    /// The tags of the projects, keyed by the row id of the project.
    tags: Option<HashMap<i64, Vec<TagBinding>>>,
}

async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Workspace)> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Exact(RESOURCE_TYPE), None)?;
    let project = workspace::find_destination(tx, &member, resource.to_one("project")?.flatten()).await?;
    let mut attributes = AttributeReader::new(resource.attributes());
    let pool = resource.related("agent-pool")?;
    let given = WorkspaceFields::read(tx, &member, &mut attributes, pool, WorkspaceTarget::New(&project)).await?;
    let bindings = resource.tag_bindings(&mut attributes)?.unwrap_or_default();
    let flat = resource.flat_tags(&mut attributes)?;
    attributes.finish()?;
    let row = workspace::create(tx, &member, &project, given).await?;
    if !bindings.is_empty() {
        tag::merge(tx, TaggedResource::Workspace, row, &bindings).await?;
    }
    tag::add_flat(tx, TaggedResource::Workspace, row, &flat).await?;
    let made = workspace::lock_and_load(tx, &member, row, WorkspaceRights::NONE).await?;
    Ok((member, made))
}

fn render_created((member, workspace): (Member, Workspace)) -> RenderedResult {
    RenderedResult::created(document(&member, &workspace))
}

struct WorkspacePage {
    list_request: ListRequest,
    member: Member,
    listed: ResultPage<Workspace>,
    included_rows: Option<WorkspaceIncludes>,
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspacePage> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let query = &call.query;
    let list_request = ListRequest::read(call, LIST_PARAMETERS)?;
    let include = query.include(SUPPORTED_INCLUDES, IGNORED_INCLUDES)?;
    // The sort field `current-run.created-at` is accepted without effect, because there are no runs.
    let sort = query.sort(&["name", "current-run.created-at"])?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let wanted = WorkspaceFilter {
        name: text("search[name]"),
        wildcard: read_wildcard(query)?,
        tags: query.list("search[tags]", MAX_FILTER_TAGS)?,
        without_tags: query.list("search[exclude-tags]", MAX_FILTER_TAGS)?,
        tagged: query.tag_filters()?,
        projects: query.list("filter[project][id]", MAX_FILTER_VALUES)?,
        descending: sort == Some(("name", true)),
    };
    let listed = if query.text("filter[current-run][status]").is_some() {
        ResultPage::empty()
    } else {
        workspace::list(tx, &member, &wanted, list_request.page).await?
    };
    let included_rows = load_included(tx, &member, &listed.items, &include).await?;
    Ok(WorkspacePage { list_request, member, listed, included_rows })
}

fn render_list(WorkspacePage { list_request, member, listed, included_rows }: WorkspacePage) -> RenderedResult {
    let (items, included) = render_items(&member, &listed.items, included_rows);
    list_request.document(items, listed.matching, None).including(included)
}

fn read_wildcard(query: &Query) -> Result<Option<String>, ApiRejection> {
    const NAME: &str = "search[wildcard-name]";
    let pattern = query.text(NAME);
    if pattern.is_some_and(|pattern| pattern.chars().nth(MAX_NAME_PATTERN_CHARACTERS).is_some()) {
        return Err(ApiRejection::parameter(
            NAME,
            format!("{NAME} may have at most {MAX_NAME_PATTERN_CHARACTERS} characters"),
        ));
    }
    Ok(pattern.map(str::to_owned))
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspaceView> {
    let (member, workspace) =
        workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let include = call.query.include(SUPPORTED_INCLUDES, IGNORED_INCLUDES)?;
    let included_rows = load_included(tx, &member, std::slice::from_ref(&workspace), &include).await?;
    Ok(WorkspaceView { member, workspace, included_rows, runs_terraform: call.runs_terraform })
}

fn render_one(WorkspaceView { member, workspace, included_rows, runs_terraform }: WorkspaceView) -> RenderedResult {
    let (mut items, included) = render_items(&member, std::slice::from_ref(&workspace), included_rows);
    let item = items.pop().unwrap_or_else(|| document(&member, &workspace));
    // In mode `remote` the client sends its run to this server, where `refuse_run` rejects the first step.
    let item = if runs_terraform { with_remote_execution_mode(item) } else { item };
    RenderedResult::resource(item).including(included)
}

async fn load_included(
    tx: &mut Tx<'_>,
    member: &Member,
    workspaces: &[Workspace],
    include: &[&str],
) -> WorkResult<Option<WorkspaceIncludes>> {
    if include.is_empty() {
        return Ok(None);
    }
    let mut rows: Vec<i64> = workspaces.iter().map(|workspace| workspace.project).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut included_rows = WorkspaceIncludes { organization: None, projects: Vec::new(), tags: None };
    if include.contains(&"organization") && !workspaces.is_empty() {
        included_rows.organization = Some(organization::find_default_project(tx, member.organization.id).await?);
    }
    if include.contains(&"project") {
        included_rows.projects = project::load_by_rows(tx, member, &rows).await?;
        // A caller may have the right to see a workspace, but not its project.
        included_rows.projects.retain(|project| project.rights.has(ProjectRights::READ));
    }
    if include.contains(&"effective_tag_bindings") {
        included_rows.tags = Some(tag::load_bindings(tx, TaggedResource::Project, rows).await?);
    }
    Ok(Some(included_rows))
}

fn render_items(
    member: &Member,
    workspaces: &[Workspace],
    included_rows: Option<WorkspaceIncludes>,
) -> (Vec<Rendered>, Option<Vec<Rendered>>) {
    let plain = || workspaces.iter().map(|workspace| document(member, workspace));
    let Some(WorkspaceIncludes { organization, projects, tags: of_projects }) = included_rows else {
        return (plain().collect(), None);
    };
    let organization = organization.map(|project| organizations::document(member, project.as_deref()));
    let mut included: Vec<Rendered> = organization.into_iter().collect();
    included.extend(projects.iter().map(|project| projects::document(member, project)));
    let Some(of_projects) = of_projects else { return (plain().collect(), Some(included)) };
    let mut items = Vec::with_capacity(workspaces.len());
    let mut seen = HashSet::new();
    for (workspace, item) in workspaces.iter().zip(plain()) {
        let inherited = of_projects.get(&workspace.project).map_or(&[][..], Vec::as_slice);
        let effective = tag::resolve_effective(&workspace.tags, inherited);
        items.push(with_tags(item, effective.iter().map(|(binding, _)| *binding)));
        let new = effective.into_iter().filter(|(binding, _)| seen.insert(binding.ext_id.clone()));
        included.extend(new.map(|(binding, is_inherited)| {
            tags::effective_binding(binding, is_inherited.then_some(&workspace.project_ext_id[..]))
        }));
    }
    (items, Some(included))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspaceView> {
    let (member, workspace) =
        workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let manages = workspace.rights.has(WorkspaceRights::ADMIN);
    if !manages && !workspace::may_move_out(tx, &member, &workspace).await? {
        return Err(ApiRejection::not_found().into());
    }
    let workspace = workspace::lock_and_load(tx, &member, workspace.id, WorkspaceRights::READ).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Exact(RESOURCE_TYPE), Some(&workspace.ext_id))?;
    let project = match resource.to_one("project")? {
        Some(None) => {
            return Err(ApiRejection::at("/data/relationships/project", "project must not be null").into());
        }
        // If the request names the project that already contains the workspace, the workspace is not moved.
        named => named.flatten().filter(|named| *named != workspace.project_ext_id),
    };
    let mut attributes = AttributeReader::new(resource.attributes());
    let pool = resource.related("agent-pool")?;
    let given = WorkspaceFields::read(tx, &member, &mut attributes, pool, WorkspaceTarget::Stored(&workspace)).await?;
    let bindings = resource.tag_bindings(&mut attributes)?;
    let changes = !resource.attributes().is_empty() || bindings.is_some() || given.mode.is_some();
    // A caller may have the right to move the workspace, but not the right to change anything else in it.
    if changes && !workspace.rights.has(WorkspaceRights::ADMIN) {
        return Err(ApiRejection::not_found().into());
    }
    attributes.finish()?;
    if let Some(project) = project {
        workspace::move_to_project(tx, &member, &workspace, &project).await?;
    }
    if changes {
        workspace::change(tx, workspace.id, given).await?;
    }
    if let Some(bindings) = bindings {
        tag::replace(tx, TaggedResource::Workspace, workspace.id, &bindings).await?;
    }
    let changed = workspace::lock_and_load(tx, &member, workspace.id, WorkspaceRights::NONE).await?;
    Ok(WorkspaceView { member, workspace: changed, included_rows: None, runs_terraform: false })
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (member, workspace) =
        workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::DESTROY).await?;
    workspace::delete(tx, &member, &workspace, false).await
}

async fn safe_delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (member, workspace) =
        workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::DESTROY).await?;
    PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    workspace::delete(tx, &member, &workspace, true).await
}

/// Returns 404: this server stores no state, so clients start with an empty state.
async fn current_state_version(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    Err(ApiRejection::not_found().into())
}

/// Rejects the first step of a plan or an apply, before anything changes.
async fn refuse_run(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    workspace::find_visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let detail = "this server manages workspaces, but it runs no operations and stores no state; plan and \
        apply with a backend that stores the state elsewhere";
    let fault =
        Fault { title: Some("plan and apply are not supported by this server"), detail: detail.into(), source: None };
    Err(ApiRejection::of(Kind::Invalid, vec![fault]).into())
}

/// The type of workspace documents.
const RESOURCE_TYPE: &str = "workspaces";

/// Renders a workspace. For clients that run plans and applies, [`with_remote_execution_mode`] adapts the document.
pub(crate) fn document(member: &Member, workspace: &Workspace) -> Rendered {
    let organization = &member.organization.name;
    let name = &workspace.name;
    let path = format!("/api/v2/workspaces/{}", workspace.ext_id);
    let mode = workspace.mode(member);
    json!({
        "id": workspace.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": render_attributes(member, workspace),
        "relationships": {
            "organization": related("organizations", organization),
            "project": related("projects", &workspace.project_ext_id),
            "agent-pool": to_one("agent-pools", mode.pool.as_deref()),
            "locked-by": { "data": visible_lock_holder(workspace) },
            "current-run": { "data": null },
            "tag-bindings": { "links": { "related": format!("{path}/tag-bindings") } },
            "effective-tag-bindings": { "links": { "related": format!("{path}/effective-tag-bindings") } },
        },
        "links": {
            "self": format!("/api/v2/organizations/{organization}/workspaces/{name}"),
            "self-html": format!("/app/{organization}/workspaces/{name}"),
        },
    })
    .into()
}

/// Adapts a workspace for a client that runs plans and applies. In mode `local` the client would apply changes itself,
/// and then find that this server stores no state. In mode `remote` it sends the run to this server, which refuses it.
#[must_use]
fn with_remote_execution_mode(workspace: Rendered) -> Rendered {
    workspace.with(&["attributes", "execution-mode"], "remote")
}

/// Adds the identifiers of the workspace's effective tags.
#[must_use]
fn with_tags<'b>(workspace: Rendered, tags: impl IntoIterator<Item = &'b TagBinding>) -> Rendered {
    workspace.with(tags::EFFECTIVE_BINDINGS_PATH, tags::effective_identifiers(tags))
}

/// Returns the resource identifier of the lock's holder, unless the holder is a team that is hidden from the caller.
fn visible_lock_holder(workspace: &Workspace) -> Option<Value> {
    let holder = workspace.locked_by.as_deref().filter(|_| !workspace.holder_is_hidden)?;
    let (kind, id) = holder.split_once('/')?;
    Some(identifier(kind, id))
}

fn render_attributes(member: &Member, workspace: &Workspace) -> Value {
    let mode = workspace.mode(member);
    let own = workspace.own_mode.is_some();
    let flat = workspace.tags.iter().filter(|binding| binding.value.is_empty()).map(|binding| &binding.key[..]);
    let mut attributes = json!({
        "name": workspace.name,
        "description": workspace.description,
        "created-at": format_time(workspace.created_at),
        "updated-at": format_time(workspace.updated_at),
        "latest-change-at": format_time(workspace.updated_at),
        "hyok-enabled": false,
        "execution-mode": mode.name,
        "operations": mode.name != "local",
        "setting-overwrites": { "execution-mode": own, "agent-pool": own },
        "terraform-version": workspace.terraform_version,
        "locked": workspace.locked_by.is_some(),
        "auto-destroy-activity-duration": workspace.auto_destroy,
        "inherits-project-auto-destroy": workspace.inherits_auto_destroy,
        "auto-destroy-at": workspace.auto_destroy_at.map(format_time),
        "tag-names": flat.collect::<Vec<_>>(),
        "source": "tfe-api",
        "actions": { "is-destroyable": true },
        "resource-count": 0,
        "permissions": render_permissions(workspace.rights),
    });
    if let Value::Object(attributes) = &mut attributes {
        attributes.append(&mut workspace.settings.with_defaults());
    }
    attributes
}

fn render_permissions(rights: WorkspaceRights) -> Value {
    json!({
        "can-read-settings": rights.has(WorkspaceRights::READ),
        "can-update": rights.has(WorkspaceRights::ADMIN),
        "can-destroy": rights.has(WorkspaceRights::DESTROY),
        "can-force-delete": rights.has(WorkspaceRights::ADMIN),
        "can-lock": rights.has(WorkspaceRights::LOCK),
        "can-unlock": rights.has(WorkspaceRights::LOCK),
        "can-force-unlock": rights.has(WorkspaceRights::ADMIN),
        "can-manage-run-tasks": rights.has(WorkspaceRights::RUN_TASKS),
        "can-queue-run": rights.has(WorkspaceRights::PLAN),
        "can-queue-apply": rights.has(WorkspaceRights::APPLY),
        "can-queue-destroy": rights.has(WorkspaceRights::APPLY),
        "can-read-variable": rights.has(WorkspaceRights::READ_VARIABLES),
        "can-update-variable": rights.has(WorkspaceRights::WRITE_VARIABLES),
        "can-read-state-versions": rights.has(WorkspaceRights::READ_STATE),
    })
}
