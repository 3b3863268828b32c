//! Projects: create, update, list, show, delete, and moving workspaces into a project.

use std::collections::HashMap;

use serde_json::json;

use super::super::body::{self, PrimaryResource, TypeRule};
use super::super::documents::{format_time, related, to_one};
use super::super::list::ListRequest;
use super::super::query::{MAX_FILTER_VALUES, TAG_FILTER};
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use super::tags::{self, effective_binding};
use crate::projects::Tx;
use crate::projects::attributes::AttributeReader;
use crate::projects::member::{self, Member};
use crate::projects::page::ResultPage;
use crate::projects::project::{self, Project, ProjectFields, ProjectFilter};
use crate::projects::rejection::{ApiRejection, WorkResult};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, TagBinding, TaggedResource};
use crate::projects::workspace;

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "organizations/:organization_name/projects", "project_create", create => render_created),
    route!(GET "organizations/:organization_name/projects", "project_list", list => render_list),
    route!(GET "projects/:project_id", "project_show", show => render_one),
    route!(PATCH "projects/:project_id", "project_update", update => render_one),
    route!(DELETE "projects/:project_id", "project_delete", delete => render_empty),
    route!(POST "projects/:project_id/relationships/workspaces", "project_move", move_workspaces => render_empty),
];

/// Query parameters that pagination links repeat.
const LIST_PARAMETERS: &[&str] = &[
    "q",
    "sort",
    "include",
    "filter[names]",
    "filter[permissions][update]",
    "filter[permissions][create-workspace]",
    TAG_FILTER,
];

struct ProjectView {
    member: Member,
    project: Project,
    tags: Option<Vec<TagBinding>>,
}

async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Project)> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    project::require_may_create(&member)?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Exact(RESOURCE_TYPE), None)?;
    let given = read_fields(tx, &member, &resource, None).await?;
    let project = project::create(tx, &member, given).await?;
    Ok((member, project))
}

fn render_created((member, project): (Member, Project)) -> RenderedResult {
    RenderedResult::created(document(&member, &project))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ProjectView> {
    tx.lock_lookups();
    let (member, project) =
        project::find_visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Exact(RESOURCE_TYPE), Some(&project.ext_id))?;
    let given = read_fields(tx, &member, &resource, Some(&project)).await?;
    let project = project::change(tx, &member, project, given).await?;
    Ok(ProjectView { member, project, tags: None })
}

/// Reads the body of a create or an update. All attributes are checked before an error is returned.
async fn read_fields(
    tx: &mut Tx<'_>,
    member: &Member,
    resource: &PrimaryResource<'_>,
    stored: Option<&Project>,
) -> WorkResult<ProjectFields> {
    let mut attributes = AttributeReader::new(resource.attributes());
    let pool = resource.related("default-agent-pool")?;
    let mut fields = ProjectFields::read(tx, member, &mut attributes, pool, stored).await?;
    fields.tags = resource.tag_bindings(&mut attributes)?;
    attributes.finish()?;
    Ok(fields)
}

/// A page of projects, and if requested their effective tags, keyed by the row id of the project.
struct ProjectPage {
    list_request: ListRequest,
    member: Member,
    listed: ResultPage<Project>,
    total: i64,
    tags: Option<HashMap<i64, Vec<TagBinding>>>,
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ProjectPage> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let query = &call.query;
    let list_request = ListRequest::read(call, LIST_PARAMETERS)?;
    let with_tags = includes_tags(call)?;
    let mut granted = ProjectRights::NONE;
    if query.has("filter[permissions][update]") {
        granted |= ProjectRights::UPDATE;
    }
    if query.has("filter[permissions][create-workspace]") {
        granted |= ProjectRights::CREATE_WORKSPACE;
    }
    let wanted = ProjectFilter {
        names: query.list("filter[names]", MAX_FILTER_VALUES)?,
        q: query.text("q").map(str::to_owned),
        granted,
        tagged: query.tag_filters()?,
        by_name: query.sort(&["name"])?.map(|(_, backwards)| backwards),
    };
    let (listed, total) = project::list(tx, &member, &wanted, list_request.page).await?;
    let rows = listed.items.iter().map(|project| project.id).collect();
    let tags = if with_tags { Some(tag::load_bindings(tx, TaggedResource::Project, rows).await?) } else { None };
    Ok(ProjectPage { list_request, member, listed, total, tags })
}

