//! Workspaces: create, update, list, show, delete; by id, and by name in their organization.

use serde_json::{Value, json};

use super::body::{Resource, TypeRule};
use super::list::{self, Extra};
use super::query::{MOST_TAGS, Query};
use super::render::{self, Reply};
use super::route::{Call, Route, route};
use super::{organizations, projects, tags};
use crate::error::Kind;
use crate::projects::attributes::Attributes;
use crate::projects::caller::Member;
use crate::projects::refusal::{Fault, Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Holder};
use crate::projects::workspace::{self, Fields, Key, Wanted, Workspace, WorkspaceRights};
use crate::projects::{Tx, organization, project};

pub const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/workspaces", "workspace_create", create),
    route!(GET "organizations/:organization_name/workspaces", "workspace_list", list),
    route!(GET "organizations/:organization_name/workspaces/:workspace_name", "workspace_show_named", show),
    route!(PATCH "organizations/:organization_name/workspaces/:workspace_name", "workspace_update_named", update),
    route!(DELETE "organizations/:organization_name/workspaces/:workspace_name", "workspace_delete_named", delete),
    route!(POST "organizations/:organization_name/workspaces/:workspace_name/actions/safe-delete",
        "workspace_safe_delete_named", safe_delete),
    route!(GET "workspaces/:workspace_id", "workspace_show", show),
    route!(PATCH "workspaces/:workspace_id", "workspace_update", update),
    route!(DELETE "workspaces/:workspace_id", "workspace_delete", delete),
    route!(POST "workspaces/:workspace_id/actions/safe-delete", "workspace_safe_delete", safe_delete),
    route!(GET "workspaces/:workspace_id/current-state-version", "workspace_state", current_state_version),
    route!(POST "workspaces/:workspace_id/configuration-versions", "workspace_run_refuse", refuse_run),
];

/// The type of workspace documents.
const TYPE: &str = "workspaces";

/// The parameters that links of the list keep.
const PARAMETERS: &[&str] = &[
    "search[name]",
    "search[wildcard-name]",
    "search[tags]",
    "search[exclude-tags]",
    "filter[project][id]",
    "filter[current-run][status]",
    "sort",
    "include",
];
/// What can be included.
const INCLUDED: &[&str] = &["organization", "project", "effective_tag_bindings"];
/// What clients ask to include that there is never any of.
const NEVER_THERE: &[&str] = &[
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
/// Longest pattern of names, characters: names have at most 90.
const LONGEST_WILDCARD: usize = 256;

/// What the path names a workspace by.
pub fn key(call: &Call) -> Key<'_> {
    match call.param("workspace_id") {
        "" => Key::Name { organization: call.param("organization_name"), workspace: call.param("workspace_name") },
        id => Key::Id(id),
    }
}

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    let resource = Resource::read(call, TypeRule::Exact(TYPE), None)?;
    let project = workspace::destination(tx, &member, resource.to_one("project")?.flatten()).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let given = Fields::read(tx, &member, &mut attributes, None).await?;
    let bindings = tags::bindings(&resource, &mut attributes)?.unwrap_or_default();
    let flat = tags::flat(&resource, &mut attributes)?;
    attributes.finish()?;
    let row = workspace::create(tx, &member, &project, given).await?;
    if !bindings.is_empty() {
        tag::merge(tx, Holder::Workspace, row, &bindings).await?;
    }
    tag::add_flat(tx, Holder::Workspace, row, &flat).await?;
    let made = workspace::held(tx, &member, row, WorkspaceRights::NONE).await?;
    Ok(Reply::created(document(&member, &made)))
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, page) = (&call.query, call.query.page()?);
    let include = query.include(INCLUDED, NEVER_THERE)?;
    // The time of the last run orders nothing: nothing is run here.
    let sort = query.sort(&["name", "current-run.created-at"])?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let wanted = Wanted {
        name: text("search[name]"),
        wildcard: wildcard(query)?,
        tags: query.list("search[tags]", MOST_TAGS)?,
        without_tags: query.list("search[exclude-tags]", MOST_TAGS)?,
        tagged: query.tagged()?,
        project: text("filter[project][id]"),
        backwards: sort == Some(("name", true)),
    };
    let listed = if query.text("filter[current-run][status]").is_some() {
        workspace::none()
    } else {
        workspace::list(tx, &member, &wanted, page).await?
    };
    let (items, included) = with_included(tx, &member, &listed.items, &include).await?;
    let extra = Extra { included, ..Extra::default() };
    Ok(list::document(call, page, PARAMETERS, items, listed.matching, extra))
}

