//! Projects: create, update, list, show, delete, and moving workspaces into one.

use serde_json::{Value, json};

use super::body::{self, Resource, TypeRule};
use super::list::{self, Extra};
use super::query::MOST_LISTED;
use super::render::{self, Reply};
use super::route::{Call, Route, route};
use super::tags;
use crate::projects::attributes::Attributes;
use crate::projects::caller::Member;
use crate::projects::project::{self, Fields, Project, Wanted};
use crate::projects::refusal::{Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Holder};
use crate::projects::{Tx, organization};

pub const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/projects", "project_create", create),
    route!(GET "organizations/:organization_name/projects", "project_list", list),
    route!(GET "projects/:project_id", "project_show", show),
    route!(PATCH "projects/:project_id", "project_update", update),
    route!(DELETE "projects/:project_id", "project_delete", delete),
    route!(POST "projects/:project_id/relationships/workspaces", "project_move", take_in),
];

/// The type of project documents.
const TYPE: &str = "projects";

/// The parameters that links of the list keep.
const PARAMETERS: &[&str] =
    &["q", "sort", "include", "filter[names]", "filter[permissions][update]", "filter[permissions][create-workspace]"];

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    project::may_create(&member)?;
    let resource = Resource::read(call, TypeRule::Exact(TYPE), None)?;
    let given = given(tx, &member, &resource, None).await?;
    let project = project::create(tx, &member, given).await?;
    Ok(Reply::created(document(&member, &project)))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    tx.hold();
    let (member, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::UPDATE).await?;
    let resource = Resource::read(call, TypeRule::Exact(TYPE), Some(&project.ext_id))?;
    let given = given(tx, &member, &resource, Some(&project)).await?;
    let project = project::change(tx, &member, project, given).await?;
    Ok(Reply::resource(document(&member, &project)))
}

/// What a create or an update gives; everything that is wrong with it is told at once.
async fn given(tx: &mut Tx<'_>, member: &Member, resource: &Resource<'_>, stored: Option<&Project>) -> Outcome<Fields> {
    let mut attributes = Attributes::new(resource.attributes());
    let mut fields = Fields::read(tx, member.organization.id, &mut attributes, stored).await?;
    if let Some(elements) = resource.to_many("tag-bindings", tag::MOST_SENT)? {
        fields.tags = Some(tag::read(&mut attributes, elements, "/data/relationships/tag-bindings/data"));
    }
    attributes.finish()?;
    Ok(fields)
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, page, with_tags) = (&call.query, call.query.page()?, includes_tags(call)?);
    let mut granted = ProjectRights::NONE;
    if query.has("filter[permissions][update]") {
        granted |= ProjectRights::UPDATE;
    }
    if query.has("filter[permissions][create-workspace]") {
        granted |= ProjectRights::CREATE_WORKSPACE;
    }
    let wanted = Wanted {
        names: query.list("filter[names]", MOST_LISTED)?,
        q: query.text("q").map(str::to_owned),
        granted,
        tagged: query.tagged()?,
        by_name: query.sort(&["name"])?.map(|(_, backwards)| backwards),
    };
    let (listed, total) = project::list(tx, &member, &wanted, page).await?;
    let mut items: Vec<Value> = listed.items.iter().map(|project| document(&member, project)).collect();
    let included = if with_tags { Some(include_tags(tx, &listed.items, &mut items).await?) } else { None };
    let extra = Extra { total: Some(total), included };
    Ok(list::document(call, page, PARAMETERS, items, listed.matching, extra))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, project) = project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::READ).await?;
    let mut shown = [document(&member, &project)];
    if !includes_tags(call)? {
        let [shown] = shown;
        return Ok(Reply::resource(shown));
    }
    let included = include_tags(tx, &[project], &mut shown).await?;
    let [shown] = shown;
    Ok(Reply::resource(shown).including(included))
}

/// Whether the tags that hold for a project are asked for beside it.
fn includes_tags(call: &Call) -> Result<bool, Refusal> {
    Ok(!call.query.include(&["effective_tag_bindings"], &[])?.is_empty())
}

/// Names in each document the tags that hold for its project; gives the tags themselves.
async fn include_tags(tx: &mut Tx<'_>, projects: &[Project], documents: &mut [Value]) -> Outcome<Vec<Value>> {
    let mut bindings = tag::of(tx, Holder::Project, projects.iter().map(|project| project.id).collect()).await?;
    let mut included = Vec::new();
    for (project, document) in projects.iter().zip(documents) {
        let own = bindings.remove(&project.id).unwrap_or_default();
        let named: Vec<Value> = own.iter().map(tags::effective_identifier).collect();
        document["relationships"]["effective-tag-bindings"]["data"] = named.into();
        included.extend(own.iter().map(|binding| tags::effective(binding, None)));
    }
    Ok(included)
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, project) =
        project::visible(tx, &call.caller, call.param("project_id"), ProjectRights::DESTROY).await?;
    project::delete(tx, &member, &project).await?;
    Ok(Reply::Empty)
}

/// Moves workspaces into the project.
async fn take_in(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let needed = ProjectRights::MOVE_WORKSPACE;
    let (member, project) = project::visible(tx, &call.caller, call.param("project_id"), needed).await?;
    let ids = body::identifiers(call, "workspaces")?;
    project::move_workspaces(tx, &member, &project, &ids).await?;
    Ok(Reply::Empty)
}

/// A project's document, the same wherever it is shown.
pub fn document(member: &Member, project: &Project) -> Value {
    let path = format!("/api/v2/projects/{}", project.ext_id);
    let organization = &member.organization.name;
    let mode = project.mode(member);
    let (own, rights) = (project.own_mode.is_some(), project.rights);
    json!({
        "id": project.ext_id,
        "type": TYPE,
        "attributes": {
            "name": project.name,
            "description": project.description,
            "created-at": render::time(project.created_at),
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
            "organization": {
                "data": { "id": organization, "type": "organizations" },
                "links": { "related": format!("/api/v2/organizations/{organization}") },
            },
            "default-agent-pool": {
                "data": mode.pool.as_ref().map(|id| json!({ "id": id, "type": "agent-pools" })),
            },
            "tag-bindings": { "links": { "related": format!("{path}/tag-bindings") } },
            "effective-tag-bindings": { "links": { "related": format!("{path}/effective-tag-bindings") } },
        },
        "links": { "self": path },
    })
}