fn render_list(ProjectPage { list_request, member, listed, total, tags }: ProjectPage) -> RenderedResult {
    let items = &listed.items;
    let total = Some(total);
    let Some(tags) = tags else {
        return list_request.document(items.iter().map(|project| document(&member, project)), listed.matching, total);
    };
    let of = |project: &Project| tags.get(&project.id).map_or(&[][..], Vec::as_slice);
    let included = items.iter().flat_map(of).map(|binding| effective_binding(binding, None)).collect();
    let items = items.iter().map(|project| document_with_tags(&member, project, of(project)));
    list_request.document(items, listed.matching, total).including(Some(included))
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ProjectView> {
    let (member, project) =
        project::find_visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    let tags = match includes_tags(call)? {
        true => Some(tag::load_bindings_of(tx, TaggedResource::Project, project.id).await?),
        false => None,
    };
    Ok(ProjectView { member, project, tags })
}

fn render_one(ProjectView { member, project, tags }: ProjectView) -> RenderedResult {
    let Some(tags) = tags else { return RenderedResult::resource(document(&member, &project)) };
    let included = tags.iter().map(|binding| effective_binding(binding, None)).collect();
    RenderedResult::resource(document_with_tags(&member, &project, &tags)).including(Some(included))
}

fn includes_tags(call: &ProjectsCall) -> Result<bool, ApiRejection> {
    Ok(!call.query.include(&["effective_tag_bindings"], &[])?.is_empty())
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (member, project) =
        project::find_visible(tx, &call.caller, call.param("project_id"), ProjectRights::DESTROY).await?;
    let may_delete_workspaces = workspace::may_delete_all(tx, &member, &project).await?;
    project::delete(tx, &member, &project, may_delete_workspaces).await
}

/// Moves the workspaces named in the body into the project in the path.
async fn move_workspaces(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let needed = ProjectRights::MOVE_WORKSPACE;
    let (member, project) = project::find_visible(tx, &call.caller, call.param("project_id"), needed).await?;
    let ids = body::read_typed_ids(&call.document, "workspaces")?;
    project::move_workspaces(tx, &member, &project, &ids).await
}

/// The type of project documents.
const RESOURCE_TYPE: &str = "projects";

/// Renders a project.
pub(crate) fn document(member: &Member, project: &Project) -> Rendered {
    let path = format!("/api/v2/projects/{}", project.ext_id);
    let mode = project.mode(member);
    let own = project.own_mode.is_some();
    let rights = project.rights;
    json!({
        "id": project.ext_id,
        "type": RESOURCE_TYPE,
        "attributes": {
            "name": project.name,
            "description": project.description,
            "created-at": format_time(project.created_at),
            "auto-destroy-activity-duration": project.auto_destroy,
            "workspace-count": project.workspaces,
            "team-count": project.teams,
            "is-unified": false,
            "default-execution-mode": mode.name,
            "setting-overwrites": { "default-execution-mode": own, "default-agent-pool": own },
            "permissions": {
                "can-read": rights.has(ProjectRights::READ),
                "can-update": rights.has(ProjectRights::UPDATE),
                "can-destroy": rights.has(ProjectRights::DESTROY),
                "can-create-workspace": rights.has(ProjectRights::CREATE_WORKSPACE),
                "can-move-workspace": rights.has(ProjectRights::MOVE_WORKSPACE),
                "can-manage-teams": rights.has(ProjectRights::MANAGE_TEAMS),
            },
        },
        "relationships": {
            "organization": related("organizations", &member.organization.name),
            "default-agent-pool": to_one("agent-pools", mode.pool.as_deref()),
            "tag-bindings": { "links": { "related": format!("{path}/tag-bindings") } },
            "effective-tag-bindings": { "links": { "related": format!("{path}/effective-tag-bindings") } },
        },
        "links": { "self": path },
    })
    .into()
}

/// Renders a project with the identifiers of its effective tags.
fn document_with_tags(member: &Member, project: &Project, tags: &[TagBinding]) -> Rendered {
    document(member, project).with(tags::EFFECTIVE_BINDINGS_PATH, tags::effective_identifiers(tags))
}