/// The pattern of names that is asked for.
fn wildcard(query: &Query) -> Result<Option<String>, Refusal> {
    const NAME: &str = "search[wildcard-name]";
    let pattern = query.text(NAME);
    if pattern.is_some_and(|pattern| pattern.chars().nth(LONGEST_WILDCARD).is_some()) {
        return Err(Refusal::parameter(NAME, format!("{NAME} may have at most {LONGEST_WILDCARD} characters")));
    }
    Ok(pattern.map(str::to_owned))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::READ).await?;
    let include = call.query.include(INCLUDED, NEVER_THERE)?;
    let (mut items, included) = with_included(tx, &member, std::slice::from_ref(&workspace), &include).await?;
    let mut item = items.pop().unwrap_or_default();
    if call.plans {
        // In mode `local` it would change things on its own and then look for a place for their state. So it
        // is sent where it is told that there is none: `refuse_run`.
        item["attributes"]["execution-mode"] = "remote".into();
    }
    let reply = Reply::resource(item);
    Ok(match included {
        Some(included) => reply.including(included),
        None => reply,
    })
}

/// The documents of workspaces, and what was asked for beside them: each resource once.
async fn with_included(
    tx: &mut Tx<'_>,
    member: &Member,
    workspaces: &[Workspace],
    include: &[&str],
) -> Outcome<(Vec<Value>, Option<Vec<Value>>)> {
    let mut items: Vec<Value> = workspaces.iter().map(|workspace| document(member, workspace)).collect();
    if include.is_empty() {
        return Ok((items, None));
    }
    let mut rows: Vec<i64> = workspaces.iter().map(|workspace| workspace.project).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut included = Vec::new();
    if include.contains(&"organization") && !workspaces.is_empty() {
        included.push(organizations::shown(tx, member).await?);
    }
    if include.contains(&"project") {
        // A workspace may be seen by who does not see its project.
        let projects = project::these(tx, member, rows.clone()).await?;
        let seen = projects.iter().filter(|project| project.rights.has(ProjectRights::READ));
        included.extend(seen.map(|project| projects::document(member, project)));
    }
    if include.contains(&"effective_tag_bindings") {
        let of_projects = tag::of(tx, Holder::Project, rows).await?;
        let mut seen = std::collections::HashSet::new();
        for (workspace, item) in workspaces.iter().zip(&mut items) {
            let inherited = of_projects.get(&workspace.project).map_or(&[][..], Vec::as_slice);
            let effective = tag::effective(&workspace.tags, inherited);
            let data: Vec<_> = effective.iter().map(|(binding, _)| tags::effective_identifier(binding)).collect();
            item["relationships"]["effective-tag-bindings"]["data"] = data.into();
            let new = effective.iter().filter(|(binding, _)| seen.insert(binding.ext_id.clone()));
            included.extend(new.map(|(binding, is_inherited)| {
                tags::effective(binding, is_inherited.then_some(&workspace.project_ext_id))
            }));
        }
    }
    Ok((items, Some(included)))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::READ).await?;
    let manages = workspace.rights.has(WorkspaceRights::ADMIN);
    if !manages && !workspace::may_leave(tx, &member, &workspace).await? {
        return Err(Refusal::not_found().into());
    }
    let workspace = workspace::held(tx, &member, workspace.id, WorkspaceRights::READ).await?;
    let resource = Resource::read(call, TypeRule::Exact(TYPE), Some(&workspace.ext_id))?;
    let project = match resource.to_one("project")? {
        Some(None) => return Err(Refusal::at("/data/relationships/project", "project must name a project").into()),
        named => named.flatten(),
    };
    let mut attributes = Attributes::new(resource.attributes());
    let given = Fields::read(tx, &member, &mut attributes, Some(&workspace)).await?;
    let bindings = tags::bindings(&resource, &mut attributes)?;
    let changes = !resource.attributes().is_empty() || bindings.is_some();
    // Who may only move it may change nothing else.
    if changes && !workspace.rights.has(WorkspaceRights::ADMIN) {
        return Err(Refusal::not_found().into());
    }
    attributes.finish()?;
    if let Some(project) = project {
        workspace::carry(tx, &member, &workspace, &project).await?;
    }
    if changes {
        workspace::change(tx, workspace.id, given).await?;
    }
    if let Some(bindings) = bindings {
        tag::replace(tx, Holder::Workspace, workspace.id, &bindings).await?;
    }
    let changed = workspace::held(tx, &member, workspace.id, WorkspaceRights::NONE).await?;
    Ok(Reply::resource(document(&member, &changed)))
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::DESTROY).await?;
    workspace::delete(tx, &member, &workspace, false).await?;
    Ok(Reply::Empty)
}

