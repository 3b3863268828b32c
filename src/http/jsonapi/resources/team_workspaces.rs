//! Workspace access of teams: create, list, show, update, delete.

use serde_json::{Value, json};

use super::super::body::{PrimaryResource, TypeRule};
use super::super::documents::related;
use super::super::list::ListRequest;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use crate::projects::page::ResultPage;
use crate::projects::rejection::{ApiRejection, WorkResult};
use crate::projects::workspace::{self, WorkspaceLocator, WorkspaceRights};
use crate::projects::workspace_access::{self, WorkspaceAccess, WorkspaceAccessChange};
use crate::projects::{Tx, team_access};

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "team-workspaces", "team_workspace_create", create => render_created),
    route!(GET "team-workspaces", "team_workspace_list", list => render_list),
    route!(GET "team-workspaces/:workspace_access_id", "team_workspace_show", show => render_one),
    route!(PATCH "team-workspaces/:workspace_access_id", "team_workspace_update", update => render_one),
    route!(DELETE "team-workspaces/:workspace_access_id", "team_workspace_delete", delete => render_empty),
];

/// The required query parameter of a list: the external id of a workspace.
const WORKSPACE_FILTER: &str = "filter[workspace][id]";
/// An optional query parameter of a list: the external id of a team.
const TEAM_FILTER: &str = "filter[team][id]";

/// Grants a team access to a workspace. The body names the workspace, so the shape of the body is checked before the
/// caller's rights.
async fn create(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspaceAccess> {
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    let workspace = resource.required_to_one("workspace")?;
    let team = resource.required_to_one("team")?;
    let key = WorkspaceLocator::Id(&workspace);
    let (member, workspace) = workspace::find_visible(tx, &call.caller, key, WorkspaceRights::ADMIN).await?;
    let team = team_access::find_team(tx, &call.caller, &member, &team).await?;
    let new = resource.read_attributes(WorkspaceAccessChange::read_new)?;
    workspace_access::create(tx, &member, &workspace, &team, new).await
}

fn render_created(access: WorkspaceAccess) -> RenderedResult {
    RenderedResult::created(document(&access))
}

async fn list(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ListRequest, ResultPage<WorkspaceAccess>)> {
    let missing = || ApiRejection::parameter(WORKSPACE_FILTER, format!("{WORKSPACE_FILTER} is required"));
    let wanted = call.query.text(WORKSPACE_FILTER).ok_or_else(missing)?;
    let list_request = ListRequest::read(call, &[WORKSPACE_FILTER, TEAM_FILTER])?;
    let key = WorkspaceLocator::Id(wanted);
    let (member, workspace) = workspace::find_visible(tx, &call.caller, key, WorkspaceRights::READ).await?;
    let team = call.query.text(TEAM_FILTER);
    let listed = workspace_access::list(tx, &member, &workspace, team, list_request.page).await?;
    Ok((list_request, listed))
}

fn render_list((list_request, listed): (ListRequest, ResultPage<WorkspaceAccess>)) -> RenderedResult {
    list_request.document(listed.items.iter().map(document), listed.matching, None)
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspaceAccess> {
    let needed = WorkspaceRights::READ;
    let (.., access) =
        workspace_access::find_visible(tx, &call.caller, call.param("workspace_access_id"), needed).await?;
    Ok(access)
}

fn render_one(access: WorkspaceAccess) -> RenderedResult {
    RenderedResult::resource(document(&access))
}

async fn update(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<WorkspaceAccess> {
    let needed = WorkspaceRights::ADMIN;
    let id = call.param("workspace_access_id");
    let (member, workspace, access) = workspace_access::find_visible(tx, &call.caller, id, needed).await?;
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, Some(&access.ext_id))?;
    let change = resource.read_attributes(WorkspaceAccessChange::read)?;
    workspace_access::update(tx, &member, &workspace, &access, change).await
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let needed = WorkspaceRights::ADMIN;
    let (.., access) =
        workspace_access::find_visible(tx, &call.caller, call.param("workspace_access_id"), needed).await?;
    workspace_access::delete(tx, &access).await
}

/// Renders a team's access to a workspace. The document lists every permission, whatever the access level.
fn document(access: &WorkspaceAccess) -> Rendered {
    let mut attributes = access.settings.attributes();
    attributes.insert("access".to_owned(), access.level.name().into());
    json!({
        "id": access.ext_id,
        "type": "team-workspaces",
        "attributes": Value::Object(attributes),
        "relationships": {
            "team": related("teams", &access.team),
            "workspace": related("workspaces", &access.workspace),
        },
        "links": { "self": format!("/api/v2/team-workspaces/{}", access.ext_id) },
    })
    .into()
}