async fn safe_delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let (member, workspace) = workspace::visible(tx, &call.caller, key(call), WorkspaceRights::DESTROY).await?;
    Resource::read(call, TypeRule::Any, None)?;
    workspace::delete(tx, &member, &workspace, true).await?;
    Ok(Reply::Empty)
}

/// Workspaces hold no state here: clients begin with an empty one.
async fn current_state_version(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    workspace::visible(tx, &call.caller, key(call), WorkspaceRights::READ).await?;
    Err(Refusal::not_found().into())
}

/// The first step of every plan and apply: nothing has changed yet, and nothing will.
async fn refuse_run(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    workspace::visible(tx, &call.caller, key(call), WorkspaceRights::READ).await?;
    Resource::read(call, TypeRule::Any, None)?;
    let detail = "this server administers workspaces, it runs nothing and keeps no state: plan and apply where there \
        is a backend for the state";
    let fault = Fault { title: Some("plan and apply are not possible here"), detail: detail.into(), source: None };
    Err(Refusal::of(Kind::Invalid, vec![fault]).into())
}

/// A workspace's document, the same wherever it is shown; but see `show`.
pub fn document(member: &Member, workspace: &Workspace) -> Value {
    let (organization, name) = (&member.organization.name, &workspace.name);
    let path = format!("/api/v2/workspaces/{}", workspace.ext_id);
    let mode = workspace.mode(member);
    let project = &workspace.project_ext_id;
    json!({
        "id": workspace.ext_id,
        "type": TYPE,
        "attributes": attributes(member, workspace),
        "relationships": {
            "organization": {
                "data": { "id": organization, "type": "organizations" },
                "links": { "related": format!("/api/v2/organizations/{organization}") },
            },
            "project": {
                "data": { "id": project, "type": "projects" },
                "links": { "related": format!("/api/v2/projects/{project}") },
            },
            "agent-pool": { "data": mode.pool.as_ref().map(|id| json!({ "id": id, "type": "agent-pools" })) },
            "locked-by": { "data": workspace.locked_by.as_deref().and_then(holder) },
            "current-run": { "data": null },
            "tag-bindings": { "links": { "related": format!("{path}/tag-bindings") } },
            "effective-tag-bindings": { "links": { "related": format!("{path}/effective-tag-bindings") } },
        },
        "links": {
            "self": format!("/api/v2/organizations/{organization}/workspaces/{name}"),
            "self-html": format!("/app/{organization}/workspaces/{name}"),
        },
    })
}

/// The resource that a stored holder of a lock names.
fn holder(stored: &str) -> Option<Value> {
    let (kind, id) = stored.split_once('/')?;
    Some(json!({ "id": id, "type": kind }))
}

fn attributes(member: &Member, workspace: &Workspace) -> Value {
    let mode = workspace.mode(member);
    let own = workspace.own_mode.is_some();
    let flat = workspace.tags.iter().filter(|binding| binding.value.is_empty()).map(|binding| &binding.key[..]);
    let mut attributes = json!({
        "name": workspace.name,
        "description": workspace.description,
        "created-at": render::time(workspace.created_at),
        "updated-at": render::time(workspace.updated_at),
        "execution-mode": mode.name,
        "operations": mode.name != "local",
        "setting-overwrites": { "execution-mode": own, "agent-pool": own },
        "terraform-version": workspace.terraform_version,
        "locked": workspace.locked_by.is_some(),
        "auto-destroy-activity-duration": workspace.auto_destroy,
        "inherits-project-auto-destroy": workspace.inherits_auto_destroy,
        "auto-destroy-at": workspace.auto_destroy_at.map(render::time),
        "tag-names": flat.collect::<Vec<_>>(),
        "source": "tfe-api",
        "actions": { "is-destroyable": true },
        "resource-count": 0,
        "permissions": permissions(workspace.rights),
    });
    if let Value::Object(attributes) = &mut attributes {
        attributes.append(&mut workspace.settings.all());
    }
    attributes
}

fn permissions(rights: WorkspaceRights) -> Value {
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
